package spec

// TaskKind is what is compared among the tasks of a step.
type TaskKind uint8

// The kinds; the values are stored.
const (
	TaskCPU   TaskKind = iota + 1 // microseconds of CPU time
	TaskRSS                       // largest memory, bytes
	TaskRead                      // bytes from disks
	TaskWrite                     // bytes to disks
	TaskPages                     // page faults that read a disk
)

// String names the kind as the store has it.
func (k TaskKind) String() string {
	switch k {
	case TaskCPU:
		return "cpu_us"
	case TaskRSS:
		return "rss"
	case TaskRead:
		return "read"
	case TaskWrite:
		return "write"
	case TaskPages:
		return "pages"
	}
	return "unknown"
}

// TaskSpread is how one kind of use lay on the tasks of a step: how far apart they
// were, and which task was where.
type TaskSpread struct {
	Kind    TaskKind `cbor:"1,keyasint,omitempty" since:"2"`
	Tasks   int64    `cbor:"2,keyasint,omitempty" since:"2"`
	Sum     int64    `cbor:"3,keyasint,omitempty" since:"2"`
	Min     int64    `cbor:"4,keyasint,omitempty" since:"2"`
	Max     int64    `cbor:"5,keyasint,omitempty" since:"2"`
	MinRank uint32   `cbor:"6,keyasint,omitempty" since:"2"`
	MaxRank uint32   `cbor:"7,keyasint,omitempty" since:"2"`
	MinNode string   `cbor:"8,keyasint,omitempty" since:"2"`
	MaxNode string   `cbor:"9,keyasint,omitempty" since:"2"`
}

// TaskSpreads are those of a step, one of each kind at most.
type TaskSpreads []TaskSpread

// Get gives a kind; ok is false where no task was measured.
func (s TaskSpreads) Get(kind TaskKind) (TaskSpread, bool) {
	for i := range s {
		if s[i].Kind == kind {
			return s[i], true
		}
	}
	return TaskSpread{}, false
}

// Observe is the list with one more task.
func (s TaskSpreads) Observe(kind TaskKind, rank uint32, n int64) TaskSpreads {
	spread := TaskSpread{Kind: kind, Tasks: 1, Sum: n, Min: n, Max: n, MinRank: rank, MaxRank: rank}
	return s.Add(TaskSpreads{spread})
}

// On is a copy of the list whose tasks ran on a node.
func (s TaskSpreads) On(node string) TaskSpreads {
	spreads := append(TaskSpreads(nil), s...)
	for i := range spreads {
		spreads[i].MinNode, spreads[i].MaxNode = node, node
	}
	return spreads
}

// Add puts the tasks of two lists together; of equal ones the first stays.
func (s TaskSpreads) Add(more TaskSpreads) TaskSpreads {
	if len(s)+len(more) == 0 {
		return nil
	}
	spreads := append(make(TaskSpreads, 0, max(len(s), len(more))), s...)
	for _, spread := range more {
		spreads = spreads.addOne(spread)
	}
	return spreads
}

func (s TaskSpreads) addOne(more TaskSpread) TaskSpreads {
	for i := range s {
		have := &s[i]
		if have.Kind != more.Kind {
			continue
		}
		have.Tasks += more.Tasks
		have.Sum += more.Sum
		if more.Min < have.Min {
			have.Min = more.Min
			have.MinRank = more.MinRank
			have.MinNode = more.MinNode
		}
		if more.Max > have.Max {
			have.Max = more.Max
			have.MaxRank = more.MaxRank
			have.MaxNode = more.MaxNode
		}
		return s
	}
	return append(s, more)
}

// Mean is the mean of the tasks.
func (t *TaskSpread) Mean() int64 {
	if t.Tasks <= 0 {
		return 0
	}
	return t.Sum / t.Tasks
}

// Imbalance is how much more than the mean the largest task had, in thousandths of
// the mean: the part of the time for which others waited for it, where the step is
// as fast as its slowest task. 0 where nothing was used.
func (t *TaskSpread) Imbalance() int64 {
	mean := t.Mean()
	if mean <= 0 {
		return 0
	}
	const whole = 1000
	return (t.Max - mean) * whole / mean
}
