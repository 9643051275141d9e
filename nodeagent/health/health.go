// Package health judges a node by what was measured on it: a table of rules, each
// with a limit and with what follows when it is exceeded.
//
// Probes give Readings (nodeagent/telemetry/host takes them), Judge compares them
// with the rules, and the agent reports what fails. The same table is what
// muster.yaml accepts, what docs/node-health.md lists, and what the metrics and the
// alert name.
package health

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Action is what follows from a rule that fails.
type Action uint8

// The actions. All but Off show in the metrics and fire an alert.
const (
	Off   Action = iota // not measured against the limit
	Warn                // the node goes on taking jobs
	Drain               // the node takes no jobs until the rule holds again
)

// String is the action as muster.yaml has it.
func (a Action) String() string {
	switch a {
	case Off:
		return "off"
	case Warn:
		return "warn"
	case Drain:
		return "drain"
	}
	return "unknown"
}

// Rule is one thing that can be wrong with a node.
type Rule struct {
	Name   string
	Action Action
	// Limit is in Unit. The rule fails for values above it, or below it if Below.
	Limit int64
	Below bool
	Unit  string // %, s, ms, or empty for a count
	// Margin is by how much a value must be on the right side of the limit before a
	// rule that has failed holds again, so that a node does not come and go.
	Margin int64
	Says   string // what the value is, behind the subject: "has free"
	Help   string // for docs/node-health.md
	Back   string // when the rule holds again
}

// Rules are all rules with their defaults, by name.
//
//muster:table one row for each rule
func Rules() []Rule {
	const (
		byReset = "after the GPU was reset, or the node restarted"
		byBoot  = "after a restart of the node, which resets the counter"
		atOnce  = "at the next measurement"
	)
	return []Rule{
		{Name: "clock_error", Action: Warn, Limit: 1000, Unit: "ms", Says: "may be wrong by",
			Help: "the kernel's bound on the error of the clock; without a time service it grows to 16 s", Back: atOnce},
		{Name: "disk_answer", Action: Drain, Limit: 30, Unit: "s", Says: "has not answered for",
			Help: "time for which a file system has not answered: a file server that hangs (NFS, Lustre, Ceph, GPFS, BeeGFS), or a broken disk", Back: atOnce},
		{Name: "disk_inodes", Action: Drain, Limit: 1, Below: true, Unit: "%", Margin: 1, Says: "has free inodes",
			Help: "free inodes of the file systems on which the agent and jobs keep files", Back: "1 % above the limit"},
		{Name: "disk_readonly", Action: Drain, Limit: 0, Says: "is read-only:",
			Help: "1 if such a file system is mounted read-only, as the kernel does after errors", Back: atOnce},
		{Name: "disk_space", Action: Drain, Limit: 2, Below: true, Unit: "%", Margin: 1, Says: "has free space",
			Help: "free space of the file systems on which the agent and jobs keep files", Back: "1 % above the limit"},
		{Name: "gpu_remap_failed", Action: Drain, Limit: 0, Says: "row remapping failed:",
			Help: "1 if a GPU could not replace a bad row of its memory: replace the GPU", Back: byReset},
		{Name: "gpu_remap_pending", Action: Warn, Limit: 0, Says: "row remapping pending:",
			Help: "1 if a GPU will replace a bad row of its memory at its next reset", Back: byReset},
		{Name: "gpu_throttled", Action: Warn, Limit: 300, Unit: "s", Says: "slowed down by heat or power for",
			Help: "time for which heat or the power brake has reduced a GPU's clocks without interruption", Back: atOnce},
		{Name: "ib_port", Action: Drain, Limit: 60, Unit: "s", Says: "has been down for",
			Help: "time for which an InfiniBand or RoCE port has been down, if it was active since the agent started", Back: atOnce},
		{Name: "memory_corrected", Action: Warn, Limit: 1000, Says: "corrected errors:",
			Help: "corrected errors of a memory controller since the start of the node (EDAC)", Back: byBoot},
		{Name: "memory_uncorrected", Action: Drain, Limit: 0, Says: "uncorrected errors:",
			Help: "uncorrected errors of a memory controller since the start of the node (EDAC)", Back: byBoot},
		{Name: "nvlink_recoveries", Action: Warn, Limit: 0, Says: "NVLink recoveries:",
			Help: "number of times that links of a GPU went down and recovered since the driver was loaded", Back: byReset},
		{Name: "stuck_tasks", Action: Warn, Limit: 600, Unit: "s", Says: "waits uninterruptibly for",
			Help: "longest time for which one process was in uninterruptible sleep (state D) at every measurement", Back: atOnce},
	}
}

// ErrRule is wrapped by the errors of Configure.
var ErrRule = errors.New("health rule")

// Configure gives the rules with a site's changes, each "NAME ACTION" or
// "NAME ACTION LIMIT" with the limit in the rule's unit: "disk_space warn 5%".
func Configure(changes []string) ([]Rule, error) {
	rules := Rules()
	seen := map[string]bool{}
	var problems []error
	for _, text := range changes {
		err := change(rules, seen, text)
		if err != nil {
			problems = append(problems, fmt.Errorf("%w %q: %w", ErrRule, text, err))
		}
	}
	return rules, errors.Join(problems...)
}

// change makes one of a site's changes.
func change(rules []Rule, seen map[string]bool, text string) error {
	words := strings.Fields(text)
	if len(words) < 2 || len(words) > 3 {
		return errors.New("expected NAME ACTION [LIMIT], such as disk_space warn 5%")
	}
	i := slices.IndexFunc(rules, func(r Rule) bool { return r.Name == words[0] })
	if i < 0 {
		return fmt.Errorf("no rule %s; there is %s", words[0], strings.Join(Names(), ", "))
	}
	if seen[words[0]] {
		return errors.New("the rule is named twice")
	}
	seen[words[0]] = true
	rule := &rules[i]
	action := slices.IndexFunc(
		[]Action{Off, Warn, Drain},
		func(a Action) bool { return a.String() == words[1] },
	)
	if action < 0 {
		return fmt.Errorf("no action %s: use off, warn or drain", words[1])
	}
	rule.Action = Action(action)
	if len(words) == 2 {
		return nil
	}
	digits, hasUnit := strings.CutSuffix(words[2], rule.Unit)
	limit, err := strconv.ParseInt(digits, 10, 64)
	tooMuch := rule.Unit == "%" && limit > 100-rule.Margin
	if err != nil || !hasUnit || limit < 0 || tooMuch {
		return fmt.Errorf("invalid limit %s: expected a value such as %s", words[2], rule.format(rule.Limit))
	}
	rule.Limit = limit
	return nil
}

// Names are the names of all rules.
func Names() []string {
	var names []string
	for _, rule := range Rules() {
		names = append(names, rule.Name)
	}
	return names
}

// Reading is one measured value.
type Reading struct {
	Rule    string
	Subject string // a file system, a device, a process; the clock
	Value   int64  // in the rule's unit
}

// Finding is a rule that fails.
type Finding struct {
	Rule    Rule
	Subject string
	Value   int64
}

// In tells whether the same subject fails the same rule in a list.
func (f Finding) In(list []Finding) bool { return f.find(list) >= 0 }

// find is the place of the same rule and subject in a list, or -1.
func (f Finding) find(list []Finding) int {
	return slices.IndexFunc(list, func(other Finding) bool {
		return other.Rule.Name == f.Rule.Name && other.Subject == f.Subject
	})
}

// String names rule, subject, value and limit.
func (f Finding) String() string {
	side := "above"
	if f.Rule.Below {
		side = "below"
	}
	return fmt.Sprintf("%s: %s %s %s (%s %s)", f.Rule.Name, f.Subject, f.Rule.Says,
		f.Rule.format(f.Value), side, f.Rule.format(f.Rule.Limit))
}

func (r Rule) format(value int64) string {
	text := strconv.FormatInt(value, 10)
	if r.Unit != "" {
		text += r.Unit
	}
	return text
}

// fails tells whether a value breaks the rule; failed is whether it did before.
func (r Rule) fails(value int64, failed bool) bool {
	limit := r.Limit
	if r.Below {
		if failed {
			limit += r.Margin
		}
		return value < limit
	}
	if failed {
		limit -= r.Margin
	}
	return value > limit
}

// Judge gives the rules that fail, by name and subject. What failed before fails
// until its value is beyond the margin. A subject without a reading is not judged:
// a file system that was unmounted is nobody's concern.
func Judge(rules []Rule, readings []Reading, before []Finding) []Finding {
	var found []Finding
	for _, rule := range rules {
		if rule.Action == Off {
			continue
		}
		for _, reading := range readings {
			if reading.Rule != rule.Name {
				continue
			}
			finding := Finding{Rule: rule, Subject: reading.Subject, Value: reading.Value}
			if rule.fails(reading.Value, finding.In(before)) {
				found = append(found, finding)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		if c := strings.Compare(a.Rule.Name, b.Rule.Name); c != 0 {
			return c
		}
		return strings.Compare(a.Subject, b.Subject)
	})
	return found
}

// Worst is the reading of a rule that is nearest to its limit, or furthest beyond.
func Worst(rule Rule, readings []Reading) (Reading, bool) {
	var worst Reading
	has := false
	for _, reading := range readings {
		if reading.Rule != rule.Name {
			continue
		}
		worse := reading.Value > worst.Value
		if rule.Below {
			worse = reading.Value < worst.Value
		}
		if !has || worse {
			worst, has = reading, true
		}
	}
	return worst, has
}

// Reason is why the node takes no jobs, and what brings it back; empty where it does. A node that goes on
// failing keeps the values with which it began to, so that the controller is told
// what is new and not each change of a figure.
func Reason(found, before []Finding) string {
	var parts []string
	for _, finding := range found {
		if finding.Rule.Action != Drain {
			continue
		}
		if i := finding.find(before); i >= 0 {
			finding = before[i]
		}
		parts = append(parts, finding.String()+", holds again "+finding.Rule.Back)
	}
	return strings.Join(parts, "; ")
}

// Keep gives what was found with the values of what was found before, so that a
// later Reason says the same of what goes on failing.
func Keep(found, before []Finding) []Finding {
	kept := slices.Clone(found)
	for i := range kept {
		if at := kept[i].find(before); at >= 0 {
			kept[i].Value = before[at].Value
		}
	}
	return kept
}

// Markdown is docs/node-health.md.
func Markdown() string {
	var text strings.Builder
	text.WriteString(`# Node health

<!-- Written by go run ./docs/gen from health.Rules. -->

Each agent measures its node every ` + "`health.interval`" + ` of muster.yaml (60 s) and checks the rules below. A rule that fails has
one of these actions:

- ` + "`drain`" + `: the node takes no new jobs; running jobs continue. The reason in ` + "`sinfo -R`, `scontrol show node` and `muster why`" + ` names the rule, the
  subject, the value, the limit and when the rule holds again: ` + "`Health check: disk_space: /tmp has free space 1% (below 2%), holds again 1 % above the limit`" + `. When all such rules hold again, the
  node returns to service without a command. A node that an administrator has drained stays drained.
- ` + "`warn`" + `: the node still takes jobs.
- ` + "`off`" + `: the rule is not checked.

A rule that fails with ` + "`drain` or `warn` shows in `muster_node_health_failed`, its action in `muster_node_health_rule_info` and its worst value in `muster_node_health_value`" + `, and fires ` + "`MusterNodeUnhealthy`" + `.
Rules are changed by name in muster.yaml, with the limit in the rule's unit; ` + "`paths`" + ` lists further folders whose file systems jobs need:

` + "```yaml\nhealth:\n  interval: 60s\n  rules: [\"disk_space warn 5%\", \"clock_error drain 500ms\", \"stuck_tasks off\"]\n  paths: [\"/scratch\"]\n```" + `

| rule | fails | action | measures | holds again |
|---|---|---|---|---|
`)
	for _, rule := range Rules() {
		side := "above"
		if rule.Below {
			side = "below"
		}
		fmt.Fprintf(&text, "| `%s` | %s %s | %s | %s | %s |\n",
			rule.Name, side, rule.format(rule.Limit), rule.Action, rule.Help, rule.Back)
	}
	text.WriteString(`
The disk rules check the file systems of the agent's state folder, ` + "`/tmp`, `BasePath` of job_container.conf, and `health.paths`" + `. For mounted
shared file systems only ` + "`disk_answer`" + ` is checked, because a full file server is not the fault of a node. A folder in
` + "`health.paths`" + ` that does not exist is skipped.

Lost GPUs, fatal XIDs and uncorrectable memory errors of GPUs are not rules here: they are recorded with the job that they
hit, and ` + "`gpu.on_fault`" + ` sets whether they drain the node. Such a node stays drained until an administrator resumes it.

` + "`HealthCheckProgram`" + ` of slurm.conf runs in addition to the rules. A node is healthy when both find no problem.
`)
	return text.String()
}
