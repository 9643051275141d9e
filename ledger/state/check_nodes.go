package state

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// holding is what jobs and other schedulers hold on one node, counted from
// allocations and holds.
type holding struct {
	cpus map[int]spec.JobUID
	many map[int]int // jobs on each CPU that is shared
	gpus map[string]spec.JobUID
	mem  int64
	gres map[spec.Count]int64 // by name and type
	part map[string]int64     // of devices held in shares, by UUID
	jobs []spec.JobUID
}

func newHolding() *holding {
	return &holding{
		cpus: make(map[int]spec.JobUID),
		many: make(map[int]int),
		gpus: make(map[string]spec.JobUID),
		gres: make(map[spec.Count]int64),
		part: make(map[string]int64),
	}
}

// CheckNodes is S2: no over-allocation.
func CheckNodes(state *State) error {
	nodes := make(map[spec.NodeID]*holding)
	err := state.eachJob(func(job *Job) error {
		if countHeldNodes(job) == 0 {
			return nil
		}
		for i := range job.Alloc.Nodes {
			alloc := &job.Alloc.Nodes[i]
			if job.Done.Has(i) {
				continue
			}
			if node := state.NodeByID(alloc.ID); node == nil || node.Spec == nil ||
				node.Spec.Name != alloc.Name {
				return brokenInvariant(
					"%s holds node %s, which does not exist",
					state.labelJob(job),
					alloc.Name,
				)
			}
			h := nodes[alloc.ID]
			if h == nil {
				h = newHolding()
				nodes[alloc.ID] = h
			}
			if err := h.add(state, job, alloc); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	state.Nodes.Range(func(_ uint64, node *Node) bool {
		h := nodes[node.ID]
		switch {
		case h == nil && len(node.Holds) == 0:
			h = &holding{}
		case h == nil:
			h = newHolding()
		}
		err = h.addHolds(node)
		if err == nil {
			err = h.compareHeld(state, node)
		}
		return err == nil
	})
	return err
}

func (h *holding) add(state *State, job *Job, alloc *spec.NodeAlloc) error {
	cpus := alloc.CPUs.Members()
	if job.Yields {
		cpus = nil
	}
	for _, c := range cpus {
		share := job.Alloc.Share
		if share > 0 {
			h.many[c]++
		}
		if other, twice := h.cpus[c]; twice {
			if most := state.Job(other).Alloc.Share; share == 0 || most == 0 ||
				h.many[c] > int(max(share, most)) {
				return brokenInvariant(
					"CPU %d of node %s is held by job uid %d and by %s",
					c,
					alloc.Name,
					other,
					state.labelJob(job),
				)
			}
		}
		h.cpus[c] = job.UID
	}
	for _, gpu := range alloc.GPUs {
		if other, twice := h.gpus[gpu.UUID]; twice {
			return brokenInvariant(
				"GPU %s of node %s is held by job uid %d and by %s",
				gpu.UUID,
				alloc.Name,
				other,
				state.labelJob(job),
			)
		}
		h.gpus[gpu.UUID] = job.UID
	}
	asked := make(map[string]int64)
	for _, count := range alloc.GRES {
		h.gres[spec.Count{Name: count.Name, Type: count.Type}] += count.N
		asked[count.Name] += count.N
	}
	for i := range alloc.Shares {
		gpu := &alloc.Shares[i]
		h.part[gpu.UUID] += gpu.N
		asked[gpu.Name] -= gpu.N
		if gpu.N <= 0 || asked[gpu.Name] < 0 {
			return brokenInvariant(
				"%s holds %d %s of GPU %s of node %s, which is not what it counts as",
				state.labelJob(job),
				gpu.N,
				gpu.Name,
				gpu.UUID,
				alloc.Name,
			)
		}
	}
	h.mem += alloc.Mem
	h.jobs = append(h.jobs, job.UID)
	return nil
}

// compareHeld tells where a node shows something else than its jobs hold, or
// holds more than it has without being marked as shrunk.
func (h *holding) compareHeld(state *State, node *Node) error {
	name := node.Spec.Name
	if !slices.Equal(h.jobs, node.Jobs) {
		return brokenInvariant(
			"node %s lists jobs %v; allocated to it are %v",
			name,
			node.Jobs,
			h.jobs,
		)
	}
	cpus := node.UsedCPU.Members()
	for _, c := range cpus {
		if h.cpus[c] == 0 {
			return brokenInvariant("CPU %d of node %s shows as used, but no job holds it", c, name)
		}
		if node.Sharers(c) != h.many[c] {
			return brokenInvariant(
				"CPU %d of node %s shows %d jobs that share it; there are %d",
				c,
				name,
				node.Sharers(c),
				h.many[c],
			)
		}
	}
	if len(cpus) != len(h.cpus) || node.UsedMem != h.mem {
		return brokenInvariant(
			"node %s shows %d CPUs and %d MiB in use; jobs %v hold %d and %d",
			name,
			len(cpus),
			node.UsedMem,
			h.jobs,
			len(h.cpus),
			h.mem,
		)
	}
	for i, gpu := range node.GPUs {
		if by := h.gpus[gpu.UUID]; (by != 0) != node.UsedGPU.Has(i) {
			return brokenInvariant(
				"GPU %d (%s) of node %s shows as used: %v; the job that holds it is uid %d",
				i,
				gpu.UUID,
				name,
				node.UsedGPU.Has(i),
				by,
			)
		}
	}
	for i, gpu := range node.GPUs {
		part := h.part[gpu.UUID]
		if part != node.ShareUsed(i) {
			return brokenInvariant(
				"GPU %d (%s) of node %s shows %d shares in use; jobs hold %d",
				i,
				gpu.UUID,
				name,
				node.ShareUsed(i),
				part,
			)
		}
		if part > 0 && !node.Shrunk && (h.gpus[gpu.UUID] != 0 || part > node.ShareAt(i).N) {
			return brokenInvariant(
				"GPU %d (%s) of node %s has %d shares, of which jobs hold %d; held whole by uid %d",
				i,
				gpu.UUID,
				name,
				node.ShareAt(i).N,
				part,
				h.gpus[gpu.UUID],
			)
		}
	}
	if node.UsedGPU.Last() >= len(node.GPUs) {
		return brokenInvariant(
			"node %s shows GPU %d of %d as used",
			name,
			node.UsedGPU.Last(),
			len(node.GPUs),
		)
	}
	gres := 0
	for _, count := range node.UsedGRES {
		gres++
		if h.gres[spec.Count{Name: count.Name, Type: count.Type}] != count.N {
			return brokenInvariant(
				"node %s shows %d of %s:%s in use; jobs hold %d",
				name,
				count.N,
				count.Name,
				count.Type,
				h.gres[spec.Count{Name: count.Name, Type: count.Type}],
			)
		}
	}
	if gres != len(h.gres) {
		return brokenInvariant(
			"node %s shows %d kinds of generic resources in use; jobs hold %d",
			name,
			gres,
			len(h.gres),
		)
	}
	return h.fits(state, node)
}

func (h *holding) fits(state *State, node *Node) error {
	over := !node.Spec.ForJobs(node.UsedCPU) || (state.Config.Sched.Memory && h.mem > node.Mem)
	free := make(map[string]bool) // what any number of jobs may use
	for _, gres := range node.Spec.GRES {
		free[gres.Name] = free[gres.Name] || gres.NoConsume ||
			(spec.Shares(gres.Name) && node.Shares != nil) // by device, below
	}
	sum := make(map[string]int64)
	for _, count := range node.UsedGRES {
		sum[count.Name] += count.N
		over = over ||
			(!free[count.Name] && (sum[count.Name] > totalOf(node.GRES, count.Name, "") ||
				(count.Type != "" && count.N > totalOf(node.GRES, count.Name, count.Type))))
	}
	for i, gpu := range node.GPUs {
		part := h.part[gpu.UUID]
		over = over || part > node.ShareAt(i).N || (part > 0 && h.gpus[gpu.UUID] != 0)
	}
	if over != node.Shrunk {
		return brokenInvariant(
			"node %s (%d CPUs, %d MiB) holds CPUs up to %d and %d MiB: over-allocated %v, known to have shrunk %v",
			node.Spec.Name,
			node.CPUs,
			node.Mem,
			node.UsedCPU.Last(),
			h.mem,
			over,
			node.Shrunk,
		)
	}
	return nil
}

// totalOf sums a list over a name and, unless empty, a type.
func totalOf(list []spec.Count, name, typ string) int64 {
	var n int64
	for _, count := range list {
		if count.Name == name && (typ == "" || count.Type == typ) {
			n += count.N
		}
	}
	return n
}

// CheckRegistry is S2 for node ids and the bitmaps made of them.
func CheckRegistry(state *State) error {
	var err error
	state.Nodes.Range(func(id uint64, node *Node) bool {
		if got, ok := state.NodeIDs[node.Spec.Name]; !ok || uint64(got) != id || node.ID != got {
			err = brokenInvariant(
				"node %s has id %d, but the registry says %d",
				node.Spec.Name,
				node.ID,
				got,
			)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	seen := make([]bool, len(state.NodeIDs))
	//muster:unordered any breach is the same breach
	for _, id := range state.NodeIDs {
		if int(id) >= len(seen) || seen[id] {
			return brokenInvariant("node ids are not 0 to %d, each once", len(seen)-1)
		}
		seen[id] = true
	}
	if len(state.Parts.List) != len(state.Config.Partitions) {
		return brokenInvariant(
			"%d partitions of %d are known",
			len(state.Parts.List),
			len(state.Config.Partitions),
		)
	}
	for i := range state.Parts.List {
		partition := &state.Parts.List[i]
		if partition.Spec != &state.Config.Partitions[i] {
			return brokenInvariant(
				"partition %s is not that of the configuration",
				partition.Spec.Name,
			)
		}
		for _, id := range partition.Nodes.Members() {
			node := state.NodeByID(spec.NodeID(id))
			if node == nil || node.Removed ||
				!slices.Contains(partition.Spec.NodeNames, node.Spec.Name) {
				return brokenInvariant(
					"partition %s has node id %d, which is not one of its nodes",
					partition.Spec.Name,
					id,
				)
			}
		}
		for _, name := range partition.Spec.NodeNames {
			if node := state.Node(name); node != nil && !node.Removed &&
				!partition.Nodes.Has(int(node.ID)) {
				return brokenInvariant("partition %s lacks node %s", partition.Spec.Name, name)
			}
		}
	}
	return nil
}

// CheckGangs is S3: an allocation is whole.
func CheckGangs(state *State) error {
	return state.eachJob(func(job *Job) error {
		if job.Alloc == nil {
			return nil
		}
		if len(job.Alloc.Nodes) == 0 || job.Done.Last() >= len(job.Alloc.Nodes) {
			return brokenInvariant(
				"%s has an allocation of %d nodes, of which number %d is given back",
				state.labelJob(job),
				len(job.Alloc.Nodes),
				job.Done.Last(),
			)
		}
		seen := make(map[spec.NodeID]bool, len(job.Alloc.Nodes))
		var cpus, gpus int64
		for i := range job.Alloc.Nodes {
			alloc := &job.Alloc.Nodes[i]
			if seen[alloc.ID] {
				return brokenInvariant(
					"%s is allocated on node %s twice",
					state.labelJob(job),
					alloc.Name,
				)
			}
			seen[alloc.ID] = true
			cpus += int64(len(alloc.CPUs.Members()))
			gpus += int64(len(alloc.GPUs))
		}
		tres := job.Alloc.TRES
		if tres.CPU != cpus || tres.Node != int64(len(job.Alloc.Nodes)) ||
			tres.Get("gres/gpu") != gpus {
			return brokenInvariant(
				"%s is allocated %s, but its nodes have %d CPUs and %d GPUs on %d nodes",
				state.labelJob(job),
				tres,
				cpus,
				gpus,
				len(job.Alloc.Nodes),
			)
		}
		return nil
	})
}

// CheckLicences is S2 for licences. More than there are may be held only
// after the configuration took some away.
func CheckLicences(state *State) error {
	want := make(map[spec.Count]int64)
	err := state.eachJob(func(job *Job) error {
		if job.State == spec.Running || job.State == spec.Suspended {
			for _, count := range job.Alloc.Licenses {
				want[spec.Count{Name: count.Name, Type: count.Type}] += count.N
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, count := range state.Licenses {
		if n := want[spec.Count{Name: count.Name, Type: count.Type}]; n != count.N {
			return brokenInvariant(
				"%d of licence %s are held; the jobs that run say %d",
				count.N,
				count.Name,
				n,
			)
		}
		if i > 0 && state.Licenses[i-1].Name > count.Name {
			return brokenInvariant(
				"licences %s and %s are out of order",
				state.Licenses[i-1].Name,
				count.Name,
			)
		}
	}
	if len(want) != len(state.Licenses) {
		return brokenInvariant(
			"%d kinds of licences are held; the jobs that run say %d",
			len(state.Licenses),
			len(want),
		)
	}
	return nil
}

// CheckReservations is S2 for reservations.
func CheckReservations(state *State) error {
	for i := range state.Reservations {
		reservation := &state.Reservations[i]
		if i > 0 && state.Reservations[i-1].Name >= reservation.Name {
			return brokenInvariant(
				"reservations %s and %s are out of order or alike",
				state.Reservations[i-1].Name,
				reservation.Name,
			)
		}
		if reservation.End <= reservation.Start {
			return brokenInvariant(
				"reservation %s ends at %d and begins at %d",
				reservation.Name,
				reservation.End,
				reservation.Start,
			)
		}
		seen := make(map[string]bool, len(reservation.Nodes))
		for _, name := range reservation.Nodes {
			if _, ok := state.NodeIDs[name]; !ok || seen[name] {
				return brokenInvariant(
					"reservation %s has node %s, which is unknown or there twice",
					reservation.Name,
					name,
				)
			}
			seen[name] = true
		}
	}
	return nil
}

// CheckApart: no node has two jobs of which one keeps the other off it,
// because of its user or its MCS label.
func CheckApart(state *State) error {
	var err error
	state.Nodes.Range(func(_ uint64, node *Node) bool {
		for i, uid := range node.Jobs {
			a := state.Job(uid)
			for _, other := range node.Jobs[i+1:] {
				b := state.Job(other)
				switch apart := a.Alloc.Apart | b.Alloc.Apart; {
				case apart&spec.ApartUser != 0 && a.Spec.UID != b.Spec.UID:
					err = brokenInvariant(
						"node %s has %s and %s of different users, one of which keeps it to its own",
						node.Spec.Name,
						state.labelJob(a),
						state.labelJob(b),
					)
				case apart&spec.ApartMCS != 0 && a.Spec.MCSLabel != b.Spec.MCSLabel:
					err = brokenInvariant(
						"node %s has %s and %s with different MCS labels, one of which keeps it to its own",
						node.Spec.Name,
						state.labelJob(a),
						state.labelJob(b),
					)
				}
			}
		}
		return err == nil
	})
	return err
}

// CheckPower is S19: nothing runs where there is no power.
func CheckPower(state *State) error {
	var err error
	state.Nodes.Range(func(_ uint64, node *Node) bool {
		if node.Power >= event.PoweredDown {
			if reason := state.needsPower(node, node.Power); reason != "" {
				err = brokenInvariant(
					"node %s is powered to %d, but %s",
					node.Spec.Name,
					node.Power,
					reason,
				)
			}
		}
		return err == nil
	})
	return err
}
