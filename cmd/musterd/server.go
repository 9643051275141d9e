package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/mtls"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/transport/status"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// server is one process with its roles.
type server struct {
	cfg     *conffile.Config
	cluster *spec.Config
	log     *slog.Logger
	roles   []string

	ctl      *daemon.Controller
	durable  *log.Durable
	archive  *archiveAdapter
	blobs    *blobStore
	acct     *accounting
	stop     chan struct{} // closed when a caller ends the process
	stopOnce sync.Once

	calls   *collector.Calls // of the API, for metrics
	jobComp *jobComp         // nil unless JobCompType=jobcomp/filetxt
}

func (s *server) has(role string) bool { return slices.Contains(s.roles, role) }

// run brings the roles up in order and takes them down in the reverse one.
func (s *server) run(ctx context.Context) (err error) {
	if !s.has("controller") {
		return errors.New("accounting in a process of its own comes with a later release: run both roles in one process")
	}
	s.stop, s.calls = make(chan struct{}), &collector.Calls{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, dir := range [...]string{s.cfg.StateDir, s.cfg.RunDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := s.openLedger(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.closeLedger()) }()
	if s.has("accounting") {
		if s.acct, err = s.openAccounting(ctx); err != nil {
			return err
		}
		defer s.acct.close()
	}
	g := &group{ctx: ctx, errs: make(chan error, 16)}
	defer g.wg.Wait()
	defer cancel()
	return s.serveRoles(g)
}

// group runs the parts of the process; the first error ends it.
type group struct {
	ctx  context.Context
	wg   sync.WaitGroup
	errs chan error
}

// spawn runs a part until the context ends.
func (g *group) spawn(name string, f func(context.Context) error) {
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		if err := f(g.ctx); err != nil && g.ctx.Err() == nil {
			g.errs <- fmt.Errorf("%s: %w", name, err)
		}
	}()
}

// serveRoles starts the controller, then what stands on it, and waits.
func (s *server) serveRoles(g *group) error {
	uuid, err := clusterUUID(rand.Read)
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	g.spawn("controller", func(ctx context.Context) error {
		err := s.ctl.Run(ctx, daemon.Create{Config: s.cluster, UUID: uuid}, ready)
		if err == nil && ctx.Err() == nil {
			err = errors.New("it stopped by itself")
		}
		return err
	})
	select {
	case <-ready:
	case err := <-g.errs:
		return err
	case <-g.ctx.Done():
		return nil
	}
	if s.acct != nil {
		g.spawn("accounting", s.acct.run)
	}
	if s.jobComp != nil {
		g.spawn("job completion file", s.jobComp.run)
	}
	if err := s.listen(g.ctx, g.spawn); err != nil {
		return err
	}
	s.log.Info("the controller is ready", "cluster", s.cluster.ClusterName, "seq", s.ctl.View().State.Seq, "socket", s.cfg.Socket)
	select {
	case err := <-g.errs:
		return err
	case <-s.durable.Done():
		return s.durable.Err()
	case <-s.stop:
		s.log.Info("shutting down as asked; jobs go on")
		return nil
	case <-g.ctx.Done():
		s.log.Info("shutting down; jobs go on")
		return nil
	}
}

// openLedger opens archive, content and log; the log replays into the fold.
func (s *server) openLedger(ctx context.Context) error {
	now := clock.NewSystem().Now()
	acc, err := openAccess(s.cfg.TLS.Dir, s.cfg.StateDir, now)
	if err != nil {
		return err
	}
	codec, err := event.NewCodec()
	if err != nil {
		return err
	}
	if s.archive, err = openArchive(s.cfg.Ledger.ArchiveDir, s.log); err != nil {
		return err
	}
	if s.blobs, err = openBlobs(filepath.Join(s.cfg.StateDir, "content"), s.log); err != nil {
		return err
	}
	machine := daemon.NewMachine(codec, s.archive, s.blobs)
	began := time.Now()
	s.durable, err = log.Open(ctx, log.Options{Dir: filepath.Join(s.cfg.StateDir, "ledger"), Machine: logMachine{machine, s.syncAside}, Logger: s.log,
		SnapshotEvery: uint64(s.cfg.Ledger.SnapshotEvery), ReserveBytes: uint64(s.cfg.Ledger.ReserveBytes),
		BeforeCompact: s.beforeCompact})
	if err != nil {
		return fmt.Errorf("the ledger in %s: %w", s.cfg.StateDir, err)
	}
	s.log.Info("the ledger is open", "seq", machine.Applied().Seq, "took", time.Since(began))
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	deps := daemon.Deps{
		Log: ledgerLog{s.durable}, Archive: s.archive, Blobs: s.blobs, Clock: clockAdapter{clock.NewSystem()},
		Directory: newDirectory(s.log), Access: acc, Codec: codec, Logger: s.log, Identify: caller(uint32(os.Getuid())),
		Shutdown: func() { s.stopOnce.Do(func() { close(s.stop) }) },
		Reload:   func() (*spec.Config, []string, error) { return readCluster(s.cfg) },
		Settings: daemon.Settings{Host: host, Version: version, CheckEvery: 1000},
	}
	if s.cluster.JobCompFile != "" {
		s.jobComp = newJobComp(s.cluster.JobCompFile, s.log)
		deps.Committed = s.jobComp.committed
	}
	s.ctl = daemon.New(deps, machine)
	return nil
}

func (s *server) closeLedger() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(s.durable.Close(ctx), s.archive.Close(), s.blobs.Close())
}

// listen opens the sockets and serves on them.
func (s *server) listen(ctx context.Context, spawn func(string, func(context.Context) error)) error {
	tlsSource, err := mtls.Load(pki.Dir(s.cfg.TLS.Dir))
	if err != nil {
		return fmt.Errorf("this host's certificate in %s: %w", s.cfg.TLS.Dir, err)
	}
	names := identity.NewCache(identity.SystemPasswd(), 10000, time.Minute, time.Now)
	ch := &channel.Server{TLS: tlsSource.Server(false, channel.ALPNGRPC, framed.ALPN), Cluster: s.cluster.ClusterName, Names: names}
	admission := &channel.Admission{Revoked: tlsSource.Revoked, Now: time.Now, MayAttest: s.mayAttest, Names: names}
	ep, err := grpcx.NewEndpoint(grpcx.EndpointConfig{Channel: ch, Admit: admission.Admit, Errors: status.Numbers(), Log: s.log,
		Unary:  []grpc.UnaryServerInterceptor{timed(s.calls), guardUnary(uint32(os.Getuid()))},
		Stream: []grpc.StreamServerInterceptor{guardStream(uint32(os.Getuid()))}})
	if err != nil {
		return err
	}
	service.RegisterClusterServer(ep, &daemon.ClusterService{C: s.ctl})
	service.RegisterAgentsServer(ep, &daemon.AgentService{C: s.ctl})
	service.RegisterLedgerServer(ep, &ledgerService{archive: s.archive, ctl: s.ctl})
	if s.acct != nil {
		service.RegisterAccountingServer(ep, s.acct.service)
	}
	at, err := s.openDoors(ctx)
	if err != nil {
		return err
	}
	spawn("local socket", func(context.Context) error { return ep.Serve(at.local) })
	if at.api != nil {
		spawn("API", func(context.Context) error { return ep.Serve(at.api) })
	}
	spawn("stop API", func(ctx context.Context) error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		return ep.Shutdown(stop)
	})
	if at.metrics != nil {
		s.serveHTTP(at.metrics, spawn)
	}
	return nil
}

// doors are the sockets on which the process is reached; one that is switched
// off is nil.
type doors struct {
	local        net.Listener
	api, metrics net.Listener
}

// openDoors opens all of them, or none: nobody is served by a process that
// then finds a port taken.
func (s *server) openDoors(ctx context.Context) (at doors, err error) {
	defer func() {
		if err == nil {
			return
		}
		for _, l := range [...]net.Listener{at.local, at.api, at.metrics} {
			if l != nil {
				err = errors.Join(err, l.Close())
			}
		}
	}()
	for _, tcp := range [...]struct {
		key  string
		addr conffile.Addr
		to   *net.Listener
	}{{"listen.grpc", s.cfg.Listen.GRPC, &at.api}, {"listen.metrics", s.cfg.Listen.Metrics, &at.metrics}} {
		if tcp.addr.Off() {
			continue
		}
		l, err := listen.TCP(ctx, string(tcp.addr))
		if err != nil {
			return at, fmt.Errorf("%s: %w (choose another in muster.yaml)", tcp.key, err)
		}
		*tcp.to = l
	}
	local, err := listen.Unix(s.cfg.Socket, 0o666)
	if err != nil {
		return at, err
	}
	at.local = local
	return at, nil
}

// mayAttest lets a compute node speak for users that have a job there.
func (s *server) mayAttest(node string, uid uint32) bool {
	st := s.ctl.View().State
	n := st.Node(node)
	return n != nil && slices.ContainsFunc(n.Jobs, func(j spec.JobUID) bool { return st.Job(j).Spec.UID == uid })
}

// health is ok when the controller takes submissions.
func (s *server) health(w http.ResponseWriter, _ *http.Request) {
	if low, err := (ledgerLog{s.durable}).Low(); err != nil || low {
		http.Error(w, "the ledger's disk is almost full: submissions are refused", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// syncAside puts what lies beside the log on the disk.
func (s *server) syncAside() error {
	_, err := s.archive.Sync()
	return errors.Join(err, s.blobs.Sync())
}

// beforeCompact lets the log forget what archive and content store have on
// disk.
func (s *server) beforeCompact(pos log.Position) error {
	synced, err := s.archive.Sync()
	if err != nil {
		return err
	}
	if synced < uint64(pos) {
		return fmt.Errorf("the archive is synced to position %d, the log may not forget up to %d", synced, pos)
	}
	return s.blobs.Sync()
}
