package cli

import (
	"sort"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// Texts for what is not there, as Slurm prints them.
const (
	null = "(null)"
	na   = "N/A"
)

// clock writes points in time and spans.
type clock struct {
	now    int64 // the controller's, ns since 1970
	loc    *time.Location
	layout string // SLURM_TIME_FORMAT
}

// clock is that of the command's environment; set now from an answer where
// elapsed times are shown.
func (e *Env) clock() clock {
	return clock{now: e.Now().UnixNano(), loc: e.Loc, layout: e.Getenv("SLURM_TIME_FORMAT")}
}

const second = int64(spec.Second)

// time writes nanoseconds since 1970; zero is "Unknown".
func (k clock) time(ns int64) string { return k.timeOr(ns, "Unknown") }

// timeOr is time with another word for zero.
func (k clock) timeOr(ns int64, zero string) string {
	if ns == 0 {
		return zero
	}
	text, ok := format.TimeAs(k.layout, ns/second, format.Moment{Now: k.now / second, Loc: k.loc})
	if !ok {
		return format.Time(ns/second, k.loc)
	}
	return text
}

// date is the line that long listings begin with.
func (k clock) date() string {
	return time.Unix(k.now/second, 0).In(k.loc).Format("Mon Jan _2 15:04:05 2006")
}

// limit writes a time limit in nanoseconds; -1 is UNLIMITED.
func limit(ns int64, show func(int64) string) string {
	if ns < 0 {
		return "UNLIMITED"
	}
	return show(ns / second)
}

// elapsed is how long a job ran until now, in nanoseconds.
func elapsed(j *apiv1.JobInfo, now int64) int64 {
	end := now
	if spec.JobState(j.GetState()).Terminal() {
		end = j.GetEnd()
	}
	if j.GetStart() == 0 || spec.JobState(j.GetState()) == spec.Pending || end < j.GetStart() {
		return 0
	}
	if at := j.GetSuspendedAt(); at != 0 {
		end = at
	}
	return end - j.GetStart() - j.GetPaused()
}

// toTRES reads a vector.
func toTRES(t *apiv1.Tres) spec.TRES {
	out := spec.TRES{CPU: t.GetCpu(), Mem: t.GetMem(), Node: t.GetNode(), Billing: t.GetBilling(), Energy: t.GetEnergy()}
	for _, c := range t.GetOther() {
		out = out.With(c.GetName(), c.GetN())
	}
	return out
}

// tresText writes a vector as squeue and scontrol do, empty when it is.
func tresText(t *apiv1.Tres) string { return toTRES(t).String() }

// or gives a word for an empty text.
func or(s, empty string) string {
	if s == "" {
		return empty
	}
	return s
}

func yesNo(b bool) string {
	if b {
		return "YES"
	}
	return "NO"
}

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func itoa[T ~int | ~int32 | ~int64 | ~uint32 | ~uint64](n T) string {
	return strconv.FormatInt(int64(n), 10)
}

// splitList splits at commas and leaves empty parts out.
func splitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

// positive reads a whole number above zero.
func positive(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 32)
	return n, err == nil && n > 0
}

// countsText writes GRES or licences: gpu:h100:2,nic:1.
func countsText(list []*apiv1.Count, prefix, sep string) string {
	parts := make([]string, len(list))
	for i, c := range list {
		parts[i] = prefix + c.GetName()
		if c.GetType() != "" {
			parts[i] += sep + c.GetType()
		}
		parts[i] += sep + countText(c.GetN())
	}
	return strings.Join(parts, ",")
}

// countText writes an amount of a resource; one that counts bytes has a unit.
func countText(n int64) string {
	if n < 1<<20 {
		return itoa(n)
	}
	return format.Count(n)
}

// arrayTasks writes the indices of an array's record, cut at 64 characters
// unless SLURM_BITSTR_LEN says otherwise.
func (e *Env) arrayTasks(j *apiv1.JobInfo) string {
	a := format.Array{Throttle: j.GetArrayThrottle()}
	for _, r := range j.GetArrayTasks() {
		a.Ranges = append(a.Ranges, format.Range{First: uint32(r.GetFirst()), Last: uint32(r.GetLast()), Step: uint32(max(r.GetStep(), 1))})
	}
	most := 64
	if text, ok := e.Lookup("SLURM_BITSTR_LEN"); ok {
		if n, err := strconv.Atoi(text); err == nil {
			most = n // 0 prints them all
		}
	}
	return a.Display(most)
}

// sortedTRES writes a vector in the order of names, as sacct does.
func sortedTRES(t spec.TRES) string {
	parts := strings.Split(t.String(), ",")
	sort.Strings(parts)
	return strings.Join(parts, ",")
}
