package listen

import (
	"errors"
	"log/slog"
	"net"
	"time"
)

// acceptPause is the wait before another try of accept.
const acceptPause = 50 * time.Millisecond

// Accept takes the next connection. An error that passes, such as too many open
// files, is waited out: it must not end the daemon that listens.
func Accept(listener net.Listener, logger *slog.Logger) (net.Conn, error) {
	for {
		conn, err := listener.Accept()
		var temporary interface{ Temporary() bool }
		if err == nil || !errors.As(err, &temporary) || !temporary.Temporary() {
			return conn, err
		}
		logger.Warn("cannot accept a connection; trying again", "error", err)
		//muster:sleep nothing tells when there are files or memory again
		time.Sleep(acceptPause)
	}
}
