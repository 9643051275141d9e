package copilot_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// TestReconcileJobs runs the transcript of pods that Muster schedules: each block lists
// pods and jobs as they were seen, a line each, and shows the plan.
func TestReconcileJobs(t *testing.T) {
	datadriven.RunTest(t, "testdata/podjobs.txt", func(t *testing.T, d *datadriven.TestData) string {
		var pods []copilot.JobPod
		var jobs []copilot.PodJob
		for line := range strings.Lines(d.Input) {
			words := strings.Fields(line)
			kv := map[string]string{}
			for _, w := range words[2:] {
				k, v, _ := strings.Cut(w, "=")
				kv[k] = v
			}
			has := func(key string) bool { _, ok := kv[key]; return ok }
			switch words[0] {
			case "pod":
				pods = append(pods, podLine(words[1], kv, len(pods)))
			case "job":
				jobs = append(jobs, jobLine(words[1], kv, has))
			}
		}
		return showJobPlan(copilot.ReconcileJobs(pods, jobs))
	})
}

// podLine reads: pod a gang=g/2 cpu=500 admits=n1 node=n1 over=0 deleting gated refused=why
// owner=Job/x user=u kept gone. One that is over has ended at 100 and more; deleted=99 says when it was deleted.
func podLine(uid string, kv map[string]string, at int) copilot.JobPod {
	has := func(key string) bool { _, ok := kv[key]; return ok }
	pod := copilot.JobPod{
		UID: uid, Namespace: "ns", Name: uid, Created: spec.Instant(at), Rank: at,
		Node: kv["node"], Deleting: has("deleting"), Gated: has("gated"), Refused: kv["refused"],
		Kept: has("kept"), Gone: has("gone"),
		Request: copilot.Request{Admits: "n1", Owner: kv["owner"], User: kv["user"]},
	}
	if has("deleted") {
		pod.Deleting = true
		_, _ = fmt.Sscan(kv["deleted"], &pod.Deleted)
	}
	if has("admits") {
		pod.Request.Admits = kv["admits"]
	}
	_, _ = fmt.Sscan(kv["cpu"], &pod.Request.Ask.MilliCPU) // 0 where it is not said
	if gang, size, ok := strings.Cut(kv["gang"], "/"); ok {
		pod.Gang = gang
		_, _ = fmt.Sscan(size, &pod.Size)
	}
	if has("over") {
		pod.Over = true
		_, _ = fmt.Sscan(kv["over"], &pod.End.Exit.Code)
		pod.End.Ended = spec.Instant(100 + at)
	}
	return pod
}

// jobLine reads: job 7 pods=a,b pending|on=n1,n2 bindable ends leader=6 reason=None
func jobLine(uid string, kv map[string]string, has func(string) bool) copilot.PodJob {
	job := copilot.PodJob{
		Pods:    &spec.PodSet{Space: "ns", Admits: "n1"},
		Pending: has("pending"), Bindable: has("bindable"), Ends: has("ends"),
		Why: kv["ends"], Reason: "Resources", Text: "waits",
	}
	if reason := kv["reason"]; reason != "" {
		job.Reason = reason
	}
	_, _ = fmt.Sscan(uid, &job.Run.UID)
	_, _ = fmt.Sscan(kv["leader"], &job.Leader) // 0 where it is not said
	for _, pod := range strings.Split(kv["pods"], ",") {
		job.Pods.Pods = append(job.Pods.Pods, spec.Pod{UID: pod, Name: pod})
	}
	if has("on") {
		job.Run.Attempt = 1
		for i, node := range strings.Split(kv["on"], ",") {
			job.Places = append(job.Places, spec.PodPlace{Pod: job.Pods.Pods[i], Node: node})
		}
	}
	return job
}

func showJobPlan(p copilot.JobPlan) string {
	var b strings.Builder
	exit := func(r *event.StepResult) string {
		if r == nil {
			return "none"
		}
		return fmt.Sprint(r.Exit.Code)
	}
	for _, x := range p.Overs {
		fmt.Fprintf(&b, "over %d: exit %s, %q, confirm %d\n", x.Job.Run.UID, exit(x.Result), x.Why, len(x.Confirm))
	}
	for _, x := range p.Deletes {
		fmt.Fprintf(&b, "delete %s: %q, confirm %d\n", x.Pod.UID, x.Why, len(x.Confirm))
	}
	for _, x := range p.Frees {
		fmt.Fprintf(&b, "free %s\n", x.Pod.UID)
	}
	for _, x := range p.Keeps {
		fmt.Fprintf(&b, "keep %s\n", x.Pod.UID)
	}
	for _, x := range p.Binds {
		fmt.Fprintf(&b, "bind %s to %s\n", x.Pod.UID, x.Place.Node)
	}
	for _, x := range p.Admits {
		fmt.Fprintf(&b, "admit %d: %s\n", x.Job.Run.UID, x.Admits)
	}
	for _, x := range p.Submits {
		for i, jobSpec := range x.Specs() {
			fmt.Fprintf(&b, "submit %s+%d of %s: %d tasks of %d CPUs\n",
				jobSpec.Name, i, jobSpec.Pods.Owner, jobSpec.Size.Tasks, jobSpec.Size.CPUsPerTask)
		}
	}
	for _, x := range p.Tells {
		fmt.Fprintf(&b, "tell %s: %s: %s\n", x.Pod.UID, x.Reason, x.Text)
	}
	return b.String()
}

// A pod that has ended is not missing, though its place is free: how it ended decides what
// becomes of the others of its gang.
func TestMissing(t *testing.T) {
	for _, test := range []struct {
		now  *copilot.Pod
		want bool
	}{
		{nil, true},
		{&copilot.Pod{UID: "another"}, true},
		{&copilot.Pod{UID: "a"}, false},
		{&copilot.Pod{UID: "a", Over: true}, false},
	} {
		if got := copilot.Missing("a", test.now); got != test.want {
			t.Errorf("Missing(a, %+v) = %v", test.now, got)
		}
	}
}
