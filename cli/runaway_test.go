package cli

import (
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// TestRunaway: a job that only accounting takes for open is listed.
func TestRunaway(t *testing.T) {
	w := newWorld(t)
	w.books()
	w.now = at("01:50:00")
	w.acct = append(w.acct, &apiv1.AcctRow{Uid: 99, JobId: 99, ArrayTask: -1, Name: "ghost", Partition: "gpu", State: "RUNNING", Submit: at("01:44:00"), Start: at("01:44:01")})
	r := w.shell("sacctmgr show runaway -P")
	if r.code != 0 || !strings.Contains(r.out, "\n99|ghost|gpu|peer|RUNNING|2026-11-21T01:44:00|2026-11-21T01:44:01|Unknown\n") || strings.Contains(r.out, "gpu-small") {
		t.Errorf("%d %s%s", r.code, r.out, r.errOut)
	}
}
