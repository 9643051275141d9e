package console

import (
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// smallGPUs is a cluster in which something is the matter with most GPUs.
func smallGPUs() (*apiv1.ListNodesReply, *apiv1.ListJobsReply) {
	const now, minute = int64(1_800_000_000) * tool.Second, 60 * tool.Second
	node := &apiv1.NodeInfo{Name: "n1", State: "MIXED", Registered: true, Partitions: []string{"deep"}, Degraded: "CPUs is declared as 8 and is 2 (config_overrides); 5 of 6 GPUs registered"}
	for i, uuid := range []string{"GPU-a", "GPU-b", "GPU-c", "GPU-d", "MIG-e"} {
		node.Gpus = append(node.Gpus, &apiv1.GpuInfo{Index: uint32(i), Uuid: uuid, Type: "h100"})
	}
	for _, held := range node.Gpus[:2] {
		held.Allocated = true
		held.JobUid = 70
		held.JobId = 7
	}
	node.Gpus[4].Type, node.Gpus[4].Parent = "1g.10gb", "GPU-d"
	node.GpuFaults = []*apiv1.GpuFault{
		{Uuid: "GPU-a", Kind: uint32(spec.GPUIdle), At: now - 5*minute, Idle: 30 * minute, JobUid: 70, JobId: 7, Cancel: now + 25*minute, Warned: true},
		{Uuid: "GPU-b", Kind: uint32(spec.GPUIdle), At: now - 5*minute, Idle: 90 * minute, JobUid: 60, JobId: 6},
		{Uuid: "GPU-c", Kind: uint32(spec.GPUXID), Xid: 79, Class: "fatal", Text: "<b>off the bus</b>", At: now - minute, Count: 3, JobId: 5},
		{Uuid: "GPU-d", Kind: uint32(spec.GPULost), At: now - 48*60*minute, Count: 1},
		{Uuid: "GPU-gone", Kind: uint32(spec.GPUECC), At: now - 50*60*minute, Count: 1},
	}
	job := &apiv1.JobInfo{Uid: 70, JobId: 7, ArrayTask: -1, User: "ada", State: uint32(spec.Running), Start: now - 60*minute, Spec: &apiv1.JobSpec{Name: `<img src=x>`, Account: "physics"}}
	return &apiv1.ListNodesReply{Now: now, Nodes: []*apiv1.NodeInfo{node}}, &apiv1.ListJobsReply{Now: now, Jobs: []*apiv1.JobInfo{job}}
}

// TestGPUsPage: the states, the holders of idle GPUs with since when, what happened,
// and what a filter leaves.
func TestGPUsPage(t *testing.T) {
	nodes, jobs := smallGPUs()
	classes := func(choice gpuChoice) string {
		d := gpusData{Choice: choice}
		choice.Page = 1
		d.Choice.Page = 1
		d.collect(nodes, jobs)
		var out []string
		for _, r := range d.Rows {
			out = append(out, r.UUID+" "+r.Class)
		}
		return strings.Join(out, ", ")
	}
	for choice, want := range map[gpuChoice]string{
		{}:                             "GPU-a idle, GPU-b used, GPU-c fault, GPU-d lost, MIG-e lost",
		{State: "used"}:                "GPU-a idle, GPU-b used",
		{State: "fault"}:               "GPU-c fault, GPU-d lost, MIG-e lost",
		{State: "lost"}:                "GPU-d lost, MIG-e lost",
		{State: "idle"}:                "GPU-a idle",
		{Query: "PHYSICS"}:             "GPU-a idle, GPU-b used",
		{Query: "gpu-d"}:               "GPU-d lost, MIG-e lost",
		{Query: "deep h100 79"}:        "GPU-c fault",
		{Query: "ada", State: "fault"}: "",
		{Query: "nothing of the kind"}: "",
	} {
		if got := classes(choice); got != want {
			t.Errorf("%+v: %s, want %s", choice, got, want)
		}
	}
	d := gpusData{Choice: gpuChoice{Page: 1}}
	d.collect(nodes, jobs)
	if len(d.Idle) != 1 || d.Idle[0].Job.User != "ada" || d.Idle[0].For != "35 min" || !strings.HasPrefix(d.Idle[0].Then, "cancelled in 25 min") {
		t.Errorf("idle: %+v", d.Idle)
	}
	jobs.Jobs[0].ArrayJobId, jobs.Jobs[0].ArrayTask = 5, 2
	task := gpusData{Choice: gpuChoice{Page: 1}}
	task.collect(nodes, jobs)
	if row := task.Rows[0]; row.Job != "5_2" || row.JobLink != "/job/7" {
		t.Errorf("a GPU of task 2 of array 5 names job %q, link %s", row.Job, row.JobLink)
	}
	if len(d.Types) != 2 || d.Types[0] != (gpuTypeLine{Name: "h100", Link: "/gpus?q=h100", All: 4, Used: 2, Idle: 1, Fault: 1, Lost: 1, Bar: 500}) {
		t.Errorf("types: %+v", d.Types)
	}
	var events []string
	for _, e := range d.Events {
		events = append(events, e.GPU+" "+e.What+" "+e.Class+" "+e.Count)
	}
	if got := strings.Join(events, ", "); got != "2 XID 79 fatal bad 3, 3 lost bad 1, GPU-gone ECC bad 1" {
		t.Errorf("events: %s", got)
	}
	if len(d.Missing) != 1 || d.Missing[0].Text != "5 of 6 GPUs registered" {
		t.Errorf("missing: %+v", d.Missing)
	}
}

// TestGPUsPageEscapes: what nodes and users say is text.
func TestGPUsPageEscapes(t *testing.T) {
	c := largeConsole(t)
	api := newLargeAPI(0, 0)
	api.nodes, api.jobs = smallGPUs()
	c.cfg.API = api
	page := readPlain(t, c, "/gpus")
	for _, want := range []string{"&lt;img src=x&gt;", "&lt;b&gt;off the bus&lt;/b&gt;", "XID 79 fatal", "MIG of"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	for _, bad := range []string{"<img", "<b>off"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %s", bad)
		}
	}
}

// TestLostGPUsAreShown: a GPU that its agent no longer finds is wrong on the first page, red on
// the map of nodes, and counts as one of the cluster's; where GPUs are missing that never
// were seen, the first page says that.
func TestLostGPUsAreShown(t *testing.T) {
	const now = int64(1_800_000_000) * tool.Second
	node := func(faults ...*apiv1.GpuFault) *apiv1.NodeInfo {
		return &apiv1.NodeInfo{Name: "n1", State: "IDLE", Registered: true, Gres: "gpu:h100:3", Degraded: "3 GPUs of type h100 are declared and 2 found",
			Gpus: []*apiv1.GpuInfo{{Index: 0, Uuid: "GPU-a", Type: "h100"}, {Index: 2, Uuid: "GPU-c", Type: "h100"}}, GpuFaults: faults}
	}
	lost := node(&apiv1.GpuFault{Uuid: "GPU-b", Kind: uint32(spec.GPULost), At: now - 1})
	var d nowData
	d.findWrong([]*apiv1.NodeInfo{lost}, nil, jobText(now))
	if len(d.Wrong) != 1 || d.Wrong[0].What != "n1 GPU 1" || d.Wrong[0].Rule != ruleGPULost || d.Wrong[0].Class != "bad" {
		t.Errorf("of a lost GPU: %+v", d.Wrong)
	}
	d = nowData{}
	d.findWrong([]*apiv1.NodeInfo{node()}, nil, jobText(now))
	if len(d.Wrong) != 1 || d.Wrong[0].What != "n1 has fewer GPUs than configured" || d.Wrong[0].Rule != ruleIncomplete {
		t.Errorf("of a missing GPU: %+v", d.Wrong)
	}
	if cells := string(mapOf(lost, now).Cells); cells != cellOf("free")+cellOf("fault")+cellOf("free") {
		t.Errorf("the map has %s", cells)
	}
	counted := map[string]string{}
	for _, f := range nodeFigures([]*apiv1.NodeInfo{lost}, now) {
		counted[f.Name] = f.Value
	}
	if counted["of 3 GPUs in use"] != "0" || counted["GPUs free"] != "2" {
		t.Errorf("the figures are %v", counted)
	}
	g := gpusData{Choice: gpuChoice{Page: 1}}
	g.collect(&apiv1.ListNodesReply{Now: now, Nodes: []*apiv1.NodeInfo{lost}}, &apiv1.ListJobsReply{Now: now})
	if len(g.Rows) != 3 || g.Rows[1].Class != "lost" || g.Rows[1].Index != "1" || g.Types[0].Lost != 1 {
		t.Errorf("the page of GPUs has %+v, %+v", g.Rows, g.Types)
	}
}
