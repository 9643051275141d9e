package paging

import (
	"testing"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/sim/replay"
	"github.com/musterhpc/muster/spec"
)

// collecting is a cluster of 40 CPUs of which more than half idle on purpose: a job of
// 16 may run for 20 hours, the next two want the whole machine, and each has the
// promise of a start. The second of them is promised one that is far away.
func collecting() (*replay.Trace, replay.Machine) {
	row := func(id, minute, procs, hours int64) replay.Row {
		return replay.Row{ID: id, Submit: minute * 60, Run: hours * 3600, Limit: hours * 3600, Procs: procs, User: id, Group: 1, Wait: -1}
	}
	tr := &replay.Trace{Rows: []replay.Row{
		row(1, 0, 16, 20),
		row(2, 1, 40, 20),
		row(3, 2, 40, 20),
	}}
	return tr, replay.Machine{Nodes: 10, CPUs: 4}
}

// running is the job that runs with so many CPUs.
func (c *cluster) running(cpus int64) *state.Job {
	var found *state.Job
	c.view.State.Jobs.Range(func(_ uint64, job *state.Job) bool {
		if job.State == spec.Running && job.Alloc.TRES.CPU == cpus {
			found = job
		}
		return true
	})
	if found == nil {
		c.t.Fatalf("no job runs with %d CPUs at minute %d", cpus, c.minute())
	}
	return found
}

// TestPromisesHideNoStuckQueue: MusterQueueStuck fires for a queue in which nothing starts, also
// while starts are promised: when a promise moves back, and when the scheduler has died. While
// the promises can be kept, no alert fires for the nodes that idle for them.
func TestPromisesHideNoStuckQueue(t *testing.T) {
	const from, to, end = 5 * hour, 8 * hour, 10 * hour
	front := func(c *cluster) scheduler.Target {
		return scheduler.Target{UID: c.running(16).UID, Task: spec.NoTask}
	}
	for _, fault := range []struct {
		name   string
		soon   int // minutes within which the alert fires
		faulty planted
	}{
		{"a promise moves back", 15, planted{
			// Whoever is first in the queue waits for six days longer.
			begin: func(c *cluster) {
				c.do(operator(), scheduler.UpdateJob{Target: front(c), Admin: true, Changes: []spec.KeyValue{{Key: "timelimit", Value: "7-00:00:00"}}})
			},
			end: func(c *cluster) { c.do(operator(), scheduler.Cancel{Target: front(c)}) },
		}},
		{"the scheduler makes no pass", 75, planted{
			begin: func(c *cluster) { c.ctl.stalled = true },
			end:   func(c *cluster) { c.ctl.stalled = false },
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			one := fault.faulty
			one.alert, one.from, one.to = "MusterQueueStuck", from, to
			tr, machine := collecting()
			events := []happening{{one.from, one.begin}, {one.to, one.end}}
			s, _, fired := watched(t, tr, machine, end, events)
			notices := s.notices(fired, end+1)
			judge(t, []planted{one}, notices)
			for _, n := range notices {
				if n.alert != one.alert {
					continue
				}
				if n.from < from || n.from > from+fault.soon {
					t.Errorf("planted at minute %d, want a notice within %d minutes: %s", from, fault.soon, n)
				}
			}
		})
	}
}
