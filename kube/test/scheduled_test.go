package test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// train is the namespace of pods that Muster schedules. No gate is on it.
const train = "train"

// scheduled is a pod that asks to be scheduled by Muster.
func scheduled(name, cpu, mem string, gpus int, notes map[string]string) *corev1.Pod {
	pod := podOf(name, cpu, mem, gpus)
	pod.Namespace = train
	pod.Annotations = notes
	pod.Spec.SchedulerName = "muster"
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	return pod
}

// withTrain makes the namespace, whose jobs are of account ops.
func (l *lab) withTrain(t *testing.T) {
	t.Helper()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:        train,
		Annotations: map[string]string{"musterhpc.github.io/account": "ops"},
	}}
	_, err := l.kube.CoreV1().Namespaces().Create(t.Context(), space, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func (l *lab) trained(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod, err := l.kube.CoreV1().Pods(train).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// isBound waits until Muster has started a pod, and gives the number of its job.
func (l *lab) isBound(t *testing.T, name string) (job string) {
	t.Helper()
	wait(t, name+" runs", func() (bool, string) {
		pod := l.trained(t, name)
		if pod == nil {
			return false, "it is gone"
		}
		job = pod.Annotations["musterhpc.github.io/job"]
		return pod.Status.Phase == corev1.PodRunning && job != "", fmt.Sprintf("%+v", pod.Status)
	})
	return job
}

// saysWhy waits until a pod's condition PodScheduled has a reason, and gives the text.
func (l *lab) saysWhy(t *testing.T, name, reason string) (text string) {
	t.Helper()
	wait(t, name+" says "+reason, func() (bool, string) {
		for _, c := range l.trained(t, name).Status.Conditions {
			if c.Type == corev1.PodScheduled {
				text = c.Message
				return c.Status == corev1.ConditionFalse && c.Reason == reason, fmt.Sprintf("%+v", c)
			}
		}
		return false, "no condition"
	})
	return text
}

// isGone waits until a pod is deleted.
func (l *lab) isGone(t *testing.T, name string) {
	t.Helper()
	wait(t, name+" is gone", func() (bool, string) { return l.trained(t, name) == nil, "it is there" })
}

// ends has a pod's only container end, as its kubelet would tell.
func (l *lab) ends(t *testing.T, name string, code int32) {
	t.Helper()
	pod := l.trained(t, name).DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main",
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, StartedAt: metav1.Now(), FinishedAt: metav1.Now(),
		}},
	}}
	if _, err := l.kube.CoreV1().Pods(train).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// state waits until a job is in a state with an exit code.
func (l *lab) state(t *testing.T, job, want string) {
	t.Helper()
	wait(t, "job "+job+" is "+want, func() (bool, string) {
		out, _, err := l.run(filepath.Join(l.bin, "muster"), "squeue", "-h", "-j", job, "-t", "all", "-o", "%T %r")
		show, _, showErr := l.run(filepath.Join(l.bin, "muster"), "scontrol", "show", "job", job)
		if err != nil || showErr != nil {
			return false, fmt.Sprint(err, showErr)
		}
		state, _, _ := strings.Cut(out, " ")
		exit := regexp.MustCompile(`ExitCode=(\S+)`).FindStringSubmatch(show)
		got := state + " " + exit[1]
		return got == want, got
	})
}

// clearTrain takes all pods of the namespace away.
func (l *lab) clearTrain(t *testing.T) {
	t.Helper()
	if err := l.kube.CoreV1().Pods(train).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	l.clear(t)
}

// TestScheduledByMuster: a pod becomes a job, and each is over with the other.
func TestScheduledByMuster(t *testing.T) {
	l := need(t)
	l.withTrain(t)
	l.make(t, scheduled("one", "1500m", "200Mi", 2, nil))
	job := l.isBound(t, "one")
	pod := l.trained(t, "one")
	show := l.must(t, "scontrol", "show", "job", "-d", job)
	for _, want := range []string{"JobName=train/one", "Account=ops", "Pods=train/one", "JobState=RUNNING", "NumCPUs=2"} {
		if !strings.Contains(show, want) {
			t.Errorf("the job does not say %s:\n%s", want, show)
		}
	}
	if gpus := strings.Split(pod.Annotations["musterhpc.github.io/gpus"], ","); len(gpus) != 2 || gpus[0] == gpus[1] {
		t.Errorf("the pod has GPUs %q", gpus)
	}
	if node := l.must(t, "scontrol", "show", "node", pod.Spec.NodeName); strings.Contains(node, "Hold=") {
		t.Errorf("what the job has is held once more:\n%s", node)
	}
	l.ends(t, "one", 7)
	l.state(t, job, "FAILED 7:0")

	// Deleted by its user.
	l.make(t, scheduled("two", "1", "100Mi", 0, nil))
	job = l.isBound(t, "two")
	l.kubectl(t, "-n", train, "delete", "pod", "two")
	l.state(t, job, "CANCELLED 0:0")

	// Cancelled by scancel, running and waiting.
	l.make(t, scheduled("three", "6", "100Mi", 0, nil))
	job = l.isBound(t, "three")
	l.make(t, scheduled("four", "6", "100Mi", 0, nil))
	l.isBound(t, "four")
	l.make(t, scheduled("five", "6", "100Mi", 0, nil))
	text := l.saysWhy(t, "five", "Resources")
	if !strings.Contains(text, "of Muster waits (Resources)") {
		t.Errorf("the pod says %q", text)
	}
	waiting := strings.Fields(text)[1]
	l.must(t, "scancel", waiting)
	l.isGone(t, "five")
	l.must(t, "scancel", job)
	l.isGone(t, "three")
	l.state(t, job, "CANCELLED 0:0")
	if out, _, err := l.run(filepath.Join(l.bin, "muster"), "srun", "--jobid", l.isBound(t, "four"), "true"); err == nil {
		t.Errorf("a step runs in a pod: %s", out)
	}
	l.clearTrain(t)
}

// TestGang: pods of a Job start together or not at all, and each has its own devices.
func TestGang(t *testing.T) {
	l := need(t)
	l.withTrain(t)
	l.make(t, scheduled("first", "1", "100Mi", 3, nil))
	l.isBound(t, "first")
	size := int32(2)
	indexed := batchv1.IndexedCompletion
	pod := scheduled("", "2", "200Mi", 3, map[string]string{"musterhpc.github.io/gang-size": "2"})
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "gang", Namespace: train},
		Spec: batchv1.JobSpec{
			Parallelism:    &size,
			Completions:    &size,
			CompletionMode: &indexed,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: pod.Annotations, Labels: map[string]string{"of": "gang"}},
				Spec:       pod.Spec,
			},
		},
	}
	if _, err := l.kube.BatchV1().Jobs(train).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	members := func() []corev1.Pod {
		list, err := l.kube.CoreV1().Pods(train).List(t.Context(), metav1.ListOptions{LabelSelector: "of=gang"})
		if err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	wait(t, "two pods", func() (bool, string) { return len(members()) == 2, "" })
	// Room for one of them is there, and it waits for the other.
	for _, member := range members() {
		l.saysWhy(t, member.Name, "Resources")
	}
	l.kubectl(t, "-n", train, "delete", "pod", "first")
	uuids := map[string]bool{}
	number := ""
	for _, member := range members() {
		number = l.isBound(t, member.Name)
		for _, uuid := range strings.Split(l.trained(t, member.Name).Annotations["musterhpc.github.io/gpus"], ",") {
			uuids[uuid] = true
		}
	}
	if len(uuids) != 6 {
		t.Errorf("the pods have %d GPUs: %v", len(uuids), uuids)
	}
	if out := l.must(t, "squeue", "-h", "-o", "%j %D %C"); out != "train/Job/gang 2 4" {
		t.Errorf("squeue says %q", out)
	}
	for _, member := range members() {
		l.ends(t, member.Name, 0)
	}
	l.state(t, number, "COMPLETED 0:0")
	wait(t, "the Job is complete", func() (bool, string) {
		got, err := l.kube.BatchV1().Jobs(train).Get(t.Context(), "gang", metav1.GetOptions{})
		return err == nil && got.Status.CompletionTime != nil, fmt.Sprint(err, got.Status)
	})
	l.kubectl(t, "-n", train, "delete", "job", "gang")
	l.clearTrain(t)
}

// TestScheduledRefused: what Muster cannot honour is said, and nothing is bound.
func TestScheduledRefused(t *testing.T) {
	l := need(t)
	l.withTrain(t)
	spread := scheduled("spread", "1", "10Mi", 0, nil)
	spread.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: "kubernetes.io/hostname", WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
	}}
	l.make(t, spread)
	l.make(t, scheduled("rich", "1", "10Mi", 0, map[string]string{"musterhpc.github.io/user": "root"}))
	l.make(t, scheduled("partition", "1", "10Mi", 0, map[string]string{"musterhpc.github.io/partition": "nowhere"}))
	l.make(t, scheduled("alone", "1", "10Mi", 0, map[string]string{
		"musterhpc.github.io/gang": "g", "musterhpc.github.io/gang-size": "3"}))
	for name, want := range map[string]string{
		"spread":    "topologySpreadConstraints",
		"rich":      "is not for pods to say",
		"partition": "Invalid partition",
	} {
		if text := l.saysWhy(t, name, "Refused"); !strings.Contains(text, want) {
			t.Errorf("%s says %q", name, text)
		}
	}
	if text := l.saysWhy(t, "alone", "GangIncomplete"); !strings.Contains(text, "1 of the 3 pods") {
		t.Errorf("the pod says %q", text)
	}
	wait(t, "there is an event", func() (bool, string) {
		out := l.kubectl(t, "-n", train, "describe", "pod", "spread")
		return strings.Contains(out, "Refused"), out
	})
	if out := l.must(t, "squeue", "-h"); out != "" {
		t.Errorf("there are jobs:\n%s", out)
	}
	l.clearTrain(t)
}

// TestScheduledThroughFailures: muster-kube, the controller and the API server are
// killed. What runs goes on, nothing is bound meanwhile, and nothing becomes two jobs.
func TestScheduledThroughFailures(t *testing.T) {
	l := need(t)
	l.withTrain(t)
	l.make(t, scheduled("runs", "1", "100Mi", 1, nil))
	job := l.isBound(t, "runs")
	uid := l.trained(t, "runs").UID
	l.killMuster(t)
	l.make(t, scheduled("waits", "1", "100Mi", 0, nil))
	if text := l.saysWhy(t, "waits", "MusterAway"); !strings.Contains(text, "what runs goes on") {
		t.Errorf("the pod says %q", text)
	}
	l.copy.kill()
	if err := l.startCopy(); err != nil {
		t.Fatal(err)
	}
	if pod := l.trained(t, "waits"); pod.Spec.NodeName != "" {
		t.Errorf("it was bound to %s while Muster was away", pod.Spec.NodeName)
	}
	l.must(t, "up", "--dir", l.muster)
	l.isBound(t, "waits")
	for range 3 {
		l.copy.kill()
		if err := l.startCopy(); err != nil {
			t.Fatal(err)
		}
	}
	l.apiServer.kill()
	l.must(t, "squeue", "-h")
	if err := l.startAPI(); err != nil {
		t.Fatal(err)
	}
	l.make2(t, scheduled("after", "1", "100Mi", 0, nil))
	l.isBound(t, "after")
	if pod := l.trained(t, "runs"); pod == nil || pod.UID != uid || pod.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod that ran is %+v", pod)
	}
	if out := l.must(t, "squeue", "-h", "-t", "all", "-n", "train/runs", "-o", "%i %T"); out != job+" RUNNING" {
		t.Errorf("its job is %q", out)
	}
	for _, name := range []string{"waits", "after"} {
		if out := l.must(t, "squeue", "-h", "-t", "all", "-n", "train/"+name, "-o", "%T"); out != "RUNNING" {
			t.Errorf("%s is the jobs %q", name, out)
		}
	}
	l.clearTrain(t)
}

// make2 makes a pod as soon as the API server is there.
func (l *lab) make2(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	wait(t, "the API server is back", func() (bool, string) {
		_, err := l.kube.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err), fmt.Sprint(err)
	})
}

// memberOf is a Job of one pod of a gang of two.
func memberOf(name string, pod *corev1.Pod, ttl *int32) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: train},
		Spec: batchv1.JobSpec{
			TTLSecondsAfterFinished: ttl,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: pod.Annotations, Labels: map[string]string{"of": name}},
				Spec:       pod.Spec,
			},
		},
	}
}

// podMadeFor waits for the pod of a Job.
func (l *lab) podMadeFor(t *testing.T, job string) (name string) {
	t.Helper()
	wait(t, "Job "+job+" has a pod", func() (bool, string) {
		list, err := l.kube.CoreV1().Pods(train).List(t.Context(), metav1.ListOptions{LabelSelector: "of=" + job})
		if err != nil || len(list.Items) != 1 {
			return false, fmt.Sprint(err, list)
		}
		name = list.Items[0].Name
		return true, ""
	})
	return name
}

// TestUnequalGang: a leader and its larger worker, of two Jobs, start together or not at
// all. When the leader has ended well and its Job is removed, the worker goes on, also
// past a restart of muster-kube. Both are over when the worker is.
func TestUnequalGang(t *testing.T) {
	l := need(t)
	l.withTrain(t)
	for _, name := range []string{"first", "second"} {
		l.make(t, scheduled(name, "4", "100Mi", 0, nil))
		l.isBound(t, name)
	}
	gang := map[string]string{"musterhpc.github.io/gang": "pair", "musterhpc.github.io/gang-size": "2"}
	now := int32(0)
	for _, job := range []*batchv1.Job{
		memberOf("leader", scheduled("", "1", "100Mi", 0, gang), &now),
		memberOf("worker", scheduled("", "3", "200Mi", 2, gang), nil),
	} {
		if _, err := l.kube.BatchV1().Jobs(train).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	leader, worker := l.podMadeFor(t, "leader"), l.podMadeFor(t, "worker")
	// There is room for the leader.
	l.saysWhy(t, leader, "Resources")
	l.saysWhy(t, worker, "Resources")
	l.kubectl(t, "-n", train, "delete", "pod", "first")
	job := l.isBound(t, leader)
	if other := l.isBound(t, worker); other != job {
		t.Errorf("the pods are of jobs %s and %s", job, other)
	}
	if gpus := strings.Split(l.trained(t, worker).Annotations["musterhpc.github.io/gpus"], ","); len(gpus) != 2 {
		t.Errorf("the worker has GPUs %q", gpus)
	}
	if out := l.must(t, "squeue", "-h", "-S", "i", "-j", job, "-o", "%i %j %C %T"); out !=
		job+"+0 train/pair 1 RUNNING\n"+job+"+1 train/pair 3 RUNNING" {
		t.Errorf("squeue says %q", out)
	}

	l.ends(t, leader, 0)
	wait(t, "the leader is to be removed", func() (bool, string) {
		pod := l.trained(t, leader)
		return pod != nil && pod.DeletionTimestamp != nil, fmt.Sprintf("%+v", pod)
	})
	l.copy.kill()
	if err := l.startCopy(); err != nil {
		t.Fatal(err)
	}
	l.make(t, scheduled("after", "1", "100Mi", 0, nil)) // it has looked at everything by then
	l.isBound(t, "after")
	if pod := l.trained(t, worker); pod == nil || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		t.Errorf("the worker is %+v", pod)
	}
	l.ends(t, worker, 0)
	l.state(t, job, "COMPLETED 0:0")
	l.isGone(t, leader)
	wait(t, "the worker is let go of", func() (bool, string) {
		pod := l.trained(t, worker)
		return pod != nil && !strings.Contains(fmt.Sprint(pod.Finalizers), "musterhpc"), fmt.Sprintf("%+v", pod)
	})
	l.kubectl(t, "-n", train, "delete", "job", "worker")
	l.clearTrain(t)
}

// TestGangLosesPod: when somebody deletes a pod of a gang that runs, the others go too, and
// nothing keeps any of them.
func TestGangLosesPod(t *testing.T) {
	l := need(t)
	l.withTrain(t)
	gang := map[string]string{"musterhpc.github.io/gang": "trio", "musterhpc.github.io/gang-size": "3"}
	for i, cpu := range []string{"1", "2", "2"} {
		l.make(t, scheduled(fmt.Sprint("trio-", i), cpu, "100Mi", 0, gang))
	}
	job := l.isBound(t, "trio-0")
	l.kubectl(t, "-n", train, "delete", "pod", "trio-2")
	for i := range 3 {
		l.isGone(t, fmt.Sprint("trio-", i))
	}
	l.state(t, job, "CANCELLED 0:0")
	l.clearTrain(t)
}
