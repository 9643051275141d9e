package pass

import (
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
)

// mixOf is what the jobs that wait and run ask for of a node: what is to be
// expected of those that come. It is nil if none asks for GPUs.
func mixOf(st *state.State) *place.Mix {
	var list []place.Wanted
	each := partsOf(st)
	of := map[place.Wanted]int{}
	add := func(uid uint64) {
		job := st.Job(spec.JobUID(uid))
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
	st.Waiting.Range(func(uid uint64, _ struct{}) bool { add(uid); return true })
	st.Active.Range(func(uid uint64, _ struct{}) bool { add(uid); return true })
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
	for _, c := range jobSpec.Size.PerNode {
		if spec.Shares(c.Name) {
			wanted.Part = min(c.N*1000/max(each(c.Name), 1), 1000)
		}
	}
	return wanted
}

// partsOf is how much of each sharing resource the devices of a cluster have,
// at most.
func partsOf(st *state.State) func(name string) int64 {
	most := map[string]int64{}
	st.Nodes.Range(func(_ uint64, node *state.Node) bool {
		for _, s := range node.Shares {
			most[s.Name] = max(most[s.Name], s.N)
		}
		return true
	})
	return func(name string) int64 { return most[name] }
}
