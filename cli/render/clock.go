package render

import (
	"strconv"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// FormatTime writes nanoseconds since 1970 as every command does.
func FormatTime(call *tool.Call, ns int64) string { return NewClock(call.Env).Time(ns) }

// Clock writes points in time and spans.
type Clock struct {
	Now    int64 // the controller's, ns since 1970
	Loc    *time.Location
	layout string // SLURM_TIME_FORMAT
}

// NewClock is that of the command's environment; set now from an answer where
// elapsed times are shown.
func NewClock(env *tool.Env) Clock {
	return Clock{Now: env.Now().UnixNano(), Loc: env.Loc, layout: env.Getenv("SLURM_TIME_FORMAT")}
}

// Time writes nanoseconds since 1970; zero is "Unknown".
func (k Clock) Time(ns int64) string { return k.TimeOr(ns, "Unknown") }

// TimeOr is time with another word for zero.
func (k Clock) TimeOr(ns int64, zero string) string {
	if ns == 0 {
		return zero
	}
	text, ok := format.TimeAs(
		k.layout,
		ns/tool.Second,
		format.Moment{Now: k.Now / tool.Second, Loc: k.Loc},
	)
	if !ok {
		return format.Time(ns/tool.Second, k.Loc)
	}
	return text
}

// Date is the line that long listings begin with.
func (k Clock) Date() string {
	return time.Unix(k.Now/tool.Second, 0).In(k.Loc).Format("Mon Jan _2 15:04:05 2006")
}

// Elapsed is how long a job ran until now, in nanoseconds.
func Elapsed(job *apiv1.JobInfo, now int64) int64 {
	end := now
	if spec.JobState(job.GetState()).Terminal() {
		end = job.GetEnd()
	}
	if job.GetStart() == 0 || spec.JobState(job.GetState()) == spec.Pending ||
		end < job.GetStart() {
		return 0
	}
	if at := job.GetSuspendedAt(); at != 0 {
		end = at
	}
	return end - job.GetStart() - job.GetPaused()
}

// ArrayTasks writes the indices of an array's record, cut at 64 characters
// unless SLURM_BITSTR_LEN says otherwise.
func ArrayTasks(env *tool.Env, job *apiv1.JobInfo) string {
	array := format.Array{Throttle: job.GetArrayThrottle()}
	for _, taskRange := range job.GetArrayTasks() {
		array.Ranges = append(
			array.Ranges,
			format.Range{
				First: uint32(taskRange.GetFirst()),
				Last:  uint32(taskRange.GetLast()),
				Step:  uint32(max(taskRange.GetStep(), 1)),
			},
		)
	}
	most := 64
	if text, ok := env.Lookup("SLURM_BITSTR_LEN"); ok {
		if n, err := strconv.Atoi(text); err == nil {
			most = n // 0 prints them all
		}
	}
	return array.Display(most)
}
