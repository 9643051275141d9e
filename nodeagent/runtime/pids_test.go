package runtime_test

import (
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
)

// A run that starts processes without end gets no more than its limit, while another
// run goes on as before.
func TestAForkBombStaysInItsRun(t *testing.T) {
	l := newLab(t)
	if !l.client.Hello().Enforces.Pids {
		t.Skip("needs a control group with the pids controller")
	}
	bomb := l.job(`bomb() { bomb & bomb & }; bomb 2>&1; sleep 1; echo after`)
	bomb.Limits.Pids = 20
	x, out := l.run(bomb)
	if !strings.Contains(strings.ToLower(out), "fork") {
		t.Errorf("no fork failed: %+v\n%s", x, out)
	}
	x, out = l.run(l.job(`for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1 & done; wait; echo whole`))
	if x.Failure != plan.None || x.Code != 0 || !strings.Contains(out, "whole") {
		t.Errorf("%+v\n%s", x, out)
	}
}
