package slurmconf

import (
	"path"
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// powerDraft is what slurm.conf says about power, before the nodes and the
// partitions that it names are known.
type powerDraft struct {
	spec.PowerConfig
	given                      bool
	keepAt, partsAt, suspendAt Setting
}

// setProgram stores the path of a program of the site's.
func setProgram(to func(*File) *string) func(*File, value) {
	return func(file *File, v value) {
		if v.isOff("none|(null)") {
			return
		}
		if !path.IsAbs(v.Value) {
			v.failValue("%s is not an absolute path", quoteShort(v.Value))
			return
		}
		*to(file) = v.Value
	}
}

// markPowerSaving marks that a key of power saving was given.
func markPowerSaving(set func(*File, value)) func(*File, value) {
	return func(file *File, v value) {
		file.power.given = true
		set(file, v)
	}
}

// idleTime reads SuspendTime: seconds, or a word or -1 for never.
func idleTime[T any](to func(*T) *spec.Span, never spec.Span) func(*T, value) {
	return func(d *T, v value) {
		if v.isOff("-1|INFINITE|UNLIMITED|NONE") {
			*to(d) = never
			return
		}
		if n, ok := v.parseInteger(0, 1<<31); ok {
			*to(d) = spec.Seconds(n)
		}
	}
}

// setKeepNodes reads SuspendExcNodes=nid[1-9]:4,login1.
func setKeepNodes(file *File, v value) {
	file.power.Keep, file.power.keepAt = nil, v.Setting
	depth, from := 0, 0
	for i := 0; i <= len(v.Value); i++ {
		switch {
		case i < len(v.Value) && v.Value[i] == '[':
			depth++
		case i < len(v.Value) && v.Value[i] == ']':
			depth--
		case i == len(v.Value) || (v.Value[i] == ',' && depth == 0):
			keep(file, v, v.Value[from:i])
			from = i + 1
		}
	}
}

func keep(file *File, v value, item string) {
	expr, most, counted := strings.Cut(item, ":")
	keepUp := spec.KeepUp{}
	if counted {
		inner := v
		inner.Value = most
		n, ok := inner.parseInteger(1, 1<<31)
		if !ok {
			return
		}
		keepUp.N = n
	}
	var err error
	keepUp.Nodes, err = hostlist.Expand(expr)
	if err != nil || len(keepUp.Nodes) == 0 {
		v.failValue("%s is no list of nodes", quoteShort(expr))
		return
	}
	file.power.Keep = append(file.power.Keep, keepUp)
}

// setKeepStates reads SuspendExcStates.
func setKeepStates(file *File, v value) {
	file.power.KeepStates = nil
	for _, w := range v.splitItems() {
		inner := v
		inner.Value = w
		if text, ok := inner.parseWord(
			"CLOUD|DOWN|DRAIN|DYNAMIC_FUTURE|DYNAMIC_NORM|FAIL|INVALID_REG|MAINTENANCE|NOT_RESPONDING|PERFCTRS|PLANNED|RESERVED",
		); ok {
			switch text {
			case "CLOUD",
				"DOWN",
				"DRAIN",
				"FAIL",
				"INVALID_REG",
				"NOT_RESPONDING",
				"RESERVED",
				"MAINTENANCE":
				file.power.KeepStates = append(file.power.KeepStates, text)
			default:
				inner.warnValue("%s is not supported: no node is kept up for it", text)
			}
		}
	}
}

// finishPower checks what power saving needs, and adopts it.
func (b *builder) finishPower(names map[string]int) {
	file := b.file
	power := &file.power
	if !power.given {
		return
	}
	for _, keepUp := range power.Keep {
		var unknown []string
		for _, name := range keepUp.Nodes {
			if _, ok := names[name]; !ok {
				unknown = append(unknown, name)
			}
		}
		b.unknownNodes(power.keepAt, unknown)
	}
	for _, name := range power.KeepParts {
		if !slices.ContainsFunc(
			file.Config.Partitions,
			func(s spec.PartitionSpec) bool { return s.Name == name },
		) {
			b.problems.addProblem(
				power.partsAt,
				Error,
				"there is no partition %s",
				quoteShort(name),
			)
		}
	}
	if power.IdleAfter > 0 && !power.On() {
		b.problems.addProblem(
			power.suspendAt,
			Warning,
			"has no effect without both SuspendProgram and ResumeProgram: nodes are not powered down",
		)
	}
	config := power.PowerConfig
	file.Config.Power = &config
}
