package sim

import (
	"fmt"
	"slices"

	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Pods that Muster schedules are objects of the same API server as the others, seen
// by the same watch. A controller makes them, in gangs or one by one, and makes another
// one for each that goes before it has ended, as those of Kubernetes do.

// createGang is a user's: a pod, or a gang, whose first pod may be another size than the others.
func (k *kubernetes) createGang() {
	world := k.w
	k.made++
	actor := userActor(world.rng.IntN(users))
	gang := copilot.JobPod{
		Namespace: "train",
		Size:      1,
		Request: copilot.Request{
			User:    actor.Name,
			Account: "a",
			Owner:   fmt.Sprintf("Job/g%d", k.made),
			Limit:   spec.Minute * spec.Span(1+world.rng.IntN(4)),
			Ask: copilot.Ask{
				MilliCPU: int64(1 + world.rng.IntN(2500)),
				Mem:      int64(world.rng.IntN(100)),
			},
		},
	}
	if world.profile.Floor > 0 && actor.Name == "u0" {
		gang.Request.Account = floorAccount
	}
	if world.profile.Preempt > 0 && world.rng.IntN(4) == 0 {
		gang.Request.Partition = "top"
	}
	if world.profile.GPUs > 0 && world.rng.IntN(2) == 0 {
		gang.Request.Ask.GPUs = int64(1 + world.rng.IntN(world.profile.GPUs))
	}
	var admits []string
	for _, node := range world.nodes {
		if world.rng.IntN(4) > 0 {
			admits = append(admits, node.name)
		}
	}
	gang.Request.Admits = hostlist.Fold(admits)
	if n := 1 + world.rng.IntN(3); n > 1 {
		gang.Size, gang.Gang = n, fmt.Sprintf("g%d", k.made)
	}
	unequal := world.rng.IntN(2) == 0
	for rank := range gang.Size {
		member := gang
		member.Rank = rank
		if unequal && rank == 0 {
			member.Request.Ask.MilliCPU += int64(1 + world.rng.IntN(1000))
			member.Request.Ask.GPUs = 0
		}
		world.scheduleAfter(world.upTo(5*spec.Second), func() { k.createMember(member) })
	}
}

// createMember makes a pod that Muster schedules.
func (k *kubernetes) createMember(member copilot.JobPod) {
	k.made++
	member.UID = fmt.Sprintf("uid-%d", k.made)
	member.Name = fmt.Sprintf("g-%d", k.made)
	member.Created = k.w.now
	p := &pod{object: object{
		Pod: copilot.Pod{
			UID:       member.UID,
			Namespace: member.Namespace,
			Name:      member.Name,
			Created:   member.Created,
			Ask:       member.Request.Ask,
		},
		ganged: &member,
	}}
	k.pods[p.Name] = p
	k.order = append(k.order, p.Name)
	k.changed(p)
}

// replacePod is the controller that makes another pod for one that was deleted.
func (k *kubernetes) replacePod(p *pod) {
	if p.ganged == nil || p.Over || k.w.calm {
		return
	}
	member := *p.ganged
	k.w.scheduleAfter(k.w.upTo(5*spec.Second), func() {
		if !k.w.calm {
			k.createMember(member)
		}
	})
}

// deleteHopeless removes what rightly waits for ever when all is calm: gangs that are
// not complete any more, and pods whose jobs are over a limit or larger than the cluster.
func (k *kubernetes) deleteHopeless() {
	cluster := k.w.ctl.durable
	for _, name := range slices.Clone(k.order) {
		pod := k.pods[name]
		if pod == nil || pod.ganged == nil || pod.Node != "" {
			continue
		}
		job := cluster.JobOfPod(pod.UID)
		alone := job == nil && k.w.now.Sub(pod.Created) > 10*spec.Minute
		if alone || job != nil && job.State == spec.Pending && fitsNowhere(cluster, job) {
			k.delete(pod)
		}
	}
}

func fitsNowhere(cluster *state.State, job *state.Job) bool {
	switch job.Reason.Code {
	case spec.ReasonPartitionConfig, spec.ReasonBadConstraints, spec.ReasonPartitionNodeLimit:
		return true
	}
	return isHopeless(cluster, job, 0) || overTogether(cluster, job)
}

// overTogether tells a gang of unequal pods that waits for a limit although nothing runs:
// each of its components is within it, and all together are not.
func overTogether(cluster *state.State, job *state.Job) bool {
	if job.Het == nil || job.Reason.Limit == 0 {
		return false
	}
	busy := false
	cluster.Jobs.Range(func(_ uint64, other *state.Job) bool {
		busy = busy || other.HoldsNodes()
		return !busy
	})
	return !busy
}

// podJobs are the jobs of a state as the copilot's watch tells them.
func podJobs(cluster *state.State) []copilot.PodJob {
	var jobs []copilot.PodJob
	cluster.Jobs.Range(func(_ uint64, job *state.Job) bool {
		if job.Spec.Pods != nil && !job.PodsOver {
			jobs = append(jobs, copilot.PodJobOf(job))
		}
		return true
	})
	return jobs
}

// reconcileJobs is the other half of a round of the copilot.
func (k *kubernetes) reconcileJobs(jobs []copilot.PodJob) {
	var pods []copilot.JobPod
	for _, name := range sortedNames(k.seen) {
		if seen := k.seen[name]; seen.ganged != nil {
			pod := *seen.ganged
			pod.Node = seen.Node
			pod.Over = seen.Over
			pod.End = seen.end
			pod.Deleting, pod.Deleted = seen.Deleting, seen.deleted
			pod.Kept, pod.Gone = seen.kept, seen.gone
			pods = append(pods, pod)
		}
	}
	plan := copilot.ReconcileJobs(pods, jobs)
	for _, over := range plan.Overs {
		k.tellOver(over)
	}
	for _, del := range plan.Deletes {
		k.deleteFor(del)
	}
	for _, free := range plan.Frees {
		k.keepFor(free.Pod, false)
	}
	for _, keep := range plan.Keeps {
		k.keepFor(keep.Pod, true)
	}
	for _, bind := range plan.Binds {
		k.bindFor(bind)
	}
	for _, admit := range plan.Admits {
		k.sendCommand(scheduler.AdmitPods{
			UID:    admit.Job.Run.UID,
			Pod:    admit.Job.Pods.Pods[0].UID,
			Admits: admit.Admits,
		})
	}
	for _, submit := range plan.Submits {
		k.submitPods(submit)
	}
}

// sendCommand gives Muster an order of the copilot, which may come late and twice.
func (k *kubernetes) sendCommand(command scheduler.Command) {
	k.w.sendMessage(func() { k.w.ctl.decideCommand(rootActor(), command, nil) })
}

func (k *kubernetes) submitPods(submit copilot.Submit) {
	parts := submit.Specs()
	for n := range users {
		for _, part := range parts {
			if actor := userActor(n); actor.Name == part.User {
				part.UID = actor.UID
			}
		}
	}
	k.sendCommand(scheduler.Submit{Spec: parts[0], Rest: parts[1:]})
}

// areMissing is a fresh look at pods that were not seen.
func (k *kubernetes) areMissing(confirm map[string]string) bool {
	for uid, name := range confirm {
		if !copilot.Missing(uid, k.get(name)) {
			return false
		}
	}
	return true
}

func (k *kubernetes) tellOver(over copilot.Over) {
	if !k.areMissing(over.Confirm) {
		return
	}
	k.sendCommand(scheduler.PodsOver{
		Run:    scheduler.Run{UID: over.Job.Run.UID, Attempt: over.Job.Run.Attempt},
		Epoch:  over.Job.Run.Epoch,
		Pod:    over.Job.Pods.Pods[0].UID,
		Result: over.Result,
		Why:    over.Why,
	})
}

// deleteFor deletes a pod whose job ends, if the object is the one that was seen.
func (k *kubernetes) deleteFor(del copilot.Delete) {
	if !k.areMissing(del.Confirm) {
		return
	}
	k.w.sendMessage(func() {
		pod := k.pods[del.Pod.Name]
		if pod == nil || pod.UID != del.Pod.UID || pod.Deleting || pod.Over {
			return
		}
		k.judgeDeletion(pod)
		k.delete(pod)
	})
}

// judgeDeletion: no pod goes because something was restarted or not seen. Its job is to
// end, or its gang has lost another one.
func (k *kubernetes) judgeDeletion(p *pod) {
	job := k.w.ctl.durable.JobOfPod(p.UID)
	if job == nil {
		return
	}
	gang := []*state.Job{job}
	if job.Het != nil {
		gang = k.w.ctl.durable.Components(job)
	}
	for _, part := range gang {
		if part.State.Terminal() || part.Ending != nil {
			return
		}
		for _, member := range part.Spec.Pods.Pods {
			if k.isLost(member.UID) {
				return
			}
		}
	}
	k.w.failSeed("pod %s of job uid %d is deleted without a reason", p.UID, job.UID)
}

// isLost tells of a pod that was bound for whether it failed, or went before it had ended.
func (k *kubernetes) isLost(uid string) bool {
	pod := k.byUID(uid)
	switch {
	case pod == nil:
		return !k.done[uid]
	case pod.Over:
		return !pod.end.Exit.OK() || !pod.doneFirst()
	}
	return pod.gone
}

// keepFor has the API server keep a pod of a gang, or lets go of it.
func (k *kubernetes) keepFor(seen copilot.JobPod, kept bool) {
	k.w.sendMessage(func() {
		pod := k.pods[seen.Name]
		if pod == nil || pod.UID != seen.UID || pod.kept == kept || kept && pod.Deleting {
			return // it is not as it was seen
		}
		if k.w.rng.IntN(100) < k.w.profile.Conflicts {
			return
		}
		pod.kept = kept
		if pod.gone {
			k.takeOut(pod)
			return
		}
		k.changed(pod)
	})
}

func (k *kubernetes) byUID(uid string) *pod {
	for _, name := range k.order {
		if k.pods[name].UID == uid {
			return k.pods[name]
		}
	}
	return nil
}

// bindFor binds a pod, if it is as it was seen.
func (k *kubernetes) bindFor(bind copilot.Bind) {
	k.w.sendMessage(func() {
		pod := k.pods[bind.Pod.Name]
		if pod == nil || pod.UID != bind.Pod.UID || pod.Node != "" || pod.Deleting {
			return // it is not as it was seen
		}
		if k.w.rng.IntN(100) < k.w.profile.Conflicts {
			return
		}
		k.jobCovers(pod, bind.Place)
		pod.Node = bind.Place.Node
		k.changed(pod)
		k.runs(pod)
	})
}

// jobCovers judges that a durable job has for a pod what it requests where it is bound,
// and that no other pod was given the same device.
func (k *kubernetes) jobCovers(p *pod, place spec.PodPlace) {
	job := k.w.ctl.durable.JobOfPod(p.UID)
	if job == nil || !job.HoldsNodes() || job.Started == 0 {
		k.w.failSeed("pod %s is bound to %s, but no job has started for it", p.UID, place.Node)
		return
	}
	if k.cancelled[job.UID] {
		k.w.failSeed("pod %s is bound, but its job was cancelled before it started", p.UID)
	}
	at := job.Alloc.Nodes[slices.IndexFunc(
		job.Alloc.Nodes,
		func(a spec.NodeAlloc) bool { return a.Name == place.Node },
	)]
	if int64(len(place.GPUs)) != p.Ask.GPUs || at.CPUs.Count()*1000 < int(p.Ask.MilliCPU) ||
		at.Mem < p.Ask.Mem {
		k.w.failSeed("pod %s is bound to %+v for %+v", p.UID, at, p.Ask)
	}
	for _, name := range k.order {
		other := k.pods[name]
		if other == p || other.ganged == nil || other.Node == "" || other.Over || other.gone {
			continue
		}
		for _, gpu := range k.places[other.UID].GPUs {
			if slices.Contains(place.GPUs, gpu) {
				k.w.failSeed("pods %s and %s both have GPU %s", p.UID, other.UID, gpu.UUID)
			}
		}
	}
	k.places[p.UID] = place
}

// judgeGivenBack: no node goes under a pod that is there.
func (w *World) judgeGivenBack(e *event.JobNodeDone, job *state.Job) {
	for _, member := range job.Spec.Pods.Pods {
		pod := w.pods.byUID(member.UID)
		if pod != nil && pod.Node == e.Node && !pod.Over && !pod.gone {
			w.failSeed("node %s was released by job uid %d, but its pod %s is still there", e.Node, e.UID, pod.UID)
		}
	}
}
