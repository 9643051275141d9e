// Source makes TLS configurations of a host's certificates and keeps them current: what
// is renewed on disk is used for the next connection after Reload, without a restart.
//
// Both sides check more than the chain: a server's and a client's certificate must name a party
// of this cluster, must not be revoked, and a client insists on the role it means to talk to,
// so that a stolen node certificate cannot pose as the controller.

package pki

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/musterhpc/muster/internal/transport/identity"
)

// Source is a host's certificates. It is safe for several goroutines.
type Source struct {
	dir     Dir
	current atomic.Pointer[material]
	revoked atomic.Pointer[Revocations] // set by SetRevoked; nil = the list on disk counts
}

type material struct {
	host  Host
	cert  tls.Certificate
	roots *x509.CertPool
	self  identity.Identity
}

// LoadSource reads a host's certificates.
func LoadSource(dir Dir) (*Source, error) {
	source := &Source{dir: dir}
	return source, source.Reload()
}

// Reload reads the files again. On error what was loaded before stays in use.
func (s *Source) Reload() error {
	host, err := s.dir.Host()
	if err != nil {
		return err
	}
	cert, err := tls.X509KeyPair(host.Pair.Cert, host.Pair.Key)
	if err != nil {
		return fmt.Errorf("%s: %w", s.dir, err)
	}
	self, err := identity.FromCertificate(host.Leaf, clusterOf(host.Authority))
	if err != nil {
		return fmt.Errorf("%s: %w", s.dir, err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(host.Authority)
	s.current.Store(&material{host: host, cert: cert, roots: roots, self: self})
	return nil
}

func clusterOf(authority *x509.Certificate) string {
	if len(authority.Subject.Organization) != 1 {
		return ""
	}
	return authority.Subject.Organization[0]
}

// Self returns whom this host's certificate names.
func (s *Source) Self() identity.Identity { return s.current.Load().self }

// RenewAfter returns when this host should ask for its next certificate.
func (s *Source) RenewAfter() time.Time {
	leaf := s.current.Load().host.Leaf
	return RenewAfter(leaf.NotBefore, leaf.NotAfter)
}

// SetRevoked replaces the list from disk by a fresher one: the controller's ledger knows first.
func (s *Source) SetRevoked(revocations Revocations) { s.revoked.Store(&revocations) }

// Revoked reports that a serial number is revoked.
func (s *Source) Revoked(serial string) bool {
	if revocations := s.revoked.Load(); revocations != nil {
		return revocations.Has(serial)
	}
	return s.current.Load().host.Revoked.Has(serial)
}

// Server returns the configuration of a listener. requireCert refuses clients without a
// certificate; otherwise they are let in as identity.Nameless, which enrolment and users with a
// credential need.
func (s *Source) Server(requireCert bool, protocols ...string) *tls.Config {
	auth := tls.VerifyClientCertIfGiven
	if requireCert {
		auth = tls.RequireAndVerifyClientCert
	}
	fresh := func(*tls.ClientHelloInfo) (*tls.Config, error) {
		m := s.current.Load()
		return &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{m.cert}, ClientAuth: auth, ClientCAs: m.roots,
			NextProtos: protocols, SessionTicketsDisabled: true, // a resumed session would outlive its certificate
			VerifyConnection: func(state tls.ConnectionState) error { return s.check(state, nil) },
		}, nil
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: fresh,
		NextProtos:         protocols,
	}
}

// Client returns the configuration of one connection to a server that is dialled as serverName
// and must have the given role. Make a new one for each connection: it holds the certificates
// of this moment.
func (s *Source) Client(serverName string, role identity.Kind, protocols ...string) *tls.Config {
	m := s.current.Load()
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{m.cert}, RootCAs: m.roots, ServerName: serverName, NextProtos: protocols,
		VerifyConnection: func(state tls.ConnectionState) error { return s.check(state, &role) },
	}
}

// check is VerifyConnection: the chain has been verified already.
func (s *Source) check(state tls.ConnectionState, role *identity.Kind) error {
	if len(state.PeerCertificates) == 0 {
		return nil // the server's ClientAuth decides
	}
	id, err := identity.FromCertificate(state.PeerCertificates[0], s.Self().Cluster)
	if err != nil {
		return err
	}
	if s.Revoked(id.Serial) {
		return fmt.Errorf("certificate of %s, serial %s: %w", id, id.Serial, ErrRevoked)
	}
	if role != nil && id.Kind != *role {
		return fmt.Errorf("%w: the server is %s, want a %s", identity.ErrCertificate, id, *role)
	}
	return nil
}

// Secure returns the function that a framed client's Target wants.
func (s *Source) Secure(
	serverName string,
	role identity.Kind,
	protocol string,
) func(context.Context, net.Conn) (net.Conn, error) {
	return func(ctx context.Context, plain net.Conn) (net.Conn, error) {
		return handshake(ctx, plain, s.Client(serverName, role, protocol))
	}
}

func handshake(ctx context.Context, plain net.Conn, config *tls.Config) (net.Conn, error) {
	c := tls.Client(plain, config)
	if err := c.HandshakeContext(ctx); err != nil {
		plain.Close()
		return nil, err
	}
	return c, nil
}

// ErrPin is wrapped when a server is not of the cluster that an enrolment token names.
var ErrPin = errors.New("the server is not a controller of the cluster that the token is for")

// Pinned returns the configuration with which a host that has only a token dials the controller
// to enrol. It sends no certificate and accepts only a controller whose authority has the
// token's pin.
func Pinned(pin Hash, protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols,
		InsecureSkipVerify: true, // the pin is the trust anchor; checkPin verifies the chain to it
		VerifyConnection:   func(state tls.ConnectionState) error { return checkPin(state, pin) },
	}
}

func checkPin(state tls.ConnectionState, pin Hash) error {
	roots := x509.NewCertPool()
	var authority *x509.Certificate
	for _, c := range state.PeerCertificates {
		if sha256.Sum256(c.Raw) == pin {
			authority = c
			roots.AddCert(c)
		}
	}
	if authority == nil {
		return fmt.Errorf("%w: none of its certificates has the pin", ErrPin)
	}
	leaf := state.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
		return fmt.Errorf("%w: %w", ErrPin, err)
	}
	id, err := identity.FromCertificate(leaf, clusterOf(authority))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPin, err)
	}
	if id.Kind != identity.Controller {
		return fmt.Errorf("%w: it is %s", ErrPin, id)
	}
	return nil
}

// Binding is what a TLS connection has and no other (RFC 9266): both ends know it, and a
// credential that holds it is of no use elsewhere.
func Binding(state tls.ConnectionState) (string, error) {
	data, err := state.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, 32)
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(data), nil
}

// Trusting returns the configuration with which a host without a certificate dials a controller
// whose authority (PEM) it has.
func Trusting(authority []byte, protocols ...string) (*tls.Config, error) {
	block, _ := pem.Decode(authority)
	if block == nil {
		return nil, errors.New("it holds no certificate (PEM)")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	pin := sha256.Sum256(cert.Raw)
	config := Pinned(pin, protocols...)
	config.VerifyConnection = func(state tls.ConnectionState) error {
		// The authority need not be in what the server sends.
		state.PeerCertificates = append(slices.Clone(state.PeerCertificates), cert)
		return checkPin(state, pin)
	}
	return config, nil
}
