package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/musterhpc/muster/controller/confirm"
	"github.com/musterhpc/muster/controller/doors"
	"github.com/musterhpc/muster/controller/exporting"
	"github.com/musterhpc/muster/controller/founding"
	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/controller/turns"
	"github.com/musterhpc/muster/internal/audit/trail"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/gate"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/ledger/log"
)

// runGroup is one of several controllers: it stands by and leads in turns. The
// port of the API and the local socket stay open all the time.
func (s *server) runGroup(parent context.Context, p *peers.Peers) (err error) {
	group := parts.New(parent)
	defer group.Stop()
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
	group.Spawn("port of the controllers", func(context.Context) error { return p.Door.Serve() })
	s.keepCertificate(group, p.Source)
	group.Spawn("local socket", func(context.Context) error { return s.local.Run(s.log) })
	group.Spawn(
		"pass commands on",
		func(ctx context.Context) error { return passing.Serve(ctx, s.local.Standby()) },
	)
	group.Spawn("close the doors", func(ctx context.Context) error {
		<-ctx.Done()
		return errors.Join(p.Door.Close(), s.local.Close())
	})
	if err := s.joinGroup(group.Context(), p); err != nil {
		if parent.Err() != nil {
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, s.leaveGroup(p)) }()
	ended := make(chan error, 1)
	group.Spawn("take turns", func(ctx context.Context) error {
		ended <- s.newTurns().Take(ctx)
		return nil
	})
	select {
	case err = <-ended:
		return err
	case err = <-group.Failed():
	case <-s.disk.Durable.Done():
		err = s.disk.Durable.Err()
	case <-parent.Done():
	}
	group.Cancel()
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
	p.SetLedger(func() string { return founding.ReadMark(s.cfg.StateDir) })
	if !fresh {
		if err := p.CompareOthers(ctx); err != nil {
			return err
		}
	}
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
	p.SetDurable(s.disk.Durable)
	return nil
}

// leaveGroup closes the ledger. Who leads gives the lead away first, so that the
// others need not find out that it is gone.
func (s *server) leaveGroup(p *peers.Peers) error {
	if s.disk.Durable.Leader().Self {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := s.disk.Durable.HandOver(ctx, p.Successor(ctx)); err != nil {
			s.log.Info("the lead was not handed over; the others elect a leader", "error", err)
		}
	}
	return s.closeLedger()
}

// newTurns are the turns of this controller at the lead of its group.
func (s *server) newTurns() turns.Turns {
	return turns.Turns{
		StandBy: s.startStandby,
		Await:   func(ctx context.Context) error { return turns.AwaitLead(ctx, s.disk.Durable) },
		Lead:    s.beginTurn,
		Term:    s.disk.Durable.Term,
		Log:     s.log,
	}
}

// startStandby starts what a standby serves and follows.
func (s *server) startStandby(group *parts.Group) error {
	if err := s.serveStandby(group); err != nil {
		return err
	}
	group.Spawn("follow the lead", s.followLead)
	group.Spawn("note the cluster", s.noteCluster)
	if trail.Positions(s.cfg) {
		group.Spawn("copy how far the audit trail has come", func(ctx context.Context) error {
			return trail.CopyDelivered(ctx, s.cfg, s.peers, s.disk.Durable, s.log)
		})
	}
	group.Spawn("follow the keys", func(ctx context.Context) error {
		return s.access.FollowKeys(ctx, s.peers, s.log)
	})
	return nil
}

// noteCluster notes which cluster the state folder belongs to once the ledger has said so. A controller
// that has never led compares itself with the others by that, too.
func (s *server) noteCluster(ctx context.Context) error {
	for {
		if known := s.knownState(); known != nil && known.Seq > 0 {
			return s.founding().MarkCluster(known)
		}
		if !clock.PauseFor(ctx, time.Second) {
			return nil
		}
	}
}

// followLead tells the way of this host's commands where the leader is.
func (s *server) followLead(ctx context.Context) error {
	for ctx.Err() == nil {
		changed := s.disk.Durable.Changed()
		if lead := s.disk.Durable.Leader(); lead.Known {
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
}

// beginTurn is the next turn of leading.
func (s *server) beginTurn() turns.Turn {
	lead := s.disk.Durable.PresentLead() // first, so that a loss while the turn is made is not missed
	turn := s.newTurn()
	turn.lead = lead
	// Whoever follows the lead has ended by now. A call of this host may be on its way to a leader that
	// was stopped, which answers nothing.
	s.passing.Lead(s.peers.Self.Address)
	return turns.Turn{
		Over: lead.Over(),
		Ended: func() {
			confirm.HearLate()
			s.peers.SetLeads(false)
		},
		Run: turn.runLeader,
	}
}

// newTurn is a server with what every turn of leading has of its own.
func (s *server) newTurn() *server {
	t := &server{
		cfg:       s.cfg,
		config:    s.config,
		cluster:   s.cluster,
		log:       s.log,
		roles:     s.roles,
		disk:      s.disk,
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
func (s *server) serveStandby(group *parts.Group) error {
	metrics := s.metricsDoor()
	metrics.Pages = exporting.Standby{
		Cluster: s.cluster.ClusterName,
		Version: version,
		Durable: s.disk.Durable,
	}.Pages()
	d := doors.Doors{
		Metrics: metrics,
		REST:    s.restDoor(s.newForwarder(), s.peers.Source),
	}
	return d.ServeBeside(group)
}

// apiProtocols are what agents and tools speak.
var apiProtocols = []string{channel.ALPNGRPC, framed.ALPN}
