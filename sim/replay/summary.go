package replay

import (
	"slices"

	"github.com/musterhpc/muster/spec"
)

// Tau is the run time below which the bounded slowdown counts a job as this
// long.
const Tau = 10 * spec.Second

// Summary holds the figures of a schedule. Waits are in seconds.
type Summary struct {
	Jobs         int     `json:"jobs"`
	Never        int     `json:"never_started"`
	Refused      int     `json:"refused"`
	MeanWait     float64 `json:"mean_wait_seconds"`
	P95Wait      float64 `json:"p95_wait_seconds"`
	MaxWait      float64 `json:"max_wait_seconds"`
	MeanSlowdown float64 `json:"mean_bounded_slowdown"`
	Utilisation  float64 `json:"utilisation"`     // of the CPUs, from the first start to the last end
	GPUUse       float64 `json:"gpu_utilisation"` // likewise of the GPUs; 0 without any
	// Parts of all GPUs while jobs arrived: held by nobody, and those of them that the mean
	// request could not have used.
	GPUsFree     float64 `json:"gpus_free"`
	GPUsStranded float64 `json:"gpus_stranded"`
	Makespan     float64 `json:"makespan_seconds"`
	Passes       int     `json:"passes"`
	MaxQueue     int     `json:"longest_queue"`
}

// Summarise computes the figures of the jobs that ran.
func (r *Result) Summarise() Summary {
	summary := Summary{Never: r.Never, Refused: r.Refused, Passes: r.Passes, MaxQueue: r.MaxQueue}
	var waits []spec.Span
	var slow, wait, busy, gpus float64
	first, last := spec.FarFuture, spec.Instant(0)
	for i := range r.Jobs {
		outcome := &r.Jobs[i]
		if !outcome.Started() {
			continue
		}
		w, run := outcome.Wait(), outcome.End.Sub(outcome.Start)
		waits = append(waits, w)
		wait += asFloat(w)
		slow += max(1, float64(w+run)/float64(max(run, Tau)))
		busy += float64(outcome.Procs) * asFloat(run)
		gpus += float64(outcome.GPUs) * asFloat(run)
		first, last = min(first, outcome.Start), max(last, outcome.End)
	}
	if len(waits) == 0 {
		return summary
	}
	slices.Sort(waits)
	n := float64(len(waits))
	summary.Jobs = len(waits)
	summary.MeanWait = wait / n
	summary.MeanSlowdown = slow / n
	summary.Makespan = asFloat(last.Sub(first))
	summary.P95Wait = asFloat(waits[(len(waits)*95+99)/100-1])
	summary.MaxWait = asFloat(waits[len(waits)-1])
	if summary.Makespan > 0 && r.Procs > 0 {
		summary.Utilisation = busy / float64(r.Procs) / summary.Makespan
	}
	if summary.Makespan > 0 && r.GPUs > 0 {
		summary.GPUUse = gpus / float64(r.GPUs) / summary.Makespan
	}
	if r.GPUs > 0 {
		summary.GPUsFree = r.MeanFreeGPUs / float64(r.GPUs)
		summary.GPUsStranded = r.MeanStrandedGPUs / float64(r.GPUs)
	}
	return summary
}

func wholeSeconds(s spec.Span) int64 { return int64(s / spec.Second) }

func asFloat(s spec.Span) float64 { return float64(s) / float64(spec.Second) }
