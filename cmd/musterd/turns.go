package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/musterhpc/muster/controller/confirm"
	"github.com/musterhpc/muster/controller/doors"
	"github.com/musterhpc/muster/controller/exporting"
	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/internal/audit/trail"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/gate"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// errLeadOver ends a turn of leading: another controller leads, or none.
var errLeadOver = errors.New("this controller leads no longer")

// runGroup is one of several controllers: it stands by and leads in turns. The
// port of the API and the local socket stay open all the time.
func (s *server) runGroup(parent context.Context, p *peers.Peers) (err error) {
	g := parts.New(parent)
	defer g.Stop()
	s.peers = p
	p.WarnOfCount()
	socket, err := listen.Unix(s.cfg.Socket, 0o666)
	if err != nil {
		return errors.Join(err, p.Door.Close())
	}
	s.local = listen.NewSwitch(socket)
	passing, err := gate.New(
		gate.Config{
			Addresses: p.AllAddresses(),
			Source:    p.Source,
			Enrol:     "musterd init --controllers",
			Explain:   p.ExplainNoLeader,
			Log:       s.log,
		},
	)
	if err != nil {
		return errors.Join(err, socket.Close(), p.Door.Close())
	}
	s.passing = passing
	g.Spawn("port of the controllers", func(context.Context) error { return p.Door.Serve() })
	s.keepCertificate(g, p.Source)
	g.Spawn("local socket", func(context.Context) error { return s.local.Run(s.log) })
	g.Spawn(
		"pass commands on",
		func(ctx context.Context) error { return passing.Serve(ctx, s.local.Standby()) },
	)
	g.Spawn("close the doors", func(ctx context.Context) error {
		<-ctx.Done()
		return errors.Join(p.Door.Close(), s.local.Close())
	})
	if err := s.joinGroup(g.Context(), p); err != nil {
		if parent.Err() != nil {
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, s.leaveGroup(p)) }()
	ended := make(chan error, 1)
	g.Spawn("take turns", func(ctx context.Context) error {
		ended <- s.takeTurns(ctx)
		return nil
	})
	select {
	case err = <-ended:
		return err
	case err = <-g.Failed():
	case <-s.durable.Done():
		err = s.durable.Err()
	case <-parent.Done():
	}
	g.Cancel()
	return errors.Join(err, <-ended)
}

// joinGroup opens the ledger when this controller may.
func (s *server) joinGroup(ctx context.Context, p *peers.Peers) error {
	dir := filepath.Join(s.cfg.StateDir, "ledger")
	fresh, err := log.Fresh(log.OS(), dir)
	if err != nil {
		return err
	}
	first := false
	if fresh {
		p.SetWaits()
		first, err = p.AwaitPermission(ctx)
		if err != nil {
			return err
		}
	}
	options := log.Options{
		NodeID:  p.Self.Name,
		Timeout: time.Duration(s.cfg.Controller.ElectionTimeout),
	}
	options.Found = func() error { return p.MayFound(ctx) }
	options.Transport = log.NewTransport(
		p.Door.Layer(p.Self.Address),
		max(10*options.Timeout, 2*time.Second),
		s.log,
	)
	if first {
		options.Members = []log.Member{{ID: p.Self.Name, Address: p.Self.Address}}
	}
	if err := s.openLedger(ctx, options); err != nil {
		return err
	}
	p.Founds = false // what is missing in a leader's snapshot later is fetched
	if p.NewGroup && !p.Sought {
		s.log.Warn(
			"--new-group has no effect: this state folder belongs to a group already",
			"state_dir",
			s.cfg.StateDir,
		)
	}
	p.SetDurable(s.durable)
	return nil
}

// leaveGroup closes the ledger. Who leads gives the lead away first, so that the
// others need not find out that it is gone.
func (s *server) leaveGroup(p *peers.Peers) error {
	if s.durable.Leader().Self {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := s.durable.HandOver(ctx, p.Successor(ctx)); err != nil {
			s.log.Info("the lead was not handed over; the others elect a leader", "error", err)
		}
	}
	return s.closeLedger()
}

// takeTurns stands by until this controller is elected, leads until it is not, and
// so on.
func (s *server) takeTurns(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.standBy(ctx); err != nil || ctx.Err() != nil {
			return ignoreEnd(ctx, err)
		}
		err := s.leadTurn(ctx)
		if !errors.Is(err, errLeadOver) {
			return ignoreEnd(ctx, err)
		}
		s.log.Info("this controller stands by", "term", s.durable.Term())
	}
	return nil
}

// ignoreEnd forgets errors that come of the end of the process.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// standBy serves what a standby serves until this controller is elected.
func (s *server) standBy(parent context.Context) error {
	g := parts.New(parent)
	defer g.Stop()
	if err := s.serveStandby(g); err != nil {
		return err
	}
	g.Spawn("follow the lead", func(ctx context.Context) error {
		for ctx.Err() == nil {
			changed := s.durable.Changed()
			if lead := s.durable.Leader(); lead.Known {
				s.passing.Lead(lead.Address)
			} else {
				s.passing.LeadLost()
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
		return nil
	})
	if trail.Positions(s.cfg) {
		g.Spawn("copy how far the audit trail has come", func(ctx context.Context) error {
			return trail.CopyDelivered(ctx, s.cfg, s.peers, s.durable, s.log)
		})
	}
	g.Spawn("follow the keys", func(ctx context.Context) error {
		return s.access.FollowKeys(ctx, s.peers, s.log)
	})
	elected := make(chan error, 1)
	g.Spawn("wait for the lead", func(ctx context.Context) error {
		elected <- awaitLead(ctx, s.durable)
		return nil
	})
	select {
	case err := <-elected:
		return err
	case err := <-g.Failed():
		return err
	case <-parent.Done():
		return nil
	}
}

// awaitLead returns nil when this member leads and all that earlier leaders wrote
// is applied here.
func awaitLead(ctx context.Context, durable *log.Durable) error {
	for ctx.Err() == nil {
		changed := durable.Changed()
		err := durable.Resume(ctx)
		if err == nil || !errors.Is(err, log.ErrNotLeader) {
			return err
		}
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond): // the change may have come before
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// leadTurn leads until another controller does, or none.
func (s *server) leadTurn(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	lead := s.durable.PresentLead()
	go func() {
		select {
		case <-lead.Over():
			confirm.HearLate()
			s.peers.SetLeads(false)
			cancel(errLeadOver)
		case <-ctx.Done():
		}
	}()
	s.log.Info("this controller was elected", "term", s.durable.Term())
	turn := s.newTurn()
	turn.lead = lead
	err := turn.runLeader(ctx)
	s.peers.SetLeads(false)
	if parent.Err() == nil &&
		(errors.Is(context.Cause(ctx), errLeadOver) || errors.Is(err, daemon.ErrNotLeader)) {
		return errLeadOver
	}
	return err
}

// newTurn is a server with what every turn of leading has of its own.
func (s *server) newTurn() *server {
	t := &server{
		cfg:       s.cfg,
		config:    s.config,
		cluster:   s.cluster,
		log:       s.log,
		roles:     s.roles,
		durable:   s.durable,
		archive:   s.archive,
		blobs:     s.blobs,
		machine:   s.machine,
		codec:     s.codec,
		access:    s.access,
		tokens:    s.tokens,
		provider:  s.provider,
		began:     clock.NewSystem().Now(),
		stop:      s.stop,
		stopOnce:  s.stopOnce,
		calls:     s.calls,
		peers:     s.peers,
		passing:   s.passing,
		local:     s.local,
		verbosity: s.verbosity,
	}
	t.limits = t.limitTable()
	return t
}

// serveStandby opens the metrics and REST of a standby. Its metrics are about
// itself alone, so that sums over controllers count the cluster once.
func (s *server) serveStandby(g *parts.Group) error {
	metrics := s.metricsDoor()
	metrics.Pages = exporting.Standby{
		Cluster: s.cluster.ClusterName,
		Version: version,
		Durable: s.durable,
	}.Pages()
	d := doors.Doors{
		Metrics: metrics,
		REST:    s.restDoor(s.newForwarder(), s.peers.Source),
	}
	return d.ServeBeside(g)
}

// apiProtocols are what agents and tools speak.
var apiProtocols = []string{channel.ALPNGRPC, framed.ALPN}
