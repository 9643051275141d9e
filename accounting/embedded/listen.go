package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhpc/muster/accounting/embedded/front"
)

// listenUnix opens the socket at path with mode 0600. A socket that nobody answers on is left
// over from a process that was killed, and is replaced; one that somebody answers on is not.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the socket's folder: %w", err)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("%s is there and is no socket: not replacing it", path)
		}
		dial, cancel := context.WithTimeout(ctx, time.Second)
		conn, err := new(net.Dialer).DialContext(dial, "unix", path)
		cancel()
		if err == nil {
			conn.Close()
			return nil, fmt.Errorf("%w: something answers on the socket %s", ErrInUse, path)
		}
	}
	// It is made in a folder nobody else can enter, given its mode there and then moved: at no
	// time can another user connect.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, fmt.Errorf("make the socket: %w", err)
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "s")
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", made)
	if err != nil {
		return nil, fmt.Errorf("make the socket: %w", err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	err = os.Chmod(made, 0o600)
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		listener.Close()
		return nil, fmt.Errorf("make the socket: %w", err)
	}
	return &socketListener{Listener: listener, path: path}, nil
}

// socketListener removes its path when closed.
type socketListener struct {
	net.Listener
	path string
}

func (l *socketListener) Close() error {
	err := l.Listener.Close()
	if rm := os.Remove(l.path); rm != nil && !errors.Is(rm, os.ErrNotExist) && err == nil {
		err = rm
	}
	return err
}

// listenTCP opens the TCP listener, with TLS when there is a certificate.
func listenTCP(ctx context.Context, options Options) (net.Listener, error) {
	var config *tls.Config
	if options.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(options.TLSCert, options.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("load the certificate for --tcp: %w", err)
		}
		config = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", options.TCP)
	if err != nil {
		return nil, fmt.Errorf("listen on --tcp %s: %w", options.TCP, err)
	}
	if config != nil {
		return tls.NewListener(listener, config), nil
	}
	return front.SniffNative(listener), nil
}
