//go:build linux

package shepherd

import (
	"os"
	"path/filepath"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/cgroup"
	"github.com/musterhpc/muster/nodeagent/runtime/minder"
	"github.com/musterhpc/muster/nodeagent/runtime/proc"
	"github.com/musterhpc/muster/nodeagent/runtime/spawn"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// run is one run that the shepherd knows. Shepherd.mu guards it, except that
// the goroutine which starts or concludes it owns spec, group and exit then.
type run struct {
	launchRecord
	startedRecord
	spec      *plan.RunSpec // until started
	state     plan.State
	begun     bool // the journal says that it may have run
	pidfd     int  // -1 without
	group     *cgroup.Group
	script    scriptMark // the spooled file; zero where it is not known
	adopted   bool
	stray     bool            // only a group to clear, known to nobody
	term      *plan.Terminate // asked for while starting
	killed    bool            // SIGKILL was asked for while starting
	pending   []pendingSig    // signals that came while starting
	furnished bool            // its spool and control group are made
	fileTries int             // how often a file of it could not be opened yet
	killSent  spec.Instant
	termUntil spec.Instant
	leaseOver bool // it was told to end because its lease was about to end
	timer     *time.Timer
	peakRSS   int64
	peakVM    int64
	khz       int64      // mean frequency of its CPUs
	khzCPU    spec.Span  // CPU time that it is of
	env       []string   // of the script, for its TaskEpilog
	ended     *plan.Exit // how the script ended, while its TaskEpilog runs
	exit      *plan.Exit
}

type pendingSig struct {
	sig   unix.Signal
	scope plan.Scope
}

// ended is what wait4 said.
type ended struct {
	status unix.WaitStatus
	usage  unix.Rusage
}

// runMark is the value of MUSTER_RUN in the environment of a run's processes: its
// key and, because clusters can share a host or even run inside each other's
// jobs, which state folder it belongs to.
func (s *Shepherd) runMark(key plan.RunKey) string { return key.String() + "/" + s.id }

const markName = "MUSTER_RUN"

func (r *run) credentialOf(root bool) *spawn.Cred {
	if !root {
		return nil
	}
	return &spawn.Cred{UID: r.UID, GID: r.GID, Groups: r.Groups}
}

// asObserved is the run as List shows it.
func (r *run) asObserved() plan.Observed {
	observed := plan.Observed{
		Key:       r.Key,
		JobID:     r.JobID,
		State:     r.state,
		PID:       int32(r.PID),
		UID:       r.UID,
		Start:     r.Start,
		Launch:    r.Launch,
		Seq:       r.Seq,
		Order:     r.Order,
		Cgroup:    r.group.Path(),
		Exit:      r.exit,
		KillSent:  r.killSent,
		Adopted:   r.adopted,
		TermUntil: r.termUntil,
	}
	if r.Minded && r.state != plan.Exited {
		observed.Socket = filepath.Join(r.Spool, minder.SocketName)
	}
	return observed
}

// listMembers lists the living processes of the run's tree; none once its exit is
// written down, since its numbers may belong to others then.
func (s *Shepherd) listMembers(r *run) ([]int, error) {
	s.mu.Lock()
	group, over := r.group, r.state == plan.Exited
	s.mu.Unlock()
	if over {
		return nil, nil
	}
	if group != nil {
		return group.Procs()
	}
	all, err := proc.All()
	if err != nil {
		return nil, err
	}
	mark, root := markName+"="+s.runMark(r.Key), r.PID
	s.mu.Lock()
	if other := s.pids[root]; other != nil && other != r {
		root = -1 // the number has passed on to another run
	}
	s.mu.Unlock()
	var out []int
	for _, stat := range proc.Tree(all, root, os.Getpid(), func(pid int) bool {
		return proc.HasEnv(pid, mark)
	}) {
		if stat.State != 'Z' && stat.State != 'X' {
			out = append(out, stat.PID)
		}
	}
	return out, nil
}

// tombstone is a run that is over and acknowledged.
type tombstone struct {
	key    plan.RunKey
	launch spec.Hash // zero: an older release launched it
}

// tombstones remember the newest runs that were acknowledged.
type tombstones struct {
	ring []tombstone
	next int
	set  map[plan.RunKey]spec.Hash
}

// tombstoneLimit is how many runs are remembered after the controller has heard of their end. An
// order that was on its way meanwhile must not start such a run again.
const tombstoneLimit = 1 << 17

func newTombstones(limit int) tombstones {
	return tombstones{ring: make([]tombstone, 0, limit), set: map[plan.RunKey]spec.Hash{}}
}

func (t *tombstones) addTombstone(g tombstone) {
	if _, known := t.set[g.key]; known {
		return
	}
	if len(t.ring) < cap(t.ring) {
		t.ring = append(t.ring, g)
	} else {
		delete(t.set, t.ring[t.next].key)
		t.ring[t.next] = g
		t.next = (t.next + 1) % len(t.ring)
	}
	t.set[g.key] = g.launch
}

func (t *tombstones) findLaunch(key plan.RunKey) (launch spec.Hash, ok bool) {
	launch, ok = t.set[key]
	return launch, ok
}

// oldestFirst lists the runs in the order in which they were added.
func (t *tombstones) oldestFirst() []tombstone {
	out := make([]tombstone, 0, len(t.ring))
	out = append(out, t.ring[t.next:]...)
	return append(out, t.ring[:t.next]...)
}
