package executor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/kube/claims"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// What a pod says of the job that it becomes, in annotations or labels. Those of the pod
// come first, then those of its PriorityClass, then those of its namespace.
const (
	accountKey     = Domain + "/account"
	qosKey         = Domain + "/qos"
	partitionKey   = Domain + "/partition"
	reservationKey = Domain + "/reservation"
	wckeyKey       = Domain + "/wckey"
	timeLimitKey   = Domain + "/time-limit"
	niceKey        = Domain + "/nice"
	// Who owns the jobs of a namespace, and what priority a PriorityClass means, is for
	// those to say who administer them: in pods these two are refused.
	userKey     = Domain + "/user"
	priorityKey = Domain + "/priority"
	// A gang: its name, and how many pods there are. Without a name it is of whatever
	// made the pods.
	gangKey     = Domain + "/gang"
	gangSizeKey = Domain + "/gang-size"
	// GangFinalizer is on the pods of a gang from before they are bound until their job is
	// over, so that how each of them ended can still be read.
	GangFinalizer = Domain + "/gang"
	// JobAnnotation is written on a pod with its binding.
	JobAnnotation = Domain + "/job"
)

// queueLabels name an account in the words of Kueue and KAI.
var queueLabels = []string{"kueue.x-k8s.io/queue-name", "kai.scheduler/queue"}

// gangLabels name a gang in the words of others: label of its name, of its part, and the
// label or annotation of its size. Where a size is not said, gang-size says it.
var gangLabels = [...]struct{ kind, name, part, size string }{
	{
		"LeaderWorkerSet",
		"leaderworkerset.sigs.k8s.io/name",
		"leaderworkerset.sigs.k8s.io/group-index",
		"leaderworkerset.sigs.k8s.io/size",
	},
	{
		"JobSet",
		"jobset.sigs.k8s.io/jobset-name",
		"jobset.sigs.k8s.io/restart-attempt",
		"",
	},
	{"RayCluster", "ray.io/cluster", "", ""},
	{"PodGroup", "scheduling.x-k8s.io/pod-group", "", ""},
	{"PodGroup", "scheduling.k8s.io/group-name", "", ""},
}

// rankKeys are labels or annotations that number the pods of a gang.
var rankKeys = []string{
	"batch.kubernetes.io/job-completion-index",
	"leaderworkerset.sigs.k8s.io/worker-index",
	"apps.kubernetes.io/pod-index",
}

// surroundings are what decides about a pod beside itself.
type surroundings struct {
	spaces  corelisters.NamespaceLister
	classes schedulinglisters.PriorityClassLister
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
}

// jobPods reads the pods that Muster schedules, in one round.
type jobPods struct {
	*surroundings
	scheduler string
	gpu       corev1.ResourceName
	nodes     []*corev1.Node
	names     *names
	admitting *admissions
	wants     map[string]*claims.Want // by UID, of pods with claims that can be read
}

// read makes of a pod what the copilot sees; false: another scheduler has it.
func (j *jobPods) read(p *corev1.Pod) (copilot.JobPod, bool) {
	if p.Spec.SchedulerName != j.scheduler {
		return copilot.JobPod{}, false
	}
	out := copilot.JobPod{
		UID:       string(p.UID),
		Namespace: p.Namespace,
		Name:      p.Name,
		Created:   spec.Instant(p.CreationTimestamp.UnixNano()),
		Over:      p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Deleting:  p.DeletionTimestamp != nil,
		Deleted:   deletedAt(p),
		Kept:      slices.Contains(p.Finalizers, GangFinalizer),
		Gone:      onlyKept(p),
		Gated:     len(p.Spec.SchedulingGates) > 0,
	}
	if p.Spec.NodeName != "" {
		out.Node = j.names.inMuster(p.Spec.NodeName)
	}
	if out.Over {
		out.End = endOf(p)
	}
	// Of one that is bound nothing is asked any more.
	if out.Node != "" || out.Over {
		return out, true
	}
	said := sayings{pod: p}
	said.space, _ = j.spaces.Get(p.Namespace) // nil: it says nothing
	if p.Spec.PriorityClassName != "" {
		said.class, _ = j.classes.Get(p.Spec.PriorityClassName)
	}
	gangOf(p, &said, &out)
	out.Request = j.requestOf(p, &said)
	problem := said.problem
	if problem == "" {
		problem = unsupported(p, j.gpu)
	}
	if problem == "" {
		problem = j.addClaims(p, &out.Request.Ask)
	}
	admits, why := j.admitsOf(p)
	out.Request.Admits = admits
	out.Refused = cmp.Or(problem, why)
	return out, true
}

// deletedAt is when somebody asked for a pod's deletion; 0: nobody did. Kubernetes has the
// time at which its grace is over.
func deletedAt(p *corev1.Pod) spec.Instant {
	if p.DeletionTimestamp == nil {
		return 0
	}
	at := instant(*p.DeletionTimestamp)
	if grace := p.DeletionGracePeriodSeconds; grace != nil {
		at -= spec.Instant(spec.Span(*grace) * spec.Second)
	}
	return at
}

// onlyKept tells of a pod that Kubernetes would have removed by now without our finalizer:
// its kubelet has ended it, it never came to one, or somebody deleted it by force.
func onlyKept(p *corev1.Pod) bool {
	grace := p.DeletionGracePeriodSeconds
	return p.DeletionTimestamp != nil && grace != nil && *grace == 0 &&
		slices.Contains(p.Finalizers, GangFinalizer)
}

// requestOf is what a pod asks of Muster.
func (j *jobPods) requestOf(p *corev1.Pod, said *sayings) copilot.Request {
	out := copilot.Request{
		Account:     said.find(accountKey),
		QOS:         said.find(qosKey),
		Partition:   said.find(partitionKey),
		Reservation: said.find(reservationKey),
		WCKey:       said.find(wckeyKey),
		Owner:       ownerOf(p),
		Ask:         askOf(p, j.gpu),
		Limit:       said.limit(),
	}
	for _, key := range queueLabels {
		out.Account = cmp.Or(out.Account, p.Labels[key])
	}
	out.User = said.byAdministrators(userKey, said.ofSpace)
	out.Nice = int32(said.number(niceKey, said.find(niceKey)))
	priority := said.byAdministrators(priorityKey, said.ofClass)
	out.Priority = uint32(said.number(priorityKey, priority))
	return out
}

// addClaims adds what a pod's ResourceClaims ask for, and says why that is not known.
func (j *jobPods) addClaims(p *corev1.Pod, ask *copilot.Ask) (problem string) {
	if len(p.Spec.ResourceClaims) == 0 {
		return ""
	}
	want := j.wants[string(p.UID)]
	if want == nil {
		return "what its ResourceClaims ask for is not known: a claim is not there yet, or asks " +
			"for what Muster does not give"
	}
	ask.GPUs += want.GPUs
	ask.GPUType = want.Type
	return ""
}

// admitsOf are the nodes of Muster that a pod may go to, as a hostlist, and why that
// cannot be told.
func (j *jobPods) admitsOf(p *corev1.Pod) (list, problem string) {
	admitted, err := j.admitting.of(tolerant(p))
	if err != nil {
		return "", err.Error()
	}
	reachable, problem := j.volumeNodes(p)
	if problem != "" {
		return "", problem
	}
	if reachable == nil {
		return admitted.list(), ""
	}
	var both []string
	for _, name := range admitted.nodes {
		if reachable[name] {
			both = append(both, name)
		}
	}
	return hostlist.Fold(both), ""
}

// tolerant is a pod that goes to nodes which are kept for those that Muster knows of.
func tolerant(p *corev1.Pod) *corev1.Pod {
	out := *p
	out.Spec.Tolerations = append(
		append([]corev1.Toleration(nil), p.Spec.Tolerations...),
		corev1.Toleration{Key: Domain + "/shared", Operator: corev1.TolerationOpExists},
	)
	return &out
}

// volumeNodes are the nodes from which a pod's volumes can be reached; nil: all.
func (j *jobPods) volumeNodes(p *corev1.Pod) (nodes map[string]bool, problem string) {
	for i := range p.Spec.Volumes {
		volume := &p.Spec.Volumes[i]
		if volume.Ephemeral != nil {
			return nil, "volume " + volume.Name + " is made for the pod: Muster does not place those"
		}
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		name := volume.PersistentVolumeClaim.ClaimName
		claim, err := j.claims.PersistentVolumeClaims(p.Namespace).Get(name)
		if err != nil {
			return nil, "there is no PersistentVolumeClaim " + name
		}
		if claim.Status.Phase != corev1.ClaimBound {
			return nil, "PersistentVolumeClaim " + name + " is not bound; Muster does not bind those " +
				"that wait for a first consumer"
		}
		bound, err := j.volumes.Get(claim.Spec.VolumeName)
		if err != nil || bound.Spec.NodeAffinity == nil || bound.Spec.NodeAffinity.Required == nil {
			continue // it says nothing of nodes
		}
		selector, err := nodeaffinity.NewNodeSelector(bound.Spec.NodeAffinity.Required)
		if err != nil {
			return nil, "PersistentVolume " + bound.Name + ": " + err.Error()
		}
		reach := map[string]bool{}
		for _, node := range j.nodes {
			name := j.names.muster[node.Name]
			if selector.Match(node) && (nodes == nil || nodes[name]) {
				reach[name] = true
			}
		}
		nodes = reach
	}
	return nodes, ""
}

// sayings are what is said of a pod's job, and by whom.
type sayings struct {
	pod     *corev1.Pod
	class   *schedulingv1.PriorityClass // nil: it has none
	space   *corev1.Namespace
	problem string // the first that was met
}

// sayingOf is an annotation, or a label.
func sayingOf(meta *metav1.ObjectMeta, key string) string {
	return cmp.Or(meta.Annotations[key], meta.Labels[key])
}

func (s *sayings) ofClass(key string) string {
	if s.class == nil {
		return ""
	}
	return sayingOf(&s.class.ObjectMeta, key)
}

func (s *sayings) ofSpace(key string) string {
	if s.space == nil {
		return ""
	}
	return sayingOf(&s.space.ObjectMeta, key)
}

// find is what is said first.
func (s *sayings) find(key string) string {
	return cmp.Or(sayingOf(&s.pod.ObjectMeta, key), s.ofClass(key), s.ofSpace(key))
}

// byAdministrators is what those say of whom it may be said; a pod that says it itself is
// refused.
func (s *sayings) byAdministrators(key string, of func(string) string) string {
	if sayingOf(&s.pod.ObjectMeta, key) != "" {
		s.fail("%s is not for pods to say: it is for their namespace or PriorityClass", key)
	}
	return of(key)
}

func (s *sayings) number(key, text string) int64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		s.fail("invalid %s %q: expected a number from 0 on", key, text)
	}
	return n
}

// limit is how long the job may run: what is said, the pod's own deadline, or for ever if
// its containers are started again and again. Else the partition says it.
func (s *sayings) limit() spec.Span {
	text := s.find(timeLimitKey)
	deadline := s.pod.Spec.ActiveDeadlineSeconds
	switch {
	case text == "" && deadline != nil:
		return spec.Span(*deadline) * spec.Second
	case text == "" && s.pod.Spec.RestartPolicy == corev1.RestartPolicyAlways:
		return spec.Infinite
	case text == "":
		return 0
	}
	seconds, err := format.ParseDuration(text)
	if err != nil {
		s.fail("invalid %s %q: %v", timeLimitKey, text, err)
	}
	if seconds == format.Infinite {
		return spec.Infinite
	}
	return spec.Span(seconds) * spec.Second
}

func (s *sayings) fail(text string, args ...any) {
	if s.problem == "" {
		s.problem = fmt.Sprintf(text, args...)
	}
}

// gangOf finds the gang of a pod, in our words or in those of others.
func gangOf(p *corev1.Pod, s *sayings, out *copilot.JobPod) {
	name, size := sayingOf(&p.ObjectMeta, gangKey), sayingOf(&p.ObjectMeta, gangSizeKey)
	for _, l := range gangLabels {
		of := sayingOf(&p.ObjectMeta, l.name)
		if name != "" || of == "" || (size == "" && l.size == "") {
			continue
		}
		name = l.kind + "/" + of
		if part := sayingOf(&p.ObjectMeta, l.part); l.part != "" && part != "" {
			name += "-" + part
		}
		if l.size != "" {
			size = cmp.Or(size, sayingOf(&p.ObjectMeta, l.size))
		}
	}
	if size == "" {
		if name != "" {
			s.fail("gang %s has no size: set %s", name, gangSizeKey)
		}
		return
	}
	n, err := strconv.Atoi(size)
	if err != nil || n < 1 {
		s.fail("invalid %s %q: expected the number of pods", gangSizeKey, size)
		return
	}
	if n == 1 {
		return
	}
	if name == "" {
		name = ownerOf(p)
	}
	if name == "" {
		s.fail("a gang of %d pods has no name: set %s, nothing has made the pod that could name it", n, gangKey)
	}
	out.Gang, out.Size = name, n
	for _, key := range rankKeys {
		if rank, err := strconv.Atoi(sayingOf(&p.ObjectMeta, key)); err == nil {
			out.Rank = rank
			break
		}
	}
}

// ownerOf is what people know the maker of a pod as. A Deployment makes its pods through
// a ReplicaSet, whose name is not theirs.
func ownerOf(p *corev1.Pod) string {
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return ""
	}
	if hash := p.Labels["pod-template-hash"]; owner.Kind == "ReplicaSet" && hash != "" {
		if name, ok := strings.CutSuffix(owner.Name, "-"+hash); ok {
			return "Deployment/" + name
		}
	}
	return owner.Kind + "/" + owner.Name
}

// unsupported says what of a pod Muster cannot honour; empty: nothing.
func unsupported(p *corev1.Pod, gpu corev1.ResourceName) string {
	if a := p.Spec.Affinity; a != nil {
		between := a.PodAffinity != nil &&
			len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0
		apart := a.PodAntiAffinity != nil &&
			len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0
		if between || apart {
			return "Muster does not honour required affinity between pods"
		}
	}
	for i := range p.Spec.TopologySpreadConstraints {
		if c := &p.Spec.TopologySpreadConstraints[i]; c.WhenUnsatisfiable == corev1.DoNotSchedule {
			return "Muster does not honour topologySpreadConstraints with DoNotSchedule"
		}
	}
	for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
		for _, port := range c.Ports {
			if port.HostPort != 0 && !p.Spec.HostNetwork {
				return fmt.Sprintf("Muster does not honour host ports (%d)", port.HostPort)
			}
		}
		for name := range c.Resources.Requests {
			switch name {
			case corev1.ResourceCPU, corev1.ResourceMemory, gpu:
				continue
			}
			return "Muster does not count " + string(name) + ": of requests it honours cpu, memory and " +
				string(gpu)
		}
	}
	return ""
}

// endOf is how a pod ended: by the container that failed first, or by the last that
// ended.
func endOf(p *corev1.Pod) (out event.StepResult) {
	var failed *corev1.ContainerStateTerminated
	statuses := append(append([]corev1.ContainerStatus(nil), p.Status.InitContainerStatuses...),
		p.Status.ContainerStatuses...)
	for i := range statuses {
		end := statuses[i].State.Terminated
		if end == nil {
			continue
		}
		if began := instant(end.StartedAt); out.Started == 0 || began != 0 && began < out.Started {
			out.Started = began
		}
		out.Ended = max(out.Ended, instant(end.FinishedAt))
		bad := end.ExitCode != 0 || end.Signal != 0
		if bad && (failed == nil || end.FinishedAt.Before(&failed.FinishedAt)) {
			failed = end
		}
	}
	switch {
	case p.Status.Phase == corev1.PodSucceeded:
	case failed != nil && failed.Signal != 0:
		out.Exit.Signal = failed.Signal
	case failed != nil && failed.ExitCode > 128: // as a shell and the runtimes tell of a signal
		out.Exit.Signal = failed.ExitCode - 128
	case failed != nil:
		out.Exit.Code = failed.ExitCode
	default:
		out.Exit.Code = 1 // kubelet ended it before a container could
	}
	if p.Status.Phase == corev1.PodFailed {
		out.Detail = strings.TrimSpace(p.Status.Reason + " " + p.Status.Message)
	}
	return out
}

func instant(t metav1.Time) spec.Instant {
	if t.IsZero() {
		return 0
	}
	return spec.Instant(t.UnixNano())
}
