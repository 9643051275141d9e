package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/internal/audit/trail"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
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
	ctx, cancel := context.WithCancel(parent)
	g := &group{ctx: ctx, errs: make(chan error, 16)}
	defer g.wg.Wait()
	defer cancel()
	s.peers = p
	p.WarnOfCount()
	socket, err := listen.Unix(s.cfg.Socket, 0o666)
	if err != nil {
		return errors.Join(err, p.Door.Close())
	}
	s.local = newPoints(socket)
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
	g.spawnPart("port of the controllers", func(context.Context) error { return p.Door.Serve() })
	s.keepCertificate(g, p.Source)
	g.spawnPart("local socket", func(context.Context) error { return s.local.acceptConns(s.log) })
	g.spawnPart(
		"pass commands on",
		func(ctx context.Context) error { return passing.Serve(ctx, s.local.standby) },
	)
	g.spawnPart("close the doors", func(ctx context.Context) error {
		<-ctx.Done()
		return errors.Join(p.Door.Close(), s.local.close())
	})
	if err := s.joinGroup(ctx, p); err != nil {
		if parent.Err() != nil {
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, s.leaveGroup(p)) }()
	ended := make(chan error, 1)
	g.spawnPart("take turns", func(ctx context.Context) error {
		ended <- s.takeTurns(ctx)
		return nil
	})
	select {
	case err = <-ended:
		return err
	case err = <-g.errs:
	case <-s.durable.Done():
		err = s.durable.Err()
	case <-parent.Done():
	}
	cancel()
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
			s.log.Info("the lead was not handed over; the others elect somebody", "error", err)
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
	ctx, cancel := context.WithCancel(parent)
	g := &group{ctx: ctx, errs: make(chan error, 16)}
	defer g.wg.Wait()
	defer cancel()
	if err := s.serveStandby(g); err != nil {
		return err
	}
	g.spawnPart("follow the lead", func(ctx context.Context) error {
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
		g.spawnPart("copy how far the audit trail has come", func(ctx context.Context) error {
			return trail.CopyDelivered(ctx, s.cfg, s.peers, s.durable, s.log)
		})
	}
	g.spawnPart("follow the keys", func(ctx context.Context) error {
		return s.access.FollowKeys(ctx, s.peers, s.log)
	})
	elected := make(chan error, 1)
	g.spawnPart("wait for the lead", func(ctx context.Context) error {
		elected <- awaitLead(ctx, s.durable)
		return nil
	})
	select {
	case err := <-elected:
		return err
	case err := <-g.errs:
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
	t := &server{cfg: s.cfg, config: s.config, cluster: s.cluster, log: s.log, roles: s.roles,
		durable: s.durable, archive: s.archive, blobs: s.blobs, machine: s.machine, codec: s.codec, access: s.access, tokens: s.tokens, provider: s.provider,
		began: clock.NewSystem().
			Now(),
		stop: s.stop, stopOnce: s.stopOnce, calls: s.calls, peers: s.peers, passing: s.passing, local: s.local}
	t.limits = t.limitTable()
	return t
}

// serveStandby opens the metrics and REST of a standby. Its metrics are about
// itself alone, so that sums over controllers count the cluster once.
func (s *server) serveStandby(g *group) error {
	if err := s.webOptions().Check(); err != nil {
		return err
	}
	if addr := s.cfg.Listen.Metrics; !addr.Off() {
		l, err := listen.TCP(g.ctx, string(addr))
		if err != nil {
			return fmt.Errorf("listen.metrics: %w (choose another in muster.yaml)", err)
		}
		serveHTTP(g, l, s.standbyPages(), s.webOptions(), s.log)
	}
	d := doors{
		rest:       s.cfg.Listen.REST,
		restSocket: s.cfg.RESTSocket,
		gateway:    s.newForwarder(),
		gatewayTLS: s.peers.Source.Server(
			false,
			"h2",
			"http/1.1",
		),
		names:  userNames(),
		limits: s.limits,
	}
	return d.serveREST(g, func(key string, addr conffile.Addr) (net.Listener, error) {
		l, err := listen.TCP(g.ctx, string(addr))
		if err != nil {
			return nil, fmt.Errorf("%s: %w (choose another in muster.yaml)", key, err)
		}
		return l, nil
	})
}

// standbyPages are the metrics and the health of a standby.
func (s *server) standbyPages() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(
		"GET /metrics",
		collector.StandbyHandler(
			collector.Source{
				Version: version,
				Cluster: s.cluster.ClusterName,
				Now:     clock.NewSystem().Now,
				Raft:    func() collector.Raft { return raftFigures(s.durable) },
			},
		),
	)
	mux.HandleFunc(
		"GET /livez",
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok: standby") },
	)
	ready := func(w http.ResponseWriter, _ *http.Request) {
		if !s.durable.Leader().Known {
			http.Error(w, "the controllers have no leader", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok: standby")
	}
	mux.HandleFunc("GET /healthz", ready)
	mux.HandleFunc("GET /readyz", ready)
	return mux
}

// points send the connections of one socket this way or that: to the API while
// this controller leads, else to what passes calls on to the one that does.
type points struct {
	from    net.Listener
	standby *track
	done    chan struct{}

	mu  sync.Mutex
	now *track
}

// track is a listener for the connections that come while it is the one in use.
type track struct {
	of    *points
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPoints(from net.Listener) *points {
	p := &points{from: from, done: make(chan struct{})}
	p.standby = &track{of: p, conns: make(chan net.Conn), done: make(chan struct{})}
	p.now = p.standby
	return p
}

// leadTrack sends what comes to a new track until that is closed.
func (p *points) leadTrack() *track {
	t := &track{of: p, conns: make(chan net.Conn), done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = t
	return t
}

func (p *points) current() *track {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// acceptConns accepts until the socket is closed.
func (p *points) acceptConns(logger *slog.Logger) error {
	for {
		c, err := listen.Accept(p.from, logger)
		if err != nil {
			select {
			case <-p.done:
				return nil
			default:
				return err
			}
		}
		go p.giveConn(c)
	}
}

// giveConn hands a connection to the track in use, whichever that is by then.
func (p *points) giveConn(c net.Conn) {
	for {
		t := p.current()
		select {
		case t.conns <- c:
			return
		case <-t.done:
			if t == p.standby {
				c.Close()
				return
			}
		case <-p.done:
			c.Close()
			return
		}
	}
}

func (p *points) close() error {
	close(p.done)
	return p.from.Close()
}

// Accept implements net.Listener.
func (t *track) Accept() (net.Conn, error) {
	select {
	case c := <-t.conns:
		return c, nil
	case <-t.done:
		return nil, net.ErrClosed
	case <-t.of.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (t *track) Close() error {
	t.once.Do(func() {
		t.of.mu.Lock()
		if t.of.now == t {
			t.of.now = t.of.standby
		}
		t.of.mu.Unlock()
		close(t.done)
	})
	return nil
}

// Addr implements net.Listener.
func (t *track) Addr() net.Addr { return t.of.from.Addr() }

// apiProtocols are what agents and tools speak.
var apiProtocols = []string{channel.ALPNGRPC, framed.ALPN}
