package slurmconf

import (
	"path"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// The set functions of keys in topKeys that need more than a type.

func setClusterName(file *File, v value) {
	if err := hostlist.CheckName(v.Value); err != nil || strings.ContainsAny(v.Value, ".:") ||
		v.Value != strings.ToLower(v.Value) {
		v.failValue(
			"%s: a cluster's name is lower case letters, digits, '-' and '_'",
			quoteShort(v.Value),
		)
		return
	}
	file.Config.ClusterName = v.Value
}

func setEnforce(file *File, v value) {
	enforce := &file.Config.Enforce
	v.checkOptions([]option{
		{"all", implemented, ""}, {"associations", implemented, ""}, {"limits", implemented, ""},
		{"none", implemented, ""},
		{
			"nojobs",
			unsupported,
			"every job is recorded",
		}, {"nosteps", unsupported, "every step is recorded"},
		{"qos", implemented, ""}, {"safe", implemented, ""},
		{"wckeys", implemented, ""},
	}, func(name string, _ value) {
		switch name {
		case "associations":
			enforce.Associations = true
		case "limits":
			enforce.Associations, enforce.Limits = true, true
		case "qos":
			enforce.Associations, enforce.QOS = true, true
		case "safe":
			enforce.Associations = true
			enforce.Limits = true
			enforce.Safe = true
		case "wckeys":
			enforce.Associations = true
			enforce.WCKeys = true
			file.Config.TrackWCKey = true
		case "all":
			enforce.Associations = true
			enforce.Limits = true
			enforce.QOS = true
			enforce.Safe = true
		}
	})
}

func setTRES(file *File, v value) {
	for _, item := range v.splitItems() {
		name := tresName(item)
		switch {
		case !spec.KnownTRES(name):
			v.failValue("%s is no TRES", quoteShort(item))
		case !strings.Contains(name, "/"), name == "fs/disk":
			// Tracked in any case.
		default:
			file.Config.TRES = append(file.Config.TRES, name)
		}
	}
}

func setStorageType(_ *File, v value) {
	switch strings.ToLower(v.Value) {
	case "accounting_storage/slurmdbd":
	case "accounting_storage/none":
		v.noteValue("not used: jobs are always accounted in ClickHouse")
	case "accounting_storage/mysql",
		"accounting_storage/pgsql",
		"accounting_storage/filetxt",
		"accounting_storage/ctld_relay":
		v.warnValue(
			"%s is not supported: accounting goes to ClickHouse (its DSN is in muster.yaml)",
			v.Value,
		)
	default:
		v.failValue("%s is unknown; it must be accounting_storage/slurmdbd", quoteShort(v.Value))
	}
}

func setAuthType(_ *File, v value) {
	switch w, _ := v.parseWord("auth/munge|auth/slurm|auth/none"); w {
	case "auth/munge":
		v.noteValue(
			"identity is the user of the local socket, between machines a certificate made by muster init; MUNGE need not run, and where it does it lets in commands of hosts without an agent",
		)
	case "auth/slurm", "auth/none":
		v.noteValue(
			"not used: identity is the user of the local socket, between machines a certificate made by muster init",
		)
	}
}

// setAuthInfo reads the options of AuthInfo. MungeSocket takes the one that is used out of it.
func setAuthInfo(_ *File, v value) {
	for _, part := range strings.Split(v.Value, ",") {
		name, path, given := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case strings.HasPrefix(name, "/") && !given: // as Slurm had it once
		case name == "socket" && strings.HasPrefix(path, "/"):
		case name == "socket":
			v.failValue("%s: expected the path of munged's socket", quoteShort(part))
		case given && name != "" && !strings.ContainsAny(name, "(! "), name == "use_client_ids":
			v.noteValue("%s is not used; socket= names the socket of munged", quoteShort(name))
		default:
			v.failValue("%s: expected socket=PATH", quoteShort(part))
		}
	}
}

// Host is a controller: the name people use and, if given, its address.
type Host struct{ Name, Addr string }

func setControlHost(file *File, v value) {
	host := Host{Name: v.Value}
	if name, rest, ok := strings.Cut(v.Value, "("); ok {
		addr, closed := strings.CutSuffix(rest, ")")
		if !closed || addr == "" || name == "" {
			v.failValue("%s: expected host or host(address)", quoteShort(v.Value))
			return
		}
		host = Host{name, addr}
	}
	for _, part := range []string{host.Name, host.Addr} {
		if part != "" && hostlist.CheckName(part) != nil {
			v.failValue("%s is no host name", quoteShort(part))
			return
		}
	}
	file.Control.Hosts = append(file.Control.Hosts, host)
}

func setControlMachine(file *File, v value) {
	v.noteValue("old name of SlurmctldHost")
	if len(file.Control.Hosts) == 0 {
		setControlHost(file, v)
	}
}

func setControlAddr(file *File, v value) {
	v.noteValue("old form of SlurmctldHost=name(address)")
	if len(file.Control.Hosts) > 0 && file.Control.Hosts[0].Addr == "" {
		file.Control.Hosts[0].Addr = v.Value
	}
}

// setPort takes the first port of a range: one gRPC port serves all.
func setPort(to func(*File) *uint32) func(*File, value) {
	return func(file *File, v value) {
		low, _, ranged := strings.Cut(v.Value, "-")
		if ranged {
			v.noteValue("one port is enough; the first of the range is used")
		}
		v.Value = low
		if n, ok := v.parseInteger(1, 65535); ok {
			*to(file) = uint32(n)
		}
	}
}

func setDependency(file *File, v value) {
	v.checkOptions(dependencyParams(), func(name string, _ value) {
		file.Config.Limits.KillInvalidDep = file.Config.Limits.KillInvalidDep ||
			name == "kill_invalid_depend"
	})
}

func setEnforcePart(file *File, v value) {
	word, ok := v.parseWord("NO|ANY|ALL|YES")
	if !ok {
		return
	}
	if word == "YES" {
		word = "ALL"
	}
	file.Config.Limits.EnforcePart = word
}

func setGresTypes(file *File, v value) {
	file.Config.GresTypes = nil
	for _, name := range v.splitItems() {
		switch strings.ToLower(name) {
		case "none", "(null)":
			continue
		}
		if !gresName(name) {
			v.failValue("%s is no name for a resource", quoteShort(name))
			continue
		}
		file.Config.GresTypes = append(file.Config.GresTypes, name)
	}
}

// gresName allows what can stand in name:type:count and in TRES names.
func gresName(text string) bool {
	for i := range len(text) {
		c := text[i]
		if !isLetterOrDigit(c) && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	return text != ""
}

func setGatherFrequency(file *File, v value) {
	for _, item := range v.splitItems() {
		name, number, named := strings.Cut(item, "=")
		if !named {
			name, number = "task", item
		}
		inner := v
		inner.Value = number
		switch strings.ToLower(name) {
		case "task":
			if n, ok := inner.parseInteger(0, 1<<20); ok {
				file.Agent.SampleEvery = spec.Seconds(n)
			}
		case "energy":
			setGatherEvery(&file.Agent.Gather.EnergyEvery, inner)
		case "filesystem":
			setGatherEvery(&file.Agent.Gather.FilesystemEvery, inner)
		case "network":
			setGatherEvery(&file.Agent.Gather.NetworkEvery, inner)
		default:
			v.failValue(
				"%s is unknown; it may hold task=, energy=, filesystem= and network=",
				quoteShort(name),
			)
		}
	}
}

// setGatherEvery is the interval of one kind of readings: 0 is never.
func setGatherEvery(to *spec.Span, v value) {
	n, ok := v.parseInteger(0, 1<<20)
	switch {
	case ok && n == 0:
		*to = spec.Infinite
	case ok:
		*to = spec.Seconds(n)
	}
}

func setGatherType(_ *File, v value) {
	switch w, _ := v.parseWord("jobacct_gather/cgroup|jobacct_gather/linux|jobacct_gather/none"); w {
	case "jobacct_gather/linux":
		v.noteValue(
			"usage is read from the job's cgroup where there is one, else from its processes",
		)
	case "jobacct_gather/none":
		v.noteValue("not used: usage is always measured")
	}
}

func setJobComp(file *File, v value) {
	switch word := strings.ToLower(v.Value); word {
	case "jobcomp/none", "jobcomp/filetxt":
		file.jobComp = word
		file.jobCompAt = v.Setting
	case "jobcomp/mysql",
		"jobcomp/elasticsearch",
		"jobcomp/kafka",
		"jobcomp/lua",
		"jobcomp/script",
		"jobcomp/pgsql",
		"jobcomp/slurmdbd":
		v.failValue(
			"%s is not supported; every job is a row of the table jobs in ClickHouse, and jobcomp/filetxt writes a file",
			word,
		)
	default:
		v.parseWord("jobcomp/none|jobcomp/filetxt")
	}
}

func setLicenses(file *File, v value) {
	file.Config.Licenses = nil
	for _, item := range v.splitItems() {
		name, number, counted := strings.Cut(item, ":")
		if !counted {
			number = "1"
		}
		inner := v
		inner.Value = number
		n, ok := inner.parseInteger(0, 1<<31)
		switch {
		case !ok:
		case strings.Contains(name, "@") || !gresName(name):
			v.failValue("%s is no name for a local licence", quoteShort(name))
		default:
			file.Config.Licenses = append(file.Config.Licenses, spec.Count{Name: name, N: n})
		}
	}
}

func setMPI(file *File, v value) {
	word := strings.ToLower(v.Value)
	switch {
	case word == spec.MPINone || word == spec.MPIPMI2: // srun serves PMI-2 unless it is told --mpi=none
		file.Config.Limits.MPIDefault = ""
	case spec.IsPMIx(word):
		file.Config.Limits.MPIDefault = word
	case word == "openmpi" || strings.HasPrefix(word, "cray"):
		v.warnValue(
			"%s is not supported: srun serves pmi2 and pmix; start programs of other MPIs with mpirun inside the allocation",
			v.Value,
		)
	default:
		v.failValue("%s is unknown; it may be none, pmi2, pmix or pmix_vN", quoteShort(v.Value))
	}
}

func setPreemptMode(file *File, v value) {
	for _, w := range v.splitItems() {
		inner := v
		inner.Value = w
		if _, ok := inner.parseWord("OFF|CANCEL|REQUEUE|SUSPEND|GANG|PRIORITY|WITHIN"); !ok {
			return
		}
	}
	file.Config.Sched.PreemptMode = strings.ToUpper(strings.Join(v.splitItems(), ","))
}

func setPreemptParameters(file *File, v value) {
	sched := &file.Config.Sched
	v.checkOptions([]option{
		{"min_exempt_priority", implemented, ""},
		{"reclaim_licenses", unsupported, "jobs are not preempted for licences"},
		{"reorder_count", meaningless, "victims that are not needed are always left out"},
		{"send_user_signal", unsupported, "preempted jobs get SIGCONT and SIGTERM"},
		{"strict_order", implemented, ""},
		{"suspend_grace_time", unsupported, "jobs are suspended at once"},
		{"youngest_first", implemented, ""},
	}, func(name string, arg value) {
		switch name {
		case "min_exempt_priority":
			if n, ok := arg.parseInteger(1, 1<<32-1); ok {
				sched.PreemptExemptPrio = uint32(n)
			}
		case "strict_order":
			sched.PreemptStrict = true
		case "youngest_first":
			sched.PreemptYoungest = true
		}
	})
}

func setPreemptType(file *File, v value) {
	if w, ok := v.parseWord("preempt/none|preempt/partition_prio|preempt/qos"); ok {
		file.Config.Sched.PreemptType = w
	}
}

func setProctrack(_ *File, v value) {
	switch w, _ := v.parseWord("proctrack/cgroup|proctrack/linuxproc|proctrack/pgid"); w {
	case "proctrack/linuxproc", "proctrack/pgid":
		v.noteValue(
			"processes are tracked by cgroup where the agent may make them, else by the shepherd, from which they cannot escape by a new process group",
		)
	}
}

func setSelectType(_ *File, v value) {
	switch word, _ := v.parseWord(
		"select/cons_tres|select/cons_res|select/linear|select/cray_aries",
	); word {
	case "select/cons_res":
		v.noteValue("Slurm replaced it by select/cons_tres, which is what is used")
	case "select/linear", "select/cray_aries":
		v.failValue(
			"%s is not supported, and to ignore it would be unsafe: jobs would share nodes; set OverSubscribe=EXCLUSIVE on the partitions",
			word,
		)
	}
}

func setSelectParameters(file *File, v value) {
	sched := &file.Config.Sched
	sched.Cores = true
	sched.Memory = false
	sched.LLN = false
	sched.LeastShared = false
	v.checkOptions(selectParams(), func(name string, _ value) {
		switch name {
		case "CR_CPU":
			sched.Cores = false
		case "CR_CPU_Memory":
			sched.Cores, sched.Memory = false, true
		case "CR_Core_Memory", "CR_Memory":
			sched.Memory = true
		case "CR_LLN":
			sched.LLN = true
		case "LL_SHARED_GRES":
			sched.LeastShared = true
		}
	})
}

func setTaskPlugin(file *File, v value) {
	for _, item := range v.splitItems() {
		inner := v
		inner.Value = item
		switch w, _ := inner.parseWord("task/none|task/affinity|task/cgroup"); w {
		case "task/affinity":
			file.Agent.TaskAffinity = true
		case "task/cgroup":
			file.Agent.TaskCgroup = true
		case "task/none":
			v.noteValue("tasks are not bound to cores")
		}
	}
}

func setSchedulerParameters(file *File, v value) {
	sched := &file.Config.Sched
	sched.Params = v.splitItems()
	v.checkOptions(schedulerParams(), func(name string, v value) {
		switch name {
		case "nohold_on_prolog_fail", "enable_user_top":
			return // read from Params
		case "pack_mix":
			sched.PackMix = true
			return
		}
		if v.Value == "" {
			v.failValue("a value is missing")
			return
		}
		switch name {
		case "bf_resolution":
			seconds(v, &sched.BFResolution, spec.Second)
		case "sched_interval":
			seconds(v, &sched.Interval, spec.Second)
		case "bf_max_job_test":
			small(v, &sched.BFMaxJobTest)
		case "bf_firm":
			small(v, &sched.Firm)
		case "bf_promise":
			switch v.Value {
			case "limit":
				sched.PredictRuns = false
			case "prediction":
				sched.PredictRuns = true
			default:
				v.failValue("%s is not limit or prediction", quoteShort(v.Value))
			}
		case "bf_promise_slack":
			small(v, &sched.PromiseSlack)
		case "max_switch_wait":
			seconds(v, &sched.SwitchWait, spec.Second)
		case "bf_max_job_array_resv":
			small(v, &sched.ArrayResv)
		case "max_user_share":
			if n, ok := v.parseInteger(1, 100); ok {
				file.Config.Limits.UserShare = uint32(n)
			}
		case "max_script_size":
			if n, ok := v.parseInteger(1, 512<<20); ok {
				file.Config.Limits.MaxScript = n
			}
		}
	})
}

func seconds(v value, to *spec.Span, unit spec.Span) {
	if n, err := strconv.ParseInt(v.Value, 10, 32); err != nil || n < 1 {
		v.failValue("%s is not a whole number above 0", quoteShort(v.Value))
	} else {
		*to = spec.Span(n) * unit
	}
}

func small(v value, to *uint32) {
	if n, ok := v.parseInteger(0, 1<<31); ok {
		*to = uint32(n)
	}
}

// nodeScript is Prolog and Epilog, which may be given several times.
func nodeScript(to func(f *File) *[]string) func(*File, value) {
	return func(file *File, v value) {
		if isOff(v) {
			return
		}
		if !path.IsAbs(v.Value) {
			v.failValue("must be an absolute path, not %s", quoteShort(v.Value))
			return
		}
		if _, err := path.Match(v.Value, ""); err != nil {
			v.failValue("%s is not a pattern of file names", quoteShort(v.Value))
			return
		}
		*to(file) = append(*to(file), v.Value)
	}
}

func setPrologEpilogTimeout(file *File, v value) {
	setSpan(func(f *File) *spec.Span { return &f.Agent.PrologTimeout }, spec.Second)(file, v)
	file.Agent.EpilogTimeout = file.Agent.PrologTimeout
}

// setCheckStates reads when a node looks at its health.
func setCheckStates(file *File, v value) {
	check := &file.Agent.Check
	for _, w := range v.splitItems() {
		inner := v
		inner.Value = w
		word, ok := inner.parseWord("ALLOC|ANY|CYCLE|IDLE|MIXED|NONDRAINED_IDLE|START_ONLY")
		if !ok {
			return
		}
		switch word {
		case "ALLOC", "MIXED":
			check.Busy = true
		case "IDLE":
			check.Idle = true
		case "NONDRAINED_IDLE":
			check.Idle = true
			inner.noteValue(
				"taken as IDLE: a node that was drained for its health is found well only by another look",
			)
		case "ANY":
			check.Idle, check.Busy = true, true
		case "CYCLE":
			check.Spread = true
		case "START_ONLY":
			check.Once = true
		}
	}
}

// isOff tells the words with which a program is switched off.
func isOff(v value) bool { return strings.EqualFold(v.Value, "none") || v.Value == "(null)" }

func setPrologFlags(file *File, v value) {
	if isOff(v) {
		return
	}
	v.checkOptions(prologFlags(), func(name string, _ value) {
		switch name {
		case "Contain":
			file.Agent.Contain = true
		case "DeferBatch":
			file.ctl.DeferBatch = true
		case "ForceRequeueOnFail":
			file.ctl.ForceRequeue = true
		case "RunInJob":
			file.Agent.Contain = true
			file.Agent.PrologInJob = true
		case "Serial":
			file.Agent.Serial = true
		case "X11":
			file.Agent.Contain = true
			file.Config.ForwardX11 = true
		}
	})
}

func setPrivateData(file *File, v value) {
	file.Config.Private = nil
	if isOff(v) {
		return
	}
	v.checkOptions(
		privateData(),
		func(name string, _ value) { file.Config.Private = append(file.Config.Private, name) },
	)
}

func (f *File) mcsConfig() *spec.MCSConfig {
	if f.Config.MCS == nil {
		f.Config.MCS = &spec.MCSConfig{}
	}
	return f.Config.MCS
}

func setMCSPlugin(file *File, v value) {
	switch word, _ := v.parseWord("none|mcs/none|mcs/user|mcs/account|mcs/group|mcs/label"); word {
	case "mcs/user", "mcs/account":
		file.mcsConfig().By = strings.TrimPrefix(word, "mcs/")
	case "mcs/group", "mcs/label":
		v.failValue(
			"%s is not supported, and to ignore it would be unsafe: users would share nodes; mcs/user and mcs/account are",
			word,
		)
	}
}

// setMCSParameters reads (ondemand|enforced),(noselect|select|ondemandselect),
// (privatedata|noprivatedata), and what is for a plug-in behind a colon.
func setMCSParameters(file *File, v value) {
	words, _, _ := strings.Cut(v.Value, ":")
	mcs := file.mcsConfig()
	for item := range strings.SplitSeq(words, ",") {
		one := v
		one.Value = strings.TrimSpace(item)
		switch w, _ := one.parseWord("ondemand|enforced|noselect|select|ondemandselect|privatedata|noprivatedata"); w {
		case "enforced":
			mcs.Enforced = true
		case "noselect":
			mcs.Never = true
		case "select":
			mcs.Always = true
		case "privatedata":
			v.failValue(
				"privatedata is not supported, and to ignore it would be unsafe: users would see each other's jobs; PrivateData=jobs is",
			)
		}
	}
}

// oneProgram reads the path of a single program.
func oneProgram(to func(f *File) *string) func(*File, value) {
	return func(file *File, v value) {
		switch {
		case isOff(v):
		case !path.IsAbs(v.Value):
			v.failValue("must be an absolute path, not %s", quoteShort(v.Value))
		default:
			*to(file) = v.Value
		}
	}
}
