// Command raw makes one framed call on plain bytes, without protobuf.
package main

import (
	"context"
	"net"
	"os"

	"github.com/musterhpc/muster/internal/transport/framed"
)

func main() {
	conn, err := net.Dial("unix", os.Args[1])
	if err == nil {
		c := framed.NewConn(conn, framed.Preface)
		_, err = c.Invoke(context.Background(), os.Args[2], []byte("\x0a\x01x"))
	}
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
}
