// Package loginhost is the way of the commands of a host to the controllers: the agent of a login
// host, which runs no jobs, and the gate of a compute node.
package loginhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/nodeagent/controllers"
	"github.com/musterhpc/muster/nodeagent/enrolment"
	"github.com/musterhpc/muster/nodeagent/machine"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/nodeagent/stepserver"
)

// Enrol gets a login host its certificate.
func Enrol(ctx context.Context, login *settings.Login, out io.Writer) error {
	return login.Party.EnrolHost(
		ctx,
		enrolment.Enrolled{Controllers: login.Addresses, Accounting: login.Accounting},
		out,
	)
}

// Serve is the agent of a login host: the commands' way to the controller,
// and srun's to the nodes. It runs no jobs.
func Serve(ctx context.Context, login *settings.Login, logger *slog.Logger) error {
	if err := os.MkdirAll(filepath.Dir(login.Party.TLS), 0o755); err != nil {
		return err
	}
	unlock, err := machine.LockDir(filepath.Dir(login.Party.TLS))
	if err != nil {
		return err
	}
	defer unlock()
	source, err := login.Party.OpenCertificates(ctx, login.Addresses)
	if err != nil {
		return err
	}
	if source == nil {
		return errors.New(
			"on the controller's own host its socket serves the commands: a login host is another machine",
		)
	}
	if err := login.Party.RememberEnrolment(
		enrolment.Enrolled{
			Controllers: controllers.RemoteAddresses(login.Addresses), Accounting: login.Accounting,
		},
	); err != nil {
		return err
	}
	gate, err := controllers.OpenGate(
		login.Cfg.Socket,
		controllers.RemoteAddresses(login.Addresses),
		source,
		enrolment.EnrolCommand(source),
		logger,
	)
	if err != nil {
		return err
	}
	gates := []*controllers.Gate{gate}
	if login.Accounting != "" {
		gate, err = controllers.OpenGate(
			login.Cfg.AccountingSocket,
			[]string{login.Accounting},
			source,
			enrolment.EnrolCommand(source),
			logger,
		)
		if err != nil {
			return err
		}
		gates = append(gates, gate)
	}
	_, port, err := net.SplitHostPort(string(login.Cfg.Listen.AgentGRPC))
	if err != nil {
		port = "" // listen.agent_grpc is off
	}
	steps := stepserver.NewRelay("", port, source, logger)
	if err := steps.ListenNear(stepserver.NearSocket(login.Cfg)); err != nil {
		return err
	}
	ctl := controllers.NewControllers(login.Addresses, source)
	defer func() { _ = ctl.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { enrolment.RenewCertificate(ctx, source, pki.Dir(login.Party.TLS), ctl, logger) })
	for _, g := range gates {
		g.ServeCommands(ctx, &wg)
	}
	steps.Serve(ctx, &wg)
	<-ctx.Done()
	logger.Info("the agent ends; what was submitted goes on")
	return nil
}

// OpenGate opens the gate of a compute node, unless the controller itself, or
// the agent of a login host, serves this host's commands.
func OpenGate(
	s *settings.Settings,
	addresses []string,
	source *pki.Source,
	weak *machine.Weaknesses,
	logger *slog.Logger,
) *controllers.Gate {
	far := controllers.RemoteAddresses(addresses)
	if source == nil || len(far) < len(addresses) || slices.ContainsFunc(far, controllers.OnThisHost) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(settings.LoginDir(s.Config.StateDir), "tls")); err == nil {
		logger.Info(
			"this is a login host too: its agent (muster-agent --login) serves the commands here",
		)
		return nil
	}
	gate, err := controllers.OpenGate(
		s.Config.Socket, addresses, source, enrolment.EnrolCommand(source), logger,
	)
	switch {
	case errors.Is(err, listen.ErrBusy):
		logger.Info(
			"another process serves the commands on this host",
			"socket",
			s.Config.Socket,
			"who",
			err,
		)
		return nil
	case err != nil:
		weak.Note(fmt.Errorf("commands on this host do not reach the controller: %w", err))
		return nil
	}
	return gate
}
