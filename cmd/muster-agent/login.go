package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/keyfile"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// loginDir is the state of the agent of a login host.
func loginDir(stateDir string) string { return filepath.Join(stateDir, "login") }

// enrolledFile keeps where the controllers are, beside the certificate.
const enrolledFile = "enrolled.json"

// enrolled is what a host that has enrolled needs to know besides its
// certificate.
type enrolled struct {
	Name        string   `json:"name"` // in the certificate
	Controllers []string `json:"controllers"`
	Accounting  string   `json:"accounting,omitempty"` // where it runs apart
}

// rememberEnrolment notes where the cluster is, so that the agent needs no configuration
// to find it again.
func (p party) rememberEnrolment(e enrolled) error {
	e.Name = p.name
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return keyfile.Write(filepath.Join(p.tls, enrolledFile), append(data, '\n'), 0o644)
}

// readEnrolment is what this host's enrolment has noted; nothing before it.
func (p party) readEnrolment() (e enrolled, err error) {
	path := filepath.Join(p.tls, enrolledFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return e, fmt.Errorf("%s: %w", path, err)
	}
	return e, nil
}

// enrolHost is --enrol: it gets a certificate in place of any that is there.
func (p party) enrolHost(ctx context.Context, e enrolled, out io.Writer) error {
	e.Controllers = remoteAddresses(e.Controllers)
	if len(e.Controllers) == 0 {
		return errors.New(
			"--enrol: name the controller with --controller HOST[:PORT]; over its socket no certificate is needed",
		)
	}
	if err := p.enrolAt(ctx, e.Controllers); err != nil {
		return err
	}
	return p.noteWelcome(ctx, e, out)
}

// noteWelcome tells what an enrolment has brought, and keeps where it was.
func (p party) noteWelcome(ctx context.Context, e enrolled, out io.Writer) error {
	source, err := p.openCertificates(ctx, e.Controllers)
	if err != nil {
		return err
	}
	if err := p.rememberEnrolment(e); err != nil {
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

// enrolNode is --enrol on a compute node.
func enrolNode(ctx context.Context, o options, out io.Writer) error {
	o, err := fetchConfig(ctx, o, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	s, err := readSettings(o)
	if err != nil {
		return err
	}
	if o.sent != nil { // it has enrolled on the way
		return s.nodeParty().noteWelcome(ctx, enrolled{Controllers: o.sent.controllers}, out)
	}
	addresses, err := s.controllerAddresses()
	if err != nil {
		return err
	}
	return s.nodeParty().enrolHost(ctx, enrolled{Controllers: addresses}, out)
}

// loginSettings are what the agent of a login host is told.
type loginSettings struct {
	cfg        *conffile.Config
	party      party
	addresses  []string
	accounting string // where it runs apart; empty = with the controller
}

// readLogin finds what there is: a login host needs no file but its
// certificate, and follows muster.yaml and slurm.conf where it has them.
func readLogin(o options) (*loginSettings, error) {
	cfg, err := loadConfig(o)
	if err != nil {
		return nil, err
	}
	s := &loginSettings{
		cfg:   cfg,
		party: party{name: o.node, role: identity.Login, tokenFile: o.tokenFile},
	}
	s.party.tls = filepath.Join(orElse(o.stateDir, loginDir(cfg.StateDir)), "tls")
	known, err := s.party.readEnrolment()
	if err != nil {
		return nil, err
	}
	s.party.name = orElse(s.party.name, known.Name)
	if s.party.name == "" {
		s.party.name, err = os.Hostname()
		if err != nil {
			return nil, err
		}
	}
	s.accounting = orElse(o.accounting, known.Accounting)
	if s.accounting != "" {
		if _, _, err := net.SplitHostPort(s.accounting); err != nil {
			return nil, fmt.Errorf("--accounting: %w", err)
		}
	}
	s.addresses, err = s.controllerAddresses(o, known)
	return s, err
}

// controllerAddresses are --controller, else those of the enrolment, else what slurm.conf
// says.
func (s *loginSettings) controllerAddresses(o options, known enrolled) ([]string, error) {
	if o.controller != "" {
		return namedControllers(o.controller, 0), nil
	}
	if len(known.Controllers) > 0 {
		return known.Controllers, nil
	}
	conf := orElse(o.conf, s.cfg.SlurmConf)
	if _, err := os.Stat(conf); err != nil {
		return nil, errors.New(
			"where is the controller? Name it with --controller HOST[:PORT] when this host enrols; it is remembered",
		)
	}
	cluster, problems := conffile.ReadSlurm(conf)
	if err := problems.Err(); err != nil {
		return nil, fmt.Errorf("the cluster's configuration cannot be used:\n%w", err)
	}
	return controllersOf(cluster)
}

// controllersOf are the controllers that slurm.conf names.
func controllersOf(cluster *slurmconf.Cluster) ([]string, error) {
	var out []string
	for _, h := range cluster.Control.Hosts {
		out = append(out, withPort(orElse(h.Addr, h.Name), cluster.Control.Port))
	}
	if len(out) == 0 {
		return nil, errors.New(
			"slurm.conf names no SlurmctldHost: name the controller with --controller",
		)
	}
	return out, nil
}

// serveLogin is the agent of a login host: the commands' way to the controller,
// and srun's to the nodes. It runs no jobs.
func serveLogin(ctx context.Context, o options, out, errOut io.Writer) error {
	s, err := readLogin(o)
	if err != nil {
		return err
	}
	if o.enrol {
		return s.party.enrolHost(
			ctx,
			enrolled{Controllers: s.addresses, Accounting: s.accounting},
			out,
		)
	}
	log := newLogger(s.cfg.Log, errOut).With("login", s.party.name)
	if err := os.MkdirAll(filepath.Dir(s.party.tls), 0o755); err != nil {
		return err
	}
	unlock, err := lockDir(filepath.Dir(s.party.tls))
	if err != nil {
		return err
	}
	defer unlock()
	source, err := s.party.openCertificates(ctx, s.addresses)
	if err != nil {
		return err
	}
	if source == nil {
		return errors.New(
			"on the controller's own host its socket serves the commands: a login host is another machine",
		)
	}
	if err := s.party.rememberEnrolment(enrolled{Controllers: remoteAddresses(s.addresses), Accounting: s.accounting}); err != nil {
		return err
	}
	g, err := openGate(s.cfg.Socket, remoteAddresses(s.addresses), source, log)
	if err != nil {
		return err
	}
	gates := []*gate{g}
	if s.accounting != "" {
		g, err = openGate(s.cfg.AccountingSocket, []string{s.accounting}, source, log)
		if err != nil {
			return err
		}
		gates = append(gates, g)
	}
	steps := &stepServer{source: source, log: log}
	if _, port, err := net.SplitHostPort(string(s.cfg.Listen.AgentGRPC)); err == nil {
		steps.port = port
	}
	steps.near, err = listen.Unix(nearSteps(s.cfg), 0o666)
	if err != nil {
		return err
	}
	ctl := newControllers(s.addresses, source)
	defer func() { _ = ctl.close() }()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { renewCertificate(ctx, source, pki.Dir(s.party.tls), ctl, log) })
	for _, g := range gates {
		g.serveCommands(ctx, &wg)
	}
	steps.serveSteps(ctx, &wg)
	<-ctx.Done()
	log.Info("the agent ends; what was submitted goes on")
	return nil
}

// nearSteps is the socket by which srun on this host reaches steps on others.
func nearSteps(cfg *conffile.Config) string {
	return filepath.Join(filepath.Dir(cfg.Socket), stepsSocket)
}
