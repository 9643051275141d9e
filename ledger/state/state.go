package state

import (
	"github.com/musterhpc/muster/ledger/state/pmap"
	"github.com/musterhpc/muster/spec"
)

// State is the cluster after some prefix of the ledger. Read its tables
// freely; only Apply writes them.
type State struct {
	own       *pmap.Owner // nil: frozen
	partsOwn  *pmap.Owner // who may change Totals.Parts in place
	policyOwn *pmap.Owner // who may change Policy in place
	configOwn *pmap.Owner // who may change the nodes of Config in place
	draft     bool        // to be thrown away: Totals are not counted
	breathe   func()      // see Breathing

	UUID        [16]byte
	ClusterName string
	Version     uint32 // vocabulary version in force
	Created     spec.Instant
	Seq         uint64       // sequence number of the last event; 0 = empty ledger
	At          spec.Instant // its instant

	Epochs []Epoch      // of the controllers that led, oldest first; replaced on write
	Lost   *LostHistory // the last loss of history that was noticed; nil = none
	// Leader is the host of the controller that leads, FirstLeader of the first one that did.
	Leader, FirstLeader string

	Config *spec.Config // never nil after ConfigAdopted
	Policy *Policy      // QOS, accounts, users, associations; never nil
	Parts  *Partitions  // derived from Config and the node ids; never nil

	NextUID spec.JobUID // the next job record
	NextID  spec.JobID  // the next number to show

	Jobs     pmap.Map[*Job]        // by JobUID: everything not purged
	ByID     pmap.Map[spec.JobUID] // JobID -> JobUID
	Owned    pmap.Map[int]         // uid -> how many of Jobs are that user's; derived
	Pods     pmap.Map[spec.JobUID] // PodKey -> JobUID, of pods that are not over; derived
	Arrays   pmap.Map[*Array]      // by the JobUID of the array's record
	Waiting  Set                   // JobUIDs that are pending
	Active   Set                   // JobUIDs that run or still hold nodes
	Sleeping Set                   // JobUIDs that are suspended and go on by themselves
	Finished pmap.Map[spec.JobUID] // sequence of JobEnded -> JobUID, all nodes done
	Waiters  Groups                // JobUID -> pending jobs whose dependency names it
	Ends     Groups                // second since Created -> running jobs whose time limit ends then, after At
	Named    Groups                // NameKey -> jobs without a verdict, for singleton

	Nodes   pmap.Map[*Node]        // by NodeID
	NodeIDs map[string]spec.NodeID // every name ever configured, 0 … n-1; copied on write

	Usage        pmap.Map[*Usage]    // by UsageKey
	Spent        pmap.Map[*Spent]    // by UsageKey of a QOS or association
	Runs         pmap.Map[*UserRuns] // by uid: past runs, from which lengths are predicted
	Aging        Aging
	Licenses     []spec.Count // held now, sorted by name; replaced on write
	Totals       Totals
	Access       *Access            // enrolment tokens and certificates; replaced on write
	Reservations []spec.Reservation // by name; replaced on write
	Crontabs     []spec.Crontab     // by uid; replaced on write
	Triggers     []spec.Trigger     // by id; replaced on write
	NextTrigger  uint32             // the next number of a trigger, less one
}

// Set is a persistent set of JobUIDs.
type Set = pmap.Map[struct{}]

// Groups are sets of JobUIDs by a key.
type Groups = pmap.Map[Set]

// NameKey is the key of Named: a short hash of user and job name (25 bits, so
// that the map stays shallow), so a reader still compares the names.
func NameKey(uid uint32, name string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for _, b := range [...]byte{byte(uid), byte(uid >> 8), byte(uid >> 16), byte(uid >> 24)} {
		h = (h ^ uint64(b)) * 1099511628211
	}
	for i := 0; i < len(name); i++ {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return (h ^ h>>25 ^ h>>50) & (1<<25 - 1)
}

// New returns the state of an empty ledger, ready to be written.
func New() *State {
	return &State{
		own:     new(pmap.Owner),
		Config:  &spec.Config{},
		Policy:  &Policy{},
		Parts:   &Partitions{},
		NextUID: 1,
		NextID:  1,
		Access:  &Access{},
	}
}

// Freeze returns an immutable copy. The receiver goes on as the writer's own.
func (s *State) Freeze() *State {
	state := *s
	state.own = nil
	s.own = new(pmap.Owner)
	return &state
}

// Fork returns a copy to write to. The receiver must be frozen.
func (s *State) Fork() *State {
	state := *s
	state.own = new(pmap.Owner)
	return &state
}

// Draft is Fork for a copy that is thrown away, to see what would follow from
// some events: it counts no Totals.
func (s *State) Draft() *State {
	c := s.Fork()
	c.draft = true
	return c
}

// Frozen tells whether the state is an immutable copy.
func (s *State) Frozen() bool { return s.own == nil }

// Job returns a job by its key, or nil.
func (s *State) Job(uid spec.JobUID) *Job {
	job, _ := s.Jobs.Get(uint64(uid))
	return job
}

// JobByID returns the job that people know by a number, or nil. For an array
// it is the array's record, nil once that is purged (see ArrayByID).
func (s *State) JobByID(id spec.JobID) *Job {
	uid, ok := s.ByID.Get(uint64(id))
	if !ok {
		return nil
	}
	return s.Job(uid)
}

// ArrayByID returns the array that people know by a number, as long as any of
// its tasks is not purged; nil if there is none.
func (s *State) ArrayByID(id spec.JobID) *Array {
	uid, ok := s.ByID.Get(uint64(id))
	if !ok {
		return nil
	}
	array, _ := s.Arrays.Get(uint64(uid))
	return array
}

// ArrayOf returns the array a job belongs to, or nil.
func (s *State) ArrayOf(job *Job) *Array {
	if job.Array == 0 {
		return nil
	}
	array, _ := s.Arrays.Get(uint64(job.Array))
	return array
}

// Node returns a node by name, or nil if it is not, or no longer, in the
// cluster.
func (s *State) Node(name string) *Node {
	id, ok := s.NodeIDs[name]
	if !ok {
		return nil
	}
	return s.NodeByID(id)
}

// NodeByID returns a node by its id, or nil.
func (s *State) NodeByID(id spec.NodeID) *Node {
	node, _ := s.Nodes.Get(uint64(id))
	return node
}

// JobsOf tells how many job records a user has, ended ones included.
func (s *State) JobsOf(uid uint32) int {
	n, _ := s.Owned.Get(uint64(uid))
	return n
}

// countOwned counts records of a user in or out.
func (s *State) countOwned(uid uint32, by int) {
	if n := s.JobsOf(uid) + by; n != 0 {
		s.Owned.Set(s.own, uint64(uid), n)
	} else {
		s.Owned.Delete(s.own, uint64(uid))
	}
}

func (s *State) putJob(job *Job) {
	switch old := s.Job(job.UID); {
	case old == nil:
		s.countOwned(job.Spec.UID, 1)
	case old.Spec.UID != job.Spec.UID:
		s.countOwned(old.Spec.UID, -1)
		s.countOwned(job.Spec.UID, 1)
	}
	s.Jobs.Set(s.own, uint64(job.UID), job)
}

func (s *State) putNode(node *Node) { s.Nodes.Set(s.own, uint64(node.ID), node) }
