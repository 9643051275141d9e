package state

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// Trigger returns a trigger by its number, or nil.
func (s *State) Trigger(id uint32) *spec.Trigger {
	i, ok := s.findTrigger(id)
	if !ok {
		return nil
	}
	return &s.Triggers[i]
}

func (s *State) findTrigger(id uint32) (int, bool) {
	return slices.BinarySearchFunc(s.Triggers, id, func(trigger spec.Trigger, id uint32) int {
		return cmp.Compare(trigger.ID, id)
	})
}

func (s *State) applyTriggerPut(trigger *spec.Trigger) error {
	i, known := s.findTrigger(trigger.ID)
	if trigger.ID == 0 || trigger.Kind.String() == "" || !known && trigger.ID <= s.NextTrigger {
		return contradictionError(
			"trigger %d of kind %d: its number is taken or it has no kind",
			trigger.ID,
			trigger.Kind,
		)
	}
	s.Triggers = putAt(s.Triggers, i, known, *trigger)
	s.NextTrigger = max(s.NextTrigger, trigger.ID)
	return nil
}

func (s *State) applyTriggerRemoved(e *event.TriggerRemoved) error {
	i, known := s.findTrigger(e.ID)
	if !known {
		return contradictionError("there is no trigger %d", e.ID)
	}
	s.Triggers = removeAt(s.Triggers, i)
	return nil
}
