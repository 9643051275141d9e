//go:build linux

package shepherd

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/cgroup"
	"github.com/musterhpc/muster/nodeagent/runtime/journal"
	"github.com/musterhpc/muster/nodeagent/runtime/proc"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
	"github.com/musterhpc/muster/nodeagent/runtime/space"
	"github.com/musterhpc/muster/nodeagent/runtime/spawn"
	"golang.org/x/sys/unix"
)

// Config says where a shepherd lives.
type Config struct {
	Dir     string // state folder; each release has its own folder in it
	Node    string // node name, for messages in job output and the control group's name
	Release string // names the release's folder and socket
	Spool   string // batch scripts, of this shepherd alone; users must be able to reach it. Empty: Dir/Release/spool
	Cgroup  cgroup.Options
	// Prefix starts each line written into a job's output. Empty gives
	// "slurmstepd-<node>: error: ", which many tools look for.
	Prefix    string
	Launchers int // processes started at the same time; 0 chooses
	// DrainWait is how long an older release's shepherd may take to answer. 0: 10 s.
	DrainWait time.Duration
	Log       *slog.Logger
}

// ErrRunning means that a shepherd of this release already serves the folder.
var ErrRunning = errors.New("a shepherd is already running here")

// SocketName and the other files of a release's folder.
const (
	SocketName  = "sock"
	lockName    = "lock"
	journalName = protocol.JournalName
)

// Shepherd is the whole program. mu guards the maps and every run's fields.
type Shepherd struct {
	cfg        Config
	id         string // of the state folder, in marks and group names
	log        *slog.Logger
	dir        string
	root       bool
	host       *cgroup.Host
	limits     limits
	spaces     *space.Spaces
	hello      plan.Hello
	jr         *journal.Journal
	lock       *os.File
	ln         *net.UnixListener
	watch      *watcher
	notes      chan notice
	queue      chan *run
	born       chan struct{} // room for one token: there are children to wait for
	dirty      chan struct{} // room for one token: the journal wants a flush
	gone       chan struct{} // closed when draining is done
	wg         sync.WaitGroup
	inheriting sync.Mutex      // one folder at a time
	leaseFile  sync.Mutex      // one writer of the leases at a time
	guarding   sync.Mutex      // one look for the guard of leases at a time
	ctx        context.Context // of Run, for what outlives a request

	mu         sync.Mutex
	runs       map[plan.RunKey]*run
	pids       map[int]*run
	early      map[int]ended      // ended before their start was registered
	after      map[int]chan ended // TaskEpilogs that run
	spawning   int
	launchers  int               // number of the newest launcher
	busy       map[int]time.Time // launcher -> since when it works
	spools     map[string]bool   // spool folders in use
	freeSpools []*spareSpool     // spool folders to use again
	spoolSeq   int
	ended      tombstones
	foreign    map[plan.RunKey]string // kept by an older release's shepherd
	draining   bool
	isGone     bool
	subs       map[*conn]bool
	conns      map[*conn]bool
	unsaved    []*run // exited, but the record could not be written yet
	grant      plan.Grant
	leasesKept bool                 // the file of leases names runs
	vacating   map[plan.RunKey]bool // attempts whose private folders are being removed
}

// Open takes the folder's lock, reads the journal, finds the processes again
// and listens. Run must be called next.
func Open(config Config) (*Shepherd, error) {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Dir == "" || config.Node == "" || config.Release == "" {
		return nil, errors.New("shepherd: state folder, node and release must be given")
	}
	dir, err := filepath.Abs(config.Dir)
	if err != nil {
		return nil, fmt.Errorf("shepherd: %w", err)
	}
	config.Dir = dir
	if config.Spool == "" {
		config.Spool = filepath.Join(config.Dir, config.Release, "spool")
	}
	if config.Prefix == "" {
		config.Prefix = "slurmstepd-" + config.Node + ": error: "
	}
	// Two clusters on one host may use the same node name.
	sum := sha256.Sum256([]byte(config.Dir))
	id := hex.EncodeToString(sum[:4])
	if config.Cgroup.Base == "" {
		config.Cgroup.Base = "muster-" + config.Node + "-" + id
	}
	if config.Launchers <= 0 {
		config.Launchers = min(max(2, runtime.NumCPU()), 8)
	}
	if config.DrainWait <= 0 {
		config.DrainWait = 10 * time.Second
	}
	config.Cgroup.CloneInto = spawn.CanCloneIntoGroup()
	shepherd := &Shepherd{
		cfg:      config,
		id:       id,
		log:      config.Log,
		dir:      filepath.Join(config.Dir, config.Release),
		root:     os.Geteuid() == 0,
		notes:    make(chan notice, 64),
		queue:    make(chan *run, 1<<14),
		born:     make(chan struct{}, 1),
		dirty:    make(chan struct{}, 1),
		gone:     make(chan struct{}),
		runs:     map[plan.RunKey]*run{},
		pids:     map[int]*run{},
		early:    map[int]ended{},
		after:    map[int]chan ended{},
		ended:    newTombstones(tombstoneLimit),
		foreign:  map[plan.RunKey]string{},
		busy:     map[int]time.Time{},
		spools:   map[string]bool{},
		subs:     map[*conn]bool{},
		conns:    map[*conn]bool{},
		vacating: map[plan.RunKey]bool{},
	}
	if err := shepherd.prepareRun(); err != nil {
		shepherd.close()
		return nil, err
	}
	return shepherd, nil
}

func (s *Shepherd) prepareRun() error {
	if err := os.MkdirAll(s.dir, 0o711); err != nil {
		return fmt.Errorf("make state folder: %w", err)
	}
	if err := os.MkdirAll(s.cfg.Spool, 0o711); err != nil {
		return fmt.Errorf("make spool folder: %w", err)
	}
	if err := s.takeLock(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	s.limits = ownLimits()
	s.host = cgroup.Detect(s.cfg.Cgroup)
	boot, err := proc.BootID()
	if err != nil {
		return err
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	s.hello = plan.Hello{
		Protocol: protocol.Version,
		Release:  s.cfg.Release,
		BootID:   boot,
		StartID:  hex.EncodeToString(id[:]),
		PID: int32(
			os.Getpid(),
		),
		Root:       s.root,
		CgroupMode: string(s.host.Mode()),
		Enforces:   s.host.Enforces(),
		Degraded:   s.host.Notes(),
	}
	tree, depth := s.host.Tree()
	s.hello.Tree, s.hello.TreeDepth = tree, int32(depth)
	if err := s.openSpaces(); err != nil {
		return err
	}
	s.selfCheck()
	s.watch, err = newWatcher(s)
	if err != nil {
		return err
	}
	s.rememberGrant(s.dir)
	if err := s.restoreJournal(); err != nil {
		return err
	}
	s.enforceLeases() // before anybody is served: no process has done it for a while
	return s.listen()
}

// selfCheck adds to Degraded what jobs of other users will stumble over.
func (s *Shepherd) selfCheck() {
	if !s.root {
		s.hello.Degraded = append(s.hello.Degraded, "not root: jobs run as "+
			fmt.Sprint(os.Geteuid())+", and only that user's")
		return
	}
	for d := s.cfg.Spool; d != "/" && d != "."; d = filepath.Dir(d) {
		if fi, err := os.Stat(d); err == nil && fi.Mode().Perm()&0o001 == 0 {
			s.hello.Degraded = append(s.hello.Degraded, "users cannot reach the spool folder: "+d+
				" is closed to them (chmod o+x)")
		}
	}
}

// lockWait bounds the wait for the lock of a shepherd that just died.
const lockWait = 30 * time.Second

// takeLock waits for the lock file, unless a living shepherd holds it. A dead
// shepherd's child can hold it for the moment before its exec: once we have
// the lock, every process of a job has executed and can be recognised.
func (s *Shepherd) takeLock() error {
	file, err := os.OpenFile(filepath.Join(s.dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open lock: %w", err)
	}
	s.lock = file
	for until := time.Now().Add(lockWait); ; {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		if c, err := net.Dial("unix", filepath.Join(s.dir, SocketName)); err == nil {
			_ = c.Close()
			return fmt.Errorf("%w: %s", ErrRunning, s.dir)
		}
		if time.Now().After(until) {
			return fmt.Errorf(
				"%s is locked by a process that does not answer on its socket (find it with fuser); is a shepherd stopped?",
				file.Name(),
			)
		}
		//muster:sleep a dead shepherd's child holds the lock until it has executed
		time.Sleep(5 * time.Millisecond)
	}
}

// maxSocketPath is the longest path of a unix socket in bytes.
const maxSocketPath = 107

func (s *Shepherd) listen() error {
	path := filepath.Join(s.dir, SocketName)
	if len(path) > maxSocketPath {
		return fmt.Errorf(
			"the state folder's path is too long for a socket: %s has %d bytes, %d are possible",
			path,
			len(path),
			maxSocketPath,
		)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old socket: %w", err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.ln = ln
	ln.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("protect socket: %w", err)
	}
	return nil
}

// Run serves until the context ends or, after a drain, the last run is
// acknowledged. Job processes are left running.
func (s *Shepherd) Run(ctx context.Context) error {
	defer s.close()
	for range s.cfg.Launchers {
		s.addLauncher()
	}
	go s.reapChildren() // blocked in wait4 for as long as the process lives
	s.wg.Go(s.watch.run)
	s.wg.Go(func() { s.writeNotices(ctx) })
	s.wg.Go(func() { s.keepJournal(ctx) })
	s.wg.Go(func() { s.keepLeases(ctx) })
	s.ctx = ctx
	s.takeOver(
		ctx,
	) // who already connects waits: a run that an older one has must not be started here too
	s.wg.Go(s.acceptConns)
	s.mu.Lock()
	runs := len(s.runs)
	s.mu.Unlock()
	s.log.Info("shepherd serves", "dir", s.dir, "pid", s.hello.PID, "cgroups", s.hello.CgroupMode,
		"root", s.root, "runs", runs, "degraded", s.hello.Degraded)
	select {
	case <-ctx.Done():
	case <-s.gone:
		s.log.Info("drained: every run is acknowledged")
	}
	_ = s.ln.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.sock.Close()
	}
	s.mu.Unlock()
	s.watch.stopWatching()
	return nil
}

// close gives back what Open took. Children keep running.
func (s *Shepherd) close() {
	if s.ln != nil {
		_ = s.ln.Close()
	}
	if s.jr != nil {
		if err := s.jr.Sync(s.jr.Last()); err != nil {
			s.log.Error("last flush of the journal failed", "err", err)
		}
		_ = s.jr.Close()
	}
	s.mu.Lock()
	followed := s.isGone
	s.mu.Unlock()
	// Whoever drained this shepherd uses the folders, and may have no group in them yet.
	if s.host != nil && !followed {
		s.host.Close() // fails, rightly, where runs are left
	}
	if s.lock != nil {
		_ = s.lock.Close()
	}
}

// keepJournal flushes the journal a little after exits, retries what could not be
// written, rewrites the journal when it is mostly obsolete, and adds a
// launcher when all hang.
func (s *Shepherd) keepJournal(ctx context.Context) {
	const flushDelay = 20 * time.Millisecond
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.gone:
			return
		case <-s.dirty:
			timer := time.NewTimer(flushDelay)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
			if err := s.jr.Sync(s.jr.Last()); err != nil {
				s.log.Error("journal", "err", err)
			}
		case <-tick.C:
			s.retryUnsaved()
			s.compactJournal()
			s.relieveLaunchers()
		}
	}
}

func putToken(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
