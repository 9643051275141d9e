package spec

import (
	"fmt"
	"strings"
)

// ArrayAsk is --array: the task indices and how many may run at once.
type ArrayAsk struct {
	Tasks    TaskSet `cbor:"1,keyasint"`
	Throttle uint32  `cbor:"2,keyasint,omitempty"` // 0 = no throttle
	// Min, Max, Count and Step describe the array as submitted, for the job's
	// environment; they do not change as tasks start.
	Min   int64 `cbor:"3,keyasint,omitempty"`
	Max   int64 `cbor:"4,keyasint,omitempty"`
	Count int64 `cbor:"5,keyasint,omitempty"`
	Step  int64 `cbor:"6,keyasint,omitempty"`
}

// NewArrayAsk describes an array of the given tasks.
func NewArrayAsk(tasks TaskSet, throttle uint32) *ArrayAsk {
	query := &ArrayAsk{Tasks: tasks, Throttle: throttle, Count: tasks.Len(), Step: 1}
	if len(tasks) > 0 {
		query.Min, query.Max = tasks[0].First, tasks.Max()
		if len(tasks) == 1 {
			query.Step = tasks[0].Step
		}
	}
	return query
}

// TaskSet is a set of array task indices as ascending, disjoint ranges: a
// million tasks cost one range. It is a value: methods never change it.
type TaskSet []TaskRange

// TaskRange is First, First+Step, … up to Last, which belongs to it.
type TaskRange struct {
	First int64 `cbor:"1,keyasint"`
	Last  int64 `cbor:"2,keyasint"`
	Step  int64 `cbor:"3,keyasint"`
}

// Valid tells a range that begins at a task, goes up and ends at a task of its own.
func (r TaskRange) Valid() bool {
	return r.First >= 0 && r.Last >= r.First && r.Step >= 1 && (r.Last-r.First)%r.Step == 0
}

func (r TaskRange) countTasks() int64 { return (r.Last-r.First)/r.Step + 1 }

func (r TaskRange) hasTask(
	i int64,
) bool {
	return i >= r.First && i <= r.Last && (i-r.First)%r.Step == 0
}

// Valid tells a set whose ranges are well formed, ascend and do not overlap.
// Every other method expects that.
func (s TaskSet) Valid() bool {
	for i, taskRange := range s {
		if !taskRange.Valid() || i > 0 && taskRange.First <= s[i-1].Last {
			return false
		}
	}
	return true
}

// Len is the number of tasks.
func (s TaskSet) Len() int64 {
	var n int64
	for _, taskRange := range s {
		n += taskRange.countTasks()
	}
	return n
}

// Has tells whether a task is in the set.
func (s TaskSet) Has(i int64) bool {
	for _, taskRange := range s {
		if taskRange.hasTask(i) {
			return true
		}
	}
	return false
}

// Min returns the lowest index; the set must not be empty.
func (s TaskSet) Min() int64 { return s[0].First }

// Max returns the highest index; the set must not be empty.
func (s TaskSet) Max() int64 {
	m := s[0].Last
	for _, taskRange := range s {
		m = max(m, taskRange.Last)
	}
	return m
}

// Without returns the set less one task.
func (s TaskSet) Without(i int64) TaskSet {
	set := make(TaskSet, 0, len(s)+1)
	for _, taskRange := range s {
		if !taskRange.hasTask(i) {
			set = append(set, taskRange)
			continue
		}
		if i > taskRange.First {
			set = append(set, normalRange(taskRange.First, i-taskRange.Step, taskRange.Step))
		}
		if i < taskRange.Last {
			set = append(set, normalRange(i+taskRange.Step, taskRange.Last, taskRange.Step))
		}
	}
	return set
}

func normalRange(first, last, step int64) TaskRange {
	if first == last {
		step = 1
	}
	return TaskRange{First: first, Last: last, Step: step}
}

// Each calls f for every task in range order until f returns false.
func (s TaskSet) Each(f func(int64) bool) {
	for _, taskRange := range s {
		for i := taskRange.First; i <= taskRange.Last; i += taskRange.Step {
			if !f(i) {
				return
			}
		}
	}
}

// String prints the set as Slurm does: 1-5,7,10-20:5.
func (s TaskSet) String() string {
	var text strings.Builder
	for i, taskRange := range s {
		if i > 0 {
			text.WriteByte(',')
		}
		switch {
		case taskRange.First == taskRange.Last:
			fmt.Fprintf(&text, "%d", taskRange.First)
		case taskRange.Step == 1:
			fmt.Fprintf(&text, "%d-%d", taskRange.First, taskRange.Last)
		default:
			fmt.Fprintf(&text, "%d-%d:%d", taskRange.First, taskRange.Last, taskRange.Step)
		}
	}
	return text.String()
}
