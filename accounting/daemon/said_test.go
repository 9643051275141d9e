package daemon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// What is said of a job beside its comment, the node that was lost under it,
// and what its steps had of address space and frequency are told of runs that
// are over and of those that are not, and by muster sql too.
func TestSaid(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(t0))
	h.Nodes(2, 8, 16_000, 0)
	h.Accounts([]string{"ml"}, map[string][]string{"ml": {"alice"}})
	ask := tallytest.Ask{Name: "said", User: "alice", UID: 1001, Account: "ml", QOS: "normal", CPUs: 2, Mem: 100}
	var uids []spec.JobUID
	for i := range 3 {
		uid := h.Submit(ask)
		uids = append(uids, uid)
		js := *h.State.Job(uid).Spec
		js.Container = &spec.Container{Image: fmt.Sprintf("docker://app:%d", i)}
		js.Extra, js.AdminComment, js.SystemComment, js.MCSLabel = fmt.Sprintf("extra %d", i), "looked at", "from the portal", "ml"
		js.Place.Segment = uint32(i)
		h.Put(&event.JobUpdated{UID: uid, Spec: &js, Req: h.State.Job(uid).Req, Assoc: h.State.Job(uid).Assoc, Changed: []string{"Extra"}})
		h.Start(uid, "n1", "n2")
	}
	for i := range 2 {
		h.Put(&event.ImagePinned{UID: uids[i], Attempt: 1, Node: "n1", Image: fmt.Sprintf("docker://app:%d", i), Digest: fmt.Sprintf("sha256:%d", i)})
	}
	step := &spec.StepSpec{Container: &spec.Container{Image: "docker://app:1"}}
	h.Put(&event.StepStarted{UID: uids[1], Attempt: 1, Step: 0, Name: "s", Nodes: []string{"n1"}, Tasks: 1, Spec: step})
	h.Now = spec.AtUnix(t0 + 600)
	h.Finish(uids[0], spec.Usage{UserCPU: spec.Second, PeakVM: 7 << 20, CPUKHz: 2_596_000})
	h.End(uids[1], spec.NodeFailed, spec.ExitStatus{})
	h.Put(&event.JobNodeDone{UID: uids[1], Attempt: 1, Node: "n2", Lost: true})
	h.Done(uids[1], spec.Usage{}, spec.ExitStatus{})

	ledger := newLedger(t)
	ledger.add(t, h.Log, 7)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.clock.set(h.Now.Add(spec.Minute))
	r.start()
	r.stored(uint64(len(h.Log)))
	for _, c := range []struct {
		fields []string
		want   string
	}{
		{nil, "[1 extra 0|looked at|from the portal|ml||0 1.batch vm 7340032 khz 2596000] [2 extra 1|looked at|from the portal|ml|n2|1 2.batch vm 0 khz 0] 2.0 vm 0 khz 0] [3 extra 2|looked at|from the portal|ml||2 3.batch vm 0 khz 0]"},
		{[]string{"extra", "failed_node"}, "[1 extra 0|||||0 1.batch vm 0 khz 0] [2 extra 1||||n2|0 2.batch vm 0 khz 0] 2.0 vm 0 khz 0] [3 extra 2|||||0 3.batch vm 0 khz 0]"},
		{[]string{"admin_comment", "segment", "mcs_label", "system_comment"}, "[1 |looked at|from the portal|ml||0 1.batch vm 0 khz 0] [2 |looked at|from the portal|ml||1 2.batch vm 0 khz 0] 2.0 vm 0 khz 0] [3 |looked at|from the portal|ml||2 3.batch vm 0 khz 0]"},
	} {
		got := ""
		for _, row := range r.acct(&apiv1.AcctQuery{AllUsers: true, Start: 1, Fields: c.fields}) {
			if row.GetStep() == "" {
				got += fmt.Sprintf(" [%d %s|%s|%s|%s|%s|%d", row.GetJobId(), row.GetExtra(), row.GetAdminComment(), row.GetSystemComment(), row.GetMcsLabel(), row.GetFailedNode(), row.GetSegment())
			} else {
				got += fmt.Sprintf(" %d.%s vm %d khz %d]", row.GetJobId(), row.GetStep(), row.GetUsage().GetPeakVm(), row.GetUsage().GetCpuKhz())
			}
		}
		if got != " "+c.want {
			t.Errorf("%v:\n%s, want\n %s", c.fields, got, c.want)
		}
	}
	var images []string
	for _, row := range r.acct(&apiv1.AcctQuery{AllUsers: true, Start: 1, Fields: []string{"container"}}) {
		images = append(images, row.GetStep()+"="+row.GetContainer())
	}
	const want = "=docker://app:0@sha256:0 batch=docker://app:0@sha256:0 " +
		"=docker://app:1@sha256:1 batch=docker://app:1@sha256:1 0=docker://app:1@sha256:1 " +
		"=docker://app:2 batch=docker://app:2"
	if got := strings.Join(images, " "); got != want {
		t.Errorf("images of containers: %q", got)
	}
}
