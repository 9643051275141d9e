package sim

import "github.com/musterhpc/muster/spec"

// diskState is what a member's disk does with writes. Reads always succeed.
type diskState uint8

const (
	diskWorks diskState = iota
	diskHangs           // writes wait
	diskFull            // writes fail
)

// disk is that of a member.
type disk struct {
	is    diskState
	since spec.Instant
	waits []func() // writes, in their order
}

// longestWrite is how long a write may take before the leader gives up the lead.
const longestWrite = 5 * spec.Second

func (d *disk) works() bool { return d.is == diskWorks }

// write writes now, later or not at all. The callback includes what follows from the write, such as
// an answer.
func (d *disk) write(do func()) {
	switch d.is {
	case diskWorks:
		do()
	case diskHangs:
		d.waits = append(d.waits, do)
	}
}

// forget drops the writes that wait: their process is gone.
func (d *disk) forget() { d.waits = nil }

// troubleDisk makes a member's disk hang or be full for a while. A full disk of a single controller
// is not simulated, because no other controller could continue.
func (g *group) troubleDisk() {
	m := g.members[g.w.rng.IntN(len(g.members))]
	if !m.disk.works() {
		return
	}
	m.disk.is = diskHangs
	if len(g.members) > 1 && g.w.rng.IntN(3) == 0 {
		m.disk.is = diskFull
	}
	m.disk.since = g.w.now
	g.w.noteLine("%s: its disk %s", m.name, [...]string{diskHangs: "hangs", diskFull: "is full"}[m.disk.is])
	g.w.scheduleAfter(g.w.upTo(spec.Minute), m.healDisk)
}

// healDisk lets a disk work again and carries out the writes that wait.
func (m *member) healDisk() {
	waits := m.disk.waits
	m.disk = disk{}
	for _, do := range waits {
		do()
	}
}
