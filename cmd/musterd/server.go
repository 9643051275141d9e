package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/accounting/feed"
	"github.com/musterhpc/muster/accounting/jobcomp"
	"github.com/musterhpc/muster/accounting/mailing"
	"github.com/musterhpc/muster/accounting/role"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/controller/callers"
	"github.com/musterhpc/muster/controller/catchup"
	"github.com/musterhpc/muster/controller/confirm"
	"github.com/musterhpc/muster/controller/forward"
	"github.com/musterhpc/muster/controller/host"
	"github.com/musterhpc/muster/controller/keys"
	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/controller/sitescripts"
	"github.com/musterhpc/muster/controller/witness"
	"github.com/musterhpc/muster/internal/audit/trail"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/console/firing"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/traces/sending"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/gate"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/oidc"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/transport/rest"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/internal/transport/usertoken"
	"github.com/musterhpc/muster/ledger/backup"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// server is one process with its roles.
type server struct {
	cfg     *conffile.Config
	cluster *spec.Config
	log     *slog.Logger
	roles   []string
	anew    bool // found a cluster though there are traces of an older one
	// NewGroup begins a group of controllers though some of them do not answer.
	newGroup bool

	ctl      *daemon.Controller
	durable  *log.Durable
	archive  *store.Archive
	blobs    *store.Blobs
	acct     *role.Accounting
	told     feed.Confirmed // what accounting said last
	machine  *daemon.Machine
	codec    *event.Codec
	tokens   *usertoken.Keys // of users over REST
	provider *oidc.Provider  // the site's identity provider; nil = none
	began    spec.Instant
	config   string        // path of muster.yaml
	stop     chan struct{} // closed when a caller ends the process
	stopOnce *sync.Once
	access   *keys.Access
	firing   *firing.Alerts // what the console shows of Alertmanager; nil = none is configured
	peers    *peers.Peers   // nil = this is the only controller
	lead     *log.Lead      // of a group: the turn's
	passing  *gate.Gate     // of a group: the way of this host's commands to the leader
	local    *listen.Switch // of a group: the socket, whose connections go this way or that

	calls    *collector.Calls // of the API, for metrics
	limits   *limit.Table     // what each caller may hold and do
	api      atomic.Pointer[grpcx.Endpoint]
	apart    *feed.Remote // of accounting that runs apart; nil otherwise
	jobMails *mailing.JobMails
	jobComp  *jobcomp.Writer // nil unless JobCompType=jobcomp/filetxt
	scripts  *sitescripts.Scripts
	trail    *trail.Trail    // nil unless muster.yaml says where it goes
	traces   *sending.Sender // nil unless muster.yaml names a collector

	verbosity *daemon.Verbosity // of the log
}

func (s *server) hasRole(role string) bool { return slices.Contains(s.roles, role) }

// run brings the roles up in order and takes them down in the reverse one.
func (s *server) run(ctx context.Context) (err error) {
	s.stop = make(chan struct{})
	s.stopOnce = new(sync.Once)
	s.calls = &collector.Calls{}
	s.limits = s.limitTable()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, dir := range [...]string{s.cfg.StateDir, s.cfg.RunDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if s.hasRole(witnessRole) {
		keys.RenewCertificate(pki.Dir(s.cfg.TLS.Dir), time.Now(), s.log)
		return witness.Run(ctx, witness.Options{
			Config:  s.cfg,
			Cluster: s.cluster.ClusterName,
			Version: version,
			Readers: s.webOptions(),
			Log:     s.log,
		})
	}
	if !s.hasRole("controller") {
		return s.runApart(ctx)
	}
	if err := backup.RefuseRestoring(s.cfg.StateDir); err != nil {
		return err
	}
	keys.RenewCertificate(pki.Dir(s.cfg.TLS.Dir), time.Now(), s.log)
	p, err := peers.Open(ctx, s.peersOptions())
	if err != nil {
		return err
	}
	if p != nil {
		return s.runGroup(ctx, p)
	}
	if s.newGroup {
		return errors.New("--new-group: slurm.conf names no other controller (SlurmctldHost)")
	}
	if err := s.openLedger(ctx, log.Options{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.closeLedger()) }()
	return s.runLeader(ctx)
}

// runLeader runs what only the controller that leads does, until the context ends.
func (s *server) runLeader(ctx context.Context) (err error) {
	if err := s.newController(); err != nil {
		return err
	}
	if s.hasRole("accounting") {
		s.acct, err = role.Open(s.accountingOptions(feed.Local{
			Archive:    s.archive.Disk,
			Controller: s.ctl,
			Blobs:      s.blobs,
			Confirmed:  &s.told,
			Log:        s.log,
		}))
		if err != nil {
			return err
		}
		defer s.acct.Close()
	}
	g := parts.New(ctx)
	defer g.Stop()
	return s.serveRoles(g)
}

// serveRoles starts the controller, then what stands on it, and waits.
func (s *server) serveRoles(g *parts.Group) error {
	uuid, err := clusterUUID(rand.Read)
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	g.Spawn("controller", func(ctx context.Context) error {
		err := s.ctl.Run(ctx, daemon.Create{Config: s.cluster, UUID: uuid}, ready)
		if err == nil && ctx.Err() == nil {
			err = errors.New("it stopped by itself")
		}
		return err
	})
	select {
	case <-ready:
	case err := <-g.Failed():
		return err
	case <-g.Context().Done():
		return nil
	}
	if err := s.founding().MarkCluster(s.ctl.View().State); err != nil {
		return fmt.Errorf("note which cluster the state folder belongs to: %w", err)
	}
	if s.acct != nil {
		g.Spawn("accounting", s.acct.Run)
	}
	g.Spawn("keep the history", s.newKeeper().Run)
	g.Spawn("rotate the keys", func(ctx context.Context) error {
		return s.access.RotateKeys(ctx, s.cfg.TLS.RotateKeys, s.ctl.KeysChanged, s.log)
	})
	s.trail, err = trail.Open(s.trailOptions())
	if err != nil {
		return err
	}
	s.trail.EachExporter(g.Spawn)
	s.traces, err = sending.Open(s.trailOptions(), version)
	if err != nil {
		return err
	}
	if s.traces != nil {
		g.Spawn("traces of jobs", s.traces.Run)
	}
	if s.jobComp != nil {
		g.Spawn("job completion file", s.jobComp.Run)
	}
	g.Spawn("mail about jobs", s.jobMails.Run)
	if err := s.openSockets(g); err != nil {
		return err
	}
	if s.peers != nil {
		s.peers.SetTrail(s.delivered)
		s.peers.SetLeads(true)
		g.Spawn("look after the group", func(ctx context.Context) error {
			return s.peers.TendGroup(ctx, func() uint32 { return s.ctl.View().State.Version })
		})
	}
	s.log.Info(
		"the controller is ready",
		"cluster",
		s.cluster.ClusterName,
		"seq",
		s.ctl.View().State.Seq,
		"socket",
		s.cfg.Socket,
	)
	select {
	case err := <-g.Failed():
		return err
	case <-s.durable.Done():
		return s.durable.Err()
	case <-s.stop:
		s.log.Info("shutting down as asked; jobs go on")
		return nil
	case <-g.Context().Done():
		s.log.Info("shutting down; jobs go on")
		return nil
	}
}

// openLedger opens archive, content and log; the log replays into the fold. place
// says which member of a group this is; empty = the only one.
func (s *server) openLedger(ctx context.Context, place log.Options) error {
	now := clock.NewSystem().Now()
	codec, err := event.NewCodec()
	if err != nil {
		return err
	}
	s.archive, err = store.OpenArchive(s.cfg.Ledger.ArchiveDir, s.log)
	if err != nil {
		return err
	}
	s.blobs, err = store.OpenBlobs(filepath.Join(s.cfg.StateDir, "content"), s.log)
	if err != nil {
		return errors.Join(err, s.archive.Close())
	}
	// A member of a group applies what it has only when a leader tells it how far
	// that is committed. One that lost its ledger has been taken in anew by then.
	founds := s.peers == nil || len(place.Members) > 0
	_, known := s.archive.Disk.Bounds()
	if founds {
		if err := s.founding().RefuseFresh(ctx, known > 0); err != nil {
			return errors.Join(err, s.archive.Close(), s.blobs.Close())
		}
	}
	acc, err := keys.Open(s.cfg.TLS.Dir, s.cfg.StateDir, s.cluster.ClusterName, now)
	if err == nil {
		err = acc.SetTokens(s.cfg.Tokens)
	}
	if err == nil {
		s.provider, err = acc.SetProvider(s.cfg.OIDC)
	}
	if err != nil {
		return errors.Join(err, s.archive.Close(), s.blobs.Close())
	}
	s.codec = codec
	s.began = now
	s.access = acc
	s.tokens = acc.User
	machine := daemon.NewMachine(codec, s.archive, s.blobs)
	s.machine = machine
	began := time.Now()
	place.Dir = filepath.Join(s.cfg.StateDir, "ledger")
	fold := store.Machine{
		Fold: machine,
		Sync: s.syncAside,
	}
	if s.peers != nil {
		lacking := &catchup.CatchUp{
			Peers:    s.peers,
			Archive:  s.archive,
			Blobs:    s.blobs,
			StateDir: s.cfg.StateDir,
			Log:      s.log,
		}
		fold.Complete = func() error { return lacking.CompleteSnapshot(ctx, machine.Applied()) }
	}
	place.Machine = fold
	place.Logger = s.log
	place.SnapshotEvery, place.ReserveBytes = uint64(
		s.cfg.Ledger.SnapshotEvery,
	), uint64(
		s.cfg.Ledger.ReserveBytes,
	)
	place.AtLeast, place.BeforeCompact = log.Position(known), s.beforeCompact
	s.durable, err = log.Open(ctx, place)
	if err != nil {
		return fmt.Errorf("the ledger in %s: %w", s.cfg.StateDir, err)
	}
	if founds {
		if err := s.founding().RefuseEmpty(machine.Applied()); err != nil {
			return errors.Join(err, s.closeLedger())
		}
	}
	s.log.Info("the ledger is open", "seq", machine.Applied().Seq, "took", time.Since(began))
	return nil
}

// newController makes the controller over the open ledger.
func (s *server) newController() error {
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	if s.peers != nil {
		hostname = s.peers.Self.Name
	}
	scripts, err := sitescripts.New(s.log)
	if err != nil {
		return err
	}
	s.scripts = scripts
	deps := daemon.Deps{
		Calls:     s.calls,
		Verbosity: s.verbosity,
		Log:       store.Log{Durable: s.durable},
		Archive:   s.archive,
		Blobs:     s.blobs,
		Clock:     host.Clock{Of: clock.NewSystem()},
		Directory: host.NewDirectory(s.log),
		Access:    s.access,
		Codec:     s.codec,
		Logger:    s.log,
		Identify:  host.NewCallerFunc(uint32(os.Getuid())),
		Shutdown:  func() { s.stopOnce.Do(func() { close(s.stop) }) },
		Restored:  backup.ClearRestored(s.cfg.StateDir),
		Revoked:   s.disconnectMachine,
		Files:     s.configFiles,
		Reload:    func() (*spec.Config, []string, error) { return sitescripts.ReadCluster(s.cfg) },
		Scripts:   host.CtlScripts{User: s.cluster.SlurmUser},
		Settings: daemon.Settings{
			Host:       hostname,
			Version:    version,
			SlurmConf:  s.cfg.SlurmConf,
			StateDir:   s.cfg.StateDir,
			Port:       s.cfg.Listen.GRPC.Port(),
			CheckEvery: 250,
			RaiseAfter: s.cfg.Controller.RaiseAfter,
			GPU:        gpuPolicy(s.cfg.GPU),
		},
		History:      store.ReadHistory(s.archive.Disk, s.codec),
		Past:         store.Past{Archive: s.archive.Disk, Codec: s.codec},
		East:         offsetEast,
		UserPrograms: host.UserPrograms{},
		JobScripts:   scripts,
		Refused: func(ctx context.Context, call string, err error) {
			s.trail.Refused(ctx, call, err)
		},
		Programs: &host.PowerPrograms{Dir: s.cfg.RunDir, User: s.cluster.SlurmUser, Log: s.log},
	}
	if s.cluster.JobCompFile != "" {
		s.jobComp = jobcomp.Open(
			s.cluster.JobCompFile,
			filepath.Join(s.cfg.StateDir, "jobcomp.json"),
			s.log,
		)
		if err := s.jobComp.CatchUp(s.archive.Disk, s.codec, s.machine.Applied()); err != nil {
			return err
		}
		deps.Committed = s.jobComp.Committed
	}
	describe, err := mailing.Describer(s.cfg, s.config)
	if err != nil {
		return err
	}
	s.jobMails = mailing.NewJobMails(mailing.JobMailsConfig{
		View:     func() *state.State { return s.ctl.View().State },
		Now:      deps.Clock.Now,
		Start:    host.MailProgram(s.cluster.SlurmUser),
		Describe: describe,
		Fallback: host.HostMail(),
		Log:      s.log,
	})
	if written := deps.Committed; written != nil {
		deps.Committed = func(st *state.State, events []event.Envelope) {
			written(st, events)
			s.jobMails.Committed(st, events)
		}
	} else {
		deps.Committed = s.jobMails.Committed
	}
	if s.peers != nil {
		deps.Group = s.peers
		deps.ConfirmLead = confirm.Of(s.lead).Confirm
	}
	s.ctl = daemon.New(deps, s.machine)
	return nil
}

// offsetEast is how far this host's clocks are ahead of UTC at an instant.
func offsetEast(at spec.Instant) spec.Span {
	_, secs := time.Unix(at.Unix(), 0).Zone()
	return spec.Span(secs) * spec.Second
}

// gpuPolicy is what the site wants done about its GPUs.
func gpuPolicy(c conffile.GPU) scheduler.GPUPolicy {
	bounded := c.IdleAfter != spec.Infinite && c.IdleGrace != spec.Infinite
	return scheduler.GPUPolicy{
		Drain:      c.OnFault == "drain",
		WarnIdle:   c.OnIdle != "report",
		CancelIdle: c.OnIdle == "cancel" && bounded,
		IdleAfter:  c.IdleAfter,
		Grace:      c.IdleGrace,
	}
}

// configFiles are the configuration for a node that has none of its own.
func (s *server) configFiles() (string, []*apiv1.ConfFile, error) {
	name, files, err := conffile.SlurmFiles(s.cfg.SlurmConf)
	var out []*apiv1.ConfFile
	for _, n := range slices.Sorted(maps.Keys(files)) {
		out = append(
			out,
			&apiv1.ConfFile{Name: n, Data: files[n].Data, Mode: uint32(files[n].Mode.Perm())},
		)
	}
	return name, out, err
}

// disconnectMachine ends the connections of a machine whose certificates were all revoked,
// also those that it opened with one that has expired since. An empty role is any.
func (s *server) disconnectMachine(name, role string) {
	if endpoint := s.api.Load(); endpoint != nil {
		n := endpoint.Disconnect(func(id identity.Identity) bool {
			return id.Serial != "" && id.Node == name && (role == "" || id.Kind.String() == role)
		})
		s.log.Info("certificates were revoked", "machine", name, "connections ended", n)
	}
}

func (s *server) closeLedger() error {
	if s.scripts != nil {
		s.scripts.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(s.durable.Close(ctx), s.archive.Close(), s.blobs.Close())
}

// directory is what this process knows of those who may call it.
func (s *server) directory() callers.Directory {
	d := callers.Directory{
		Leading: func() *state.State {
			if s.ctl == nil {
				return nil
			}
			return s.ctl.View().State
		},
		Known: s.knownState,
	}
	if s.apart != nil {
		d.SentAway = s.apart.SentAway
	}
	return d
}

// knownState is the newest state that this controller knows; nil where it has none.
func (s *server) knownState() *state.State {
	switch {
	case s.ctl != nil:
		return s.ctl.View().State
	case s.machine != nil:
		return s.machine.Applied() // a standby knows what it has applied
	}
	return nil
}

// syncAside puts what lies beside the log on the disk.
func (s *server) syncAside() error {
	_, err := s.archive.Sync()
	return errors.Join(err, s.blobs.Sync())
}

// beforeCompact lets the log forget what archive and content store have on
// disk. Accounting does not hold the log back: it reads the archive, which
// drops nothing that accounting has not stored, so a store that is away for a
// month costs room there and not the speed of a restart.
func (s *server) beforeCompact(pos log.Position) error {
	synced, err := s.archive.Sync()
	if err != nil {
		return err
	}
	if synced < uint64(pos) {
		return fmt.Errorf(
			"the archive is synced to position %d, the log may not forget up to %d",
			synced,
			pos,
		)
	}
	return s.blobs.Sync()
}

// NewKeeper makes the keeper of this controller's archive.
func (s *server) newKeeper() *store.Keeper {
	return store.NewKeeper(store.Keeper{
		Stored:    s.told.NeededFrom,
		Archive:   s.archive.Disk,
		Blobs:     s.blobs,
		Codec:     s.codec,
		Applied:   s.machine.AppliedAt,
		Retention: s.cfg.Ledger.Retention,
		Group:     s.peers != nil,
		Settle:    store.SweepSettle,
		Now:       time.Now,
		Log:       s.log,
	})
}

// Options are how this process meets the other controllers.
func (s *server) peersOptions() peers.Options {
	return peers.Options{
		Config:   s.cfg,
		Cluster:  s.cluster.ClusterName,
		Version:  version,
		NewGroup: s.newGroup,
		Log:      s.log,
	}
}

// clusterUUID makes the identity of a new ledger.
func clusterUUID(random func([]byte) (int, error)) (id [16]byte, err error) {
	_, err = random(id[:])
	if err != nil {
		return id, err
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // RFC 9562, version 4
	return id, nil
}

// newForwarder makes the gateway of a standby.
func (s *server) newForwarder() http.Handler {
	admission := &channel.Admission{Revoked: s.directory().IsRevoked(s.peers.Source), Now: time.Now}
	gateway := rest.New(rest.Config{
		Errors:   rpcstatus.Numbers(),
		Unary:    []grpc.UnaryServerInterceptor{forward.RefuseTokenByToken},
		Table:    s.limits,
		Version:  "v1",
		Log:      s.log,
		Identify: func(r *http.Request) (identity.Identity, error) { return s.callers().WebIdentity(r, admission) },
	})
	for _, desc := range []*grpc.ServiceDesc{&service.Cluster_ServiceDesc, &service.Accounting_ServiceDesc} {
		gateway.RegisterService(forward.NewService(desc, s.passing.Forward), nil)
	}
	s.mountSlurm(gateway)
	gateway.Mount(forward.HealthPath, forward.Health{Own: s.ownHealth}, true)
	return forward.Forwarder{Gateway: gateway}
}

// OwnHealth tells whether this controller leads.
func (s *server) ownHealth() forward.OwnHealth {
	if s.peers == nil {
		return forward.OwnHealth{Role: "leader"}
	}
	lead := s.durable.Leader()
	out := forward.OwnHealth{
		Role:       "standby",
		Controller: s.peers.Self.Name,
		Leader:     lead.ID,
		Term:       s.durable.Term(),
	}
	if s.ctl != nil && lead.Self {
		out.Role = "leader"
	}
	return out
}

// delivered is how far this controller has come at everything that the next leader goes
// on with.
func (s *server) delivered() map[string]peers.Delivered {
	out := s.trail.DeliveredByTarget()
	if s.traces != nil {
		if out == nil {
			out = map[string]peers.Delivered{}
		}
		out[trail.Traces] = peers.Delivered{To: s.cfg.OTLP.Endpoint, Position: s.traces.Saved()}
	}
	return out
}

// trailOptions say what the audit trail of this controller is of.
func (s *server) trailOptions() trail.Options {
	return trail.Options{
		Config:     s.cfg,
		Cluster:    s.cluster.ClusterName,
		Controller: s.ctl,
		Archive:    s.archive.Disk,
		Codec:      s.codec,
		Log:        s.log,
		PeerOf: func(r *http.Request) *identity.Identity {
			if peer, ok := callers.Peer(r.Context()); ok {
				return &peer
			}
			return nil
		},
	}
}
