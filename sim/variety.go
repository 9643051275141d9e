package sim

import (
	"crypto/sha256"
	"fmt"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// gpuTypes are those of the GPUs of a node in turn, where they have any.
var gpuTypes = [...]string{"a", "b"}

// nodeSpec describes a node.
func (p *Profile) nodeSpec(name string) spec.NodeSpec {
	nodeSpec := spec.NodeSpec{Name: name, CPUs: int64(p.CPUs), Mem: 1000}
	if p.GPUs == 0 {
		return nodeSpec
	}
	if !p.Typed {
		nodeSpec.GRES = []spec.GRESSpec{{Name: "gpu", N: int64(p.GPUs)}}
	} else {
		for i, typ := range gpuTypes {
			if n := (p.GPUs + 1 - i) / 2; n > 0 {
				nodeSpec.GRES = append(nodeSpec.GRES, spec.GRESSpec{Name: "gpu", Type: typ, N: int64(n)})
			}
		}
	}
	if p.Shards {
		nodeSpec.GRES = append(
			nodeSpec.GRES,
			spec.GRESSpec{Name: "shard", N: int64(shardsPerGPU * p.GPUs)},
		)
	}
	return nodeSpec
}

const shardsPerGPU = 3

// shortJobs is how many jobs run in the second QOS at once.
const shortJobs = 2

func shortQOS(profile Profile) spec.QOS {
	most := int64(shortJobs)
	qos := spec.QOS{ID: 2, Name: "short", GrpJobs: &most, Priority: 10}
	if profile.ByQOS {
		qos.Preempt = []string{"normal"}
	}
	return qos
}

// varyCluster adds the profile's variety other than nodes and jobs.
func (p *Profile) varyCluster(config *spec.Config, names []string) {
	for i := range config.Partitions {
		config.Partitions[i].AllNodes = p.Strangers > 0
	}
	if p.Sides {
		config.Partitions = append(
			config.Partitions,
			spec.PartitionSpec{
				Name:        "side",
				NodeNames:   names[:(len(names)+1)/2],
				DefaultTime: 5 * spec.Minute,
				MaxTime:     spec.Hour,
			},
		)
	}
	if p.ByQOS && p.Several && p.Preempt > 0 {
		config.Sched.PreemptType = "preempt/qos"
	}
}

// varyRequest adds a feature that not every site uses to a request, and returns its
// second component if the request is to have one.
func (w *World) varyRequest(jobSpec *spec.JobSpec) (rest []*spec.JobSpec) {
	profile := &w.profile
	if profile.Sides && w.rng.IntN(3) == 0 {
		jobSpec.Partitions = [...][]string{{"side"}, {"side", "main"}, {"main", "side"}}[w.rng.IntN(3)]
		if few := uint32(profile.Nodes+1) / 2; jobSpec.Size.MinNodes > few {
			jobSpec.Size.MinNodes, jobSpec.Size.Tasks = few, few
		}
	}
	if profile.Several && w.rng.IntN(2) == 0 {
		jobSpec.QOS = [...]string{"short", "normal,short", "short,normal"}[w.rng.IntN(3)]
	}
	switch {
	case profile.GPUs == 0:
	case len(jobSpec.Size.PerNode) > 0 && profile.Typed && w.rng.IntN(2) == 0:
		jobSpec.Size.PerNode = []spec.Count{{Name: "gpu", Type: gpuTypes[0], N: 1}}
	case len(jobSpec.Size.PerNode) == 0 && profile.Shards && w.rng.IntN(3) == 0:
		jobSpec.Size.PerNode = []spec.Count{{Name: "shard", N: int64(1 + w.rng.IntN(shardsPerGPU))}}
	}
	if profile.Apart && w.rng.IntN(4) == 0 {
		jobSpec.Place.Sharing = [...]spec.Sharing{spec.Exclusive, spec.ExclusiveUser}[w.rng.IntN(2)]
	}
	if profile.ReserveEvery > 0 && w.rng.IntN(4) == 0 {
		jobSpec.Place.Reservation = w.resvName()
	}
	if profile.CPUs < 2 || jobSpec.Queue.Array != nil || w.rng.IntN(100) >= profile.Het {
		return nil
	}
	// One node must have room for two such components.
	jobSpec.Licenses = nil
	jobSpec.Size = spec.Size{Tasks: 1}
	jobSpec.Place.Sharing = spec.ShareDefault
	other := *jobSpec
	if profile.GPUs > 0 {
		other.Size.PerNode = []spec.Count{{Name: "gpu", N: 1}}
	}
	other.Queue, other.Time.Begin = spec.QueueAsk{}, 0
	return []*spec.JobSpec{&other}
}

func (w *World) resvName() string { return fmt.Sprintf("r%d", 1+w.rng.IntN(3)) }

// runVariety lets operators do what not every site needs.
func (w *World) runVariety() {
	profile := &w.profile
	w.repeatEvery(profile.ReserveEvery, w.changeReservation)
	w.repeatEvery(profile.ControlEvery, w.controlCluster)
	if profile.Strangers > 0 {
		w.repeatEvery(
			profile.StrangeEvery,
			func() { w.changeStranger(w.nodes[profile.Nodes+w.rng.IntN(profile.Strangers)]) },
		)
	}
}

// changeReservation makes, changes or ends a reservation of nodes, of cores or of GPUs.
func (w *World) changeReservation() {
	name := w.resvName()
	number := func(most int) string { return fmt.Sprint(1 + w.rng.IntN(most)) }
	who := spec.KeyValue{Key: "users", Value: [...]string{"u0", "u1", "-u2"}[w.rng.IntN(3)]}
	switch w.rng.IntN(5) {
	case 0:
		w.ctl.decideCommand(rootActor(), scheduler.DeleteReservation{Name: name, Admin: true}, nil)
		return
	case 1:
		w.ctl.decideCommand(
			rootActor(),
			scheduler.UpdateReservation{
				Name: name,
				Set:  []spec.KeyValue{who, {Key: "duration", Value: number(10)}},
			},
			nil,
		)
		return
	}
	node := w.nodes[w.rng.IntN(w.profile.Nodes)].name
	kinds := [][]spec.KeyValue{
		{
			{Key: "nodes", Value: "ALL"},
		}, {{Key: "nodes", Value: node}}, {{Key: "nodecnt", Value: number(2)}}, {{Key: "corecnt", Value: number(4)}},
		{
			{Key: "corecnt", Value: number(2)},
			{Key: "nodes", Value: node},
		}, {{Key: "tres", Value: "cpu=" +
			number(6)}}, {{Key: "tres", Value: "gres/gpu=" + number(3)}},
		{
			{Key: "trespernode", Value: "cpu=1,gres/gpu=1"},
			{Key: "nodecnt", Value: number(2)},
		}, {{Key: "licenses", Value: "l:1"}, {Key: "nodecnt", Value: "1"}},
	}
	flags := [...]string{
		"",
		"",
		"MAINT",
		"FLEX",
		"MAGNETIC",
		"OVERLAP",
		"IGNORE_JOBS",
		"OVERLAP,IGNORE_JOBS",
		"DAILY",
		"HOURLY",
		"PURGE_COMP=1",
		"REPLACE",
		"REPLACE_DOWN",
		"TIME_FLOAT",
		"NO_HOLD_JOBS_AFTER_END",
	}
	set := append(
		kinds[w.rng.IntN(len(kinds))],
		who,
		spec.KeyValue{Key: "flags", Value: flags[w.rng.IntN(len(flags))]},
		spec.KeyValue{
			Key:   "starttime",
			Value: fmt.Sprintf("now+0:0:%d", w.rng.IntN(180)),
		},
		spec.KeyValue{Key: "duration", Value: number(10)},
	)
	w.noteLine("reservation %s: %v", name, set)
	w.ctl.decideCommand(rootActor(), scheduler.CreateReservation{Name: name, Set: set}, nil)
}

// controlCluster is what operators change of partitions, nodes and jobs.
func (w *World) controlCluster() {
	switch part := w.ctl.st.Parts.Find([...]string{"main", "side", "extra"}[w.rng.IntN(3)]); w.rng.IntN(6) {
	case 0, 1:
		if part == nil {
			return
		}
		next := part.Spec.WithoutNodes()
		next.State = [...]spec.PartitionState{spec.PartitionUp, spec.PartitionDown, spec.PartitionDrain, spec.PartitionInactive}[w.rng.IntN(4)]
		next.MaxTime = spec.Span(1+w.rng.IntN(60)) * spec.Minute
		w.noteLine(
			"partition %s: state %d, %d minutes",
			next.Name,
			next.State,
			next.MaxTime/spec.Minute,
		)
		w.ctl.decideCommand(
			rootActor(),
			scheduler.UpdatePartition{Old: part.Spec.WithoutNodes(), New: next},
			nil,
		)
	case 2:
		w.ctl.decideCommand(
			rootActor(),
			scheduler.CreatePartition{
				New: spec.PartitionSpec{
					Name:        "extra",
					NodeNames:   []string{nodeName(0)},
					DefaultTime: spec.Minute,
					MaxTime:     spec.Hour,
					State:       spec.PartitionUp,
				},
			},
			nil,
		)
	case 3:
		w.ctl.decideCommand(rootActor(), scheduler.DeletePartition{Name: "extra"}, nil)
	case 4:
		weight, features := uint32(w.rng.IntN(3)), []string(nil)
		if w.rng.IntN(2) == 0 {
			features = []string{"f"}
		}
		w.ctl.decideCommand(
			rootActor(),
			scheduler.UpdateNodes{
				Nodes:     []string{w.nodes[w.rng.IntN(w.profile.Nodes)].name},
				Weight:    &weight,
				Available: &features,
				Active:    &features,
			},
			nil,
		)
	case 5:
		changes := [...]spec.KeyValue{
			{Key: "timelimit", Value: fmt.Sprint(1 + w.rng.IntN(5))},
			{Key: "priority", Value: fmt.Sprint(1 + w.rng.IntN(9))},
			{Key: "nice", Value: "5"},
			{
				Key:   "partition",
				Value: "main,extra",
			},
			{Key: "partition", Value: "extra"},
			{Key: "qos", Value: "short"},
			{Key: "reservationname", Value: "r1"},
			{Key: "licenses", Value: "l:2"},
			{Key: "arraytaskthrottle", Value: "1"},
		}
		kv := changes[w.rng.IntN(len(changes))]
		w.onSomeJob(func(target scheduler.Target) scheduler.Command {
			return scheduler.UpdateJob{Target: target, Admin: true, Changes: []spec.KeyValue{kv}}
		})
	}
}

// changeStranger switches a node that no file has on or off, or has it described or
// deleted by an operator, who does not look whether it is needed.
func (w *World) changeStranger(n *node) {
	switch w.rng.IntN(4) {
	case 0:
		if w.ctl.st.Node(n.name) == nil {
			w.ctl.decideCommand(
				rootActor(),
				scheduler.CreateNodes{Nodes: []spec.NodeSpec{w.profile.nodeSpec(n.name)}},
				nil,
			)
		}
	case 1:
		w.noteLine("%s is to be deleted", n.name)
		w.ctl.decideCommand(rootActor(), scheduler.DeleteNodes{Nodes: []string{n.name}}, nil)
	case 2:
		if !n.dead {
			w.noteLine("%s is switched off", n.name)
			n.killMachine()
		}
	default:
		if n.dead {
			n.dead = false
			n.connectSoon()
		}
	}
}

// undoOperators reverts the operators' changes once the faults have ceased.
func (w *World) undoOperators() {
	cluster := w.ctl.st
	for i := range cluster.Reservations {
		w.ctl.decideCommand(
			rootActor(),
			scheduler.DeleteReservation{Name: cluster.Reservations[i].Name, Admin: true},
			nil,
		)
		break // the others when it comes round again: this one changed the list
	}
	for i := range cluster.Config.Partitions {
		if partition := &cluster.Config.Partitions[i]; partition.State != spec.PartitionUp ||
			partition.MaxTime != spec.Hour {
			next := partition.WithoutNodes()
			next.State, next.MaxTime = spec.PartitionUp, spec.Hour
			w.ctl.decideCommand(
				rootActor(),
				scheduler.UpdatePartition{Old: partition.WithoutNodes(), New: next},
				nil,
			)
			break
		}
	}
	for _, node := range w.nodes[w.profile.Nodes:] {
		if node.dead {
			node.dead = false
			node.connectSoon()
		}
	}
}

// ranIn is the QOS in which a job was started.
func ranIn(job *state.Job) string {
	switch {
	case job.Alloc != nil && job.Alloc.QOS != "":
		return job.Alloc.QOS
	case job.Spec.QOS == "":
		return "normal"
	}
	return job.Spec.QOS
}

// inQOS counts the jobs in the second QOS, if a job is.
func (w *World) inQOS(cluster *state.State, job *state.Job) (n int) {
	if ranIn(job) != "short" {
		return 0
	}
	cluster.Active.Range(func(uid uint64, _ struct{}) bool {
		if o := cluster.Job(spec.JobUID(uid)); o.State.Active() && ranIn(o) == "short" {
			n++
		}
		return true
	})
	return n
}

// judgeReserved: a job that is in no reservation does not run on nodes that one
// keeps whole, from the beginning to the end of that.
func (w *World) judgeReserved(
	before *state.State,
	e *event.JobStarted,
	job *state.Job,
	at spec.Instant,
) {
	for i := range before.Reservations {
		reservation := &before.Reservations[i]
		if e.Alloc.Reservation != "" || reservation.Cores != nil ||
			reservation.Flags.Has(spec.ResvMagnetic) {
			continue
		}
		start, end := reservation.Start, reservation.End
		if reservation.Flags.Has(spec.ResvTimeFloat) {
			start, end = at.Add(reservation.Ahead), spec.FarFuture
		}
		for k := range e.Alloc.Nodes {
			for _, name := range reservation.Nodes {
				if name == e.Alloc.Nodes[k].Name && at < end && start < at.Add(e.Limit) {
					w.failSeed(
						"job uid %d starts on %s for %d s, but reservation %s has the node in %d s",
						job.UID,
						name,
						e.Limit/spec.Second,
						reservation.Name,
						start.Sub(at)/spec.Second,
					)
				}
			}
		}
	}
}

// judgeTogether checks that either all components of a heterogeneous job run, or none.
func (w *World) judgeTogether() {
	cluster := w.ctl.st
	cluster.Active.Range(func(uid uint64, _ struct{}) bool {
		job := cluster.Job(spec.JobUID(uid))
		if job.Het == nil || !job.GoesOn() {
			return true
		}
		for _, component := range cluster.Components(job) {
			if component.State == spec.Pending {
				w.failSeed(
					"heterogeneous job: component uid %d runs, but uid %d is pending", job.UID, component.UID,
				)
			}
		}
		return w.err == nil
	})
}

// judgeIdle: after a pass about the present, no job waits for resources that a
// node has idle for as long as it may run. What is idle now may be promised to
// somebody, so only nodes count of which nothing is.
func (w *World) judgeIdle(outcome *scheduler.Outcome, options scheduler.PassOptions) {
	cluster, now := w.ctl.st, w.ctl.clockNow()
	sawAll := !options.Incremental && !outcome.Plan.Truncated &&
		cluster.Config.Sched.BFMaxJobTest == 0
	if w.err != nil || !sawAll || len(cluster.Reservations) > 0 {
		return
	}
	idle := w.unpromisedNodes(outcome)
	cluster.Waiting.Range(func(uid uint64, _ struct{}) bool {
		job := cluster.Job(spec.JobUID(uid))
		if !lacksNodes(job, now) || !isJudgedSize(job) {
			return true
		}
		for _, node := range idle {
			if w.wouldFit(job, node) {
				w.failSeed(
					"job uid %d is pending with reason %s, but node %s has the idle resources that it needs",
					job.UID,
					job.Reason.Code,
					node.Spec.Name,
				)
			}
		}
		return w.err == nil
	})
}

// unpromisedNodes are the nodes in service that no plan uses and on which no job is preempted.
func (w *World) unpromisedNodes(outcome *scheduler.Outcome) (list []*state.Node) {
	cluster := w.ctl.st
	taken := map[spec.NodeID]bool{}
	for i := range outcome.Plan.Jobs {
		for _, id := range outcome.Plan.Jobs[i].Nodes {
			taken[id] = true
		}
	}
	claims := false
	cluster.Waiting.Range(func(uid uint64, _ struct{}) bool {
		claims = claims || cluster.Job(spec.JobUID(uid)).Claim != nil
		return !claims
	})
	cluster.Nodes.Range(func(_ uint64, node *state.Node) bool {
		isUp := node.Usable() && node.Power == event.PowerOn && node.Reboot == nil
		if isUp && !claims && !taken[node.ID] && node.Unused() {
			list = append(list, node)
		}
		return true
	})
	return list
}

// wouldFit tells whether a job on one node has room on an empty one of its
// partitions.
func (w *World) wouldFit(job *state.Job, node *state.Node) bool {
	in := false
	for _, name := range job.Spec.Partitions {
		partition := w.ctl.st.Parts.Find(name)
		if partition == nil || partition.Spec.State != spec.PartitionUp ||
			!partition.Nodes.Has(int(node.ID)) {
			continue
		}
		in = in || job.Spec.Time.Limit <= partition.Spec.MaxTime
	}
	var gpus, shards int64
	for _, count := range job.Spec.Size.PerNode {
		if count.Type != "" && count.Type != gpuTypes[0] {
			return false
		}
		if count.Name == "gpu" {
			gpus += count.N
		} else {
			shards += count.N
		}
	}
	gpusFit := gpus <= int64(len(node.GPUs)) && (shards == 0 || len(node.GPUs) > 0)
	return in && gpusFit && int64(job.Spec.Size.Tasks) <= node.CPUs
}

// Starts counts those that were of a kind.
type Starts struct {
	Reserved, Together, Shared, Short, Side, Strange int
}

// countStart adds a start that is on the disk.
func (s *Starts) countStart(e *event.JobStarted, job *state.Job) {
	add := func(n *int, is bool) {
		if is {
			*n++
		}
	}
	allocation := e.Alloc
	add(&s.Reserved, allocation.Reservation != "")
	add(&s.Together, job != nil && job.Het != nil)
	add(&s.Shared, len(allocation.Nodes[0].Shares) > 0)
	add(&s.Short, allocation.QOS == "short")
	add(&s.Side, allocation.Partition == "side")
	add(&s.Strange, allocation.Nodes[len(allocation.Nodes)-1].Name[0] == 'd')
}

// Add adds the counts of another run.
func (s *Starts) Add(starts Starts) {
	s.Reserved += starts.Reserved
	s.Together += starts.Together
	s.Shared += starts.Shared
	s.Short += starts.Short
	s.Side += starts.Side
	s.Strange += starts.Strange
}

// hashLog is a hash of the log, batch by batch.
func (g *group) hashLog() (sum [32]byte) {
	h := sha256.New()
	for _, e := range g.chosen {
		h.Write(e.batch.bytes)
	}
	h.Sum(sum[:0])
	return sum
}

// lacksNodes tells whether a job could have started before now and waits for nothing but nodes.
func lacksNodes(job *state.Job, now spec.Instant) bool {
	if job.Eligible == 0 || job.Eligible >= now {
		return false
	}
	return job.Reason.Code == spec.ReasonResources || job.Reason.Code == spec.ReasonPriority
}

// isJudgedSize tells whether one idle node decides whether a job has room.
func isJudgedSize(job *state.Job) bool {
	if job.Het != nil || job.Claim != nil || job.Spec.Place.Reservation != "" {
		return false
	}
	return job.Spec.Size.MinNodes <= 1 && job.Spec.Place.Sharing == spec.ShareDefault
}
