package front

import (
	"encoding/binary"
	"net"
	"sync"
	"time"
)

// nativeHello is the first byte that clickhouse-client sends; no HTTP request begins with it.
const nativeHello = 0

// nativeRefusal is what a client of the native protocol is told.
const nativeRefusal = "DB::Exception: This is Muster's embedded ClickHouse engine: it serves the HTTP interface only, not the native protocol of clickhouse-client. Use curl, a client that speaks HTTP, or `muster sql`."

// sniffWait bounds how long the refusal may take to be written.
const sniffWait = 30 * time.Second

// SniffNative wraps a listener so that a client of ClickHouse's native protocol is told, in that protocol, that only
// HTTP is spoken here, instead of seeing its connection die.
func SniffNative(listener net.Listener) net.Listener { return &sniffListener{Listener: listener} }

type sniffListener struct{ net.Listener }

func (l *sniffListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &sniffConn{Conn: conn}, nil
}

// sniffConn looks at the first byte when it is first read, in the goroutine that serves the connection, so that a
// silent client holds up no one else.
type sniffConn struct {
	net.Conn
	once sync.Once
}

func (c *sniffConn) Read(p []byte) (int, error) {
	first := false
	c.once.Do(func() { first = true })
	n, err := c.Conn.Read(p)
	if first && n > 0 && p[0] == nativeHello {
		_ = c.SetWriteDeadline(time.Now().Add(sniffWait))
		_, _ = c.Conn.Write(nativeException(codeUnsupportedHTTP, nativeRefusal)) // it may have left
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// nativeException is an exception packet of the native protocol.
func nativeException(code int32, text string) []byte {
	buffer := []byte{2} // packet type: exception
	buffer = binary.LittleEndian.AppendUint32(buffer, uint32(code))
	buffer = appendText(buffer, "DB::Exception")
	buffer = appendText(buffer, text)
	buffer = appendText(buffer, "") // stack trace
	return append(buffer, 0)        // no nested exception
}
