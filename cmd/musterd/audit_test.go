package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/controller/exporting"
	"github.com/musterhpc/muster/internal/audit/trail"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rest"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// auditLine is what the test looks at of a record.
type auditLine struct {
	Event struct {
		Action, Outcome, Reason, ID string
	}
	User   struct{ Name string }
	Source struct{ IP, Address string }
	Muster struct {
		Command string
		Fields  map[string]any
	}
}

// TestAuditTrail: changes are in the file with who made them, over a restart each
// of them; refused calls and bad tokens are there too.
func TestAuditTrail(t *testing.T) {
	s, svc := eventsWorld(t)
	s.cfg.Audit.File = filepath.Join(t.TempDir(), "audit.json")
	s.limits = s.limitTable()
	s.calls = &collector.Calls{}
	var written *trail.Trail
	run := func() (stop func()) {
		var err error
		if written, err = trail.Open(s.trailOptions()); err != nil {
			t.Fatal(err)
		}
		g := parts.New(context.Background())
		written.EachExporter(g.Spawn)
		return g.Stop
	}
	read := func() (out []auditLine) {
		data, _ := os.ReadFile(s.cfg.Audit.File) // it comes with the first record
		for line := range strings.Lines(string(data)) {
			var r auditLine
			if !strings.HasSuffix(line, "\n") {
				break // it is being written
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			out = append(out, r)
		}
		return out
	}
	find := func(action string) (found []auditLine) {
		for _, r := range read() {
			if r.Event.Action == action {
				found = append(found, r)
			}
		}
		return found
	}
	wait := func(action string, n int) []auditLine {
		for len(find(action)) < n && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		return find(action)
	}

	stop := run()
	if got := wait("node-state-set", 1); got[0].User.Name != "root" || got[0].Event.Outcome != "success" {
		t.Errorf("the drain is %+v", got[0])
	}
	s.trail = written
	gateway := rest.New(rest.Config{Errors: rpcstatus.Numbers(), Unary: s.aroundUnary(), Refused: s.trail.NotIdentified, Table: s.limits,
		Identify: func(r *http.Request) (identity.Identity, error) {
			return s.callers().WebIdentity(r, nil)
		}})
	service.RegisterClusterServer(gateway, svc)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/Cluster/Submit", strings.NewReader("{}"))
	request.Header.Set("Authorization", "Bearer forged")
	gateway.ServeHTTP(httptest.NewRecorder(), request)
	if got := wait("authentication-refused", 1); got[0].Source.IP != "192.0.2.1" || got[0].Event.Outcome != "failure" || got[0].Muster.Command != "POST /v1/Cluster/Submit" {
		t.Errorf("a forged token is %+v", got[0])
	}
	bob := identity.Identity{Kind: identity.LocalUser, UID: 4002, User: "bob"}
	drain := &apiv1.UpdateNodeRequest{Nodes: "node1", State: "drain", Reason: "mine"}
	if _, err := gateway.Call(t.Context(), bob, "/muster.v1.Cluster/UpdateNode", drain); err == nil {
		t.Fatal("bob drains a node")
	}
	if got := wait("authorization-refused", 1); got[0].User.Name != "bob" || got[0].Muster.Command != "Cluster/UpdateNode" || got[0].Muster.Fields["nodes"] != "node1" {
		t.Errorf("bob's drain is %+v", got[0])
	}
	stop()

	if _, err := svc.UpdateNode(as(t, "root", 0), &apiv1.UpdateNodeRequest{Nodes: "node2", State: "resume"}); err != nil {
		t.Fatal(err)
	}
	stop = run()
	wait("node-state-set", 2)
	stop()
	seen := map[string]int{}
	for _, r := range read() {
		seen[r.Event.ID]++
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("record %s is there %d times although nothing failed", id, n)
		}
	}
	if err := svc.Events(&apiv1.EventsRequest{Since: 1, Audit: true}, &eventsReader{ctx: as(t, "bob", 4002)}); err == nil {
		t.Error("a user reads the audit trail")
	}
	s.trail = written // of the last run
	for _, st := range exporting.AuditTargets(s.trail) {
		if st.Name != "file" || st.Records == 0 || st.Seconds != 0 || st.Seq != s.ctl.View().State.Seq {
			t.Errorf("status %+v", st)
		}
	}
}
