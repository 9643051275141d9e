//go:build linux

package protocol

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// SamePeer lets in only the process's own user and root.
func SamePeer(sock *net.UnixConn) error {
	raw, err := sock.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return credErr
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("process %d of user %d may not command this process", cred.Pid, cred.Uid)
	}
	return nil
}
