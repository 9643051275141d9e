package test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tale is a walk as it is printed: commands and what they say.
type tale struct {
	t *testing.T
	l *lab
	b strings.Builder
}

// tell notes a line, and shows it when somebody reads along.
func (w *tale) tell(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.b.WriteString(text)
	if testing.Verbose() {
		fmt.Print(text)
	}
}

// shows runs a command until its answer holds a text, and tells both.
func (w *tale) shows(want string, name string, args ...string) {
	w.t.Helper()
	folder := w.l.bin
	command := append([]string{name}, args...)
	if name == "kubectl" {
		folder = w.l.kubeBin
	} else if name != "muster" {
		name = "muster"
		args = command
	}
	var out string
	wait(w.t, strings.Join(command, " ")+" shows "+want, func() (bool, string) {
		var err error
		if out, _, err = w.l.run(filepath.Join(folder, name), args...); err != nil {
			return false, err.Error()
		}
		return strings.Contains(out, want), out
	})
	w.tell("$ %s\n%s\n", typed(command), strings.TrimRight(out, "\n"))
}

// typed is a command as one types it in a shell.
func typed(words []string) string {
	out := slices.Clone(words)
	for i, word := range out {
		switch {
		case strings.Contains(word, "'"):
			out[i] = `"` + word + `"` // none of these has what a shell would replace
		case strings.ContainsAny(word, " {}[]()\"\\$*?;&|<>%"):
			out[i] = "'" + word + "'"
		}
	}
	return strings.Join(out, " ")
}

// does runs a command of Muster, and tells it.
func (w *tale) does(name string, args ...string) {
	w.t.Helper()
	command := append([]string{name}, args...)
	w.tell("$ %s\n", typed(command))
	w.l.must(w.t, command...)
}

// applies gives a manifest to Kubernetes, and tells it.
func (w *tale) applies(manifest string) {
	w.t.Helper()
	w.tell("$ kubectl apply -f - <<'END'\n%sEND\n", manifest)
	if _, _, err := w.l.feed([]byte(manifest), filepath.Join(w.l.kubeBin, "kubectl"), "apply", "-f", "-"); err != nil {
		w.t.Fatal(err)
	}
}

// srun starts a job that lasts until it is cancelled.
func (w *tale) srun(args ...string) *process {
	w.t.Helper()
	w.tell("$ srun %s &\n", typed(args))
	p := &process{name: "srun", over: make(chan struct{})}
	p.cmd = exec.CommandContext(w.t.Context(), filepath.Join(w.l.bin, "muster"), append([]string{"srun"}, args...)...)
	p.cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+filepath.Join(w.l.muster, "run", "muster.sock"))
	p.cmd.Dir = w.l.dir
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // it is cancelled
		close(p.over)
	}()
	return p
}

func deployment(name, cpu, mem string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	pod := podOf(name, cpu, mem, 0)
	pod.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "node1"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}
}

// TestWalk is the walk that users of a colocated cluster know: what jobs and pods
// have of a node is one table, and each waits for what the other has.
func TestWalk(t *testing.T) {
	l := need(t)
	watch := l.observe(t)
	w := &tale{t: t, l: l}
	w.tell("# An empty cluster.\n")
	w.shows(`"cpu":"0"`, "kubectl", "get", "genericnode")

	w.tell("\n# What the system has on the node is counted, though it waits for nobody.\n")
	agent := podOf("agent", "735m", "1369Mi", 0)
	agent.Namespace = "kube-system"
	agent.Spec.NodeName = "node1"
	l.make(t, agent)
	w.shows(`"cpu":"735m"`, "kubectl", "get", "genericnode", "node1")

	w.tell("\n# A job takes 3 CPUs, a deployment gets the rest.\n")
	first := w.srun("-n1", "-c3", "--mem=4000", "-w", "node1", "sleep", "3600")
	w.shows("R 3 node1", "squeue", "-o", "%t %C %R")
	if _, err := l.kube.AppsV1().Deployments("web").Create(t.Context(), deployment("front", "1", "1Gi", 0), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.shows("scaled", "kubectl", "-n", "web", "scale", "deployment", "front", "--replicas=2")
	w.shows("2/2", "kubectl", "-n", "web", "get", "deployment", "front", "-o", `jsonpath={.status.readyReplicas}{"/"}{.spec.replicas}{"\n"}`)
	w.shows(`[{"allocated":{"cpu":"3","memory":"4000Mi"},"type":"Slurm"},{"allocated":{"cpu":"2735m","memory":"3417Mi"},"type":"Kubernetes"}]`,
		"kubectl", "get", "genericnode", "node1")

	w.tell("\n# A second job waits for the pods, and says so.\n")
	second := w.srun("-n1", "-c2", "--mem=600", "-w", "node1", "sleep", "3600")
	w.shows("(Resources)", "squeue", "-t", "PD", "-h", "-o", "%t %C %R")
	job := strings.TrimSpace(l.must(t, "squeue", "-t", "PD", "-h", "-o", "%A"))
	if why := l.must(t, "why", job); !strings.Contains(why, "web/front-") {
		t.Errorf("the job does not name the pods that it waits for:\n%s", why)
	}

	w.tell("\n# The pods go, and it starts.\n")
	w.shows("scaled", "kubectl", "-n", "web", "scale", "deployment", "front", "--replicas=0")
	w.shows("R node1\nR node1", "squeue", "-h", "-o", "%t %R")
	w.shows(`{"cpu":"5","memory":"4600Mi"},"type":"Slurm"},{"allocated":{"cpu":"735m"`, "kubectl", "get", "genericnode", "node1")
	golden(t, "walk.txt", w.b.String())

	if err := l.kube.AppsV1().Deployments("web").Delete(t.Context(), "front", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.clear(t)
	<-first.over
	<-second.over
	watch()
}

// golden compares a text with a file, without what differs from run to run.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs:\n%s\nwant:\n%s", name, got, want)
	}
}

// TestMusterAway: a controller that is killed while pods wait. They say so, what
// runs goes on, and nothing is let through before it is back.
func TestMusterAway(t *testing.T) {
	l := need(t)
	watch := l.observe(t)
	l.make(t, podOf("runs", "1", "100Mi", 1))
	node := l.runs(t, "runs")
	uuid := l.get(t, "runs").Annotations["musterhpc.github.io/gpus"]
	if show := l.must(t, "scontrol", "show", "node", node); uuid == "" || !strings.Contains(show, "Hold=web/runs") || !strings.Contains(show, uuid) {
		t.Errorf("the pod says GPU %q, and the node:\n%s", uuid, show)
	}
	l.killMuster(t)
	l.make(t, podOf("waits", "1", "100Mi", 0))
	text := l.waits(t, "waits", "MusterAway")
	if !strings.Contains(text, "what runs goes on") {
		t.Errorf("the pod says %q", text)
	}
	wait(t, "there is an event", func() (bool, string) {
		out := l.kubectl(t, "-n", "web", "describe", "pod", "waits")
		return strings.Contains(out, "MusterAway"), out
	})
	if pod := l.get(t, "waits"); len(pod.Spec.SchedulingGates) == 0 || pod.Spec.NodeName != "" {
		t.Errorf("it was let through: %+v", pod.Spec)
	}
	if pod := l.get(t, "runs"); pod.Status.Phase != corev1.PodRunning {
		t.Errorf("it runs no more: %+v", pod.Status)
	}
	l.must(t, "up", "--dir", l.muster)
	l.runs(t, "waits")
	wait(t, "the condition is true", func() (bool, string) {
		for _, c := range l.get(t, "waits").Status.Conditions {
			if c.Type == "musterhpc.github.io/Held" {
				return c.Status == corev1.ConditionTrue, c.Message
			}
		}
		return false, "no condition"
	})
	l.clear(t)
	watch()
}

// killMuster ends the controller as a crash does.
func (l *lab) killMuster(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(l.muster, "run", "musterd.pid"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.run("kill", "-9", strings.TrimSpace(string(text))); err != nil {
		t.Fatal(err)
	}
}

// TestKilledBetween: muster-kube is killed between the hold and the write that lets
// the pod through. The next one finds the hold and lets the pod go there.
func TestKilledBetween(t *testing.T) {
	l := need(t)
	watch := l.observe(t)
	// Without this right the write fails, and nothing else does.
	roles := l.kube.RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), release, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	whole := role.DeepCopy()
	for i := range role.Rules {
		if len(role.Rules[i].Resources) == 1 && role.Rules[i].Resources[0] == "pods" {
			role.Rules[i].Verbs = []string{"get", "list", "watch"}
		}
	}
	if _, err := roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.make(t, podOf("between", "1500m", "100Mi", 2))
	var show string
	wait(t, "the hold is there", func() (bool, string) {
		show = l.must(t, "scontrol", "show", "node")
		return strings.Contains(show, "Hold=web/between"), show
	})
	l.copy.kill()
	if pod := l.get(t, "between"); len(pod.Spec.SchedulingGates) == 0 {
		t.Fatalf("it was let through: %+v", pod.Spec)
	}
	whole.ResourceVersion = ""
	if _, err := roles.Update(t.Context(), whole, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := l.startCopy(); err != nil {
		t.Fatal(err)
	}
	node := l.runs(t, "between")
	show = l.must(t, "scontrol", "show", "node")
	if strings.Count(show, "Hold=web/between") != 1 || !strings.Contains(l.must(t, "scontrol", "show", "node", node), "Hold=web/between") {
		t.Errorf("it runs on %s, and the holds are:\n%s", node, show)
	}
	// A pod that goes while nobody looks: the next copy gives its hold back.
	l.copy.kill()
	l.kubectl(t, "-n", "web", "delete", "pod", "between")
	if err := l.startCopy(); err != nil {
		t.Fatal(err)
	}
	l.clear(t)
	watch()
}

// TestTwoCopies: one of two copies works, with the rights that the chart gives to the
// lease. When it ends, the other one goes on.
func TestTwoCopies(t *testing.T) {
	l := need(t)
	watch := l.observe(t)
	l.copy.kill()
	holder := func() string {
		lease, err := l.kube.CoordinationV1().Leases(system).Get(t.Context(), release, metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	var copies []*process
	for range 2 {
		p, err := l.beginCopy(release)
		if err != nil {
			t.Fatal(err)
		}
		copies = append(copies, p)
	}
	l.make(t, podOf("one", "1", "100Mi", 0))
	l.runs(t, "one")
	at := slices.IndexFunc(copies, func(p *process) bool { return strings.HasSuffix(holder(), fmt.Sprintf("-%d", p.cmd.Process.Pid)) })
	if at < 0 {
		t.Fatalf("none of the copies has the lease, but %q", holder())
	}
	if err := copies[at].cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-copies[at].over
	if code := copies[at].cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("asked to stop, it exits with %d", code)
	}
	l.make(t, podOf("two", "1", "100Mi", 0))
	l.runs(t, "two")
	copies[1-at].kill()
	if err := l.startCopy(); err != nil {
		t.Fatal(err)
	}
	l.clear(t)
	watch()
}

// TestRefused: what must not pass does not, and says why.
func TestRefused(t *testing.T) {
	l := need(t)
	watch := l.observe(t)
	l.make(t, podOf("big", "6", "100Mi", 0))
	other := l.runs(t, "big")
	l.make(t, podOf("also", "6", "100Mi", 4))
	l.runs(t, "also")
	l.make(t, podOf("full", "1", "100Mi", 0))
	if text := l.waits(t, "full", "NoRoom"); !strings.Contains(text, "leave no node enough room: it needs cpu=1000m, memory=100Mi") {
		t.Errorf("the pod says %q", text)
	}
	nowhere := podOf("nowhere", "1", "100Mi", 0)
	nowhere.Spec.NodeSelector = map[string]string{"disk": "fast"}
	l.make(t, nowhere)
	if text := l.waits(t, "nowhere", "NoRoom"); !strings.Contains(text, "no node of Muster admits the pod") {
		t.Errorf("the pod says %q", text)
	}
	_, _, err := l.run(filepath.Join(l.kubeBin, "kubectl"), "-n", "web", "patch", "pod", "full", "--type=json",
		"-p", `[{"op":"remove","path":"/spec/schedulingGates"}]`)
	if err == nil || !strings.Contains(err.Error(), "only muster-kube removes the gate") {
		t.Errorf("somebody else removes the gate: %v", err)
	}
	bypass := podOf("bypass", "1", "1Mi", 0)
	bypass.Spec.NodeName = "node1"
	if _, err := l.kube.CoreV1().Pods("web").Create(t.Context(), bypass, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "must not name its node") {
		t.Errorf("a pod passes by the ledger: %v", err)
	}
	// Room comes back, and the pod that waits for it goes there.
	l.kubectl(t, "-n", "web", "delete", "pod", "big")
	if node := l.runs(t, "full"); node != other {
		t.Errorf("it runs on %s, room was on %s", node, other)
	}
	l.clear(t)
	watch()
}

// TestStorm: pods and jobs come and go while everything that may be killed is. What
// the observer saw of it is judged at the end.
func TestStorm(t *testing.T) {
	l := need(t)
	watch := l.observe(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	killed := make(chan error, 1)
	go func() {
		for i := range 6 {
			select {
			case <-ctx.Done():
				killed <- nil
				return
			case <-time.After(time.Second):
			}
			l.copy.kill()
			if err := l.startCopy(); err != nil {
				killed <- fmt.Errorf("copy %d: %w", i, err)
				return
			}
		}
		killed <- nil
	}()
	const pods = 40
	for i := range pods {
		l.make(t, podOf(fmt.Sprintf("p%d", i), fmt.Sprintf("%dm", 100+i*137%2900), fmt.Sprintf("%dMi", 10+i*83%1500), i%3))
		if i%2 == 0 {
			l.must(t, "sbatch", "-c", fmt.Sprint(1+i%4), "--mem=200", "--gres=gpu:"+fmt.Sprint(i%3), "--wrap", "sleep 2")
		}
		if i%3 == 2 {
			l.kubectl(t, "-n", "web", "delete", "pod", fmt.Sprintf("p%d", i-2), "--wait=false")
		}
	}
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	l.killMuster(t)
	l.must(t, "up", "--dir", l.muster)
	// Who has run a while goes, so that all come to run.
	wait(t, "no pod waits", func() (bool, string) {
		list, err := l.kube.CoreV1().Pods("web").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		waiting := 0
		for i := range list.Items {
			pod := &list.Items[i]
			if pod.Status.Phase == corev1.PodPending {
				waiting++
			} else if err := l.kube.CoreV1().Pods("web").Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
				return false, err.Error()
			}
		}
		return waiting == 0, fmt.Sprintf("%d of %d pods wait", waiting, len(list.Items))
	})
	l.clear(t)
	watch()
}

// preempting has jobs of QOS high push out those of QOS low.
func (l *lab) preempting(t *testing.T) {
	t.Helper()
	file := filepath.Join(l.muster, "slurm.conf")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "PreemptType=preempt/qos") {
		text = append(text, "\nPreemptType=preempt/qos\nPreemptMode=CANCEL\n"...)
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		l.must(t, "sacctmgr", "-i", "add", "qos", "low", "priority=1")
		l.must(t, "sacctmgr", "-i", "add", "qos", "high", "priority=100", "preempt=low")
		l.must(t, "sacctmgr", "-i", "modify", "account", "ops", "set", "qos+=low,high,normal")
	}
	l.must(t, "scontrol", "reconfigure")
}

// TestWalkScheduled is the walk of a cluster whose pods Muster schedules: an inference
// deployment beside a training array on the same GPUs, preempted both ways.
func TestWalkScheduled(t *testing.T) {
	l := need(t)
	l.withTrain(t)
	l.preempting(t)
	w := &tale{t: t, l: l}
	w.tell("# A training array has all eight GPUs of two nodes.\n")
	w.does("sbatch", "-A", "ops", "--qos=low", "--array=0-3", "-c1", "--mem=100", "--gres=gpu:2", "-t", "60", "--wrap", "sleep 3600")
	w.shows("R low\nR low\nR low\nR low", "squeue", "-h", "-o", "%t %q")

	w.tell("\n# An inference deployment of QOS high comes: its pods are jobs, and take the place of two tasks.\n")
	// The partition gives no job more than a week, and a service asks for ever by itself.
	w.applies(`apiVersion: apps/v1
kind: Deployment
metadata: {name: infer, namespace: train}
spec:
  replicas: 2
  selector: {matchLabels: {app: infer}}
  template:
    metadata:
      labels: {app: infer}
      annotations: {musterhpc.github.io/qos: high, musterhpc.github.io/time-limit: 7-0}
    spec:
      schedulerName: muster
      terminationGracePeriodSeconds: 0
      containers:
        - name: main
          image: none
          resources: {limits: {cpu: "1", memory: 200Mi, nvidia.com/gpu: "2"}}
`)
	w.shows("2/2", "kubectl", "-n", train, "get", "deployment", "infer")
	w.shows("R high\nR high\nR low\nR low", "squeue", "-h", "-t", "R", "-S", "q", "-o", "%t %q")
	for _, job := range strings.Fields(l.must(t, "squeue", "-h", "-t", "R", "-q", "high", "-o", "%A")) {
		if show := l.must(t, "scontrol", "show", "job", job); !strings.Contains(show, "PodOwner=Deployment/infer") {
			t.Errorf("the job does not name what made its pod:\n%s", show)
		}
	}

	w.tell("\n# A pod of QOS low waits for jobs and pods. Kubernetes and Muster say so in the same words.\n")
	l.make(t, scheduled("later", "1", "100Mi", 4, map[string]string{"musterhpc.github.io/qos": "low"}))
	text := l.saysWhy(t, "later", "Resources")
	number := strings.Fields(text)[1]
	w.shows("of Muster waits (Resources)", "kubectl", "-n", train, "get", "pod", "later", "-o", `jsonpath={.status.conditions[0].message}{"\n"}`)
	w.shows("train/infer-", "muster", "why", number)

	w.tell("\n# The deployment is scaled down and the array cancelled: the pod starts.\n")
	w.shows("scaled", "kubectl", "-n", train, "scale", "deployment", "infer", "--replicas=0")
	w.does("scancel", "--user=root")
	l.isBound(t, "later")
	w.shows("Running", "kubectl", "-n", train, "get", "pod", "later")

	w.tell("\n# A job of QOS high needs the GPUs of both nodes: the pod goes for it.\n")
	w.does("sbatch", "-A", "ops", "--qos=high", "-N2", "--gres=gpu:4", "-t", "60", "--wrap", "sleep 3600")
	l.isGone(t, "later")
	w.shows("R high", "squeue", "-h", "-o", "%t %q")
	w.shows("PREEMPTED", "squeue", "-h", "-t", "all", "-j", number, "-o", "%T")
	if err := l.kube.AppsV1().Deployments(train).Delete(t.Context(), "infer", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.clearTrain(t)
}
