package wire

import (
	"fmt"
	"slices"
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/event/eventtest"
	"github.com/musterhpc/muster/spec"
)

// TestEveryKindIsShown: each kind of event has a topic of its own choice and says
// something, of the job or the nodes that it is about.
func TestEveryKindIsShown(t *testing.T) {
	secret := []event.Kind{event.KindTokenIssued, event.KindTokenSpent, event.KindCertificateIssued, event.KindCertificateRevoked,
		event.KindCertificatesDropped, event.KindHistoryLost, event.KindCrontabPut, event.KindUserTokenIssued, event.KindUserTokensEnded,
		event.KindTriggerPut, event.KindTriggerRemoved}
	for _, k := range event.Kinds() {
		topic := TopicOf(k)
		if got, want := topic == TopicSecret, slices.Contains(secret, k); got != want {
			t.Errorf("%s is for administrators: %v, want %v; a new kind needs its line in TopicOf", k, got, want)
		}
		parts := EventParts(eventtest.Full(k), func(uid spec.JobUID) string { return fmt.Sprint("job", uid) })
		if len(parts) == 0 {
			t.Errorf("%s has no part", k)
		}
		for _, p := range parts {
			switch {
			case topic == TopicJob && p.Job == 0:
				t.Errorf("%s is about no job", k)
			case topic == TopicNode && len(p.Nodes) == 0:
				t.Errorf("%s is about no node", k)
			case topic == TopicReservation && p.Reservation == "":
				t.Errorf("%s is about no reservation", k)
			case topic != TopicJob && topic != TopicNode && len(p.Fields) == 0:
				t.Errorf("%s says nothing", k)
			}
			names := map[string]bool{}
			for _, f := range p.Fields {
				if f.GetName() == "" || names[f.GetName()] {
					t.Errorf("%s has the field %q twice, or without a name", k, f.GetName())
				}
				names[f.GetName()] = true
			}
		}
	}
}

// TestOtherJobsAreNamedByPermission: an event names a job beside its own only if
// the reader may know of it.
func TestOtherJobsAreNamedByPermission(t *testing.T) {
	nobody := func(spec.JobUID) string { return "" }
	somebody := func(spec.JobUID) string { return "4711" }
	for _, e := range []event.Event{
		&event.JobSubmitted{UID: 2, Spec: &spec.JobSpec{}, Het: &spec.HetPart{Leader: 1, Offset: 1, Size: 2}},
		&event.ReasonsChanged{Jobs: []event.JobReason{{UID: 2, Reason: spec.Reason{Code: spec.ReasonPriority, Blocker: 1}}}},
		&event.JobEndRequested{UID: 2, Cause: event.EndPreempt, For: 1},
		&event.JobSuspended{UID: 2, For: 1},
		&event.GPUFaulted{Node: "n1", Fault: spec.GPUFault{Job: 1}},
	} {
		says := func(name func(spec.JobUID) string) bool {
			for _, f := range EventParts(e, name)[0].Fields {
				if f.GetText() == "4711" || f.GetText() == "1" {
					return true
				}
			}
			return false
		}
		if says(nobody) || !says(somebody) {
			t.Errorf("%s names the other job: %v to whom it is hidden, %v to whom it is not", e.Kind(), says(nobody), says(somebody))
		}
	}
}
