package slurmconf

import (
	"errors"
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// ChangeScheduler is a configuration with some options of SchedulerParameters
// set anew, and its other options as they are. An option that would have no
// effect is refused: whoever compares settings would compare a setting with
// itself.
func ChangeScheduler(config *spec.Config, set []spec.KeyValue) (*spec.Config, error) {
	fresh := make([]string, len(set))
	for i, kv := range set {
		same := func(before spec.KeyValue) bool { return strings.EqualFold(before.Key, kv.Key) }
		if slices.ContainsFunc(set[:i], same) {
			return nil, errors.New(kv.Key + " is given twice")
		}
		fresh[i] = kv.Key + "=" + kv.Value
	}
	if err := effective(fresh); err != nil {
		return nil, err
	}
	out := *config
	file := &File{Config: out}
	var problems Problems
	setSchedulerParameters(
		file,
		schedulerLine(replaced(config.Sched.Params, set, fresh), &problems),
	)
	if _, err := describeTyped(&problems); err != nil {
		return nil, err
	}
	return &file.Config, nil
}

// effective refuses options that are unknown, or that nothing here obeys.
func effective(options []string) error {
	var problems Problems
	setSchedulerParameters(&File{}, schedulerLine(options, &problems))
	var bad []error
	for _, problem := range problems {
		bad = append(bad, errors.New(problem.Key+": "+problem.Text))
	}
	return errors.Join(bad...)
}

func schedulerLine(options []string, problems *Problems) value {
	line := Setting{Key: "SchedulerParameters", Value: strings.Join(options, ","), Line: 1}
	return value{Setting: line, problems: problems}
}

// replaced puts each fresh option where its key was, or at the end.
func replaced(options []string, set []spec.KeyValue, fresh []string) []string {
	var out []string
	done := make([]bool, len(set))
	for _, option := range options {
		key, _, _ := strings.Cut(option, "=")
		i := slices.IndexFunc(
			set,
			func(kv spec.KeyValue) bool { return strings.EqualFold(kv.Key, key) },
		)
		switch {
		case i < 0:
			out = append(out, option)
		case !done[i]:
			done[i] = true
			out = append(out, fresh[i])
		}
	}
	for i := range fresh {
		if !done[i] {
			out = append(out, fresh[i])
		}
	}
	return out
}
