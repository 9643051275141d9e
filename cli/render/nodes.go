package render

import (
	"cmp"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// nodeState is a node's state taken apart: BASE and its flags.
type nodeState struct {
	base  string
	flags []string
}

// StateOf reads IDLE+DRAIN.
func StateOf(node *apiv1.NodeInfo) nodeState {
	parts := strings.Split(cmp.Or(node.GetState(), "UNKNOWN"), "+")
	return nodeState{parts[0], parts[1:]}
}

func (s nodeState) Has(flag string) bool { return slices.Contains(s.flags, flag) }

// isBusy tells a node on which jobs run or are being cleaned up.
func (s nodeState) isBusy() bool {
	return s.base == "ALLOCATED" || s.base == "MIXED" || s.Has("COMPLETING")
}

// Out tells a node that takes no jobs.
func (s nodeState) Out() bool {
	switch s.base {
	case "DOWN", "UNKNOWN", "FUTURE":
		return true
	}
	return s.Has("DRAIN") || s.Has("FAIL")
}

// Words are the long and the short name that sinfo shows, by Slurm's
// precedence: not registered, maintenance, reboot, drain, fail, then the base.
func (s nodeState) Words() (long, short string) {
	switch {
	case s.Has("INVALID_REG"):
		return "inval", "inval"
	case s.Has("MAINTENANCE") && s.base == "IDLE" && !s.Out():
		return "maint", "maint"
	case s.Has("REBOOT_ISSUED"):
		return "reboot", "boot"
	case s.Has("DRAIN") && s.isBusy():
		return "draining", "drng"
	case s.Has("DRAIN"):
		return "drained", "drain"
	case s.Has("FAIL") && s.isBusy():
		return "failing", "failg"
	case s.Has("FAIL"):
		return "fail", "fail"
	}
	switch {
	case s.base == "DOWN":
		return "down", "down"
	case s.base == "ALLOCATED":
		return "allocated", "alloc"
	case s.Has("COMPLETING"):
		return "completing", "comp"
	case s.base == "IDLE" && s.Has("RESERVED"):
		return "reserved", "resv"
	case s.base == "IDLE" && s.Has("PLANNED"):
		return "planned", "plnd"
	case s.base == "IDLE":
		return "idle", "idle"
	case s.base == "MIXED":
		return "mixed", "mix"
	case s.base == "FUTURE":
		return "future", "futr"
	}
	return "unknown", "unk"
}

// Suffix is the mark behind the name.
func (s nodeState) Suffix() string {
	for _, m := range [...][2]string{{"MAINTENANCE", "$"}, {"REBOOT_ISSUED", "^"}, {"REBOOT_REQUESTED", "@"}, {"POWERING_UP", "#"}, {"POWERING_DOWN", "%"},
		{"POWERED_DOWN", "~"}, {"POWER_DOWN", "!"}, {"NOT_RESPONDING", "*"}} {
		if long, _ := s.Words(); s.Has(m[0]) && long != "maint" {
			return m[1]
		}
	}
	if s.Has("PLANNED") && s.base != "IDLE" {
		return "-"
	}
	return ""
}

// Rank orders states as Slurm's numbers do: flags weigh more than the base.
func (s nodeState) Rank() int {
	n := slices.Index(
		[]string{"UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE"},
		s.base,
	)
	for i, f := range [...]string{"DRAIN", "COMPLETING", "NOT_RESPONDING", "POWERED_DOWN", "FAIL", "MAINTENANCE", "REBOOT_REQUESTED", "PLANNED", "INVALID_REG", "POWER_DOWN", "POWERING_DOWN", "POWERING_UP",
		"REBOOT_ISSUED", "CLOUD", "DYNAMIC_NORM"} {
		if s.Has(f) {
			n += 16 << i
		}
	}
	return n
}

// Matches tells whether a node is in a state as -t names it.
func (s nodeState) Matches(word string) bool {
	long, short := s.Words()
	switch word {
	case "all":
		return true
	case "drain":
		return s.Has("DRAIN")
	case "fail":
		return s.Has("FAIL")
	case "down":
		return s.base == "DOWN"
	case "alloc", "allocated": // also where only a part of the node is, as in Slurm
		return long == "allocated" || long == "mixed"
	case "comp", "completing":
		return s.Has("COMPLETING")
	case "no_respond", "not_responding":
		return s.Has("NOT_RESPONDING")
	case "planned", "plnd":
		return s.Has("PLANNED")
	case "cloud", "powering_up", "powering_down", "powered_down":
		return s.Has(strings.ToUpper(word))
	case "power_down", "pow_dn":
		return s.Has("POWER_DOWN") || s.Has("POWERING_DOWN") || s.Has("POWERED_DOWN")
	case "power_up", "pow_up":
		return s.Has("POWER_UP") || s.Has("POWERING_UP")
	case "reboot", "boot":
		return s.Has("REBOOT_REQUESTED") || s.Has("REBOOT_ISSUED")
	}
	return word == long || word == short
}

// NodeStateWords are the states that -t knows; those that no node of this
// release is ever in match nothing.
func NodeStateWords() []string {
	return []string{
		"all",
		"alloc",
		"allocated",
		"blocked",
		"cloud",
		"comp",
		"completing",
		"down",
		"drain",
		"drained",
		"draining",
		"drng",
		"external",
		"fail",
		"failg",
		"failing",
		"futr",
		"future",
		"idle",
		"inval",
		"maint",
		"mix",
		"mixed",
		"no_respond",
		"not_responding",
		"planned",
		"plnd",
		"pow_dn",
		"pow_up",
		"power_down",
		"power_up",
		"powered_down",
		"powering_down",
		"powering_up",
		"reboot",
		"boot",
		"reserved",
		"resv",
		"unk",
		"unknown",
	}
}

// NodeReason is why a node is out, with who said so and when, as scontrol
// shows it.
func NodeReason(node *apiv1.NodeInfo, clock Clock) string {
	if node.GetReason() == "" {
		return ""
	}
	return node.GetReason() + " [" + cmp.Or(node.GetReasonUser(), "unknown") + "@" +
		clock.Time(node.GetReasonTime()) + "]"
}

// Milli writes thousandths with two digits: 0.78.
func Milli(n int64) string {
	if n < 0 {
		return NotAvailable
	}
	hundredths := (n + 5) / 10
	return tool.Itoa(hundredths/100) + "." +
		string([]byte{byte('0' + hundredths/10%10), byte('0' + hundredths%10)})
}

// AvailableFeatures are all features that a node may have.
func AvailableFeatures(node *apiv1.NodeInfo) []string {
	if a := node.GetAvailableFeatures(); len(a) > 0 {
		return a
	}
	return node.GetFeatures()
}

// NodeGroup is one line of sinfo: nodes of a partition that look the same in
// the columns that are shown.
type NodeGroup struct {
	Part  *apiv1.PartitionInfo // the first one where the columns do not tell partitions apart
	Nodes []*apiv1.NodeInfo    // each once; empty for a partition without nodes
}

// NodeView is how nodes are shown.
type NodeView struct {
	Clock
	Cluster string
	UID     func(name string) string // "0" for root; "" when it is not known
}

func Extent(group *NodeGroup, get func(n *apiv1.NodeInfo) int64) (lo, hi int64) {
	for i, node := range group.Nodes {
		x := get(node)
		if i == 0 || x < lo {
			lo = x
		}
		if i == 0 || x > hi {
			hi = x
		}
	}
	return lo, hi
}
