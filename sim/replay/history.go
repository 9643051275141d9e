package replay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/policy"
	"github.com/musterhpc/muster/spec"
)

// History turns a site's own ledger into a workload: what became eligible in a
// span of time, with the request, the user and the run time that it had. A job
// is submitted when it became eligible in fact, so that holds and begin times
// do not count as waiting. One that depends on others of the span is submitted
// when it was, or its hold or begin time was over, and becomes eligible when
// those have done what it waits for in the replay; where it depends on others,
// or on a whole array, when it did in fact. Each task of an array is a job of
// its own; of a job that ran several times the last run counts. What never ran
// is left out: how long it would have run nobody knows.
type History struct {
	from, to spec.Instant
	st       *state.State
	jobs     map[spec.JobUID]*past
	order    []spec.JobUID
	config   *spec.Config // as it was when the span began, or came first in it
	policy   *state.Policy
}

// past is one job of the history.
type past struct {
	spec     *spec.JobSpec
	eligible spec.Instant
	free     spec.Instant // when it was submitted, or its hold or begin time was over
	started  spec.Instant
	run      spec.Span
	ran      bool
	failed   bool
}

// NewHistory begins a history of [from, to). A ledger that was shortened
// begins with a snapshot of the state; nil is the empty one.
func NewHistory(from, to spec.Instant, cluster *state.State) *History {
	if cluster == nil {
		cluster = state.New()
	}
	history := &History{from: from, to: to, st: cluster, jobs: map[spec.JobUID]*past{}}
	cluster.Jobs.Range(func(_ uint64, job *state.Job) bool {
		history.enterJob(job)
		return true
	})
	return history
}

// Seq is the last event that the history knows.
func (h *History) Seq() uint64 { return h.st.Seq }

func (h *History) enterJob(job *state.Job) *past {
	p := h.jobs[job.UID]
	if p == nil {
		p = &past{spec: job.Spec, free: max(job.Submitted, job.Begin)}
		h.jobs[job.UID] = p
		h.order = append(h.order, job.UID)
	}
	if p.started == 0 {
		p.eligible, p.spec = job.Eligible, job.Spec
	}
	if job.Started != 0 && job.Started != p.started {
		p.started = job.Started
	}
	return p
}

// Add folds an event.
func (h *History) Add(envelope *event.Envelope) error {
	if envelope.At >= h.from && h.config == nil && len(h.st.Config.Nodes) > 0 {
		h.config, h.policy = h.st.Config, h.st.Policy
	}
	before := (*state.Job)(nil)
	if e, ok := envelope.Event.(*event.JobEnded); ok {
		before = h.st.Job(e.UID)
	}
	if err := h.st.Apply(envelope); err != nil {
		return err
	}
	switch e := envelope.Event.(type) {
	case *event.JobSubmitted:
		h.enterJob(h.st.Job(e.UID))
	case *event.JobReleased:
		p := h.enterJob(h.st.Job(e.UID))
		p.free = max(p.free, envelope.At)
	case *event.JobEligible:
		h.enterJob(h.st.Job(e.UID))
	case *event.ArrayTaskSplit:
		h.enterJob(h.st.Job(e.UID))
	case *event.JobStarted:
		job := h.st.Job(e.UID)
		p := h.enterJob(job)
		p.started = envelope.At
		if p.eligible == 0 || p.eligible > envelope.At {
			p.eligible = envelope.At
		}
	case *event.JobEnded:
		if p := h.jobs[e.UID]; p != nil && before != nil && before.State.Active() {
			p.run = envelope.At.Sub(p.started)
			p.ran = true
			p.failed = !h.st.Job(e.UID).Exit.OK()
		}
	}
	return nil
}

// ErrNoHistory tells that nothing of a span can be replayed.
var ErrNoHistory = errors.New("no job became eligible and ran to its end in that time")

// Workload makes what can be replayed, under the configuration and the policy
// that were in force when the span began. Left out are the jobs that did not
// run to their end.
func (h *History) Workload() (workload *Workload, leftOut int, err error) {
	if h.config == nil {
		h.config, h.policy = h.st.Config, h.st.Policy
	}
	workload = &Workload{Config: openConfig(h.config), Policy: puts(h.policy)}
	at := map[spec.JobUID]int{} // in w.Jobs
	for _, uid := range h.order {
		p := h.jobs[uid]
		if p.eligible < h.from || p.eligible >= h.to || p.eligible == 0 {
			continue
		}
		if !p.ran {
			leftOut++
			continue
		}
		jobSpec := *p.spec
		jobSpec.Queue.Array = nil
		jobSpec.Queue.Hold = spec.NotHeld
		jobSpec.Time.Begin = 0
		jobSpec.Time.Deadline = 0
		job := Job{Spec: &jobSpec, Submit: p.eligible, Run: p.run, Failed: p.failed}
		if !h.linkJob(workload, &job, p, at) {
			jobSpec.Queue.Dependency = nil
		}
		at[uid] = len(workload.Jobs)
		workload.Jobs = append(workload.Jobs, job)
	}
	if len(workload.Jobs) == 0 {
		return nil, leftOut, ErrNoHistory
	}
	workload.sortJobs()
	return workload, leftOut, nil
}

// linkJob lets a job depend on others of the workload as it did in fact; false if
// it depends on none of them, or also on something else.
func (h *History) linkJob(workload *Workload, job *Job, p *past, at map[spec.JobUID]int) bool {
	dependency := p.spec.Queue.Dependency
	if dependency == nil || p.free == 0 {
		return false
	}
	after, submit := make([]int, len(dependency.Terms)), max(p.free, h.from)
	for k, term := range dependency.Terms {
		after[k] = -1
		if term.Kind == spec.Singleton {
			continue
		}
		i, ok := at[term.UID]
		if on := h.jobs[term.UID]; !ok || term.Task != spec.NoTask || term.Kind == spec.AfterCorr ||
			on.spec.Queue.Array != nil {
			return false
		}
		after[k], submit = i, max(submit, workload.Jobs[i].Submit)
	}
	job.After, job.Submit = after, min(submit, job.Submit)
	return true
}

// sortJobs puts the jobs in order of submission; none comes before those that it
// depends on.
func (w *Workload) sortJobs() {
	order := make([]int, len(w.Jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(
		order,
		func(a, b int) int { return cmp.Compare(w.Jobs[a].Submit, w.Jobs[b].Submit) },
	)
	place, jobs := make([]int, len(order)), make([]Job, len(order))
	for to, from := range order {
		place[from], jobs[to] = to, w.Jobs[from]
	}
	for i := range jobs {
		for k, on := range jobs[i].After {
			if on >= 0 {
				jobs[i].After[k] = place[on]
			}
		}
	}
	w.Jobs = jobs
}

// With is the same workload under another configuration, and with changes of
// QOS.
func (w *Workload) With(config *spec.Config, changes []policy.Change) (*Workload, error) {
	workload := *w
	if config != nil {
		workload.Config = openConfig(config)
	}
	if len(changes) == 0 {
		return &workload, nil
	}
	e := &engine{
		w:    &workload,
		st:   state.New(),
		of:   map[spec.JobUID]int{},
		live: map[spec.JobUID]uint64{},
		res:  &Result{},
	}
	if err := e.foundCluster(); err != nil {
		return nil, err
	}
	workload.Policy = slices.Clone(workload.Policy)
	for _, change := range changes {
		events, _, err := policy.Plan(e.st.Freeze(), change)
		if err != nil {
			return nil, err
		}
		for _, ev := range events {
			if err := e.foldEvent(ev); err != nil {
				return nil, fmt.Errorf("%T: %w", ev, err)
			}
		}
		workload.Policy = append(workload.Policy, events...)
	}
	return &workload, nil
}

// AddNodes gives the same with more nodes like one that there is, in its partitions,
// whatever MaxNodeCount says. They are called new1, new2 and so on.
func (w *Workload) AddNodes(count int, like string) (*Workload, error) {
	at := slices.IndexFunc(w.Config.Nodes, func(n spec.NodeSpec) bool { return n.Name == like })
	if at < 0 {
		return nil, fmt.Errorf("there is no node %s in the configuration of the replay", like)
	}
	config := *w.Config
	config.Nodes = slices.Clone(config.Nodes)
	config.Partitions = slices.Clone(config.Partitions)
	known := map[string]bool{}
	for i := range config.Nodes {
		known[config.Nodes[i].Name] = true
	}
	var names []string
	for number := 1; len(names) < count; number++ {
		node := config.Nodes[at]
		node.Name = fmt.Sprintf("new%d", number)
		if known[node.Name] {
			continue
		}
		config.Nodes = append(config.Nodes, node)
		names = append(names, node.Name)
	}
	for i := range config.Partitions {
		partition := &config.Partitions[i]
		if slices.Contains(partition.NodeNames, like) {
			partition.NodeNames = append(slices.Clone(partition.NodeNames), names...)
		}
	}
	workload := *w
	workload.Config = &config
	return &workload, nil
}

// openConfig is a configuration without what would keep a whole history from being
// submitted, or its jobs from being forgotten once they have ended.
func openConfig(config *spec.Config) *spec.Config {
	out := *config
	out.Limits.MaxJobCount, out.Limits.MaxJobID = 1<<30, 1<<30
	if out.Timing.MinJobAge == 0 {
		out.Timing.MinJobAge = spec.Second
	}
	return &out
}

// puts is a policy as the events that make it.
func puts(p *state.Policy) []event.Event {
	var events []event.Event
	for i := range p.QOS {
		events = append(events, &event.QOSPut{QOS: p.QOS[i]})
	}
	for i := range p.Accounts {
		events = append(events, &event.AccountPut{Account: p.Accounts[i]})
	}
	for i := range p.Users {
		events = append(events, &event.UserPut{User: p.Users[i]})
	}
	for i := range p.WCKeys {
		events = append(events, &event.WCKeyPut{Key: p.WCKeys[i]})
	}
	for i := range p.Resources {
		events = append(events, &event.ResourcePut{Resource: p.Resources[i]})
	}
	done := map[uint32]bool{}
	for range p.Assocs { // parents before children
		for i := range p.Assocs {
			if association := &p.Assocs[i]; !done[association.ID] &&
				(association.Parent == 0 || done[association.Parent] ||
					p.Assoc(association.Parent) == nil) {
				done[association.ID] = true
				events = append(events, &event.AssociationPut{Association: *association})
			}
		}
		if len(done) == len(p.Assocs) {
			break
		}
	}
	return events
}
