// Package predict says how long a job will probably run, from what earlier jobs
// of its user took. It is pure: the past comes from the fold of the ledger
// (state.RunsOf), so that a replay predicts what the live controller predicted.
//
// A prediction is used to plan, never to end a job: the time limit stays the
// law. Users request several times what their jobs take (on the KTH SP2 log the
// mean request is 2.5 times the mean run), which hides the gaps that short jobs
// could use.
//
// The method is a quantile over similar runs. Similarity has levels, from the
// same name, limit and size down to any run of the user; the first level with
// MinSamples runs decides. Within a level only the newest MaxSamples count,
// because users change what they do. Both numbers and the quantile were chosen
// on the first halves of two logs (KTH SP2 1996, ALCF Theta 2023) and are judged
// on the second halves, see docs/decisions/0130-predicted-run-times.md.
package predict

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

const (
	// MinSamples is how many similar runs a prediction needs.
	MinSamples = 2
	// MaxSamples is how many of the newest similar runs it looks at.
	MaxSamples = 8
	// quantileNumerator / quantileDenominator is the part of the similar runs
	// that a predicted length covers. Above the median, because a job that
	// outlives its prediction delays others, and one that ends early does not.
	quantileNumerator   = 3
	quantileDenominator = 4
)

// Level is how similar the runs are that a prediction is based on.
type Level uint8

// The levels, from no similar runs to the most similar ones.
const (
	None        Level = iota // no prediction: the time limit stands
	User                     // any runs of the user
	SameSize                 // of the same CPUs, GPUs and nodes
	SameLimit                // of the same time limit
	SameRequest              // of the same time limit and size
	SameName                 // and of the same job name
)

// String names a level as users read it.
func (l Level) String() string {
	switch l {
	case User:
		return "runs of this user"
	case SameSize:
		return "runs of the same size"
	case SameLimit:
		return "runs with the same time limit"
	case SameRequest:
		return "runs with the same time limit and size"
	case SameName:
		return "runs of the same name, time limit and size"
	}
	return "no similar runs"
}

// Prediction is how long a job will probably run.
type Prediction struct {
	Length   spec.Span // covers three quarters of the similar runs, at most the time limit
	Shortest spec.Span // of the similar runs
	Longest  spec.Span
	Samples  int // similar runs it is based on; 0 = none, and Length is the limit
	Level    Level
}

// Known tells whether the prediction is based on anything but the time limit.
func (p Prediction) Known() bool { return p.Level != None }

// Run predicts the length of a job with this time limit from its user's past.
func Run(cluster *state.State, job *state.Job, limit spec.Span) Prediction {
	request := state.RequestOf(job)
	request.Limit = limit
	return From(cluster.RunsOf(job.Spec.UID), request)
}

// Memo remembers one prediction, for whoever asks the same again before its user has
// had another run: the jobs of a class that waits. The zero value remembers nothing.
type Memo struct {
	past    []state.PastRun
	request state.PastRun
	made    Prediction
}

// Run is Run with a memory.
func (m *Memo) Run(cluster *state.State, job *state.Job, limit spec.Span) Prediction {
	request := state.RequestOf(job)
	request.Limit = limit
	past := cluster.RunsOf(job.Spec.UID)
	if m.made.Length > 0 && request == m.request && sameRuns(past, m.past) {
		return m.made
	}
	m.past = past
	m.request = request
	m.made = From(past, request)
	return m.made
}

// sameRuns tells whether two histories are one: the table's never change in place.
func sameRuns(a, b []state.PastRun) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// From predicts the length of a requested run from past ones, oldest first.
func From(past []state.PastRun, request state.PastRun) Prediction {
	for level := SameName; level > None; level-- {
		similar := newestSimilar(past, request, level)
		if len(similar) < MinSamples {
			continue
		}
		slices.Sort(similar)
		last := len(similar) - 1
		// The nearest rank, rounded half up.
		rank := (2*quantileNumerator*last + quantileDenominator) / (2 * quantileDenominator)
		return Prediction{
			Length:   min(max(similar[rank], spec.Second), request.Limit),
			Shortest: similar[0],
			Longest:  similar[last],
			Samples:  len(similar),
			Level:    level,
		}
	}
	return Prediction{Length: request.Limit}
}

// newestSimilar returns the lengths of the newest past runs that are similar enough.
func newestSimilar(past []state.PastRun, request state.PastRun, level Level) []spec.Span {
	var lengths []spec.Span
	for i := len(past) - 1; i >= 0 && len(lengths) < MaxSamples; i-- {
		if similar(past[i], request, level) {
			lengths = append(lengths, past[i].Length)
		}
	}
	return lengths
}

func similar(past, request state.PastRun, level Level) bool {
	sameSize := past.CPUs == request.CPUs && past.GPUs == request.GPUs &&
		past.Nodes == request.Nodes
	sameLimit := past.Limit == request.Limit
	switch level {
	case SameName:
		return past.Name == request.Name && sameLimit && sameSize
	case SameRequest:
		return sameLimit && sameSize
	case SameLimit:
		return sameLimit
	case SameSize:
		return sameSize
	default:
		return true
	}
}
