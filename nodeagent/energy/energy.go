// Package energy divides the energy of a node among the runs on it.
//
// A meter (RAPL, a power sensor, a management controller) measures the whole node.
// A Book divides what the node used between two readings into a static part,
// which the node uses while it idles, and the dynamic rest:
//
//   - the static part goes to the jobs by their allocated CPUs, for as long as
//     they had them; the share of unallocated CPUs goes to nobody;
//   - the dynamic part goes to the runs by the CPU time that they used; the share
//     of the operating system goes to nobody.
//
// The power of the idle node is configured or learned: it is the lowest mean
// power that was measured. Within a job the static part goes to its runs by their
// CPU time, and to the job's own run if no run used CPU time.
//
// # Conserved
//
// All figures are integers, and the rounding remainder goes to nobody:
//
//	runs + nobody = node + advanced
//
// A run that ends between two readings cannot wait for the next: a job of 50 ms
// would take as long as the meter. It gets an advance, computed from the idle
// power and the energy per second of CPU time so far. The next readings pay it
// back before they are divided, so advanced returns to 0 soon after.
//
// If a meter includes the GPUs, their energy is subtracted first, because it is
// counted device by device (package attrib).
package energy

import (
	"cmp"
	"math/bits"

	"github.com/musterhpc/muster/spec"
)

// Run names an account: one step of one attempt of a job.
type Run struct {
	Job     uint64 `json:"job"`
	Attempt uint32 `json:"attempt"`
	Step    int32  `json:"step"`
	Epoch   uint64 `json:"epoch,omitempty"`
}

// Compare orders runs by job; a job's own run, the batch script, comes before its
// numbered steps.
func (r Run) Compare(o Run) int {
	return cmp.Or(
		cmp.Compare(r.Job, o.Job),
		cmp.Compare(r.Attempt, o.Attempt),
		cmp.Compare(r.Epoch, o.Epoch),
		cmp.Compare(r.Step, o.Step),
	)
}

// sameJob tells that two runs are of one attempt.
func (r Run) sameJob(o Run) bool {
	return r.Job == o.Job && r.Attempt == o.Attempt && r.Epoch == o.Epoch
}

// Account is what one run used. Energy is in millijoules, times in nanoseconds.
type Account struct {
	Run
	From spec.Instant `json:"from"`
	To   spec.Instant `json:"to"`   // counted until here
	CPUs int64        `json:"cpus"` // that it was given; of a step 0: they are its job's
	CPU  int64        `json:"cpu"`  // CPU time at To
	MJ   int64        `json:"mj"`
	Seen int64        `json:"seen"` // time for which the node's energy was known
}

// Has tells that the account was measured at all.
func (a *Account) Has() bool { return a.Seen > 0 }

// Use is the CPU time of a run up to a reading.
type Use struct {
	Run
	CPU int64
}

// Zone is one counter of a source, in microjoules.
type Zone struct {
	Name  string `json:"name"`
	Micro int64  `json:"micro"`
	Max   int64  `json:"max,omitempty"` // largest value, behind which it begins at 0 again; 0 = none
}

// Reading is what a source says at an instant: counters or, without any, power.
type Reading struct {
	At         spec.Instant
	Zones      []Zone
	MilliWatts int64
	// WithGPUs tells that the source measures the GPUs with the node.
	WithGPUs bool
}

// meter turns readings into growth.
type meter struct {
	At         spec.Instant `json:"at"`
	Zones      []Zone       `json:"zones,omitempty"`
	MilliWatts int64        `json:"mw,omitempty"`
	Rest       int64        `json:"rest,omitempty"` // microjoules below one millijoule
	GPUs       int64        `json:"gpus,omitempty"` // energy of the GPUs at At
	// Short is energy of GPUs that the source has not shown yet: the two are not
	// read at the same instant.
	Short int64 `json:"short,omitempty"`
}

// grow gives the energy since the last reading in millijoules; ok is false for the
// first reading, and where the last is too long ago for the counters.
func (m *meter) grow(reading *Reading, gpus int64, gap spec.Span) (mj int64, ok bool) {
	passed := int64(reading.At - m.At)
	ok = m.At != 0 && passed > 0 && spec.Span(passed) <= gap
	if ok {
		micro := m.Rest
		for _, zone := range reading.Zones {
			micro += m.zoneGrowth(zone)
		}
		if len(reading.Zones) == 0 {
			mean := (m.MilliWatts + reading.MilliWatts) / 2
			micro += mulDiv(mean, passed, int64(spec.Millisecond)) // mW x ms = uJ
		}
		mj, m.Rest = micro/1000, micro%1000
		if reading.WithGPUs {
			m.Short += max(gpus-m.GPUs, 0)
			taken := min(m.Short, mj)
			m.Short -= taken
			mj -= taken
		}
	} else {
		m.Rest, m.Short = 0, 0
	}
	m.At = reading.At
	m.GPUs = gpus
	m.Zones = append([]Zone(nil), reading.Zones...)
	m.MilliWatts = reading.MilliWatts
	return mj, ok
}

// zoneGrowth is the growth of one counter. A counter that was not read before has
// none, and one that went back has wrapped around or, where it cannot, begun anew.
func (m *meter) zoneGrowth(now Zone) int64 {
	for _, before := range m.Zones {
		switch {
		case before.Name != now.Name:
			continue
		case now.Micro >= before.Micro:
			return now.Micro - before.Micro
		case now.Max > before.Micro:
			return now.Max - before.Micro + now.Micro
		}
		return now.Micro
	}
	return 0
}

// mulDiv is a x b / c without overflow on the way; 0 where a figure is negative or
// nothing divides. A result that 64 bits cannot hold stays at the largest value.
func mulDiv(a, b, c int64) int64 {
	if a <= 0 || b <= 0 || c <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, 1<<63-1))
}
