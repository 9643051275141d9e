package identity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"unsafe"
)

// soPeerGroups is SO_PEERGROUPS of the kernel (4.13), which package syscall does not name.
const soPeerGroups = 59

// FromPeer returns the identity of the process at the other end of a unix socket, as the kernel
// recorded it when the connection was made. names may be nil; a uid without a name is no error.
func FromPeer(ctx context.Context, conn syscall.Conn, names Resolver) (Identity, error) {
	if u, ok := conn.(*net.UnixConn); !ok || u == nil {
		return Nameless(), errors.New("peer credentials: not a unix socket")
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return Nameless(), fmt.Errorf("peer credentials: %w", err)
	}
	var cred *syscall.Ucred
	var groups []uint32
	var sockErr error
	err = raw.Control(func(fd uintptr) {
		cred, sockErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		if sockErr == nil {
			groups, sockErr = peerGroups(fd)
		}
	})
	err = errors.Join(err, sockErr)
	if err != nil {
		return Nameless(), fmt.Errorf("peer credentials: %w", err)
	}
	if cred.Uid == NoID {
		return Nameless(), errors.New(
			"peer credentials: the peer has none (a socket pair or an unmapped namespace)",
		)
	}
	identity := Identity{
		Kind:   LocalUser,
		UID:    cred.Uid,
		GID:    cred.Gid,
		PID:    cred.Pid,
		Groups: groups,
	}
	if names != nil {
		if name, err := names.UserName(ctx, identity.UID); err == nil {
			identity.User = name
		}
	}
	return identity, nil
}

// peerGroups reads the supplementary groups; a kernel or sandbox without the option gives none.
func peerGroups(fd uintptr) ([]uint32, error) {
	for room := 64; ; {
		groups := make([]uint32, room)
		size := uint32(4 * room)
		_, _, errno := syscall.Syscall6(
			syscall.SYS_GETSOCKOPT,
			fd,
			syscall.SOL_SOCKET,
			soPeerGroups,
			uintptr(unsafe.Pointer(&groups[0])),
			uintptr(unsafe.Pointer(&size)),
			0,
		)
		switch {
		case errno == 0:
			return groups[:size/4], nil
		case errno == syscall.ERANGE && int(size/4) > room && size/4 <= 1<<16:
			room = int(size / 4) // the kernel said how many there are
		case errno == syscall.ENOPROTOOPT || errno == syscall.EOPNOTSUPP || errno == syscall.EINVAL || errno == syscall.ENODATA:
			return nil, nil
		default:
			return nil, errno
		}
	}
}
