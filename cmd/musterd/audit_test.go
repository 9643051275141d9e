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
	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/internal/audit"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rest"
	"github.com/musterhpc/muster/internal/transport/status"
	"github.com/musterhpc/muster/ledger/state"
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
	var trail *auditTrail
	run := func() (stop func()) {
		var err error
		if trail, err = openTrail(s); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		g := &group{ctx: ctx, errs: make(chan error, 4)}
		trail.spawnExporters(g)
		return func() {
			cancel()
			g.wg.Wait()
		}
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
	s.trail = trail
	gateway := rest.New(rest.Config{Errors: status.Numbers(), Unary: s.aroundUnary(), Refused: s.trail.notIdentified, Table: s.limits,
		Identify: func(r *http.Request) (identity.Identity, error) {
			return s.webIdentity(r, nil)
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
	for _, st := range trail.targetStatus() {
		if st.Name != "file" || st.Records == 0 || st.Seconds != 0 || st.Seq != s.ctl.View().State.Seq {
			t.Errorf("status %+v", st)
		}
	}
}

// TestResumeAt: a position in a history that was lost continues with the first event
// that its target cannot have.
func TestResumeAt(t *testing.T) {
	st := state.New()
	st.Seq = 100
	st.Epochs = []state.Epoch{{Value: 7, Seq: 1}, {Value: 8, Seq: 40}, {Value: 9, Seq: 80}}
	for _, c := range []struct {
		pos  audit.Position
		from uint64
		gap  bool
	}{
		{audit.Position{}, 80, false}, {audit.Position{Epoch: 7, Seq: 39}, 40, false}, {audit.Position{Epoch: 9, Seq: 100}, 101, false},
		{audit.Position{Epoch: 8, Seq: 95}, 80, true}, {audit.Position{Epoch: 5, Seq: 50}, 1, true}, {audit.Position{Epoch: 9, Seq: 120}, 101, true},
	} {
		if from, gap := resumeAt(st, c.pos); from != c.from || (gap != "") != c.gap {
			t.Errorf("%+v: from %d, gap %q", c.pos, from, gap)
		}
	}
}

// TestPositionToKeep: a standby follows the leader's position at a receiver of both,
// and begins a file of its own where it first saw the leader.
func TestPositionToKeep(t *testing.T) {
	const siem = "tls://siem:6514"
	own := audit.Position{Epoch: 1, Seq: 5}
	lead := audit.Position{Epoch: 2, Seq: 9}
	none := audit.Position{}
	for name, c := range map[string]struct {
		own      audit.Position
		to       string
		leader   peers.Delivered
		expected audit.Position
	}{
		"a receiver of both":              {own, siem, peers.Delivered{To: siem, Position: lead}, lead},
		"a receiver of both, at first":    {none, siem, peers.Delivered{To: siem, Position: lead}, lead},
		"the leader does not know either": {own, siem, peers.Delivered{To: siem, Position: none}, own},
		"a file of this host":             {own, "", peers.Delivered{To: "", Position: lead}, own},
		"a file of this host, at first":   {none, "", peers.Delivered{To: "", Position: lead}, lead},
		"the leader has another receiver": {own, siem, peers.Delivered{To: "tls://other:6514", Position: lead}, own},
	} {
		if got := positionToKeep(c.own, c.to, c.leader); got != c.expected {
			t.Errorf("%s: %v, expected %v", name, got, c.expected)
		}
	}
}
