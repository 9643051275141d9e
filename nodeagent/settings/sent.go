package settings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/nodeagent/controllers"
	"github.com/musterhpc/muster/nodeagent/enrolment"
)

// sent is the cluster's configuration as the controller has sent it, for a node
// without a slurm.conf of its own: files below a folder as they lie below / on
// the controller's host.
type sent struct {
	root        string
	name        string // of slurm.conf, below the folder
	Controllers []string
}

// Files of a configuration that was sent, in the node's state folder.
const (
	sentDir  = "conf"      // the folder
	sentName = "conf.name" // which of its files is slurm.conf
)

// FetchConfig fetches the configuration where this host has none: what the
// controller has now, or, while that is away, what it sent last. Nothing changes
// where there is a slurm.conf.
func FetchConfig(ctx context.Context, options Options, logger *slog.Logger) (Options, error) {
	config, err := loadConfig(options)
	if err != nil {
		return options, err
	}
	if _, err := os.Stat(cmp.Or(options.Conf, config.SlurmConf)); options.Conf != "" ||
		!errors.Is(err, fs.ErrNotExist) {
		return options, nil
	}
	party := enrolment.Party{Name: options.Node, Role: identity.Agent, TokenFile: options.TokenFile}
	if party.Name == "" {
		party.Name = enrolledNode(config.StateDir)
	}
	if party.Name == "" {
		party.Name, err = os.Hostname()
		if err != nil {
			return options, err
		}
		party.Name, _, _ = strings.Cut(party.Name, ".")
	}
	state, err := filepath.Abs(
		cmp.Or(options.StateDir, filepath.Join(config.StateDir, "agent", party.Name)),
	)
	if err != nil {
		return options, err
	}
	party.TLS = filepath.Join(state, "tls")
	known, err := party.ReadEnrolment()
	addresses := known.Controllers
	if options.Controller != "" {
		addresses = namedControllers(options.Controller, 0)
	}
	addresses = controllers.RemoteAddresses(addresses)
	if err != nil || len(addresses) == 0 {
		return options, err // without --controller there is no configuration, as will be said
	}
	options.Node = party.Name
	options.StateDir = state
	options.Sent = &sent{
		root:        filepath.Join(state, sentDir),
		Controllers: addresses,
	}
	if options.Enrol {
		if err := party.EnrolAt(ctx, addresses); err != nil {
			return options, err
		}
	}
	source, err := party.OpenCertificates(ctx, addresses)
	if err != nil {
		return options, err
	}
	options.TokenFile = "" // it has done its work
	if err := party.RememberEnrolment(enrolment.Enrolled{Controllers: addresses}); err != nil {
		return options, err
	}
	return options, options.Sent.fetchFiles(ctx, state, source, logger)
}

// Reread reads the configuration again: the files of this host or, where it has none,
// those that the controller sends.
func (s *Settings) Reread(
	ctx context.Context,
	source *pki.Source,
	logger *slog.Logger,
) (*Settings, error) {
	options := s.Options
	if options.Sent != nil {
		again := *options.Sent
		options.Sent = &again
		if err := again.fetchFiles(ctx, options.StateDir, source, logger); err != nil {
			return nil, err
		}
	}
	return Read(options)
}

// enrolledNode is the name under which a node has enrolled here; empty where
// none has, or several.
func enrolledNode(stateDir string) string {
	found, err := filepath.Glob(filepath.Join(stateDir, "agent", "*", "tls", enrolment.EnrolledFile))
	if err != nil || len(found) != 1 {
		return ""
	}
	return filepath.Base(filepath.Dir(filepath.Dir(found[0])))
}

// fetchFiles gets the files, or does with those of the last time.
func (s *sent) fetchFiles(
	ctx context.Context,
	state string,
	source *pki.Source,
	logger *slog.Logger,
) error {
	reply, err := controllers.FetchConfiguration(ctx, s.Controllers, source)
	if err == nil {
		err = s.keepFiles(state, reply)
	}
	if err == nil {
		s.name = reply.GetName()
		return nil
	}
	last, rerr := os.ReadFile(filepath.Join(state, sentName))
	if rerr != nil {
		return fmt.Errorf("the controller does not send the configuration: %w", err)
	}
	logger.Warn(
		"the controller does not send the configuration; that of the last time is used",
		"error",
		err,
	)
	s.name = strings.TrimSpace(string(last))
	return conffile.CheckFileName(s.name)
}

// keepFiles puts the files in place of those that were there.
func (s *sent) keepFiles(state string, reply *apiv1.ConfigurationReply) error {
	fresh := s.root + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if !slices.ContainsFunc(
		reply.GetFiles(),
		func(f *apiv1.ConfFile) bool { return f.GetName() == reply.GetName() },
	) {
		return fmt.Errorf("%s is not among the files that were sent", reply.GetName())
	}
	for _, file := range reply.GetFiles() {
		if err := conffile.CheckFileName(file.GetName()); err != nil {
			return err
		}
		path := filepath.Join(fresh, file.GetName())
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := durable.WriteFile(path, file.GetData(), conffile.SentMode(file.GetMode())); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(s.root); err != nil {
		return err
	}
	if err := os.Rename(fresh, s.root); err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(state, sentName), []byte(reply.GetName()+"\n"), 0o644)
}
