package slurmconf

import (
	"strings"

	"github.com/musterhpc/muster/spec"
)

// partDraft is a PartitionName record before its nodes are known.
type partDraft struct {
	spec.PartitionSpec
	at, nodesAt Setting
	topologyAt  Setting
	fencingAt   Setting
	nodes       string
	haveTier    bool // PriorityTier, PriorityJobFactor: given under their own names
	haveFactor  bool
}

// partKeys are the keys of a PartitionName record.
//
//muster:table one row for each key
func partKeys() []key[partDraft] {
	oversubscribe := func(d *partDraft, v value) { setOversubscribe(d, v) }
	return []key[partDraft]{
		{"PartitionName", implemented, "", "", func(d *partDraft, v value) { d.at, d.Name = v.Setting, v.Value }},
		{"AllocNodes", refused, "ALL", "jobs could be submitted from any host", nil},
		{"AllowAccounts", implemented, "", "", listOrAll(func(d *partDraft) *[]string { return &d.AllowAccounts })},
		{"AllowGroups", implemented, "", "", listOrAll(func(d *partDraft) *[]string { return &d.AllowGroups })},
		{"AllowQos", implemented, "", "", listOrAll(func(d *partDraft) *[]string { return &d.AllowQOS })},
		{"Alternate", unsupported, "", "a job waits in the partition that it names", nil},
		{"CpuBind", unsupported, "none", "tasks are bound to the cores of their job only", nil},
		{"Default", implemented, "", "", setBool(func(d *partDraft) *bool { return &d.Default })},
		{"DefaultTime", implemented, "", "", func(draft *partDraft, v value) {
			if v.isOff("NONE") {
				draft.DefaultTime = 0
				return
			}
			setDuration(func(d *partDraft) *spec.Span { return &d.DefaultTime })(draft, v)
		}},
		{"DefCpuPerGPU", implemented, "", "", setCount(func(d *partDraft) *int64 { return &d.DefCPUPerGPU }, 0)},
		{"DefMemPerCPU", implemented, "", "", setMemory(func(d *partDraft) *int64 { return &d.DefMemPerCPU })},
		{"DefMemPerGPU", implemented, "", "", setMemory(func(d *partDraft) *int64 { return &d.DefMemPerGPU })},
		{"DefMemPerNode", implemented, "", "", setMemory(func(d *partDraft) *int64 { return &d.DefMemPerNode })},
		{"DenyAccounts", implemented, "", "", setList(func(d *partDraft) *[]string { return &d.DenyAccounts })},
		{"DenyQos", implemented, "", "", setList(func(d *partDraft) *[]string { return &d.DenyQOS })},
		{"DisableRootJobs", implemented, "", "", setBool(func(d *partDraft) *bool { return &d.DisableRootJobs })},
		{"ExclusiveTopo", implemented, "", "", setBool(func(d *partDraft) *bool { return &d.ExclusiveTopo })},
		{"ExclusiveUser", implemented, "", "", setBool(func(d *partDraft) *bool { return &d.ExclusiveUser })},
		// Muster's own: see spec.FencingPolicy
		{"FencingPolicy", implemented, "", "", func(draft *partDraft, v value) {
			if policy, ok := readFencing(v); ok {
				draft.Fencing, draft.fencingAt = &policy, v.Setting
			}
		}},
		{"GraceTime", implemented, "", "", setSpan(func(d *partDraft) *spec.Span { return &d.GraceTime }, spec.Second)},
		{"Hidden", implemented, "", "", setBool(func(d *partDraft) *bool { return &d.Hidden })},
		{"JobDefaults", implemented, "", "", setJobDefaults(func(d *partDraft) (gpuCPU, gpuMem *int64) { return &d.DefCPUPerGPU, &d.DefMemPerGPU })},
		{"LLN", implemented, "", "", setBool(func(d *partDraft) *bool { return &d.LLN })},
		{"MaxCPUsPerNode", implemented, "", "", setCount(func(d *partDraft) *int64 { return &d.MaxCPUsPerNode }, 1)},
		{"MaxCPUsPerSocket", refused, "UNLIMITED|INFINITE", "CPUs per socket would not be limited", nil},
		{"MaxMemPerCPU", implemented, "", "", setMemory(func(d *partDraft) *int64 { return &d.MaxMemPerCPU })},
		{"MaxMemPerNode", implemented, "", "", setMemory(func(d *partDraft) *int64 { return &d.MaxMemPerNode })},
		{"MaxNodes", implemented, "", "", setNumber(func(d *partDraft) *uint32 { return &d.MaxNodes }, 1, 1<<31, 0)},
		{"MaxTime", implemented, "", "", setDuration(func(d *partDraft) *spec.Span { return &d.MaxTime })},
		{"MinNodes", implemented, "", "", setNumber(func(d *partDraft) *uint32 { return &d.MinNodes }, 0, 1<<31, noUnlimited)},
		{"Nodes", implemented, "", "", func(d *partDraft, v value) { d.nodes, d.nodesAt = v.Value, v.Setting }},
		{"OverSubscribe", implemented, "", "", oversubscribe},
		{"OverTimeLimit", implemented, "", "", setSpan(func(d *partDraft) *spec.Span { return &d.OverTimeLimit }, spec.Minute)},
		{"PowerDownOnIdle", implemented, "", "", setBool(func(d *partDraft) *bool { return &d.PowerDownOnIdle })},
		{"PreemptMode", implemented, "", "", func(draft *partDraft, v value) {
			if w, ok := v.parseWord("OFF|CANCEL|REQUEUE|SUSPEND|GANG"); ok {
				draft.PreemptMode = w
			}
		}},
		{"Priority", implemented, "", "", setOldPriority},
		{"PriorityJobFactor", implemented, "", "", func(draft *partDraft, v value) {
			if n, ok := v.parseInteger(0, 65533); ok {
				draft.PriorityJobFactor, draft.haveFactor = uint32(n), true
			}
		}},
		{"PriorityTier", implemented, "", "", func(draft *partDraft, v value) {
			if n, ok := v.parseInteger(0, 65533); ok {
				draft.PriorityTier, draft.haveTier = uint32(n), true
			}
		}},
		{"QOS", implemented, "", "", setText(func(d *partDraft) *string { return &d.QOS })},
		{"ReqResv", implemented, "", "", setBool(func(d *partDraft) *bool { return &d.ReqResv })},
		{"ResumeTimeout", implemented, "", "", setSpan(func(d *partDraft) *spec.Span { return &d.ResumeTimeout }, spec.Second)},
		{"RootOnly", implemented, "", "", setBool(func(d *partDraft) *bool { return &d.RootOnly })},
		{"SelectTypeParameters", unsupported, "NONE", "SelectTypeParameters of the cluster apply", nil},
		{"Shared", implemented, "", "", func(draft *partDraft, v value) {
			v.noteValue("old name of OverSubscribe")
			oversubscribe(draft, v)
		}},
		{"State", implemented, "", "", func(draft *partDraft, v value) {
			switch w, _ := v.parseWord("UP|DOWN|DRAIN|INACTIVE"); w {
			case "UP":
				draft.State = spec.PartitionUp
			case "DOWN":
				draft.State = spec.PartitionDown
			case "DRAIN":
				draft.State = spec.PartitionDrain
			case "INACTIVE":
				draft.State = spec.PartitionInactive
			}
		}},
		{"SuspendTime", implemented, "", "", idleTime(func(d *partDraft) *spec.Span { return &d.SuspendTime }, spec.Infinite)},
		{"SuspendTimeout", implemented, "", "", setSpan(func(d *partDraft) *spec.Span { return &d.SuspendTimeout }, spec.Second)},
		{"Topology", implemented, "", "", func(d *partDraft, v value) { d.PartitionSpec.Topology, d.topologyAt = v.Value, v.Setting }},
		{"TRESBillingWeights", implemented, "", "", func(d *partDraft, v value) { d.BillingWeights = v.parseWeights(true, false) }},
		{"TRESWeights", meaningless, "", "Slurm replaced it by TRESBillingWeights", nil},
	}
}

// setOldPriority maps Priority, which Slurm split into two keys.
func setOldPriority(draft *partDraft, v value) {
	n, ok := v.parseInteger(0, 65533)
	if !ok {
		return
	}
	v.noteValue(
		"old name: read as PriorityTier=%d PriorityJobFactor=%d, unless they are given",
		n,
		n,
	)
	if !draft.haveTier {
		draft.PriorityTier = uint32(n)
	}
	if !draft.haveFactor {
		draft.PriorityJobFactor = uint32(n)
	}
}

func setOversubscribe(draft *partDraft, v value) {
	word, times, counted := strings.Cut(v.Value, ":")
	inner := v
	inner.Value = word
	w, ok := inner.parseWord("NO|YES|FORCE|EXCLUSIVE")
	if !ok {
		return
	}
	if counted {
		inner.Value = times
		if w == "NO" || w == "EXCLUSIVE" {
			v.failValue("%s takes no count", w)
			return
		}
		if _, ok := inner.parseInteger(1, 65533); !ok {
			return
		}
		w += ":" + times
	}
	draft.OverSubscribe = w
}
