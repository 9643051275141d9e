package pki

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/internal/transport/identity"
)

// Files of a Dir. Those with a key are 0600, the folder 0700, the others 0644.
const (
	CACertFile  = "ca.crt"
	CAKeyFile   = "ca.key"
	HostFile    = "host.pem" // this host's certificate, the authority's and the host's key: one file, so that a renewal is atomic
	RevokedFile = "revoked.crl"
)

// ErrExists is wrapped when a new authority would replace one that is there.
var ErrExists = errors.New("there is an authority already")

// Dir is the folder that holds a host's certificates: on controllers the authority with its key
// too, on nodes only its certificate.
type Dir string

func (d Dir) pathOf(name string) string { return filepath.Join(string(d), name) }

// Init makes the authority of a new cluster and the certificate of its first controller, and
// stores both. It refuses to touch a folder that holds an authority's key. The key is written
// last, so that an interrupted Init can simply be run again.
func (d Dir) Init(cluster string, controller Holder, now time.Time) (*CA, error) {
	if _, err := os.Lstat(d.pathOf(CAKeyFile)); !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(
			fmt.Errorf(
				"%s: %w: every certificate of the cluster hangs on it",
				d.pathOf(CAKeyFile),
				ErrExists,
			),
			err,
		)
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, err
	}
	ca, err := NewCA(cluster, now)
	if err != nil {
		return nil, err
	}
	controller.Role = identity.Controller
	host, err := ca.Issue(controller, now)
	if err != nil {
		return nil, err
	}
	if err := d.SaveHost(host); err != nil {
		return nil, err
	}
	pair, err := ca.Pair()
	if err != nil {
		return nil, err
	}
	if err := durable.WriteFile(d.pathOf(CACertFile), pair.Cert, 0o644); err != nil {
		return nil, err
	}
	return ca, durable.WriteFile(d.pathOf(CAKeyFile), pair.Key, 0o600)
}

// CA reads the authority; its key must be closed to others.
func (d Dir) CA() (*CA, error) {
	key, err := durable.ReadPrivate(d.pathOf(CAKeyFile))
	if err != nil {
		return nil, err
	}
	cert, err := os.ReadFile(d.pathOf(CACertFile))
	if err != nil {
		return nil, err
	}
	ca, err := ParseCA(Pair{Cert: cert, Key: key})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d, err)
	}
	return ca, nil
}

// SaveHost replaces this host's certificate and key in one step.
func (d Dir) SaveHost(pair Pair) error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(d.pathOf(HostFile), bytes.Join([][]byte{pair.Cert, pair.Key}, nil), 0o600)
}

// SaveEnrolled stores what a host got when it enrolled: its pair and the authority's
// certificate, which is the last in p.Cert.
func (d Dir) SaveEnrolled(pair Pair) error {
	i := bytes.LastIndex(pair.Cert, []byte("-----BEGIN CERTIFICATE-----"))
	if i <= 0 {
		return fmt.Errorf("enrolment: %w: want the leaf and the authority", ErrBadPEM)
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	if err := durable.WriteFile(d.pathOf(CACertFile), pair.Cert[i:], 0o644); err != nil {
		return err
	}
	return d.SaveHost(pair)
}

// Host is a host's material, read and checked.
type Host struct {
	Pair      Pair
	Leaf      *x509.Certificate
	Authority *x509.Certificate
	Revoked   Revocations // what revoked.crl lists; empty without the file
	Number    int64       // of that list
}

// Host reads this host's material: key and certificate belong together, the authority signed
// the certificate and the list.
func (d Dir) Host() (Host, error) {
	var host Host
	both, err := durable.ReadPrivate(d.pathOf(HostFile))
	if err != nil {
		return Host{}, err
	}
	host.Pair = Pair{Cert: both, Key: both} // each parser takes the blocks of its kind
	caPEM, err := os.ReadFile(d.pathOf(CACertFile))
	if err != nil {
		return Host{}, err
	}
	if err := host.check(caPEM); err != nil {
		return Host{}, fmt.Errorf("%s: %w", d, err)
	}
	list, err := os.ReadFile(d.pathOf(RevokedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return host, nil
	}
	if err != nil {
		return Host{}, err
	}
	host.Revoked, host.Number, err = ParseList(list, host.Authority)
	if err != nil {
		return Host{}, fmt.Errorf("%s: %w", d.pathOf(RevokedFile), err)
	}
	return host, nil
}

func (h *Host) check(caPEM []byte) error {
	var err error
	h.Authority, err = ParseCertificate(caPEM)
	if err != nil {
		return fmt.Errorf("%s: %w", CACertFile, err)
	}
	h.Leaf, err = ParseCertificate(h.Pair.Cert)
	if err != nil {
		return fmt.Errorf("%s: %w", HostFile, err)
	}
	key, err := parseKey(h.Pair.Key)
	if err != nil {
		return fmt.Errorf("%s: %w", HostFile, err)
	}
	if !key.PublicKey.Equal(h.Leaf.PublicKey) {
		return fmt.Errorf(
			"certificate and key in %s do not belong together: enrol this host again",
			HostFile,
		)
	}
	if err := h.Leaf.CheckSignatureFrom(h.Authority); err != nil {
		return fmt.Errorf("%s is not signed by %s: %w", HostFile, CACertFile, err)
	}
	return nil
}

// SaveList stores a revocation list after checking that the authority signed it and that it is
// not older than the stored one.
func (d Dir) SaveList(listPEM []byte) error {
	host, err := d.Host()
	if err != nil {
		return err
	}
	_, number, err := ParseList(listPEM, host.Authority)
	if err != nil {
		return err
	}
	if number < host.Number {
		return fmt.Errorf("revocation list %d is older than the stored %d", number, host.Number)
	}
	return durable.WriteFile(d.pathOf(RevokedFile), listPEM, 0o644)
}
