package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhpc/muster/accounting/feed"
	"github.com/musterhpc/muster/accounting/jobcomp"
	"github.com/musterhpc/muster/accounting/mailing"
	"github.com/musterhpc/muster/accounting/role"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/controller/callers"
	"github.com/musterhpc/muster/controller/catchup"
	"github.com/musterhpc/muster/controller/confirm"
	"github.com/musterhpc/muster/controller/forward"
	"github.com/musterhpc/muster/controller/founding"
	"github.com/musterhpc/muster/controller/host"
	"github.com/musterhpc/muster/controller/keys"
	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/controller/sitescripts"
	"github.com/musterhpc/muster/controller/storage"
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
	disk     *storage.Storage // nil until the ledger is opened
	acct     *role.Accounting
	told     feed.Confirmed  // what accounting said last
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
			Archive:    s.disk.Archive.Disk,
			Controller: s.ctl,
			Blobs:      s.disk.Blobs,
			Confirmed:  &s.told,
			Log:        s.log,
		}))
		if err != nil {
			return err
		}
		defer s.acct.Close()
	}
	group := parts.New(ctx)
	defer group.Stop()
	return s.serveRoles(group)
}

// serveRoles starts the controller, then what stands on it, and waits.
func (s *server) serveRoles(group *parts.Group) error {
	uuid, err := founding.NewUUID()
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	group.Spawn("controller", func(ctx context.Context) error {
		err := s.ctl.Run(ctx, daemon.Create{Config: s.cluster, UUID: uuid}, ready)
		if err == nil && ctx.Err() == nil {
			err = errors.New("it stopped by itself")
		}
		return err
	})
	select {
	case <-ready:
	case err := <-group.Failed():
		return err
	case <-group.Context().Done():
		return nil
	}
	if err := s.founding().MarkCluster(s.ctl.View().State); err != nil {
		return fmt.Errorf("note which cluster the state folder belongs to: %w", err)
	}
	if s.acct != nil {
		group.Spawn("accounting", s.acct.Run)
	}
	group.Spawn("keep the history", s.disk.NewKeeper(s.told.NeededFrom, s.peers != nil).Run)
	group.Spawn("rotate the keys", func(ctx context.Context) error {
		return s.access.RotateKeys(ctx, s.cfg.TLS.RotateKeys, s.ctl.KeysChanged, s.log)
	})
	s.trail, err = trail.Open(s.trailOptions())
	if err != nil {
		return err
	}
	s.trail.EachExporter(group.Spawn)
	s.traces, err = sending.Open(s.trailOptions(), version)
	if err != nil {
		return err
	}
	if s.traces != nil {
		group.Spawn("traces of jobs", s.traces.Run)
	}
	if s.jobComp != nil {
		group.Spawn("job completion file", s.jobComp.Run)
	}
	group.Spawn("mail about jobs", s.jobMails.Run)
	if err := s.openSockets(group); err != nil {
		return err
	}
	if s.peers != nil {
		s.peers.SetTrail(s.delivered)
		s.peers.SetLeads(true)
		group.Spawn("look after the group", func(ctx context.Context) error {
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
	case err := <-group.Failed():
		return err
	case <-s.disk.Durable.Done():
		return s.disk.Durable.Err()
	case <-s.stop:
		s.log.Info("shutting down as asked; jobs go on")
		return nil
	case <-group.Context().Done():
		s.log.Info("shutting down; jobs go on")
		return nil
	}
}

// openLedger opens the ledger and the keys. place says which member of a group this is; empty = the
// only one.
func (s *server) openLedger(ctx context.Context, place log.Options) (err error) {
	s.began = clock.NewSystem().Now()
	s.disk, err = storage.Open(s.cfg, s.log)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.disk.Close())
		}
	}()
	// A member of a group applies what it has only when a leader tells it how far
	// that is committed. One that lost its ledger has been taken in anew by then.
	founds := s.peers == nil || len(place.Members) > 0
	if founds {
		if err := s.founding().RefuseFresh(ctx, s.disk.IsArchived()); err != nil {
			return err
		}
	}
	s.access, err = keys.Open(s.cfg.TLS.Dir, s.cfg.StateDir, s.cluster.ClusterName, s.began)
	if err != nil {
		return err
	}
	s.tokens = s.access.User
	if err := s.access.SetTokens(s.cfg.Tokens); err != nil {
		return err
	}
	s.provider, err = s.access.SetProvider(s.cfg.OIDC)
	if err != nil {
		return err
	}
	at := storage.Place{Options: place}
	if s.peers != nil {
		at.Complete = s.completeSnapshot
	}
	if err := s.disk.OpenLog(ctx, at); err != nil {
		return err
	}
	if founds {
		return s.founding().RefuseEmpty(s.disk.Machine.Applied())
	}
	return nil
}

// completeSnapshot fetches from the other controllers what a snapshot of theirs does not hold.
func (s *server) completeSnapshot(ctx context.Context, disk *storage.Storage) error {
	lacking := &catchup.CatchUp{
		Peers:    s.peers,
		Archive:  disk.Archive,
		Blobs:    disk.Blobs,
		StateDir: s.cfg.StateDir,
		Log:      s.log,
	}
	return lacking.CompleteSnapshot(ctx, disk.Machine.Applied())
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
		Log:       store.Log{Durable: s.disk.Durable},
		Archive:   s.disk.Archive,
		Blobs:     s.disk.Blobs,
		Clock:     host.Clock{Of: clock.NewSystem()},
		Directory: host.NewDirectory(s.log),
		Access:    s.access,
		Codec:     s.disk.Codec,
		Logger:    s.log,
		Identify:  host.NewCallerFunc(uint32(os.Getuid())),
		Shutdown:  func() { s.stopOnce.Do(func() { close(s.stop) }) },
		Restored:  backup.ClearRestored(s.cfg.StateDir),
		Revoked:   s.disconnectMachine,
		Files:     host.ConfigFiles(s.cfg.SlurmConf),
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
		History:      store.ReadHistory(s.disk.Archive.Disk, s.disk.Codec),
		Past:         store.Past{Archive: s.disk.Archive.Disk, Codec: s.disk.Codec},
		East:         host.OffsetEast,
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
		if err := s.jobComp.CatchUp(s.disk.Archive.Disk, s.disk.Codec, s.disk.Machine.Applied()); err != nil {
			return err
		}
		deps.Committed = s.jobComp.Committed
	}
	describe, err := mailing.Describer(s.cfg, s.config)
	if err != nil {
		return err
	}
	post, err := mailing.Poster(&s.cfg.Reports, time.Now)
	if err != nil {
		return err
	}
	s.jobMails = mailing.NewJobMails(mailing.JobMailsConfig{
		View:     func() *state.State { return s.ctl.View().State },
		Now:      deps.Clock.Now,
		Start:    host.MailProgram(s.cluster.SlurmUser),
		Describe: describe,
		Post:     post,
		Fallback: host.HostMail(),
		Log:      s.log,
	})
	if written := deps.Committed; written != nil {
		deps.Committed = func(cluster *state.State, events []event.Envelope) {
			written(cluster, events)
			s.jobMails.Committed(cluster, events)
		}
	} else {
		deps.Committed = s.jobMails.Committed
	}
	if s.peers != nil {
		deps.Group = s.peers
		deps.ConfirmLead = confirm.Of(s.lead).Confirm
	}
	s.ctl = daemon.New(deps, s.disk.Machine)
	return nil
}

// gpuPolicy is what the site wants done about its GPUs.
func gpuPolicy(gpu conffile.GPU) scheduler.GPUPolicy {
	bounded := gpu.IdleAfter != spec.Infinite && gpu.IdleGrace != spec.Infinite
	return scheduler.GPUPolicy{
		Drain:      gpu.OnFault == "drain",
		WarnIdle:   gpu.OnIdle != "report",
		CancelIdle: gpu.OnIdle == "cancel" && bounded,
		IdleAfter:  gpu.IdleAfter,
		Grace:      gpu.IdleGrace,
	}
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
	return s.disk.Close()
}

// directory is what this process knows of those who may call it.
func (s *server) directory() callers.Directory {
	directory := callers.Directory{
		Leading: func() *state.State {
			if s.ctl == nil {
				return nil
			}
			return s.ctl.View().State
		},
		Known: s.knownState,
	}
	if s.apart != nil {
		directory.SentAway = s.apart.SentAway
	}
	return directory
}

// knownState is the newest state that this controller knows; nil where it has none.
func (s *server) knownState() *state.State {
	switch {
	case s.ctl != nil:
		return s.ctl.View().State
	case s.disk != nil && s.disk.Machine != nil:
		return s.disk.Machine.Applied() // a standby knows what it has applied
	}
	return nil
}

// peersOptions are how this process meets the other controllers.
func (s *server) peersOptions() peers.Options {
	return peers.Options{
		Config:   s.cfg,
		Cluster:  s.cluster.ClusterName,
		Version:  version,
		NewGroup: s.newGroup,
		Log:      s.log,
	}
}

// newForwarder makes the gateway of a standby.
func (s *server) newForwarder() http.Handler {
	admission := &channel.Admission{Revoked: s.directory().IsRevoked(s.peers.Source), Now: time.Now}
	gateway := forward.NewGateway(forward.GatewayOptions{
		Forward:  s.passing.Forward,
		Limits:   s.limits,
		Identify: func(r *http.Request) (identity.Identity, error) { return s.callers().WebIdentity(r, admission) },
		Health:   s.ownHealth,
		Log:      s.log,
	})
	s.mountSlurm(gateway)
	return forward.Forwarder{Gateway: gateway}
}

// ownHealth tells whether this controller leads.
func (s *server) ownHealth() forward.OwnHealth {
	if s.peers == nil {
		return forward.OwnHealth{Role: "leader"}
	}
	lead := s.disk.Durable.Leader()
	health := forward.OwnHealth{
		Role:       "standby",
		Controller: s.peers.Self.Name,
		Leader:     lead.ID,
		Term:       s.disk.Durable.Term(),
	}
	if s.ctl != nil && lead.Self {
		health.Role = "leader"
	}
	return health
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
		Archive:    s.disk.Archive.Disk,
		Codec:      s.disk.Codec,
		Log:        s.log,
		PeerOf: func(r *http.Request) *identity.Identity {
			if peer, ok := callers.Peer(r.Context()); ok {
				return &peer
			}
			return nil
		},
	}
}
