package slurmconf

import (
	"path"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// Reasons that several keys share.
const (
	whyDSN     = "accounting goes to the ClickHouse of muster.yaml"
	whyMTLS    = "daemons authenticate with certificates made by muster init"
	whyListen  = "addresses to listen on are in muster.yaml"
	whyPid     = "daemons write no pid file; the service manager knows them"
	whyLogs    = "daemons log to standard error; the level is in muster.yaml"
	whyDirs    = "the daemons' folders are in muster.yaml"
	whyStreams = "agents keep one stream to the controller; there is nothing to tune"
	whySteps   = "it concerns steps, which this release starts without it"
	whyBurst   = "there are no burst buffers"
	whyFed     = "clusters are not joined into federations"
	whyJobComp = "only databases need it, and jobs are in ClickHouse already"
	whyProlog  = "no plugin runs, so what it prepares or forbids would be missing; Prolog and Epilog are run as programs"
	whyTrigger = "no such program is run"
	whyFreq    = "clock frequencies are left as they are"
)

// topKeys are the keys of slurm.conf outside of records.
//
//muster:table one row for each key
func topKeys() []key[File] {
	return []key[File]{
		{"AccountingStorageBackupHost", meaningless, "", whyDSN, nil},
		{"AccountingStorageEnforce", implemented, "", "", setEnforce},
		{"AccountingStorageExternalHost", unsupported, "", "jobs are accounted in one place", nil},
		{"AccountingStorageHost", meaningless, "", whyDSN, nil},
		{"AccountingStorageParameters", meaningless, "", whyDSN, nil},
		{"AccountingStoragePass", meaningless, "", whyMTLS, nil},
		{"AccountingStoragePort", meaningless, "", whyDSN, nil},
		{"AccountingStorageTRES", implemented, "", "", setTRES},
		{"AccountingStorageType", implemented, "", "", setStorageType},
		{"AccountingStorageUser", meaningless, "", whyDSN, nil},
		{"AccountingStoreFlags", implemented, "", "", func(_ *File, v value) { v.checkOptions(storeFlags(), nil) }},
		{"AccountingStoreJobComment", meaningless, "", "Slurm replaced it by AccountingStoreFlags=job_comment", nil},
		{"AcctGatherEnergyType", implemented, "", "", setEnergyType},
		{"AcctGatherFilesystemType", implemented, "", "", setFilesystemType},
		{"AcctGatherInfinibandType", implemented, "", "", setInfinibandType},
		{"AcctGatherInterconnectType", implemented, "", "", setInterconnectType},
		{"AcctGatherNodeFreq", implemented, "", "", setSpan(func(f *File) *spec.Span { return &f.Agent.Gather.NodeEvery }, spec.Second)},
		{"AcctGatherProfileType", implemented, "", "", setProfileType},
		{"AllowSpecResourcesUsage", unsupported, "no|0", "jobs cannot ask for cores that are kept for the system", nil},
		{"AuthAltParameters", unsupported, "", "the controller signs tokens with its own key; REST clients get them from `scontrol token`, and tokens.jwks of muster.yaml names who else may sign", nil},
		{"AuthAltTypes", unsupported, "", "identity is the user of the local socket or the certificate, and REST clients bring a token (JWT) without this key", nil},
		{"AuthInfo", implemented, "", "", setAuthInfo},
		{"AuthType", implemented, "", "", setAuthType},
		{"BackupAddr", unsupported, "", "name each controller with a SlurmctldHost of its own", nil},
		{"BackupController", unsupported, "", "name each controller with a SlurmctldHost of its own", nil},
		{"BatchStartTimeout", meaningless, "", "agents confirm each start; there is no fixed wait", nil},
		{"BcastExclude", unsupported, "none", "sbcast copies no libraries", nil},
		{"BcastParameters", unsupported, "none", "sbcast sends files as they are, and srun --bcast copies into the working directory unless it is told where", nil},
		{"BurstBufferParameters", unsupported, "", whyBurst, nil},
		{"BurstBufferType", unsupported, "none|burst_buffer/none", whyBurst, nil},
		{"CertgenParameters", meaningless, "", whyMTLS, nil},
		{"CertgenType", meaningless, "", whyMTLS, nil},
		{"CertmgrParameters", meaningless, "", whyMTLS, nil},
		{"CertmgrType", meaningless, "", whyMTLS, nil},
		{"CliFilterParameters", unsupported, "", "cli_filter.lua has no parameters", nil},
		{"CliFilterPlugins", implemented, "none|(null)", "", setCliFilter},
		{"ClusterName", implemented, "", "", setClusterName},
		{"CommunicationParameters", meaningless, "", whyListen, nil},
		{"CompleteWait", unsupported, "0", "freed nodes are used at once", nil},
		{"ControlAddr", implemented, "", "", setControlAddr},
		{"ControlMachine", implemented, "", "", setControlMachine},
		{"CoreSpecPlugin", meaningless, "core_spec/none", "Slurm removed it", nil},
		{"CpuFreqDef", unsupported, "", whyFreq, nil},
		{"CpuFreqGovernors", unsupported, "", whyFreq, nil},
		{"CredType", meaningless, "", "job credentials are always signed with Ed25519", nil},
		{"CryptoType", meaningless, "", "job credentials are always signed with Ed25519", nil},
		{"DataParserParameters", meaningless, "", "the data parser has no parameters", nil},
		{"DebugFlags", meaningless, "none", whyLogs, nil},
		{"DefCpuPerGPU", implemented, "", "", setCount(func(f *File) *int64 { return &f.Config.Limits.DefCPUPerGPU }, 0)},
		{"DefMemPerCPU", implemented, "", "", setMemory(func(f *File) *int64 { return &f.Config.Limits.DefMemPerCPU })},
		{"DefMemPerGPU", implemented, "", "", setMemory(func(f *File) *int64 { return &f.Config.Limits.DefMemPerGPU })},
		{"DefMemPerNode", implemented, "", "", setMemory(func(f *File) *int64 { return &f.Config.Limits.DefMemPerNode })},
		{"DependencyParameters", implemented, "", "", setDependency},
		{"DisableRootJobs", implemented, "", "", setBool(func(f *File) *bool { return &f.disableRoot })},
		{"EioTimeout", meaningless, "", whySteps, nil},
		{"EnforcePartLimits", implemented, "", "", setEnforcePart},
		{"Epilog", implemented, "none|(null)", "", nodeScript(func(f *File) *[]string { return &f.Agent.Epilog })},
		{"EpilogMsgTime", meaningless, "", "ends of jobs are committed in batches; they need no spreading", nil},
		{"EpilogSlurmctld", implemented, "none|(null)", "", oneProgram(func(f *File) *string { return &f.ctl.Epilog })},
		{"EpilogTimeout", implemented, "", "", setSpan(func(f *File) *spec.Span { return &f.Agent.EpilogTimeout }, spec.Second)},
		{"ExtSensorsFreq", meaningless, "0", "Slurm removed it", nil},
		{"ExtSensorsType", meaningless, "ext_sensors/none", "Slurm removed it", nil},
		{"FairShareDampeningFactor", implemented, "", "", weightOf(func(f *File) *uint32 { return &f.Config.Priority.Dampening })},
		{"FastSchedule", meaningless, "", "Slurm replaced it by SlurmdParameters=config_overrides", nil},
		{"FederationParameters", unsupported, "", whyFed, nil},
		// Muster's own: see spec.FencingPolicy
		{"FencingPolicy", implemented, "", "", func(file *File, v value) {
			if policy, ok := readFencing(v); ok {
				file.Config.Fencing = &policy
			}
		}},
		{"FirstJobId", implemented, "", "", setNumber(func(f *File) *uint32 { return &f.Config.Limits.FirstJobID }, 1, 1<<31, noUnlimited)},
		{"GetEnvTimeout", implemented, "", "", setSpan(func(f *File) *spec.Span { return &f.Agent.LoginTimeout }, spec.Second)},
		{"GpuFreqDef", implemented, "", "", func(file *File, v value) {
			if _, err := spec.ParseGPUFreq(v.Value); err != nil {
				v.failValue("%s is no GPU frequency: want [type=]value[,type=value] with low, medium, high, highm1 or MHz", quoteShort(v.Value))
				return
			}
			file.Agent.GPUFreq = v.Value
		}},
		{"GresTypes", implemented, "", "", setGresTypes},
		{"GroupUpdateForce", meaningless, "", "groups are looked up when a job is submitted", nil},
		{"GroupUpdateTime", meaningless, "", "groups are looked up when a job is submitted", nil},
		{"HashPlugin", meaningless, "", "gRPC protects messages", nil},
		{"HealthCheckInterval", implemented, "", "", setSpan(func(f *File) *spec.Span { return &f.Agent.Check.Every }, spec.Second)},
		{"HealthCheckNodeState", implemented, "", "", setCheckStates},
		{"HealthCheckProgram", implemented, "none|(null)", "", func(file *File, v value) {
			if isOff(v) {
				return
			}
			if !path.IsAbs(v.Value) {
				v.failValue("%s is not an absolute path", quoteShort(v.Value))
				return
			}
			file.Agent.Check.Program = v.Value
		}},
		{"HttpParserType", meaningless, "", "HTTP is Go's own", nil},
		{"InactiveLimit", unsupported, "0", "no allocation ends for being idle", nil},
		{"InteractiveStepOptions", unsupported, "", whySteps, nil},
		{"JobAcctGatherFrequency", implemented, "", "", setGatherFrequency},
		{"JobAcctGatherParams", implemented, "", "", func(file *File, v value) {
			v.checkOptions(gatherParams(), func(name string, _ value) {
				file.Agent.OverMemoryKill = file.Agent.OverMemoryKill || name == "OverMemoryKill"
			})
		}},
		{"JobAcctGatherType", implemented, "", "", setGatherType},
		{"JobCompHost", meaningless, "", whyJobComp, nil},
		{"JobCompLoc", implemented, "", "", setText(func(f *File) *string { return &f.jobCompLoc })},
		{"JobCompParams", meaningless, "", whyJobComp, nil},
		{"JobCompPass", meaningless, "", whyJobComp, nil},
		{"JobCompPassScript", meaningless, "", whyJobComp, nil},
		{"JobCompPort", meaningless, "", whyJobComp, nil},
		{"JobCompType", implemented, "", "", setJobComp},
		{"JobCompUser", meaningless, "", whyJobComp, nil},
		{"JobContainerType", implemented, "", "", setContainerType},
		{"JobCredentialPrivateKey", meaningless, "", "the controller makes its own Ed25519 keys", nil},
		{"JobCredentialPublicCertificate", meaningless, "", "the controller makes its own Ed25519 keys", nil},
		{"JobDefaults", implemented, "", "",
			setJobDefaults(func(file *File) (gpuCPU, gpuMem *int64) {
				return &file.Config.Limits.DefCPUPerGPU, &file.Config.Limits.DefMemPerGPU
			})},
		{"JobFileAppend", implemented, "", "", setBool(func(f *File) *bool { return &f.Config.Limits.JobFileAppend })},
		{"JobRequeue", implemented, "", "", setBool(func(f *File) *bool { return &f.Config.Limits.JobRequeue })},
		{"JobSubmitPlugins", implemented, "none|(null)", "", setJobSubmit},
		{"KeepAliveTime", meaningless, "", whyStreams, nil},
		{"KillOnBadExit", implemented, "", "", setBool(func(f *File) *bool { return &f.Config.Limits.KillOnBadExit })},
		{"KillWait", implemented, "", "", setSpan(func(f *File) *spec.Span { return &f.Config.Timing.KillWait }, spec.Second)},
		{"LaunchParameters", implemented, "", "", func(_ *File, v value) { v.checkOptions(launchParams(), nil) }},
		{"LaunchType", meaningless, "launch/slurm", "Slurm removed it", nil},
		{"Licenses", implemented, "", "", setLicenses},
		{"LogTimeFormat", meaningless, "", whyLogs, nil},
		{"MCSParameters", implemented, "", "", setMCSParameters},
		{"MCSPlugin", implemented, "", "", setMCSPlugin},
		{"MailDomain", implemented, "", "", setMailDomain},
		{"MailProg", implemented, "", "", setMailProg},
		{"MaxArraySize", implemented, "", "", setNumber(func(f *File) *uint32 { return &f.Config.Limits.MaxArraySize }, 1, 4_000_001, noUnlimited)},
		{"MaxBatchRequeue", implemented, "", "", setNumber(func(f *File) *uint32 { return &f.Config.Limits.MaxBatchRequeue }, 1, 1<<20, noUnlimited)},
		{"MaxDBDMsgs", meaningless, "", "the ledger is the buffer while accounting is away", nil},
		{"MaxJobCount", implemented, "", "", setNumber(func(f *File) *uint32 { return &f.Config.Limits.MaxJobCount }, 1, 1<<31, noUnlimited)},
		{"MaxJobId", implemented, "", "", setNumber(func(f *File) *uint32 { return &f.Config.Limits.MaxJobID }, 1, 1<<31, noUnlimited)},
		{"MaxMemPerCPU", implemented, "", "", setMemory(func(f *File) *int64 { return &f.Config.Limits.MaxMemPerCPU })},
		{"MaxMemPerNode", implemented, "", "", setMemory(func(f *File) *int64 { return &f.Config.Limits.MaxMemPerNode })},
		{"MaxNodeCount", implemented, "", "", setNumber(func(f *File) *uint32 { return &f.Config.MaxNodes }, 1, maxNodes, noUnlimited)},
		{"MaxStepCount", meaningless, "", whySteps, nil},
		{"MaxTasksPerNode", implemented, "", "", setNumber(func(f *File) *uint32 { return &f.Config.Limits.MaxTasksPerNode }, 1, 65533, noUnlimited)},
		{"MessageTimeout", implemented, "", "", setSpan(func(f *File) *spec.Span { return &f.Config.Timing.MessageTimeout }, spec.Second)},
		{"MetricsType", meaningless, "", "metrics are always served", nil},
		{"MinJobAge", implemented, "", "", setSpan(func(f *File) *spec.Span { return &f.Config.Timing.MinJobAge }, spec.Second)},
		{"MpiDefault", implemented, "", "", setMPI},
		{"MpiParams", unsupported, "none", "ports are not reserved for MPI; PMIx and PMI-2 programs choose their own", nil},
		{"NamespaceType", implemented, "", "", setContainerType},
		{"NodeFeaturesPlugins", unsupported, "none|node_features/k8s_resources|k8s_resources", "features are as configured; nodes are not rebooted to change them", nil},
		{"OverTimeLimit", implemented, "", "", setSpan(func(f *File) *spec.Span { return &f.Config.Timing.OverTimeLimit }, spec.Minute)},
		{"PlugStackConfig", refused, "none|(null)", "SPANK plugins are not loaded, and they may isolate jobs", nil},
		{"PluginDir", meaningless, "", "there are no plugins to load", nil},
		{"PowerParameters", meaningless, "", "Slurm removed it", nil},
		{"PowerPlugin", meaningless, "none|power/none", "Slurm removed it", nil},
		{"PrEpParameters", refused, "", whyProlog, nil},
		{"PrEpPlugins", refused, "none|prep/script", whyProlog, nil},
		{"PreemptExemptTime", implemented, "", "", func(file *File, v value) {
			if v.Value != "-1" { // which is the default
				setDuration(func(f *File) *spec.Span {
					return &f.Config.Sched.PreemptExempt
				})(file, v)
			}
		}},
		{"PreemptMode", implemented, "", "", setPreemptMode},
		{"PreemptParameters", implemented, "", "", setPreemptParameters},
		{"PreemptType", implemented, "", "", setPreemptType},
		{"PriorityCalcPeriod", implemented, "", "", setDuration(func(f *File) *spec.Span { return &f.Config.Priority.CalcPeriod })},
		{"PriorityDecayHalfLife", implemented, "", "", setDuration(func(f *File) *spec.Span { return &f.Config.Priority.HalfLife })},
		{"PriorityFavorSmall", implemented, "", "", setBool(func(f *File) *bool { return &f.Config.Priority.FavorSmall })},
		{"PriorityFlags", implemented, "", "", func(file *File, v value) {
			v.checkOptions(priorityFlags(), nil)
			file.Config.Priority.Flags = v.splitItems()
		}},
		{"PriorityMaxAge", implemented, "", "", setDuration(func(f *File) *spec.Span { return &f.Config.Priority.MaxAge })},
		{"PriorityParameters", unsupported, "", "no site factor is computed", nil},
		{"PrioritySiteFactorParameters", unsupported, "", "no site factor is computed", nil},
		{"PrioritySiteFactorPlugin", unsupported, "none|site_factor/none", "no site factor is computed", nil},
		{"PriorityType", implemented, "", "", func(file *File, v value) {
			if w, ok := v.parseWord("priority/multifactor|priority/basic"); ok {
				file.Config.Priority.Basic = w == "priority/basic"
			}
		}},
		{"PriorityUsageResetPeriod", implemented, "", "", oneOf("NONE|NOW|DAILY|WEEKLY|MONTHLY|QUARTERLY|YEARLY", func(f *File) *string { return &f.Config.Priority.UsageReset })},
		{"PriorityWeightAge", implemented, "", "", weightOf(func(f *File) *uint32 { return &f.Config.Priority.Age })},
		{"PriorityWeightAssoc", implemented, "", "", weightOf(func(f *File) *uint32 { return &f.Config.Priority.Assoc })},
		{"PriorityWeightFairshare", implemented, "", "", weightOf(func(f *File) *uint32 { return &f.Config.Priority.FairShare })},
		{"PriorityWeightJobSize", implemented, "", "", weightOf(func(f *File) *uint32 { return &f.Config.Priority.JobSize })},
		{"PriorityWeightPartition", implemented, "", "", weightOf(func(f *File) *uint32 { return &f.Config.Priority.Partition })},
		{"PriorityWeightQOS", implemented, "", "", weightOf(func(f *File) *uint32 { return &f.Config.Priority.QOS })},
		{"PriorityWeightTRES", implemented, "", "", func(f *File, v value) { f.Config.Priority.TRES = v.parseWeights(false, true) }},
		{"PrivateData", implemented, "none", "", setPrivateData},
		{"ProctrackType", implemented, "", "", setProctrack},
		{"Prolog", implemented, "none|(null)", "", nodeScript(func(f *File) *[]string { return &f.Agent.Prolog })},
		{"PrologEpilogTimeout", implemented, "", "", setPrologEpilogTimeout},
		{"PrologFlags", implemented, "none", "", setPrologFlags},
		{"PrologSlurmctld", implemented, "none|(null)", "", oneProgram(func(f *File) *string { return &f.ctl.Prolog })},
		{"PrologTimeout", implemented, "", "", setSpan(func(f *File) *spec.Span { return &f.Agent.PrologTimeout }, spec.Second)},
		{"PropagatePrioProcess", implemented, "", "", setPrioProcess},
		{"PropagateResourceLimits", implemented, "", "", setPropagate},
		{"PropagateResourceLimitsExcept", implemented, "", "", setPropagateExcept},
		{"RebootProgram", implemented, "", "", setProgram(func(f *File) *string { return &f.Config.RebootProgram })},
		{"ReconfigFlags", unsupported, "none", "a changed file replaces what scontrol changed before", nil},
		{"RequeueExit", unsupported, "none", "exit codes do not requeue jobs", nil},
		{"RequeueExitHold", unsupported, "none", "exit codes do not requeue jobs", nil},
		{"ResumeFailProgram", implemented, "", "", markPowerSaving(setProgram(func(f *File) *string { return &f.power.ResumeFail }))},
		{"ResumeProgram", implemented, "", "", markPowerSaving(setProgram(func(f *File) *string { return &f.power.Resume }))},
		{"ResumeRate", implemented, "", "", markPowerSaving(setNumber(func(f *File) *uint32 { return &f.power.UpRate }, 0, 1<<16, noUnlimited))},
		{"ResumeTimeout", implemented, "", "", markPowerSaving(setSpan(func(f *File) *spec.Span { return &f.power.UpIn }, spec.Second))},
		{"ResvEpilog", unsupported, "none|(null)", whyTrigger, nil},
		{"ResvOverRun", unsupported, "0", "jobs end with their reservation", nil},
		{"ResvProlog", unsupported, "none|(null)", whyTrigger, nil},
		{"ReturnToService", implemented, "", "", setNumber(func(f *File) *uint32 { return &f.Config.Timing.ReturnToService }, 0, 2, noUnlimited)},
		{"RoutePlugin", meaningless, "", whyStreams, nil},
		{"SallocDefaultCommand", meaningless, "", "Slurm removed it", nil},
		{"SbcastParameters", unsupported, "none", "the options of sbcast are set on its command line", nil},
		{"SchedulerParameters", implemented, "", "", setSchedulerParameters},
		{"SchedulerTimeSlice", implemented, "", "", setSpan(func(f *File) *spec.Span { return &f.Config.Sched.TimeSlice }, spec.Second)},
		{"SchedulerType", implemented, "", "", func(file *File, v value) {
			if w, ok := v.parseWord("sched/backfill|sched/builtin"); ok {
				file.Config.Sched.Backfill = w == "sched/backfill"
			}
		}},
		{"ScronParameters", implemented, "", "", func(file *File, v value) {
			v.checkOptions(cronParams(), func(name string, _ value) {
				switch name {
				case "enable":
					file.Config.Scrontab = true
				case "explicit_scancel":
					file.Config.CronExplicit = true
				}
			})
		}},
		{"SelectType", implemented, "", "", setSelectType},
		{"SelectTypeParameters", implemented, "", "", setSelectParameters},
		{"SlurmSchedLogFile", meaningless, "", whyLogs, nil},
		{"SlurmSchedLogLevel", meaningless, "", whyLogs, nil},
		{"SlurmUser", implemented, "", "", setText(func(f *File) *string { return &f.Config.SlurmUser })},
		{"SlurmctldAddr", meaningless, "", whyListen, nil},
		{"SlurmctldDebug", meaningless, "", whyLogs, nil},
		{"SlurmctldHost", implemented, "", "", setControlHost},
		{"SlurmctldLogFile", meaningless, "", whyLogs, nil},
		{"SlurmctldParameters", implemented, "", "", func(file *File, v value) {
			rate, limited := spec.RateLimit{}, false
			v.checkOptions(controllerParams(), func(name string, arg value) {
				switch name {
				case "allow_user_triggers":
					file.Config.UserTriggers = true
				case "disable_triggers":
					file.Config.NoTriggers = true
				case "requeue_unfenced":
					file.Config.RequeueUnfenced = true
				case "rl_enable":
					limited = true
				case "rl_bucket_size":
					setNumber(func(r *spec.RateLimit) *uint32 { return &r.Bucket }, 1, maxRate, noUnlimited)(&rate, arg)
				case "rl_refill_rate":
					setNumber(func(r *spec.RateLimit) *uint32 { return &r.Refill }, 1, maxRate, noUnlimited)(&rate, arg)
				case "rl_refill_period":
					setSpan(func(r *spec.RateLimit) *spec.Span { return &r.Period }, spec.Second)(&rate, arg)
				case "rl_table_size":
					setNumber(func(r *spec.RateLimit) *uint32 { return &r.Users }, 1, maxRate, noUnlimited)(&rate, arg)
				case "idle_on_node_suspend":
					file.power.IdleOnDown = true
				case "max_powered_nodes":
					setNumber(func(f *File) *uint32 { return &f.power.MaxUp }, 1, maxNodes, noUnlimited)(file, arg)
				}
			})
			if limited {
				file.Config.Rate = &rate
			}
		}},
		{"SlurmctldPidFile", meaningless, "", whyPid, nil},
		{"SlurmctldPlugstack", unsupported, "none|(null)", "there are no plugins to load", nil},
		{"SlurmctldPort", implemented, "", "", setPort(func(f *File) *uint32 { return &f.Control.Port })},
		{"SlurmctldPrimaryOffProg", unsupported, "none|(null)", whyTrigger, nil},
		{"SlurmctldPrimaryOnProg", unsupported, "none|(null)", whyTrigger, nil},
		{"SlurmctldSyslogDebug", meaningless, "", whyLogs, nil},
		{"SlurmctldTimeout", implemented, "", "", setSpan(func(f *File) *spec.Span { return &f.Config.Timing.ControllerTimeout }, spec.Second)},
		{"SlurmdDebug", meaningless, "", whyLogs, nil},
		{"SlurmdLogFile", meaningless, "", whyLogs, nil},
		{"SlurmdParameters", implemented, "", "", func(file *File, v value) {
			v.checkOptions(agentParams(), func(name string, _ value) {
				file.Config.ConfigOverrides = file.Config.ConfigOverrides ||
					name == "config_overrides"
			})
		}},
		{"SlurmdPidFile", meaningless, "", whyPid, nil},
		{"SlurmdPort", implemented, "", "", setPort(func(f *File) *uint32 { return &f.Control.AgentPort })},
		{"SlurmdSpoolDir", meaningless, "", whyDirs, nil},
		{"SlurmdSyslogDebug", meaningless, "", whyLogs, nil},
		{"SlurmdTimeout", implemented, "", "", setSpan(func(f *File) *spec.Span { return &f.Config.Timing.NodeTimeout }, spec.Second)},
		{"SlurmdUser", unsupported, "root", "the agent runs as the user that starts it; jobs of other users need root", nil},
		{"SrunEpilog", unsupported, "none|(null)", "srun runs no program of its own: use TaskEpilog, or Epilog on the nodes", nil},
		{"SrunPortRange", meaningless, "0-0", "srun listens on no port; agents are dialled", nil},
		{"SrunProlog", unsupported, "none|(null)", "srun runs no program of its own: use TaskProlog, or Prolog on the nodes", nil},
		{"StateSaveLocation", meaningless, "", whyDirs, nil},
		{"SuspendExcNodes", implemented, "", "", markPowerSaving(setKeepNodes)},
		{"SuspendExcParts", implemented, "", "", markPowerSaving(func(f *File, v value) { f.power.KeepParts, f.power.partsAt = v.splitItems(), v.Setting })},
		{"SuspendExcStates", implemented, "", "", markPowerSaving(setKeepStates)},
		{"SuspendProgram", implemented, "", "", markPowerSaving(setProgram(func(f *File) *string { return &f.power.Suspend }))},
		{"SuspendRate", implemented, "", "", markPowerSaving(setNumber(func(f *File) *uint32 { return &f.power.DownRate }, 0, 1<<16, noUnlimited))},
		{"SuspendTime", implemented, "", "", markPowerSaving(func(file *File, v value) {
			file.power.suspendAt = v.Setting
			idleTime(func(f *File) *spec.Span { return &f.power.IdleAfter }, 0)(file, v)
		})},
		{"SuspendTimeout", implemented, "", "", markPowerSaving(setSpan(func(f *File) *spec.Span { return &f.power.DownIn }, spec.Second))},
		{"SwitchParameters", unsupported, "", "no network is set up for jobs", nil},
		{"SwitchType", unsupported, "none|switch/none", "no network is set up for jobs", nil},
		{"TCPTimeout", meaningless, "", whyStreams, nil},
		{"TLSParameters", meaningless, "", "connections between machines are always mTLS", nil},
		{"TLSType", meaningless, "tls/s2n", "connections between machines are always mTLS", nil},
		{"TaskEpilog", implemented, "none|(null)", "", oneProgram(func(f *File) *string { return &f.Agent.TaskEpilog })},
		{"TaskPlugin", implemented, "", "", setTaskPlugin},
		{"TaskPluginParam", unsupported, "none", "tasks are bound to the cores of their job only", nil},
		{"TaskProlog", implemented, "none|(null)", "", oneProgram(func(f *File) *string { return &f.Agent.TaskProlog })},
		{"TmpFS", unsupported, "/tmp", "TmpDisk is measured at /tmp", nil},
		{"TopologyParam", implemented, "none", "", func(file *File, v value) {
			if v.isOff("none") {
				return
			}
			v.checkOptions(topologyParams(), func(name string, _ value) {
				file.Config.Sched.TopoOptional = file.Config.Sched.TopoOptional || name == "TopoOptional"
				file.Config.Sched.Dragonfly = file.Config.Sched.Dragonfly || name == "Dragonfly"
			})
		}},
		{"TopologyPlugin", implemented, "", "", setTopology},
		{"TrackWCKey", implemented, "", "", func(file *File, v value) {
			setBool(func(f *File) *bool { return &f.Config.TrackWCKey })(file, v)
			file.Config.TrackWCKey = file.Config.TrackWCKey || file.Config.Enforce.WCKeys
		}},
		{"TreeWidth", meaningless, "", whyStreams, nil},
		{"UnkillableStepProgram", unsupported, "none|(null)", whyTrigger, nil},
		{"UnkillableStepTimeout", implemented, "", "", setSpan(func(f *File) *spec.Span { return &f.Config.Timing.UnkillableAfter }, spec.Second)},
		{"UrlParserType", meaningless, "", "HTTP is Go's own", nil},
		{"UsePAM", refused, "0|no|false|down", "jobs are started without a PAM session, so the limits and rules of /etc/pam.d/slurm would not hold: take the line out, and set limits with the units' Limit lines or in a Prolog", nil},
		{"VSizeFactor", refused, "0", "virtual memory would not be limited", nil},
		{"WaitTime", implemented, "", "", setSpan(func(f *File) *spec.Span { return &f.Config.Timing.WaitTime }, spec.Second)},
		{"X11Parameters", unsupported, "none|(null)", "the cookie of a forwarded display is kept in a file of its job, not in the user's home", nil},
	}
}

// weightOf is a factor's weight in a job's priority.
func weightOf(
	to func(*File) *uint32,
) func(*File, value) {
	return setNumber(to, 0, 1<<31, noUnlimited)
}

// setJobDefaults reads DefCpuPerGPU=4,DefMemPerGPU=16000.
func setJobDefaults[T any](to func(*T) (gpuCPU, gpuMem *int64)) func(*T, value) {
	return func(t *T, v value) {
		cpu, memory := to(t)
		for _, item := range v.splitItems() {
			name, number, _ := strings.Cut(item, "=")
			inner := v
			inner.Value = number
			switch strings.ToLower(name) {
			case "defcpupergpu":
				if n, ok := inner.parseInteger(0, 1<<20); ok {
					*cpu = n
				}
			case "defmempergpu":
				setMemory(func(*T) *int64 { return memory })(t, inner)
			default:
				v.failValue(
					"%s is unknown; it may hold DefCpuPerGPU and DefMemPerGPU",
					quoteShort(name),
				)
			}
		}
	}
}

// maxRate bounds the figures of rl_*: more calls than that are no limit.
const maxRate = 1 << 24
