package daemon

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// identity is what tells one launch from another under the same numbers, and
// what a ledger that has lost the job would need to take it up again.
type identity struct {
	Launch spec.Hash
	Seq    uint64
	Order  []byte
}

// identityOf reads the identity of an order. Controllers of older releases send
// none.
func identityOf(launch *apiv1.Launch) identity {
	var out identity
	if len(launch.GetLaunch()) != len(out.Launch) {
		return out
	}
	copy(out.Launch[:], launch.GetLaunch())
	out.Seq = launch.GetSeq()
	short := &apiv1.Launch{
		Job:          launch.GetJob(),
		Groups:       launch.GetGroups(),
		Batch:        launch.GetBatch(),
		NodeIndex:    launch.GetNodeIndex(),
		Here:         launch.GetHere(),
		CpusPerNode:  launch.GetCpusPerNode(),
		TasksPerNode: launch.GetTasksPerNode(),
		Launch:       launch.GetLaunch(),
		Seq:          launch.GetSeq(),
		Record:       launch.GetRecord(),
		Credential:   launch.GetCredential(),
	}
	if launch.GetStep() == nil { // a step is nothing without its job
		out.Order, _ = proto.Marshal(short) // what arrived as a message can be sent as one
	}
	return out
}

// hasConflict tells that a run which is here, or was, and an order have the same
// key and are not the same launch. The order is refused: neither what the run
// does nor how it ended may be reported for another job.
func (c *Core) hasConflict(key plan.RunKey, here spec.Hash, order identity) bool {
	if here.IsZero() || order.Launch.IsZero() || here == order.Launch {
		return false
	}
	err := &plan.ConflictError{Key: key, Here: here, Ordered: order.Launch}
	c.log.Error("an order is refused", "error", err)
	c.outbox.addReport(
		&apiv1.Report{
			Kind: &apiv1.Report_LaunchFailed{
				LaunchFailed: &apiv1.LaunchFailed{Text: err.Error(), DrainNode: true},
			},
		},
		key,
		false,
	)
	c.fx.Send = true
	return true
}

// position is a place in the controller's ledger.
type position struct {
	Epoch   uint64 `json:"epoch"`
	Seq     uint64 `json:"seq"`
	NextUID uint64 `json:"next_uid"`
	NextID  uint32 `json:"next_id"`
	Lead    uint64 `json:"lead,omitempty"` // the event with which the lead of the last controller began
}

// Head notes how far the controller's ledger is. It is what the next
// registration says, so that a controller whose ledger ends earlier knows that it
// has lost history.
func (c *Core) Head(p *apiv1.LedgerPosition) {
	if p.GetEpoch() == 0 || c.refused {
		return
	}
	if p.GetEpoch() != c.seen.Epoch {
		c.fx.Save = true
	}
	c.seen = position{
		Epoch:   p.GetEpoch(),
		Seq:     p.GetSeq(),
		NextUID: p.GetNextJobUid(),
		NextID:  p.GetNextJobId(),
		Lead:    c.seen.Lead,
	}
}

// isOutdated tells that the controller's lead began before one that this node has
// followed: it only believes that it still leads. One that has recorded a loss of
// history may begin earlier.
func (c *Core) isOutdated(welcome *apiv1.Welcome) bool {
	if welcome.GetLead() < c.seen.Lead && !welcome.GetLost() {
		c.fx.Leave = fmt.Sprintf(
			"the controller's lead began with event %d, and another's with event %d: its orders are refused",
			welcome.GetLead(),
			c.seen.Lead,
		)
		return true
	}
	if welcome.GetLead() != c.seen.Lead {
		c.fx.Save = true
	}
	c.seen.Lead = welcome.GetLead()
	return false
}

// Seen is the last position that a controller told; nil before any.
func (c *Core) Seen() *apiv1.LedgerPosition {
	if c.seen.Epoch == 0 {
		return nil
	}
	return &apiv1.LedgerPosition{
		Epoch:      c.seen.Epoch,
		Seq:        c.seen.Seq,
		NextJobUid: c.seen.NextUID,
		NextJobId:  c.seen.NextID,
	}
}

// setUnknown takes the runs that the controller's ledger does not know. They go
// on until an administrator adopts or kills them.
func (c *Core) setUnknown(list []*apiv1.RunKey) {
	clear(c.unknown)
	for _, k := range list {
		key := jobKey(runKey(k))
		if !c.unknown[key] {
			c.log.Warn(
				"the controller's ledger does not know a run: it goes on until an administrator adopts or kills it",
				aboutKey(key, 0),
			)
		}
		c.unknown[key] = true
	}
}

// noteStep notes that a step of an attempt was here: an attempt that is adopted gives further
// steps numbers above all of them, because keys of runs are never used twice.
func (c *Core) noteStep(key plan.RunKey) {
	if job := c.runs[jobKey(key)]; job != nil && key.Step >= 0 {
		job.next = max(job.next, key.Step+1)
	}
}

// Kept tells what the node kept of runs that the controller's ledger does not know, in order
// of their keys.
func (c *Core) Kept() []*apiv1.KeptOrder {
	var kept []*apiv1.KeptOrder
	for _, key := range c.sortedKeys() {
		r := c.runs[key]
		if !c.unknown[key] || r.phase == reported {
			continue
		}
		out := &apiv1.KeptOrder{Run: wireKey(key), NextStep: r.next}
		if len(r.order) > 0 {
			out.Order = &apiv1.Launch{}
			if err := proto.Unmarshal(r.order, out.Order); err != nil {
				c.log.Error("the order that a run was started with cannot be read", aboutRun(r), "error", err)
				out.Order = nil
			}
		}
		kept = append(kept, out)
	}
	return kept
}

// awaitAdopted takes the order for a script that the controller has adopted and that this life
// of the agent has not seen. It is never started: the shepherd's next list says whether it is
// here.
func (c *Core) awaitAdopted(key plan.RunKey) {
	c.desired[key] = true
	c.adopted[key] = true
	c.fx.List = true
}

// missAdopted reports the adopted scripts that the shepherd does not know.
func (c *Core) missAdopted() {
	keys := slices.SortedFunc(maps.Keys(c.adopted), plan.RunKey.Compare)
	clear(c.adopted)
	for _, key := range keys {
		if c.runs[key] == nil && c.recent.of[key] == nil {
			c.noteExited(&plan.Exit{
				Key:     key,
				Failure: plan.Lost,
				End:     c.clock(),
				Message: "the node's shepherd does not know the adopted run any more",
			})
		}
	}
}

// Held describes the runs that hold the node, in order of their keys.
func (c *Core) Held() []*apiv1.HeldRun {
	var runs []*apiv1.HeldRun
	for _, key := range c.Running() {
		r := c.runs[key]
		runs = append(
			runs,
			&apiv1.HeldRun{
				Run:     wireKey(key),
				JobId:   uint32(r.facts.ID),
				UserId:  r.user,
				User:    r.facts.User,
				Started: int64(r.from),
				Seq:     r.seq,
				Launch:  r.launch[:],
			},
		)
	}
	return runs
}
