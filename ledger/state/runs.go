package state

import (
	"hash/fnv"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// MaxPastRuns is how many past runs are kept for each user. It bounds the
// memory of predictions: 64 runs of 10,000 users take about 30 MB.
const MaxPastRuns = 64

// PastRun is one run of a user that ended on its own: what was requested, and
// how long it took.
type PastRun struct {
	Name   uint32    `cbor:"1,keyasint,omitempty"` // RunName of the job's name
	Limit  spec.Span `cbor:"2,keyasint,omitempty"` // the time limit in force at the end
	CPUs   int64     `cbor:"3,keyasint,omitempty"` // requested, as is everything below
	GPUs   int64     `cbor:"4,keyasint,omitempty"`
	Nodes  int64     `cbor:"5,keyasint,omitempty"`
	Length spec.Span `cbor:"6,keyasint,omitempty"` // wall time without suspensions
}

// UserRuns are the last runs of one user, oldest first. A *UserRuns that the
// table holds never changes.
type UserRuns struct {
	Runs []PastRun `cbor:"1,keyasint,omitempty"`
}

// RunName is the short hash by which runs of jobs of one name are recognised.
// Two names that share a hash only make a prediction worse.
func RunName(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name)) // never fails, see hash.Hash
	return h.Sum32()
}

// RunsOf returns the past runs of a user, oldest first.
func (s *State) RunsOf(uid uint32) []PastRun {
	runs, ok := s.Runs.Get(uint64(uid))
	if !ok {
		return nil
	}
	return runs.Runs
}

// RequestOf describes a job as a run that has not taken any time yet.
func RequestOf(job *Job) PastRun {
	return PastRun{
		Name:  RunName(job.Spec.Name),
		Limit: job.Spec.Time.Limit,
		CPUs:  job.Req.CPU,
		GPUs:  job.Req.Get("gres/gpu"),
		Nodes: job.Req.Node,
	}
}

// rememberRun adds a run that has just ended to the history of its user. A run
// that a node or another job cut short says nothing about the user's work and
// is left out.
func (s *State) rememberRun(job *Job, ended *event.JobEnded, at spec.Instant) {
	if ended.State == spec.NodeFailed || ended.State == spec.Preempted ||
		ended.State == spec.BootFailed {
		return
	}
	run := RequestOf(job)
	run.Limit = job.Limit
	run.Length = max(at.Sub(max(job.Started, job.Ready))-job.Paused, 0)
	past := s.RunsOf(job.Spec.UID)
	if len(past) >= MaxPastRuns {
		past = past[len(past)-MaxPastRuns+1:]
	}
	kept := append(slices.Clone(past), run)
	s.Runs.Set(s.own, uint64(job.Spec.UID), &UserRuns{Runs: kept})
}
