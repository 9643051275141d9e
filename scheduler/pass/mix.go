package pass

import (
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
)

// mixOf is what pending and running jobs request of a node, as an estimate
// of future requests. It is nil if no job requests GPUs.
func mixOf(cluster *state.State) *place.Mix {
	var list []place.Wanted
	each := partsOf(cluster)
	of := map[place.Wanted]int{}
	add := func(uid uint64) {
		job := cluster.Job(spec.JobUID(uid))
		if job == nil {
			return
		}
		wanted := WantedBy(job.Spec, &job.Req, each)
		if i, ok := of[wanted]; ok {
			list[i].Jobs += job.Count()
			return
		}
		of[wanted] = len(list)
		wanted.Jobs = job.Count()
		list = append(list, wanted)
	}
	cluster.Waiting.Range(func(uid uint64, _ struct{}) bool { add(uid); return true })
	cluster.Active.Range(func(uid uint64, _ struct{}) bool { add(uid); return true })
	return place.NewMix(list)
}

// WantedBy is what a request is for the mix; each is how much of a sharing
// resource a device has.
func WantedBy(jobSpec *spec.JobSpec, req *spec.TRES, each func(name string) int64) place.Wanted {
	nodes := max(req.Node, 1)
	wanted := place.Wanted{
		CPU:  req.CPU / nodes,
		Mem:  req.Mem / nodes,
		GPUs: req.Get("gres/gpu") / nodes,
	}
	for _, count := range jobSpec.Size.PerNode {
		if spec.Shares(count.Name) {
			wanted.Part = min(count.N*1000/max(each(count.Name), 1), 1000)
		}
	}
	return wanted
}

// partsOf is how much of each sharing resource the devices of a cluster have,
// at most.
func partsOf(cluster *state.State) func(name string) int64 {
	most := map[string]int64{}
	cluster.Nodes.Range(func(_ uint64, node *state.Node) bool {
		for _, shares := range node.Shares {
			most[shares.Name] = max(most[shares.Name], shares.N)
		}
		return true
	})
	return func(name string) int64 { return most[name] }
}
