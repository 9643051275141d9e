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
func (m *Memory) Launched(result LaunchResult) {
	m.init()
	switch result.Status {
	case Accepted, Known:
		m.accepted[result.Key] = true
	case Ended:
		// It ran, and its exit was confirmed once: the wish is stale.
		m.accepted[result.Key] = true
		m.missing[result.Key] = true
	case Refused:
	}
}

// Confirmed notes that the controller has recorded an exit.
func (m *Memory) Confirmed(key RunKey) {
	m.init()
	m.confirmed[key] = true
}

// Step compares wishes and reality and gives the actions, in the order in
// which to carry them out. Carrying one out twice, or not at all, does no
// harm: the next step sees what is.
func (m *Memory) Step(input Input, policy Policy) []Action {
	m.init()
	if input.Stream != m.stream {
		m.stream = input.Stream
		clear(m.sent)
	}
	if !input.Up {
		return nil
	}
	wishes, attempts := make(
		map[RunKey]*Wish,
		len(input.Wishes),
	), make(
		map[uint64]uint32,
		len(input.Wishes),
	)
	for i := range input.Wishes {
		key := input.Wishes[i].Key
		wishes[key], attempts[key.Job] = &input.Wishes[i], max(attempts[key.Job], key.Attempt)
	}
	observed := make(map[RunKey]*Observed, len(input.Observed))
	for i := range input.Observed {
		observed[input.Observed[i].Key] = &input.Observed[i]
	}
	var actions []Action
	for i := range input.Observed {
		o := &input.Observed[i]
		actions = append(
			actions,
			m.decidePresent(
				o,
				wishes[o.Key],
				input,
				policy.policyAgainst(o.Key.Attempt < attempts[o.Key.Job]),
			)...)
	}
	for i := range input.Wishes {
		if wish := &input.Wishes[i]; observed[wish.Key] == nil {
			actions = append(actions, m.decideAbsent(wish)...)
		}
	}
	m.forgetKeys(input, wishes, observed)
	slices.SortStableFunc(actions, func(action, b Action) int {
		if action.Kind != b.Kind {
			return int(action.Kind) - int(b.Kind)
		}
		return action.Key.Compare(b.Key)
	})
	return actions
}

// decidePresent decides about a run that the shepherd has.
func (m *Memory) decidePresent(
	observed *Observed,
	wish *Wish,
	input Input,
	policy Policy,
) []Action {
	if observed.State == Exited {
		if m.confirmed[observed.Key] {
			return []Action{{Kind: DoAck, Key: observed.Key}}
		}
		return m.reportOnce(Action{Kind: ReportExit, Key: observed.Key, Exit: observed.Exit})
	}
	if wish == nil {
		return m.decideOrphan(observed, input, policy)
	}
	delete(m.orphans, observed.Key)
	var actions []Action
	if observed.State != Starting {
		actions = m.reportOnce(Action{Kind: ReportStarted, Key: observed.Key, Observed: *observed})
	}
	if wish.Stop && needsTerm(observed, input.Now.Add(wish.Grace)) {
		actions = append(
			actions,
			Action{Kind: DoTerminate, Key: observed.Key, Grace: wish.Grace, Note: wish.Note},
		)
	}
	return actions
}

// needsTerm tells that no SIGKILL is due by the deadline. It is asked of the
// shepherd, not of our memory, because a new shepherd has no timers.
func needsTerm(observed *Observed, deadline spec.Instant) bool {
	return observed.KillSent == 0 && (observed.TermUntil == 0 || observed.TermUntil > deadline)
}

// decideOrphan decides about a living run that is not desired. An incomplete list
// of wishes proves nothing.
func (m *Memory) decideOrphan(observed *Observed, input Input, policy Policy) []Action {
	if !input.Complete {
		return nil
	}
	since, known := m.orphans[observed.Key]
	if !known {
		since = input.Now
		m.orphans[observed.Key] = since
	}
	actions := m.reportOnce(Action{Kind: ReportOrphan, Key: observed.Key, Observed: *observed})
	if policy.KillOrphans && !input.Unknown[observed.Key.StepOf(StepBatch)] &&
		input.Now.Sub(since) >= policy.OrphanAfter &&
		needsTerm(observed, input.Now.Add(policy.OrphanGrace)) {
		actions = append(
			actions, Action{Kind: DoTerminate, Key: observed.Key, Grace: policy.OrphanGrace},
		)
	}
	return actions
}

// decideAbsent decides about a wish for a run that the shepherd does not have. It is
// launched only if it can never have begun.
func (m *Memory) decideAbsent(wish *Wish) []Action {
	switch {
	case m.confirmed[wish.Key]:
		return nil // ended, and the wish is older than that
	case wish.Stop || wish.Begun || m.missing[wish.Key] || m.accepted[wish.Key]:
		m.missing[wish.Key] = true
		return m.reportOnce(Action{Kind: ReportMissing, Key: wish.Key})
	}
	return []Action{{Kind: DoLaunch, Key: wish.Key}}
}

// reportOnce gives a report once for each connection to the controller.
func (m *Memory) reportOnce(action Action) []Action {
	if m.sent[action.Key] == action.Kind {
		return nil
	}
	m.sent[action.Key] = action.Kind
	return []Action{action}
}

// forgetKeys drops what no longer matters: keys that neither side names.
func (m *Memory) forgetKeys(input Input, wishes map[RunKey]*Wish, observed map[RunKey]*Observed) {
	if !input.Complete {
		return
	}
	idle := func(k RunKey) bool { return wishes[k] == nil && observed[k] == nil }
	for _, set := range []map[RunKey]bool{m.accepted, m.confirmed, m.missing} {
		maps.DeleteFunc(set, func(k RunKey, _ bool) bool { return idle(k) })
	}
	maps.DeleteFunc(m.sent, func(k RunKey, _ ActionKind) bool { return idle(k) })
	maps.DeleteFunc(m.orphans, func(k RunKey, _ spec.Instant) bool { return observed[k] == nil })
}
