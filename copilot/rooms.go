package copilot

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// room is a node with what the holds of this plan leave of it.
type room struct {
	name  string
	open  bool
	cpu   int64 // whole CPUs that nobody has
	spare int64 // thousandths of the holds' CPUs that no hold needs
	mem   int64
	gpus  int64            // of all types
	gpu   map[string]int64 // by type
}

// rooms are the nodes in the order in which a pod prefers them: the least room
// first, so that large jobs and pods find nodes that are whole. The order lets a
// search begin behind the nodes that are too full. To look at every node for every
// pod takes seconds where thousands of pods wait for thousands of nodes.
type rooms struct {
	all    []room
	byName map[string]int // index in all
	order  []int          // indexes in all, by less
	// maxSpare bounds what a room may have beside its whole CPUs.
	maxSpare int64
	allowed  map[sharedNames]*allowance
}

// sharedNames identifies a list of names without reading it.
type sharedNames struct {
	first *string
	count int
}

// allowance is what one list of admitting nodes comes to.
type allowance struct {
	is     []bool // by index in rooms.all
	count  int
	missed map[Ask]bool // found no room; room only becomes less within a plan
}

func newRooms(nodes []Node) *rooms {
	s := &rooms{
		all:      make([]room, len(nodes)),
		byName:   make(map[string]int, len(nodes)),
		order:    make([]int, len(nodes)),
		maxSpare: 1000, // what take leaves over is less than a CPU
		allowed:  map[sharedNames]*allowance{},
	}
	for i := range nodes {
		node := &nodes[i]
		s.all[i] = room{
			name:  node.Name,
			open:  node.Open,
			cpu:   node.FreeCPU,
			spare: node.SpareCPU,
			mem:   node.FreeMem,
			gpu:   node.FreeGPU,
		}
		//muster:unordered a sum
		for _, free := range node.FreeGPU {
			s.all[i].gpus += free
		}
		s.byName[node.Name] = i
		s.order[i] = i
		s.maxSpare = max(s.maxSpare, node.SpareCPU)
	}
	slices.SortFunc(s.order, func(a, b int) int { return s.all[a].compare(&s.all[b]) })
	return s
}

// has tells a node of the ledger.
func (s *rooms) has(node string) bool {
	_, ok := s.byName[node]
	return ok
}

// compare orders rooms by what is free: devices first.
func (m *room) compare(o *room) int {
	return cmp.Or(
		cmp.Compare(m.gpus, o.gpus),
		cmp.Compare(m.cpu, o.cpu),
		cmp.Compare(m.mem, o.mem),
		strings.Compare(m.name, o.name),
	)
}

// fits tells whether the room seems enough. Muster has the last word.
func (m *room) fits(query *Ask) bool {
	free := m.gpus
	if query.GPUType != "" {
		free = m.gpu[query.GPUType]
	}
	return m.open && m.cpu*1000+m.spare >= query.MilliCPU && m.mem >= query.Mem &&
		free >= query.GPUs
}

// admit reads a list of admitting nodes, or finds what came of it before.
func (s *rooms) admit(names []string) *allowance {
	key := sharedNames{count: len(names)}
	if len(names) > 0 {
		key.first = &names[0]
	}
	if known := s.allowed[key]; known != nil {
		return known
	}
	out := &allowance{is: make([]bool, len(s.all)), missed: map[Ask]bool{}}
	for _, name := range names {
		if at, ok := s.byName[name]; ok && !out.is[at] {
			out.is[at] = true
			out.count++
		}
	}
	s.allowed[key] = out
	return out
}

// take counts a hold on the first allowed room that fits, and names it.
func (s *rooms) take(query *Ask, allowed *allowance) (node string, ok bool) {
	if allowed.missed[*query] {
		return "", false
	}
	at := s.search(query, allowed)
	if at < 0 {
		allowed.missed[*query] = true
		return "", false
	}
	taken := s.order[at]
	s.all[taken].subtract(query)
	// It has less now and comes earlier.
	to := sort.Search(at, func(i int) bool {
		return s.all[s.order[i]].compare(&s.all[taken]) > 0
	})
	copy(s.order[to+1:at+1], s.order[to:at])
	s.order[to] = taken
	return s.all[taken].name, true
}

// search finds the first place in the order whose room fits; -1: there is none. Rooms
// with the same count of devices are ordered by CPUs, so that of each such group those
// with too few are passed over at once.
func (s *rooms) search(query *Ask, allowed *allowance) int {
	// A room with fewer whole CPUs than this cannot fit, whatever it has to spare.
	minCPU := (query.MilliCPU-s.maxSpare)/1000 - 1
	gpus := query.GPUs
	for {
		at := sort.Search(len(s.order), func(i int) bool {
			m := &s.all[s.order[i]]
			return m.gpus > gpus || m.gpus == gpus && m.cpu >= minCPU
		})
		for ; at < len(s.order) && s.all[s.order[at]].gpus == gpus; at++ {
			index := s.order[at]
			if allowed.is[index] && s.all[index].fits(query) {
				return at
			}
		}
		if at == len(s.order) {
			return -1
		}
		gpus = s.all[s.order[at]].gpus
	}
}

// subtract counts a hold that is asked for.
func (m *room) subtract(query *Ask) {
	m.spare -= query.MilliCPU
	if m.spare < 0 {
		more := spec.WholeCPUs(-m.spare, 1)
		m.cpu -= more
		m.spare += more * 1000
	}
	m.mem -= query.Mem
	if query.GPUs == 0 {
		return
	}
	free := map[string]int64{}
	left := query.GPUs
	for _, typ := range m.types() {
		out := int64(0)
		if query.GPUType == "" || query.GPUType == typ {
			out = min(left, m.gpu[typ])
		}
		left -= out
		free[typ] = m.gpu[typ] - out
	}
	m.gpu = free
	m.gpus -= query.GPUs - left
}

func (m *room) types() []string {
	var out []string
	//muster:unordered the names are sorted below
	for typ := range m.gpu {
		out = append(out, typ)
	}
	slices.Sort(out)
	return out
}
