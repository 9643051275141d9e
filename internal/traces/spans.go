package traces

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// How traces name who tells them.
const (
	Service = "muster"        // service.name of the resource
	Scope   = "muster.ledger" // the instrumentation
)

// Bounds of one trace. What is beyond them is counted in it.
const (
	maxSpans  = 10_000
	maxEvents = 128 // of one span, as the SDKs of OpenTelemetry bound it
)

// Builder turns events of the ledger, in their order, into traces of the jobs that
// ended. It is a function of the events: whoever reads them again gets the same spans
// with the same ids.
type Builder struct {
	jobs  map[string]*Trace // by the job's name: 12, 36_7
	since int64             // jobs that ended before it give no trace
	after uint64            // nor those whose last event is not behind this one
	ready []*Trace          // ended and released, to be taken
}

// NewBuilder makes a Builder that tells of jobs that ended at or after since and whose
// last event comes after an event. It must see the events of these jobs from their
// submission on.
func NewBuilder(since int64, after uint64) *Builder {
	return &Builder{jobs: map[string]*Trace{}, since: since, after: after}
}

// Trace is the trace of one job as far as it is known.
type Trace struct {
	ID   string // 32 hexadecimal digits
	Job  string // its name: 12, 36_7
	Root *Span
	Rest []*Span // all but the root, in the order in which they began
	// Dropped counts spans beyond the bound.
	Dropped int64

	submit   *apiv1.EventInfo
	wait     *Span // while the job is pending
	attempts map[int64]*attempt
	steps    map[string]*Span // by attempt and step, while they run
	ended    int64            // 0 = it has not
}

// Spans are all spans, each behind its parent.
func (t *Trace) Spans() []*Span {
	root := *t.Root
	if t.Dropped > 0 {
		root.Facts = append(slices.Clone(root.Facts), Fact{"muster.dropped_spans", t.Dropped})
	}
	return append([]*Span{&root}, t.Rest...)
}

// attempt is a run, and the nodes that it has still to give back.
type attempt struct {
	run     *Span
	release *Span
	nodes   map[string]bool
}

// Span is a part of a job's life.
type Span struct {
	ID, Parent string // 16 hexadecimal digits; the root has no parent
	Name       string
	Start, End int64 // nanoseconds
	Facts      []Fact
	Events     []Event
	Dropped    int64  // events beyond the bound
	Failed     string // how it failed; empty = it did not
}

// Fact is an attribute.
type Fact struct {
	Key   string
	Value any // string, int64 or bool
}

// Event is something that happened within a span.
type Event struct {
	At    int64
	Name  string
	Facts []Fact
}

// Add takes the next event.
func (t *Builder) Add(event *apiv1.EventInfo) {
	if event.GetJob() == "" {
		return
	}
	switch event.GetKind() {
	case "JobSubmitted":
		name := event.GetJob()
		if textOf(event, "array") != "" {
			name, _, _ = strings.Cut(name, "_")
		}
		t.jobs[name] = newJobTrace(event, event.GetJob())
		return
	case "ArrayTaskSplit":
		array, _, _ := strings.Cut(event.GetJob(), "_")
		if of := t.jobs[array]; of != nil {
			t.jobs[event.GetJob()] = of.task(event)
		}
		if strconv.FormatUint(uint64(event.GetJobId()), 10) == array {
			delete(t.jobs, array) // the last task has taken the array's own record
		}
		return
	case "JobPurged":
		t.forget(event)
		return
	}
	job := t.jobs[event.GetJob()]
	if job == nil {
		array, _, _ := strings.Cut(event.GetJob(), "_")
		job = t.jobs[array]
	}
	if job == nil {
		return
	}
	told := job.over()
	job.add(event)
	if job.over() && (!told || event.GetKind() == "JobEnded") {
		t.tell(job, event)
	}
}

// tell hands a trace out that its last event makes whole.
func (t *Builder) tell(job *Trace, last *apiv1.EventInfo) {
	if job.ended >= t.since && last.GetSeq() > t.after {
		t.ready = append(t.ready, job)
	}
}

// forget drops a job that the controller has forgotten. The trace of one whose nodes never
// said that they gave it back is complete now.
func (t *Builder) forget(event *apiv1.EventInfo) {
	if job := t.jobs[event.GetJob()]; job != nil && job.ended != 0 && !job.over() {
		t.tell(job, event)
	}
	delete(t.jobs, event.GetJob())
}

// Take gives the jobs whose nodes are released since the last call.
func (t *Builder) Take() []*Trace {
	traces := t.ready
	t.ready = nil
	return traces
}

// Rest gives the jobs that ended and whose nodes are not released yet.
func (t *Builder) Rest() []*Trace {
	var traces []*Trace
	for _, job := range t.jobs {
		if job.ended != 0 && !job.over() && job.ended >= t.since {
			traces = append(traces, job)
		}
	}
	slices.SortFunc(traces, func(a, b *Trace) int { return strings.Compare(a.ID, b.ID) })
	return traces
}

func newJobTrace(event *apiv1.EventInfo, name string) *Trace {
	job := &Trace{
		ID:       spec.TraceID(name, spec.Instant(event.GetAt())),
		Job:      name,
		submit:   event,
		attempts: map[int64]*attempt{},
		steps:    map[string]*Span{},
	}
	job.Root = &Span{Name: "job", Start: event.GetAt(), End: event.GetAt()}
	job.Root.ID = job.spanID("job")
	job.Root.Facts = append(
		job.Root.Facts, Fact{"muster.job", name}, Fact{"muster.user", event.GetUser()},
	)
	if event.GetAccount() != "" {
		job.Root.Facts = append(job.Root.Facts, Fact{"muster.account", event.GetAccount()})
	}
	job.Root.Facts = append(job.Root.Facts, factsOf(event)...)
	job.startWait(event, 1)
	return job
}

// task is the trace of an array's task: it was submitted with the array and has waited
// as it did.
func (j *Trace) task(event *apiv1.EventInfo) *Trace {
	task := newJobTrace(j.submit, event.GetJob())
	if j.wait != nil && task.wait != nil {
		task.wait.Events = slices.Clone(j.wait.Events)
	}
	return task
}

// spanID is the same for the same part of the same job.
func (j *Trace) spanID(part string) string {
	sum := sha256.Sum256([]byte(j.ID + "\x00" + part))
	return hex.EncodeToString(sum[:8])
}

// begin opens a span below another.
func (j *Trace) begin(event *apiv1.EventInfo, name, part string, below *Span) *Span {
	s := &Span{
		ID: j.spanID(part), Parent: below.ID, Name: name, Start: event.GetAt(), End: event.GetAt(),
	}
	s.Facts = factsOf(event)
	if len(j.Rest) >= maxSpans-1 {
		j.Dropped++
		return s
	}
	j.Rest = append(j.Rest, s)
	return s
}

// startWait opens the wait before an attempt.
func (j *Trace) startWait(event *apiv1.EventInfo, before int64) {
	j.wait = j.begin(event, "wait", "wait "+strconv.FormatInt(before, 10), j.Root)
	j.wait.happened(event)
}

// happened notes an event in a span.
func (s *Span) happened(event *apiv1.EventInfo) {
	s.note(Event{At: event.GetAt(), Name: event.GetKind(), Facts: factsOf(event)})
}

// note adds an event, as far as there is room.
func (s *Span) note(event Event) {
	s.End = max(s.End, event.At)
	if len(s.Events) >= maxEvents {
		s.Dropped++
		return
	}
	s.Events = append(s.Events, event)
}

// over tells whether the job ended and holds no node.
func (j *Trace) over() bool {
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

func (j *Trace) add(event *apiv1.EventInfo) {
	number := numberOf(event, "attempt")
	of := j.attempts[number]
	if of == nil {
		of = j.current()
	}
	switch event.GetKind() {
	case "JobStarted":
		j.start(event, number)
	case "JobPrepared", "JobReady":
		if of != nil {
			name := map[string]string{"JobPrepared": "prolog", "JobReady": "boot"}[event.GetKind()]
			s := j.begin(event, name, fmt.Sprintf("%s %d", name, number), of.run)
			s.Start = of.run.Start
		}
	case "JobRequeued":
		j.stop(event, of, textOf(event, "state"))
		j.ended = 0
		j.startWait(event, number+1)
	case "JobEnded":
		j.end(event, of, number)
	case "JobNodeDone":
		j.giveBack(event, of)
	case "StepStarted":
		if of != nil {
			key := stepKey(event, number)
			j.steps[key] = j.begin(event, "step", "step "+key, of.run)
		}
	case "StepEnded":
		key := stepKey(event, number)
		if s := j.steps[key]; s != nil {
			s.End = max(s.Start, endOf(event))
			s.Failed = failure(textOf(event, "state"))
			s.Facts = append(s.Facts, Fact{"muster.state", textOf(event, "state")})
			delete(j.steps, key)
		}
	default:
		switch {
		case j.wait != nil:
			j.wait.happened(event)
		case of != nil:
			of.run.happened(event)
		}
	}
	j.Root.End = max(j.Root.End, event.GetAt())
}

// current is the newest attempt.
func (j *Trace) current() *attempt {
	var newest int64
	for n := range j.attempts {
		newest = max(newest, n)
	}
	return j.attempts[newest]
}

// start ends the wait and opens an attempt.
func (j *Trace) start(event *apiv1.EventInfo, number int64) {
	if j.wait != nil {
		j.wait.End = event.GetAt()
		j.wait = nil
	}
	a := &attempt{
		run: j.begin(event, "run", fmt.Sprintf("run %d", number), j.Root), nodes: map[string]bool{},
	}
	a.run.Facts = append(a.run.Facts, Fact{"muster.nodes", strings.Join(event.GetNodes(), ",")})
	for _, node := range event.GetNodes() {
		a.nodes[node] = true
	}
	j.attempts[number] = a
}

// stop ends an attempt, whose nodes are then given back.
func (j *Trace) stop(event *apiv1.EventInfo, a *attempt, state string) {
	if a == nil || a.release != nil {
		return
	}
	a.run.happened(event)
	a.run.End = max(a.run.Start, endOf(event))
	a.run.Failed = failure(state)
	for key, s := range j.steps {
		// No report came of how it ended.
		s.End = max(s.Start, a.run.End)
		delete(j.steps, key)
	}
	number := numberOf(event, "attempt")
	a.release = j.begin(event, "release", fmt.Sprintf("release %d", number), j.Root)
	a.release.Start = a.run.End
	a.release.Facts = nil
}

func (j *Trace) end(event *apiv1.EventInfo, a *attempt, number int64) {
	state := textOf(event, "state")
	if number != 0 {
		j.stop(event, a, state)
	}
	if j.wait != nil {
		j.wait.happened(event)
		j.wait = nil
	}
	j.ended = event.GetAt()
	j.Root.Failed = failure(state)
	j.Root.Facts = slices.DeleteFunc(j.Root.Facts, func(f Fact) bool { return f.Key == "muster.state" })
	j.Root.Facts = append(j.Root.Facts, Fact{"muster.state", state})
}

// giveBack notes that a node holds nothing of an attempt any more.
func (j *Trace) giveBack(event *apiv1.EventInfo, a *attempt) {
	if a == nil {
		return
	}
	for _, node := range event.GetNodes() {
		delete(a.nodes, node)
	}
	into := a.release
	if into == nil {
		into = a.run // a node that the job gave back while it ran
	}
	into.note(Event{
		At:    event.GetAt(),
		Name:  event.GetKind(),
		Facts: append(factsOf(event), Fact{"muster.nodes", strings.Join(event.GetNodes(), ",")}),
	})
}

// stepKey names a step of an attempt.
func stepKey(event *apiv1.EventInfo, attempt int64) string {
	return fmt.Sprintf("%d %s", attempt, fieldWord(event, "step"))
}

// endOf is when something ended by what its node says, or else when that was noted.
func endOf(event *apiv1.EventInfo) int64 {
	for _, field := range event.GetFields() {
		if v, ok := field.GetValue().(*apiv1.EventField_Time); ok && field.GetName() == "ended" {
			return v.Time
		}
	}
	return event.GetAt()
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
func factsOf(event *apiv1.EventInfo) []Fact {
	by := event.GetActorKind()
	if event.GetActor() != "" {
		by += ":" + event.GetActor()
	}
	facts := []Fact{{"muster.event", int64(event.GetSeq())}, {"muster.actor", by}}
	for _, field := range event.GetFields() {
		key := "muster." + field.GetName()
		switch v := field.GetValue().(type) {
		case *apiv1.EventField_Text:
			facts = append(facts, Fact{key, v.Text})
		case *apiv1.EventField_Number:
			facts = append(facts, Fact{key, v.Number})
		case *apiv1.EventField_Time:
			facts = append(facts, Fact{key, time.Unix(0, v.Time).UTC().Format(time.RFC3339Nano)})
		case *apiv1.EventField_Span:
			facts = append(facts, Fact{key + "_ns", v.Span})
		case *apiv1.EventField_Yes:
			facts = append(facts, Fact{key, v.Yes})
		}
	}
	return facts
}

func textOf(event *apiv1.EventInfo, name string) string {
	for _, field := range event.GetFields() {
		if field.GetName() == name {
			return field.GetText()
		}
	}
	return ""
}

func numberOf(event *apiv1.EventInfo, name string) int64 {
	for _, field := range event.GetFields() {
		if field.GetName() == name {
			return field.GetNumber()
		}
	}
	return 0
}

// fieldWord is a field that is a text or a number.
func fieldWord(event *apiv1.EventInfo, name string) string {
	if text := textOf(event, name); text != "" {
		return text
	}
	return strconv.FormatInt(numberOf(event, name), 10)
}
