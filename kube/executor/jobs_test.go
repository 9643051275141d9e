package executor

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/kube/claims"
	"github.com/musterhpc/muster/spec"
)

// listed is a lister's store with some objects.
func listed(t testing.TB, objects ...runtime.Object) cache.Indexer {
	t.Helper()
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
	})
	for _, o := range objects {
		if err := store.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// reader reads pods among two nodes, a namespace and a PriorityClass.
func reader(t testing.TB) *jobPods {
	t.Helper()
	node := func(name, zone string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: Domain + "/shared", Effect: corev1.TaintEffectNoSchedule}}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
	}
	nodes := []*corev1.Node{node("n1", "a"), node("n2", "b")}
	names := namesOf(nodes)
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "train", Annotations: map[string]string{
		accountKey: "ml", userKey: "alice", qosKey: "normal"}}}
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent", Annotations: map[string]string{
		qosKey: "high", priorityKey: "7"}}}
	claim := func(name string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "train", Name: name},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "local"},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: phase},
		}
	}
	local := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Spec: corev1.PersistentVolumeSpec{
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}}}}}}}}}
	return &jobPods{
		surroundings: &surroundings{
			spaces:  corelisters.NewNamespaceLister(listed(t, space)),
			classes: schedulinglisters.NewPriorityClassLister(listed(t, class)),
			claims: corelisters.NewPersistentVolumeClaimLister(
				listed(t, claim("bound", corev1.ClaimBound), claim("open", corev1.ClaimPending))),
			volumes: corelisters.NewPersistentVolumeLister(listed(t, local)),
		},
		scheduler: "muster",
		gpu:       "nvidia.com/gpu",
		nodes:     nodes,
		names:     &names,
		admitting: newAdmissions(nodes, &names),
	}
}

func asking(change func(p *corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "train", Name: "p", UID: "u", Annotations: map[string]string{}, Labels: map[string]string{}},
		Spec: corev1.PodSpec{
			SchedulerName: "muster",
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Resources: amount("500m", "1Gi", "1")}},
		},
	}
	if change != nil {
		change(p)
	}
	return p
}

// TestRequestOfPod: what a pod, its PriorityClass and its namespace say, in this order.
func TestRequestOfPod(t *testing.T) {
	base := copilot.Request{
		User: "alice", Account: "ml", QOS: "normal", Admits: "n[1-2]",
		Ask: copilot.Ask{MilliCPU: 500, Mem: 1024, GPUs: 1},
	}
	with := func(change func(r *copilot.Request)) copilot.Request {
		out := base
		change(&out)
		return out
	}
	yes := true
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		want copilot.Request
	}{
		{"the namespace's", asking(nil), base},
		{"the class comes before it", asking(func(p *corev1.Pod) { p.Spec.PriorityClassName = "urgent" }),
			with(func(r *copilot.Request) { r.QOS, r.Priority = "high", 7 })},
		{"the pod before both", asking(func(p *corev1.Pod) {
			p.Spec.PriorityClassName = "urgent"
			p.Annotations[qosKey], p.Labels[partitionKey], p.Annotations[niceKey] = "low", "gpu", "10"
			p.Annotations[timeLimitKey] = "1-0"
		}), with(func(r *copilot.Request) {
			r.QOS, r.Priority, r.Partition, r.Nice, r.Limit = "low", 7, "gpu", 10, 24*spec.Hour
		})},
		{"a service has no end", asking(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }),
			with(func(r *copilot.Request) { r.Limit = spec.Infinite })},
		{"a deadline of its own", asking(func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64); *p.Spec.ActiveDeadlineSeconds = 90 }),
			with(func(r *copilot.Request) { r.Limit = 90 * spec.Second })},
		{"the Deployment behind a ReplicaSet", asking(func(p *corev1.Pod) {
			p.Labels["pod-template-hash"] = "5d4"
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "front-5d4", Controller: &yes}}
		}), with(func(r *copilot.Request) { r.Owner = "Deployment/front" })},
		{"a selector", asking(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} }),
			with(func(r *copilot.Request) { r.Admits = "n1" })},
		{"a volume that is on one node", asking(func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "bound"}}}}
		}), with(func(r *copilot.Request) { r.Admits = "n2" })},
	} {
		got, ok := reader(t).read(c.pod)
		if !ok || got.Refused != "" || got.Request != c.want {
			t.Errorf("%s: %+v (%v, refused %q), want %+v", c.name, got.Request, ok, got.Refused, c.want)
		}
	}
	other := asking(func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" })
	if _, ok := reader(t).read(other); ok {
		t.Error("a pod of another scheduler is taken")
	}
}

// A queue of Kueue is an account.
func TestQueueNameIsAccount(t *testing.T) {
	r := reader(t)
	space, err := r.spaces.Get("train")
	if err != nil {
		t.Fatal(err)
	}
	delete(space.Annotations, accountKey)
	got, _ := r.read(asking(func(p *corev1.Pod) { p.Labels["kueue.x-k8s.io/queue-name"] = "team-a" }))
	if got.Request.Account != "team-a" {
		t.Errorf("account %q", got.Request.Account)
	}
}

// TestGangOfPod: gangs in our words and in those of others.
func TestGangOfPod(t *testing.T) {
	yes := true
	for _, c := range []struct {
		name, gang string
		size, rank int
		pod        *corev1.Pod
	}{
		{"by itself", "", 0, 0, asking(nil)},
		{"of one", "", 0, 0, asking(func(p *corev1.Pod) { p.Annotations[gangKey], p.Annotations[gangSizeKey] = "g", "1" })},
		{"named", "g", 3, 0, asking(func(p *corev1.Pod) { p.Labels[gangKey], p.Annotations[gangSizeKey] = "g", "3" })},
		{"of a Job", "Job/train", 4, 2, asking(func(p *corev1.Pod) {
			p.Annotations[gangSizeKey] = "4"
			p.Annotations["batch.kubernetes.io/job-completion-index"] = "2"
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "train", Controller: &yes}}
		})},
		{"of a LeaderWorkerSet", "LeaderWorkerSet/lws-1", 2, 1, asking(func(p *corev1.Pod) {
			p.Labels["leaderworkerset.sigs.k8s.io/name"] = "lws"
			p.Labels["leaderworkerset.sigs.k8s.io/group-index"] = "1"
			p.Labels["leaderworkerset.sigs.k8s.io/worker-index"] = "1"
			p.Annotations["leaderworkerset.sigs.k8s.io/size"] = "2"
		})},
		{"of a JobSet", "JobSet/js-0", 8, 0, asking(func(p *corev1.Pod) {
			p.Labels["jobset.sigs.k8s.io/jobset-name"] = "js"
			p.Labels["jobset.sigs.k8s.io/restart-attempt"] = "0"
			p.Annotations[gangSizeKey] = "8"
		})},
		{"of a Ray cluster", "RayCluster/ray", 3, 0, asking(func(p *corev1.Pod) {
			p.Labels["ray.io/cluster"] = "ray"
			p.Annotations[gangSizeKey] = "3"
		})},
		{"a JobSet without a size is no gang", "", 0, 0, asking(func(p *corev1.Pod) {
			p.Labels["jobset.sigs.k8s.io/jobset-name"] = "js"
		})},
	} {
		got, _ := reader(t).read(c.pod)
		if got.Gang != c.gang || got.Size != c.size || got.Rank != c.rank || got.Refused != "" {
			t.Errorf("%s: gang %q of %d, rank %d, refused %q", c.name, got.Gang, got.Size, got.Rank, got.Refused)
		}
	}
}

// TestUnsupportedPods: each thing that is not honoured is named.
func TestUnsupportedPods(t *testing.T) {
	term := []corev1.PodAffinityTerm{{TopologyKey: "zone"}}
	for want, change := range map[string]func(p *corev1.Pod){
		"affinity between pods": func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term}}
		},
		"topologySpreadConstraints": func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: corev1.DoNotSchedule}}
		},
		"host ports (80)": func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} },
		"does not count": func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests["example.org/fpga"] = p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"]
		},
		"is not bound": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "open"}}}}
		},
		"is not for pods to say":                 func(p *corev1.Pod) { p.Annotations[userKey] = "root" },
		"invalid " + timeLimitKey:                func(p *corev1.Pod) { p.Annotations[timeLimitKey] = "soon" },
		"invalid " + niceKey:                     func(p *corev1.Pod) { p.Annotations[niceKey] = "-5" },
		"gang g has no size: set " + gangSizeKey: func(p *corev1.Pod) { p.Annotations[gangKey] = "g" },
		"a gang of 2 pods has no name":           func(p *corev1.Pod) { p.Annotations[gangSizeKey] = "2" },
	} {
		if got, _ := reader(t).read(asking(change)); !strings.Contains(got.Refused, want) {
			t.Errorf("want %q, it says %q", want, got.Refused)
		}
	}
}

// TestEndOfPod: the container that failed first gives the job its exit.
func TestEndOfPod(t *testing.T) {
	at := func(s int64) metav1.Time { return metav1.Unix(s, 0) }
	ended := func(code, signal int32, s int64) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Signal: signal, StartedAt: at(100), FinishedAt: at(s)}}}
	}
	for _, c := range []struct {
		phase    corev1.PodPhase
		statuses []corev1.ContainerStatus
		want     spec.ExitStatus
	}{
		{corev1.PodSucceeded, []corev1.ContainerStatus{ended(0, 0, 110)}, spec.ExitStatus{}},
		{corev1.PodFailed, []corev1.ContainerStatus{ended(0, 0, 105), ended(3, 0, 120), ended(9, 0, 110)}, spec.ExitStatus{Code: 9}},
		{corev1.PodFailed, []corev1.ContainerStatus{ended(137, 0, 110)}, spec.ExitStatus{Signal: 9}},
		{corev1.PodFailed, []corev1.ContainerStatus{ended(0, 15, 110)}, spec.ExitStatus{Signal: 15}},
		{corev1.PodFailed, nil, spec.ExitStatus{Code: 1}},
	} {
		got := endOf(&corev1.Pod{Status: corev1.PodStatus{Phase: c.phase, ContainerStatuses: c.statuses}})
		if got.Exit != c.want {
			t.Errorf("%s %+v: exit %+v, want %+v", c.phase, c.statuses, got.Exit, c.want)
		}
	}
}

// TestKeptPod: a pod of a gang that is only there because Muster keeps it is told from one
// that may run, and whether it ended before it was deleted.
func TestKeptPod(t *testing.T) {
	grace := func(s int64) *int64 { return &s }
	at := func(s int64) *metav1.Time { out := metav1.Unix(s, 0); return &out }
	for name, c := range map[string]struct {
		change     func(p *corev1.Pod)
		kept, gone bool
		deleted    spec.Instant // seconds
	}{
		"it runs": {change: func(p *corev1.Pod) { p.Finalizers = []string{"other", GangFinalizer} }, kept: true},
		"its grace runs": {
			change: func(p *corev1.Pod) {
				p.Finalizers = []string{GangFinalizer}
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = at(130), grace(30)
			},
			kept: true, deleted: 100,
		},
		"its kubelet is done": {
			change: func(p *corev1.Pod) {
				p.Finalizers = []string{GangFinalizer}
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = at(100), grace(0)
			},
			kept: true, gone: true, deleted: 100,
		},
		"somebody else keeps it": {
			change: func(p *corev1.Pod) {
				p.Finalizers = []string{"other"}
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = at(100), grace(0)
			},
			deleted: 100,
		},
	} {
		pod := asking(c.change)
		got, _ := reader(t).read(pod)
		if got.Kept != c.kept || got.Gone != c.gone || got.Deleted != c.deleted*spec.Instant(spec.Second) {
			t.Errorf("%s: kept %v, gone %v, deleted %v", name, got.Kept, got.Gone, got.Deleted)
		}
		names := namesOf(nil)
		if seen := podOf(pod, askOf(pod, "nvidia.com/gpu"), &claims.Want{}, &names); seen.Over != c.gone {
			t.Errorf("%s: over %v", name, seen.Over)
		}
	}
}
