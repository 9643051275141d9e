package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// slurmREST asks a cluster in Slurm's way and holds every answer to the description
// that the cluster serves.
type slurmREST struct {
	t      *testing.T
	client *http.Client
	base   string
	token  string
	doc    *openapi3.T
}

// socketREST asks over the socket of this host.
func socketREST(t *testing.T, c *cluster) *slurmREST {
	s := &slurmREST{t: t, base: "http://muster", client: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(c.dir, "run", "rest.sock"))
	}}}}
	s.readDescription()
	return s
}

// tokenREST asks over TLS with a token.
func tokenREST(t *testing.T, c *cluster, token string) *slurmREST {
	pem, err := os.ReadFile(filepath.Join(c.dir, "state", "tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		t.Fatal("ca.crt holds no certificate")
	}
	s := &slurmREST{t: t, base: fmt.Sprintf("https://localhost:%d", c.port+3), token: token,
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}}
	s.readDescription()
	return s
}

func (s *slurmREST) readDescription() {
	s.t.Helper()
	rep, err := s.client.Get(s.base + "/openapi/v3")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rep.Body.Close()
	text, err := io.ReadAll(rep.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.doc, err = openapi3.NewLoader().LoadFromData(text); err != nil {
		s.t.Fatalf("/openapi/v3: %v", err)
	}
	if err := s.doc.Validate(s.t.Context()); err != nil {
		s.t.Fatalf("/openapi/v3 is not valid: %v", err)
	}
}

// operation finds what the description says of a path; fixed paths come first.
func (s *slurmREST) operation(method, path string) *openapi3.Operation {
	path, _, _ = strings.Cut(path, "?")
	variable := regexp.MustCompile(`\\\{[a-z_]+\\\}`)
	var found *openapi3.Operation
	for pattern, item := range s.doc.Paths.Map() {
		like := variable.ReplaceAllString(regexp.QuoteMeta(strings.TrimSuffix(pattern, "/")), `[^/]+`)
		if !regexp.MustCompile("^" + like + "/?$").MatchString(path) {
			continue
		}
		if op := item.GetOperation(method); op != nil && (found == nil || !strings.Contains(pattern, "{")) {
			found = op
		}
	}
	return found
}

// ask makes a request, checks its answer and reads it.
func (s *slurmREST) ask(method, path, body string, headers ...string) (int, map[string]any) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if s.token != "" {
		req.Header.Set("X-SLURM-USER-TOKEN", s.token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	rep, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rep.Body.Close()
	text, err := io.ReadAll(rep.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		s.t.Fatalf("%s %s: %d %.200q: %v", method, path, rep.StatusCode, text, err)
	}
	if op := s.operation(method, path); op != nil {
		shape := op.Responses.Status(http.StatusOK).Value.Content.Get("application/json").Schema.Value
		if err := shape.VisitJSON(out, openapi3.MultiErrors()); err != nil {
			s.t.Errorf("%s %s: the answer is not what the description says: %.2000v", method, path, err)
		}
	}
	if bytes.Contains(text, []byte("BUG")) {
		s.t.Errorf("%s %s: %s", method, path, text)
	}
	return rep.StatusCode, out
}

// must asks and wants no error.
func (s *slurmREST) must(method, path, body string) map[string]any {
	s.t.Helper()
	code, out := s.ask(method, path, body)
	if code != http.StatusOK {
		s.t.Fatalf("%s %s: %d %v", method, path, code, out["errors"])
	}
	return out
}

// refused asks and wants an error with a number of Slurm's, and words in it.
func (s *slurmREST) refused(code int, number float64, words, method, path, body string, headers ...string) {
	s.t.Helper()
	got, out := s.ask(method, path, body, headers...)
	list, _ := out["errors"].([]any)
	if got != code || len(list) == 0 {
		s.t.Errorf("%s %s: %d %v, want %d and an error", method, path, got, out["errors"], code)
		return
	}
	text := fmt.Sprint(list)
	first, _ := list[0].(map[string]any)
	if first["error_number"] != number || !strings.Contains(text, words) {
		s.t.Errorf("%s %s: %v, want number %v and %q", method, path, list, number, words)
	}
}

// field walks into a document.
func field(t *testing.T, doc any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := doc.(map[string]any)
			doc = m[p]
		case int:
			l, _ := doc.([]any)
			if p >= len(l) {
				t.Fatalf("%v: the list has %d", path, len(l))
			}
			doc = l[p]
		}
	}
	return doc
}

// TestSlurmREST takes a job through its life with a token over TLS: submitted,
// listed, changed, cancelled and accounted for, in each version of the API.
func TestSlurmREST(t *testing.T) {
	c := start(t)
	// The job is another user's, who must reach its script.
	if err := os.Chmod(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	name := me.Username
	if name == "root" {
		name = "nobody" // a token of root is an administrator's, who runs no jobs
	}
	local := socketREST(t, c)
	token := strings.TrimPrefix(c.must("scontrol", "token", "lifespan=600", "username="+name), "SLURM_JWT=")
	s := tokenREST(t, c, token)
	for _, v := range []string{"v0.0.43", "v0.0.44", "v0.0.45"} {
		slurm, past := "/slurm/"+v+"/", "/slurmdb/"+v+"/"
		for _, path := range []string{"ping", "diag/", "nodes", "node/node1", "partitions", "partition/gpu", "jobs", "jobs/state", "licenses", "reservations", "shares"} {
			s.must("GET", slurm+path, "")
		}
		for _, path := range []string{"accounts", "associations", "association", "clusters", "config", "qos", "qos/normal", "tres", "users", "wckeys", "jobs", "ping"} {
			local.must("GET", past+path, "")
		}
		if got := field(t, s.must("GET", slurm+"ping", ""), "pings", 0, "responding"); got != true {
			t.Errorf("ping: responding %v", got)
		}
		out := s.must("POST", slurm+"job/submit", `{"script":"#!/bin/sh\n#SBATCH --comment=unread\necho $WORD $1\nsleep 600\n","job":{"name":"life","partition":"gpu","tasks":1,
			"current_working_directory":"/tmp","environment":["PATH=/usr/bin:/bin","WORD=hello"],"argv":["life.sh","world"],"time_limit":{"set":true,"number":5},
			"standard_output":"/tmp/muster-rest-%j.out","tres_per_node":"gres/gpu:1","memory_per_node":{"set":true,"number":64},"comment":"first","color":"red"}}`)
		id := fmt.Sprintf("%.0f", out["job_id"])
		if warned := fmt.Sprint(out["warnings"]); !strings.Contains(warned, "#/job/color") {
			t.Errorf("an unknown field was not named: %v", warned)
		}
		job := slurm + "job/" + id
		until := func(state string) {
			t.Helper()
			c.until(state, "squeue", "-h", "-t", "all", "-j", id, "-o", "%T")
		}
		until("RUNNING")
		doc := s.must("GET", job, "")
		for path, want := range map[string]any{"name": "life", "user_name": name, "comment": "first", "partition": "gpu", "current_working_directory": "/tmp"} {
			if got := field(t, doc, "jobs", 0, path); got != want {
				t.Errorf("%s: %s is %v, want %v", v, path, got, want)
			}
		}
		if got := fmt.Sprint(field(t, doc, "jobs", 0, "time_limit")); got != "map[infinite:false number:5 set:true]" {
			t.Errorf("time_limit: %s", got)
		}
		if v != "v0.0.43" {
			if got := field(t, s.must("GET", slurm+"resources/"+id, ""), "nodes", 0, "gres", 0, "count"); got != 1.0 {
				t.Errorf("resources: %v GPUs, want 1", got)
			}
		}
		s.must("POST", job, `{"comment":"second","time_limit":{"set":true,"number":3}}`)
		doc = s.must("GET", job, "")
		if got := field(t, doc, "jobs", 0, "comment"); got != "second" {
			t.Errorf("the update of the comment is not there: %v", got)
		}
		s.refused(400, 9001, "#/account_gather_frequency", "POST", job, `{"account_gather_frequency":"10"}`)
		s.refused(403, 2002, "", "POST", job, `{"time_limit":{"set":true,"number":500}}`)
		s.must("DELETE", job, "")
		until("CANCELLED")
		c.until("CANCELLED by "+uidOf(t, name), "sacct", "-n", "-X", "-P", "-j", id, "-o", "State")
		doc = local.must("GET", past+"job/"+id, "")
		if got := field(t, doc, "jobs", 0, "state", "current", 0); got != "CANCELLED" {
			t.Errorf("accounting: %v", got)
		}
		if got := field(t, doc, "jobs", 0, "comment", "job"); got != "second" {
			t.Errorf("accounting: comment %v", got)
		}
		if text, err := os.ReadFile("/tmp/muster-rest-" + id + ".out"); err != nil || !strings.Contains(string(text), "hello world") {
			t.Errorf("the job's output: %q, %v", text, err)
		}
		os.Remove("/tmp/muster-rest-" + id + ".out")

		out = s.must("POST", slurm+"job/allocate", `{"job":{"name":"hold","tasks":1,"current_working_directory":"/tmp","environment":["A=b"],"time_limit":5}}`)
		id = fmt.Sprintf("%.0f", out["job_id"])
		until("RUNNING")
		out = s.must("DELETE", slurm+"jobs", `{"job_name":"hold","user_name":"`+name+`"}`)
		if got := field(t, out, "status", 0, "job_id", "number"); fmt.Sprintf("%.0f", got) != id {
			t.Errorf("DELETE jobs: %v", out["status"])
		}
		until("CANCELLED")

		badRequests(s, slurm)
	}
	policyByREST(t, local)
	if me.Username != "root" {
		return
	}
	// Root acts as a user; a user is only himself.
	if code, out := local.ask("GET", "/slurm/v0.0.44/ping", "", "X-SLURM-USER-NAME", "nobody"); code != 200 || field(t, out, "meta", "client", "user") != "nobody" {
		t.Errorf("root as nobody: %d %v", code, out["meta"])
	}
	s.refused(401, 1007, "daemon", "GET", "/slurm/v0.0.44/ping", "", "X-SLURM-USER-NAME", "daemon")
	s.refused(403, 2002, "", "GET", "/slurm/v0.0.44/reconfigure", "")
	s.refused(403, 2002, "", "POST", "/slurmdb/v0.0.44/accounts", `{"accounts":[{"name":"mine","description":"d","organization":"o"}]}`)
	local.must("POST", "/slurm/v0.0.44/node/node2", `{"state":["DRAIN"],"reason":"by REST"}`)
	if got := fmt.Sprint(field(t, local.must("GET", "/slurm/v0.0.44/node/node2", ""), "nodes", 0, "state")); !strings.Contains(got, "DRAIN") {
		t.Errorf("node2 is %s", got)
	}
	local.must("POST", "/slurm/v0.0.44/node/node2", `{"state":["RESUME"]}`)
	local.must("POST", "/slurm/v0.0.44/reservation", `{"name":"maint","users":["root"],"node_list":["node1"],"start_time":{"set":true,"number":4102444800},"duration":{"set":true,"number":60},"flags":["MAINT"]}`)
	if got := field(t, local.must("GET", "/slurm/v0.0.44/reservation/maint", ""), "reservations", 0, "node_list"); got != "node1" {
		t.Errorf("the reservation is on %v", got)
	}
	local.must("DELETE", "/slurm/v0.0.44/reservation/maint", "")
	local.refused(404, 2053, "", "GET", "/slurm/v0.0.44/reservation/maint", "")
}

func uidOf(t *testing.T, name string) string {
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return u.Uid
}

// badRequests are refused with Slurm's numbers and the path of what is wrong.
func badRequests(s *slurmREST, slurm string) {
	submit := func(job string) string {
		return `{"script":"#!/bin/sh\n","job":{"current_working_directory":"/tmp","environment":["A=b"],` + job + `}}`
	}
	s.refused(404, 2017, "", "GET", slurm+"job/999999", "")
	s.refused(404, 2017, "", "DELETE", slurm+"job/999999", "")
	s.refused(404, 2017, "", "GET", slurm+"job/--help", "")
	s.refused(400, 9000, "node_name", "GET", slurm+"node/--help", "")
	s.refused(404, 2018, "", "GET", slurm+"node/none", "")
	s.refused(404, 2000, "", "GET", slurm+"partition/none", "")
	s.refused(404, 9000, "", "GET", slurm+"none", "")
	s.refused(405, 9000, "use GET", "POST", slurm+"ping", "")
	s.refused(404, 9000, "", "GET", "/slurm/v0.0.12/jobs", "")
	s.refused(400, 9000, "no body", "POST", slurm+"job/submit", "")
	s.refused(400, 9000, "line 2", "POST", slurm+"job/submit", "{\n\"job\": nope}")
	s.refused(400, 9000, "behind", "POST", slurm+"job/submit", "{} {}")
	s.refused(400, 9001, "#", "POST", slurm+"job/submit", "[1]")
	s.refused(400, 9000, "text/plain", "POST", slurm+"job/submit", "{}", "Content-Type", "text/plain")
	s.refused(400, 9001, "#/job/tasks", "POST", slurm+"job/submit", submit(`"tasks":"many"`))
	s.refused(400, 9001, "#/job/tasks", "POST", slurm+"job/submit", submit(`"tasks":-3`))
	s.refused(400, 9001, "#/job/container", "POST", slurm+"job/submit", submit(`"container":"/image"`))
	s.refused(400, 9001, "current_working_directory", "POST", slurm+"job/submit", `{"script":"#!/bin/sh\n","job":{"name":"x"}}`)
	s.refused(400, 9001, "NAME=value", "POST", slurm+"job/submit", `{"script":"#!/bin/sh\n","job":{"current_working_directory":"/","environment":["A"]}}`)
	s.refused(404, 2000, "", "POST", slurm+"job/submit", submit(`"partition":"none"`))
	s.refused(400, 2009, "", "POST", slurm+"job/submit", `{"job":{"current_working_directory":"/tmp","name":"x"}}`)
	s.refused(400, 9001, "user_id", "POST", slurm+"job/submit", submit(`"user_id":"0"`))
	s.refused(400, 9000, "chooses no jobs", "DELETE", slurm+"jobs", `{"signal":"9"}`)
	s.refused(400, 9001, "job_state", "DELETE", slurm+"jobs", `{"job_state":["NEVER"]}`)
	s.refused(400, 9000, "larger than 16 MiB", "POST", slurm+"job/submit", `{"script":"`+strings.Repeat("x", 17<<20)+`"}`)
}

// policyByREST makes, changes and removes what slurmdb keeps.
func policyByREST(t *testing.T, s *slurmREST) {
	const db = "/slurmdb/v0.0.44/"
	s.must("POST", db+"accounts", `{"accounts":[{"name":"physics","description":"all of it","organization":"uni"}]}`)
	s.must("POST", db+"accounts", `{"accounts":[{"name":"physics","description":"changed","organization":"uni"}]}`)
	if got := field(t, s.must("GET", db+"account/physics", ""), "accounts", 0, "description"); got != "changed" {
		t.Errorf("account: %v", got)
	}
	s.must("POST", db+"qos", `{"qos":[{"name":"quick","priority":{"set":true,"number":7},"limits":{"max":{"wall_clock":{"per":{"job":{"set":true,"number":90}}},
		"tres":{"per":{"user":[{"type":"gres","name":"gpu","count":4}]}},"jobs":{"active_jobs":{"per":{"user":{"set":true,"number":3}}}}}}}]}`)
	qos := s.must("GET", db+"qos/quick", "")
	for path, want := range map[string]float64{"wall_clock/per/job": 90, "jobs/active_jobs/per/user": 3} {
		at := []any{"qos", 0, "limits", "max"}
		for _, word := range strings.Split(path, "/") {
			at = append(at, word)
		}
		if got := field(t, qos, append(at, "number")...); got != want {
			t.Errorf("qos %s: %v, want %v", path, got, want)
		}
	}
	if got := field(t, qos, "qos", 0, "limits", "max", "tres", "per", "user", 0, "count"); got != 4.0 {
		t.Errorf("qos: GPUs %v", got)
	}
	s.refused(400, 9001, "default/account", "POST", db+"users", `{"users":[{"name":"daemon"}]}`)
	s.must("POST", db+"users", `{"users":[{"name":"daemon","default":{"account":"physics"}}]}`)
	s.must("POST", db+"associations", `{"associations":[{"account":"physics","user":"daemon","max":{"jobs":{"active":{"set":true,"number":5}}},"shares_raw":3}]}`)
	out := s.must("GET", db+"associations?user=daemon", "")
	if got := field(t, out, "associations", 0, "max", "jobs", "active", "number"); got != 5.0 {
		t.Errorf("association: %v", got)
	}
	s.must("POST", db+"users_association", `{"association_condition":{"users":["bin"],"accounts":["physics"],"association":{"maxjobs":{"set":true,"number":2}}},"user":{"defaultaccount":"physics"}}`)
	if got := field(t, s.must("GET", db+"user/bin", ""), "users", 0, "default", "account"); got != "physics" {
		t.Errorf("user bin: %v", got)
	}
	s.must("DELETE", db+"user/bin", "")
	s.must("DELETE", db+"associations?user=daemon&account=physics", "")
	s.must("DELETE", db+"qos/quick", "")
	s.must("DELETE", db+"account/physics", "")
	s.refused(404, 9003, "", "GET", db+"account/physics", "")
	s.refused(404, 9000, "one cluster", "DELETE", db+"cluster/muster", "")
}
