package daemon

import (
	"encoding/json"
	"slices"
	"sync/atomic"

	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// What is said of a job that is over is an event of its own: the rows of runs that are
// over never change. Who reads such a run asks for its notes. Most clusters have none, and
// pay nothing for that.

// notesSeen tells whether the ledger has notes.
type notesSeen struct{ is atomic.Uint32 }

// The values of notesSeen.
const (
	notesUnknown uint32 = iota
	notesNone
	notesSome
)

// note takes an event that is being counted.
func (n *notesSeen) note(ev event.Event) {
	if _, ok := ev.(*event.JobNoted); ok {
		n.is.Store(notesSome)
	}
}

// hasNotes tells whether there are notes that may be about a scope's runs.
func (a *answer) hasNotes() (bool, error) {
	known := a.s.D.notes.is.Load()
	if known != notesUnknown {
		return known == notesSome, nil
	}
	found := notesNone
	err := a.s.D.cfg.Store.Query(a.ctx, query.AnyNote(a.scope), func(func(...any) error) error {
		found = notesSome
		return nil
	})
	if err == nil {
		// One that was counted meanwhile stays known.
		a.s.D.notes.is.CompareAndSwap(notesUnknown, found)
	}
	return found == notesSome, err
}

// amendRuns changes the rows of runs that are over by what was noted of them since.
func (a *answer) amendRuns() error {
	if len(a.runs) == 0 || !slices.ContainsFunc(
		[]string{"comment", "admin_comment", "system_comment", "extra", "derived_code"},
		func(field string) bool { return a.want(query.RunPart{Field: field}) },
	) {
		return nil
	}
	if some, err := a.hasNotes(); err != nil || !some {
		return err
	}
	over := map[spec.JobUID][]int{}
	var keys []query.RunKey
	for i := range a.runs {
		if a.runs[i].row.GetEnd() != 0 {
			over[spec.JobUID(a.runs[i].key.UID)] = append(over[spec.JobUID(a.runs[i].key.UID)], i)
			keys = append(keys, a.runs[i].key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return a.s.D.cfg.Store.Query(a.ctx, query.Notes(a.scope, keys), func(scan func(...any) error) error {
		var uid uint64
		var at int64
		var body string
		if err := scan(&uid, &at, &body); err != nil {
			return err
		}
		var note event.JobNoted
		if err := json.Unmarshal([]byte(body), &note); err != nil {
			return err
		}
		for _, i := range over[spec.JobUID(uid)] {
			if row := a.runs[i].row; spec.Instant(at)*spec.Instant(spec.Microsecond) >= spec.Instant(row.GetEnd()) {
				amendRow(row, &note)
			}
		}
		return nil
	})
}

// amendRow changes a row by a note.
func amendRow(row *apiv1.AcctRow, note *event.JobNoted) {
	for _, text := range [...]struct{ to, from *string }{
		{&row.Comment, note.Comment},
		{&row.AdminComment, note.Admin},
		{&row.SystemComment, note.System},
		{&row.Extra, note.Extra},
	} {
		if text.from != nil {
			*text.to = *text.from
		}
	}
	if note.Derived != nil {
		row.DerivedCode, row.DerivedSignal = note.Derived.Code, note.Derived.Signal
	}
}
