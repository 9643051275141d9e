package replay

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// Rules are the policies that a trace can be replayed by. The classic ones are
// first come, first served underneath.
func Rules() []Rule {
	const all = 1 << 30
	return []Rule{
		{Name: "fcfs", PerEvent: true, Discipline: scheduler.Discipline{Depth: 1, Strict: true}},
		{Name: "easy", PerEvent: true, Discipline: scheduler.Discipline{Depth: 1}},
		{
			Name:       "easy-sjbf",
			PerEvent:   true,
			Discipline: scheduler.Discipline{Depth: 1, Shortest: true},
		},
		{
			Name:       "conservative",
			PerEvent:   true,
			Keep:       true,
			Discipline: scheduler.Discipline{Depth: all},
		},
		{Name: "muster"},
	}
}

// RuleNamed finds a rule.
func RuleNamed(name string) (Rule, error) {
	var names []string
	for _, rule := range Rules() {
		if rule.Name == name {
			return rule, nil
		}
		names = append(names, rule.Name)
	}
	return Rule{}, fmt.Errorf("unknown policy %q: %s are there", name, strings.Join(names, ", "))
}

// Settings are what belongs to a rule on a machine without a configuration of
// its own: that of `muster init` for muster, first come, first served for the
// others.
func (r Rule) Settings() Settings {
	if r.PerEvent {
		return Settings{Priority: spec.PriorityConfig{Basic: true}}
	}
	return Settings{
		Priority: spec.PriorityConfig{Age: 1000, Partition: 1000, QOS: 2000},
		Firm:     1,
		Predict:  true,
	}
}

// Settings are the order of a queue, and who may overtake whom.
type Settings struct {
	Priority spec.PriorityConfig
	Firm     uint32
	Predict  bool // see spec.SchedConfig.PredictRuns
}
