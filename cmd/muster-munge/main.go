// Muster-munge is the way of a command to the controllers from a host without an agent: it dials
// them over TLS, proves who runs it by a credential of MUNGE, and passes bytes. The commands
// start it; it links what they leave out so that they start quickly.
//
// It talks on file descriptor 3. Its first line there is "ok CREDENTIAL" or "error TEXT".
package main

import (
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/musterhpc/muster/internal/transport/munge/carrier"
)

// line is the descriptor on which the command listens.
const line = 3

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(
			os.Stderr,
			"muster-munge is started by the commands of Muster: muster-munge CONTROLLERS AUTHORITY SOCKET",
		)
		os.Exit(2)
	}
	if err := run(strings.Split(os.Args[1], ","), os.Args[2], os.Args[3]); err != nil {
		os.Exit(1)
	}
}

func run(controllers []string, authority, socket string) error {
	file := os.NewFile(line, "command")
	command, err := net.FileConn(file)
	if err != nil {
		return err
	}
	file.Close()
	return carrier.Carry(command, controllers, authority, socket)
}
