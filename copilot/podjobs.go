package copilot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// Pods that name Muster as their scheduler are jobs of the ledger. ReconcileJobs
// compares both and says what follows: which pods to submit, to bind, to delete, and of
// which jobs the pods are over.
//
// The order is always ledger first. A pod is submitted under its own UID, so that asking
// twice makes one job. It is bound after its job has started, and until Muster has been
// told that it is over, what it was given stays allocated: an old look at the ledger can
// therefore bind a pod late, never wrongly. Muster is told so only of what is final in
// Kubernetes: the pod has succeeded or failed, was bound elsewhere, or does not exist.
// Only the last cannot be known from an old look, so that those pods are named in
// Confirm and asked for again.
//
// A gang lives as a whole. It is submitted when all its pods are there, starts as one job,
// and when one of its pods fails or is deleted the others are deleted too.

// Request is what a pod asks of Muster. The pods of a gang ask for the same.
type Request struct {
	User, Account, QOS, Partition string
	Reservation, WCKey            string
	Owner                         string // what made the pod: Job/train
	Limit                         spec.Span
	Nice                          int32
	Priority                      uint32
	Ask                           Ask
	Admits                        string // hostlist of the nodes that it may go to
}

// JobPod is a pod that Muster schedules, as it was seen.
type JobPod struct {
	UID             string
	Namespace, Name string
	Created         spec.Instant
	Request         Request
	// Refused says what of the pod Muster cannot honour; empty: nothing.
	Refused string
	Gated   bool   // somebody else keeps it from being scheduled
	Gang    string // name of its gang within the namespace; empty: it is by itself
	Size    int    // pods of the gang
	Rank    int    // its place among them
	Node    string // it is bound to; empty: not yet
	// Over tells that it has ended, which is final, and End how.
	Over     bool
	End      event.StepResult
	Deleting bool // it is to go and may still run
}

// PodJob is a job of pods, as the ledger has it.
type PodJob struct {
	Run      JobRun
	ID       spec.JobID
	Pods     *spec.PodSet
	Pending  bool
	Bindable bool // its pods may be bound now
	// Ends tells that it is to end, or has ended, and Why for people.
	Ends   bool
	Why    string
	Places []spec.PodPlace // where its pods are to run; nil: it has no nodes
	// Reason is why it waits, in Muster's words, with the planned start.
	Reason, Text string
}

// JobRun is one attempt of a job. Attempt 0 has not started.
type JobRun struct {
	UID     spec.JobUID
	Attempt uint32
	Epoch   uint64
}

// Submit asks for a job for some pods: for one, or for all of a gang in their order.
type Submit struct{ Pods []JobPod }

// Admit says anew where the pods of a job that waits may go.
type Admit struct {
	Job    *PodJob
	Admits string
}

// Bind binds a pod to the node that its job has for it.
type Bind struct {
	Pod   JobPod
	Job   *PodJob
	Place spec.PodPlace
}

// Delete deletes a pod whose job ends.
type Delete struct {
	Pod JobPod
	Job *PodJob
	Why string
	// Confirm are pods of the job, NAMESPACE/NAME by UID, that were not seen: only if a
	// fresh look does not see them either is the pod deleted.
	Confirm map[string]string
}

// Over tells Muster that the pods of a job are over.
type Over struct {
	Job     *PodJob
	Result  *event.StepResult // nil: they were deleted first
	Why     string
	Confirm map[string]string // as in Delete
}

// Tell has a pod say why it waits.
type Tell struct {
	Pod          JobPod
	Reason, Text string
}

// JobPlan is what to do next, in this order. Each part may fail or be done twice.
type JobPlan struct {
	Overs   []Over
	Deletes []Delete
	Binds   []Bind
	Admits  []Admit
	Submits []Submit
	Tells   []Tell
}

// ReconcileJobs compares the pods that Muster schedules with the jobs of the ledger
// whose pods are not over.
func ReconcileJobs(pods []JobPod, jobs []PodJob) JobPlan {
	r := &jobReconciler{pods: map[string]*JobPod{}, taken: map[string]bool{}}
	for i := range pods {
		r.pods[pods[i].UID] = &pods[i]
	}
	for i := range jobs {
		r.settle(&jobs[i])
	}
	r.submit(pods)
	return r.plan
}

// Missing tells from a fresh look, nil for no pod of the name, whether a pod of Confirm is
// missing. One that has ended is not: how it ended decides what becomes of its gang, and
// the watch will bring it.
func Missing(uid string, now *Pod) bool {
	return now == nil || now.UID != uid
}

// MarkOwn tells Reconcile which pods are of jobs that account for them. One that was
// bound and is of no job, because the ledger has lost it, is held like any other pod.
func MarkOwn(pods []Pod, jobs []PodJob) {
	places := map[string]string{}
	for i := range jobs {
		for _, place := range jobs[i].Places {
			places[place.Pod.UID] = place.Node
		}
	}
	for i := range pods {
		node, ok := places[pods[i].UID]
		pods[i].OwnJob = ok && node == pods[i].place()
	}
}

type jobReconciler struct {
	pods  map[string]*JobPod
	taken map[string]bool // by UID: they are of a job
	plan  JobPlan
}

// members are the pods of a job by what became of them.
type members struct {
	live    []*JobPod         // they run, or may yet
	unseen  map[string]string // NAMESPACE/NAME by UID
	lost    string            // of one that is gone or elsewhere, why; empty: none is
	failure *JobPod           // of those that have ended badly, the first in order
	ended   *JobPod           // of those that have ended, the last to end
}

func (r *jobReconciler) membersOf(job *PodJob) members {
	out := members{}
	for i, pod := range job.Pods.Pods {
		r.taken[pod.UID] = true
		seen := r.pods[pod.UID]
		switch {
		case seen == nil:
			if out.unseen == nil {
				out.unseen = map[string]string{}
			}
			out.unseen[pod.UID] = job.Pods.Space + "/" + pod.Name
			out.lost = cmp.Or(out.lost, "pod "+pod.Name+" was deleted")
		case seen.Over:
			if !seen.End.Exit.OK() && out.failure == nil {
				out.failure = seen
			}
			if out.ended == nil || seen.End.Ended > out.ended.End.Ended {
				out.ended = seen
			}
		case seen.Node != "" && (job.Places == nil || job.Places[i].Node != seen.Node):
			out.lost = "pod " + pod.Name + " was bound to " + seen.Node + " by somebody else"
		default:
			out.live = append(out.live, seen)
		}
	}
	return out
}

// settle decides about one job.
func (r *jobReconciler) settle(job *PodJob) {
	are := r.membersOf(job)
	switch {
	case job.Ends:
		r.end(job, &are, job.Why, nil)
	case job.Pending && (are.lost != "" || are.ended != nil):
		// Those that are left may be submitted again, with what comes instead.
		why := cmp.Or(are.lost, "a pod has ended before the job started")
		r.plan.Overs = append(r.plan.Overs, Over{Job: job, Why: why, Confirm: are.unseen})
	case job.Pending:
		r.wait(job, &are)
	case are.failure != nil:
		r.end(job, &are, "pod "+are.failure.Name+" has failed", are.failure)
	case are.lost != "":
		r.end(job, &are, are.lost, nil)
	case len(are.live) == 0:
		r.end(job, &are, "", are.ended)
	case job.Bindable:
		r.bind(job)
	}
}

// end deletes what is left of a job, or tells Muster that nothing is. How it ended is
// told by a pod, if one tells it.
func (r *jobReconciler) end(job *PodJob, are *members, why string, by *JobPod) {
	for _, pod := range are.live {
		if pod.Deleting {
			continue
		}
		gone := are.unseen
		if job.Ends || by != nil {
			gone = nil // it is certain without them
		}
		r.plan.Deletes = append(r.plan.Deletes, Delete{*pod, job, why, gone})
	}
	if len(are.live) > 0 {
		return
	}
	over := Over{Job: job, Why: why, Confirm: are.unseen}
	if by == nil && job.Ends {
		by = cmp.Or(are.failure, are.ended)
	}
	if by != nil {
		result := by.End
		over.Result = &result
	}
	r.plan.Overs = append(r.plan.Overs, over)
}

// wait tells the pods of a job why it waits, and the ledger where they may go by now.
func (r *jobReconciler) wait(job *PodJob, are *members) {
	admits := are.live[0].Request.Admits
	if admits != job.Pods.Admits {
		r.plan.Admits = append(r.plan.Admits, Admit{job, admits})
	}
	for _, pod := range are.live {
		r.plan.Tells = append(r.plan.Tells, Tell{*pod, job.Reason, job.Text})
	}
}

// bind lets the pods of a job go to its nodes.
func (r *jobReconciler) bind(job *PodJob) {
	for i := range job.Places {
		pod := r.pods[job.Places[i].Pod.UID]
		if pod == nil || pod.Over || pod.Deleting || pod.Node != "" || pod.Gated {
			continue
		}
		r.plan.Binds = append(r.plan.Binds, Bind{*pod, job, job.Places[i]})
	}
}

// submit asks for jobs for the pods that are of none.
func (r *jobReconciler) submit(pods []JobPod) {
	gangs := map[string][]JobPod{}
	var order []string
	for i := range pods {
		pod := &pods[i]
		if r.taken[pod.UID] || pod.Over || pod.Deleting || pod.Gated || pod.Node != "" {
			continue
		}
		key := pod.UID
		if pod.Gang != "" {
			key = pod.Namespace + "/" + pod.Gang
		}
		if gangs[key] == nil {
			order = append(order, key)
		}
		gangs[key] = append(gangs[key], *pod)
	}
	for _, key := range order {
		r.gather(gangs[key])
	}
	slices.SortStableFunc(r.plan.Submits, func(a, b Submit) int {
		return cmp.Or(
			cmp.Compare(a.Pods[0].Created, b.Pods[0].Created),
			strings.Compare(a.Pods[0].UID, b.Pods[0].UID),
		)
	})
}

// gather submits the pods of one gang if all are there.
func (r *jobReconciler) gather(pods []JobPod) {
	slices.SortFunc(pods, func(a, b JobPod) int {
		return cmp.Or(
			cmp.Compare(a.Rank, b.Rank),
			cmp.Compare(a.Created, b.Created),
			strings.Compare(a.Name, b.Name),
		)
	})
	size := max(pods[0].Size, 1)
	reason, text := "", ""
	for i := range pods {
		switch {
		case pods[i].Refused != "":
			reason, text = "Refused", pods[i].Refused
		case pods[i].Request != pods[0].Request || pods[i].Size != pods[0].Size:
			reason = "Refused"
			text = "the pods of gang " + pods[0].Gang + " differ in what they request (" +
				pods[0].Name + ", " + pods[i].Name + "): Muster starts gangs of equal pods"
		}
		if reason != "" {
			break
		}
	}
	switch {
	case reason != "":
	case pods[0].Request.Admits == "":
		reason, text = "BadConstraints", "no node of Muster admits the pod (labels, affinity, taints, conditions)"
	case len(pods) < size:
		reason = "GangIncomplete"
		text = fmt.Sprintf("%d of the %d pods of gang %s are there", len(pods), size, pods[0].Gang)
	default:
		r.plan.Submits = append(r.plan.Submits, Submit{pods[:size]})
		return
	}
	for i := range pods {
		r.plan.Tells = append(r.plan.Tells, Tell{pods[i], reason, text})
	}
}

// SpecOf is what a submission asks of Muster.
func (s *Submit) SpecOf() *spec.JobSpec {
	first := &s.Pods[0]
	ask := &first.Request.Ask
	count := uint32(len(s.Pods))
	cpus := uint32(max(spec.WholeCPUs(ask.MilliCPU, 1), 1))
	set := &spec.PodSet{
		Space:  first.Namespace,
		Owner:  first.Request.Owner,
		Group:  first.Gang,
		Admits: first.Request.Admits,
	}
	for i := range s.Pods {
		set.Pods = append(set.Pods, spec.Pod{UID: s.Pods[i].UID, Name: s.Pods[i].Name})
	}
	out := &spec.JobSpec{
		Name:    first.Namespace + "/" + cmp.Or(first.Gang, first.Name),
		User:    first.Request.User,
		Account: first.Request.Account,
		QOS:     first.Request.QOS,
		WCKey:   first.Request.WCKey,
		Shell:   true,
		Pods:    set,
		Size:    spec.Size{Tasks: count, CPUsPerTask: cpus},
		Time:    spec.TimeAsk{Limit: first.Request.Limit},
		Place:   spec.PlaceAsk{Reservation: first.Request.Reservation},
		Queue: spec.QueueAsk{
			Nice:     first.Request.Nice,
			Priority: first.Request.Priority,
			Requeue:  spec.No,
		},
	}
	if first.Request.Partition != "" {
		out.Partitions = strings.Split(first.Request.Partition, ",")
	}
	// Memory that nobody requests would be the site's default, which may be all that a
	// node has.
	mem := max(ask.Mem, 1)
	if count == 1 {
		out.Size.MinNodes, out.Size.MaxNodes = 1, 1
		out.Size.MemPerNode = mem
	} else {
		out.Size.MemPerCPU = (mem + int64(cpus) - 1) / int64(cpus)
	}
	if ask.GPUs > 0 {
		gpus := []spec.Count{{Name: "gpu", Type: ask.GPUType, N: ask.GPUs}}
		if count == 1 {
			out.Size.PerNode = gpus
		} else {
			out.Size.PerTask = gpus
		}
	}
	return out
}
