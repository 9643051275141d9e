// Package history checks what a group of controllers answered: whether all answers can be those of one
// controller that does one call after the other, each between its beginning and its end. That is
// linearizability; porcupine finds the order, or that there is none.
package history

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Verb is what a call does with a job.
type Verb uint8

// The verbs.
const (
	Submit Verb = iota + 1
	Hold
	Release
	Cancel
	Query
)

func (v Verb) String() string {
	return [...]string{"", "submit", "hold", "release", "cancel", "query"}[v]
}

// Job is what callers can see of a job that waits for its begin time.
type Job uint8

// The states of a job. A job that waits never starts here, so only calls change it.
const (
	Absent Job = iota
	Waiting
	Held
	Ended
)

func (j Job) String() string { return [...]string{"absent", "waiting", "held", "ended"}[j] }

// Answer is how a call ended.
type Answer struct {
	// Unknown tells that the answer was lost: the call may take effect at any later time.
	Unknown bool
	// Refused tells that the job is not one with which the call can be done.
	Refused bool
	Seen    Job // of a query
}

// Call is a call about one job, with times on one monotonic clock.
type Call struct {
	Client int
	Verb   Verb
	Job    uint32
	Began  time.Duration
	Ended  time.Duration
	Answer Answer
}

func (c Call) String() string {
	text := fmt.Sprintf("client %d: %v of job %d from %v to %v: ", c.Client, c.Verb, c.Job, c.Began, c.Ended)
	switch {
	case c.Answer.Unknown:
		return text + "no answer"
	case c.Answer.Refused:
		return text + "refused"
	case c.Verb == Query:
		return text + c.Answer.Seen.String()
	}
	return text + "done"
}

// Recorder takes calls from several clients.
type Recorder struct {
	began time.Time
	mu    sync.Mutex
	calls []Call
}

// NewRecorder begins a history.
func NewRecorder() *Recorder { return &Recorder{began: time.Now()} }

// Now is the time of the history.
func (r *Recorder) Now() time.Duration { return time.Since(r.began) }

// Add notes a call that has ended. A query without an answer says nothing and is left out.
func (r *Recorder) Add(call Call) {
	if call.Verb == Query && call.Answer.Unknown {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
}

// Calls are those noted so far.
func (r *Recorder) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// apply tells whether a job can answer a call so, and what it is afterwards.
func apply(job Job, call Call) (bool, Job) {
	if call.Verb == Query {
		return job == call.Answer.Seen, job
	}
	if call.Verb == Submit {
		return job == Absent, Waiting
	}
	live := job == Waiting || job == Held
	if !live {
		return call.Answer.Refused || call.Answer.Unknown, job
	}
	if call.Answer.Refused {
		return false, job
	}
	switch call.Verb {
	case Hold:
		return true, Held
	case Release:
		return true, Waiting
	default:
		return true, Ended
	}
}

// model is a job that does one call after the other.
func model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return Absent },
		Step: func(state, input, _ any) (bool, any) {
			return apply(state.(Job), input.(Call))
		},
	}
}

// Check returns the jobs whose answers no order of the calls explains, with their calls. Jobs do
// not influence each other, so each has a history of its own.
func Check(calls []Call) map[uint32][]Call {
	end := time.Duration(0)
	byJob := map[uint32][]Call{}
	for _, call := range calls {
		end = max(end, call.Ended)
		byJob[call.Job] = append(byJob[call.Job], call)
	}
	wrong := map[uint32][]Call{}
	for job, its := range byJob {
		var operations []porcupine.Operation
		for i, call := range its {
			ended := call.Ended
			client := call.Client
			if call.Answer.Unknown {
				ended = end + time.Duration(i+1)
				client = -1 - i // its client went on before the call ended
			}
			operations = append(
				operations,
				porcupine.Operation{
					ClientId: client, Input: call, Call: int64(call.Began), Return: int64(ended),
				},
			)
		}
		if !porcupine.CheckOperations(model(), operations) {
			slices.SortFunc(its, func(a, b Call) int { return int(a.Began - b.Began) })
			wrong[job] = its
		}
	}
	return wrong
}
