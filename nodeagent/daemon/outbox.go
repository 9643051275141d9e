package daemon

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// posted is a report that the controller has not acknowledged.
type posted struct {
	report *apiv1.Report
	run    plan.RunKey
	last   bool // the run is over with it
}

// outbox holds the reports in order of their numbers, which rise by one. sent
// of them have been given to the connection.
type outbox struct {
	next  uint64 // number of the next report; the first is 1
	queue []posted
	sent  int
}

func (o *outbox) addReport(report *apiv1.Report, key plan.RunKey, last bool) {
	if o.next == 0 {
		o.next = 1
	}
	report.Number, report.Run = o.next, wireKey(key)
	o.next++
	o.queue = append(o.queue, posted{report: report, run: key, last: last})
}

// take gives what is to be sent now.
func (o *outbox) take() []*apiv1.Report {
	var reports []*apiv1.Report
	for _, p := range o.queue[o.sent:] {
		reports = append(reports, p.report)
	}
	o.sent = len(o.queue)
	return reports
}

// rewindReports lets everything be sent again: there is a new connection.
func (o *outbox) rewindReports() { o.sent = 0 }

// ackReports removes what the controller has. A number that was not sent on this
// connection acknowledges nothing that it may.
func (o *outbox) ackReports(upTo uint64) []posted {
	n := 0
	for n < o.sent && o.queue[n].report.Number <= upTo {
		n++
	}
	acked := o.queue[:n:n]
	o.queue = o.queue[n:]
	o.sent -= n
	return acked
}

func wireKey(key plan.RunKey) *apiv1.RunKey {
	return &apiv1.RunKey{JobUid: key.Job, Attempt: key.Attempt, Step: key.Step, Epoch: key.Epoch}
}

func runKey(key *apiv1.RunKey) plan.RunKey {
	return plan.RunKey{
		Job:     key.GetJobUid(),
		Attempt: key.GetAttempt(),
		Step:    key.GetStep(),
		Epoch:   key.GetEpoch(),
	}
}

// recent remembers the last reports of runs that are over and acknowledged,
// so that a controller that asks again gets the same answer.
type recent struct {
	of     map[plan.RunKey]*apiv1.Report
	launch map[plan.RunKey]spec.Hash // of the runs in of, where it is known
	order  []plan.RunKey
}

const recentLimit = 4096

func (r *recent) addEnded(key plan.RunKey, last *apiv1.Report, launch spec.Hash) {
	if r.of == nil {
		r.of, r.launch = map[plan.RunKey]*apiv1.Report{}, map[plan.RunKey]spec.Hash{}
	}
	if r.of[key] == nil {
		if len(r.order) == recentLimit {
			delete(r.of, r.order[0])
			delete(r.launch, r.order[0])
			r.order = r.order[1:]
		}
		r.order = append(r.order, key)
	}
	r.of[key] = last
	if !launch.IsZero() {
		r.launch[key] = launch
	}
}
