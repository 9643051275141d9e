package scheduler_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// exit reports that the batch scripts of jobs ended and nothing is left on
// any of their nodes: exit JOB [CODE|sigN|oom|oom-CODE|unknown [AGO [BEHIND]]]. With
// oom-CODE the kernel killed a child of the script, and the script ended with that
// code. The script ended AGO seconds ago, and the node's clock is BEHIND seconds behind.
//
//	$ exit 4 3
//	$ exit 4 0 600 30
func exit(s *session, args []string) error {
	_, j, err := s.target(args[1])
	if err != nil {
		return err
	}
	batch, usage := event.StepResult{Started: j.Started, Ended: s.now}, spec.Usage{}
	if len(args) > 2 {
		switch how := args[2]; {
		case how == "oom":
			usage.OOMKilled = true
			batch.Exit.Signal = 9
		case strings.HasPrefix(how, "oom-"):
			usage.OOMKilled = true
			batch.Exit.Code = int32(atoi(s, how[len("oom-"):]))
		case how == "unknown":
			batch.Unknown = true
		case strings.HasPrefix(how, "sig"):
			batch.Exit.Signal = int32(atoi(s, how[3:]))
		default:
			batch.Exit.Code = int32(atoi(s, how))
		}
	}
	if len(args) > 3 {
		batch.Ended = s.now.Add(-spec.Span(atoi(s, args[3])) * spec.Second)
	}
	if len(args) > 4 {
		behind := spec.Span(atoi(s, args[4])) * spec.Second
		batch.Started = batch.Started.Add(-behind)
		batch.Ended = batch.Ended.Add(-behind)
	}
	return s.end(j, &batch, usage)
}

func atoi(s *session, v string) int {
	n, err := strconv.Atoi(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// end reports a run's end from each node it still holds.
func (s *session) end(j *state.Job, batch *event.StepResult, usage spec.Usage) error {
	if j.Alloc == nil {
		return fmt.Errorf("job %d does not run", j.ID)
	}
	for i := range j.Alloc.Nodes {
		if j.Done.Has(i) {
			continue
		}
		done := &scheduler.NodeDone{Usage: usage}
		if i == 0 {
			done.OOM = usage.OOMKilled
			done.Batch = batch
		}
		if err := s.report(scheduler.Report{Node: j.Alloc.Nodes[i].Name, Run: scheduler.Run{UID: j.UID, Attempt: j.Attempt}, Done: done}); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) report(r scheduler.Report) error {
	res, err := s.decide(r)
	if err == nil && res.Stale > 0 {
		s.printf("the report is not current\n")
	}
	return err
}

// nodeDone reports that nothing of a job is left on one node:
// done JOB NODE [attempt=N] [code=N] [drain=WHY].
//
//	$ done 4 n2
func nodeDone(s *session, args []string) error {
	_, j, err := s.target(args[1])
	if err != nil {
		return err
	}
	r := scheduler.Report{Node: args[2], Run: scheduler.Run{UID: j.UID, Attempt: j.Attempt}, Done: &scheduler.NodeDone{}}
	for _, a := range args[3:] {
		k, v, _ := strings.Cut(a, "=")
		switch k {
		case "attempt":
			r.Run.Attempt = uint32(atoi(s, v))
		case "drain":
			r.Done.Drain = "Epilog error: " + v
		default:
			r.Done.Batch = &event.StepResult{Exit: spec.ExitStatus{Code: int32(atoi(s, v))}}
		}
	}
	return s.report(r)
}

// launchFailed reports that a batch script could not be started; with drain
// the fault is the node's, with again it is nobody's, with hold it is the
// prolog's.
//
//	$ launchfail 4 drain
func launchFailed(s *session, args []string) error {
	_, j, err := s.target(args[1])
	if err != nil {
		return err
	}
	node := j.Alloc.Nodes[0].Name
	run := scheduler.Run{UID: j.UID, Attempt: j.Attempt}
	return s.report(scheduler.Report{Node: node, Run: run, LaunchFailed: &scheduler.LaunchFailed{Text: "no such file", Drain: slices.Contains(args[2:], "drain"), Again: slices.Contains(args[2:], "again"), Hold: slices.Contains(args[2:], "hold")}})
}

// prologOver tells how PrologSlurmctld ended for a job: prologctl JOB [WHY].
//
//	$ prologctl 4 exit status 3
func prologOver(s *session, args []string) error {
	_, j, err := s.target(args[1])
	if err != nil {
		return err
	}
	res := s.must(scheduler.PrologOver{Run: scheduler.Run{UID: j.UID, Attempt: j.Attempt}, Failed: strings.Join(args[2:], " ")})
	if res.Stale > 0 {
		s.printf("stale\n")
	}
	return nil
}

// epilogOver tells that EpilogSlurmctld has run: epilogctl JOB ATTEMPT.
//
//	$ epilogctl 4 1
func epilogOver(s *session, args []string) error {
	_, j, err := s.target(args[1])
	if err != nil {
		return err
	}
	attempt, err := strconv.ParseUint(args[2], 10, 32)
	if err != nil {
		return err
	}
	if s.must(scheduler.EpilogOver{Run: scheduler.Run{UID: j.UID, Attempt: uint32(attempt)}}).Stale > 0 {
		s.printf("stale\n")
	}
	return nil
}

// batchOver reports that a script has ended while its node is being cleaned:
// batchover JOB CODE.
//
//	$ batchover 4 0
func batchOver(s *session, args []string) error {
	_, j, err := s.target(args[1])
	if err != nil {
		return err
	}
	return s.report(scheduler.Report{Node: j.Alloc.Nodes[0].Name, Run: scheduler.Run{UID: j.UID, Attempt: j.Attempt},
		BatchOver: &scheduler.BatchOver{Batch: &event.StepResult{Exit: spec.ExitStatus{Code: int32(atoi(s, args[2]))}}}})
}
