package daemon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// t0 is 2026-11-21T00:00:00Z.
const t0 = 1_795_219_200

// scenario is a day of a small cluster; every number that the transcripts of
// testdata show can be worked out from it by hand.
//
//	00:00 two nodes, 8 CPUs, 16000 MiB, 2 GPUs each
//	00:10 alice/ml     job 1: 2 CPUs, 4000 MiB, 1 GPU, waits 10 min, runs 00:20-01:20, uses 1 h of CPU, peak 1 GiB, GPU half busy
//	00:10 bob/physics  job 2: array 1-3 of 1 CPU, 1000 MiB: task 1 00:20-00:50 COMPLETED, task 2 00:20-00:35 FAILED 1:0, task 3 cancelled unstarted 00:40
//	01:00 node n2 drained (empty) until 02:00
//	01:30 alice/ml     job 4: 8 CPUs on n1; requeued by an administrator 02:00, runs again 02:10, still runs at 03:00
//	02:20 bob/physics  job 5: 8 CPUs, eligible at once, waits until 03:00 and beyond
func scenario(t tallytest.TB) (*tallytest.History, spec.Instant) {
	min := func(n int) spec.Instant { return spec.AtUnix(t0 + int64(n)*60) }
	h := tallytest.New(t, min(0))
	h.Nodes(2, 8, 16_000, 2)
	h.Accounts([]string{"ml", "physics"}, map[string][]string{"ml": {"alice"}, "physics": {"bob"}})
	alice := tallytest.Ask{Name: "train", User: "alice", UID: 1001, Account: "ml", QOS: "normal"}
	bob := tallytest.Ask{Name: "sweep", User: "bob", UID: 1002, Account: "physics", QOS: "normal"}

	h.Now = min(10)
	a := alice
	a.CPUs, a.Mem, a.GPUs, a.Partition = 2, 4000, 1, "gpu"
	job1 := h.Submit(a)
	b := bob
	b.CPUs, b.Mem, b.Array = 1, 1000, spec.TaskSet{{First: 1, Last: 3, Step: 1}}
	job2 := h.Submit(b)
	h.Put(&event.ReasonsChanged{Jobs: []event.JobReason{{UID: job1, Reason: spec.Reason{Code: spec.ReasonResources, TRES: "gres/gpu", Asked: 1}}}})

	h.Now = min(20)
	h.Start(job1, "n1")
	task1, task2 := h.Split(job2, 1), h.Split(job2, 2)
	h.Start(task1, "n2")
	h.Start(task2, "n2")
	h.Now = min(35)
	h.End(task2, spec.Failed, spec.ExitStatus{Code: 1})
	h.Done(task2, spec.Usage{UserCPU: 10 * spec.Minute, HasRSS: true, PeakRSS: 1000 << 20}, spec.ExitStatus{Code: 1})
	h.Now = min(40)
	h.EndBy(job2, spec.Cancelled, spec.ExitStatus{}, 1002)
	h.Now = min(50)
	h.Finish(task1, spec.Usage{UserCPU: 20 * spec.Minute, SystemCPU: 5 * spec.Minute, HasRSS: true, PeakRSS: 500 << 20})

	h.Now = min(60)
	h.Actor = event.Actor{Kind: event.ActorUser, Name: "root"}
	h.Put(&event.NodeStateSet{Node: "n2", State: event.NodeDrain, Reason: "disk"})
	h.Now = min(80)
	h.Finish(job1, spec.Usage{UserCPU: 50 * spec.Minute, SystemCPU: 10 * spec.Minute, HasRSS: true, PeakRSS: 1 << 30,
		GPUs: []spec.GPUUsage{{UUID: "GPU-n1-0", Has: true, NoProcess: 10 * spec.Minute, Idle: 10 * spec.Minute, Busy: 40 * spec.Minute, UtilNS: 30 * spec.Minute}}})

	h.Now = min(90)
	a = alice
	a.CPUs, a.Name = 8, "wide"
	job4 := h.Submit(a)
	h.Start(job4, "n1")
	h.Now = min(120)
	h.Put(&event.NodeStateSet{Node: "n2", State: event.NodeResume})
	h.Put(&event.JobEndRequested{UID: job4, Attempt: 1, Cause: event.EndRequeue, Requeue: true})
	h.Done(job4, spec.Usage{UserCPU: spec.Hour, HasRSS: false}, spec.ExitStatus{Signal: 15})
	h.Requeue(job4, spec.Pending)
	h.Now = min(130)
	h.Put(&event.JobEligible{UID: job4})
	h.Start(job4, "n1")
	h.Now = min(140)
	b = bob
	b.CPUs, b.Name = 8, "big"
	job5 := h.Submit(b)
	h.Put(&event.ReasonsChanged{Jobs: []event.JobReason{{UID: job5, Reason: spec.Reason{Code: spec.ReasonResources}}}})
	h.Now = min(180)
	return h, min(180)
}

// TestScenario asks the whole service, over the real engine, what the numbers
// of the scenario are.
func TestScenario(t *testing.T) {
	h, now := scenario(t)
	ledger := newLedger(t)
	ledger.add(t, h.Log, 7)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.clock.set(now)
	r.start()
	head, _ := ledger.Head()
	r.stored(head)
	datadriven.RunTest(t, "testdata/scenario.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "sacct":
			return r.sacct(t, d)
		case "report":
			return r.report(t, d)
		case "why":
			return r.why(t, d)
		}
		return "unknown command"
	})
}

// minutes prints an instant as minutes after t0, and a span as minutes.
func minutes(ns int64) string {
	switch ns {
	case 0:
		return "-"
	case -1:
		return "UNLIMITED"
	}
	at := spec.Span(ns - t0*int64(spec.Second))
	if ns < t0*int64(spec.Second) {
		at = spec.Span(ns)
	}
	if at%spec.Minute != 0 {
		return fmt.Sprintf("%dns", at)
	}
	return fmt.Sprintf("%dm", at/spec.Minute)
}

// why prints the reasons of a job.
func (r *rig) why(t *testing.T, d *datadriven.TestData) string {
	reply, err := r.Service().Reasons(t.Context(), &apiv1.ReasonsQuery{Job: d.CmdArgs[0].Key})
	if err != nil {
		return err.Error()
	}
	if reply.GetRun() == nil {
		return "not known"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s waited %s\n", reply.GetRun().GetName(), reply.GetRun().GetState(), minutes(reply.GetRun().GetPlanned()))
	for _, p := range reply.GetPeriods() {
		fmt.Fprintf(&b, "%s to %s: %s asked=%d restarts=%d\n", minutes(p.GetFrom()), minutes(p.GetTo()), wire.ToReason(p.GetReason()), p.GetReason().GetAsked(), p.GetRestarts())
	}
	return b.String()
}

func (r *rig) sacct(t *testing.T, d *datadriven.TestData) string {
	q := &apiv1.AcctQuery{AllUsers: true}
	for _, a := range d.CmdArgs {
		at := func(i int) int64 {
			var n int
			fmt.Sscan(a.Vals[i], &n)
			return int64(spec.AtUnix(t0 + int64(n)*60))
		}
		switch a.Key {
		case "jobs":
			q.Jobs = a.Vals
		case "users":
			q.Users = a.Vals
		case "states":
			for _, v := range a.Vals {
				if v == "RQ" {
					q.States = append(q.States, 100)
				} else if st, ok := spec.ParseJobState(v); ok {
					q.States = append(q.States, uint32(st))
				}
			}
		case "nodes":
			q.Nodes = a.Vals
		case "start":
			q.Start = at(0)
		case "end":
			q.End = at(0)
		case "X":
			q.AllocationsOnly = true
		case "D":
			q.Duplicates = true
		case "zone":
			q.Zone = a.Vals[0]
		default:
			t.Fatalf("unknown argument %s", a.Key)
		}
	}
	var b strings.Builder
	for _, row := range r.acct(q) {
		id := fmt.Sprint(row.GetJobId())
		if row.GetArrayJobId() != 0 {
			id = fmt.Sprintf("%d_%d", row.GetArrayJobId(), row.GetArrayTask())
			if row.GetArrayTask() < 0 {
				id = fmt.Sprintf("%d_[%s]", row.GetArrayJobId(), row.GetArrayTasks())
			}
		}
		if row.GetStep() != "" {
			id += "." + row.GetStep()
		}
		state := row.GetState()
		if row.GetCancelled() {
			state += fmt.Sprintf(" by %d", row.GetCancelledBy())
		}
		fmt.Fprintf(&b, "%s %s %s %s exit=%d:%d submit=%s start=%s end=%s elapsed=%s", id, row.GetName(), row.GetUser(), state, row.GetExitCode(),
			row.GetExitSignal(), minutes(row.GetSubmit()), minutes(row.GetStart()), minutes(row.GetEnd()), minutes(row.GetElapsed()))
		if row.GetStep() == "" {
			fmt.Fprintf(&b, " planned=%s limit=%s reason=%s restarts=%d count=%d partition=%s", minutes(row.GetPlanned()), minutes(row.GetTimeLimit()),
				row.GetReason(), row.GetRestarts(), row.GetTasksCount(), row.GetPartition())
		}
		if row.GetAllocTres() != nil {
			fmt.Fprintf(&b, " alloc=cpu:%d,mem:%d", row.GetAllocTres().GetCpu(), row.GetAllocTres().GetMem())
			for _, o := range row.GetAllocTres().GetOther() {
				fmt.Fprintf(&b, ",%s:%d", o.GetName(), o.GetN())
			}
			fmt.Fprintf(&b, " on %s %s", row.GetNodeList(), row.GetGpuUuids())
		}
		if row.GetHasUsage() {
			fmt.Fprintf(&b, " cpu=%s+%s rss=%d", minutes(row.GetUsage().GetUserCpu()), minutes(row.GetUsage().GetSystemCpu()), row.GetUsage().GetPeakRss()>>20)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (r *rig) report(t *testing.T, d *datadriven.TestData) string {
	q := &apiv1.ReportQuery{Report: strings.TrimSpace(d.Input), Start: t0 * int64(spec.Second), End: (t0 + 3*3600) * int64(spec.Second)}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "tres":
			q.Tres = a.Vals
		case "by":
			q.By = a.Vals[0]
		case "top":
			fmt.Sscan(a.Vals[0], &q.Top)
		case "group":
			q.Group = true
		case "minutes":
			var from, to int64
			fmt.Sscan(a.Vals[0], &from)
			fmt.Sscan(a.Vals[1], &to)
			q.Start, q.End = (t0+from*60)*int64(spec.Second), (t0+to*60)*int64(spec.Second)
		default:
			t.Fatalf("unknown argument %s", a.Key)
		}
	}
	reply, err := r.Service().Report(t.Context(), q)
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	for _, row := range reply.GetRows() {
		for i, c := range row.GetCells() {
			name := reply.GetColumns()[i].GetName()
			switch v := c.GetKind().(type) {
			case *apiv1.Cell_Text:
				fmt.Fprintf(&b, "%s=%s ", name, v.Text)
			case *apiv1.Cell_Int:
				fmt.Fprintf(&b, "%s=%d ", name, v.Int)
			case *apiv1.Cell_Float:
				fmt.Fprintf(&b, "%s=%.6g ", name, v.Float)
			default:
				fmt.Fprintf(&b, "%s=null ", name)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
