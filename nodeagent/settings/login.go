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
func ReadLogin(options Options) (*Login, error) {
	config, err := loadConfig(options)
	if err != nil {
		return nil, err
	}
	login := &Login{
		Cfg: config,
		Party: enrolment.Party{
			Name: options.Node, Role: identity.Login, TokenFile: options.TokenFile,
		},
	}
	login.Party.TLS = filepath.Join(cmp.Or(options.StateDir, LoginDir(config.StateDir)), "tls")
	known, err := login.Party.ReadEnrolment()
	if err != nil {
		return nil, err
	}
	login.Party.Name = cmp.Or(login.Party.Name, known.Name)
	if login.Party.Name == "" {
		login.Party.Name, err = os.Hostname()
		if err != nil {
			return nil, err
		}
	}
	login.Accounting = cmp.Or(options.Accounting, known.Accounting)
	if login.Accounting != "" {
		if _, _, err := net.SplitHostPort(login.Accounting); err != nil {
			return nil, fmt.Errorf("--accounting: %w", err)
		}
	}
	login.Addresses, err = login.controllerAddresses(options, known)
	return login, err
}

// ControllerAddresses are --controller, else those of the enrolment, else what slurm.conf
// says.
func (s *Login) controllerAddresses(options Options, known enrolment.Enrolled) ([]string, error) {
	if options.Controller != "" {
		return namedControllers(options.Controller, 0), nil
	}
	if len(known.Controllers) > 0 {
		return known.Controllers, nil
	}
	conf := cmp.Or(options.Conf, s.Cfg.SlurmConf)
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
	for _, host := range cluster.Control.Hosts {
		out = append(out, withPort(cmp.Or(host.Addr, host.Name), cluster.Control.Port))
	}
	if len(out) == 0 {
		return nil, errors.New(
			"slurm.conf names no SlurmctldHost: name the controller with --controller",
		)
	}
	return out, nil
}
