// Package trial is a state to try things on: commands are decided on it,
// their events fold into it at once, and the caller keeps the events (append
// them to the log) or drops the trial. There is no undo.
package trial

import (
	"fmt"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Trial is a writable state at an instant, on behalf of an actor.
type Trial struct {
	*state.State
	Now   spec.Instant
	Actor event.Actor
	Cause event.Cause
	// East is how far the clocks of the cluster's zone are ahead of UTC at an instant;
	// nil = it keeps UTC.
	East func(spec.Instant) spec.Span
	// Events is what was emitted, in order, already folded into the state.
	Events []event.Envelope
}

// On starts a trial on a state that the caller owns. The instant never lies
// before the state's own.
func On(s *state.State, now spec.Instant, actor event.Actor, command string) *Trial {
	return &Trial{State: s, Now: max(now, s.At), Actor: actor, Cause: event.Cause{Command: command}}
}

// Emit appends an event and folds it. An error means that a rule of the
// ledger was broken: a bug, after which the trial must be dropped.
func (t *Trial) Emit(ev event.Event) error {
	n := len(t.Events)
	t.Events = append(
		t.Events,
		event.Envelope{Seq: t.Seq + 1, At: t.Now, Actor: t.Actor, Cause: t.Cause, Event: ev},
	)
	if err := t.Apply(&t.Events[n]); err != nil {
		t.Events = t.Events[:n]
		return fmt.Errorf("decide %s: %w", t.Cause.Command, err)
	}
	return nil
}
