// Package listen opens the sockets of a daemon and, when one is taken, says by whom.
package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// ErrBusy is wrapped when somebody else listens there.
var ErrBusy = errors.New("address is in use")

// maxSocketPath is what fits in sun_path with its final zero.
const maxSocketPath = 107

// UnixListener is a listening unix socket. Close removes its file.
type UnixListener struct {
	*net.UnixListener
	path string
	lock *os.File
	once sync.Once
	err  error
}

// Unix listens on a socket with the given permissions. A file lock beside it (path + ".lock")
// tells a socket in use from one that a killed process left behind; the latter is replaced. The
// socket appears under its name only when its permissions are set.
func Unix(path string, perm fs.FileMode) (*UnixListener, error) {
	temporary := path + ".new"
	if len(temporary) > maxSocketPath {
		return nil, fmt.Errorf(
			"socket %s: the path is longer than the %d characters that unix sockets allow",
			path,
			maxSocketPath-len(".new"),
		)
	}
	lock, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	l, err := bind(path, temporary, perm)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &UnixListener{UnixListener: l, path: path, lock: lock}, nil
}

func bind(path, temporary string, perm fs.FileMode) (*net.UnixListener, error) {
	for _, old := range []string{temporary, path} {
		if err := removeSocket(old); err != nil {
			return nil, err
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(temporary, perm)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		l.Close()
		return nil, errors.Join(
			fmt.Errorf("listen on socket %s: %w", path, err),
			os.Remove(temporary),
		)
	}
	return l, nil
}

// removeSocket removes a socket that nobody serves any more, and nothing that is not a socket.
func removeSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and is not a socket: it is not ours to remove", path)
	}
	return os.Remove(path)
}

func lockFile(path string) (*os.File, error) {
	lock, err := os.OpenFile(
		path+".lock",
		os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC|syscall.O_NOFOLLOW,
		0o600,
	)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return lock, nil
	}
	lock.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("socket %s: %w by %s", path, ErrBusy, unixOwner(path))
	}
	return nil, fmt.Errorf("lock socket %s: %w", path, err)
}

// unixOwner asks the kernel who listens on a socket.
func unixOwner(path string) string {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return "a process that is just starting or stopping"
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return "another process"
	}
	var cred *syscall.Ucred
	var sockErr error
	if err := raw.Control(func(fd uintptr) {
		cred, sockErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil || sockErr != nil {
		return "another process"
	}
	return processName("/proc", int(cred.Pid))
}

// Addr returns the socket's final name.
func (l *UnixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close stops listening and removes the socket. The lock file stays: removing it would let two
// processes lock different files.
func (l *UnixListener) Close() error {
	l.once.Do(func() {
		l.err = errors.Join(os.Remove(l.path), l.UnixListener.Close(), l.lock.Close())
	})
	return l.err
}

// TCP listens on a TCP address. When it is taken, the error names the process, as far as this
// one may see it.
func TCP(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %s: %w by %s", address, ErrBusy, tcpOwner("/proc", address))
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return listener, nil
}

// tcpOwner looks for the process that listens on a port: its socket's inode is in
// /proc/net/tcp, the process has it open.
func tcpOwner(proc, address string) string {
	_, portText, err := net.SplitHostPort(address)
	if err != nil {
		return "another process"
	}
	port, err := net.DefaultResolver.LookupPort(context.Background(), "tcp", portText)
	if err != nil {
		return "another process"
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(filepath.Join(proc, "net", table))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if inode, uid, ok := listening(line, port); ok {
				return processWithInode(proc, inode, uid)
			}
		}
	}
	return "another process"
}

// listening reads a line of /proc/net/tcp: "sl local:port remote:port state queues timer
// retransmits uid timeout inode ...".
func listening(line string, port int) (inode, uid string, ok bool) {
	const listenState = "0A"
	fields := strings.Fields(line)
	if len(fields) < 10 || fields[3] != listenState {
		return "", "", false
	}
	_, hex, found := strings.Cut(fields[1], ":")
	n, err := strconv.ParseUint(hex, 16, 16)
	if !found || err != nil || int(n) != port {
		return "", "", false
	}
	return fields[9], fields[7], true
}

func processWithInode(proc, inode, uid string) string {
	want := "socket:[" + inode + "]"
	fds, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "fd", "[0-9]*"))
	if err != nil {
		fds = nil
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && target == want {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(fd))))
			if err == nil {
				return processName(proc, pid)
			}
		}
	}
	return "a process of uid " + uid
}

func processName(proc string, pid int) string {
	comm, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "comm"))
	if err != nil {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("process %d (%s)", pid, strings.TrimSpace(string(comm)))
}
