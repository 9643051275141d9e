package slurm

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// answers stand for a slurmrestd of a later release than the one the real test
// reads: numbers are objects, states are lists.
func answers() map[string]string {
	return map[string]string{
		"/openapi/v3":                 `{"paths":{"/slurm/v0.0.9/jobs/":{},"\/slurm\/v0.0.41\/jobs\/":{},"/slurm/v0.0.40/jobs/":{},"/slurmdb/v0.0.42/jobs/":{}}}`,
		"/slurm/v0.0.41/ping":         `{"pings":[],"meta":{"slurm":{"release":"24.05.1"}}}`,
		"/slurm/v0.0.41/jobs":         jobsNew,
		"/slurm/v0.0.41/nodes":        nodesNew,
		"/slurm/v0.0.41/partitions":   `{"partitions":[{"name":"gpu","nodes":{"configured":"n1"}}]}`,
		"/slurm/v0.0.41/reservations": `{"reservations":[{"name":"course","node_list":"n1","flags":["IGNORE_JOBS","SPEC_NODES"],"users":"ada","start_time":{"set":true,"number":5},"end_time":{"set":true,"number":9},"node_count":1,"core_count":64,"licenses":"matlab:2"}]}`,
		"/slurm/v0.0.41/licenses":     `{"licenses":[{"LicenseName":"matlab","Total":10,"Used":3,"Free":7,"Reserved":2,"Remote":false}]}`,
		"/slurm/v0.0.41/diag": `{"statistics":{"server_thread_count":3,"schedule_cycle_mean":7,"jobs_submitted":9,"req_time_start":{"set":true,"number":77},"bf_active":false,
			"rpcs_by_message_type":[{"message_type":"REQUEST_PING","type_id":1008,"count":4,"total_time":40}],"rpcs_by_user":[{"user":"root","user_id":0,"count":5,"total_time":50}]}}`,
	}
}

func TestREST(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("SLURM_JWT=first\n")
	wanted, given := "first", answers()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-SLURM-USER-NAME") != "monitor" || r.Header.Get("X-SLURM-USER-TOKEN") != wanted {
			http.Error(w, "Authentication\nfailure", http.StatusUnauthorized)
			return
		}
		text, ok := given[r.URL.Path]
		if text == "slow" {
			<-r.Context().Done()
			return
		}
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, text)
	}))
	defer server.Close()
	s := New(Options{Timeout: 300 * time.Millisecond, Log: slog.New(slog.DiscardHandler), REST: &REST{URL: server.URL + "/", User: "monitor", TokenFile: token, Cluster: "east"}})
	problem := func(section string) string {
		t.Helper()
		s.Refresh(context.Background())
		for _, sec := range s.Latest().Sections {
			if sec.Name == section && sec.Err != nil {
				return sec.Err.Error()
			}
		}
		return ""
	}
	if p := problem("jobs"); p != "" {
		t.Fatal(p)
	}
	snap := s.Latest()
	got := fmt.Sprintf("%s %s %d %s %v\n%+v\n%+v\n%v %v %v %v %+v %+v", snap.Cluster, snap.Version, len(snap.Jobs), snap.Nodes[0].Name, snap.Partitions, snap.Reservations, snap.Licenses,
		snap.Sched.Numbers["Server thread count"], snap.Sched.Numbers["Main schedule statistics/Mean cycle"], snap.Sched.Numbers["Jobs submitted"], snap.Sched.Numbers["Data since"], snap.Sched.RPCs, snap.Sched.Users)
	const want = `east 24.05.1 2 n1 [gpu]
[{Name:course State: Nodes:n1 Partition: Flags:IGNORE_JOBS,SPEC_NODES Users:ada Accounts: Start:5 End:9 NodeCount:1 Cores:64 Licenses:[{Name:matlab N:2}]}]
[{Name:matlab Total:10 Used:3 Reserved:2}]
3 7 9 77 [{Name:REQUEST_PING Count:4 Micro:40}] [{Name:root Count:5 Micro:50}]`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if len(snap.Sections) != 6 || len(snap.Commands) != 1 || snap.Commands[0].Name != "slurmrestd" || snap.Commands[0].Runs != 8 {
		t.Errorf("%+v %+v", snap.Sections, snap.Commands)
	}

	// The token changes while it runs; what goes wrong says so, and what was good stays.
	wanted = "second"
	if p := problem("jobs"); !strings.Contains(p, "GET /slurm/v0.0.41/jobs: slurmrestd refuses: 401 Unauthorized: Authentication failure") {
		t.Error(p)
	}
	write("second")
	if p := problem("jobs"); p != "" {
		t.Error(p)
	}
	for text, said := range map[string]string{"slow": "took too long: more than 300ms", `{"errors":[]}`: "has no key jobs", "<html>": "does not begin with an object"} {
		given["/slurm/v0.0.41/jobs"] = text
		if p := problem("jobs"); !strings.Contains(p, said) || len(s.Latest().Jobs) != 2 {
			t.Errorf("%s: %q, %d jobs", text, p, len(s.Latest().Jobs))
		}
	}
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	if p := problem("nodes"); !strings.Contains(p, "observe.rest_token_file: open") {
		t.Error(p)
	}
	write("second")
	given["/openapi/v3"] = `{"paths":{"/slurmdb/v0.0.42/jobs/":{}}}`
	s.named = false
	if p := problem("licenses"); !strings.Contains(p, "offers no /slurm/v0.0.N") {
		t.Error(p)
	}
	given["/openapi/v3"] = answers()["/openapi/v3"]
	s.named = false
	if p := problem("diag") + problem("licenses"); p != "" {
		t.Error(p)
	}
	server.Close()
	if p := problem("nodes"); !strings.Contains(p, "connection refused") {
		t.Error(p)
	}
}
