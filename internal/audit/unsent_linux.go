package audit

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsentBytes is how many bytes the other host has not confirmed yet. On a socket of
// this host nothing is under way: what was written is with the receiver.
func unsentBytes(conn net.Conn) (left int, err error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return 0, nil
	}
	var raw syscall.RawConn
	raw, err = tcp.SyscallConn()
	if err != nil {
		return 0, err
	}
	if controlErr := raw.Control(func(fd uintptr) { left, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); controlErr != nil {
		return 0, controlErr
	}
	return left, err
}
