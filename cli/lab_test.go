package cli

import (
	"fmt"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// at gives nanoseconds of a time of the day on which the lab ran.
func at(clock string) int64 {
	t, err := time.Parse("2006-01-02 15:04:05", "2026-11-21 "+clock)
	if err != nil {
		panic(err)
	}
	return t.UnixNano()
}

const hour = int64(spec.Hour)

// lab is two nodes of eight CPUs and eight GPUs in two partitions.
func (w *world) lab() {
	w.nodes = []*apiv1.NodeInfo{labNode("node1", 1701, "01:43:25"), labNode("node2", 1702, "01:43:21")}
	part := func(name string, def bool, most, usual int64, factor uint32) *apiv1.PartitionInfo {
		return &apiv1.PartitionInfo{Name: name, IsDefault: def, State: uint32(spec.PartitionUp), Nodes: "node[1-2]", NodeNames: []string{"node1", "node2"}, MaxTime: most, DefaultTime: usual,
			PriorityTier: 1, PriorityJobFactor: factor, TotalCpus: 16, TotalNodes: 2,
			Tres: &apiv1.Tres{Cpu: 16, Mem: 32000, Node: 2, Billing: 16, Other: []*apiv1.NamedCount{{Name: "gres/gpu", N: 16}}}}
	}
	w.parts = []*apiv1.PartitionInfo{part("gpu", true, 24*hour, hour, 1), part("debug", false, hour/2, hour/12, 10)}
}

func labNode(name string, port uint32, busy string) *apiv1.NodeInfo {
	return &apiv1.NodeInfo{Name: name, Hostname: "vm", Addr: "127.0.0.1", Port: port, Partitions: []string{"gpu", "debug"}, Cpus: 8, Boards: 1, Sockets: 1, CoresPerSocket: 8,
		ThreadsPerCore: 1, Mem: 16000, MemFree: 19507, Weight: 1, Gres: "gpu:8", GresUsed: "gpu:0", Version: "22.05.8", Os: "Linux 6.18.44-fc-v595 #1 SMP PREEMPT_DYNAMIC @0",
		Arch: "x86_64", BootTime: at("01:29:51"), AgentStart: at("01:42:56"), LastBusy: at(busy), LoadMilli: 780, Registered: true, State: "IDLE",
		CfgTres: &apiv1.Tres{Cpu: 8, Mem: 16000, Node: 1, Billing: 8, Other: []*apiv1.NamedCount{{Name: "gres/gpu", N: 8}}}, AllocTres: &apiv1.Tres{}}
}

// busy makes a node run something.
func busy(n *apiv1.NodeInfo, state string, cpus, mem, gpus int64) {
	n.State, n.CpusAlloc, n.MemAlloc, n.JobsRunning = state, cpus, mem, 1
	n.GresUsed = fmt.Sprintf("gpu:%d", gpus)
	n.AllocTres = &apiv1.Tres{Cpu: cpus, Mem: mem, Other: []*apiv1.NamedCount{{Name: "gres/gpu", N: gpus}}}
}

// labJob is a job of the lab; edit it for what the scenario needs.
func labJob(id uint32, name, user string, state spec.JobState, edit ...func(*apiv1.JobInfo)) *apiv1.JobInfo {
	uid := map[string]uint32{"alice": 1001, "bob": 1002}[user]
	account := map[string]string{"alice": "ml", "bob": "physics"}[user]
	j := &apiv1.JobInfo{JobId: id, Uid: uint64(id), ArrayTask: -1, User: user, UserId: uid, Group: user, GroupId: uid, State: uint32(state), Partition: "gpu",
		TimeLimit: hour, NumNodes: 1, NumCpus: 1, NumTasks: 1, Priority: 10646, Reason: &apiv1.Reason{Code: "None"},
		ReqTres: &apiv1.Tres{Cpu: 1, Mem: 500, Node: 1, Billing: 1},
		Spec:    &apiv1.JobSpec{Name: name, Account: account, Qos: "normal", WorkDir: "/lab/jobs", SubmitHost: "localhost", MemPerCpu: 500},
		Stdout:  fmt.Sprintf("/lab/jobs/slurm-%d.out", id), Stderr: fmt.Sprintf("/lab/jobs/slurm-%d.out", id), Stdin: "/dev/null"}
	for _, e := range edit {
		e(j)
	}
	if spec.JobState(j.GetState()) != spec.Pending {
		j.AllocTres = j.GetReqTres()
	}
	return j
}

// ran gives a job times and nodes.
func ran(start, end, nodes string) func(*apiv1.JobInfo) {
	return func(j *apiv1.JobInfo) {
		j.Start, j.Nodes, j.BatchHost = at(start), nodes, nodes
		j.End = j.GetStart() + j.GetTimeLimit()
		if end != "" {
			j.End = at(end)
		}
		if j.GetSubmit() == 0 {
			j.Submit, j.Eligible, j.LastSchedEval = j.GetStart(), j.GetStart(), j.GetStart()
		}
	}
}

func waits(reason string) func(*apiv1.JobInfo) {
	return func(j *apiv1.JobInfo) { j.Reason = &apiv1.Reason{Code: reason} }
}

func gpus(n int64) func(*apiv1.JobInfo) {
	return func(j *apiv1.JobInfo) {
		j.Spec.PerNode = []*apiv1.Count{{Name: "gpu", N: n}}
		j.ReqTres.Other = []*apiv1.NamedCount{{Name: "gres/gpu", N: n}}
	}
}

func task(array uint32, index int64) func(*apiv1.JobInfo) {
	return func(j *apiv1.JobInfo) { j.ArrayJobId, j.ArrayTask = array, index }
}

func tasks(array uint32, first, last int64) func(*apiv1.JobInfo) {
	return func(j *apiv1.JobInfo) {
		j.ArrayJobId, j.ArrayTask, j.ArrayTasks = array, -1, []*apiv1.TaskRange{{First: first, Last: last, Step: 1}}
	}
}

func prio(n uint32) func(*apiv1.JobInfo) { return func(j *apiv1.JobInfo) { j.Priority = n } }

func edit(f func(*apiv1.JobInfo)) func(*apiv1.JobInfo) { return f }

// running is the lab with one small GPU job on it.
func (w *world) running() {
	w.lab()
	busy(w.nodes[0], "MIXED", 1, 500, 1)
	j := labJob(4, "gpu-small", "alice", spec.Running, gpus(1), ran("01:44:41", "", "node1"))
	j.Allocation = []*apiv1.NodeAlloc{{Name: "node1", Cpus: []uint64{1}, Mem: 500, Gpus: []*apiv1.GpuRef{{Index: 0, Uuid: "GPU-1"}}}}
	w.jobs = []*apiv1.JobInfo{j}
}

// capped is the lab with a user at the limit of a QOS.
func (w *world) capped() {
	w.lab()
	w.at = time.Unix(0, at("01:45:50")).UTC()
	w.now = at("01:45:50")
	qos := edit(func(j *apiv1.JobInfo) { j.Spec.Qos = "gpucap" })
	submit := edit(func(j *apiv1.JobInfo) {
		j.Submit, j.Eligible, j.LastSchedEval = at("01:44:44"), at("01:44:44"), at("01:44:44")
	})
	nodes := func(n uint32) func(*apiv1.JobInfo) { return func(j *apiv1.JobInfo) { j.NumNodes = n } }
	w.jobs = []*apiv1.JobInfo{
		labJob(8, "wrap", "alice", spec.Pending, submit, nodes(3), prio(6178), waits("PartitionNodeLimit")),
		labJob(9, "wrap", "alice", spec.Pending, submit, nodes(13), prio(13834), waits("PartitionConfig")),
		labJob(11, "wrap", "alice", spec.Pending, submit, prio(6359), waits("PartitionTimeLimit"), edit(func(j *apiv1.JobInfo) { j.Partition, j.TimeLimit = "debug", 2*hour })),
	}
	for id := uint32(16); id <= 19; id++ {
		w.jobs = append(w.jobs, labJob(id, "gpu-qoscap", "alice", spec.Running, qos, gpus(1), prio(7646), ran("01:45:47", "", "node1")))
	}
	for id := uint32(20); id <= 21; id++ {
		w.jobs = append(w.jobs, labJob(id, "gpu-qoscap", "alice", spec.Pending, qos, gpus(1), prio(7646), submit, waits("QOSMaxGRESPerUser")))
	}
}

// array is the lab full of an array's tasks, four of which wait.
func (w *world) array() {
	w.lab()
	w.at = time.Unix(0, at("01:45:55")).UTC()
	w.now = at("01:45:55")
	for _, n := range w.nodes {
		busy(n, "ALLOCATED", 8, 800, 8)
		n.LastBusy = at("01:45:52")
	}
	mem := edit(func(j *apiv1.JobInfo) {
		j.Spec.MemPerCpu, j.Spec.MemPerNode, j.ReqTres.Mem = 0, 100, 100
		j.Submit, j.Eligible, j.LastSchedEval = at("01:45:52"), at("01:45:54"), at("01:45:54")
		j.Stdout, j.Stderr, j.Spec.Stdout = "/dev/null", "/dev/null", "/dev/null"
		j.Priority = 10634
	})
	w.jobs = []*apiv1.JobInfo{labJob(23, "gpu-arr", "bob", spec.Pending, mem, gpus(1), tasks(23, 17, 20), waits("Resources"))}
	for i := int64(1); i <= 16; i++ {
		node := "node1"
		if i > 8 {
			node = "node2"
		}
		w.jobs = append(w.jobs, labJob(uint32(23+i), "gpu-arr", "bob", spec.Running, mem, gpus(1), task(23, i), ran("01:45:54", "", node)))
	}
}
