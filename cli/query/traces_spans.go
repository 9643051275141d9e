package query

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// jobTraces turns events of the ledger into traces, one of each job that ended. It is
// a function of the events: whoever reads them again gets the same spans with the
// same ids, so a collector that is told twice holds them once.
type jobTraces struct {
	jobs  map[string]*jobTrace // by the job's name: 12, 36_7
	since int64                // jobs that ended before it are not told of
	ready []*jobTrace          // ended and released, to be taken
}

// jobTrace is the trace of one job as far as it is known.
type jobTrace struct {
	id       string // of the trace
	submit   *apiv1.EventInfo
	root     *span
	spans    []*span // all but the root, in the order in which they began
	wait     *span   // while the job is pending
	attempts map[int64]*attemptTrace
	steps    map[string]*span // by attempt and step, while they run
	ended    int64            // 0 = it has not
}

// attemptTrace is a run, and the nodes that it has still to give back.
type attemptTrace struct {
	run     *span
	release *span
	nodes   map[string]bool
}

// span is a part of a job's life.
type span struct {
	id, parent string
	name       string
	start, end int64
	facts      []spanFact
	events     []spanEvent
	failed     string // how it failed; empty = it did not
}

// spanFact is an attribute.
type spanFact struct {
	key   string
	value any // string, int64 or bool
}

// spanEvent is something that happened within a span.
type spanEvent struct {
	at    int64
	name  string
	facts []spanFact
}

func newJobTraces(since int64) *jobTraces {
	return &jobTraces{jobs: map[string]*jobTrace{}, since: since}
}

// add takes the next event.
func (t *jobTraces) add(e *apiv1.EventInfo) {
	if e.GetJob() == "" {
		return
	}
	switch e.GetKind() {
	case "JobSubmitted":
		name := e.GetJob()
		if textOf(e, "array") != "" {
			name, _, _ = strings.Cut(name, "_")
		}
		t.jobs[name] = newJobTrace(e, e.GetJob())
		return
	case "ArrayTaskSplit":
		array, _, _ := strings.Cut(e.GetJob(), "_")
		if of := t.jobs[array]; of != nil {
			t.jobs[e.GetJob()] = of.task(e)
		}
		return
	case "JobPurged":
		delete(t.jobs, e.GetJob())
		return
	}
	job := t.jobs[e.GetJob()]
	if job == nil {
		array, _, _ := strings.Cut(e.GetJob(), "_")
		job = t.jobs[array]
	}
	if job == nil {
		return
	}
	told := job.over()
	job.add(e)
	if job.over() && (!told || e.GetKind() == "JobEnded") && job.ended >= t.since {
		t.ready = append(t.ready, job)
	}
}

// take gives the jobs whose nodes are released since the last call.
func (t *jobTraces) take() []*jobTrace {
	out := t.ready
	t.ready = nil
	return out
}

// rest gives the jobs that ended and whose nodes are not released yet.
func (t *jobTraces) rest() []*jobTrace {
	var out []*jobTrace
	for _, job := range t.jobs {
		if job.ended != 0 && !job.over() && job.ended >= t.since {
			out = append(out, job)
		}
	}
	slices.SortFunc(out, func(a, b *jobTrace) int { return strings.Compare(a.id, b.id) })
	return out
}

func newJobTrace(e *apiv1.EventInfo, name string) *jobTrace {
	job := &jobTrace{submit: e, attempts: map[int64]*attemptTrace{}, steps: map[string]*span{}}
	sum := sha256.New()
	sum.Write([]byte("muster job " + name + "\x00"))
	for _, n := range []uint64{e.GetSeq(), uint64(e.GetAt())} {
		sum.Write(binary.BigEndian.AppendUint64(nil, n))
	}
	job.id = hex.EncodeToString(sum.Sum(nil)[:16])
	job.root = &span{name: "job", start: e.GetAt(), end: e.GetAt()}
	job.root.id = job.spanID("job")
	job.root.facts = append(job.root.facts, spanFact{"muster.job", name}, spanFact{"muster.user", e.GetUser()})
	if e.GetAccount() != "" {
		job.root.facts = append(job.root.facts, spanFact{"muster.account", e.GetAccount()})
	}
	job.root.facts = append(job.root.facts, factsOf(e)...)
	job.startWait(e, 1)
	return job
}

// task is the trace of an array's task: it was submitted with the array and has waited
// as it did.
func (j *jobTrace) task(e *apiv1.EventInfo) *jobTrace {
	task := newJobTrace(j.submit, e.GetJob())
	if j.wait != nil && task.wait != nil {
		task.wait.events = slices.Clone(j.wait.events)
	}
	return task
}

// spanID is the same for the same part of the same job.
func (j *jobTrace) spanID(part string) string {
	sum := sha256.Sum256([]byte(j.id + "\x00" + part))
	return hex.EncodeToString(sum[:8])
}

// begin opens a span below another.
func (j *jobTrace) begin(e *apiv1.EventInfo, name, part string, below *span) *span {
	s := &span{id: j.spanID(part), parent: below.id, name: name, start: e.GetAt(), end: e.GetAt()}
	s.facts = factsOf(e)
	j.spans = append(j.spans, s)
	return s
}

// startWait opens the wait before an attempt.
func (j *jobTrace) startWait(e *apiv1.EventInfo, before int64) {
	j.wait = j.begin(e, "wait", "wait "+strconv.FormatInt(before, 10), j.root)
	j.wait.happened(e)
}

// happened notes an event in a span.
func (s *span) happened(e *apiv1.EventInfo) {
	s.events = append(s.events, spanEvent{at: e.GetAt(), name: e.GetKind(), facts: factsOf(e)})
	s.end = max(s.end, e.GetAt())
}

// over tells whether the job ended and holds no node.
func (j *jobTrace) over() bool {
	if j.ended == 0 {
		return false
	}
	for _, a := range j.attempts {
		if len(a.nodes) > 0 {
			return false
		}
	}
	return true
}

func (j *jobTrace) add(e *apiv1.EventInfo) {
	attempt := numberOf(e, "attempt")
	of := j.attempts[attempt]
	if of == nil {
		of = j.current()
	}
	switch e.GetKind() {
	case "JobStarted":
		j.start(e, attempt)
	case "JobPrepared", "JobReady":
		if of != nil {
			name := map[string]string{"JobPrepared": "prolog", "JobReady": "boot"}[e.GetKind()]
			s := j.begin(e, name, fmt.Sprintf("%s %d", name, attempt), of.run)
			s.start = of.run.start
		}
	case "JobRequeued":
		j.stop(e, of, textOf(e, "state"))
		j.ended = 0
		j.startWait(e, attempt+1)
	case "JobEnded":
		j.end(e, of, attempt)
	case "JobNodeDone":
		j.giveBack(e, of)
	case "StepStarted":
		if of != nil {
			key := stepKey(e, attempt)
			j.steps[key] = j.begin(e, "step", "step "+key, of.run)
		}
	case "StepEnded":
		key := stepKey(e, attempt)
		if s := j.steps[key]; s != nil {
			s.end = max(s.start, endOf(e))
			s.failed = failure(textOf(e, "state"))
			s.facts = append(s.facts, spanFact{"muster.state", textOf(e, "state")})
			delete(j.steps, key)
		}
	default:
		switch {
		case j.wait != nil:
			j.wait.happened(e)
		case of != nil:
			of.run.happened(e)
		}
	}
	j.root.end = max(j.root.end, e.GetAt())
}

// current is the newest attempt.
func (j *jobTrace) current() *attemptTrace {
	var newest int64
	for n := range j.attempts {
		newest = max(newest, n)
	}
	return j.attempts[newest]
}

// start ends the wait and opens an attempt.
func (j *jobTrace) start(e *apiv1.EventInfo, attempt int64) {
	if j.wait != nil {
		j.wait.end = e.GetAt()
		j.wait = nil
	}
	a := &attemptTrace{run: j.begin(e, "run", fmt.Sprintf("run %d", attempt), j.root), nodes: map[string]bool{}}
	a.run.facts = append(a.run.facts, spanFact{"muster.nodes", strings.Join(e.GetNodes(), ",")})
	for _, node := range e.GetNodes() {
		a.nodes[node] = true
	}
	j.attempts[attempt] = a
}

// stop ends an attempt, whose nodes are then given back.
func (j *jobTrace) stop(e *apiv1.EventInfo, a *attemptTrace, state string) {
	if a == nil || a.release != nil {
		return
	}
	a.run.happened(e)
	a.run.end = max(a.run.start, endOf(e))
	a.run.failed = failure(state)
	for key, s := range j.steps {
		// No report came of how it ended.
		s.end = max(s.start, a.run.end)
		delete(j.steps, key)
	}
	number := numberOf(e, "attempt")
	a.release = j.begin(e, "release", fmt.Sprintf("release %d", number), j.root)
	a.release.start = a.run.end
	a.release.facts = nil
}

func (j *jobTrace) end(e *apiv1.EventInfo, a *attemptTrace, attempt int64) {
	state := textOf(e, "state")
	if attempt != 0 {
		j.stop(e, a, state)
	}
	if j.wait != nil {
		j.wait.happened(e)
		j.wait = nil
	}
	j.ended = e.GetAt()
	j.root.failed = failure(state)
	j.root.facts = slices.DeleteFunc(j.root.facts, func(f spanFact) bool { return f.key == "muster.state" })
	j.root.facts = append(j.root.facts, spanFact{"muster.state", state})
}

// giveBack notes that a node holds nothing of an attempt any more.
func (j *jobTrace) giveBack(e *apiv1.EventInfo, a *attemptTrace) {
	if a == nil {
		return
	}
	for _, node := range e.GetNodes() {
		delete(a.nodes, node)
	}
	into := a.release
	if into == nil {
		into = a.run // a node that the job gave back while it ran
	}
	into.events = append(into.events, spanEvent{
		at:    e.GetAt(),
		name:  e.GetKind(),
		facts: append(factsOf(e), spanFact{"muster.nodes", strings.Join(e.GetNodes(), ",")}),
	})
	into.end = max(into.end, e.GetAt())
}

func stepKey(e *apiv1.EventInfo, attempt int64) string {
	return fmt.Sprintf("%d %s", attempt, fieldWord(e, "step"))
}

// endOf is when something ended by what its node says, or else when that was noted.
func endOf(e *apiv1.EventInfo) int64 {
	for _, f := range e.GetFields() {
		if v, ok := f.GetValue().(*apiv1.EventField_Time); ok && f.GetName() == "ended" {
			return v.Time
		}
	}
	return e.GetAt()
}

// failure is the state if it is an error; being cancelled or preempted is none.
func failure(state string) string {
	switch state {
	case "", "COMPLETED", "CANCELLED", "PREEMPTED":
		return ""
	}
	return state
}

// factsOf are the attributes of an event: its number, who caused it and what it says.
func factsOf(e *apiv1.EventInfo) []spanFact {
	by := e.GetActorKind()
	if e.GetActor() != "" {
		by += ":" + e.GetActor()
	}
	out := []spanFact{{"muster.event", int64(e.GetSeq())}, {"muster.actor", by}}
	for _, f := range e.GetFields() {
		key := "muster." + f.GetName()
		switch v := f.GetValue().(type) {
		case *apiv1.EventField_Text:
			out = append(out, spanFact{key, v.Text})
		case *apiv1.EventField_Number:
			out = append(out, spanFact{key, v.Number})
		case *apiv1.EventField_Time:
			out = append(out, spanFact{key, eventTime(v.Time)})
		case *apiv1.EventField_Span:
			out = append(out, spanFact{key + "_ns", v.Span})
		case *apiv1.EventField_Yes:
			out = append(out, spanFact{key, v.Yes})
		}
	}
	return out
}

func textOf(e *apiv1.EventInfo, name string) string {
	for _, f := range e.GetFields() {
		if f.GetName() == name {
			return f.GetText()
		}
	}
	return ""
}

func numberOf(e *apiv1.EventInfo, name string) int64 {
	for _, f := range e.GetFields() {
		if f.GetName() == name {
			return f.GetNumber()
		}
	}
	return 0
}

// fieldWord is a field that is a text or a number.
func fieldWord(e *apiv1.EventInfo, name string) string {
	if text := textOf(e, name); text != "" {
		return text
	}
	return strconv.FormatInt(numberOf(e, name), 10)
}
