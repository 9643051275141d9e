// Package tallytest writes ledgers for tests of what reads them: by hand,
// event by event, or at random. Every event is folded by package state as it
// is written, so a history that no controller could write fails the test.
package tallytest

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// TB is what a History needs of a test.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

var _ TB = (testing.TB)(nil)

// History is a ledger being written.
type History struct {
	t     TB
	State *state.State
	Log   []event.Envelope
	Now   spec.Instant
	Actor event.Actor
	conf  *spec.Config
}

// LedgerID is the identity of every history's ledger.
var LedgerID = [16]byte{0xb0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// New begins a ledger of a cluster called "peer" with nothing in it.
func New(t TB, now spec.Instant) *History {
	h := &History{
		t:     t,
		State: state.New(),
		Now:   now,
		conf:  &spec.Config{ClusterName: "peer", Sched: spec.SchedConfig{Memory: true}},
	}
	h.Put(&event.ClusterCreated{UUID: LedgerID, Name: "peer", Version: event.Version})
	return h
}

// Put writes an event at h.Now.
func (h *History) Put(e event.Event) uint64 {
	h.t.Helper()
	env := event.Envelope{
		Seq:   h.State.Seq + 1,
		At:    h.Now,
		Actor: h.Actor,
		Cause: event.Cause{Command: "test"},
		Event: e,
	}
	if err := h.State.Apply(&env); err != nil {
		h.t.Fatalf("the history is not one: %v", err)
	}
	h.Log = append(h.Log, env)
	return env.Seq
}

// Wait lets time pass.
func (h *History) Wait(d spec.Span) { h.Now = h.Now.Add(d) }

// Nodes configures nodes n1 … of equal size in partitions batch (all) and gpu
// (the first half), and registers them. gpus are of type h100.
func (h *History) Nodes(n int, cpus, mem, gpus int64) {
	h.t.Helper()
	var names []string
	for i := range n {
		nodeSpec := spec.NodeSpec{Name: fmt.Sprintf("n%d", i+1), CPUs: cpus, Mem: mem}
		if gpus > 0 {
			nodeSpec.GRES = []spec.GRESSpec{{Name: "gpu", Type: "h100", N: gpus}}
		}
		h.conf.Nodes = append(h.conf.Nodes, nodeSpec)
		names = append(names, nodeSpec.Name)
	}
	h.conf.Partitions = []spec.PartitionSpec{
		{Name: "batch", NodeNames: names, Default: true},
		{Name: "gpu", NodeNames: names[:(n+1)/2]},
	}
	h.Put(&event.ConfigAdopted{Config: h.conf})
	for _, name := range names {
		h.Register(name)
	}
}

// Register lets a node's agent present what is configured.
func (h *History) Register(name string) {
	h.t.Helper()
	node := h.State.Node(name)
	inv := spec.Inventory{BootID: "boot", CPUs: node.Spec.CPUs, Mem: node.Spec.Mem}
	for _, g := range node.Spec.GRES {
		for i := range g.N {
			inv.GPUs = append(
				inv.GPUs,
				spec.GPU{Index: uint32(i), UUID: fmt.Sprintf("GPU-%s-%d", name, i), Type: g.Type},
			)
		}
	}
	h.Put(&event.NodeRegistered{Node: name, Inventory: inv})
}

// Accounts makes accounts below root and users in them: account -> users.
func (h *History) Accounts(names []string, users map[string][]string) {
	h.t.Helper()
	id := uint32(1)
	h.Put(&event.AccountPut{Account: spec.Account{Name: "root"}})
	h.Put(&event.AssociationPut{Association: spec.Association{ID: id, Account: "root", Shares: 1}})
	for _, a := range names {
		id++
		account := id
		h.Put(&event.AccountPut{Account: spec.Account{Name: a, Parent: "root"}})
		h.Put(
			&event.AssociationPut{
				Association: spec.Association{
					ID:      id,
					Account: a,
					Parent:  1,
					Shares:  int64(id%3) + 1,
				},
			},
		)
		for _, u := range users[a] {
			id++
			h.Put(
				&event.AssociationPut{
					Association: spec.Association{
						ID:      id,
						Account: a,
						User:    u,
						Parent:  account,
						Shares:  int64(id%3) + 1,
					},
				},
			)
		}
	}
}

// Ask is what a job of a test asks for.
type Ask struct {
	Name, User, Account, QOS, Partition string // of several partitions, comma separated, it runs in the first
	UID                                 uint32
	CPUs, Mem, GPUs                     int64
	Limit                               spec.Span
	Array                               spec.TaskSet
	Held                                bool
	Script                              spec.Hash // zero: of one that is nowhere
	Line                                string    // how it was submitted; empty: sbatch NAME
	Part, Parts                         uint32    // of Parts components of a heterogeneous job, submitted one behind the other, it is this one, from 0
}

// Submit accepts a job, eligible at once unless it is held.
func (h *History) Submit(ask Ask) spec.JobUID {
	h.t.Helper()
	if ask.Partition == "" {
		ask.Partition = "batch"
	}
	if ask.Limit == 0 {
		ask.Limit = spec.Hour
	}
	if ask.Script == (spec.Hash{}) {
		ask.Script = spec.Hash{1}
	}
	s := &spec.JobSpec{
		Name:       ask.Name,
		User:       ask.User,
		UID:        ask.UID,
		Account:    ask.Account,
		QOS:        ask.QOS,
		Partitions: strings.Split(ask.Partition, ","),
		Script:     ask.Script,
		Line:       cmp.Or(ask.Line, "sbatch "+ask.Name),
		Time:       spec.TimeAsk{Limit: ask.Limit},
		Size:       spec.Size{MinNodes: 1},
	}
	if ask.Array != nil {
		s.Queue.Array = spec.NewArrayAsk(ask.Array, 0)
	}
	req := spec.TRES{CPU: max(ask.CPUs, 1), Mem: ask.Mem, Node: 1, Billing: max(ask.CPUs, 1)}
	if ask.GPUs > 0 {
		req = req.With("gres/gpu", ask.GPUs).With("gres/gpu:h100", ask.GPUs)
	}
	ev := &event.JobSubmitted{
		UID:      h.State.NextUID,
		ID:       h.State.NextID,
		Spec:     s,
		Req:      req,
		Eligible: h.Now,
		Reason:   spec.Reason{Code: spec.ReasonNone},
	}
	if ask.Held {
		s.Queue.Hold = spec.HeldByUser
		ev.Eligible = 0
		ev.Reason = spec.Reason{
			Code: spec.ReasonHeldUser,
		}
	}
	if ask.Parts > 0 {
		ev.Het = &spec.HetPart{
			Leader: ev.UID - spec.JobUID(ask.Part),
			Offset: ask.Part,
			Size:   ask.Parts,
		}
	}
	h.Put(ev)
	return ev.UID
}

// Split gives a task of an array a record of its own.
func (h *History) Split(array spec.JobUID, task int64) spec.JobUID {
	h.t.Helper()
	rec := h.State.Job(array)
	ev := &event.ArrayTaskSplit{Array: array, Task: task, UID: array, ID: rec.ID}
	if rec.Tasks.Len() > 1 {
		ev.UID, ev.ID = h.State.NextUID, h.State.NextID
	}
	h.Put(ev)
	return ev.UID
}

// Start opens an attempt on nodes: each gives the job's whole request.
func (h *History) Start(uid spec.JobUID, nodes ...string) bool {
	h.t.Helper()
	j := h.State.Job(uid)
	alloc := &spec.Allocation{Partition: j.Spec.Partitions[0], TRES: spec.TRES{Billing: j.Req.Billing}, Tasks: 1}
	for _, name := range nodes {
		a, ok := Fit(h.State.Node(name), j.Req)
		if !ok {
			return false
		}
		alloc.Nodes = append(alloc.Nodes, a)
		alloc.TRES = alloc.TRES.Add(spec.TRES{CPU: j.Req.CPU, Mem: j.Req.Mem, Node: 1})
		for _, g := range a.GPUs {
			alloc.TRES = alloc.TRES.With("gres/gpu", alloc.TRES.Get("gres/gpu")+1)
			typed := "gres/gpu:" + g.Type
			alloc.TRES = alloc.TRES.With(typed, alloc.TRES.Get(typed)+1)
		}
	}
	for i := range alloc.Nodes {
		if n := h.State.Node(alloc.Nodes[i].Name); n.Power == event.PoweredDown {
			h.Put(&event.NodePowered{Nodes: []string{n.Spec.Name}, To: event.PowerUpWish})
		}
	}
	h.Put(&event.JobStarted{UID: uid, Attempt: j.Attempt + 1, Alloc: alloc, Limit: j.Spec.Time.Limit, Priority: 100})
	return true
}

// Fit takes the lowest free CPUs and devices of a node for a request.
func Fit(node *state.Node, req spec.TRES) (spec.NodeAlloc, bool) {
	alloc := spec.NodeAlloc{ID: node.ID, Name: node.Spec.Name, Mem: req.Mem, Tasks: 1}
	for i := range node.CPUs {
		if int64(alloc.CPUs.Count()) < req.CPU && !node.UsedCPU.Has(int(i)) {
			alloc.CPUs = alloc.CPUs.Set(int(i))
		}
	}
	for i := range node.GPUs {
		if int64(len(alloc.GPUs)) < req.Get("gres/gpu") && !node.UsedGPU.Has(i) {
			alloc.GPUs = append(
				alloc.GPUs,
				spec.GPURef{
					UUID:  node.GPUs[i].UUID,
					Index: node.GPUs[i].Index,
					Type:  node.GPUs[i].Type,
				},
			)
		}
	}
	ok := int64(alloc.CPUs.Count()) == req.CPU && int64(len(alloc.GPUs)) == req.Get("gres/gpu") &&
		node.FreeMem() >= req.Mem
	return alloc, ok
}

// End gives the verdict on a job.
func (h *History) End(uid spec.JobUID, s spec.JobState, exit spec.ExitStatus) {
	h.t.Helper()
	h.EndBy(uid, s, exit, 0)
}

// EndBy is End with the uid of who cancelled.
func (h *History) EndBy(uid spec.JobUID, s spec.JobState, exit spec.ExitStatus, by uint32) {
	h.t.Helper()
	h.Put(
		&event.JobEnded{
			UID:     uid,
			Attempt: h.State.Job(uid).Attempt,
			State:   s,
			Exit:    exit,
			By:      by,
			Reason:  spec.Reason{Code: spec.ReasonNone},
		},
	)
}

// Done gives every node back that the job still holds; the first says how the
// batch script ended.
func (h *History) Done(uid spec.JobUID, usage spec.Usage, exit spec.ExitStatus) {
	h.t.Helper()
	job := h.State.Job(uid)
	for i := range job.Alloc.Nodes {
		if job.Done.Has(i) {
			continue
		}
		ev := &event.JobNodeDone{
			UID:     uid,
			Attempt: job.Attempt,
			Node:    job.Alloc.Nodes[i].Name,
			Usage:   usage,
		}
		if i == 0 {
			ev.Batch = &event.StepResult{Started: job.Started, Ended: h.Now, Exit: exit}
		}
		h.Put(ev)
	}
}

// Finish is End and Done at once: an orderly end.
func (h *History) Finish(uid spec.JobUID, usage spec.Usage) {
	h.t.Helper()
	h.End(uid, spec.Completed, spec.ExitStatus{})
	h.Done(uid, usage, spec.ExitStatus{})
}

// Requeue ends the attempt of a job whose nodes are all back, and queues it
// again.
func (h *History) Requeue(uid spec.JobUID, as spec.JobState) {
	h.t.Helper()
	h.Put(
		&event.JobRequeued{
			UID:     uid,
			Attempt: h.State.Job(uid).Attempt,
			State:   as,
			Reason:  spec.Reason{Code: spec.ReasonBeginTime},
		},
	)
}

// Copy is the ledger as it is now: what a backup has. Both can be written on.
func (h *History) Copy() *History {
	c := *h
	h.State = h.State.Freeze()
	c.State = h.State.Fork()
	h.State = h.State.Fork()
	c.Log = append([]event.Envelope(nil), h.Log...)
	return &c
}
