package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/keyfile"
	"github.com/musterhpc/muster/internal/transport/mtls"
)

// sent is the cluster's configuration as the controller has sent it, for a node
// without a slurm.conf of its own: files below a folder as they lie below / on
// the controller's host.
type sent struct {
	root        string
	name        string // of slurm.conf, below the folder
	controllers []string
}

// Files of a configuration that was sent, in the node's state folder.
const (
	sentDir  = "conf"      // the folder
	sentName = "conf.name" // which of its files is slurm.conf
)

// fetchConfig fetches the configuration where this host has none: what the
// controller has now, or, while that is away, what it sent last. Nothing changes
// where there is a slurm.conf.
func fetchConfig(ctx context.Context, o options, log *slog.Logger) (options, error) {
	cfg, err := loadConfig(o)
	if err != nil {
		return o, err
	}
	if _, err := os.Stat(orElse(o.conf, cfg.SlurmConf)); o.conf != "" ||
		!errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	p := party{name: o.node, role: identity.Agent, tokenFile: o.tokenFile}
	if p.name == "" {
		p.name = enrolledNode(cfg.StateDir)
	}
	if p.name == "" {
		p.name, err = os.Hostname()
		if err != nil {
			return o, err
		}
		p.name, _, _ = strings.Cut(p.name, ".")
	}
	state, err := filepath.Abs(orElse(o.stateDir, filepath.Join(cfg.StateDir, "agent", p.name)))
	if err != nil {
		return o, err
	}
	p.tls = filepath.Join(state, "tls")
	known, err := p.readEnrolment()
	addresses := known.Controllers
	if o.controller != "" {
		addresses = namedControllers(o.controller, 0)
	}
	addresses = remoteAddresses(addresses)
	if err != nil || len(addresses) == 0 {
		return o, err // without --controller there is no configuration, as will be said
	}
	o.node, o.stateDir, o.sent = p.name, state, &sent{
		root:        filepath.Join(state, sentDir),
		controllers: addresses,
	}
	if o.enrol {
		if err := p.enrolAt(ctx, addresses); err != nil {
			return o, err
		}
	}
	source, err := p.openCertificates(ctx, addresses)
	if err != nil {
		return o, err
	}
	o.tokenFile = "" // it has done its work
	if err := p.rememberEnrolment(enrolled{Controllers: addresses}); err != nil {
		return o, err
	}
	return o, o.sent.fetchFiles(ctx, state, source, log)
}

// enrolledNode is the name under which a node has enrolled here; empty where
// none has, or several.
func enrolledNode(stateDir string) string {
	found, err := filepath.Glob(filepath.Join(stateDir, "agent", "*", "tls", enrolledFile))
	if err != nil || len(found) != 1 {
		return ""
	}
	return filepath.Base(filepath.Dir(filepath.Dir(found[0])))
}

// fetchFiles gets the files, or does with those of the last time.
func (s *sent) fetchFiles(
	ctx context.Context,
	state string,
	source *mtls.Source,
	log *slog.Logger,
) error {
	rep, err := askControllers(ctx, s.controllers, source)
	if err == nil {
		err = s.keepFiles(state, rep)
	}
	if err == nil {
		s.name = rep.GetName()
		return nil
	}
	last, rerr := os.ReadFile(filepath.Join(state, sentName))
	if rerr != nil {
		return fmt.Errorf("the controller does not send the configuration: %w", err)
	}
	log.Warn(
		"the controller does not send the configuration; that of the last time is used",
		"error",
		err,
	)
	s.name = strings.TrimSpace(string(last))
	return conffile.CheckFileName(s.name)
}

// askControllers asks the controllers in turn.
func askControllers(
	ctx context.Context,
	addresses []string,
	source *mtls.Source,
) (*apiv1.ConfigurationReply, error) {
	var errs []error
	for _, a := range addresses {
		conn, err := dialController(a, source)
		if err != nil {
			return nil, err
		}
		patience, cancel := context.WithTimeout(ctx, 10*time.Second)
		rep, err := service.NewAgentsClient(conn).
			Configuration(patience, &apiv1.ConfigurationRequest{})
		cancel()
		_ = conn.Close()
		if err == nil {
			return rep, nil
		}
		errs = append(errs, fmt.Errorf("controller %s: %w", a, err))
	}
	return nil, errors.Join(errs...)
}

// keepFiles puts the files in place of those that were there.
func (s *sent) keepFiles(state string, rep *apiv1.ConfigurationReply) error {
	fresh := s.root + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if !slices.ContainsFunc(
		rep.GetFiles(),
		func(f *apiv1.ConfFile) bool { return f.GetName() == rep.GetName() },
	) {
		return fmt.Errorf("%s is not among the files that were sent", rep.GetName())
	}
	for _, file := range rep.GetFiles() {
		if err := conffile.CheckFileName(file.GetName()); err != nil {
			return err
		}
		path := filepath.Join(fresh, file.GetName())
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := keyfile.Write(path, file.GetData(), conffile.SentMode(file.GetMode())); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(s.root); err != nil {
		return err
	}
	if err := os.Rename(fresh, s.root); err != nil {
		return err
	}
	return keyfile.Write(filepath.Join(state, sentName), []byte(rep.GetName()+"\n"), 0o644)
}
