package main

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
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/keyfile"
	"github.com/musterhpc/muster/internal/transport/mtls"
	"github.com/musterhpc/muster/internal/transport/pki"
)

// certificates gives this node's certificates. Without any it enrols with the
// token; needed says that a controller is reached over TLS.
func (s *settings) certificates(ctx context.Context, addresses []string) (*mtls.Source, error) {
	remote := ""
	for _, a := range addresses {
		if !strings.Contains(a, "/") {
			remote = a
			break
		}
	}
	if remote == "" {
		return nil, nil
	}
	dir := pki.Dir(s.tlsDir())
	_, err := os.Stat(filepath.Join(s.tlsDir(), pki.HostFile))
	if errors.Is(err, fs.ErrNotExist) {
		if s.tokenFile == "" {
			return nil, fmt.Errorf("this node has no certificate in %s: make a token on the controller with `muster token %s` and give it with --token-file",
				s.tlsDir(), s.node.Name)
		}
		if err := s.enrol(ctx, remote, dir); err != nil {
			return nil, fmt.Errorf("enrol at %s: %w", remote, err)
		}
	}
	source, err := mtls.Load(dir)
	if err != nil {
		return nil, fmt.Errorf("this node's certificate: %w", err)
	}
	if self := source.Self(); self.Kind != identity.Agent || self.Node != s.node.Name {
		return nil, fmt.Errorf("the certificate in %s is of %s, not of node %s: give each node its own --state-dir", s.tlsDir(), self, s.node.Name)
	}
	return source, nil
}

func (s *settings) tlsDir() string { return filepath.Join(s.stateDir, "tls") }

// Files of an enrolment that is not finished: with the same key a lost answer
// can be asked for again.
const (
	enrolKey     = "enrol.key"
	enrolRequest = "enrol.csr"
)

// enrol trades the token for a certificate.
func (s *settings) enrol(ctx context.Context, address string, dir pki.Dir) error {
	text, err := readToken(s.tokenFile)
	if err != nil {
		return err
	}
	_, pin, err := pki.ParseToken(text)
	if err != nil {
		return err
	}
	csr, key, err := s.request()
	if err != nil {
		return err
	}
	conn, err := grpcx.DialTLS(address, func() *tls.Config { return mtls.Pinned(pin, channel.ALPNGRPC) })
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	reply, err := service.NewAgentsClient(conn).Enrol(ctx, &apiv1.EnrolRequest{Token: text, Node: s.node.Name, Csr: csr})
	if err != nil {
		return err
	}
	if err := dir.SaveEnrolled(pki.Pair{Cert: reply.GetCertificate(), Key: key}); err != nil {
		return err
	}
	return errors.Join(os.Remove(filepath.Join(s.tlsDir(), enrolKey)), os.Remove(filepath.Join(s.tlsDir(), enrolRequest)))
}

// request gives the signing request to send: that of an unfinished enrolment,
// or a new one, stored before it is used.
func (s *settings) request() (csr, key []byte, err error) {
	keyPath, csrPath := filepath.Join(s.tlsDir(), enrolKey), filepath.Join(s.tlsDir(), enrolRequest)
	key, err = keyfile.Read(keyPath)
	if err == nil {
		if csr, err = os.ReadFile(csrPath); err == nil {
			return csr, key, nil
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	if csr, key, err = pki.NewRequest(s.node.Name); err != nil {
		return nil, nil, err
	}
	if err = os.MkdirAll(s.tlsDir(), 0o700); err != nil {
		return nil, nil, err
	}
	if err = keyfile.Write(csrPath, csr, 0o600); err == nil {
		err = keyfile.Write(keyPath, key, 0o600)
	}
	return csr, key, err
}

// readToken reads a token from a file that only its owner can read, or from
// standard input.
func readToken(path string) (string, error) {
	if path == "-" {
		b, err := io.ReadAll(io.LimitReader(os.Stdin, 4096))
		return strings.TrimSpace(string(b)), err
	}
	b, err := keyfile.Read(path)
	return strings.TrimSpace(string(b)), err
}

// renewal keeps the certificate young. A failure is tried again: there is a
// third of the certificate's life left when it begins.
func renewal(ctx context.Context, source *mtls.Source, dir pki.Dir, c *controllers, log *slog.Logger) {
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
			err := renew(ctx, source, dir, c)
			if err == nil {
				log.Info("this node's certificate was renewed", "until", source.Self().NotAfter)
				break
			}
			log.Warn("this node's certificate could not be renewed; trying again", "error", err, "ends", source.Self().NotAfter)
			wait = retry
		}
	}
}

func renew(ctx context.Context, source *mtls.Source, dir pki.Dir, c *controllers) error {
	csr, key, err := pki.NewRequest(source.Self().Node)
	if err != nil {
		return err
	}
	client, address, err := c.client()
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
