package query

import (
	"fmt"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// TestUpgradePlan: standbys come before the witness, that before the leader, then agents, and the
// ledger last; what stands in the way of the next step is said.
func TestUpgradePlan(t *testing.T) {
	nodes := []*apiv1.NodeInfo{{Name: "n1", Version: "v1"}, {Name: "n2", Version: "v2"}, {Name: "n3", Version: "v1"}, {Name: "n4"}}
	trio := func(change func(*apiv1.ControllersReply)) *apiv1.ControllersReply {
		list := &apiv1.ControllersReply{Survives: 1, LedgerVersion: 1, LedgerNewest: 2, Controllers: []*apiv1.ControllerInfo{
			{Name: "a", Role: "leader", Version: "v1"}, {Name: "b", Role: "standby", Version: "v2"},
			{Name: "w", Role: "witness", Version: "v1"}, {Name: "c", Role: "standby", Version: "v1"}}}
		change(list)
		return list
	}
	for name, c := range map[string]struct {
		list    *apiv1.ControllersReply
		raiseAt string
		steps   string // the first letters of what, and a star where something is to be done
		inWay   []string
		last    string
	}{
		"half way": {trio(func(*apiv1.ControllersReply) {}), "", "b c* w* a* n2 n[1,3]* ledger*", nil, "once all controllers are upgraded"},
		"an old leader": {trio(func(l *apiv1.ControllersReply) { l.LedgerVersion, l.LedgerNewest = 0, 0 }), "",
			"b c* w* a* n2 n[1,3]* ledger*", nil, "once all controllers are upgraded"},
		"one is down": {trio(func(l *apiv1.ControllersReply) {
			l.Controllers[1].Error = "no route to host"
			l.RaiseWaits = "b does not answer"
		}), "",
			"b* c* w* a* n2 n[1,3]* ledger*", []string{"b does not answer: no route to host", "the ledger's version: b does not answer"}, ""},
		"one lags": {trio(func(l *apiv1.ControllersReply) { l.Controllers[1].Lag = 1000 }), "", "b c* w* a* n2 n[1,3]* ledger*", []string{"b lacks 1000 batches"}, ""},
		"it joins": {trio(func(l *apiv1.ControllersReply) { l.Controllers[1].Role = "joining" }), "", "b c* w* a* n2 n[1,3]* ledger*", []string{"b has no vote"}, ""},
		"two of them": {trio(func(l *apiv1.ControllersReply) { l.Controllers = l.Controllers[:2]; l.Survives = 0 }), "",
			"b a* n2 n[1,3]* ledger*", []string{"survives the loss of 0"}, ""},
		"raised soon": {trio(func(*apiv1.ControllersReply) {}), "12:00", "b c* w* a* n2 n[1,3]* ledger*", nil, "by itself at 12:00"},
		"raised":      {trio(func(l *apiv1.ControllersReply) { l.LedgerVersion = 2 }), "", "b c* w* a* n2 n[1,3]* ledger", nil, ""},
		"alone": {&apiv1.ControllersReply{LedgerVersion: 2, LedgerNewest: 2, Controllers: []*apiv1.ControllerInfo{{Name: "a", Role: "leader", Version: "v1"}}}, "",
			"a* n2 n[1,3]* ledger", nil, ""},
	} {
		plan := makeUpgradePlan("v2", c.raiseAt, c.list, nodes)
		var got []string
		for _, s := range plan.Steps {
			mark := ""
			if s.Do != "" {
				mark = "*"
			}
			got = append(got, s.What+mark)
		}
		if text := strings.Join(got, " "); text != c.steps {
			t.Errorf("%s: steps %s, want %s", name, text, c.steps)
		}
		if len(plan.InWay) != len(c.inWay) {
			t.Errorf("%s: in the way %q, want %q", name, plan.InWay, c.inWay)
			continue
		}
		for i, want := range c.inWay {
			if !strings.Contains(plan.InWay[i], want) {
				t.Errorf("%s: in the way %q, want %q", name, plan.InWay[i], want)
			}
		}
		if last := plan.Steps[len(plan.Steps)-1]; !strings.Contains(last.Do, c.last) {
			t.Errorf("%s: at last %s", name, fmt.Sprint(last))
		}
	}
}
