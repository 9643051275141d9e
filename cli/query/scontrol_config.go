package query

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
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

// notUsed is the value of keys that tune what Muster does in another way, or not at
// all: docs/compatibility.md says of each how.
const notUsed = "N/A"

// whereConfigured stands for the default of keys that are shown only where the
// configuration has them.
const whereConfigured = "\x00"

// configKeys are the keys in the order in which Slurm prints them, with the values
// that hold without being configured. Keys that are not here follow at the end.
//
//muster:table one row for each key
func configKeys() []configKey {
	return []configKey{
		{"AccountingStorageBackupHost", render.Null, ""}, {"AccountingStorageEnforce", "none", ""}, {"AccountingStorageHost", notUsed, ""},
		{"AccountingStorageExternalHost", render.Null, ""}, {"AccountingStorageParameters", render.Null, ""},
		{"AccountingStoragePort", notUsed, ""}, {"AccountingStorageTRES", "cpu,mem,energy,node,billing,fs/disk,vmem,pages", ""},
		{"AccountingStorageType", "accounting_storage/slurmdbd", ""}, {"AccountingStorageUser", notUsed, ""},
		{"AccountingStoreFlags", render.Null, ""}, {"AcctGatherEnergyType", "acct_gather_energy/gpu", ""},
		{"AcctGatherFilesystemType", render.Null, ""}, {"AcctGatherInterconnectType", render.Null, ""},
		{"AcctGatherNodeFreq", notUsed, "sec"}, {"AcctGatherProfileType", render.Null, ""}, {"AllowSpecResourcesUsage", "No", ""},
		{"AuthAltTypes", "auth/jwt", ""}, {"AuthAltParameters", render.Null, ""}, {"AuthInfo", render.Null, ""},
		{"AuthType", "auth/muster", ""}, {"BatchStartTimeout", notUsed, "sec"}, {"BcastExclude", render.Null, ""},
		{"BcastParameters", render.Null, ""}, {"BOOT_TIME", whereConfigured, ""}, {"BurstBufferType", render.Null, ""},
		{"CliFilterPlugins", render.Null, ""}, {"ClusterName", whereConfigured, ""}, {"CommunicationParameters", render.Null, ""},
		{"CompleteWait", "0 sec", "sec"}, {"CpuFreqDef", notUsed, ""}, {"CpuFreqGovernors", notUsed, ""},
		{"CredType", "cred/muster", ""}, {"DebugFlags", render.Null, ""}, {"DefMemPerCPU", whereConfigured, ""},
		{"DependencyParameters", render.Null, ""}, {"DisableRootJobs", "No", ""}, {"EioTimeout", notUsed, ""},
		{"EnforcePartLimits", "NO", ""}, {"Epilog", render.Null, ""}, {"EpilogMsgTime", notUsed, ""}, {"EpilogSlurmctld", render.Null, ""},
		{"FairShareDampeningFactor", "1", ""}, {"FederationParameters", render.Null, ""}, {"FirstJobId", "1", ""},
		{"GetEnvTimeout", "120 sec", "sec"}, {"GresTypes", render.Null, ""}, {"GpuFreqDef", render.Null, ""},
		{"GroupUpdateForce", notUsed, ""}, {"GroupUpdateTime", notUsed, "sec"}, {"HealthCheckInterval", "0 sec", "sec"},
		{"HealthCheckNodeState", "ANY", ""}, {"HealthCheckProgram", render.Null, ""}, {"InactiveLimit", "0 sec", "sec"},
		{"InteractiveStepOptions", notUsed, ""}, {"JobAcctGatherFrequency", "30", ""},
		{"JobAcctGatherType", "jobacct_gather/cgroup", ""}, {"JobAcctGatherParams", render.Null, ""}, {"JobCompHost", notUsed, ""},
		{"JobCompLoc", render.Null, ""}, {"JobCompPort", notUsed, ""}, {"JobCompType", "jobcomp/none", ""},
		{"JobCompUser", notUsed, ""}, {"JobContainerType", render.Null, ""}, {"JobCredentialPrivateKey", render.Null, ""},
		{"JobCredentialPublicCertificate", render.Null, ""}, {"JobDefaults", render.Null, ""}, {"JobFileAppend", "0", ""},
		{"JobRequeue", "1", ""}, {"JobSubmitPlugins", render.Null, ""}, {"KillOnBadExit", "0", ""}, {"KillWait", "30 sec", "sec"},
		{"LaunchParameters", render.Null, ""}, {"Licenses", render.Null, ""}, {"LogTimeFormat", notUsed, ""},
		{"MailDomain", render.Null, ""}, {"MailProg", render.Null, ""}, {"MaxArraySize", "1001", ""}, {"MaxBatchRequeue", "5", ""},
		{"MaxDBDMsgs", notUsed, ""}, {"MaxJobCount", "10000", ""}, {"MaxJobId", "67043328", ""}, {"MaxMemPerNode", "UNLIMITED", ""},
		{"MaxNodeCount", notUsed, ""}, {"MaxStepCount", notUsed, ""}, {"MaxTasksPerNode", "512", ""},
		{"MCSPlugin", "mcs/none", ""}, {"MCSParameters", render.Null, ""}, {"MessageTimeout", "10 sec", "sec"}, {"MinJobAge", "300 sec", "sec"},
		{"MpiDefault", "none", ""}, {"MpiParams", render.Null, ""}, {"NEXT_JOB_ID", whereConfigured, ""}, {"NodeFeaturesPlugins", render.Null, ""},
		{"OverTimeLimit", "0 min", "min"}, {"PluginDir", notUsed, ""}, {"PlugStackConfig", render.Null, ""}, {"PreemptMode", "OFF", ""},
		{"PreemptType", "preempt/none", ""}, {"PreemptParameters", render.Null, ""}, {"PreemptExemptTime", "00:00:00", "time"},
		{"PrEpParameters", render.Null, ""}, {"PrEpPlugins", "prep/script", ""}, {"PriorityParameters", render.Null, ""},
		{"PrioritySiteFactorParameters", render.Null, ""}, {"PrioritySiteFactorPlugin", render.Null, ""},
		{"PriorityDecayHalfLife", "7-00:00:00", "time"}, {"PriorityCalcPeriod", "00:05:00", "time"}, {"PriorityFavorSmall", "No", ""},
		{"PriorityFlags", "", ""}, {"PriorityMaxAge", "7-00:00:00", "time"}, {"PriorityUsageResetPeriod", "NONE", ""},
		{"PriorityType", "priority/multifactor", ""}, {"PriorityWeightAge", "0", ""}, {"PriorityWeightAssoc", "0", ""},
		{"PriorityWeightFairShare", "0", ""}, {"PriorityWeightJobSize", "0", ""}, {"PriorityWeightPartition", "0", ""},
		{"PriorityWeightQOS", "0", ""}, {"PriorityWeightTRES", render.Null, ""}, {"PrivateData", "none", ""},
		{"ProctrackType", "proctrack/cgroup", ""}, {"Prolog", render.Null, ""}, {"PrologEpilogTimeout", "65534", ""},
		{"PrologSlurmctld", render.Null, ""}, {"PrologFlags", render.Null, ""}, {"PropagatePrioProcess", "0", ""},
		{"PropagateResourceLimits", "ALL", ""}, {"PropagateResourceLimitsExcept", render.Null, ""}, {"RebootProgram", render.Null, ""},
		{"ReconfigFlags", render.Null, ""}, {"RequeueExit", render.Null, ""}, {"RequeueExitHold", render.Null, ""},
		{"ResumeFailProgram", render.Null, ""}, {"ResumeProgram", render.Null, ""}, {"ResumeRate", "300 nodes/min", "nodes/min"},
		{"ResumeTimeout", "60 sec", "sec"}, {"ResvEpilog", render.Null, ""}, {"ResvOverRun", "0 min", "min"},
		{"ResvProlog", render.Null, ""}, {"ReturnToService", "0", ""}, {"SchedulerParameters", render.Null, ""},
		{"SchedulerTimeSlice", "30 sec", "sec"}, {"SchedulerType", "sched/backfill", ""}, {"ScronParameters", render.Null, ""},
		{"SelectType", "select/cons_tres", ""}, {"SelectTypeParameters", "CR_CORE_MEMORY", ""}, {"SlurmUser", "root", ""},
		{"SlurmctldAddr", render.Null, ""}, {"SlurmctldDebug", notUsed, ""}, {"SlurmctldHost", whereConfigured, ""},
		{"SlurmctldLogFile", render.Null, ""}, {"SlurmctldPort", whereConfigured, ""}, {"SlurmctldSyslogDebug", render.Null, ""},
		{"SlurmctldPrimaryOffProg", render.Null, ""}, {"SlurmctldPrimaryOnProg", render.Null, ""}, {"SlurmctldTimeout", "120 sec", "sec"},
		{"SlurmctldParameters", render.Null, ""}, {"SlurmdDebug", notUsed, ""}, {"SlurmdLogFile", render.Null, ""},
		{"SlurmdParameters", render.Null, ""}, {"SlurmdPidFile", render.Null, ""}, {"SlurmdPort", "6818", ""},
		{"SlurmdSpoolDir", notUsed, ""}, {"SlurmdSyslogDebug", render.Null, ""}, {"SlurmdTimeout", "300 sec", "sec"},
		{"SlurmdUser", notUsed, ""}, {"SlurmSchedLogFile", render.Null, ""}, {"SlurmSchedLogLevel", notUsed, ""},
		{"SlurmctldPidFile", render.Null, ""}, {"SLURM_CONF", whereConfigured, ""}, {"SLURM_VERSION", whereConfigured, ""},
		{"MUSTER_VERSION", whereConfigured, ""}, {"SrunEpilog", render.Null, ""}, {"SrunPortRange", "0-0", ""}, {"SrunProlog", render.Null, ""},
		{"StateSaveLocation", whereConfigured, ""}, {"SuspendExcNodes", render.Null, ""}, {"SuspendExcParts", render.Null, ""},
		{"SuspendProgram", render.Null, ""}, {"SuspendRate", "60 nodes/min", "nodes/min"}, {"SuspendTime", "INFINITE", ""},
		{"SuspendTimeout", "30 sec", "sec"}, {"SwitchParameters", render.Null, ""}, {"SwitchType", "switch/none", ""},
		{"TaskEpilog", render.Null, ""}, {"TaskPlugin", "task/none", ""}, {"TaskPluginParam", render.Null, ""},
		{"TaskProlog", render.Null, ""}, {"TCPTimeout", notUsed, "sec"}, {"TmpFS", "/tmp", ""}, {"TopologyParam", render.Null, ""},
		{"TopologyPlugin", "topology/default", ""}, {"TrackWCKey", "No", ""}, {"TreeWidth", notUsed, ""}, {"UsePam", "No", ""},
		{"UnkillableStepProgram", render.Null, ""}, {"UnkillableStepTimeout", "60 sec", "sec"}, {"VSizeFactor", "0 percent", "percent"},
		{"WaitTime", "0 sec", "sec"}, {"X11Parameters", render.Null, ""},
	}
}

// mainEntries leaves out the keys of records, which show node and show
// partition print.
func mainEntries(all []*apiv1.ConfigEntry) []*apiv1.ConfigEntry {
	var entries []*apiv1.ConfigEntry
	for _, entry := range all {
		if entry.GetRecord() == "" {
			entries = append(entries, entry)
		}
	}
	return entries
}

// showConfig is scontrol show config: every key that was configured, and those
// that hold without, in Slurm's order.
func showConfig(call *tool.Call) error {
	var reply apiv1.GetConfigReply
	if err := call.RPC(tool.MethodGetConfig, &apiv1.GetConfigRequest{}, &reply); err != nil {
		refusal := tool.ExplainError(err)
		return tool.Fail(
			1, append(refusal.Preamble("scontrol"), "slurm_load_ctl_conf error: "+refusal.Text)...,
		)
	}
	clock := render.NewClock(call.Env)
	clock.Now = reply.GetNow()
	if render.WantsDocument(call) {
		return configDocument(call, &reply, clock)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "Configuration data as of %s\n", clock.Time(reply.GetNow()))
	for _, line := range configLines(&reply, clock) {
		fmt.Fprintf(&text, "%-23s = %s\n", line[0], line[1])
	}
	fmt.Fprintf(&text, "\nSlurmctld(primary) at %s is UP\n", reply.GetController())
	return call.WriteOut([]byte(text.String()))
}

// configDocument is scontrol show config --json: the lines of the text, key by key. Slurm has a
// schema of its configuration from v0.0.45 on, for GET conf, which leaves out what is not set.
func configDocument(call *tool.Call, reply *apiv1.GetConfigReply, clock render.Clock) error {
	values := tree.Object{}
	for _, line := range configLines(reply, clock) {
		values = append(values, tree.Member{Key: line[0], Value: line[1]})
	}
	return render.Print(
		call,
		tree.Member{Key: "configuration", Value: values},
		tree.Member{Key: "controller", Value: reply.GetController()},
		tree.Member{Key: "last_update", Value: render.Instant(call.LastUpdate(reply.GetNow()))},
	)
}

// configLines are the keys and values in the order in which they are printed.
func configLines(reply *apiv1.GetConfigReply, clock render.Clock) [][2]string {
	known := map[string]configKey{}
	values := map[string][2]string{}
	place := map[string]int{}
	for i, key := range configKeys() {
		id := strings.ToLower(key.name)
		known[id] = key
		place[id] = i
		if key.unset != whereConfigured {
			values[id] = [2]string{key.name, key.unset}
		}
	}
	hosts := 0
	for _, entry := range mainEntries(reply.GetEntries()) {
		id := strings.ToLower(entry.GetKey())
		name := entry.GetKey()
		value := cmp.Or(entry.GetValue(), render.Null)
		if id == "slurmctldhost" || id == "controlmachine" {
			name = fmt.Sprintf("SlurmctldHost[%d]", hosts)
			id = fmt.Sprintf("slurmctldhost[%03d]", hosts)
			place[id] = place["slurmctldhost"]
			hosts++
		}
		if key, ok := known[id]; ok {
			name, value = key.name, withUnit(value, key.unit)
		}
		values[id] = [2]string{name, value}
	}
	for name, value := range map[string]string{"BOOT_TIME": clock.Time(reply.GetBootTime()),
		"ClusterName": reply.GetCluster(), "NEXT_JOB_ID": tool.Itoa(reply.GetNextJobId()),
		"SLURM_VERSION": tool.SlurmVersion, "MUSTER_VERSION": reply.GetVersion(),
		"SLURM_CONF": reply.GetSlurmConf(), "StateSaveLocation": reply.GetStateDir(),
		"SlurmctldPort": reply.GetPort()} {
		if _, configured := values[strings.ToLower(name)]; value != "" &&
			(name != "SlurmctldPort" || !configured) {
			values[strings.ToLower(name)] = [2]string{name, value}
		}
	}
	for name, value := range logValues(reply.GetLog()) {
		values[strings.ToLower(name)] = [2]string{name, value}
	}
	if hosts == 0 {
		place["slurmctldhost[000]"] = place["slurmctldhost"]
		values["slurmctldhost[000]"] = [2]string{"SlurmctldHost[0]", reply.GetController()}
	}
	ids := make([]string, 0, len(values))
	for id := range values {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int {
		at := func(id string) int {
			if i, ok := place[id]; ok {
				return i
			}
			return len(place) // Slurm's own list does not have it
		}
		return cmp.Or(at(a)-at(b), strings.Compare(a, b))
	})
	out := make([][2]string, len(ids))
	for i, id := range ids {
		out[i] = values[id]
	}
	return out
}

// withUnit writes a plain number with its unit, as Slurm does: 300 seconds.
func withUnit(value, unit string) string {
	if unit == "" {
		return value
	}
	if unit == "time" {
		if seconds, err := format.ParseDuration(value); err == nil {
			return format.Duration(seconds)
		}
		return value
	}
	if tool.LeadingDigits(value) == len(value) && value != "" {
		return value + " " + unit
	}
	return value
}
