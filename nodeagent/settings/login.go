package settings

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/nodeagent/enrolment"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// LoginDir is the state of the agent of a login host.
func LoginDir(stateDir string) string { return filepath.Join(stateDir, "login") }

// Login is what the agent of a login host is told.
type Login struct {
	Cfg        *conffile.Config
	Party      enrolment.Party
	Addresses  []string
	Accounting string // where it runs apart; empty = with the controller
}

// ReadLogin finds what there is: a login host needs no file but its
// certificate, and follows muster.yaml and slurm.conf where it has them.
func ReadLogin(o Options) (*Login, error) {
	cfg, err := loadConfig(o)
	if err != nil {
		return nil, err
	}
	s := &Login{
		Cfg:   cfg,
		Party: enrolment.Party{Name: o.Node, Role: identity.Login, TokenFile: o.TokenFile},
	}
	s.Party.TLS = filepath.Join(cmp.Or(o.StateDir, LoginDir(cfg.StateDir)), "tls")
	known, err := s.Party.ReadEnrolment()
	if err != nil {
		return nil, err
	}
	s.Party.Name = cmp.Or(s.Party.Name, known.Name)
	if s.Party.Name == "" {
		s.Party.Name, err = os.Hostname()
		if err != nil {
			return nil, err
		}
	}
	s.Accounting = cmp.Or(o.Accounting, known.Accounting)
	if s.Accounting != "" {
		if _, _, err := net.SplitHostPort(s.Accounting); err != nil {
			return nil, fmt.Errorf("--accounting: %w", err)
		}
	}
	s.Addresses, err = s.controllerAddresses(o, known)
	return s, err
}

// ControllerAddresses are --controller, else those of the enrolment, else what slurm.conf
// says.
func (s *Login) controllerAddresses(o Options, known enrolment.Enrolled) ([]string, error) {
	if o.Controller != "" {
		return namedControllers(o.Controller, 0), nil
	}
	if len(known.Controllers) > 0 {
		return known.Controllers, nil
	}
	conf := cmp.Or(o.Conf, s.Cfg.SlurmConf)
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
		out = append(out, withPort(cmp.Or(h.Addr, h.Name), cluster.Control.Port))
	}
	if len(out) == 0 {
		return nil, errors.New(
			"slurm.conf names no SlurmctldHost: name the controller with --controller",
		)
	}
	return out, nil
}
