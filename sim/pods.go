package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// Pods is what a profile has of Kubernetes beside Muster.
type Pods struct {
	PodEvery       spec.Span // that somebody makes a pod; 0 = there is no Kubernetes
	CopilotEvery   spec.Span // restart of the copilot
	LostWatchEvery spec.Span
	Conflicts      int       // percent of writes that somebody else's write overtakes
	GangEvery      spec.Span // that somebody makes pods that Muster schedules, several or one
}

func drawPods(random *rand.Rand) Pods {
	pods := Pods{
		PodEvery:       drawInterval(random, 50, 2*spec.Second, 40*spec.Second),
		CopilotEvery:   drawInterval(random, 50, 5*spec.Second, 100*spec.Second),
		LostWatchEvery: drawInterval(random, 50, 10*spec.Second, 100*spec.Second),
		Conflicts:      random.IntN(40),
	}
	if pods.PodEvery == 0 {
		return Pods{}
	}
	pods.GangEvery = drawInterval(random, 70, 4*spec.Second, 60*spec.Second)
	return pods
}

// kubernetes is an API server with the pods in it, users, the scheduler and the
// kubelets, and the copilot with what its watch has shown it. The API server is
// the truth; the watch is late, repeats itself, comes out of order and breaks.
type kubernetes struct {
	w     *World
	made  int
	pods  map[string]*pod // by name: what the API server has
	order []string        // names in the order in which they were made

	life  int                // of the copilot: answers to an earlier one are void
	seen  map[string]podSeen // by name: its view
	blind bool               // the watch is lost

	// places are where pods that Muster schedules were bound, by UID, and cancelled the
	// jobs of pods that were cancelled before they started.
	places    map[string]spec.PodPlace
	cancelled map[spec.JobUID]bool
	// done are pods that were removed after they had ended well, by UID.
	done map[string]bool
}

// object is what the API server has of a pod.
type object struct {
	copilot.Pod
	// ganged is what there is more of a pod that Muster schedules; nil for one that
	// Kubernetes' own scheduler binds. It does not change.
	ganged  *copilot.JobPod
	end     event.StepResult // how it ended
	deleted spec.Instant     // when somebody asked for its deletion
	// kept tells that the API server does not remove it, and gone that nothing else keeps
	// it there.
	kept bool
	gone bool
}

// doneFirst tells of a pod that is over whether it ended before anybody deleted it.
func (o *object) doneFirst() bool { return !o.Deleting || o.end.Ended <= o.deleted }

// pod is an object of the API server.
type pod struct {
	object
	version int
}

// podSeen is an object as the watch brought it.
type podSeen struct {
	object
	version int
}

func newKubernetes(world *World) *kubernetes {
	return &kubernetes{
		w:         world,
		pods:      map[string]*pod{},
		seen:      map[string]podSeen{},
		places:    map[string]spec.PodPlace{},
		cancelled: map[spec.JobUID]bool{},
		done:      map[string]bool{},
	}
}

// beginPods lets users make and delete pods, and starts the copilot.
func (k *kubernetes) beginPods() {
	world, pods := k.w, k.w.profile.Pods
	if pods.PodEvery == 0 {
		return
	}
	world.repeatEvery(pods.PodEvery, k.createPods)
	world.repeatEvery(pods.GangEvery, k.createGang)
	world.repeatEvery(20*spec.Second, k.deleteSome)
	world.repeatEvery(pods.CopilotEvery, func() {
		k.life++
		k.relistObjects()
	})
	world.repeatEvery(pods.LostWatchEvery, func() {
		k.blind = true
		world.scheduleAfter(
			world.upTo(30*spec.Second),
			func() { k.blind = false; k.relistObjects() },
		)
	})
	var round func()
	round = func() {
		if world.ctl.up {
			k.reconcilePods()
		}
		world.scheduleAfter(world.upTo(3*spec.Second), round)
	}
	world.scheduleAfter(world.upTo(3*spec.Second), round)
	var tidy func()
	tidy = func() { // a pod that finds no room when all is calm is not needed any more
		if world.calm {
			k.blind = false
			k.relistObjects()
			k.deleteGated()
			k.deleteHopeless()
		}
		world.scheduleAfter(5*spec.Minute, tidy)
	}
	world.scheduleAfter(5*spec.Minute, tidy)
}

func (k *kubernetes) createPods() {
	world := k.w
	k.made++
	p := &pod{object: object{
		Pod: copilot.Pod{
			Name:      fmt.Sprintf("p%d", k.made%7),
			Namespace: "web",
			UID:       fmt.Sprintf("uid-%d", k.made),
			Created:   world.now,
			Gated:     true,
		},
	}}
	if k.pods[p.Name] != nil {
		return // the name is taken; a later pod gets it
	}
	p.Priority = int64(world.rng.IntN(3))
	p.Ask.MilliCPU = int64(world.rng.IntN(1 + world.profile.CPUs*700))
	p.Ask.Mem = int64(world.rng.IntN(200))
	if world.profile.GPUs > 0 && world.rng.IntN(2) == 0 {
		p.Ask.GPUs = int64(world.rng.IntN(1 + world.profile.GPUs/2))
	}
	for _, node := range world.nodes {
		if world.rng.IntN(4) > 0 {
			p.Admits = append(p.Admits, node.name)
		}
	}
	k.pods[p.Name] = p
	k.order = append(k.order, p.Name)
	k.changed(p)
}

// changed gives an object its next version and tells the watch.
func (k *kubernetes) changed(p *pod) {
	p.version++
	now, version := p.object, p.version
	k.w.sendMessage(func() {
		if old, ok := k.seen[now.Name]; !k.blind &&
			(!ok || old.UID != now.UID || old.version < version) {
			k.seen[now.Name] = podSeen{now, version} // also a late word of a pod that is gone
		}
	})
}

// remove takes an object out of the API server, or marks it if it is kept there.
func (k *kubernetes) remove(p *pod) {
	k.replacePod(p)
	if !p.kept {
		k.takeOut(p)
		return
	}
	k.askFor(p)
	p.gone = true
	k.changed(p)
}

// askFor notes that a pod is to go. Only the first time counts.
func (k *kubernetes) askFor(p *pod) {
	if !p.Deleting {
		p.Deleting = true
		p.deleted = k.w.now
	}
}

func (k *kubernetes) takeOut(p *pod) {
	k.done[p.UID] = p.Over && p.end.Exit.OK() && p.doneFirst()
	delete(k.pods, p.Name)
	k.order = slices.DeleteFunc(k.order, func(name string) bool { return name == p.Name })
	k.w.sendMessage(func() {
		if !k.blind && k.seen[p.Name].UID == p.UID {
			delete(k.seen, p.Name)
		}
	})
}

// relistObjects reads all objects anew: as they are, or as an API server has them that is
// behind, which has not heard of some pods yet.
func (k *kubernetes) relistObjects() {
	k.seen = map[string]podSeen{}
	behind := !k.w.calm && k.w.rng.IntN(3) == 0
	for _, name := range k.order {
		if !behind || k.w.rng.IntN(2) == 0 {
			k.seen[name] = podSeen{k.pods[name].object, k.pods[name].version}
		}
	}
}

// hasPod tells whether an object is still there.
func (k *kubernetes) hasPod(p *pod) bool { return k.pods[p.Name] == p }

func (k *kubernetes) deleteSome() {
	if len(k.order) > 0 {
		k.delete(k.pods[k.order[k.w.rng.IntN(len(k.order))]])
	}
}

func (k *kubernetes) deleteGated() {
	for _, name := range slices.Clone(k.order) {
		if k.pods[name].Gated && k.pods[name].ganged == nil {
			k.delete(k.pods[name])
		}
	}
}

// delete is a user's: an object without a node goes at once, another when its
// kubelet has ended it.
func (k *kubernetes) delete(p *pod) {
	if p.gone {
		return
	}
	if p.Node == "" || p.Over {
		k.remove(p)
		return
	}
	k.askFor(p)
	k.changed(p)
	k.w.scheduleAfter(k.w.upTo(20*spec.Second), func() {
		if k.hasPod(p) && !p.gone {
			k.remove(p)
		}
	})
}

// bindPod is Kubernetes' scheduler: a pod that was let through comes to its node,
// runs there for a while and ends.
func (k *kubernetes) bindPod(p *pod) {
	if !k.hasPod(p) || p.Gated || p.Node != "" {
		return
	}
	k.holdCovers(p, p.Pinned, "is bound to")
	p.Node = p.Pinned
	k.changed(p)
	k.runs(p)
}

// runs is the kubelet of a pod that was bound, and what removes it when it has ended.
func (k *kubernetes) runs(p *pod) {
	began := k.w.now
	k.w.scheduleAfter(k.w.upTo(2*spec.Minute), func() {
		if !k.hasPod(p) || p.gone {
			return
		}
		p.Over = true
		p.end = event.StepResult{Started: began, Ended: k.w.now}
		if k.w.rng.IntN(4) == 0 {
			p.end.Exit.Code = 1
		}
		k.changed(p)
		k.w.scheduleAfter(k.w.upTo(spec.Minute), func() {
			if k.hasPod(p) && !p.gone {
				k.remove(p)
			}
		})
	})
}

// holdCovers judges that a durable hold lets a pod come to a node.
func (k *kubernetes) holdCovers(p *pod, node, what string) {
	n := k.w.ctl.durable.Node(node)
	if n == nil {
		k.w.failSeed("pod %s %s %s, a node that the ledger does not know", p.UID, what, node)
		return
	}
	at, ok := n.HoldAt(p.UID)
	if !ok {
		k.w.failSeed("pod %s %s %s without a durable hold", p.UID, what, node)
		return
	}
	if hold := &n.Holds[at]; hold.MilliCPU != p.Ask.MilliCPU || hold.Mem != p.Ask.Mem ||
		int64(len(hold.GPUs)) != p.Ask.GPUs {
		k.w.failSeed("pod %s %s %s with a hold of %+v for %+v", p.UID, what, node, hold, p.Ask)
	}
}

// judgeReleased: no hold goes under a pod that is there, or may come there.
func (w *World) judgeReleased(e *event.ForeignHoldReleased) {
	for _, name := range w.pods.order {
		pod := w.pods.pods[name]
		if pod.ganged != nil {
			continue // what it has is its job's
		}
		isThere := !pod.Over && !pod.Gated && (pod.Node == e.Node || pod.Pinned == e.Node)
		if isThere && pod.UID == e.ID {
			w.failSeed(
				"the hold of pod %s on %s is released (%s), but the pod is still there",
				e.ID,
				e.Node,
				e.Why,
			)
		}
	}
}

// reconcilePods is a round of the copilot: the same function as in production, on
// what the watch has shown and on the ledger as a reader sees it.
func (k *kubernetes) reconcilePods() {
	cluster := k.w.ctl.durable
	jobs := podJobs(cluster)
	var pods []copilot.Pod
	for _, name := range sortedNames(k.seen) {
		pod := k.seen[name].Pod
		pod.Over = pod.Over || k.seen[name].gone
		pods = append(pods, pod)
	}
	copilot.MarkOwn(pods, jobs)
	nodes := copilot.Nodes(
		cluster,
		func(node *state.Node) bool { return scheduler.OpenToHolds(cluster, cluster.At, node) == nil },
	)
	plan := copilot.Reconcile(pods, nodes)
	for _, release := range plan.Releases {
		k.releasePod(release)
	}
	for _, letGo := range plan.LetGo {
		k.letGo(letGo.Pod, letGo.Node)
	}
	for _, take := range plan.Takes {
		k.take(take)
	}
	k.reconcileJobs(jobs)
}

func (k *kubernetes) releasePod(release copilot.Release) {
	if release.Confirm && !copilot.Gone(release, k.get(release.Pod)) {
		return
	}
	k.w.sendMessage(func() {
		k.w.ctl.decideCommand(
			rootActor(),
			scheduler.ReleaseForeignHold{Node: release.Node, ID: release.Hold, Why: release.Why},
			nil,
		)
	})
}

// get is a read that a majority of etcd answers.
func (k *kubernetes) get(name string) *copilot.Pod {
	for _, n := range k.order {
		if p := &k.pods[n].Pod; p.Namespace+"/"+p.Name == name {
			return p
		}
	}
	return nil
}

func (k *kubernetes) take(take copilot.Take) {
	life := k.life
	hold := spec.ForeignHold{
		ID:       take.Pod.UID,
		Space:    take.Pod.Namespace,
		Owner:    take.Pod.Name,
		MilliCPU: take.Pod.Ask.MilliCPU,
		Mem:      take.Pod.Ask.Mem,
		Priority: take.Pod.Priority,
	}
	k.w.sendMessage(func() {
		cmd := scheduler.TakeForeignHold{
			Node:    take.Node,
			Hold:    hold,
			GPUs:    take.Pod.Ask.GPUs,
			Running: take.Running,
		}
		k.w.ctl.decideCommand(rootActor(), cmd, func(_ scheduler.Result, err error) {
			if err == nil && take.LetGo && life == k.life {
				k.letGo(take.Pod, take.Node)
			}
		})
	})
}

// letGo writes that a pod may go to a node, if the object is as it was seen.
func (k *kubernetes) letGo(seen copilot.Pod, node string) {
	k.w.sendMessage(func() {
		pod := k.pods[seen.Name]
		if pod == nil || pod.UID != seen.UID || !pod.Gated ||
			k.w.rng.IntN(100) < k.w.profile.Conflicts {
			return // a conflict: the next round tries again
		}
		k.holdCovers(pod, node, "is let through to")
		pod.Gated, pod.Pinned = false, node
		k.changed(pod)
		k.w.scheduleAfter(k.w.upTo(5*spec.Second), func() { k.bindPod(pod) })
	})
}

// podsLeft tells whether any pod still exists.
func (k *kubernetes) podsLeft() bool { return len(k.pods) > 0 }

// checkFinal holds after the faults have ceased.
func (k *kubernetes) checkFinal() {
	for _, name := range k.order {
		pod := k.pods[name]
		k.w.failSeed(
			"pod %s never ends: gated %v, pinned to %q, on %q, kept %v",
			pod.UID,
			pod.Gated,
			pod.Pinned,
			pod.Node,
			pod.kept,
		)
	}
}

func sortedNames(m map[string]podSeen) []string {
	var out []string
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
