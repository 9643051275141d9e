package render

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// JobFilter is what a reader typed to filter the queue, taken apart: key:value, with
// several values between commas, or a word that the number, name, user, account
// or partition of a job contains. A job must fit all of it.
type JobFilter struct {
	terms []filterTerm
	words []string
	Over  bool // jobs that are over are wanted too
}

type filterTerm struct {
	key    string
	values []string
	not    bool
}

// filterKeys are the keys that a filter knows.
func filterKeys() []string {
	return []string{
		"user",
		"account",
		"partition",
		"qos",
		"state",
		"reason",
		"name",
		"node",
		"job",
		"is",
	}
}

// ParseJobFilter reads what was typed. What it does not know as a key is a word, so
// that nothing that is typed is an error.
func ParseJobFilter(text string) JobFilter {
	var filter JobFilter
	for _, part := range splitQuoted(text) {
		key, value, keyed := strings.Cut(part, ":")
		plain := strings.TrimPrefix(key, "-")
		if !keyed || value == "" || !slices.Contains(filterKeys(), plain) {
			filter.words = append(filter.words, strings.ToLower(part))
			continue
		}
		term := filterTerm{
			key:    plain,
			not:    plain != key,
			values: strings.Split(strings.ToLower(value), ","),
		}
		filter.Over = filter.Over || term.wantsOver()
		filter.terms = append(filter.terms, term)
	}
	return filter
}

// wantsOver tells a term that only jobs which are over can fit.
func (t filterTerm) wantsOver() bool {
	if t.key == "job" || t.key == "is" && slices.Contains(t.values, "over") {
		return true
	}
	return t.key == "state" && slices.ContainsFunc(t.values, func(s string) bool {
		state, ok := spec.ParseJobState(s)
		return ok && state.Terminal()
	})
}

// splitQuoted takes a line apart at its spaces; what is quoted stays whole.
func splitQuoted(text string) []string {
	var out []string
	var part strings.Builder
	quoted := false
	for _, r := range text {
		switch {
		case r == '"':
			quoted = !quoted
		case r == ' ' && !quoted:
			if part.Len() > 0 {
				out = append(out, part.String())
			}
			part.Reset()
		default:
			part.WriteRune(r)
		}
	}
	if part.Len() > 0 {
		out = append(out, part.String())
	}
	return out
}

// QuotedTerm is a value that ParseJobFilter leaves whole.
func QuotedTerm(value string) string {
	if strings.Contains(value, " ") {
		return `"` + value + `"`
	}
	return value
}

// Matches tells whether a job fits.
func (f JobFilter) Matches(job *apiv1.JobInfo, text *JobView) bool {
	for _, term := range f.terms {
		if term.matchesJob(job, text) == term.not {
			return false
		}
	}
	if len(f.words) == 0 {
		return true
	}
	jobSpec := job.GetSpec()
	all := strings.ToLower(
		strings.Join(
			[]string{
				text.ID(JobRow{JobInfo: job, Task: -1}),
				jobSpec.GetName(),
				job.GetUser(),
				jobSpec.GetAccount(),
				job.GetPartition(),
			},
			"\n",
		),
	)
	for _, w := range f.words {
		if !strings.Contains(all, w) {
			return false
		}
	}
	return true
}

func (t filterTerm) matchesJob(job *apiv1.JobInfo, text *JobView) bool {
	is := func(value string) bool { return slices.Contains(t.values, strings.ToLower(value)) }
	switch t.key {
	case "user":
		return is(job.GetUser())
	case "account":
		return is(job.GetSpec().GetAccount())
	case "partition":
		return slices.ContainsFunc(strings.Split(job.GetPartition(), ","), is)
	case "qos":
		return is(QOSOf(job))
	case "reason":
		return spec.JobState(job.GetState()) == spec.Pending && is(job.GetReason().GetCode())
	case "name":
		return slices.ContainsFunc(
			t.values,
			func(v string) bool { return strings.Contains(strings.ToLower(job.GetSpec().GetName()), v) },
		)
	case "job":
		return is(text.ID(JobRow{JobInfo: job, Task: -1}))
	case "node":
		names, err := hostlist.Expand(job.GetNodes())
		return err == nil && slices.ContainsFunc(names, is)
	case "state":
		long, compact := StateNames(job)
		return is(long) || is(compact)
	}
	return slices.ContainsFunc(t.values, func(v string) bool { return isKind(job, v) })
}

// isKind tells whether a job is what "is:" names.
func isKind(job *apiv1.JobInfo, kind string) bool {
	state := spec.JobState(job.GetState())
	switch kind {
	case "held":
		return state == spec.Pending && job.GetHold() != 0
	case "over":
		return state.Terminal()
	case "planned":
		return job.GetPlannedStart() != 0
	case "gpu":
		return GPUs(job) > 0
	case "cpu":
		return GPUs(job) == 0
	}
	return false
}

// GPUs is how many GPUs a job holds, or asks for while it waits.
func GPUs(job *apiv1.JobInfo) int64 {
	tres := job.GetAllocTres()
	if tres == nil || spec.JobState(job.GetState()) == spec.Pending {
		tres = job.GetReqTres()
	}
	return GPUsOf(tres)
}

// GPUsOf is how many GPUs, of whatever type, are in a vector.
func GPUsOf(tres *apiv1.Tres) int64 {
	for _, o := range tres.GetOther() {
		if o.GetName() == "gres/gpu" {
			return o.GetN()
		}
	}
	return 0
}

// Clean is a text from outside on one line: what a screen would obey or not show
// is replaced, so that a name can neither hide a part of itself nor steer a
// terminal.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return '·'
		}
		return r
	}, text)
}

// CleanLine is Clean for a text with others beside it: nothing in it turns the direction of what
// follows.
func CleanLine(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f:
			return '·'
		}
		return r
	}, Clean(text))
}

// ShortSpan is a length of time in few characters: 45s, 12m, 3h20, 2d4h.
func ShortSpan(ns int64) string {
	seconds := max(ns, 0) / tool.Second
	switch {
	case seconds < 60:
		return fmt.Sprintf("%ds", seconds)
	case seconds < 3600:
		return fmt.Sprintf("%dm", seconds/60)
	case seconds < 86400:
		return fmt.Sprintf("%dh%02d", seconds/3600, seconds%3600/60)
	}
	return fmt.Sprintf("%dd%dh", seconds/86400, seconds%86400/3600)
}

// Spent is how long a job has waited, or has run.
func Spent(job *apiv1.JobInfo, now int64) int64 {
	if spec.JobState(job.GetState()) == spec.Pending {
		return now - job.GetSubmit()
	}
	return Elapsed(job, now)
}

// QueueOrder is the order of a queue that nobody has sorted: what waits, the
// highest priority first, then what runs, the newest first, then what is over.
func QueueOrder(a, b *apiv1.JobInfo) int {
	rank := func(job *apiv1.JobInfo) int {
		switch state := spec.JobState(job.GetState()); {
		case state == spec.Pending:
			return 0
		case state.Terminal() && !job.GetCompleting():
			return 2
		}
		return 1
	}
	if order := cmp.Compare(rank(a), rank(b)); order != 0 {
		return order
	}
	if rank(a) == 0 {
		if order := cmp.Compare(b.GetPriority(), a.GetPriority()); order != 0 {
			return order
		}
	}
	return cmp.Or(cmp.Compare(b.GetStart(), a.GetStart()), cmp.Compare(a.GetJobId(), b.GetJobId()))
}

// WhyLine says in one line why a job waits, where it runs, or how it ended: a
// word, what is more to say, and the whole sentence.
func WhyLine(job *apiv1.JobInfo, text *JobView) (word, more, title string) {
	switch state := spec.JobState(job.GetState()); {
	case state == spec.Pending:
		view := WhyView{JobView: *text}
		sentences := view.Because(&apiv1.WhyReply{Job: job, Reason: job.GetReason()})
		title = Clean(strings.Join(sentences, " "))
		more = title
		if at := job.GetPlannedStart(); at > text.Now {
			more = "planned in " + ShortSpan(at-text.Now) + " on " +
				Clean(cmp.Or(job.GetPlannedNodes(), "nodes not chosen yet"))
		}
		return Clean(Reason(job)), more, title
	case state.Terminal() && !job.GetCompleting():
		switch {
		case job.GetExitSignal() != 0:
			more = "signal " + strconv.Itoa(int(job.GetExitSignal()))
		case job.GetExitCode() != 0:
			more = "exit code " + strconv.Itoa(int(job.GetExitCode()))
		}
		if reason := Reason(job); reason != "None" {
			word = Clean(reason)
		}
		return word, more, Clean(job.GetReason().GetDetail())
	}
	return "", Clean(job.GetNodes()), Clean(job.GetNodes())
}
