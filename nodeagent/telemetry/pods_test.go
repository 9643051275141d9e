package telemetry_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/spec"
)

// series lists the lines of a page that have all of these words.
func series(text string, words ...string) []string {
	var out []string
next:
	for line := range strings.Lines(text) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		out = append(out, strings.TrimSpace(line))
	}
	return out
}

// TestPods: gauges of a device that a pod holds carry its labels from the first
// reading after it got the device until it gives it back, counters never do, and a page
// of a node without pods has no such label.
func TestPods(t *testing.T) {
	w := newWorld(t, telemetry.Options{},
		simulated.Declared{Type: "h100", Count: 2},
		simulated.Declared{Type: "a100", Count: 1, MIG: []string{"3g.40gb", "2g.20gb"}})
	page := func(at spec.Span) string {
		w.collect(t, start.Add(at*spec.Second))
		return w.text(t).String()
	}
	if got := series(page(30), "namespace="); len(got) != 0 {
		t.Errorf("labels of pods on a node without pods: %q", got)
	}
	instance := w.devices[2].MIG[1].UUID
	w.tel.SetPods([]telemetry.PodOnNode{
		{UUID: w.devices[1].UUID, Namespace: "web", Pod: "front", Container: "main", From: start.Add(40 * spec.Second)},
		{UUID: instance, Namespace: "ml", Pod: "part", From: start.Add(40 * spec.Second)},
	})
	const labels = `slurm_job_id="",user="",account="",partition="",namespace="web",pod="front",container="main"`
	before := w.text(t).String()
	if got := series(before, "DCGM_FI_DEV_GPU_UTIL{", "namespace="); len(got) != 0 {
		t.Errorf("a reading that was taken before the pod came has its labels: %q", got)
	}
	if got := series(before, "muster_gpu_pod_info{"); len(got) != 2 {
		t.Errorf("pods: %q", got)
	}
	after := page(60)
	if got := series(after, "DCGM_FI_DEV_GPU_UTIL{", labels); len(got) != 1 || !strings.Contains(got[0], `gpu="1"`) {
		t.Errorf("the pod's device: %q", got)
	}
	if got := series(after, "DCGM_FI_DEV_FB_USED{", `pod="part",container=""`); len(got) != 1 || !strings.Contains(got[0], `GPU_I_PROFILE="2g.20gb"`) {
		t.Errorf("the pod's instance: %q", got)
	}
	if got := series(after, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{", "namespace="); len(got) != 0 {
		t.Errorf("a counter carries labels of a pod: %q", got)
	}
	// A job that is scheduled as a pod has the labels of both.
	w.tel.SetJobs([]telemetry.JobOnNode{job(7, start.Add(61*spec.Second), w.devices[1].UUID)})
	if got := series(page(90), "DCGM_FI_DEV_GPU_UTIL{", `slurm_job_id="7",user="ada"`, `namespace="web"`); len(got) != 1 {
		t.Errorf("job and pod: %q", got)
	}
	w.tel.SetPods(nil)
	if got := series(w.text(t).String(), "namespace="); len(got) != 0 {
		t.Errorf("labels of pods that have gone: %q", got)
	}
}

// TestPodsArePrivate: where jobs are private, pods are too.
func TestPodsArePrivate(t *testing.T) {
	w := newWorld(t, telemetry.Options{Private: true}, simulated.Declared{Type: "h100", Count: 1})
	w.tel.SetPods([]telemetry.PodOnNode{{UUID: w.devices[0].UUID, Namespace: "web", Pod: "front"}})
	w.collect(t, start.Add(30*spec.Second))
	rec := httptest.NewRecorder()
	w.tel.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if page := rec.Body.String(); strings.Contains(page, "front") ||
		!strings.Contains(page, "DCGM_FI_DEV_GPU_UTIL") {
		t.Errorf("the page that everybody reads:\n%s", page)
	}
}
