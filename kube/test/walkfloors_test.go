package test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const serve = "serve"

// TestWalkFloors is the walk of a cluster that trains and serves on the same eight GPUs. Half
// of them is guaranteed to each: either may have them all while the other does not ask, and
// each gets its own back, jobs from pods and pods from jobs. One report has the GPU-hours of both.
func TestWalkFloors(t *testing.T) {
	l := need(t)
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: serve, Annotations: map[string]string{
		"musterhpc.github.io/account": "serving", "musterhpc.github.io/time-limit": "1-0"}}}
	if _, err := l.kube.CoreV1().Namespaces().Create(t.Context(), space, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w := &tale{t: t, l: l}
	w.tell("# Of eight GPUs four are guaranteed to those who serve, and four to those who train.\n")
	w.does("sacctmgr", "-i", "add", "account", "serving", "GuaranteedTRES=gres/gpu=4")
	w.does("sacctmgr", "-i", "add", "account", "training", "GuaranteedTRES=gres/gpu=4")
	w.does("sacctmgr", "-i", "add", "user", connector, "account=serving")
	w.does("sacctmgr", "-i", "add", "user", "root", "account=training")
	t.Cleanup(func() { // what is guaranteed decides the order of all tests that follow
		for _, account := range []string{"serving", "training"} {
			l.must(t, "sacctmgr", "-i", "modify", "account", account, "set", "GuaranteedTRES=gres/gpu=-1")
		}
		// Also where the walk fails: the lab is shared.
		_ = l.kube.AppsV1().Deployments(serve).Delete(context.Background(), "infer", metav1.DeleteOptions{})
		l.clear(t)
	})
	begun := time.Now().Format("2006-01-02T15:04:05")

	w.tell("\n# A training array has all of them while nobody else asks.\n")
	// Its tasks may run longer than the pods, so that what waits waits for those.
	w.does("sbatch", "-A", "training", "--array=0-3", "-c1", "--mem=100", "--gres=gpu:2", "-t", "2-0", "--wrap", "sleep 3600")
	running := []string{"squeue", "-h", "-t", "R", "-S", "a", "-o", "%t %a"}
	w.shows("R training\nR training\nR training\nR training", running[0], running[1:]...)

	w.tell("\n# An inference deployment gets what is its own: two tasks of the array make room and wait.\n")
	w.applies(`apiVersion: apps/v1
kind: Deployment
metadata: {name: infer, namespace: serve}
spec:
  replicas: 2
  selector: {matchLabels: {app: infer}}
  template:
    metadata: {labels: {app: infer}}
    spec:
      schedulerName: muster
      terminationGracePeriodSeconds: 0
      containers:
        - name: main
          image: none
          resources: {limits: {cpu: "1", memory: 200Mi, nvidia.com/gpu: "2"}}
`)
	w.shows("2/2", "kubectl", "-n", serve, "get", "deployment", "infer")
	w.shows("R serving\nR serving\nR training\nR training", running[0], running[1:]...)
	w.shows("PD", "squeue", "-t", "PD")
	waiting := strings.Fields(l.must(t, "squeue", "-h", "-r", "-t", "PD", "-A", "training", "-o", "%i"))[0]
	w.shows("serve/infer-", "muster", "why", waiting)

	w.tell("\n# A third replica would be beyond the floor. It waits, and Kubernetes says so in Muster's words.\n")
	w.shows("scaled", "kubectl", "-n", serve, "scale", "deployment", "infer", "--replicas=3")
	var pod string
	wait(t, "a pod waits", func() (bool, string) {
		out, _, err := l.run(filepath.Join(l.kubeBin, "kubectl"), "-n", serve, "get", "pods", "--field-selector", "status.phase=Pending", "-o", "name")
		pod = strings.TrimSpace(out)
		return err == nil && pod != "", out
	})
	w.shows("planned start", "kubectl", "-n", serve, "describe", pod)
	number := strings.TrimSpace(l.must(t, "squeue", "-h", "-t", "PD", "-A", "serving", "-o", "%A"))
	w.shows("wrap", "muster", "why", number)

	w.tell("\n# The array is cancelled: four replicas borrow what training does not use.\n")
	w.does("scancel", "-A", "training", "--user=root")
	w.shows("scaled", "kubectl", "-n", serve, "scale", "deployment", "infer", "--replicas=4")
	w.shows("4/4", "kubectl", "-n", serve, "get", "deployment", "infer")
	w.shows("R serving\nR serving\nR serving\nR serving", running[0], running[1:]...)

	w.tell("\n# Training returns and gets its own: two pods go, and their successors wait.\n")
	w.does("sbatch", "-A", "training", "--array=0-1", "-c1", "--mem=100", "--gres=gpu:2", "-t", "60", "--wrap", "sleep 3600")
	w.shows("R serving\nR serving\nR training\nR training", running[0], running[1:]...)
	w.shows("preempted by Muster", "kubectl", "-n", serve, "get", "events", "--field-selector", "reason=Deleted", "-o", `jsonpath={range .items[*]}{.message}{"\n"}{end}`)
	w.shows("PD serving\nPD serving", "squeue", "-h", "-t", "PD", "-o", "%t %a")

	w.tell("\n# All is over. One report has the hours of jobs and pods, and adds up to the ledger.\n")
	w.shows("scaled", "kubectl", "-n", serve, "scale", "deployment", "infer", "--replicas=0")
	w.does("scancel", "-A", "training", "--user=root")
	l.says(t, "", "squeue", "-h")
	w.shows("total", "muster", "report", "namespaces", "-S", begun, "-A", "serving,training")
	w.shows("total", "muster", "report", "namespace", serve, "-S", begun)
	held := `SELECT round(sum(gpus * dateDiff('microsecond', job_nodes.from, least(job_nodes.to, job_nodes.end))) / 3600e6, 3) AS gpu_hours FROM job_nodes WHERE account IN ('serving', 'training')`
	w.shows("gpu_hours", "muster", "sql", held)
	w.shows("jobs", "muster", "accounting", "verify")
	report := strings.Split(l.must(t, "report", "namespaces", "-S", begun, "-A", "serving,training", "--csv"), "\n")
	total := strings.Split(report[len(report)-1], ",")
	nodes := strings.Split(l.must(t, "sql", "--format", "csv", held), "\n")
	if want := nodes[len(nodes)-1]; total[0] != "total" || strings.TrimRight(strings.TrimSpace(total[5]), "0") != strings.TrimRight(want, "0") || want == "0" {
		t.Errorf("the report says %q, and what nodes were held for is %q GPU-hours", report[len(report)-1], want)
	}
}
