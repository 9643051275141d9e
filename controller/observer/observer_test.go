package observer

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/collector/slurm"
	"github.com/musterhpc/muster/internal/conffile"
)

// TestRestOf: what is set of slurmrestd fits together, or is refused.
func TestRestOf(t *testing.T) {
	for want, o := range map[string]conffile.Observe{
		"":                       {Cluster: "peer"},
		"no use":                 {RESTUser: "monitor"},
		"needs observe.cluster":  {REST: "http://slurm:6820"},
		"observe.rest_user":      {REST: "http://slurm:6820", Cluster: "peer", RESTTokenFile: "/t"},
		"http://slurm:6820 ok":   {REST: "http://slurm:6820", Cluster: "peer", RESTUser: "monitor", RESTTokenFile: "/t"},
		"unix:/run/r.sock ok":    {REST: "unix:/run/r.sock", Cluster: "peer"},
		"observe.rest, the addr": {RESTTokenFile: "/t"},
	} {
		got := ""
		rest, err := restOf(&o)
		if err != nil {
			got = err.Error()
		} else if rest != nil {
			got = rest.URL + " ok"
		}
		if !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%+v: %q, want %q", o, got, want)
		}
	}
}

// TestReadyOnceJobsAndNodesWereRead: a supervisor that waits for metrics is not told that they are
// there while they would say that the cluster is empty.
func TestReadyOnceJobsAndNodesWereRead(t *testing.T) {
	status := func(snapshot *slurm.Snapshot) int {
		answer := httptest.NewRecorder()
		writeReady(answer, snapshot)
		return answer.Code
	}
	snapshot := &slurm.Snapshot{Sections: make([]slurm.Section, 2)}
	if status(nil) != http.StatusServiceUnavailable || status(snapshot) != http.StatusServiceUnavailable {
		t.Error("ready before anything was read")
	}
	snapshot.Sections[0].At = time.Unix(1, 0)
	if status(snapshot) != http.StatusServiceUnavailable {
		t.Error("ready without nodes")
	}
	snapshot.Sections[1].At = time.Unix(1, 0)
	if got := status(snapshot); got != http.StatusOK {
		t.Errorf("status %d", got)
	}
}
