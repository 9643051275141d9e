package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/nodeagent/controllers"
	"github.com/musterhpc/muster/nodeagent/enrolment"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/nodeagent/stepserver"
)

// enrolNode is --enrol on a compute node.
func enrolNode(ctx context.Context, o settings.Options, out io.Writer) error {
	o, err := settings.FetchConfig(ctx, o, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	s, err := settings.Read(o)
	if err != nil {
		return err
	}
	if o.Sent != nil { // it has enrolled on the way
		return s.NodeParty().NoteWelcome(ctx, enrolment.Enrolled{Controllers: o.Sent.Controllers}, out)
	}
	addresses, err := s.ControllerAddresses()
	if err != nil {
		return err
	}
	return s.NodeParty().EnrolHost(ctx, enrolment.Enrolled{Controllers: addresses}, out)
}

// serveLogin is the agent of a login host: the commands' way to the controller,
// and srun's to the nodes. It runs no jobs.
func serveLogin(ctx context.Context, o settings.Options, out, errOut io.Writer) error {
	s, err := settings.ReadLogin(o)
	if err != nil {
		return err
	}
	if o.Enrol {
		return s.Party.EnrolHost(
			ctx,
			enrolment.Enrolled{Controllers: s.Addresses, Accounting: s.Accounting},
			out,
		)
	}
	log := newLogger(s.Cfg.Log, errOut).With("login", s.Party.Name)
	if err := os.MkdirAll(filepath.Dir(s.Party.TLS), 0o755); err != nil {
		return err
	}
	unlock, err := lockDir(filepath.Dir(s.Party.TLS))
	if err != nil {
		return err
	}
	defer unlock()
	source, err := s.Party.OpenCertificates(ctx, s.Addresses)
	if err != nil {
		return err
	}
	if source == nil {
		return errors.New(
			"on the controller's own host its socket serves the commands: a login host is another machine",
		)
	}
	if err := s.Party.RememberEnrolment(enrolment.Enrolled{Controllers: controllers.RemoteAddresses(s.Addresses), Accounting: s.Accounting}); err != nil {
		return err
	}
	g, err := controllers.OpenGate(s.Cfg.Socket, controllers.RemoteAddresses(s.Addresses), source, enrolment.EnrolCommand(source), log)
	if err != nil {
		return err
	}
	gates := []*controllers.Gate{g}
	if s.Accounting != "" {
		g, err = controllers.OpenGate(s.Cfg.AccountingSocket, []string{s.Accounting}, source, enrolment.EnrolCommand(source), log)
		if err != nil {
			return err
		}
		gates = append(gates, g)
	}
	_, port, err := net.SplitHostPort(string(s.Cfg.Listen.AgentGRPC))
	if err != nil {
		port = "" // listen.agent_grpc is off
	}
	steps := stepserver.NewRelay("", port, source, log)
	if err := steps.ListenNear(stepserver.NearSocket(s.Cfg)); err != nil {
		return err
	}
	ctl := controllers.NewControllers(s.Addresses, source)
	defer func() { _ = ctl.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { enrolment.RenewCertificate(ctx, source, pki.Dir(s.Party.TLS), ctl, log) })
	for _, g := range gates {
		g.ServeCommands(ctx, &wg)
	}
	steps.Serve(ctx, &wg)
	<-ctx.Done()
	log.Info("the agent ends; what was submitted goes on")
	return nil
}
