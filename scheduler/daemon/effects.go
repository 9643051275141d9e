package daemon

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/credentials"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// sendEffects sends the agents what a durable batch asks of them. Every order is
// idempotent, and all can be derived again from the state when an agent
// connects (reconcile): an order that is lost is only late.
func (h *hub) sendEffects(batch *flight) {
	h.turn.Lock()
	defer h.turn.Unlock()
	for i := range batch.events {
		switch e := batch.events[i].Event.(type) {
		case *event.JobStarted:
			h.orderLaunch(batch.state, e.UID, "")
			h.c.ctl.noteStarted(batch.state, e.UID)
		case *event.JobPrepared:
			h.orderLaunch(batch.state, e.UID, "")
			if batch.state.Job(e.UID).State == spec.Suspended {
				h.orderSignal(batch.state.Job(e.UID), "")
			}
		case *event.JobReady:
			h.startReady(batch.state, batch.state.Job(e.UID))
		case *event.NodePowered:
			h.runPowerStep(batch.state, e)
		case *event.NodeReboot:
			if e.Phase == event.RebootIssued {
				h.orderReboot(batch.state.Node(e.Node))
			}
		case *event.NodeAdded:
			if conn := h.connOf(e.Node.Name); conn != nil { // of a node that was deleted
				conn.sayGoodbye("the node was added: register again")
			}
		case *event.JobNodeDone:
			if e.Unfenced {
				h.stopGivenUp(batch.state, e.Node)
			}
		case *event.NodeReturned:
			// Only a registration says which runs live there, also those that an
			// operator wrongly took for fenced.
			if conn := h.connOf(e.Node); conn != nil {
				conn.sayGoodbye("the node was given up: register again")
			}
		case *event.JobEndRequested:
			h.c.ctl.stopProlog(scheduler.Run{UID: e.UID, Attempt: e.Attempt})
			h.orderTermination(batch.state, batch.state.Job(e.UID), "")
		case *event.JobShrunk:
			for _, name := range e.Nodes {
				h.orderTermination(batch.state, batch.state.Job(e.UID), name)
			}
		case *event.JobRequeued:
			h.c.ctl.noteEnded(batch.state, scheduler.Run{UID: e.UID, Attempt: e.Attempt})
			h.prologs.forgetJob(e.UID)
		case *event.JobEnded:
			h.c.ctl.noteEnded(batch.state, scheduler.Run{UID: e.UID, Attempt: e.Attempt})
			h.prologs.forgetJob(e.UID)
			if job := batch.state.Job(e.UID); job != nil && job.HoldsNodes() {
				h.orderTermination(batch.state, job, "")
			}
		case *event.JobSignalled:
			h.orderSignal(batch.state.Job(e.UID), "")
		case *event.JobSuspended:
			h.orderSignal(batch.state.Job(e.UID), "")
		case *event.JobResumed:
			h.orderSignal(batch.state.Job(e.UID), "")
		case *event.JobSubmitted:
			if e.Spec.Attended {
				h.c.present.expectClient(jobKey(e.UID))
			}
		case *event.StepStarted:
			if e.Ticket != "" {
				h.c.present.expectClient(attended{e.UID, e.Attempt, e.Step})
			}
			job, step := stepOf(batch.state, e.UID, e.Step)
			h.launchStep(batch.state, job, step, "")
		case *event.StepEndRequested:
			job, step := stepOf(batch.state, e.UID, e.Step)
			h.endStep(batch.state, job, step, "")
		case *event.StepSignalled:
			job, step := stepOf(batch.state, e.UID, e.Step)
			h.signalStep(job, step, "")
		}
	}
}

// reconcileNode sends an agent everything its node should be running, and the end
// of what should be ending. The agent's shepherd starts nothing twice.
func (h *hub) reconcileNode(snapshot *view.View, node string) []*apiv1.RunKey {
	n := snapshot.State.Node(node)
	if n == nil {
		return nil
	}
	if n.IsRebooting() {
		h.orderReboot(n)
	}
	var desired []*apiv1.RunKey
	for _, uid := range n.Jobs {
		job := snapshot.State.Job(uid)
		if job == nil || job.Alloc == nil || job.Spec.Runner() != spec.ByAgents {
			continue
		}
		desired = append(desired, runKey(job))
		if job.GoesOn() && !slices.Contains(job.Leaving, node) {
			h.orderLaunch(snapshot.State, uid, node)
			if job.Paused > 0 || job.State == spec.Suspended { // it stands still there, or goes on
				h.orderSignal(job, node)
			}
		} else {
			h.orderTermination(snapshot.State, job, node)
		}
		desired = append(desired, h.reconcileSteps(snapshot.State, job, node)...)
	}
	return desired
}

func runKey(job *state.Job) *apiv1.RunKey {
	return &apiv1.RunKey{
		JobUid:  uint64(job.UID),
		Attempt: job.Attempt,
		Step:    int32(spec.StepBatch),
		Epoch:   job.Epoch,
	}
}

// orderLaunch orders a job's start on its nodes, or on one of them.
func (h *hub) orderLaunch(cluster *state.State, uid spec.JobUID, only string) {
	job := cluster.Job(uid)
	if job == nil || job.Spec.Runner() != spec.ByAgents {
		return
	}
	if !job.GoesOn() || job.Prepares || waitsForBoot(cluster, job) {
		return
	}
	defers := defersBatch(cluster, job)
	// Agents of older releases refuse a credential that names an epoch.
	var orders [2]*apiv1.Launch
	for i := range job.Alloc.Nodes {
		alloc := &job.Alloc.Nodes[i]
		if (only != "" && alloc.Name != only) || job.Done.Has(i) ||
			slices.Contains(job.Leaving, alloc.Name) {
			continue
		}
		conn := h.connOf(alloc.Name)
		if conn == nil {
			continue // it will be reconciled when it connects
		}
		form := 0
		if conn.epochs {
			form = 1
		}
		if orders[form] == nil {
			var err error
			orders[form], err = h.launchOrder(cluster, job, conn.epochs)
			if err != nil {
				h.launchImpossible(job, alloc.Name, err)
				return
			}
		}
		order := orders[form]
		launch := &apiv1.Launch{
			Job:        order.Job,
			Credential: order.Credential,
			Groups:     order.Groups,
			NodeIndex:  uint32(i),
			Batch:      i == 0 && !job.Spec.Shell,
			Here: wire.NodeAlloc(
				partOf(cluster, job, i),
			),
			CpusPerNode:  order.CpusPerNode,
			TasksPerNode: order.TasksPerNode,
			Launch:       order.Launch,
			Seq:          order.Seq,
			TellPrepared: defers,
		}
		launch.Defer = launch.Batch && defers && !h.isPrepared(job)
		launch.Adopted = job.Adopted
		if launch.Batch {
			launch.Script = order.Script
			launch.Environment = order.Environment
			launch.Components = order.Components
			launch.Record = order.Record
		}
		var err error
		launch.Lease, err = h.leaseFor(conn, cluster, job)
		if err != nil {
			h.launchImpossible(job, alloc.Name, err)
			return
		}
		conn.queueOrder(&apiv1.Order{Run: runKey(job), Kind: &apiv1.Order_Launch{Launch: launch}})
	}
}

// partOf is what a job has of one of its nodes, less what --core-spec or
// --thread-spec leaves to the system there.
func partOf(cluster *state.State, job *state.Job, i int) *spec.NodeAlloc {
	alloc := &job.Alloc.Nodes[i]
	node := cluster.NodeByID(alloc.ID)
	if node == nil || job.Spec.Size.CoreSpec+job.Spec.Size.ThreadSpec == 0 {
		return alloc
	}
	part := *alloc
	part.CPUs = place.ForTasks(node, alloc.CPUs, job.Spec)
	return &part
}

// launchOrder is what all nodes of a job get. It does not grow with their
// number, but for lists that are folded: each node learns its own part only,
// so that a job of a thousand nodes does not send a thousand parts to each.
// epochs tells whether the agent knows run keys with epochs.
func (h *hub) launchOrder(
	cluster *state.State, job *state.Job, epochs bool,
) (*apiv1.Launch, error) {
	jobSpec := job.Spec
	launch := h.jobOrder(cluster, job)
	launch.Components = hetComponents(cluster, job)
	var err error
	for _, b := range [...]struct {
		hash spec.Hash
		to   *[]byte
	}{{jobSpec.Script, &launch.Script}, {jobSpec.Env, &launch.Environment}} {
		if b.hash.IsZero() || job.Adopted { // which runs, and whose script may be lost
			continue
		}
		*b.to, err = h.c.deps.Blobs.Get(b.hash)
		if err != nil {
			return nil, fmt.Errorf("content %s of job %d: %w", b.hash, job.ID, err)
		}
	}
	now := h.c.deps.Clock.Now()
	claims := credentials.Claims{
		Cluster: cluster.UUID,
		Job:     job.UID,
		Attempt: job.Attempt,
		Step:    spec.StepBatch,
		UID:     jobSpec.UID,
		GID:     jobSpec.GID,
		Groups:  jobSpec.Groups,
		Nodes:   job.Alloc.NodeNames(),
		Issued:  now,
		Expires: now.Add(120 * spec.Second),
		Launch:  jobSpec.Script,
	}
	if epochs && job.Epoch != 0 {
		hash := launchHash(job)
		claims.Epoch, claims.Run = job.Epoch, hash
		launch.Launch, launch.Seq = hash[:], job.StartSeq
		if launch.Record, err = h.recordOf(cluster, job); err != nil {
			return nil, err
		}
	}
	launch.Credential, err = h.c.deps.Access.Sign(claims)
	return launch, err
}

// launchHash identifies what an attempt starts, for whom and where: it never
// changes while the attempt lives.
func launchHash(job *state.Job) spec.Hash {
	sum := sha256.New()
	sum.Write(job.Spec.Script[:])
	sum.Write(job.Spec.Env[:])
	number := func(n uint64) { sum.Write(binary.BigEndian.AppendUint64(nil, n)) }
	number(uint64(job.Spec.UID))
	number(uint64(job.Spec.GID))
	nodes := job.StartedWith().Nodes // it may have given some back since
	number(uint64(len(nodes)))
	for i := range nodes {
		part, err := proto.MarshalOptions{Deterministic: true}.Marshal(wire.NodeAlloc(&nodes[i]))
		if err != nil { // a name that is not UTF-8
			part = []byte(err.Error())
		}
		number(uint64(len(part)))
		sum.Write(part)
	}
	return spec.Hash(sum.Sum(nil))
}

// jobOrder describes a job to the agents of its nodes.
func (h *hub) jobOrder(cluster *state.State, job *state.Job) *apiv1.Launch {
	launch := &apiv1.Launch{
		Job:    wire.NewShower(&view.View{State: cluster}, h.c.deps.Clock.Now(), true).Job(job),
		Groups: job.Spec.Groups,
	}
	launch.Job.Allocation = nil
	launch.Job.Steps = nil
	launch.Job.Spec.Qos = job.QOS()
	cpus, tasks := make([]int64, len(job.Alloc.Nodes)), make([]int64, len(job.Alloc.Nodes))
	for i := range job.Alloc.Nodes {
		allocation := partOf(cluster, job, i)
		cpus[i], tasks[i] = int64(allocation.CPUs.Count()), int64(max(allocation.Tasks, 1))
	}
	launch.CpusPerNode, launch.TasksPerNode = format.PerNode(cpus), format.PerNode(tasks)
	return launch
}

// hetComponents is what the leader of a heterogeneous job learns about all components.
func hetComponents(cluster *state.State, job *state.Job) []*apiv1.HetComponent {
	if !job.Het.Leads() {
		return nil
	}
	var components []*apiv1.HetComponent
	for _, component := range cluster.Components(job) {
		if component.Alloc == nil {
			continue
		}
		cpus, tasks := make([]int64, len(component.Alloc.Nodes)),
			make([]int64, len(component.Alloc.Nodes))
		for i := range component.Alloc.Nodes {
			allocation := partOf(cluster, component, i)
			cpus[i], tasks[i] = int64(allocation.CPUs.Count()), int64(max(allocation.Tasks, 1))
		}
		components = append(
			components,
			&apiv1.HetComponent{
				JobId:     uint32(component.ID),
				Partition: component.Alloc.Partition,
				Nodes:     hostlist.Fold(component.Alloc.NodeNames()),
				NumNodes: uint32(
					len(cpus),
				),
				Tasks:        component.Alloc.Tasks,
				CpusPerNode:  format.PerNode(cpus),
				TasksPerNode: format.PerNode(tasks),
				Mem:          component.Alloc.Nodes[0].Mem,
				CpusPerTask:  component.Spec.Size.CPUsPerTask,
				MemPerCpu:    component.Spec.Size.MemPerCPU,
			},
		)
	}
	return components
}

// launchImpossible ends an attempt whose content is gone, or whose node has an agent
// that is too old for it. Such a node is drained: it would fail every job.
func (h *hub) launchImpossible(job *state.Job, node string, cause error) {
	h.c.deps.Logger.Error("a job cannot be launched", aboutJob(h.c.View().State, job), "node", node, "error", cause)
	failed := &scheduler.LaunchFailed{Text: cause.Error(), Drain: errors.Is(cause, errNoLeases)}
	run := scheduler.Run{UID: job.UID, Attempt: job.Attempt}
	r := &request{
		cmd:   scheduler.Report{Node: node, Run: run, Epoch: job.Epoch, LaunchFailed: failed},
		actor: event.Actor{Kind: event.ActorSystem},
		reply: make(chan reply, 1),
	}
	select {
	case h.c.writer.cmds <- r:
	default: // the time limit will end it
	}
}

// orderTermination orders an attempt's end on the nodes it still holds.
func (h *hub) orderTermination(cluster *state.State, job *state.Job, only string) {
	if job == nil || job.Alloc == nil || job.Spec.Runner() != spec.ByAgents {
		return
	}
	terminate := &apiv1.Terminate{Grace: int64(killWait(cluster.Config))}
	if job.Ending != nil {
		terminate.Cause, terminate.Note = uint32(job.Ending.Cause), endNote(job)
		if job.Ending.Grace > 0 {
			terminate.Grace = int64(job.Ending.Grace)
		}
	}
	for i := range job.Alloc.Nodes {
		name := job.Alloc.Nodes[i].Name
		if job.Done.Has(i) || (only != "" && name != only) {
			continue
		}
		if conn := h.connOf(name); conn != nil {
			conn.queueOrder(
				&apiv1.Order{Run: runKey(job), Kind: &apiv1.Order_Terminate{Terminate: terminate}},
			)
		}
	}
}

func killWait(config *spec.Config) spec.Span {
	if config.Timing.KillWait > 0 {
		return config.Timing.KillWait
	}
	return 30 * spec.Second
}

// endNote is the tail of the line that a job finds in its error output.
func endNote(job *state.Job) string { return causeNote(job.Ending.Cause) }

func causeNote(cause event.EndCause) string {
	switch cause {
	case event.EndTimeLimit:
		return "DUE TO TIME LIMIT"
	case event.EndPreempt:
		return "DUE TO PREEMPTION"
	case event.EndNodeLost:
		return "DUE TO NODE FAILURE"
	case event.EndRequeue:
		return "DUE TO JOB REQUEUE"
	}
	return ""
}

func (h *hub) orderSignal(job *state.Job, only string) {
	if job == nil || job.Alloc == nil || job.LastSignal == nil {
		return
	}
	signal := &apiv1.SignalRun{
		Signal: job.LastSignal.Number,
		Scope:  uint32(job.LastSignal.Scope),
		Seq:    job.LastSignal.Seq,
	}
	for i := range job.Alloc.Nodes {
		name := job.Alloc.Nodes[i].Name
		if only != "" && name != only {
			continue
		}
		if conn := h.connOf(name); conn != nil && !job.Done.Has(i) {
			conn.queueOrder(
				&apiv1.Order{Run: runKey(job), Kind: &apiv1.Order_Signal{Signal: signal}},
			)
		}
	}
}
