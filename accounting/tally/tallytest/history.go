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
	history := &History{
		t:     t,
		State: state.New(),
		Now:   now,
		conf:  &spec.Config{ClusterName: "peer", Sched: spec.SchedConfig{Memory: true}},
	}
	history.Put(&event.ClusterCreated{UUID: LedgerID, Name: "peer", Version: event.Version})
	return history
}

// Put writes an event at h.Now.
func (h *History) Put(e event.Event) uint64 {
	h.t.Helper()
	envelope := event.Envelope{
		Seq:   h.State.Seq + 1,
		At:    h.Now,
		Actor: h.Actor,
		Cause: event.Cause{Command: "test"},
		Event: e,
	}
	if err := h.State.Apply(&envelope); err != nil {
		h.t.Fatalf("the history is not one: %v", err)
	}
	h.Log = append(h.Log, envelope)
	return envelope.Seq
}

// Wait lets time pass.
func (h *History) Wait(d spec.Span) { h.Now = h.Now.Add(d) }

// Nodes configures nodes n1 … of equal size in partitions batch (all) and gpu
// (the first half), and registers them. gpus are of type h100.
func (h *History) Nodes(n int, cpus, memory, gpus int64) {
	h.t.Helper()
	var names []string
	for i := range n {
		nodeSpec := spec.NodeSpec{Name: fmt.Sprintf("n%d", i+1), CPUs: cpus, Mem: memory}
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
	inventory := spec.Inventory{BootID: "boot", CPUs: node.Spec.CPUs, Mem: node.Spec.Mem}
	for _, gres := range node.Spec.GRES {
		for i := range gres.N {
			inventory.GPUs = append(
				inventory.GPUs,
				spec.GPU{
					Index: uint32(i), UUID: fmt.Sprintf("GPU-%s-%d", name, i), Type: gres.Type,
				},
			)
		}
	}
	h.Put(&event.NodeRegistered{Node: name, Inventory: inventory})
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
	Space                               string    // namespace of the pod that the job is; empty: it is none
	Part, Parts                         uint32    // of Parts components of a heterogeneous job, submitted one behind the other, it is this one, from 0
}

// Submit accepts a job, eligible at once unless it is held.
func (h *History) Submit(query Ask) spec.JobUID {
	h.t.Helper()
	if query.Partition == "" {
		query.Partition = "batch"
	}
	if query.Limit == 0 {
		query.Limit = spec.Hour
	}
	if query.Script == (spec.Hash{}) {
		query.Script = spec.Hash{1}
	}
	job := &spec.JobSpec{
		Name:       query.Name,
		User:       query.User,
		UID:        query.UID,
		Account:    query.Account,
		QOS:        query.QOS,
		Partitions: strings.Split(query.Partition, ","),
		Script:     query.Script,
		Line:       cmp.Or(query.Line, "sbatch "+query.Name),
		Time:       spec.TimeAsk{Limit: query.Limit},
		Size:       spec.Size{MinNodes: 1},
	}
	if query.Array != nil {
		job.Queue.Array = spec.NewArrayAsk(query.Array, 0)
	}
	if query.Space != "" {
		job.Script, job.Shell = spec.Hash{}, true
		job.Pods = &spec.PodSet{Space: query.Space, Pods: []spec.Pod{{UID: "uid-" +
			query.Name, Name: query.Name}}}
		job.Name = query.Space + "/" + query.Name
		job.Size.Tasks = 1
	}
	request := spec.TRES{
		CPU: max(query.CPUs, 1), Mem: query.Mem, Node: 1, Billing: max(query.CPUs, 1),
	}
	if query.GPUs > 0 {
		request = request.With("gres/gpu", query.GPUs).With("gres/gpu:h100", query.GPUs)
	}
	ev := &event.JobSubmitted{
		UID:      h.State.NextUID,
		ID:       h.State.NextID,
		Spec:     job,
		Req:      request,
		Eligible: h.Now,
		Reason:   spec.Reason{Code: spec.ReasonNone},
	}
	if query.Held {
		job.Queue.Hold = spec.HeldByUser
		ev.Eligible = 0
		ev.Reason = spec.Reason{
			Code: spec.ReasonHeldUser,
		}
	}
	if query.Parts > 0 {
		ev.Het = &spec.HetPart{
			Leader: ev.UID - spec.JobUID(query.Part),
			Offset: query.Part,
			Size:   query.Parts,
		}
	}
	h.Put(ev)
	return ev.UID
}

// Split gives a task of an array a record of its own.
func (h *History) Split(array spec.JobUID, task int64) spec.JobUID {
	h.t.Helper()
	record := h.State.Job(array)
	ev := &event.ArrayTaskSplit{Array: array, Task: task, UID: array, ID: record.ID}
	if record.Tasks.Len() > 1 {
		ev.UID, ev.ID = h.State.NextUID, h.State.NextID
	}
	h.Put(ev)
	return ev.UID
}

// Start opens an attempt on nodes: each gives the job's whole request.
func (h *History) Start(uid spec.JobUID, nodes ...string) bool {
	h.t.Helper()
	job := h.State.Job(uid)
	alloc := &spec.Allocation{
		Partition: job.Spec.Partitions[0], TRES: spec.TRES{Billing: job.Req.Billing}, Tasks: 1,
	}
	for _, name := range nodes {
		allocation, ok := Fit(h.State.Node(name), job.Req)
		if !ok {
			return false
		}
		alloc.Nodes = append(alloc.Nodes, allocation)
		alloc.TRES = alloc.TRES.Add(spec.TRES{CPU: job.Req.CPU, Mem: job.Req.Mem, Node: 1})
		for _, gpu := range allocation.GPUs {
			alloc.TRES = alloc.TRES.With("gres/gpu", alloc.TRES.Get("gres/gpu")+1)
			typed := "gres/gpu:" + gpu.Type
			alloc.TRES = alloc.TRES.With(typed, alloc.TRES.Get(typed)+1)
		}
	}
	for i := range alloc.Nodes {
		if node := h.State.Node(alloc.Nodes[i].Name); node.Power == event.PoweredDown {
			h.Put(&event.NodePowered{Nodes: []string{node.Spec.Name}, To: event.PowerUpWish})
		}
	}
	h.Put(
		&event.JobStarted{UID: uid, Attempt: job.Attempt +
			1, Alloc: alloc, Limit: job.Spec.Time.Limit, Priority: 100},
	)
	return true
}

// Fit takes the lowest free CPUs and devices of a node for a request.
func Fit(node *state.Node, request spec.TRES) (spec.NodeAlloc, bool) {
	alloc := spec.NodeAlloc{ID: node.ID, Name: node.Spec.Name, Mem: request.Mem, Tasks: 1}
	for i := range node.CPUs {
		if int64(alloc.CPUs.Count()) < request.CPU && !node.UsedCPU.Has(int(i)) {
			alloc.CPUs = alloc.CPUs.Set(int(i))
		}
	}
	for i := range node.GPUs {
		if int64(len(alloc.GPUs)) < request.Get("gres/gpu") && !node.UsedGPU.Has(i) {
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
	ok := int64(alloc.CPUs.Count()) == request.CPU &&
		int64(len(alloc.GPUs)) == request.Get("gres/gpu") &&
		node.FreeMem() >= request.Mem
	return alloc, ok
}

// End gives the verdict on a job.
func (h *History) End(uid spec.JobUID, jobState spec.JobState, exit spec.ExitStatus) {
	h.t.Helper()
	h.EndBy(uid, jobState, exit, 0)
}

// EndBy is End with the uid of who cancelled.
func (h *History) EndBy(uid spec.JobUID, jobState spec.JobState, exit spec.ExitStatus, by uint32) {
	h.t.Helper()
	h.Put(
		&event.JobEnded{
			UID:     uid,
			Attempt: h.State.Job(uid).Attempt,
			State:   jobState,
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
	history := *h
	h.State = h.State.Freeze()
	history.State = h.State.Fork()
	h.State = h.State.Fork()
	history.Log = append([]event.Envelope(nil), h.Log...)
	return &history
}
