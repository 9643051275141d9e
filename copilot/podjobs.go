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
// and when one of its pods fails or is deleted the others are deleted too. A pod that has
// ended well is done, whoever deletes it afterwards. So that this stays known, the pods of
// a gang are kept: Kubernetes removes none of them before their job is over.

// Request is what a pod asks of Muster. Pods of a gang that ask for the same, whatever made
// them, are one job. A gang of others is a heterogeneous job with a component for each
// kind.
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
	Deleting bool         // it is to go and may still run
	Deleted  spec.Instant // when somebody asked for that
	// Kept tells that Kubernetes does not remove the pod until Muster lets go of it, and
	// Gone that nothing else is left to wait for: it does not run any more.
	Kept bool
	Gone bool
}

// doneFirst tells of a pod that has ended whether it did so by itself. Kubernetes tells
// both times in seconds. In the same second the end counts as the first, because to
// delete the others of a gang for nothing is the worse error.
func (p *JobPod) doneFirst() bool { return !p.Deleting || p.End.Ended <= p.Deleted }

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
	// Leader is the first component of the heterogeneous job of which it is one; 0: it is
	// a job by itself.
	Leader spec.JobUID

	components []*PodJob // of a gang that joinGangs put together, in order
}

// parts are the jobs of the ledger behind a gang.
func (j *PodJob) parts() []*PodJob {
	if j.components == nil {
		return []*PodJob{j}
	}
	return j.components
}

// JobRun is one attempt of a job. Attempt 0 has not started.
type JobRun struct {
	UID     spec.JobUID
	Attempt uint32
	Epoch   uint64
}

// maxComponents is how many kinds of pods a gang may have: the components of a
// heterogeneous job.
const maxComponents = 128

// Submit asks for a job for some pods: for one, or for all of a gang in their order.
type Submit struct{ Pods []JobPod }

// Admit says anew where the pods of a job that waits may go.
type Admit struct {
	Job    *PodJob
	Admits string
}

// Keep has Kubernetes keep a pod of a gang until its job is over. It comes before Bind.
type Keep struct{ Pod JobPod }

// Free ends what Keep began.
type Free struct{ Pod JobPod }

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
	Frees   []Free
	Keeps   []Keep
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
	for _, job := range joinGangs(jobs) {
		r.settle(job)
	}
	r.submit(pods)
	r.free(pods)
	return r.plan
}

// joinGangs makes one job of the components of each gang: they start and end together, and
// what becomes of one decides about all.
func joinGangs(jobs []PodJob) []*PodJob {
	var podJobs []*PodJob
	gangs := map[spec.JobUID]*PodJob{}
	for i := range jobs {
		job := &jobs[i]
		switch gang := gangs[job.Leader]; {
		case job.Leader == 0:
			podJobs = append(podJobs, job)
		case gang == nil:
			first := *job
			pods := *job.Pods
			pods.Pods = slices.Clone(pods.Pods)
			first.Pods = &pods
			first.Places = slices.Clone(job.Places)
			first.components = []*PodJob{job}
			gangs[job.Leader] = &first
			podJobs = append(podJobs, &first)
		default:
			gang.add(job)
		}
	}
	return podJobs
}

// add makes a job a further component of a gang.
func (j *PodJob) add(job *PodJob) {
	j.components = append(j.components, job)
	j.Pods.Pods = append(j.Pods.Pods, job.Pods.Pods...)
	j.Pending = j.Pending || job.Pending
	j.Bindable = j.Bindable && job.Bindable
	j.Ends = j.Ends || job.Ends
	j.Why = cmp.Or(j.Why, job.Why)
	if j.Places != nil && job.Places != nil {
		j.Places = append(j.Places, job.Places...)
	} else {
		j.Places = nil
	}
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
			if !seen.doneFirst() {
				out.lost = cmp.Or(out.lost, "pod "+pod.Name+" was deleted")
			} else if !seen.End.Exit.OK() && out.failure == nil {
				out.failure = seen
			}
			if out.ended == nil || seen.End.Ended > out.ended.End.Ended {
				out.ended = seen
			}
		case seen.Gone:
			out.lost = cmp.Or(out.lost, "pod "+pod.Name+" was deleted")
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
		reason := cmp.Or(are.lost, "a pod has ended before the job started")
		r.plan.Overs = append(r.plan.Overs, Over{Job: job, Why: reason, Confirm: are.unseen})
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
func (r *jobReconciler) end(job *PodJob, are *members, reason string, by *JobPod) {
	for _, pod := range are.live {
		if pod.Deleting {
			continue
		}
		gone := are.unseen
		if job.Ends || by != nil {
			gone = nil // it is certain without them
		}
		r.plan.Deletes = append(r.plan.Deletes, Delete{*pod, job, reason, gone})
	}
	if len(are.live) > 0 {
		return
	}
	over := Over{Job: job, Why: reason, Confirm: are.unseen}
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
	for _, part := range job.parts() {
		admits := r.pods[part.Pods.Pods[0].UID].Request.Admits
		if admits != part.Pods.Admits {
			r.plan.Admits = append(r.plan.Admits, Admit{part, admits})
		}
	}
	if job.Reason == string(spec.ReasonNone) {
		return // no pass has considered it: most pods start with the first one, and have nothing to say
	}
	for _, pod := range are.live {
		r.plan.Tells = append(r.plan.Tells, Tell{*pod, job.Reason, job.Text})
	}
}

// bind lets the pods of a job go to its nodes, those of a gang once they are kept.
func (r *jobReconciler) bind(job *PodJob) {
	for i := range job.Places {
		pod := r.pods[job.Places[i].Pod.UID]
		if pod == nil || pod.Over || pod.Deleting || pod.Gated {
			continue
		}
		switch {
		case len(job.Places) > 1 && !pod.Kept:
			r.plan.Keeps = append(r.plan.Keeps, Keep{*pod})
		case pod.Node == "":
			r.plan.Binds = append(r.plan.Binds, Bind{*pod, job, job.Places[i]})
		}
	}
}

// free lets go of the pods that are over and whose job is.
func (r *jobReconciler) free(pods []JobPod) {
	for i := range pods {
		pod := &pods[i]
		if pod.Kept && !r.taken[pod.UID] && (pod.Over || pod.Gone) {
			r.plan.Frees = append(r.plan.Frees, Free{*pod})
		}
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
	reason, text := refusalOf(pods)
	switch {
	case reason != "":
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

// refusalOf says why the pods of a gang cannot be submitted, however long they wait as they are.
func refusalOf(pods []JobPod) (reason, text string) {
	for i := range pods {
		pod := &pods[i]
		switch {
		case pod.Refused != "":
			return "Refused", pod.Refused
		case pod.Size != pods[0].Size || pod.Request.User != pods[0].Request.User:
			return "Refused", "the pods of gang " + pods[0].Gang + " differ in the size of the gang or " +
				"in their user (" + pods[0].Name + ", " + pod.Name + ")"
		case pod.Request.Admits == "":
			return "BadConstraints", "no node of Muster admits pod " + pod.Name +
				" (labels, affinity, taints, conditions)"
		}
	}
	if kinds := len(kindsOf(pods)); kinds > maxComponents {
		return "Refused", fmt.Sprintf("the pods of gang %s request %d different things: "+
			"at most %d are possible", pods[0].Gang, kinds, maxComponents)
	}
	return "", ""
}

// kindsOf are the pods of a gang by what they ask for, in the order of the first of each.
func kindsOf(pods []JobPod) [][]JobPod {
	at := map[Request]int{}
	var out [][]JobPod
	for i := range pods {
		asks := pods[i].Request
		asks.Owner = "" // pods of several makers may be equal
		k, ok := at[asks]
		if !ok {
			k = len(out)
			at[asks] = k
			out = append(out, nil)
		}
		out[k] = append(out[k], pods[i])
	}
	return out
}

// Specs are what a submission asks of Muster: a job, or the components of a heterogeneous one.
func (s *Submit) Specs() []*spec.JobSpec {
	var jobs []*spec.JobSpec
	for _, pods := range kindsOf(s.Pods) {
		jobs = append(jobs, specOf(pods))
	}
	return jobs
}

// ownerOf is what made some pods of a gang. If that is several things, the gang's name says
// more than one of them.
func ownerOf(pods []JobPod) string {
	for i := range pods {
		if pods[i].Request.Owner != pods[0].Request.Owner {
			return pods[0].Gang
		}
	}
	return pods[0].Request.Owner
}

// specOf is a job for equal pods.
func specOf(pods []JobPod) *spec.JobSpec {
	first := &pods[0]
	query := &first.Request.Ask
	count := uint32(len(pods))
	cpus := uint32(max(spec.WholeCPUs(query.MilliCPU, 1), 1))
	set := &spec.PodSet{
		Space:  first.Namespace,
		Owner:  ownerOf(pods),
		Group:  first.Gang,
		Admits: first.Request.Admits,
	}
	for i := range pods {
		set.Pods = append(set.Pods, spec.Pod{UID: pods[i].UID, Name: pods[i].Name})
	}
	job := &spec.JobSpec{
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
		job.Partitions = strings.Split(first.Request.Partition, ",")
	}
	// Memory that nobody requests would be the site's default, which may be all that a
	// node has.
	memory := max(query.Mem, 1)
	if count == 1 {
		job.Size.MinNodes, job.Size.MaxNodes = 1, 1
		job.Size.MemPerNode = memory
	} else {
		job.Size.MemPerCPU = (memory + int64(cpus) - 1) / int64(cpus)
	}
	if query.GPUs > 0 {
		gpus := []spec.Count{{Name: "gpu", Type: query.GPUType, N: query.GPUs}}
		if count == 1 {
			job.Size.PerNode = gpus
		} else {
			job.Size.PerTask = gpus
		}
	}
	return job
}
