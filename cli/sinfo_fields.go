package cli

import (
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// nodeGroup is one line of sinfo: nodes of a partition that look the same in
// the columns that are shown.
type nodeGroup struct {
	part  *apiv1.PartitionInfo // the first one where the columns do not tell partitions apart
	nodes []*apiv1.NodeInfo    // each once; empty for a partition without nodes
}

// first is a node that speaks for all in the columns that must match.
func (g *nodeGroup) first() *apiv1.NodeInfo {
	if len(g.nodes) == 0 {
		return nil
	}
	return g.nodes[0]
}

func (g *nodeGroup) list() string {
	names := make([]string, len(g.nodes))
	for i, n := range g.nodes {
		names[i] = n.GetName()
	}
	return hostlist.FoldSorted(names)
}

// nodeView is how nodes are shown.
type nodeView struct {
	clock
	cluster string
	uid     func(name string) string // "0" for root; "" when it is not known
}

// nodeField is a column of sinfo.
type nodeField struct {
	letter string
	name   string
	head   string
	// key is what nodes of one line have in common; nil = nothing. loose keys
	// count only with --exact: without it the line shows the least with a +.
	key   func(p *apiv1.PartitionInfo, n *apiv1.NodeInfo) string
	loose bool
	text  func(v *nodeView, g *nodeGroup) string
}

// ofPart is a column of partitions.
func ofPart(letter, name, head string, get func(p *apiv1.PartitionInfo) string) nodeField {
	return nodeField{letter: letter, name: name, head: head,
		key:  func(p *apiv1.PartitionInfo, _ *apiv1.NodeInfo) string { return get(p) },
		text: func(_ *nodeView, g *nodeGroup) string { return get(g.part) }}
}

// ofNode is a column in which the nodes of a line are equal.
func ofNode(letter, name, head, none string, get func(n *apiv1.NodeInfo) string) nodeField {
	return nodeField{letter: letter, name: name, head: head,
		key: func(_ *apiv1.PartitionInfo, n *apiv1.NodeInfo) string { return get(n) },
		text: func(_ *nodeView, g *nodeGroup) string {
			if n := g.first(); n != nil {
				return or(get(n), none)
			}
			return none
		}}
}

// least is a column of amounts: the least of the line, with + if others have more.
func least(letter, name, head string, get func(n *apiv1.NodeInfo) int64) nodeField {
	return nodeField{letter: letter, name: name, head: head, loose: true,
		key: func(_ *apiv1.PartitionInfo, n *apiv1.NodeInfo) string { return itoa(get(n)) },
		text: func(_ *nodeView, g *nodeGroup) string {
			lo, hi := extent(g, get)
			if lo < hi {
				return itoa(lo) + "+"
			}
			return itoa(lo)
		}}
}

// between is a column of measured amounts: least-most; negative is unknown.
func between(letter, name, head string, get func(n *apiv1.NodeInfo) int64, show func(int64) string) nodeField {
	return nodeField{letter: letter, name: name, head: head, loose: true,
		key: func(_ *apiv1.PartitionInfo, n *apiv1.NodeInfo) string { return itoa(get(n)) },
		text: func(_ *nodeView, g *nodeGroup) string {
			lo, hi := extent(g, get)
			switch {
			case len(g.nodes) == 0 || hi < 0:
				return na
			case lo < hi:
				return show(max(lo, 0)) + "-" + show(hi)
			}
			return show(lo)
		}}
}

func extent(g *nodeGroup, get func(n *apiv1.NodeInfo) int64) (lo, hi int64) {
	for i, n := range g.nodes {
		x := get(n)
		if i == 0 || x < lo {
			lo = x
		}
		if i == 0 || x > hi {
			hi = x
		}
	}
	return lo, hi
}

// tally counts A/I/O/T of nodes or CPUs.
func (g *nodeGroup) tally(cpus bool) [4]int64 {
	var t [4]int64
	for _, n := range g.nodes {
		s := stateOf(n)
		if cpus {
			t[0] += n.GetCpusAlloc()
			rest := n.GetCpus() - n.GetCpusAlloc()
			if s.out() {
				t[2] += rest
			} else {
				t[1] += rest
			}
			t[3] += n.GetCpus()
			continue
		}
		switch {
		case s.busy():
			t[0]++
		case s.out():
			t[2]++
		default:
			t[1]++
		}
		t[3]++
	}
	return t
}

func slashes(t ...int64) string {
	parts := make([]string, len(t))
	for i, n := range t {
		parts[i] = itoa(n)
	}
	return strings.Join(parts, "/")
}

func partitionAvail(p *apiv1.PartitionInfo) string {
	switch spec.PartitionState(p.GetState()) {
	case spec.PartitionDown:
		return "down"
	case spec.PartitionDrain:
		return "drain"
	case spec.PartitionInactive:
		return "inact"
	}
	return "up"
}

// starred is a partition's name, with * behind the default one's.
func starred(p *apiv1.PartitionInfo) string {
	if p.GetIsDefault() {
		return p.GetName() + "*"
	}
	return p.GetName()
}

func jobSize(p *apiv1.PartitionInfo) string {
	lo := itoa(max(p.GetMinNodes(), 1))
	switch {
	case p.GetMaxNodes() == 0:
		return lo + "-infinite"
	case p.GetMaxNodes() == max(p.GetMinNodes(), 1):
		return lo
	}
	return lo + "-" + itoa(p.GetMaxNodes())
}

func infinite(ns int64) string {
	if ns < 0 {
		return "infinite"
	}
	return format.ShortDuration(ns / second)
}

// nodeFields are the columns of sinfo.
//
//muster:table one row for each column
func nodeFields() []nodeField {
	sct := [...]func(n *apiv1.NodeInfo) int64{(*apiv1.NodeInfo).GetSockets, (*apiv1.NodeInfo).GetCoresPerSocket, (*apiv1.NodeInfo).GetThreadsPerCore}
	state := func(letter, name string, pick func(n *apiv1.NodeInfo) string) nodeField {
		return ofNode(letter, name, "STATE", "n/a", pick)
	}
	plain := func(letter, name, head string, text func(v *nodeView, g *nodeGroup) string) nodeField {
		return nodeField{letter: letter, name: name, head: head, text: text}
	}
	return []nodeField{
		between("", "AllocMem", "ALLOCMEM", (*apiv1.NodeInfo).GetMemAlloc, itoa[int64]),
		ofPart("S", "AllocNodes", "ALLOCNODES", func(*apiv1.PartitionInfo) string { return "all" }),
		ofPart("a", "Available", "AVAIL", partitionAvail),
		plain("V", "Cluster", "CLUSTER", func(v *nodeView, _ *nodeGroup) string { return or(v.cluster, na) }),
		ofNode("", "Comment", "COMMENT", null, func(n *apiv1.NodeInfo) string { return n.GetComment() }),
		least("Y", "Cores", "CORES", sct[1]),
		least("c", "CPUs", "CPUS", (*apiv1.NodeInfo).GetCpus),
		between("O", "CPUsLoad", "CPU_LOAD", (*apiv1.NodeInfo).GetLoadMilli, milli),
		plain("C", "CPUsState", "CPUS(A/I/O/T)", func(_ *nodeView, g *nodeGroup) string { t := g.tally(true); return slashes(t[:]...) }),
		ofPart("L", "DefaultTime", "DEFAULTTIME", func(p *apiv1.PartitionInfo) string {
			if p.GetDefaultTime() == 0 {
				return "n/a"
			}
			return infinite(p.GetDefaultTime())
		}),
		least("d", "Disk", "TMP_DISK", (*apiv1.NodeInfo).GetTmpDisk),
		ofNode("", "Extra", "EXTRA", null, func(*apiv1.NodeInfo) string { return "" }),
		ofNode("f", "Features", "AVAIL_FEATURES", null, func(n *apiv1.NodeInfo) string { return strings.Join(availableFeatures(n), ",") }),
		ofNode("b", "features_act", "ACTIVE_FEATURES", null, func(n *apiv1.NodeInfo) string { return strings.Join(n.GetFeatures(), ",") }),
		between("e", "FreeMem", "FREE_MEM", (*apiv1.NodeInfo).GetMemFree, itoa[int64]),
		ofNode("G", "Gres", "GRES", null, (*apiv1.NodeInfo).GetGres),
		ofNode("", "GresUsed", "GRES_USED", null, (*apiv1.NodeInfo).GetGresUsed),
		ofPart("g", "Groups", "GROUPS", func(p *apiv1.PartitionInfo) string { return or(strings.Join(p.GetAllowGroups(), ","), "all") }),
		ofPart("B", "MaxCPUsPerNode", "MAX_CPUS_PER_NODE", func(p *apiv1.PartitionInfo) string {
			if p.GetMaxCpusPerNode() == 0 {
				return "UNLIMITED"
			}
			return itoa(p.GetMaxCpusPerNode())
		}),
		least("m", "Memory", "MEMORY", (*apiv1.NodeInfo).GetMem),
		ofNode("o", "NodeAddr", "NODE_ADDR", "", (*apiv1.NodeInfo).GetAddr),
		plain("A", "NodeAI", "NODES(A/I)", func(_ *nodeView, g *nodeGroup) string { t := g.tally(false); return slashes(t[0], t[1]) }),
		plain("F", "NodeAIOT", "NODES(A/I/O/T)", func(_ *nodeView, g *nodeGroup) string { t := g.tally(false); return slashes(t[:]...) }),
		ofNode("n", "NodeHost", "HOSTNAMES", "", func(n *apiv1.NodeInfo) string { return or(n.GetHostname(), n.GetName()) }),
		plain("N", "NodeList", "NODELIST", func(_ *nodeView, g *nodeGroup) string { return g.list() }),
		plain("D", "Nodes", "NODES", func(_ *nodeView, g *nodeGroup) string { return itoa(len(g.nodes)) }),
		ofPart("h", "OverSubscribe", "OVERSUBSCRIBE", func(p *apiv1.PartitionInfo) string { return or(p.GetOverSubscribe(), "NO") }),
		ofPart("P", "Partition", "PARTITION", starred),
		ofPart("R", "PartitionName", "PARTITION", (*apiv1.PartitionInfo).GetName),
		ofNode("", "Port", "PORT", "", func(n *apiv1.NodeInfo) string { return itoa(n.GetPort()) }),
		ofPart("M", "PreemptMode", "PREEMPT_MODE", func(p *apiv1.PartitionInfo) string { return or(p.GetPreemptMode(), "OFF") }),
		ofPart("I", "PriorityJobFactor", "PRIO_JOB_FACTOR", func(p *apiv1.PartitionInfo) string { return itoa(p.GetPriorityJobFactor()) }),
		ofPart("p", "PriorityTier", "PRIO_TIER", func(p *apiv1.PartitionInfo) string { return itoa(p.GetPriorityTier()) }),
		ofNode("E", "Reason", "REASON", "none", (*apiv1.NodeInfo).GetReason),
		ofNode("i", "Reservation", "RESERVATION", "", func(*apiv1.NodeInfo) string { return "" }),
		ofPart("r", "Root", "ROOT", func(p *apiv1.PartitionInfo) string { return strings.ToLower(yesNo(p.GetRootOnly())) }),
		ofPart("s", "Size", "JOB_SIZE", jobSize),
		{letter: "z", name: "SocketCoreThread", head: "S:C:T", loose: true,
			key: func(_ *apiv1.PartitionInfo, n *apiv1.NodeInfo) string {
				return slashes(sct[0](n), sct[1](n), sct[2](n))
			},
			text: func(_ *nodeView, g *nodeGroup) string {
				var parts []string
				for _, get := range sct {
					lo, hi := extent(g, get)
					text := itoa(lo)
					if lo < hi {
						text += "+"
					}
					parts = append(parts, text)
				}
				return strings.Join(parts, ":")
			}},
		least("X", "Sockets", "SOCKETS", sct[0]),
		state("t", "StateCompact", func(n *apiv1.NodeInfo) string { s := stateOf(n); _, short := s.words(); return short + s.suffix() }),
		state("T", "StateLong", func(n *apiv1.NodeInfo) string { s := stateOf(n); long, _ := s.words(); return long + s.suffix() }),
		state("", "StateComplete", func(n *apiv1.NodeInfo) string { return strings.ToLower(n.GetState()) }),
		least("Z", "Threads", "THREADS", sct[2]),
		ofPart("l", "Time", "TIMELIMIT", func(p *apiv1.PartitionInfo) string { return infinite(p.GetMaxTime()) }),
		{letter: "H", name: "TimeStamp", head: "TIMESTAMP",
			key: func(_ *apiv1.PartitionInfo, n *apiv1.NodeInfo) string { return itoa(n.GetReasonTime() / second) },
			text: func(v *nodeView, g *nodeGroup) string {
				if n := g.first(); n != nil && n.GetReason() != "" {
					return v.time(n.GetReasonTime())
				}
				return "Unknown"
			}},
		ofNode("u", "User", "USER", "Unknown", (*apiv1.NodeInfo).GetReasonUser),
		{letter: "U", name: "UserLong", head: "USER",
			key: func(_ *apiv1.PartitionInfo, n *apiv1.NodeInfo) string { return n.GetReasonUser() },
			text: func(v *nodeView, g *nodeGroup) string {
				n := g.first()
				if n == nil || n.GetReasonUser() == "" {
					return "Unknown"
				}
				if id := v.uid(n.GetReasonUser()); id != "" {
					return n.GetReasonUser() + "(" + id + ")"
				}
				return n.GetReasonUser()
			}},
		ofNode("v", "Version", "VERSION", null, (*apiv1.NodeInfo).GetVersion),
		least("w", "Weight", "WEIGHT", func(n *apiv1.NodeInfo) int64 { return int64(n.GetWeight()) }),
	}
}
