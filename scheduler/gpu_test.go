package scheduler_test

import (
	"strings"
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// gpuCluster is one node with two GPUs and a job on the first.
func gpuCluster(t *testing.T) *trial.Trial {
	t.Helper()
	tr := trial.On(state.New(), spec.AtUnix(1_000_000), event.Actor{}, "")
	cfg := &spec.Config{ClusterName: "c", GresTypes: []string{"gpu"}, Nodes: []spec.NodeSpec{{Name: "n1", CPUs: 8, Mem: 1000, GRES: []spec.GRESSpec{{Name: "gpu", N: 2}}}},
		Partitions: []spec.PartitionSpec{{Name: "p", NodeNames: []string{"n1"}, Default: true}}}
	inv := spec.Inventory{BootID: "b", CPUs: 8, Mem: 1000, GPUs: []spec.GPU{{Index: 0, UUID: "G0"}, {Index: 1, UUID: "G1"}}}
	for _, cmd := range []scheduler.Command{
		scheduler.Policy{Events: []event.Event{&event.ClusterCreated{UUID: [16]byte{1}, Name: "c", Version: 1}}},
		scheduler.Configure{Config: cfg}, scheduler.RegisterNode{Node: "n1", Inventory: inv},
		scheduler.Submit{Spec: &spec.JobSpec{User: "a", UID: 1, Name: "j", Size: spec.Size{PerNode: []spec.Count{{Name: "gpu", N: 1}}}}},
	} {
		if _, err := scheduler.Decide(tr, cmd); err != nil {
			t.Fatal(err)
		}
	}
	out, err := scheduler.Pass(tr.State.Freeze(), tr.Now, scheduler.PassOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scheduler.Decide(tr, scheduler.Starts{Proposal: &out.Proposal}); err != nil {
		t.Fatal(err)
	}
	if j := tr.Job(1); j.State != spec.Running {
		t.Fatalf("the job is %s", j.State)
	}
	return tr
}

// TestGPUFaults: what follows from a fault is what the site asked for, and
// nothing by default.
func TestGPUFaults(t *testing.T) {
	idle := spec.GPUFault{UUID: "G0", Kind: spec.GPUIdle, Job: 1, Attempt: 1, Idle: 20 * spec.Minute}
	cancel := scheduler.GPUPolicy{CancelIdle: true, IdleAfter: 10 * spec.Minute, Grace: 10 * spec.Minute}
	for name, tc := range map[string]struct {
		fault  spec.GPUFault
		policy scheduler.GPUPolicy
		want   string // kinds of the events
		reason string
	}{
		"only recorded":          {fault: spec.GPUFault{UUID: "G1", Kind: spec.GPULost}, want: "GPUFaulted"},
		"lost drains":            {spec.GPUFault{UUID: "G1", Kind: spec.GPULost}, scheduler.GPUPolicy{Drain: true}, "GPUFaulted NodeStateSet", "GPU G1 is lost"},
		"fatal XID drains":       {spec.GPUFault{UUID: "G1", Kind: spec.GPUXID, XID: 79, Class: "fatal"}, scheduler.GPUPolicy{Drain: true}, "GPUFaulted NodeStateSet", "GPU G1: XID 79"},
		"a program's XID is its": {spec.GPUFault{UUID: "G0", Kind: spec.GPUXID, XID: 31, Class: "application", Job: 1, Attempt: 1}, scheduler.GPUPolicy{Drain: true}, "GPUFaulted", ""},
		"idle is shown":          {idle, scheduler.GPUPolicy{IdleAfter: 1}, "GPUFaulted", ""},
		"idle is cancelled":      {idle, cancel, "GPUFaulted JobEndRequested", ""},
		"within the grace":       {spec.GPUFault{UUID: "G0", Kind: spec.GPUIdle, Job: 1, Attempt: 1, Idle: 19 * spec.Minute}, cancel, "GPUFaulted", ""},
		"another attempt":        {spec.GPUFault{UUID: "G0", Kind: spec.GPUIdle, Job: 1, Attempt: 2, Idle: spec.Hour}, cancel, "", ""},
		"no such job":            {spec.GPUFault{UUID: "G0", Kind: spec.GPUIdle, Job: 9, Attempt: 1, Idle: spec.Hour}, cancel, "", ""},
		"a kind of the future":   {spec.GPUFault{UUID: "G0", Kind: 99}, cancel, "", ""},
		"an XID after its job":   {spec.GPUFault{UUID: "G0", Kind: spec.GPUXID, XID: 13, Job: 1, Attempt: 7}, cancel, "GPUFaulted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tr := gpuCluster(t)
			before := len(tr.Events)
			if _, err := scheduler.Decide(tr, scheduler.GPUReport{Node: "n1", Fault: tc.fault, Policy: tc.policy}); err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for _, e := range tr.Events[before:] {
				kinds = append(kinds, e.Event.Kind().String())
			}
			if got := strings.Join(kinds, " "); got != tc.want {
				t.Errorf("events %q, want %q", got, tc.want)
			}
			if n := tr.Node("n1"); n.Reason != tc.reason {
				t.Errorf("reason %q, want %q", n.Reason, tc.reason)
			}
			for _, c := range state.Checks() {
				if err := c.Check(tr.State); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestAFaultNamesWhomItStruck: the record of an error names the job that held
// the device, for as long as the error is remembered. It is right where the job
// ended before the report came, and empty where the agent could not tell.
func TestAFaultNamesWhomItStruck(t *testing.T) {
	for name, tc := range map[string]struct {
		fault spec.GPUFault
		want  spec.JobID
	}{
		"holder":           {spec.GPUFault{UUID: "G0", Kind: spec.GPUXID, XID: 48, Job: 1, Attempt: 1}, 1},
		"nobody":           {spec.GPUFault{UUID: "G0", Kind: spec.GPUXID, XID: 48}, 0},
		"no such job":      {spec.GPUFault{UUID: "G0", Kind: spec.GPUXID, XID: 48, Job: 99, Attempt: 1}, 0},
		"a future attempt": {spec.GPUFault{UUID: "G0", Kind: spec.GPUXID, XID: 48, Job: 1, Attempt: 7}, 0},
		"a claim":          {spec.GPUFault{UUID: "G0", Kind: spec.GPUXID, XID: 48, JobID: 5, User: "eve"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tr := gpuCluster(t)
			if _, err := scheduler.Decide(tr, scheduler.GPUReport{Node: "n1", Fault: tc.fault}); err != nil {
				t.Fatal(err)
			}
			f := tr.Node("n1").Faults[0]
			if f.JobID != tc.want || (f.User != "") != (tc.want != 0) {
				t.Errorf("the fault names job %d of %q, want %d", f.JobID, f.User, tc.want)
			}
		})
	}
	t.Run("job over before the report", func(t *testing.T) {
		tr := gpuCluster(t)
		node := tr.Job(1).Alloc.Nodes[0].Name
		done := scheduler.Report{Node: node, Run: scheduler.Run{UID: 1, Attempt: 1}, Done: &scheduler.NodeDone{Batch: &event.StepResult{}}}
		if _, err := scheduler.Decide(tr, done); err != nil {
			t.Fatal(err)
		}
		late := spec.GPUFault{UUID: "G0", Kind: spec.GPUXID, XID: 48, Job: 1, Attempt: 1}
		if _, err := scheduler.Decide(tr, scheduler.GPUReport{Node: node, Fault: late}); err != nil {
			t.Fatal(err)
		}
		if f := tr.Node(node).Faults[0]; f.JobID != 1 {
			t.Errorf("the fault names job %d, want 1", f.JobID)
		}
	})
}

// TestFaultsAreRemembered: the last of each kind, device and number, with how
// often; a device that answers again is not lost any more.
func TestFaultsAreRemembered(t *testing.T) {
	tr := gpuCluster(t)
	say := func(f spec.GPUFault) {
		t.Helper()
		if _, err := scheduler.Decide(tr, scheduler.GPUReport{Node: "n1", Fault: f}); err != nil {
			t.Fatal(err)
		}
	}
	say(spec.GPUFault{UUID: "G1", Kind: spec.GPULost})
	say(spec.GPUFault{UUID: "G0", Kind: spec.GPUXID, XID: 31, Class: "application", Count: 4})
	say(spec.GPUFault{UUID: "G0", Kind: spec.GPUXID, XID: 31, Class: "application"})
	say(spec.GPUFault{UUID: "G1", Kind: spec.GPUReturned})
	n := tr.Node("n1")
	if len(n.Faults) != 2 || n.Faults[0].Count != 5 || n.Faults[0].XID != 31 || n.Faults[1].Kind != spec.GPUReturned {
		t.Errorf("%+v", n.Faults)
	}
	for i := range 3 * state.MaxGPUFaults {
		say(spec.GPUFault{UUID: "G0", Kind: spec.GPUXID, XID: int64(100 + i)})
	}
	if n := tr.Node("n1"); len(n.Faults) != state.MaxGPUFaults || n.Faults[state.MaxGPUFaults-1].XID != int64(100+3*state.MaxGPUFaults-1) {
		t.Errorf("%d are remembered", len(n.Faults))
	}
	want := map[string]uint64{"xid application": 5, "xid ": 3 * state.MaxGPUFaults, "lost ": 1, "returned ": 1}
	for _, f := range tr.State.Totals.GPUFaults {
		if want[f.Kind.String()+" "+f.Class] != f.Count {
			t.Errorf("%+v", f)
		}
	}
}

// TestIdleWarns: the user is warned where the site wants it, with the time at
// which the job is cancelled where it will be.
func TestIdleWarns(t *testing.T) {
	at := spec.AtUnix(2_000_000)
	for name, tc := range map[string]struct {
		policy scheduler.GPUPolicy
		idle   spec.Span
		warned bool
		cancel spec.Instant
	}{
		"report":         {scheduler.GPUPolicy{IdleAfter: 10 * spec.Minute, Grace: 5 * spec.Minute}, 10 * spec.Minute, false, 0},
		"warn":           {scheduler.GPUPolicy{WarnIdle: true, IdleAfter: 10 * spec.Minute, Grace: 5 * spec.Minute}, 10 * spec.Minute, true, 0},
		"cancel, before": {scheduler.GPUPolicy{WarnIdle: true, CancelIdle: true, IdleAfter: 10 * spec.Minute, Grace: 5 * spec.Minute}, 12 * spec.Minute, true, at.Add(3 * spec.Minute)},
		"cancel, now":    {scheduler.GPUPolicy{CancelIdle: true, IdleAfter: 10 * spec.Minute, Grace: 5 * spec.Minute}, 15 * spec.Minute, true, 0},
	} {
		tr := gpuCluster(t)
		f := spec.GPUFault{UUID: "G0", Kind: spec.GPUIdle, Job: 1, Attempt: 1, Idle: tc.idle, At: at}
		if _, err := scheduler.Decide(tr, scheduler.GPUReport{Node: "n1", Fault: f, Policy: tc.policy}); err != nil {
			t.Fatal(err)
		}
		if got := tr.Node("n1").Faults[0]; got.Warned != tc.warned || got.Cancel != tc.cancel {
			t.Errorf("%s: warned %v, cancelled at %v; want %v, %v", name, got.Warned, got.Cancel, tc.warned, tc.cancel)
		}
	}
}

// TestCheckReport: a node that is not well is set aside and taken back when it
// is well again; what an administrator has set stays.
func TestCheckReport(t *testing.T) {
	node, root := event.Actor{Kind: event.ActorNode, Name: "n1"}, event.Actor{Kind: event.ActorUser}
	tr := gpuCluster(t)
	for i, step := range []struct {
		as    event.Actor
		cmd   scheduler.Command
		admin event.NodeAdminState
		why   string
	}{
		{node, scheduler.CheckReport{Node: "n1"}, event.NodeResume, ""},
		{node, scheduler.CheckReport{Node: "n1", Failed: "no space"}, event.NodeDrain, "Health check: no space"},
		{node, scheduler.CheckReport{Node: "n1", Failed: "worse"}, event.NodeDrain, "Health check: no space"},
		{node, scheduler.CheckReport{Node: "n1"}, event.NodeResume, ""},
		{root, scheduler.UpdateNodes{Nodes: []string{"n1"}, State: event.NodeDrain, Reason: new("Health check: by hand")}, event.NodeDrain, "Health check: by hand"},
		{node, scheduler.CheckReport{Node: "n1", Failed: "no space"}, event.NodeDrain, "Health check: by hand"},
		{node, scheduler.CheckReport{Node: "n1"}, event.NodeDrain, "Health check: by hand"},
		{node, scheduler.CheckReport{Node: "gone", Failed: "x"}, event.NodeDrain, "Health check: by hand"},
	} {
		tr.Actor = step.as
		if _, err := scheduler.Decide(tr, step.cmd); err != nil {
			t.Fatal(err)
		}
		if n := tr.Node("n1"); n.Admin != step.admin || n.Reason != step.why {
			t.Errorf("step %d: %v %q", i, n.Admin, n.Reason)
		}
	}
}
