package spec

import "slices"

// Runner is who runs the processes of a job. It decides what can be done with them.
type Runner uint8

// The runners.
const (
	// ByAgents: the agents of its nodes run it, through their shepherds.
	ByAgents Runner = iota
	// ByKubelets: the kubelets of its nodes run it, as pods. Kubernetes knows whether
	// they live; an agent neither starts nor ends them, and its silence says nothing of
	// them.
	ByKubelets
)

// Suspends tells whether processes can be stopped and continued.
func (r Runner) Suspends() bool { return r == ByAgents }

// Signals tells whether processes can be sent a signal that does not end them.
func (r Runner) Signals() bool { return r == ByAgents }

// TakesSteps tells whether srun can start something within the allocation.
func (r Runner) TakesSteps() bool { return r == ByAgents }

// EndsWithNode tells whether a job is over on a node that is silent or has rebooted.
func (r Runner) EndsWithNode() bool { return r == ByAgents }

// PodSet is the pods of Kubernetes of which a job consists. There is one for each task;
// they start together or not at all, and end together. Such a job has no batch script
// and one attempt at most: whatever made its pods makes others, which are another job.
type PodSet struct {
	Space string `cbor:"1,keyasint,omitempty" since:"2"` // namespace
	Owner string `cbor:"2,keyasint,omitempty" since:"2"` // what made the pods: Deployment/front
	Group string `cbor:"3,keyasint,omitempty" since:"2"` // name of the gang; empty for a pod by itself
	Pods  []Pod  `cbor:"4,keyasint,omitempty" since:"2"` // in the order of the tasks
	// Admits are the nodes that Kubernetes lets the pods go to (selectors, affinity,
	// taints, cordons), as a hostlist. An empty one is no node.
	Admits string `cbor:"5,keyasint,omitempty" since:"2"`
}

// Pod is one pod of a job. Its UID is never given to another one, so that it is the
// number of the submission too.
type Pod struct {
	UID  string `cbor:"1,keyasint,omitempty" since:"2"`
	Name string `cbor:"2,keyasint,omitempty" since:"2"`
}

// Runner tells who runs the job.
func (j *JobSpec) Runner() Runner {
	if j.Pods != nil {
		return ByKubelets
	}
	return ByAgents
}

// Has tells whether a pod is of the set.
func (p *PodSet) Has(uid string) bool {
	return slices.ContainsFunc(p.Pods, func(pod Pod) bool { return pod.UID == uid })
}

// Same tells whether two sets have the same pods in the same order.
func (p *PodSet) Same(o *PodSet) bool { return slices.Equal(p.Pods, o.Pods) }

// PodPlace is where one pod of a job runs, and its devices there.
type PodPlace struct {
	Pod  Pod
	Node string
	GPUs []GPURef
}

// Places assigns the tasks of an allocation to pods, in order, and the devices of a node
// in equal parts to the pods there. It depends on nothing else, so that whoever asks
// again, also after a crash, gets the same answer.
func (p *PodSet) Places(alloc *Allocation) []PodPlace {
	var places []PodPlace
	for i := range alloc.Nodes {
		node := &alloc.Nodes[i]
		tasks := min(int(max(node.Tasks, 1)), len(p.Pods)-len(places))
		for k := range tasks {
			from, to := k*len(node.GPUs)/tasks, (k+1)*len(node.GPUs)/tasks
			places = append(places, PodPlace{
				Pod:  p.Pods[len(places)],
				Node: node.Name,
				GPUs: node.GPUs[from:to],
			})
		}
	}
	return places
}
