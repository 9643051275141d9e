package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// post calls a method over REST as root. Of a stream only the first message is read.
func callREST(t *testing.T, dir, method, body string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(dir, "run", "rest.sock"))
	}}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://muster/v1/Cluster/"+method, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	rep, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer rep.Body.Close()
	if strings.HasPrefix(method, "Watch") {
		line, err := bufio.NewReader(rep.Body).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return rep.StatusCode, line
	}
	text, err := io.ReadAll(rep.Body)
	if err != nil {
		t.Fatal(err)
	}
	return rep.StatusCode, string(text)
}

// TestPodsAndJobsShareNodes: what a program beside Kubernetes holds over REST, no job
// gets; everybody reads which pod it is; a controller that is killed forgets
// nothing; the job runs when the pod is gone, and accounting has its GPU-hours.
func TestPodsAndJobsShareNodes(t *testing.T) {
	c := start(t)
	ask := func(method, body string) (int, string) { return callREST(t, c.dir, method, body) }
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

// TestPodsAreJobs: what a program beside Kubernetes submits over REST is a job of its
// own user, once, however often it is asked for. Neither a controller nor an agent that is
// killed ends it: only the word that its pods are over does.
func TestPodsAreJobs(t *testing.T) {
	c := start(t)
	ask := func(method, body string) string {
		t.Helper()
		code, text := callREST(t, c.dir, method, body)
		if code != http.StatusOK {
			t.Fatalf("%s: %d %s", method, code, text)
		}
		return text
	}
	const gang = `{"user":"daemon","spec":{"name":"train/gang","shell":true,"tasks":2,"cpus_per_task":1,"mem_per_cpu":"100",
		"per_task":[{"name":"gpu","n":"8"}],"time_limit":"3600000000000","pods":{"space":"train","owner":"Job/resnet","group":"gang",
		"pods":[{"uid":"u-1","name":"resnet-0"},{"uid":"u-2","name":"resnet-1"}],"admits":"node[1-2]"}}}`
	for range 2 {
		if text := ask("SubmitPods", gang); !strings.Contains(text, `"job_id":1`) {
			t.Fatalf("it is another job: %s", text)
		}
	}
	c.until("R daemon 2", "squeue", "-h", "-j", "1", "-o", "%t %u %D")
	show := c.must("scontrol", "show", "job", "1")
	for _, want := range []string{"Pods=train/resnet-0,train/resnet-1", "PodOwner=Job/resnet PodGroup=gang", "UserId=daemon"} {
		if !strings.Contains(show, want) {
			t.Errorf("the job does not say %s:\n%s", want, show)
		}
	}
	c.must("sbatch", "-w", "node1", "--gres=gpu:1", "--wrap", "true")
	c.until("(Resources)", "squeue", "-h", "-j", "2", "-o", "%R")
	if why := c.must("why", "2"); !strings.Contains(why, "train/gang") {
		t.Errorf("the job does not name the pods that it waits for:\n%s", why)
	}
	c.kill9("agent-node1")
	c.kill9("musterd")
	c.must("up", "--dir", c.dir)
	var told struct {
		Jobs []struct {
			Uid, Epoch string
			Attempt    int
			Bindable   bool
			Places     []struct {
				Pod, Node string
				Gpus      []struct{ UUID string }
			}
		}
	}
	text := ask("WatchHolds", `{"pods":true}`)
	if err := json.Unmarshal([]byte(text), &told); err != nil || len(told.Jobs) != 1 {
		t.Fatalf("the watch tells %s: %v", text, err)
	}
	job := told.Jobs[0]
	if !job.Bindable || len(job.Places) != 2 || len(job.Places[0].Gpus) != 8 || job.Places[0].Node == job.Places[1].Node {
		t.Fatalf("the watch tells %s", text)
	}
	c.until("R", "squeue", "-h", "-j", "1", "-o", "%t")
	over := fmt.Sprintf(`{"uid":"%s","attempt":%d,"epoch":"%s","pod":"u-1","ended":{"exit_code":3}}`, job.Uid, job.Attempt, job.Epoch)
	for range 2 {
		ask("PodsOver", over)
	}
	c.until("FAILED|3:0", "sacct", "-n", "-X", "-P", "-j", "1", "-o", "State,ExitCode")
	if tres := c.must("sacct", "-n", "-X", "-P", "-j", "1", "-o", "AllocTRES"); !strings.Contains(tres, "gres/gpu=16") {
		t.Errorf("accounting has %s", tres)
	}
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", "2", "-o", "State")
	// Nothing of the job's own user can be started within it either.
	ask("SubmitPods", `{"spec":{"name":"train/one","shell":true,"min_nodes":1,"max_nodes":1,"tasks":1,"cpus_per_task":1,"mem_per_node":"100",
		"pods":{"space":"train","pods":[{"uid":"u-3","name":"one"}],"admits":"node1"}}}`)
	c.until("R", "squeue", "-h", "-j", "3", "-o", "%t")
	if _, errs, code := c.run("srun", "--jobid=3", "true"); code == 0 || !strings.Contains(errs, "consists of pods") {
		t.Errorf("a step in it ends with %d: %s", code, errs)
	}
	// Without muster-kube nobody reports the end of its pods.
	if _, errs, code := c.run("pods", "release", "3", "--why", "k3 is gone"); code == 0 || !strings.Contains(errs, "cancel it first") {
		t.Errorf("a running job is released, with %d: %s", code, errs)
	}
	c.must("scancel", "3")
	c.until("CG", "squeue", "-h", "-j", "3", "-o", "%t")
	if list := c.must("pods"); !strings.Contains(list, "3      ending") {
		t.Errorf("the list of jobs of pods:\n%s", list)
	}
	if said := c.must("pods", "release", "3", "--why", "k3 is gone"); said != "Job 3 is released and gives back node1." {
		t.Errorf("it says %q", said)
	}
	c.until("idle", "sinfo", "-h", "-n", "node1", "-o", "%t")
	c.until("CANCELLED by 0", "sacct", "-n", "-X", "-P", "-j", "3", "-o", "State")
	if list := c.must("pods"); list != "No job consists of pods." {
		t.Errorf("the list of jobs of pods:\n%s", list)
	}
	ask("SubmitPods", `{"spec":{"name":"train/two","shell":true,"min_nodes":1,"max_nodes":1,"tasks":1,"cpus_per_task":1,"mem_per_node":"100",
		"pods":{"space":"train","pods":[{"uid":"u-4","name":"two"}],"admits":"node1"}}}`)
	c.until("R", "squeue", "-h", "-j", "4", "-o", "%t")
	if said := c.must("down", "--dir", c.dir, "--jobs"); !strings.Contains(said, "1 cancelled job of pods keeps its nodes") {
		t.Errorf("down says:\n%s", said)
	}
}
