package slurmconf

import (
	"slices"

	"github.com/musterhpc/muster/spec"
)

// What jobs inherit of their submission.

// keptLimits are the resource limits that do not travel, by each of the two keys;
// Slurm heeds the exceptions where a file has both.
type keptLimits struct {
	excepts  bool
	listed   Setting
	isListed bool
}

func setPropagate(file *File, v value) {
	names, ok := v.parseLimits()
	if !ok {
		return
	}
	file.kept.isListed = true
	file.kept.listed = v.Setting
	if file.kept.excepts {
		v.noteListIsVoid()
		return
	}
	file.Agent.LimitsKept = without(spec.LimitNames(), names)
}

func setPropagateExcept(file *File, v value) {
	names, ok := v.parseLimits()
	if !ok {
		return
	}
	if file.kept.isListed {
		list := v
		list.Setting = file.kept.listed
		list.noteListIsVoid()
	}
	file.kept.excepts = true
	file.Agent.LimitsKept = names
}

func (v value) noteListIsVoid() {
	v.warnValue("not used: PropagateResourceLimitsExcept is set and takes precedence; remove one of the two")
}

func (v value) parseLimits() ([]string, bool) {
	names, err := spec.ParseLimitNames(v.Value)
	if err != nil {
		v.failValue("%v", err)
		return nil, false
	}
	return names, true
}

// without is a list less the words of another.
func without(list, words []string) []string {
	return slices.DeleteFunc(list, func(word string) bool { return slices.Contains(words, word) })
}

func setPrioProcess(file *File, v value) {
	if n, ok := v.parseInteger(0, 2); ok {
		file.Agent.PrioProcess = uint8(n)
	}
}
