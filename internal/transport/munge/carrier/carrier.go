// Package carrier carries a command of a host without an agent to the controllers: it dials them over
// TLS, proves who runs the command by a credential of MUNGE, and passes bytes.
package carrier

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/munge"
	"github.com/musterhpc/muster/internal/transport/pki"
)

// dialPatience is how long one controller may take to answer.
const dialPatience = 5 * time.Second

// Carry passes bytes between a command and the controller that leads, until one of them ends. It
// tells the command first how it went: "ok CREDENTIAL" or "error TEXT", on a line.
func Carry(command net.Conn, controllers []string, authority, socket string) error {
	defer command.Close()
	controller, credential, err := reachLeader(controllers, authority, socket)
	if err != nil {
		_, werr := fmt.Fprintf(command, "error %s\n", strings.ReplaceAll(err.Error(), "\n", " "))
		return errors.Join(err, werr)
	}
	defer controller.Close()
	if _, err := fmt.Fprintf(command, "ok %s\n", credential); err != nil {
		return err
	}
	ended := make(chan error, 2)
	pass := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		ended <- err
	}
	go pass(controller, command)
	go pass(command, controller)
	return <-ended // the end of this call closes both
}

// reachLeader finds the controller that leads, and makes a credential for the connection to it.
func reachLeader(controllers []string, authority, socket string) (*tls.Conn, string, error) {
	ca, err := os.ReadFile(authority)
	if err != nil {
		return nil, "", fmt.Errorf(
			"the cluster's authority: %w; copy tls/ca.crt of a controller there",
			err,
		)
	}
	config, err := pki.Trusting(ca, framed.ALPN)
	if err != nil {
		return nil, "", fmt.Errorf("the cluster's authority, %s: %w", authority, err)
	}
	library, err := munge.Open(socket)
	if err != nil {
		return nil, "", fmt.Errorf(
			"%w: install it with the cluster's munge.key, or run muster-agent --login on this host",
			err,
		)
	}
	var failures []string
	for _, address := range controllers {
		conn, err := dialTLS(address, config)
		switch {
		case channel.IsStandby(err):
			failures = append(failures, address+" stands by")
			continue
		case err != nil:
			failures = append(failures, address+": "+err.Error())
			continue
		}
		credential, err := credentialFor(library, conn)
		if err != nil {
			conn.Close()
			return nil, "", err
		}
		return conn, credential, nil
	}
	return nil, "", fmt.Errorf("no controller answers: %s", strings.Join(failures, "; "))
}

func dialTLS(address string, config *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialPatience)
	defer cancel()
	plain, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(plain, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		plain.Close()
		return nil, err
	}
	return conn, nil
}

func credentialFor(library *munge.Library, conn *tls.Conn) (string, error) {
	binding, err := pki.Binding(conn.ConnectionState())
	if err != nil {
		return "", err
	}
	return library.Encode(munge.Payload(binding))
}
