// Package enrolment gets a host its certificate: it trades a token for one, remembers where the
// controllers are, and renews the certificate before it ends. An enrolment whose answer was
// lost is repeated with the same key.
package enrolment

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/nodeagent/controllers"
)

// Party is whom this process is in the cluster, and where its certificates are.
type Party struct {
	Name      string
	Role      identity.Kind // Agent or Login
	TLS       string        // folder
	TokenFile string
	// Waiting is told once when no controller answers an enrolment at first; nil = nobody is.
	Waiting func(err error)
}

// A host asks for its certificate again for as long as patience while no controller answers:
// it may have booted before its controller, and a busy one may miss a handshake.
const (
	patience     = time.Minute
	firstPause   = 200 * time.Millisecond
	longestPause = 10 * time.Second
)

// describeHost is what people call such a host, and how a token for it is made.
func (p Party) describeHost() (what, command string) {
	if p.Role == identity.Login {
		return "login host", "muster token --login " + p.Name
	}
	return "node", "muster token " + p.Name
}

// EnrolCommand is the command that makes a token for the host of a certificate.
func EnrolCommand(source *pki.Source) string {
	self := source.Self()
	_, command := Party{Name: self.Node, Role: self.Kind}.describeHost()
	return command
}

// OpenCertificates gives this host's certificates. Without any it enrols with the
// token; nil says that no controller is reached over TLS.
func (p Party) OpenCertificates(ctx context.Context, addresses []string) (*pki.Source, error) {
	remote := controllers.RemoteAddresses(addresses)
	if len(remote) == 0 {
		return nil, nil
	}
	what, command := p.describeHost()
	_, err := os.Stat(filepath.Join(p.TLS, pki.HostFile))
	if errors.Is(err, fs.ErrNotExist) {
		if p.TokenFile == "" {
			return nil, fmt.Errorf(
				"this %s has no certificate in %s: make a token on the controller with `%s` and give it with --token-file",
				what,
				p.TLS,
				command,
			)
		}
		if err := p.EnrolAt(ctx, remote); err != nil {
			return nil, err
		}
	}
	source, err := pki.LoadSource(pki.Dir(p.TLS))
	if err != nil {
		return nil, fmt.Errorf("this %s's certificate: %w", what, err)
	}
	if self := source.Self(); self.Kind != p.Role || self.Node != p.Name {
		return nil, fmt.Errorf(
			"the certificate in %s is of %s, not of %s %s: give each its own --state-dir",
			p.TLS,
			self,
			what,
			p.Name,
		)
	}
	return source, nil
}

// EnrolAt trades the token for a certificate at the first controller that answers. It asks
// again for a minute while none does.
func (p Party) EnrolAt(ctx context.Context, addresses []string) error {
	token, err := readToken(p.TokenFile)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.askInTurn(ctx, addresses, func(address string) error {
		return p.enrol(ctx, address, token)
	})
}

// askInTurn asks the controllers one after the other until one answers, again and again until
// the context ends. The error is that of the answer, or the last one of each controller. A server
// that is no controller of the cluster is not asked again for itself: it stays what it is.
func (p Party) askInTurn(
	ctx context.Context, addresses []string, request func(address string) error,
) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		var errs []error
		away := false
		for _, address := range addresses {
			err := request(address)
			if err == nil {
				return nil
			}
			errs = append(errs, fmt.Errorf("enrol at %s: %w", address, err))
			if errors.Is(err, pki.ErrPin) {
				continue
			}
			if hasAnswered(err) {
				return errors.Join(errs...)
			}
			away = true
		}
		if !away {
			return errors.Join(errs...)
		}
		if p.Waiting != nil && pause == firstPause {
			p.Waiting(errors.Join(errs...))
		}
		select {
		case <-ctx.Done():
			return errors.Join(errs...)
		case <-time.After(pause):
		}
	}
}

// hasAnswered tells whether an error is a controller's answer. An answer that was lost may be
// asked for again, with the same key.
func hasAnswered(err error) bool {
	var status *rpcstatus.Error
	if !errors.As(err, &status) {
		return true
	}
	return status.Wire != rpcstatus.Unavailable && status.Wire != rpcstatus.DeadlineExceeded
}

// Files of an enrolment that is not finished: with the same key a lost answer
// can be asked for again.
const (
	enrolKey     = "enrol.key"
	enrolRequest = "enrol.csr"
)

// enrol trades the token for a certificate.
func (p Party) enrol(ctx context.Context, address, text string) error {
	_, pin, err := pki.ParseToken(text)
	if err != nil {
		return err
	}
	csr, key, err := p.signingRequest()
	if err != nil {
		return err
	}
	// gRPC passes on only the text of why a handshake failed.
	var stranger atomic.Pointer[error]
	conn, err := grpcx.DialTLS(address, func() *tls.Config {
		config := pki.Pinned(pin, channel.ALPNGRPC)
		verify := config.VerifyConnection
		config.VerifyConnection = func(state tls.ConnectionState) error {
			err := verify(state)
			if err != nil {
				stranger.Store(&err)
			}
			return err
		}
		return config
	})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	reply, err := service.NewAgentsClient(conn).
		Enrol(ctx, &apiv1.EnrolRequest{Token: text, Node: p.Name, Csr: csr})
	if why := stranger.Load(); err != nil && why != nil {
		return *why
	}
	if err != nil {
		return err
	}
	if err := pki.Dir(p.TLS).SaveEnrolled(pki.Pair{Cert: reply.GetCertificate(), Key: key}); err != nil {
		return err
	}
	return errors.Join(
		os.Remove(filepath.Join(p.TLS, enrolKey)),
		os.Remove(filepath.Join(p.TLS, enrolRequest)),
	)
}

// signingRequest gives the signing request to send: that of an unfinished enrolment,
// or a new one, stored before it is used.
func (p Party) signingRequest() (csr, key []byte, err error) {
	keyPath, csrPath := filepath.Join(p.TLS, enrolKey), filepath.Join(p.TLS, enrolRequest)
	key, err = durable.ReadPrivate(keyPath)
	if err == nil {
		csr, err = os.ReadFile(csrPath)
	}
	switch {
	case err == nil && requestIsFor(csr, p.Name):
		return csr, key, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, nil, err
	}
	// Nothing is lost with a request for another name or one that cannot be
	// read: the controller has refused it, or would.
	csr, key, err = pki.NewRequest(p.Name)
	if err != nil {
		return nil, nil, err
	}
	// Users' jobs are run from below the folder around it: they must be able to pass.
	err = os.MkdirAll(filepath.Dir(p.TLS), 0o711)
	if err != nil {
		return nil, nil, err
	}
	err = os.MkdirAll(p.TLS, 0o700)
	if err != nil {
		return nil, nil, err
	}
	err = durable.WriteFile(csrPath, csr, 0o600)
	if err == nil {
		err = durable.WriteFile(keyPath, key, 0o600)
	}
	return csr, key, err
}

// requestIsFor tells whether a stored signing request is for this host. One
// that an enrolment under a mistyped name has left is not.
func requestIsFor(csr []byte, name string) bool {
	parsed, err := pki.ParseRequest(csr)
	return err == nil && parsed.Subject.CommonName == name
}

// readToken reads a token from a file that only its owner can read, or from
// standard input.
func readToken(path string) (string, error) {
	if path == "-" {
		b, err := io.ReadAll(io.LimitReader(os.Stdin, 4096))
		return strings.TrimSpace(string(b)), err
	}
	b, err := durable.ReadPrivate(path)
	return strings.TrimSpace(string(b)), err
}

// RenewCertificate keeps the certificate young. A failure is tried again: there is a
// third of the certificate's life left when it begins.
func RenewCertificate(
	ctx context.Context,
	source *pki.Source,
	dir pki.Dir,
	c *controllers.Controllers,
	logger *slog.Logger,
) {
	const retry = 10 * time.Minute
	for {
		wait := max(time.Until(source.RenewAfter()), 0)
		for {
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			err := Renew(ctx, source, dir, c)
			if err == nil {
				logger.Info("this host's certificate was renewed", "until", source.Self().NotAfter)
				break
			}
			logger.Warn(
				"this host's certificate could not be renewed; trying again",
				"error",
				err,
				"ends",
				source.Self().NotAfter,
			)
			wait = retry
		}
	}
}

// Renew gets a new certificate from the controller with the present one.
func Renew(ctx context.Context, source *pki.Source, dir pki.Dir, c *controllers.Controllers) error {
	csr, key, err := pki.NewRequest(source.Self().Node)
	if err != nil {
		return err
	}
	client, address, err := c.CurrentClient()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	reply, err := client.Renew(ctx, &apiv1.RenewRequest{Csr: csr})
	if err != nil {
		return fmt.Errorf("controller %s: %w", address, err)
	}
	if err := dir.SaveHost(pki.Pair{Cert: reply.GetCertificate(), Key: key}); err != nil {
		return err
	}
	return source.Reload()
}
