package clusters

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
)

// Certificate is what a controller's pod does before musterd starts for the first time: the
// cluster's authority is put into the state folder, and a certificate is made of it. musterd
// renews that by itself from then on.
type Certificate struct {
	Authority string   // folder with ca.crt and ca.key
	TLS       string   // tls.dir of the controller
	Name      string   // of the controller in slurm.conf
	Hosts     []string // by which it is reached
}

// Prepare makes the certificate unless there is one, and tells whether it did.
func (c *Certificate) Prepare(now time.Time) (bool, error) {
	pair := pki.Pair{}
	var err error
	for name, into := range map[string]*[]byte{pki.CACertFile: &pair.Cert, pki.CAKeyFile: &pair.Key} {
		if *into, err = os.ReadFile(filepath.Join(c.Authority, name)); err != nil {
			return false, fmt.Errorf("the cluster's authority: %w", err)
		}
	}
	ca, err := pki.ParseCA(pair)
	if err != nil {
		return false, fmt.Errorf("the cluster's authority in %s: %w", c.Authority, err)
	}
	dir := pki.Dir(c.TLS)
	host, err := dir.Host()
	switch {
	case errors.Is(err, fs.ErrNotExist): // the first time
	case err != nil:
		return false, err // somebody else's files are not written over
	case !host.Authority.Equal(ca.Certificate()):
		return false, fmt.Errorf("%s has the certificate of another authority than %s: give the pod an empty volume, or the cluster its old Secret", c.TLS, c.Authority)
	default:
		return false, nil
	}
	issued, err := ca.Issue(pki.Holder{
		Role:  identity.Controller,
		Name:  c.Name,
		Hosts: append([]string{c.Name, "localhost", "127.0.0.1", "::1"}, c.Hosts...),
	}, now)
	if err != nil {
		return false, err
	}
	// The certificate comes last: where it is, nothing is missing after an interruption.
	if err := os.MkdirAll(c.TLS, 0o700); err != nil {
		return false, err
	}
	if err := durable.WriteFile(filepath.Join(c.TLS, pki.CAKeyFile), pair.Key, 0o600); err != nil {
		return false, err
	}
	return true, dir.SaveEnrolled(issued)
}
