package state

import (
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
	return slices.BinarySearchFunc(s.Crontabs, uid, func(c spec.Crontab, uid uint32) int {
		return int(int64(c.UID) - int64(uid))
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
		s.Crontabs = slices.Delete(slices.Clone(s.Crontabs), i, i+1)
		if len(s.Crontabs) == 0 {
			s.Crontabs = nil
		}
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
	list := slices.Clone(s.Crontabs)
	if known {
		list[i] = *table
	} else {
		list = slices.Insert(list, i, *table)
	}
	s.Crontabs = list
	return nil
}
