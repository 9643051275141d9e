package cli

import (
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// nodeState is a node's state taken apart: BASE and its flags.
type nodeState struct {
	base  string
	flags []string
}

// stateOf reads IDLE+DRAIN.
func stateOf(n *apiv1.NodeInfo) nodeState {
	parts := strings.Split(or(n.GetState(), "UNKNOWN"), "+")
	return nodeState{parts[0], parts[1:]}
}

func (s nodeState) has(flag string) bool { return slices.Contains(s.flags, flag) }

// busy tells a node on which jobs run or are being cleaned up.
func (s nodeState) busy() bool {
	return s.base == "ALLOCATED" || s.base == "MIXED" || s.has("COMPLETING")
}

// out tells a node that takes no jobs.
func (s nodeState) out() bool {
	return s.base == "DOWN" || s.base == "UNKNOWN" || s.base == "FUTURE" || s.has("DRAIN") || s.has("FAIL")
}

// words are the long and the short name that sinfo shows, by Slurm's
// precedence: not registered, maintenance, reboot, drain, fail, then the base.
func (s nodeState) words() (long, short string) {
	switch {
	case s.has("INVALID_REG"):
		return "inval", "inval"
	case s.has("MAINTENANCE") && s.base == "IDLE" && !s.out():
		return "maint", "maint"
	case s.has("REBOOT_ISSUED"):
		return "reboot", "boot"
	case s.has("DRAIN") && s.busy():
		return "draining", "drng"
	case s.has("DRAIN"):
		return "drained", "drain"
	case s.has("FAIL") && s.busy():
		return "failing", "failg"
	case s.has("FAIL"):
		return "fail", "fail"
	}
	switch {
	case s.base == "DOWN":
		return "down", "down"
	case s.base == "ALLOCATED":
		return "allocated", "alloc"
	case s.has("COMPLETING"):
		return "completing", "comp"
	case s.base == "IDLE" && s.has("RESERVED"):
		return "reserved", "resv"
	case s.base == "IDLE" && s.has("PLANNED"):
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

// suffix is the mark behind the name.
func (s nodeState) suffix() string {
	for _, m := range [...][2]string{{"MAINTENANCE", "$"}, {"REBOOT_ISSUED", "^"}, {"REBOOT_REQUESTED", "@"}, {"POWERING_UP", "#"}, {"POWERING_DOWN", "%"},
		{"POWERED_DOWN", "~"}, {"POWER_DOWN", "!"}, {"NOT_RESPONDING", "*"}} {
		if long, _ := s.words(); s.has(m[0]) && long != "maint" {
			return m[1]
		}
	}
	if s.has("PLANNED") && s.base != "IDLE" {
		return "-"
	}
	return ""
}

// rank orders states as Slurm's numbers do: flags weigh more than the base.
func (s nodeState) rank() int {
	n := slices.Index([]string{"UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE"}, s.base)
	for i, f := range [...]string{"DRAIN", "COMPLETING", "NOT_RESPONDING", "POWERED_DOWN", "FAIL", "MAINTENANCE", "REBOOT_REQUESTED", "PLANNED", "INVALID_REG", "POWER_DOWN", "POWERING_DOWN", "POWERING_UP",
		"REBOOT_ISSUED", "CLOUD", "DYNAMIC_NORM"} {
		if s.has(f) {
			n += 16 << i
		}
	}
	return n
}

// matches tells whether a node is in a state as -t names it.
func (s nodeState) matches(word string) bool {
	long, short := s.words()
	switch word {
	case "all":
		return true
	case "drain":
		return s.has("DRAIN")
	case "fail":
		return s.has("FAIL")
	case "down":
		return s.base == "DOWN"
	case "comp", "completing":
		return s.has("COMPLETING")
	case "no_respond", "not_responding":
		return s.has("NOT_RESPONDING")
	case "planned", "plnd":
		return s.has("PLANNED")
	case "cloud", "powering_up", "powering_down", "powered_down":
		return s.has(strings.ToUpper(word))
	case "power_down", "pow_dn":
		return s.has("POWER_DOWN") || s.has("POWERING_DOWN") || s.has("POWERED_DOWN")
	case "power_up", "pow_up":
		return s.has("POWER_UP") || s.has("POWERING_UP")
	case "reboot", "boot":
		return s.has("REBOOT_REQUESTED") || s.has("REBOOT_ISSUED")
	}
	return word == long || word == short
}

// nodeStateWords are the states that -t knows; those that no node of this
// release is ever in match nothing.
func nodeStateWords() []string {
	return []string{"all", "alloc", "allocated", "blocked", "cloud", "comp", "completing", "down", "drain", "drained", "draining", "drng", "external",
		"fail", "failg", "failing", "futr", "future", "idle", "inval", "maint", "mix", "mixed", "no_respond", "not_responding", "planned", "plnd",
		"pow_dn", "pow_up", "power_down", "power_up", "powered_down", "powering_down", "powering_up", "reboot", "boot", "reserved", "resv", "unk", "unknown"}
}

// nodeReason is why a node is out, with who said so and when, as scontrol
// shows it.
func nodeReason(n *apiv1.NodeInfo, k clock) string {
	if n.GetReason() == "" {
		return ""
	}
	return n.GetReason() + " [" + or(n.GetReasonUser(), "unknown") + "@" + k.time(n.GetReasonTime()) + "]"
}

// milli writes thousandths with two digits: 0.78.
func milli(n int64) string {
	if n < 0 {
		return na
	}
	hundredths := (n + 5) / 10
	return itoa(hundredths/100) + "." + string([]byte{byte('0' + hundredths/10%10), byte('0' + hundredths%10)})
}
