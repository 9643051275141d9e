package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A body that would be accepted, of which the cases below spoil one thing.
const goodSubmission = `{"script":"#!/bin/sh\ntrue\n","job":{"name":"x","environment":["A=1"],"current_working_directory":"/tmp","hold":true}}`

// TestBadRequests: each bad request to Slurm's REST API gets one error with Slurm's number and where it
// is wrong, or a warning about what is ignored, and the controller takes the next one.
func TestBadRequests(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := start(t)
	s := socketREST(t, c)
	const submit = "/slurm/v0.0.45/job/submit"
	spoil := func(old, new string) string { return strings.Replace(goodSubmission, old, new, 1) }
	for _, bad := range []struct {
		body, source, words string
		number              float64
		headers             []string
	}{
		{"", submit, "has no body", 9000, nil},
		{"hello", submit, "not JSON: invalid character 'h' looking for beginning of value in line 1", 9000, nil},
		{goodSubmission[:40], submit, "unexpected EOF", 9000, nil},
		{goodSubmission + "{}", submit, "something behind its JSON object", 9000, nil},
		{"[]", "#", "expected an object", 9001, nil},
		{spoil(`"x"`, `["x","y"]`), "#/job/name", "expected a string, got a list", 9001, nil},
		{spoil(`"x"`, `"x","time_limit":{"set":true,"number":"long"}`), "#/job/time_limit/number", "expected an integer", 9001, nil},
		{spoil(`"x"`, `"x","tasks":1e400`), "#/job/tasks", "expected an integer", 9001, nil},
		{spoil(`"x"`, `"x","tasks":-5`), "#/job/tasks", "-5", 9001, nil},
		{spoil(`["A=1"]`, `[{"B":1}]`), "#/job/environment/0", "expected a string", 9001, nil},
		{goodSubmission, submit, "Content-Type text/plain is not supported", 9000, []string{"Content-Type", "text/plain"}},
		{goodSubmission, submit, "Content-Encoding gzip is not supported", 9000, []string{"Content-Encoding", "gzip"}},
		{strings.Repeat("[", 200_000), submit, "200001 values, more than 100000", 9000, nil},
		{strings.Repeat("a", 100<<20), submit, "larger than 16 MiB", 9000, nil},
	} {
		code, out := s.ask("POST", submit, bad.body, bad.headers...)
		list, _ := out["errors"].([]any)
		if code != http.StatusBadRequest || len(list) != 1 {
			t.Errorf("%.60q: %d %v, want 400 and one error", bad.body, code, out["errors"])
			continue
		}
		wrong, _ := list[0].(map[string]any)
		said, _ := wrong["description"].(string)
		if wrong["error_number"] != bad.number || wrong["source"] != bad.source || !strings.Contains(said, bad.words) {
			t.Errorf("%.60q: %v, want number %v at %s with %q", bad.body, wrong, bad.number, bad.source, bad.words)
		}
	}
	for _, odd := range []struct{ path, body, source string }{
		{submit, spoil(`"x"`, `"x","color":"red"`), "#/job/color"},
		{submit, spoil(`"x"`, `"x","name":"y"`), "#/job/name"},
		{submit, spoil(`{`, `{"color":"red",`), "#/color"},
	} {
		out := s.must("POST", odd.path, odd.body)
		warned, _ := out["warnings"].([]any)
		if len(warned) != 1 || field(t, warned, 0, "source") != odd.source {
			t.Errorf("%s: warnings %v, want one at %s", odd.body, warned, odd.source)
		}
		s.must("DELETE", "/slurm/v0.0.45/job/"+fmt.Sprintf("%.0f", out["job_id"]), "")
	}
	s.refused(http.StatusBadRequest, 9001, "?update_time", "GET", "/slurm/v0.0.45/jobs?update_time=yesteryear", "")
	s.must("GET", "/slurm/v0.0.45/jobs?update_time=1700000000", "")
	s.refused(http.StatusMethodNotAllowed, 9000, "PATCH /slurm/v0.0.45/job/submit: use POST ", "PATCH", submit, "")
	s.refused(http.StatusNotFound, 9000, "there is nothing at", "GET", "/slurm/v0.0.45/nonsense", "")
	s.refused(http.StatusNotFound, 2017, "abc is not the number of a job", "GET", "/slurm/v0.0.45/job/abc", "")
	slowSender(t, c, submit)
	s.must("GET", "/slurm/v0.0.45/ping", "")
	if out := c.must("squeue", "-h"); out != "" {
		t.Errorf("jobs of refused requests:\n%s", out)
	}
}

// slowSender begins a body and does not go on: it hears so when its time is over, and not that all
// is well.
func slowSender(t *testing.T, c *cluster, path string) {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(c.dir, "run", "rest.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: muster\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%.20s", path, len(goodSubmission), goodSubmission)
	rep, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("after %v: %v", time.Since(began), err)
	}
	defer rep.Body.Close()
	text, err := io.ReadAll(rep.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("%s %q: %v", rep.Status, text, err)
	}
	if rep.StatusCode != http.StatusGatewayTimeout || field(t, out, "errors", 0, "error_number") != 5004.0 {
		t.Errorf("a body that does not come: %s %s", rep.Status, text)
	}
}
