package enrolment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/nodeagent/controllers"
)

// EnrolledFile keeps where the controllers are, beside the certificate.
const EnrolledFile = "enrolled.json"

// Enrolled is what a host that has enrolled needs to know besides its
// certificate.
type Enrolled struct {
	Name        string   `json:"name"` // in the certificate
	Controllers []string `json:"controllers"`
	Accounting  string   `json:"accounting,omitempty"` // where it runs apart
}

// RememberEnrolment notes where the cluster is, so that the agent needs no configuration
// to find it again.
func (p Party) RememberEnrolment(enrolled Enrolled) error {
	enrolled.Name = p.Name
	data, err := json.Marshal(enrolled)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(p.TLS, EnrolledFile), append(data, '\n'), 0o644)
}

// ReadEnrolment is what this host's enrolment has noted; nothing before it.
func (p Party) ReadEnrolment() (enrolled Enrolled, err error) {
	path := filepath.Join(p.TLS, EnrolledFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return enrolled, nil
	}
	if err != nil {
		return enrolled, err
	}
	if err := json.Unmarshal(data, &enrolled); err != nil {
		return enrolled, fmt.Errorf("%s: %w", path, err)
	}
	return enrolled, nil
}

// EnrolHost is --enrol: it gets a certificate in place of any that is there.
func (p Party) EnrolHost(ctx context.Context, enrolled Enrolled, out io.Writer) error {
	enrolled.Controllers = controllers.RemoteAddresses(enrolled.Controllers)
	if len(enrolled.Controllers) == 0 {
		return errors.New(
			"--enrol: name the controller with --controller HOST[:PORT]; over its socket no certificate is needed",
		)
	}
	p.Waiting = func(err error) {
		fmt.Fprintf(out, "no controller answers yet, asking again for %v: %v\n", patience, err)
	}
	if err := p.EnrolAt(ctx, enrolled.Controllers); err != nil {
		return err
	}
	return p.NoteWelcome(ctx, enrolled, out)
}

// NoteWelcome tells what an enrolment has brought, and keeps where it was.
func (p Party) NoteWelcome(ctx context.Context, enrolled Enrolled, out io.Writer) error {
	source, err := p.OpenCertificates(ctx, enrolled.Controllers)
	if err != nil {
		return err
	}
	if err := p.RememberEnrolment(enrolled); err != nil {
		return err
	}
	self := source.Self()
	_, err = fmt.Fprintf(
		out,
		"%s of cluster %s has its certificate, good until %s and renewed by itself\n",
		self,
		self.Cluster,
		self.NotAfter.Format("2006-01-02"),
	)
	return err
}
