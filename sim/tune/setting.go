package tune

import (
	"errors"
	"fmt"
	"strings"

	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// Setting is a candidate: options of SchedulerParameters, and their values.
type Setting []spec.KeyValue

// Candidates are the settings that are tried where none are named. They change
// how jobs are planned, never who goes first: priorities, fair share and limits
// are a site's policy, which no replay can judge.
func Candidates() []Setting {
	var settings []Setting
	add := func(firm, promise, slack string) {
		setting := Setting{{Key: "bf_firm", Value: firm}, {Key: "bf_promise", Value: promise}}
		if slack != "" {
			setting = append(setting, spec.KeyValue{Key: "bf_promise_slack", Value: slack})
		}
		settings = append(settings, setting)
	}
	add("0", "limit", "")
	add("1", "limit", "")
	add("1", "prediction", "10")
	add("1", "prediction", "1")
	add("1", "prediction", "50")
	add("2", "prediction", "10")
	add("4", "prediction", "10")
	add("16", "prediction", "10")
	return settings
}

// ParseSetting reads a setting as slurm.conf writes it.
func ParseSetting(text string) (Setting, error) {
	var setting Setting
	for item := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok || key == "" || value == "" {
			return nil, fmt.Errorf("%q is not of the form KEY=VALUE", item)
		}
		setting = append(setting, spec.KeyValue{Key: key, Value: value})
	}
	_, err := slurmconf.ChangeScheduler(&spec.Config{}, setting)
	return setting, err
}

// String writes a setting as slurm.conf does.
func (s Setting) String() string {
	words := make([]string, len(s))
	for i, kv := range s {
		words[i] = kv.Key + "=" + kv.Value
	}
	return strings.Join(words, ",")
}

// Apply is a configuration with a setting.
func (s Setting) Apply(config *spec.Config) (*spec.Config, error) {
	return slurmconf.ChangeScheduler(config, s)
}

// Line is SchedulerParameters of a configuration as slurm.conf has it.
func Line(config *spec.Config) string {
	return "SchedulerParameters=" + strings.Join(config.Sched.Params, ",")
}

// effect is what of a configuration a setting can change, as one comparable
// text: two settings of the same effect are replayed once.
func effect(config *spec.Config) string {
	sched := config.Sched
	sched.Params = nil
	if sched.PredictRuns && sched.PromiseSlack == 0 {
		sched.PromiseSlack = defaultSlack
	}
	if !sched.PredictRuns {
		sched.PromiseSlack = 0
	}
	return fmt.Sprintf("%+v %d %d", sched, config.Limits.UserShare, config.Limits.MaxScript)
}

// defaultSlack is bf_promise_slack where none is configured, in percent.
const defaultSlack = 10

// errSameAsInForce tells that no candidate differs from what is in force.
var errSameAsInForce = errors.New("every setting to try has the effect of the one in force")
