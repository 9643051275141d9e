package plan

import (
	"maps"
	"slices"

	"github.com/musterhpc/muster/spec"
)

// Wish is what the controller wants of one run on this node.
type Wish struct {
	Key   RunKey
	Stop  bool      // end it; else it shall run
	Begun bool      // the controller has heard that it started here
	Grace spec.Span // for Stop
	Note  string    // for Stop: one line for the job's output
}

// Input is what the agent knows at one moment.
type Input struct {
	Now    spec.Instant
	Stream uint64 // number of the connection to the controller; a new one hears every report again
	Wishes []Wish // at most one for each key
	// Complete says that Wishes holds every run that the controller knows here.
	Complete bool
	Observed []Observed // the shepherd's list
	// Unknown are the attempts, by their batch step, that the controller's ledger
	// has never heard of: it has lost history. They are nobody's to kill unasked.
	Unknown map[RunKey]bool
	// Up says that Observed is a real answer; without it nothing is concluded
	// from a run's absence.
	Up bool
}

// Policy is the site's choice about processes that nobody asked for.
type Policy struct {
	KillOrphans bool
	OrphanAfter spec.Span // how long a run must stay unasked for before it is killed
	OrphanGrace spec.Span // between SIGTERM and SIGKILL then
}

// policyAgainst is the policy towards a run of an attempt that is over for certain where
// a later one of the same job is desired: it is killed at once, before that
// begins.
func (p Policy) policyAgainst(outlived bool) Policy {
	if outlived {
		p.OrphanAfter, p.OrphanGrace = 0, 0
	}
	return p
}

// ActionKind is what to do.
type ActionKind uint8

// The kinds of actions, in the order in which Step gives them: news first,
// then ends, then beginnings, so that resources are freed before they are used.
const (
	DoAck         ActionKind = iota + 1 // shepherd: forget this exit
	ReportStarted                       // controller: it runs, since Observed.Start
	ReportExit                          // controller: it ended
	ReportMissing                       // controller: no such run is here, and none will be started
	ReportOrphan                        // controller: this runs here, and you do not know it
	DoTerminate                         // shepherd: end it
	DoLaunch                            // shepherd: start it
)

// Action is one thing to do. Observed and Exit are set for reports of them.
type Action struct {
	Kind     ActionKind
	Key      RunKey
	Observed Observed
	Exit     *Exit
	Grace    spec.Span
	Note     string
}

// Memory is what the agent remembers between steps. It may be lost with the
// agent: the shepherd's list then stands in for it. The zero value is ready.
type Memory struct {
	stream    uint64
	accepted  map[RunKey]bool // the shepherd has taken the launch
	sent      map[RunKey]ActionKind
	confirmed map[RunKey]bool // the controller has the exit
	missing   map[RunKey]bool // reported as missing: never to be launched here
	orphans   map[RunKey]spec.Instant
}

func (m *Memory) init() {
	if m.sent == nil {
		m.accepted = map[RunKey]bool{}
		m.confirmed = map[RunKey]bool{}
		m.missing = map[RunKey]bool{}
		m.sent, m.orphans = map[RunKey]ActionKind{}, map[RunKey]spec.Instant{}
	}
}

// Launched notes the shepherd's answer to a launch. A refused one is asked
// again by a later step; one without an answer too, which the shepherd bears.
func (m *Memory) Launched(r LaunchResult) {
	m.init()
	switch r.Status {
	case Accepted, Known:
		m.accepted[r.Key] = true
	case Ended:
		// It ran, and its exit was confirmed once: the wish is stale.
		m.accepted[r.Key] = true
		m.missing[r.Key] = true
	case Refused:
	}
}

// Confirmed notes that the controller has recorded an exit.
func (m *Memory) Confirmed(k RunKey) {
	m.init()
	m.confirmed[k] = true
}

// Step compares wishes and reality and gives the actions, in the order in
// which to carry them out. Carrying one out twice, or not at all, does no
// harm: the next step sees what is.
func (m *Memory) Step(in Input, p Policy) []Action {
	m.init()
	if in.Stream != m.stream {
		m.stream = in.Stream
		clear(m.sent)
	}
	if !in.Up {
		return nil
	}
	wishes, attempts := make(map[RunKey]*Wish, len(in.Wishes)), make(map[uint64]uint32, len(in.Wishes))
	for i := range in.Wishes {
		k := in.Wishes[i].Key
		wishes[k], attempts[k.Job] = &in.Wishes[i], max(attempts[k.Job], k.Attempt)
	}
	observed := make(map[RunKey]*Observed, len(in.Observed))
	for i := range in.Observed {
		observed[in.Observed[i].Key] = &in.Observed[i]
	}
	var out []Action
	for i := range in.Observed {
		o := &in.Observed[i]
		out = append(out, m.decidePresent(o, wishes[o.Key], in, p.policyAgainst(o.Key.Attempt < attempts[o.Key.Job]))...)
	}
	for i := range in.Wishes {
		if w := &in.Wishes[i]; observed[w.Key] == nil {
			out = append(out, m.decideAbsent(w)...)
		}
	}
	m.forgetKeys(in, wishes, observed)
	slices.SortStableFunc(out, func(a, b Action) int {
		if a.Kind != b.Kind {
			return int(a.Kind) - int(b.Kind)
		}
		return a.Key.Compare(b.Key)
	})
	return out
}

// decidePresent decides about a run that the shepherd has.
func (m *Memory) decidePresent(o *Observed, w *Wish, in Input, p Policy) []Action {
	if o.State == Exited {
		if m.confirmed[o.Key] {
			return []Action{{Kind: DoAck, Key: o.Key}}
		}
		return m.reportOnce(Action{Kind: ReportExit, Key: o.Key, Exit: o.Exit})
	}
	if w == nil {
		return m.decideOrphan(o, in, p)
	}
	delete(m.orphans, o.Key)
	var out []Action
	if o.State != Starting {
		out = m.reportOnce(Action{Kind: ReportStarted, Key: o.Key, Observed: *o})
	}
	if w.Stop && needsTerm(o, in.Now.Add(w.Grace)) {
		out = append(out, Action{Kind: DoTerminate, Key: o.Key, Grace: w.Grace, Note: w.Note})
	}
	return out
}

// needsTerm tells that no SIGKILL is due by the deadline. It is asked of the
// shepherd, not of our memory, because a new shepherd has no timers.
func needsTerm(o *Observed, deadline spec.Instant) bool {
	return o.KillSent == 0 && (o.TermUntil == 0 || o.TermUntil > deadline)
}

// decideOrphan decides about a living run that is not desired. An incomplete list
// of wishes proves nothing.
func (m *Memory) decideOrphan(o *Observed, in Input, p Policy) []Action {
	if !in.Complete {
		return nil
	}
	since, known := m.orphans[o.Key]
	if !known {
		since = in.Now
		m.orphans[o.Key] = since
	}
	out := m.reportOnce(Action{Kind: ReportOrphan, Key: o.Key, Observed: *o})
	if p.KillOrphans && !in.Unknown[o.Key.StepOf(StepBatch)] && in.Now.Sub(since) >= p.OrphanAfter && needsTerm(o, in.Now.Add(p.OrphanGrace)) {
		out = append(out, Action{Kind: DoTerminate, Key: o.Key, Grace: p.OrphanGrace})
	}
	return out
}

// decideAbsent decides about a wish for a run that the shepherd does not have. It is
// launched only if it can never have begun.
func (m *Memory) decideAbsent(w *Wish) []Action {
	switch {
	case m.confirmed[w.Key]:
		return nil // ended, and the wish is older than that
	case w.Stop || w.Begun || m.missing[w.Key] || m.accepted[w.Key]:
		m.missing[w.Key] = true
		return m.reportOnce(Action{Kind: ReportMissing, Key: w.Key})
	}
	return []Action{{Kind: DoLaunch, Key: w.Key}}
}

// reportOnce gives a report once for each connection to the controller.
func (m *Memory) reportOnce(a Action) []Action {
	if m.sent[a.Key] == a.Kind {
		return nil
	}
	m.sent[a.Key] = a.Kind
	return []Action{a}
}

// forgetKeys drops what no longer matters: keys that neither side names.
func (m *Memory) forgetKeys(in Input, wishes map[RunKey]*Wish, observed map[RunKey]*Observed) {
	if !in.Complete {
		return
	}
	idle := func(k RunKey) bool { return wishes[k] == nil && observed[k] == nil }
	for _, set := range []map[RunKey]bool{m.accepted, m.confirmed, m.missing} {
		maps.DeleteFunc(set, func(k RunKey, _ bool) bool { return idle(k) })
	}
	maps.DeleteFunc(m.sent, func(k RunKey, _ ActionKind) bool { return idle(k) })
	maps.DeleteFunc(m.orphans, func(k RunKey, _ spec.Instant) bool { return observed[k] == nil })
}
