package scheduler_test

import (
	"strconv"
	"strings"

	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// pods speaks as the copilot does: submit NAME[:CPU][,NAME] cpu= mem= gpus= admits= qos=;
// admit JOB NODES; over JOB [CODE], without which they were deleted; places JOB.
//
//	$ pods submit a,b cpu=1500 mem=100 gpus=2 admits=n[1-2]
func pods(s *session, args []string) error {
	if args[1] == "submit" {
		return submitPods(s, args)
	}
	_, job, err := s.target(args[2])
	if err != nil {
		return err
	}
	first := job.Spec.Pods.Pods[0].UID
	switch args[1] {
	case "admit":
		_, err = s.decide(scheduler.AdmitPods{UID: job.UID, Pod: first, Admits: args[3]})
	case "over":
		over := scheduler.PodsOver{
			Run:   scheduler.Run{UID: job.UID, Attempt: job.Attempt},
			Epoch: job.Epoch,
			Pod:   first,
			Why:   "pod " + job.Spec.Pods.Pods[0].Name + " was deleted",
		}
		if len(args) > 3 {
			over.Result = &event.StepResult{Started: job.Started, Ended: s.now, Exit: spec.ExitStatus{Code: int32(atoi(s, args[3]))}}
		}
		var res scheduler.Result
		res, err = s.decide(over)
		if res.Stale > 0 {
			s.printf("stale\n")
		}
	case "places":
		for _, place := range job.Spec.Pods.Places(job.Alloc) {
			var uuids []string
			for _, g := range place.GPUs {
				uuids = append(uuids, strconv.Itoa(int(g.Index)))
			}
			s.printf("%s on %s GPUs %s, bindable %v\n", place.Pod.Name, place.Node, strings.Join(uuids, ","), job.Bindable())
		}
	default:
		s.t.Fatalf("pods: unknown word %q", args[1])
	}
	return err
}

func submitPods(s *session, args []string) error {
	var sub copilot.Submit
	request := copilot.Request{Account: "default"}
	for _, a := range args[3:] {
		k, v, _ := strings.Cut(a, "=")
		n, _ := strconv.ParseInt(v, 10, 64)
		switch k {
		case "cpu":
			request.Ask.MilliCPU = n
		case "mem":
			request.Ask.Mem = n
		case "gpus":
			request.Ask.GPUs = n
		case "admits":
			request.Admits = v
		case "qos":
			request.QOS = v
		default:
			s.t.Fatalf("pods: unknown word %q", a)
		}
	}
	for _, name := range strings.Split(args[2], ",") {
		name, cpu, other := strings.Cut(name, ":")
		pod := copilot.JobPod{UID: "uid-" + name, Namespace: "train", Name: name, Request: request}
		if other {
			pod.Request.Ask.MilliCPU = int64(atoi(s, cpu))
		}
		if strings.Contains(args[2], ",") {
			pod.Gang = "gang"
		}
		sub.Pods = append(sub.Pods, pod)
	}
	parts := sub.Specs()
	for _, part := range parts {
		part.User, part.UID = "alice", 1001
	}
	res, err := s.decide(scheduler.Submit{Spec: parts[0], Rest: parts[1:]})
	if err == nil {
		s.printf("job %d\n", res.ID)
	}
	return err
}
