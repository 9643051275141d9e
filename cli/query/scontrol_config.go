package query

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec/format"
)

// configKey is a key of slurm.conf as show config prints it.
type configKey struct {
	name string
	// unset is what holds when the configuration does not name the key.
	unset string
	// unit stands behind a plain number: sec, min, percent.
	unit string
}

// configKeys are the keys whose value holds without being configured. Other
// keys are shown where they are configured.
//
//muster:table one row for each key
func configKeys() []configKey {
	return []configKey{
		{"AccountingStorageEnforce", "none", ""}, {"AccountingStorageTRES", "cpu,mem,energy,node,billing,fs/disk,vmem,pages", ""},
		{"AccountingStorageType", "accounting_storage/slurmdbd", ""}, {"AccountingStoreFlags", render.Null, ""},
		{"BurstBufferType", render.Null, ""}, {"CompleteWait", "0 sec", "sec"}, {"DebugFlags", render.Null, ""}, {"DependencyParameters", render.Null, ""},
		{"DisableRootJobs", "No", ""}, {"EnforcePartLimits", "NO", ""}, {"Epilog", render.Null, ""}, {"EpilogSlurmctld", render.Null, ""}, {"FairShareDampeningFactor", "1", ""},
		{"FirstJobId", "1", ""}, {"GresTypes", render.Null, ""}, {"HealthCheckInterval", "0 sec", "sec"}, {"HealthCheckProgram", render.Null, ""}, {"InactiveLimit", "0 sec", "sec"},
		{"JobCompType", "jobcomp/none", ""}, {"JobDefaults", render.Null, ""}, {"JobFileAppend", "0", ""}, {"JobRequeue", "1", ""}, {"JobSubmitPlugins", render.Null, ""},
		{"KillOnBadExit", "0", ""}, {"KillWait", "30 sec", "sec"}, {"Licenses", render.Null, ""}, {"MailProg", render.Null, ""}, {"MaxArraySize", "1001", ""}, {"MaxBatchRequeue", "5", ""},
		{"MaxJobCount", "10000", ""}, {"MaxJobId", "67043328", ""}, {"MaxMemPerNode", "UNLIMITED", ""}, {"MaxTasksPerNode", "512", ""}, {"MCSPlugin", "mcs/none", ""},
		{"MessageTimeout", "10 sec", "sec"}, {"MinJobAge", "300 sec", "sec"}, {"MpiDefault", "none", ""}, {"OverTimeLimit", "0 min", "min"}, {"PreemptMode", "OFF", ""},
		{"PreemptType", "preempt/none", ""}, {"PriorityCalcPeriod", "00:05:00", "time"}, {"PriorityDecayHalfLife", "7-00:00:00", "time"}, {"PriorityFavorSmall", "No", ""},
		{"PriorityFlags", "", ""}, {"PriorityMaxAge", "7-00:00:00", "time"}, {"PriorityType", "priority/multifactor", ""}, {"PriorityUsageResetPeriod", "NONE", ""},
		{"PriorityWeightAge", "0", ""}, {"PriorityWeightAssoc", "0", ""}, {"PriorityWeightFairShare", "0", ""}, {"PriorityWeightJobSize", "0", ""},
		{"PriorityWeightPartition", "0", ""}, {"PriorityWeightQOS", "0", ""}, {"PriorityWeightTRES", render.Null, ""}, {"PrivateData", "none", ""}, {"Prolog", render.Null, ""},
		{"PrologSlurmctld", render.Null, ""}, {"PropagateResourceLimits", "ALL", ""}, {"RebootProgram", render.Null, ""}, {"RequeueExit", render.Null, ""}, {"RequeueExitHold", render.Null, ""},
		{"ResumeProgram", render.Null, ""}, {"ResvOverRun", "0 min", "min"}, {"ReturnToService", "0", ""}, {"SchedulerParameters", render.Null, ""}, {"SchedulerType", "sched/backfill", ""},
		{"SelectType", "select/cons_tres", ""}, {"SelectTypeParameters", "CR_CORE_MEMORY", ""}, {"SlurmctldParameters", render.Null, ""}, {"SlurmctldTimeout", "120 sec", "sec"},
		{"SlurmdParameters", render.Null, ""}, {"SlurmdTimeout", "300 sec", "sec"}, {"SuspendProgram", render.Null, ""}, {"SuspendTime", "INFINITE", ""}, {"SwitchType", "switch/none", ""},
		{"TaskEpilog", render.Null, ""}, {"TaskProlog", render.Null, ""}, {"TmpFS", "/tmp", ""}, {"TopologyPlugin", "topology/default", ""}, {"TrackWCKey", "No", ""},
		{"UnkillableStepProgram", render.Null, ""}, {"UnkillableStepTimeout", "60 sec", "sec"}, {"UsePam", "No", ""}, {"VSizeFactor", "0 percent", "percent"}, {"WaitTime", "0 sec", "sec"},
	}
}

// mainEntries leaves out the keys of records, which show node and show
// partition print.
func mainEntries(all []*apiv1.ConfigEntry) []*apiv1.ConfigEntry {
	var out []*apiv1.ConfigEntry
	for _, e := range all {
		if e.GetRecord() == "" {
			out = append(out, e)
		}
	}
	return out
}

// showConfig is scontrol show config: every key that was configured, and those
// that hold without, in alphabetical order.
func showConfig(c *tool.Call) error {
	var rep apiv1.GetConfigReply
	if err := c.RPC(tool.MethodGetConfig, &apiv1.GetConfigRequest{}, &rep); err != nil {
		r := tool.ExplainError(err)
		return tool.Fail(1, append(r.Preamble("scontrol"), "slurm_load_ctl_conf error: "+r.Text)...)
	}
	k := render.NewClock(c.Env)
	k.Now = rep.GetNow()
	var b strings.Builder
	fmt.Fprintf(&b, "Configuration data as of %s\n", k.Time(rep.GetNow()))
	for _, line := range configLines(&rep, k) {
		fmt.Fprintf(&b, "%-23s = %s\n", line[0], line[1])
	}
	fmt.Fprintf(&b, "\nSlurmctld(primary) at %s is UP\n", rep.GetController())
	return c.WriteOut([]byte(b.String()))
}

// configLines are the keys and values in the order in which they are printed.
func configLines(rep *apiv1.GetConfigReply, k render.Clock) [][2]string {
	known := map[string]configKey{}
	values := map[string][2]string{}
	for _, key := range configKeys() {
		known[strings.ToLower(key.name)] = key
		values[strings.ToLower(key.name)] = [2]string{key.name, key.unset}
	}
	hosts := 0
	for _, e := range mainEntries(rep.GetEntries()) {
		id, name, val := strings.ToLower(e.GetKey()), e.GetKey(), cmp.Or(e.GetValue(), render.Null)
		if id == "slurmctldhost" || id == "controlmachine" {
			name = fmt.Sprintf("SlurmctldHost[%d]", hosts)
			id = fmt.Sprintf("slurmctldhost[%03d]", hosts)
			hosts++
		}
		if key, ok := known[id]; ok {
			name, val = key.name, withUnit(val, key.unit)
		}
		values[id] = [2]string{name, val}
	}
	for name, val := range map[string]string{"BOOT_TIME": k.Time(rep.GetBootTime()), "ClusterName": rep.GetCluster(), "NEXT_JOB_ID": tool.Itoa(rep.GetNextJobId()),
		"SLURM_VERSION": tool.SlurmVersion, "MUSTER_VERSION": rep.GetVersion()} {
		values[strings.ToLower(name)] = [2]string{name, val}
	}
	if hosts == 0 {
		values["slurmctldhost[000]"] = [2]string{"SlurmctldHost[0]", rep.GetController()}
	}
	ids := make([]string, 0, len(values))
	for id := range values {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	out := make([][2]string, len(ids))
	for i, id := range ids {
		out[i] = values[id]
	}
	return out
}

// withUnit writes a plain number with its unit, as Slurm does: 300 sec.
func withUnit(val, unit string) string {
	if unit == "" {
		return val
	}
	if unit == "time" {
		if sec, err := format.ParseDuration(val); err == nil {
			return format.Duration(sec)
		}
		return val
	}
	if tool.LeadingDigits(val) == len(val) && val != "" {
		return val + " " + unit
	}
	return val
}
