package main

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/feed"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/transport/usertoken"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// restServer is the REST API of a real controller.
type restServer struct {
	t     *testing.T
	at    string
	jobs  *daemon.ClusterService
	token string // of root
	other string // of a user
}

func newRESTServer(t *testing.T) *restServer {
	t.Helper()
	s, stop := openServer(t, t.TempDir())
	t.Cleanup(stop)
	s.limits = limit.New(limit.Config{}, time.Now)
	source, err := pki.LoadSource(pki.Dir(s.cfg.TLS.Dir))
	if err != nil {
		t.Fatal(err)
	}
	gateway := s.newGateway(source)
	r := &restServer{t: t, jobs: daemon.NewClusterService(s.ctl)}
	service.RegisterClusterServer(gateway, r.jobs)
	service.RegisterAccountingServer(gateway, feed.Absent{})
	s.mountSlurm(gateway)
	served := httptest.NewServer(gateway)
	t.Cleanup(served.Close)
	r.at = served.URL
	issue := func(user string, uid uint32) string {
		text, err := s.tokens.Issue(usertoken.Bearer{ID: user, User: user, UID: uid, GID: uid}, time.Now(), time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	r.token = issue("root", 0)
	r.other = issue("4001", 4001)
	return r
}

// get asks for a path with headers, and gives the body as it is once decompressed.
func (r *restServer) get(token, path string, headers ...string) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.at+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("X-SLURM-USER-TOKEN", token)
	req.Header.Set("Accept-Encoding", "identity")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	var body io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		body, err = gzip.NewReader(resp.Body)
		if err != nil {
			r.t.Fatal(err)
		}
	}
	text, err := io.ReadAll(body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp, string(text)
}

func (r *restServer) submit(name string) {
	r.t.Helper()
	_, err := r.jobs.Submit(as(r.t, "4001", 4001), &apiv1.SubmitRequest{
		Spec:   &apiv1.JobSpec{Name: name, WorkDir: "/tmp", TimeLimit: int64(time.Hour), MinNodes: 1, Tasks: 1, Hold: true},
		Script: &apiv1.Blob{Data: []byte("#!/bin/sh\ntrue\n")},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestETag: what a client has need not be sent again, and only that.
func TestETag(t *testing.T) {
	r := newRESTServer(t)
	r.submit("first")
	const path = "/slurm/v0.0.44/jobs/"
	// The first pass after a submission says why the job waits, which is another answer.
	for body := ""; !strings.Contains(body, `"state_reason":"JobHeldUser"`); {
		_, body = r.get(r.token, path)
	}
	for coding, suffix := range map[string]string{"identity": `"`, "gzip": `-gzip"`} {
		first, body := r.get(r.token, path, "Accept-Encoding", coding)
		tag := first.Header.Get("ETag")
		if first.StatusCode != http.StatusOK || !strings.HasSuffix(tag, suffix) || !strings.Contains(body, "first") || !json.Valid([]byte(body)) {
			t.Fatalf("%s: %s, ETag %s, %.200s", coding, first.Status, tag, body)
		}
		if control := first.Header.Get("Cache-Control"); control != "private, no-cache" {
			t.Errorf("%s: Cache-Control %q", coding, control)
		}
		for _, known := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
			again, body := r.get(r.token, path, "Accept-Encoding", coding, "If-None-Match", known)
			if again.StatusCode != http.StatusNotModified || body != "" || again.Header.Get("ETag") != tag {
				t.Errorf("%s, If-None-Match %s: %s, ETag %s, %.100s", coding, known, again.Status, again.Header.Get("ETag"), body)
			}
		}
		again, same := r.get(r.token, path, "Accept-Encoding", coding, "If-None-Match", `"other"`)
		if again.StatusCode != http.StatusOK || same != body || again.Header.Get("ETag") != tag {
			t.Errorf("%s, a tag that is another's: %s", coding, again.Status)
		}
	}
	before, _ := r.get(r.token, path)
	tag := before.Header.Get("ETag")
	// The tag is one of this reader: his name is in the answer.
	if resp, body := r.get(r.other, path, "If-None-Match", tag); resp.StatusCode != http.StatusOK || !strings.Contains(body, "first") {
		t.Errorf("another user with the tag of root: %s", resp.Status)
	}
	r.submit("second")
	after, body := r.get(r.token, path, "If-None-Match", tag)
	if after.StatusCode != http.StatusOK || after.Header.Get("ETag") == tag || !strings.Contains(body, "second") {
		t.Errorf("after a change: %s, ETag %s", after.Status, after.Header.Get("ETag"))
	}
	for _, path := range []string{
		"/slurm/v0.0.44/nodes/", "/slurm/v0.0.45/node/node1", "/slurm/v0.0.44/partitions/", "/slurm/v0.0.43/reservations/",
		"/slurm/v0.0.45/conf", "/slurmdb/v0.0.44/qos/", "/slurmdb/v0.0.44/associations/",
	} {
		first, _ := r.get(r.token, path)
		again, body := r.get(r.token, path, "If-None-Match", first.Header.Get("ETag"))
		if first.StatusCode != http.StatusOK || again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: %s, then %s %.200s", path, first.Status, again.Status, body)
		}
	}
	// What changes something, and what fails, has no tag and is done whatever the client has.
	if resp, body := r.get(r.token, "/slurm/v0.0.44/job/4711", "If-None-Match", "*"); resp.StatusCode == http.StatusNotModified || resp.Header.Get("ETag") != "" || body == "" {
		t.Errorf("a job that does not exist: %s", resp.Status)
	}
	if resp, _ := r.get(r.other, "/slurm/v0.0.44/reconfigure", "If-None-Match", "*"); resp.StatusCode != http.StatusForbidden || resp.Header.Get("ETag") != "" {
		t.Errorf("reconfigure by a user: %s", resp.Status)
	}
}

// TestETagOfLongAnswers: an answer that is too long to be held back comes whole and without a tag,
// and with one where it is compressed.
func TestETagOfLongAnswers(t *testing.T) {
	r := newRESTServer(t)
	for range 600 {
		r.submit("one of many")
	}
	const path = "/slurm/v0.0.44/jobs/"
	resp, body := r.get(r.token, path)
	if len(body) < 2<<20 || resp.Header.Get("ETag") != "" || !json.Valid([]byte(body)) {
		t.Errorf("uncompressed: %d bytes, ETag %q, whole: %v", len(body), resp.Header.Get("ETag"), json.Valid([]byte(body)))
	}
	resp, packed := r.get(r.token, path, "Accept-Encoding", "gzip")
	if resp.Header.Get("ETag") == "" || len(packed) != len(body) {
		t.Errorf("compressed: ETag %q, %d bytes", resp.Header.Get("ETag"), len(packed))
	}
}
