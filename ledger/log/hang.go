package log

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Raft's heartbeats are sent by goroutines that need no disk, so a leader whose disk hangs would lead
// for as long as that lasts, and nothing would be acknowledged in the meantime. It gives up the lead
// instead: it sends nothing more to the others, who elect one of themselves, and its daemon stands by.
// When the disk is back, raft finds out that the others have gone on, or leads on if they have not.

// errDiskHangs is what raft is told in place of sending something.
var errDiskHangs = errors.New("the ledger's disk does not answer, so this controller gives up the lead")

// shortestHang is for how long a write is under way at least before the disk counts as hung. It is
// longer than a disk that works takes under load, since a change of the lead costs about a second.
const shortestHang = 5 * time.Second

// hangAfter is that time for these options.
func (o Options) hangAfter() time.Duration { return max(shortestHang, 2*o.Timeout) }

// writeClock knows for how long the present write has been under way. The zero value is ready.
type writeClock struct {
	began atomic.Pointer[time.Time]
}

func (c *writeClock) begin() {
	now := time.Now()
	c.began.Store(&now)
}

func (c *writeClock) end() { c.began.Store(nil) }

func (c *writeClock) elapsed() time.Duration {
	began := c.began.Load()
	if began == nil {
		return 0
	}
	return time.Since(*began)
}

// diskChecks is how often the disk is looked at while it is not yet hung.
const diskChecks = 20

// checkDisk gives up the lead when a write has been under way for so long that another member should
// lead, and takes the lead again where raft still has it when the disk is back. A member that is alone
// has no other. last is when the disk was looked at before: where that is long ago, the process has been
// stopped, and with it the write. Only watchLeadership calls it.
func (d *Durable) checkDisk(last time.Time) {
	wasStopped := time.Since(last) > d.opts.hangAfter()/2
	hangs := !d.alone && !wasStopped && d.store.writing.elapsed() > d.opts.hangAfter()
	if hangs == d.hung.Load() {
		return
	}
	d.hung.Store(hangs)
	leads := d.raft.State() == raft.Leader
	switch {
	case hangs:
		d.opts.Logger.Error(
			"the ledger's disk does not answer; while it does not, this controller does not lead",
			"folder", d.opts.Dir, "for", d.store.writing.elapsed().Round(time.Second),
		)
		if leads {
			d.takeLead(false)
		}
	default:
		d.opts.Logger.Info("the ledger's disk answers again", "folder", d.opts.Dir)
		if leads && !d.isLeading() {
			d.takeLead(true)
		}
	}
}

func (d *Durable) isLeading() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leading
}
