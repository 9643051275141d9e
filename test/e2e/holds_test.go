package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestPodsAndJobsShareNodes: what a program beside Kubernetes holds over REST, no job
// gets; everybody reads which pod it is; a controller that is killed forgets
// nothing; the job runs when the pod is gone, and accounting has its GPU-hours.
func TestPodsAndJobsShareNodes(t *testing.T) {
	c := start(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(c.dir, "run", "rest.sock"))
	}}}
	ask := func(method, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://muster/v1/Cluster/"+method, bytes.NewBufferString(body))
		if err != nil {
			t.Fatal(err)
		}
		rep, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer rep.Body.Close()
		text, err := io.ReadAll(rep.Body)
		if err != nil {
			t.Fatal(err)
		}
		return rep.StatusCode, string(text)
	}
	const pod = `{"node":"node1","hold":{"id":"0b1c","space":"web","owner":"front-1","milli_cpu":"735","mem":"100"},"gpus":"8"}`
	code, text := ask("HoldNode", pod)
	var given struct {
		Hold struct{ Gpus []struct{ UUID string } }
	}
	if err := json.Unmarshal([]byte(text), &given); err != nil || code != http.StatusOK || len(given.Hold.Gpus) != 8 {
		t.Fatalf("%d %s: %v", code, text, err)
	}
	if code, text := ask("HoldNode", `{"node":"node1","hold":{"id":"0b1d"},"gpus":"1"}`); code == http.StatusOK || !strings.Contains(text, "0 suitable GPUs are free") {
		t.Errorf("a ninth GPU: %d %s", code, text)
	}
	c.must("sbatch", "-w", "node1", "--gres=gpu:1", "--wrap", "true")
	c.until("(Resources)", "squeue", "-h", "-j", "1", "-o", "%R")
	c.until("mixed", "sinfo", "-h", "-n", "node1", "-o", "%T")
	c.kill9("musterd")
	c.must("up", "--dir", c.dir)
	if node := c.must("scontrol", "show", "node", "node1"); !strings.Contains(node, "Hold=web/front-1 TRES=cpu=0.735,mem=100M,gres/gpu=8 GPUs=0:"+given.Hold.Gpus[0].UUID) {
		t.Errorf("the node does not name its pod:\n%s", node)
	}
	if why := c.must("why", "1"); !strings.Contains(why, "web/front-1") || !strings.Contains(why, "on node1") {
		t.Errorf("the job does not name the pod that it waits for:\n%s", why)
	}
	c.must("sbatch", "-w", "node2", "--gres=gpu:8", "--wrap", "true") // others go on
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", "2", "-o", "State")
	if code, text := ask("HoldNode", pod); code != http.StatusOK {
		t.Errorf("the same again, after a restart: %d %s", code, text)
	}
	for range 2 {
		if code, text := ask("ReleaseHold", `{"node":"node1","id":"0b1c","why":"deleted"}`); code != http.StatusOK {
			t.Errorf("%d %s", code, text)
		}
	}
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", "1", "-o", "State")
	if rows := c.must("sql", "SELECT namespace, pod, gpus, ended > started AS over FROM holds", "--format", "csv"); !strings.Contains(rows, `"web","front-1",8,1`) {
		t.Errorf("accounting has no such pod:\n%s", rows)
	}
}
