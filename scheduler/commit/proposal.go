package commit

import (
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// Proposal is what a pass would have the state become. It was worked out on a
// snapshot; committing it checks each part against the head.
type Proposal struct {
	Starts   []Start
	Preempts []Preempt
	Turns    []Turn
	Reasons  []event.JobReason // only those that changed
	Eligible []spec.JobUID
	Ends     []event.JobEnded // pending jobs that can never run any more
}

// Empty tells that there is nothing to commit.
func (o *Proposal) Empty() bool {
	return len(o.Starts)+len(o.Preempts)+len(o.Turns)+len(o.Reasons)+len(o.Eligible)+len(o.Ends) == 0
}
