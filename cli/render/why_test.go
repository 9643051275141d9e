package render

import (
	"strings"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// TestWarningInWhy: a user reads what is asked of him, and until when.
func TestWarningInWhy(t *testing.T) {
	const now = 1_790_000_000 * tool.Second
	fault := func(warned bool, cancel int64) *apiv1.GpuFault {
		return &apiv1.GpuFault{Uuid: "GPU-a", Node: "n1", Kind: 7, At: now - 10*tool.Second, Idle: 1800 * tool.Second, JobId: 1, Warned: warned, Cancel: cancel}
	}
	lines := (&WhyView{JobView: JobView{Clock: Clock{Now: now}}}).faultLines(&apiv1.WhyReply{GpuFaults: []*apiv1.GpuFault{fault(false, 0), fault(true, 0), fault(true, now+300*tool.Second), fault(true, now-tool.Second)}})
	const base = "GPU-a on n1: held without a process for 30 min, last 10 s ago."
	for i, want := range []string{base, base + " Others wait for it: use it, or end the job.",
		base + " Others wait for it: the job is cancelled in 5 min unless it begins to use the GPU.", base + " Others wait for it: use it, or end the job."} {
		if lines[i] != want {
			t.Errorf("got  %s\nwant %s", lines[i], want)
		}
	}
}

func TestDependencyText(t *testing.T) {
	for list, want := range map[string]string{
		"afterok:4(unfulfilled)":                           "It waits until job 4 has ended with success.",
		"after:4+5(unfulfilled)":                           "It waits until job 4 has started or was cancelled 5 minutes ago.",
		"afterany:4_*(unfulfilled)":                        "It waits until every task of array 4 has ended.",
		"afternotok:4_7(unfulfilled)":                      "It waits until job 4_7 has failed.",
		"aftercorr:4_*(unfulfilled)":                       "It waits until the task of the same index of job 4 has ended with success.",
		"singleton(unfulfilled)":                           "It waits until no other job of its name and its user runs or comes before it.",
		"afterok:4(fulfilled),afterany:5(unfulfilled)":     "It waits until job 5 has ended.",
		"afterok:4(unfulfilled),afterany:5(unfulfilled)":   "It waits until all of this is true:|job 4 has ended with success|job 5 has ended",
		"afterok:4(unfulfilled)?afterany:5:6(unfulfilled)": "It waits until any of this is true:|job 4 has ended with success|job 5 has ended|job 6 has ended",
		"": "It waits for other jobs; the next pass looks at them again.",
		"afterburstbuffer:4(unfulfilled),afterok:9(unfulfilled)": "It waits until all of this is true:|afterburstbuffer:4|job 9 has ended with success",
	} {
		if got := strings.Join(dependencyText(list), "|"); got != want {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
}

// TestUnplanned: the word about the start is never empty, and it is "never"
// only where nothing but a change of the job can help.
func TestUnplanned(t *testing.T) {
	for code, want := range map[spec.ReasonCode]string{
		"": "not planned yet", spec.ReasonDependency: "not planned until that is so", spec.ReasonHeldUser: "not until it is released", spec.ReasonBadConstraints: "never, as it is",
		spec.ReasonPriority: "not planned: it is further down the queue than the scheduler looks ahead", spec.ReasonArrayTaskLimit: "not planned while that is so",
	} {
		if got := explainUnplanned(&apiv1.WhyReply{Reason: &apiv1.Reason{Code: string(code)}}); got != want {
			t.Errorf("%s: %q, want %q", code, got, want)
		}
	}
	over := &apiv1.Reason{Code: "QOSMaxGRESPerUser", Asked: 5, Limit: 4}
	if got := explainUnplanned(&apiv1.WhyReply{Reason: over}); got != "never, as it is" {
		t.Errorf("over the limit alone: %q", got)
	}
}

// TestWhyReserved: what reservations and switches keep from starting is not
// told to be busy or out of service.
func TestWhyReserved(t *testing.T) {
	v := &WhyView{}
	for _, tt := range []struct {
		reason *apiv1.Reason
		want   string
	}{
		{&apiv1.Reason{Code: "ReqNodeNotAvail", Detail: "UnavailableNodes:n1"}, "out of service: n1"},
		{&apiv1.Reason{Code: "ReqNodeNotAvail", Detail: "Reserved for maintenance"}, "are reserved"},
		{&apiv1.Reason{Code: "ReqNodeNotAvail", Detail: "May be reserved for other job"}, "are reserved"},
		{&apiv1.Reason{Code: "Reservation"}, "Its reservation begins"},
		{&apiv1.Reason{Code: "ReservationDeleted"}, "is gone"},
		{&apiv1.Reason{Code: "ReservationInvalid"}, "does not fit into its reservation"},
		{&apiv1.Reason{Code: "Resources", Subject: "switches"}, "so few switches"},
		{&apiv1.Reason{Code: "Resources"}, "is in use now"},
		{&apiv1.Reason{Code: "PartitionDown", Subject: "partition/gpu"}, "scontrol update partitionname=gpu state=up"},
		{&apiv1.Reason{Code: "PartitionInactive", Subject: "partition/gpu"}, "Its partition, gpu, starts no jobs now"},
	} {
		got := strings.Join(v.Because(&apiv1.WhyReply{Reason: tt.reason, Job: &apiv1.JobInfo{}}), "|")
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: %q, want %q", tt.reason.GetCode(), tt.reason.GetDetail(), got, tt.want)
		}
	}
}

// TestWhyTogether: a component says where the others' part of the answer is.
func TestWhyTogether(t *testing.T) {
	v := &WhyView{}
	for offset, want := range map[uint32]string{0: "muster why 12+1 shows", 1: "muster why 12+2 shows", 2: "muster why 12+0 shows"} {
		got := strings.Join(v.Because(&apiv1.WhyReply{Reason: &apiv1.Reason{Code: "Resources"}, Job: &apiv1.JobInfo{JobId: 12 + offset, HetJobId: 12, HetOffset: offset, HetSize: 3}}), "|")
		if !strings.Contains(got, want) || !strings.Contains(got, "Its 3 components start together") {
			t.Errorf("component %d: %q, want %q", offset, got, want)
		}
	}
}

// TestNeeds: what a job asks for is said once, and as people say it.
func TestNeeds(t *testing.T) {
	job := &apiv1.JobInfo{NumNodes: 2, TimeLimit: 60 * tool.Second, Priority: 7, Spec: &apiv1.JobSpec{Sharing: uint32(spec.Exclusive)},
		ReqTres: &apiv1.Tres{Cpu: 2, Node: 2, Other: []*apiv1.NamedCount{{Name: "gres/gpu", N: 4}, {Name: "gres/gpu:a100", N: 4}, {Name: "gres/nic", N: 1}}}}
	v := &WhyView{}
	if got, want := v.listNeeds(&apiv1.WhyReply{Job: job}), "2 CPUs, 4 a100 GPUs, 1 nic on 2 whole nodes, for up to 60 s; priority 7"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	job.NumNodes, job.ReqTres = 1, &apiv1.Tres{Cpu: 1}
	short := []*apiv1.NodeVerdict{{Nodes: "n1", Why: "mem", Free: 100, Need: 200}}
	if got, want := v.listNeeds(&apiv1.WhyReply{Job: job, Nodes: short}), "1 CPU, all memory of the node (no --mem, and no default here) on a whole node, for up to 60 s; priority 7"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestExpected: a prediction says how long, from what, and beside which limit.
func TestExpected(t *testing.T) {
	minute := int64(60 * tool.Second)
	for _, tc := range []struct {
		name       string
		prediction *apiv1.RunPrediction
		limit      int64
		want       string
	}{
		{"nothing is known", nil, 60 * minute, ""},
		{
			"several runs",
			&apiv1.RunPrediction{Length: 20 * minute, Shortest: 10 * minute, Longest: 25 * minute, Runs: 5, Similar: "runs with the same time limit"},
			60 * minute,
			"to run 20 min: the last 5 runs with the same time limit took 10 min to 25 min; the time limit is 1 h",
		},
		{
			"all alike and up to the limit",
			&apiv1.RunPrediction{Length: 60 * minute, Shortest: 60 * minute, Longest: 60 * minute, Runs: 2, Similar: "runs of this user"},
			60 * minute,
			"to run 1 h: the last 2 runs of this user took 1 h",
		},
		{
			"alike to the second",
			&apiv1.RunPrediction{Length: minute, Shortest: minute + 1, Longest: minute + 2, Runs: 2, Similar: "runs of this user"},
			-1,
			"to run 60 s: the last 2 runs of this user took 60 s",
		},
		{
			"no limit",
			&apiv1.RunPrediction{Length: minute, Shortest: minute, Longest: minute, Runs: 2, Similar: "runs of this user"},
			-1,
			"to run 60 s: the last 2 runs of this user took 60 s",
		},
	} {
		reply := &apiv1.WhyReply{Job: &apiv1.JobInfo{TimeLimit: tc.limit}, Prediction: tc.prediction}
		if got := strings.Join((&WhyView{}).expectedLines(reply), "|"); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestBlockersThatEnd: a job that is being ended is not said to be there until its time limit.
func TestBlockersThatEnd(t *testing.T) {
	far := int64(3*24*3600) * tool.Second
	for want, job := range map[string]*apiv1.JobInfo{
		"preempted, ends within its grace time": {Completing: true, PreemptedAt: 1, End: far},
		"is ending":                             {Completing: true, End: far},
		"until 1970-01-04T00:00:00, in 3 d":     {End: far},
	} {
		job.State, job.Spec = uint32(spec.Running), &apiv1.JobSpec{}
		v := &WhyView{JobView: JobView{Clock: Clock{Loc: time.UTC}}}
		got := strings.Join(v.blockerLines(&apiv1.WhyReply{Blockers: []*apiv1.JobInfo{job}}), "|")
		if !strings.HasSuffix(got, want) {
			t.Errorf("%q does not end in %q", got, want)
		}
	}
}

// TestMissedPromise: a job that is planned later than it was promised says whether the promise is
// missed, will be, or is kept if running jobs end as similar runs did, and by how much.
func TestMissedPromise(t *testing.T) {
	const hour = int64(3600) * int64(tool.Second)
	for _, c := range []struct {
		now, planned, promised, early int64
		want                          string
	}{
		{now: 1, planned: 3, promised: 2, want: ", which it will miss by 1 h as planned now"},
		{now: 3, planned: 40, promised: 2, want: ", which it has missed by 1 h so far"},
		{now: 3, planned: 40, promised: 2, early: 2, want: ", which it has missed by 1 h so far"},
		{now: 1, planned: 40, promised: 3, early: 2, want: ", which it keeps if the running jobs end as similar runs did"},
		{now: 1, planned: 40, promised: 3, early: 5, want: ", which it will miss by 2 h as planned now"},
		{now: 1, planned: 2, promised: 2, want: ""},
		{now: 1, planned: 2, promised: 0, want: ""},
	} {
		v := &WhyView{JobView: JobView{Clock: Clock{Now: c.now * hour, Loc: time.UTC}}}
		reply := &apiv1.WhyReply{PlannedStart: c.planned * hour, PromisedStart: c.promised * hour, EarlyStart: c.early * hour}
		got := strings.Join(v.startLines(reply), "|")
		if strings.Contains(got, "first promised") != (c.want != "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestRangeOfStarts: a start that may come earlier is shown as a range, with how far plans could be
// relied on so far.
func TestRangeOfStarts(t *testing.T) {
	hour := int64(3600 * tool.Second)
	v := &WhyView{JobView: JobView{Clock: Clock{Now: hour, Loc: time.UTC}}}
	reply := &apiv1.WhyReply{
		PlannedStart: 5 * hour,
		EarlyStart:   3 * hour,
		Promises:     &apiv1.PromisesKept{Partition: "gpu", Kept: 19, Broken: 1, Late: 2 * hour},
	}
	got := strings.Join(v.startLines(reply), "|")
	for _, want := range []string{
		"as early as 1970-01-01T03:00:00, in 2 h, if the running jobs end as similar runs of their users did",
		"19 of 20 promised starts in partition gpu were kept; the mean delay was 6 min",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	reply.EarlyStart, reply.Promises = 5*hour, nil
	if got := strings.Join(v.startLines(reply), "|"); strings.Contains(got, "as early") || strings.Contains(got, "kept") {
		t.Errorf("a range without an earlier start: %q", got)
	}
}

// TestNodesOfATooLargeJob: a node that has room for a part of a job that can never start is not
// said to fit now.
func TestNodesOfATooLargeJob(t *testing.T) {
	v := &WhyView{}
	nodes := []*apiv1.NodeVerdict{{Nodes: "n[1-2]", Why: nodeFits}}
	for code, want := range map[spec.ReasonCode]string{
		spec.ReasonPartitionConfig:    "has room for a part of it",
		spec.ReasonPartitionNodeLimit: "has room for a part of it",
		spec.ReasonPriority:           "would fit now",
	} {
		rep := &apiv1.WhyReply{Reason: &apiv1.Reason{Code: string(code)}, Nodes: nodes}
		if got := strings.Join(v.nodeLines(rep), "|"); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", code, got, want)
		}
	}
}
