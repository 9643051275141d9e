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
	return &holding{cpus: make(map[int]spec.JobUID), many: make(map[int]int), gpus: make(map[string]spec.JobUID), gres: make(map[spec.Count]int64),
		part: make(map[string]int64)}
}

// CheckNodes is S2: no over-allocation.
func CheckNodes(s *State) error {
	nodes := make(map[spec.NodeID]*holding)
	err := s.eachJob(func(j *Job) error {
		if countHeldNodes(j) == 0 {
			return nil
		}
		for i := range j.Alloc.Nodes {
			a := &j.Alloc.Nodes[i]
			if j.Done.Has(i) {
				continue
			}
			if n := s.NodeByID(a.ID); n == nil || n.Spec == nil || n.Spec.Name != a.Name {
				return brokenInvariant("%s holds node %s, which does not exist", s.labelJob(j), a.Name)
			}
			h := nodes[a.ID]
			if h == nil {
				h = newHolding()
				nodes[a.ID] = h
			}
			if err := h.add(s, j, a); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.Nodes.Range(func(_ uint64, n *Node) bool {
		h := nodes[n.ID]
		switch {
		case h == nil && len(n.Holds) == 0:
			h = &holding{}
		case h == nil:
			h = newHolding()
		}
		err = h.addHolds(n)
		if err == nil {
			err = h.compareHeld(s, n)
		}
		return err == nil
	})
	return err
}

func (h *holding) add(s *State, j *Job, a *spec.NodeAlloc) error {
	cpus := a.CPUs.Members()
	if j.Yields {
		cpus = nil
	}
	for _, c := range cpus {
		share := j.Alloc.Share
		if share > 0 {
			h.many[c]++
		}
		if other, twice := h.cpus[c]; twice {
			if most := s.Job(other).Alloc.Share; share == 0 || most == 0 || h.many[c] > int(max(share, most)) {
				return brokenInvariant("CPU %d of node %s is held by job uid %d and by %s", c, a.Name, other, s.labelJob(j))
			}
		}
		h.cpus[c] = j.UID
	}
	for _, g := range a.GPUs {
		if other, twice := h.gpus[g.UUID]; twice {
			return brokenInvariant("GPU %s of node %s is held by job uid %d and by %s", g.UUID, a.Name, other, s.labelJob(j))
		}
		h.gpus[g.UUID] = j.UID
	}
	asked := make(map[string]int64)
	for _, c := range a.GRES {
		h.gres[spec.Count{Name: c.Name, Type: c.Type}] += c.N
		asked[c.Name] += c.N
	}
	for i := range a.Shares {
		g := &a.Shares[i]
		h.part[g.UUID] += g.N
		asked[g.Name] -= g.N
		if g.N <= 0 || asked[g.Name] < 0 {
			return brokenInvariant("%s holds %d %s of GPU %s of node %s, which is not what it counts as", s.labelJob(j), g.N, g.Name, g.UUID, a.Name)
		}
	}
	h.mem += a.Mem
	h.jobs = append(h.jobs, j.UID)
	return nil
}

// compareHeld tells where a node shows something else than its jobs hold, or
// holds more than it has without being marked as shrunk.
func (h *holding) compareHeld(s *State, n *Node) error {
	name := n.Spec.Name
	if !slices.Equal(h.jobs, n.Jobs) {
		return brokenInvariant("node %s lists jobs %v; allocated to it are %v", name, n.Jobs, h.jobs)
	}
	cpus := n.UsedCPU.Members()
	for _, c := range cpus {
		if h.cpus[c] == 0 {
			return brokenInvariant("CPU %d of node %s shows as used, but no job holds it", c, name)
		}
		if n.Sharers(c) != h.many[c] {
			return brokenInvariant("CPU %d of node %s shows %d jobs that share it; there are %d", c, name, n.Sharers(c), h.many[c])
		}
	}
	if len(cpus) != len(h.cpus) || n.UsedMem != h.mem {
		return brokenInvariant("node %s shows %d CPUs and %d MiB in use; jobs %v hold %d and %d", name, len(cpus), n.UsedMem, h.jobs, len(h.cpus), h.mem)
	}
	for i, g := range n.GPUs {
		if by := h.gpus[g.UUID]; (by != 0) != n.UsedGPU.Has(i) {
			return brokenInvariant("GPU %d (%s) of node %s shows as used: %v; the job that holds it is uid %d", i, g.UUID, name, n.UsedGPU.Has(i), by)
		}
	}
	for i, g := range n.GPUs {
		part := h.part[g.UUID]
		if part != n.ShareUsed(i) {
			return brokenInvariant("GPU %d (%s) of node %s shows %d shares in use; jobs hold %d", i, g.UUID, name, n.ShareUsed(i), part)
		}
		if part > 0 && !n.Shrunk && (h.gpus[g.UUID] != 0 || part > n.ShareAt(i).N) {
			return brokenInvariant("GPU %d (%s) of node %s has %d shares, of which jobs hold %d; held whole by uid %d", i, g.UUID, name, n.ShareAt(i).N, part, h.gpus[g.UUID])
		}
	}
	if n.UsedGPU.Last() >= len(n.GPUs) {
		return brokenInvariant("node %s shows GPU %d of %d as used", name, n.UsedGPU.Last(), len(n.GPUs))
	}
	gres := 0
	for _, c := range n.UsedGRES {
		gres++
		if h.gres[spec.Count{Name: c.Name, Type: c.Type}] != c.N {
			return brokenInvariant("node %s shows %d of %s:%s in use; jobs hold %d", name, c.N, c.Name, c.Type, h.gres[spec.Count{Name: c.Name, Type: c.Type}])
		}
	}
	if gres != len(h.gres) {
		return brokenInvariant("node %s shows %d kinds of generic resources in use; jobs hold %d", name, gres, len(h.gres))
	}
	return h.fits(s, n)
}

func (h *holding) fits(s *State, n *Node) error {
	over := !n.Spec.ForJobs(n.UsedCPU) || (s.Config.Sched.Memory && h.mem > n.Mem)
	free := make(map[string]bool) // what any number of jobs may use
	for _, g := range n.Spec.GRES {
		free[g.Name] = free[g.Name] || g.NoConsume || (spec.Shares(g.Name) && n.Shares != nil) // by device, below
	}
	sum := make(map[string]int64)
	for _, c := range n.UsedGRES {
		sum[c.Name] += c.N
		over = over || (!free[c.Name] && (sum[c.Name] > totalOf(n.GRES, c.Name, "") || (c.Type != "" && c.N > totalOf(n.GRES, c.Name, c.Type))))
	}
	for i, g := range n.GPUs {
		part := h.part[g.UUID]
		over = over || part > n.ShareAt(i).N || (part > 0 && h.gpus[g.UUID] != 0)
	}
	if over != n.Shrunk {
		return brokenInvariant("node %s (%d CPUs, %d MiB) holds CPUs up to %d and %d MiB: over-allocated %v, known to have shrunk %v",
			n.Spec.Name, n.CPUs, n.Mem, n.UsedCPU.Last(), h.mem, over, n.Shrunk)
	}
	return nil
}

// totalOf sums a list over a name and, unless empty, a type.
func totalOf(list []spec.Count, name, typ string) int64 {
	var n int64
	for _, c := range list {
		if c.Name == name && (typ == "" || c.Type == typ) {
			n += c.N
		}
	}
	return n
}

// CheckRegistry is S2 for node ids and the bitmaps made of them.
func CheckRegistry(s *State) error {
	var err error
	s.Nodes.Range(func(id uint64, n *Node) bool {
		if got, ok := s.NodeIDs[n.Spec.Name]; !ok || uint64(got) != id || n.ID != got {
			err = brokenInvariant("node %s has id %d, but the registry says %d", n.Spec.Name, n.ID, got)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	seen := make([]bool, len(s.NodeIDs))
	//muster:unordered any breach is the same breach
	for _, id := range s.NodeIDs {
		if int(id) >= len(seen) || seen[id] {
			return brokenInvariant("node ids are not 0 to %d, each once", len(seen)-1)
		}
		seen[id] = true
	}
	if len(s.Parts.List) != len(s.Config.Partitions) {
		return brokenInvariant("%d partitions of %d are known", len(s.Parts.List), len(s.Config.Partitions))
	}
	for i := range s.Parts.List {
		p := &s.Parts.List[i]
		if p.Spec != &s.Config.Partitions[i] {
			return brokenInvariant("partition %s is not that of the configuration", p.Spec.Name)
		}
		for _, id := range p.Nodes.Members() {
			n := s.NodeByID(spec.NodeID(id))
			if n == nil || n.Removed || !slices.Contains(p.Spec.NodeNames, n.Spec.Name) {
				return brokenInvariant("partition %s has node id %d, which is not one of its nodes", p.Spec.Name, id)
			}
		}
		for _, name := range p.Spec.NodeNames {
			if n := s.Node(name); n != nil && !n.Removed && !p.Nodes.Has(int(n.ID)) {
				return brokenInvariant("partition %s lacks node %s", p.Spec.Name, name)
			}
		}
	}
	return nil
}

// CheckGangs is S3: an allocation is whole.
func CheckGangs(s *State) error {
	return s.eachJob(func(j *Job) error {
		if j.Alloc == nil {
			return nil
		}
		if len(j.Alloc.Nodes) == 0 || j.Done.Last() >= len(j.Alloc.Nodes) {
			return brokenInvariant("%s has an allocation of %d nodes, of which number %d is given back", s.labelJob(j), len(j.Alloc.Nodes), j.Done.Last())
		}
		seen := make(map[spec.NodeID]bool, len(j.Alloc.Nodes))
		var cpus, gpus int64
		for i := range j.Alloc.Nodes {
			a := &j.Alloc.Nodes[i]
			if seen[a.ID] {
				return brokenInvariant("%s is allocated on node %s twice", s.labelJob(j), a.Name)
			}
			seen[a.ID] = true
			cpus += int64(len(a.CPUs.Members()))
			gpus += int64(len(a.GPUs))
		}
		t := j.Alloc.TRES
		if t.CPU != cpus || t.Node != int64(len(j.Alloc.Nodes)) || t.Get("gres/gpu") != gpus {
			return brokenInvariant("%s is allocated %s, but its nodes have %d CPUs and %d GPUs on %d nodes", s.labelJob(j), t, cpus, gpus, len(j.Alloc.Nodes))
		}
		return nil
	})
}

// CheckLicences is S2 for licences. More than there are may be held only
// after the configuration took some away.
func CheckLicences(s *State) error {
	want := make(map[spec.Count]int64)
	err := s.eachJob(func(j *Job) error {
		if j.State == spec.Running || j.State == spec.Suspended {
			for _, c := range j.Alloc.Licenses {
				want[spec.Count{Name: c.Name, Type: c.Type}] += c.N
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, c := range s.Licenses {
		if n := want[spec.Count{Name: c.Name, Type: c.Type}]; n != c.N {
			return brokenInvariant("%d of licence %s are held; the jobs that run say %d", c.N, c.Name, n)
		}
		if i > 0 && s.Licenses[i-1].Name > c.Name {
			return brokenInvariant("licences %s and %s are out of order", s.Licenses[i-1].Name, c.Name)
		}
	}
	if len(want) != len(s.Licenses) {
		return brokenInvariant("%d kinds of licences are held; the jobs that run say %d", len(s.Licenses), len(want))
	}
	return nil
}

// CheckReservations is S2 for reservations.
func CheckReservations(s *State) error {
	for i := range s.Reservations {
		r := &s.Reservations[i]
		if i > 0 && s.Reservations[i-1].Name >= r.Name {
			return brokenInvariant("reservations %s and %s are out of order or alike", s.Reservations[i-1].Name, r.Name)
		}
		if r.End <= r.Start {
			return brokenInvariant("reservation %s ends at %d and begins at %d", r.Name, r.End, r.Start)
		}
		seen := make(map[string]bool, len(r.Nodes))
		for _, name := range r.Nodes {
			if _, ok := s.NodeIDs[name]; !ok || seen[name] {
				return brokenInvariant("reservation %s has node %s, which is unknown or there twice", r.Name, name)
			}
			seen[name] = true
		}
	}
	return nil
}

// CheckApart: no node has two jobs of which one keeps the other off it,
// because of its user or its MCS label.
func CheckApart(s *State) error {
	var err error
	s.Nodes.Range(func(_ uint64, n *Node) bool {
		for i, uid := range n.Jobs {
			a := s.Job(uid)
			for _, other := range n.Jobs[i+1:] {
				b := s.Job(other)
				switch apart := a.Alloc.Apart | b.Alloc.Apart; {
				case apart&spec.ApartUser != 0 && a.Spec.UID != b.Spec.UID:
					err = brokenInvariant("node %s has %s and %s of different users, one of which keeps it to its own", n.Spec.Name, s.labelJob(a), s.labelJob(b))
				case apart&spec.ApartMCS != 0 && a.Spec.MCSLabel != b.Spec.MCSLabel:
					err = brokenInvariant("node %s has %s and %s with different MCS labels, one of which keeps it to its own", n.Spec.Name, s.labelJob(a), s.labelJob(b))
				}
			}
		}
		return err == nil
	})
	return err
}

// CheckPower is S19: nothing runs where there is no power.
func CheckPower(s *State) error {
	var err error
	s.Nodes.Range(func(_ uint64, n *Node) bool {
		if n.Power >= event.PoweredDown {
			if why := s.needsPower(n, n.Power); why != "" {
				err = brokenInvariant("node %s is powered to %d, but %s", n.Spec.Name, n.Power, why)
			}
		}
		return err == nil
	})
	return err
}
