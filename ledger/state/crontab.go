package state

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/spec"
)

// Crontab returns the crontab of a user, or nil.
func (s *State) Crontab(uid uint32) *spec.Crontab {
	i, ok := s.findCrontab(uid)
	if !ok {
		return nil
	}
	return &s.Crontabs[i]
}

func (s *State) findCrontab(uid uint32) (int, bool) {
	return slices.BinarySearchFunc(s.Crontabs, uid, func(crontab spec.Crontab, uid uint32) int {
		return cmp.Compare(crontab.UID, uid)
	})
}

// ComesBack tells whether a job is run again by the clock: a line of its user's crontab
// stands for it.
func (s *State) ComesBack(job *Job) bool {
	return job.Spec.Cron != "" && s.Crontab(job.Spec.UID).Find(job.UID) >= 0
}

func (s *State) applyCrontabPut(table *spec.Crontab) error {
	i, known := s.findCrontab(table.UID)
	if table.Text == "" {
		if !known {
			return contradictionError("user %d has no crontab", table.UID)
		}
		s.Crontabs = removeAt(s.Crontabs, i)
		return nil
	}
	for _, entry := range table.Entries {
		job := s.Job(entry.Job)
		if job == nil || job.Spec.UID != table.UID || job.Spec.Cron == "" {
			return contradictionError(
				"job uid %d is not made of a crontab of user %d",
				entry.Job,
				table.UID,
			)
		}
	}
	s.Crontabs = putAt(s.Crontabs, i, known, *table)
	return nil
}

// putAt gives a copy of a sorted list with an item at position i, in place of the one
// there or before it. The list itself belongs to older states too.
func putAt[T any](list []T, i int, replace bool, item T) []T {
	list = slices.Clone(list)
	if replace {
		list[i] = item
		return list
	}
	return slices.Insert(list, i, item)
}

// removeAt gives a copy of a list without one item; nil when that was the last.
func removeAt[T any](list []T, i int) []T {
	if len(list) == 1 {
		return nil
	}
	return slices.Delete(slices.Clone(list), i, i+1)
}
