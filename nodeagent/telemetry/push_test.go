package telemetry_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/spec"
)

func TestPushSendsWhatAScrapeGets(t *testing.T) {
	w := full(t, telemetry.Options{})
	type request struct{ method, auth, body string }
	got := make(chan request, 16)
	fail := make(chan bool, 3)
	fail <- false
	fail <- true
	fail <- false
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		z, err := gzip.NewReader(req.Body)
		if err != nil {
			t.Errorf("the body is not compressed: %v", err)
			return
		}
		body, err := io.ReadAll(z)
		if err != nil {
			t.Error(err)
		}
		select {
		case bad := <-fail:
			if bad {
				rw.WriteHeader(http.StatusServiceUnavailable)
			}
		default:
		}
		select {
		case got <- request{req.Method, req.Header.Get("Authorization"), string(body)}:
		default:
		}
	}))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan error, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.tel.PushUntil(ctx, telemetry.Push{URL: srv.URL + "/api/v1/import/prometheus", Headers: []string{"Authorization: Bearer s3cret"},
			Interval: spec.Second, Changed: func(err error) { changes <- err }}) // a push that takes as long is given up
	}()
	r := <-got
	if r.method != http.MethodPost || r.auth != "Bearer s3cret" {
		t.Errorf("%s with authorization %q", r.method, r.auth)
	}
	for _, want := range []string{`DCGM_FI_DEV_GPU_UTIL{gpu="0"`, `slurm_job_id="12345"`, "muster_agent_up{"} {
		if !strings.Contains(r.body, want) {
			t.Errorf("the push lacks %s", want)
		}
	}
	if err := <-changes; err == nil {
		t.Error("the failure was not told")
	}
	if err := <-changes; err != nil {
		t.Errorf("the recovery was told as %v", err)
	}
	cancel()
	<-done
}

func migName(gpu, instance int) string { return fmt.Sprintf("%d.%d", gpu, instance) }

func TestMappings(t *testing.T) {
	w := newWorld(t, telemetry.Options{}, simulated.Declared{Type: "h100", Count: 3}, simulated.Declared{Type: "a100", Count: 1, MIG: []string{"3g.40gb", "2g.20gb"}})
	whole, shared, alsoShared := job(7, start, w.devices[0].UUID, w.devices[3].MIG[1].UUID), job(8, start), job(9, start)
	shared.GPUs = []telemetry.GPUShare{{UUID: w.devices[1].UUID, Share: 500}}
	alsoShared.GPUs = []telemetry.GPUShare{{UUID: w.devices[1].UUID, Share: 500}}
	w.tel.SetJobs([]telemetry.JobOnNode{whole, shared, alsoShared})
	mig := w.devices[3].MIG
	want := map[string]uint64{"0": 7, "1": 0, "2": 0, migName(3, mig[0].GPUInstance): 0, migName(3, mig[1].GPUInstance): 7, "3": 0}
	for _, m := range w.tel.Mappings() {
		if job, ok := want[m.Name]; !ok || job != m.Job {
			t.Errorf("%s is mapped to %d; expected %v", m.Name, m.Job, want)
		}
		delete(want, m.Name)
	}
	if len(want) > 0 {
		t.Errorf("not mapped: %v", want)
	}
	w.tel.SetJobs(nil)
	for _, m := range w.tel.Mappings() {
		if m.Job != 0 {
			t.Errorf("%s is still mapped to %d after the end of its job", m.Name, m.Job)
		}
	}
}
