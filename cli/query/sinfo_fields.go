package query

import (
	"cmp"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// nodeField is a column of sinfo.
type nodeField struct {
	letter string
	name   string
	head   string
	// key is what nodes of one line have in common; nil = nothing. loose keys
	// count only with --exact: without it the line shows the least with a +.
	key   func(p *apiv1.PartitionInfo, n *apiv1.NodeInfo) string
	loose bool
	text  func(v *render.NodeView, g *render.NodeGroup) string
}

// ofPart is a column of partitions.
func ofPart(letter, name, head string, get func(p *apiv1.PartitionInfo) string) nodeField {
	return nodeField{letter: letter, name: name, head: head,
		key:  func(p *apiv1.PartitionInfo, _ *apiv1.NodeInfo) string { return get(p) },
		text: func(_ *render.NodeView, g *render.NodeGroup) string { return get(g.Part) }}
}

// ofNode is a column in which the nodes of a line are equal.
func ofNode(letter, name, head, none string, get func(n *apiv1.NodeInfo) string) nodeField {
	return nodeField{letter: letter, name: name, head: head,
		key: func(_ *apiv1.PartitionInfo, n *apiv1.NodeInfo) string { return get(n) },
		text: func(_ *render.NodeView, group *render.NodeGroup) string {
			if node := group.First(); node != nil {
				return cmp.Or(get(node), none)
			}
			return none
		}}
}

// leastColumn is a column of amounts: the least of the line, with + if others have more.
func leastColumn(letter, name, head string, get func(n *apiv1.NodeInfo) int64) nodeField {
	return nodeField{letter: letter, name: name, head: head, loose: true,
		key: func(_ *apiv1.PartitionInfo, n *apiv1.NodeInfo) string { return tool.Itoa(get(n)) },
		text: func(_ *render.NodeView, group *render.NodeGroup) string {
			lo, hi := render.Extent(group, get)
			if lo < hi {
				return tool.Itoa(lo) + "+"
			}
			return tool.Itoa(lo)
		}}
}

// rangeColumn is a column of measured amounts: least-most; negative is unknown.
func rangeColumn(
	letter, name, head string,
	get func(n *apiv1.NodeInfo) int64,
	show func(int64) string,
) nodeField {
	return nodeField{letter: letter, name: name, head: head, loose: true,
		key: func(_ *apiv1.PartitionInfo, n *apiv1.NodeInfo) string { return tool.Itoa(get(n)) },
		text: func(_ *render.NodeView, group *render.NodeGroup) string {
			lo, hi := render.Extent(group, get)
			switch {
			case len(group.Nodes) == 0 || hi < 0:
				return render.NotAvailable
			case lo < hi:
				return show(max(lo, 0)) + "-" + show(hi)
			}
			return show(lo)
		}}
}

func joinSlashes(t ...int64) string {
	parts := make([]string, len(t))
	for i, n := range t {
		parts[i] = tool.Itoa(n)
	}
	return strings.Join(parts, "/")
}

func partitionAvail(partition *apiv1.PartitionInfo) string {
	switch spec.PartitionState(partition.GetState()) {
	case spec.PartitionDown:
		return "down"
	case spec.PartitionDrain:
		return "drain"
	case spec.PartitionInactive:
		return "inact"
	}
	return "up"
}

// starDefault is a partition's name, with * behind the default one's.
func starDefault(partition *apiv1.PartitionInfo) string {
	if partition.GetIsDefault() {
		return partition.GetName() + "*"
	}
	return partition.GetName()
}

func jobSize(partition *apiv1.PartitionInfo) string {
	lo := tool.Itoa(max(partition.GetMinNodes(), 1))
	switch {
	case partition.GetMaxNodes() == 0:
		return lo + "-infinite"
	case partition.GetMaxNodes() == max(partition.GetMinNodes(), 1):
		return lo
	}
	return lo + "-" + tool.Itoa(partition.GetMaxNodes())
}

func spanOrInfinite(ns int64) string {
	if ns < 0 {
		return "infinite"
	}
	return format.ShortDuration(ns / tool.Second)
}

// nodeFields are the columns of sinfo.
//
//muster:table one row for each column
func nodeFields() []nodeField {
	sct := [...]func(n *apiv1.NodeInfo) int64{(*apiv1.NodeInfo).GetSockets, (*apiv1.NodeInfo).GetCoresPerSocket, (*apiv1.NodeInfo).GetThreadsPerCore}
	state := func(letter, name string, pick func(n *apiv1.NodeInfo) string) nodeField {
		return ofNode(letter, name, "STATE", "n/a", pick)
	}
	plain := func(letter, name, head string, text func(v *render.NodeView, g *render.NodeGroup) string) nodeField {
		return nodeField{letter: letter, name: name, head: head, text: text}
	}
	return []nodeField{
		rangeColumn("", "AllocMem", "ALLOCMEM", (*apiv1.NodeInfo).GetMemAlloc, tool.Itoa[int64]),
		ofPart("S", "AllocNodes", "ALLOCNODES", func(*apiv1.PartitionInfo) string { return "all" }),
		ofPart("a", "Available", "AVAIL", partitionAvail),
		plain("V", "Cluster", "CLUSTER", func(v *render.NodeView, _ *render.NodeGroup) string { return cmp.Or(v.Cluster, render.NotAvailable) }),
		ofNode("", "Comment", "COMMENT", render.Null, func(n *apiv1.NodeInfo) string { return n.GetComment() }),
		leastColumn("Y", "Cores", "CORES", sct[1]),
		leastColumn("c", "CPUs", "CPUS", (*apiv1.NodeInfo).GetCpus),
		rangeColumn("O", "CPUsLoad", "CPU_LOAD", (*apiv1.NodeInfo).GetLoadMilli, render.Milli),
		plain("C", "CPUsState", "CPUS(A/I/O/T)", func(_ *render.NodeView, g *render.NodeGroup) string { t := g.Tally(true); return joinSlashes(t[:]...) }),
		ofPart("L", "DefaultTime", "DEFAULTTIME", func(partition *apiv1.PartitionInfo) string {
			if partition.GetDefaultTime() == 0 {
				return "n/a"
			}
			return spanOrInfinite(partition.GetDefaultTime())
		}),
		leastColumn("d", "Disk", "TMP_DISK", (*apiv1.NodeInfo).GetTmpDisk),
		ofNode("", "Extra", "EXTRA", render.Null, func(*apiv1.NodeInfo) string { return "" }),
		ofNode("f", "Features", "AVAIL_FEATURES", render.Null, func(n *apiv1.NodeInfo) string { return strings.Join(render.AvailableFeatures(n), ",") }),
		ofNode("b", "features_act", "ACTIVE_FEATURES", render.Null, func(n *apiv1.NodeInfo) string { return strings.Join(n.GetFeatures(), ",") }),
		rangeColumn("e", "FreeMem", "FREE_MEM", (*apiv1.NodeInfo).GetMemFree, tool.Itoa[int64]),
		ofNode("G", "Gres", "GRES", render.Null, (*apiv1.NodeInfo).GetGres),
		ofNode("", "GresUsed", "GRES_USED", render.Null, (*apiv1.NodeInfo).GetGresUsed),
		ofPart("g", "Groups", "GROUPS", func(p *apiv1.PartitionInfo) string { return cmp.Or(strings.Join(p.GetAllowGroups(), ","), "all") }),
		ofPart("B", "MaxCPUsPerNode", "MAX_CPUS_PER_NODE", func(partition *apiv1.PartitionInfo) string {
			if partition.GetMaxCpusPerNode() == 0 {
				return "UNLIMITED"
			}
			return tool.Itoa(partition.GetMaxCpusPerNode())
		}),
		leastColumn("m", "Memory", "MEMORY", (*apiv1.NodeInfo).GetMem),
		ofNode("o", "NodeAddr", "NODE_ADDR", "", (*apiv1.NodeInfo).GetAddr),
		plain("A", "NodeAI", "NODES(A/I)",
			func(_ *render.NodeView, group *render.NodeGroup) string {
				t := group.Tally(false)
				return joinSlashes(t[0], t[1])
			}),
		plain("F", "NodeAIOT", "NODES(A/I/O/T)", func(_ *render.NodeView, g *render.NodeGroup) string { t := g.Tally(false); return joinSlashes(t[:]...) }),
		ofNode("n", "NodeHost", "HOSTNAMES", "", func(n *apiv1.NodeInfo) string { return cmp.Or(n.GetHostname(), n.GetName()) }),
		plain("N", "NodeList", "NODELIST", func(_ *render.NodeView, g *render.NodeGroup) string { return g.List() }),
		plain("D", "Nodes", "NODES", func(_ *render.NodeView, g *render.NodeGroup) string { return tool.Itoa(len(g.Nodes)) }),
		ofPart("h", "OverSubscribe", "OVERSUBSCRIBE", func(p *apiv1.PartitionInfo) string { return cmp.Or(p.GetOverSubscribe(), "NO") }),
		ofPart("P", "Partition", "PARTITION", starDefault),
		ofPart("R", "PartitionName", "PARTITION", (*apiv1.PartitionInfo).GetName),
		ofNode("", "Port", "PORT", "", func(n *apiv1.NodeInfo) string { return tool.Itoa(n.GetPort()) }),
		ofPart("M", "PreemptMode", "PREEMPT_MODE", func(p *apiv1.PartitionInfo) string { return cmp.Or(p.GetPreemptMode(), "OFF") }),
		ofPart("I", "PriorityJobFactor", "PRIO_JOB_FACTOR", func(p *apiv1.PartitionInfo) string { return tool.Itoa(p.GetPriorityJobFactor()) }),
		ofPart("p", "PriorityTier", "PRIO_TIER", func(p *apiv1.PartitionInfo) string { return tool.Itoa(p.GetPriorityTier()) }),
		ofNode("E", "Reason", "REASON", "none", (*apiv1.NodeInfo).GetReason),
		ofNode("i", "Reservation", "RESERVATION", "", func(*apiv1.NodeInfo) string { return "" }),
		ofPart("r", "Root", "ROOT", func(p *apiv1.PartitionInfo) string { return strings.ToLower(render.YesNo(p.GetRootOnly())) }),
		ofPart("s", "Size", "JOB_SIZE", jobSize),
		{letter: "z", name: "SocketCoreThread", head: "S:C:T", loose: true,
			key: func(_ *apiv1.PartitionInfo, node *apiv1.NodeInfo) string {
				return joinSlashes(sct[0](node), sct[1](node), sct[2](node))
			},
			text: func(_ *render.NodeView, group *render.NodeGroup) string {
				var parts []string
				for _, get := range sct {
					lo, hi := render.Extent(group, get)
					text := tool.Itoa(lo)
					if lo < hi {
						text += "+"
					}
					parts = append(parts, text)
				}
				return strings.Join(parts, ":")
			}},
		leastColumn("X", "Sockets", "SOCKETS", sct[0]),
		state("t", "StateCompact", func(node *apiv1.NodeInfo) string {
			nodeState := render.StateOf(node)
			_, short := nodeState.Words()
			return short + nodeState.Suffix()
		}),
		state("T", "StateLong", func(n *apiv1.NodeInfo) string { s := render.StateOf(n); long, _ := s.Words(); return long + s.Suffix() }),
		state("", "StateComplete", func(n *apiv1.NodeInfo) string { return strings.ToLower(n.GetState()) }),
		leastColumn("Z", "Threads", "THREADS", sct[2]),
		ofPart("l", "Time", "TIMELIMIT", func(p *apiv1.PartitionInfo) string { return spanOrInfinite(p.GetMaxTime()) }),
		{letter: "H", name: "TimeStamp", head: "TIMESTAMP",
			key: func(_ *apiv1.PartitionInfo, node *apiv1.NodeInfo) string {
				return tool.Itoa(node.GetReasonTime() / tool.Second)
			},
			text: func(view *render.NodeView, group *render.NodeGroup) string {
				if node := group.First(); node != nil && node.GetReason() != "" {
					return view.Time(node.GetReasonTime())
				}
				return "Unknown"
			}},
		ofNode("u", "User", "USER", "Unknown", (*apiv1.NodeInfo).GetReasonUser),
		{letter: "U", name: "UserLong", head: "USER",
			key: func(_ *apiv1.PartitionInfo, n *apiv1.NodeInfo) string { return n.GetReasonUser() },
			text: func(view *render.NodeView, group *render.NodeGroup) string {
				node := group.First()
				if node == nil || node.GetReasonUser() == "" {
					return "Unknown"
				}
				if id := view.UID(node.GetReasonUser()); id != "" {
					return node.GetReasonUser() + "(" + id + ")"
				}
				return node.GetReasonUser()
			}},
		ofNode("v", "Version", "VERSION", render.Null, (*apiv1.NodeInfo).GetVersion),
		leastColumn("w", "Weight", "WEIGHT", func(n *apiv1.NodeInfo) int64 { return int64(n.GetWeight()) }),
	}
}
