package state

import (
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
	return slices.BinarySearchFunc(s.Triggers, id, func(t spec.Trigger, id uint32) int {
		return int(int64(t.ID) - int64(id))
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
	list := slices.Clone(s.Triggers)
	if known {
		list[i] = *trigger
	} else {
		list = slices.Insert(list, i, *trigger)
		s.NextTrigger = trigger.ID
	}
	s.Triggers = list
	return nil
}

func (s *State) applyTriggerRemoved(e *event.TriggerRemoved) error {
	i, known := s.findTrigger(e.ID)
	if !known {
		return contradictionError("there is no trigger %d", e.ID)
	}
	s.Triggers = slices.Delete(slices.Clone(s.Triggers), i, i+1)
	if len(s.Triggers) == 0 {
		s.Triggers = nil
	}
	return nil
}
