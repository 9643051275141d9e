// Package hostile does what an attacker of a controller does: it connects as any
// user and sends what a well-behaved client does not. The attacks of test/attack
// and the tests of the server share it.
package hostile

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
)

// DialUnix connects to a local socket as another user, which only root can: the
// kernel notes the ids of the thread that connects.
func DialUnix(ctx context.Context, path string, uid int) (net.Conn, error) {
	if uid == os.Getuid() {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		conn, err := dialInOwnThread(path, uid)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// dialInOwnThread connects on a thread that it takes along: the thread is not
// unlocked and so ends with the goroutine, because its ids must never serve
// anybody else.
func dialInOwnThread(path string, uid int) (net.Conn, error) {
	runtime.LockOSThread()
	unchanged := ^uintptr(0)
	for _, call := range []uintptr{syscall.SYS_SETRESGID, syscall.SYS_SETRESUID} {
		if _, _, errno := syscall.RawSyscall(call, unchanged, uintptr(uid), unchanged); errno != 0 {
			return nil, errno
		}
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		return nil, err
	}
	return net.FileConn(file)
}

// ClientPreface is what a client of HTTP/2 sends first (RFC 9113).
const ClientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Kinds of HTTP/2 frames, and the flag that ends a list of headers.
const (
	frameData      = 0x0
	frameHeaders   = 0x1
	frameSettings  = 0x4
	flagEndHeaders = 0x4
)

func httpFrame(kind, flags byte, id uint32, payload []byte) []byte {
	head := []byte{
		byte(len(payload) >> 16),
		byte(len(payload) >> 8),
		byte(len(payload)),
		kind,
		flags,
	}
	return append(binary.BigEndian.AppendUint32(head, id), payload...)
}

// UnfinishedMessages are the bytes of a gRPC client, in portions, that begins so
// many calls with messages of announced bytes and sends sent bytes of each.
func UnfinishedMessages(calls, announced, sent int) [][]byte {
	// Literal header fields without indexing (RFC 7541, section 6.2.2).
	var head []byte
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/muster.v1.Cluster/Submit"}, {":authority", "localhost"},
		{"content-type", "application/grpc"}, {"te", "trailers"}} {
		head = append(append(head, 0, byte(len(h[0]))), h[0]...)
		head = append(append(head, byte(len(h[1]))), h[1]...)
	}
	message := append(
		binary.BigEndian.AppendUint32([]byte{0}, uint32(announced)),
		make([]byte, sent)...)
	portions := [][]byte{append([]byte(ClientPreface), httpFrame(frameSettings, 0, 0, nil)...)}
	for call := range calls {
		id := uint32(2*call + 1)
		portions = append(
			portions,
			append(
				httpFrame(frameHeaders, flagEndHeaders, id, head),
				httpFrame(frameData, 0, id, message)...),
		)
	}
	return portions
}

// ManyValues is a small request in JSON that is expensive to decode.
func ManyValues(values int) string {
	return `{"filter":{"jobs":[` + strings.Repeat(`"",`, values) + `""]}}`
}
