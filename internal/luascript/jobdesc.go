package luascript

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// kind says how the text of scontrol update becomes the Lua value of a field, and back.
type kind uint8

const (
	kindText kind = iota
	kindNumber
	kindMinutes
)

// field is one field of job_desc.
type field struct {
	name string
	// key is that of scontrol update job, empty where none changes the field.
	key  string
	kind kind
	get  func(*Job) lua.LValue
	// set is nil where a script may read the field only.
	set func(*Job, lua.LValue) error
}

// fields are all that job_desc has. Their names, and the values that mean "not given", are
// those of Slurm's plugin.
//
//muster:table one row for each field
func fields() []field {
	return []field{
		text("account", "Account", func(s *apiv1.JobSpec) *string { return &s.Account }),
		text("admin_comment", "AdminComment", func(s *apiv1.JobSpec) *string { return &s.AdminComment }),
		readText("alloc_node", func(j *Job) string { return j.Spec.GetSubmitHost() }),
		readNumber("argc", func(j *Job) lua.LNumber { return lua.LNumber(len(argumentsOf(j))) }),
		{name: "array_inx", get: func(j *Job) lua.LValue { return optionalText(arrayText(j.Spec)) }},
		{name: "begin_time", get: func(j *Job) lua.LValue { return seconds(j.Spec.GetBegin()) },
			set: func(j *Job, v lua.LValue) error { return setSeconds(&j.Spec.Begin, v) }},
		readNumber("bitflags", func(*Job) lua.LNumber { return 0 }),
		never("boards_per_node", lua.LNumber(noVal16)),
		never("burst_buffer", lua.LNil),
		never("clusters", lua.LNil),
		text("comment", "Comment", func(s *apiv1.JobSpec) *string { return &s.Comment }),
		readText("container", func(j *Job) string { return j.Spec.GetContainer().GetImage() }),
		flag("contiguous", "Contiguous", func(s *apiv1.JobSpec) *bool { return &s.Contiguous }),
		count("core_spec", "CoreSpec", noVal16, func(s *apiv1.JobSpec) *uint32 { return &s.CoreSpec }),
		count("cores_per_socket", "ReqCores", noVal16, func(s *apiv1.JobSpec) *uint32 { return &s.CoresPerSocket }),
		count("cpus_per_task", "CPUsPerTask", noVal16, func(s *apiv1.JobSpec) *uint32 { return &s.CpusPerTask }),
		{name: "cpus_per_tres", get: func(j *Job) lua.LValue { return perGPU(int64(j.Spec.GetCpusPerGpu())) },
			set: func(job *Job, v lua.LValue) error {
				n, err := setPerGPU(v)
				job.Spec.CpusPerGpu = uint32(n)
				return err
			}},
		{name: "cron_job", get: func(j *Job) lua.LValue { return lua.LBool(j.Cron) }},
		{name: "deadline", get: func(j *Job) lua.LValue { return seconds(j.Spec.GetDeadline()) },
			set: func(j *Job, v lua.LValue) error { return setSeconds(&j.Spec.Deadline, v) }},
		readText("default_account", func(j *Job) string { return j.DefaultAccount }),
		readText("default_qos", func(j *Job) string { return j.DefaultQOS }),
		never("delay_boot", lua.LNumber(noVal)),
		text("dependency", "Dependency", func(s *apiv1.JobSpec) *string { return &s.Dependency }),
		never("end_time", lua.LNumber(0)),
		text("exc_nodes", "ExcNodeList", func(s *apiv1.JobSpec) *string { return &s.Exclude }),
		text("extra", "Extra", func(s *apiv1.JobSpec) *string { return &s.Extra }),
		text("features", "Features", func(s *apiv1.JobSpec) *string { return &s.Constraint }),
		gres("gres", "", func(s *apiv1.JobSpec) *[]*apiv1.Count { return &s.PerNode }),
		readNumber("group_id", func(j *Job) lua.LNumber { return lua.LNumber(j.GID) }),
		{name: "immediate", get: func(j *Job) lua.LValue { return truthValue(j.Spec.GetImmediate()) }},
		{name: "licenses", key: "Licenses", get: func(j *Job) lua.LValue { return optionalText(licenseText(j.Spec)) },
			set: func(j *Job, v lua.LValue) error { return setLicenses(j.Spec, v) }},
		{name: "mail_type", get: func(j *Job) lua.LValue { return mailBits(j.Spec.GetMailTypes()) },
			set: func(j *Job, v lua.LValue) error { return setMailBits(j.Spec, v) }},
		text("mail_user", "MailUser", func(s *apiv1.JobSpec) *string { return &s.MailUser }),
		never("max_cpus", lua.LNumber(noVal)),
		{name: "max_nodes", get: func(j *Job) lua.LValue { return unsetOr(max(j.Spec.GetMaxNodes(), j.Spec.GetMinNodes()), noVal) },
			set: func(j *Job, v lua.LValue) error { return setCount(&j.Spec.MaxNodes, noVal, v) }},
		readText("mcs_label", func(j *Job) string { return j.Spec.GetMcsLabel() }),
		{name: "mem_per_tres", get: func(j *Job) lua.LValue { return perGPU(j.Spec.GetMemPerGpu()) },
			set: func(job *Job, v lua.LValue) error {
				n, err := setPerGPU(v)
				job.Spec.MemPerGpu = n
				return err
			}},
		{name: "min_cpus", key: "NumCPUs", kind: kindNumber, get: func(j *Job) lua.LValue { return minCPUs(j.Spec) }},
		{name: "min_mem_per_cpu", key: "MinMemoryCPU", kind: kindNumber,
			get: func(j *Job) lua.LValue { return positiveNumber(j.Spec.GetMemPerCpu()) },
			set: func(j *Job, v lua.LValue) error { return setMemory(j.Spec, v, true) }},
		{name: "min_mem_per_node", key: "MinMemoryNode", kind: kindNumber,
			get: func(j *Job) lua.LValue { return memPerNode(j.Spec) },
			set: func(j *Job, v lua.LValue) error { return setMemory(j.Spec, v, false) }},
		{name: "min_nodes", key: "NumNodes", kind: kindNumber,
			get: func(j *Job) lua.LValue { return unsetOr(j.Spec.GetMinNodes(), noVal) },
			set: func(j *Job, v lua.LValue) error { return setCount(&j.Spec.MinNodes, noVal, v) }},
		text("name", "JobName", func(s *apiv1.JobSpec) *string { return &s.Name }),
		{name: "nice", key: "Nice", kind: kindNumber, get: func(j *Job) lua.LValue { return nice(j.Spec) },
			set: func(j *Job, v lua.LValue) error { return setNice(j.Spec, v) }},
		count("ntasks_per_core", "", noVal16, func(s *apiv1.JobSpec) *uint32 { return &s.TasksPerCore }),
		count("ntasks_per_gpu", "", noVal16, func(s *apiv1.JobSpec) *uint32 { return &s.TasksPerGpu }),
		count("ntasks_per_tres", "", noVal16, func(s *apiv1.JobSpec) *uint32 { return &s.TasksPerGpu }),
		count("ntasks_per_node", "NtasksPerNode", noVal16, func(s *apiv1.JobSpec) *uint32 { return &s.TasksPerNode }),
		count("ntasks_per_socket", "", noVal16, func(s *apiv1.JobSpec) *uint32 { return &s.TasksPerSocket }),
		count("num_tasks", "NumTasks", noVal, func(s *apiv1.JobSpec) *uint32 { return &s.Tasks }),
		{name: "open_mode", get: func(j *Job) lua.LValue { return openMode(j.Spec.GetAppend()) },
			set: func(j *Job, v lua.LValue) error { return setOpenMode(j.Spec, v) }},
		flag("overcommit", "", func(s *apiv1.JobSpec) *bool { return &s.Overcommit }),
		{name: "partition", key: "Partition",
			get: func(j *Job) lua.LValue { return optionalText(strings.Join(j.Spec.GetPartitions(), ",")) },
			set: func(j *Job, v lua.LValue) error { return setPartitions(j.Spec, v) }},
		{name: "pack_job_offset", get: func(j *Job) lua.LValue { return componentNumber(j) }},
		{name: "het_job_offset", get: func(j *Job) lua.LValue { return componentNumber(j) }},
		never("plane_size", lua.LNumber(noVal16)),
		count("pn_min_cpus", "MinCPUsNode", noVal16, func(s *apiv1.JobSpec) *uint32 { return &s.MinCpusPerNode }),
		{name: "pn_min_memory", get: func(j *Job) lua.LValue { return minMemory(j.Spec) },
			set: func(j *Job, v lua.LValue) error { return setMinMemory(j.Spec, v) }},
		{name: "pn_min_tmp_disk", get: func(j *Job) lua.LValue { return unsetOr(j.Spec.GetTmpDisk(), noVal) },
			set: func(j *Job, v lua.LValue) error { return setAmount(&j.Spec.TmpDisk, v) }},
		text("prefer", "Prefer", func(s *apiv1.JobSpec) *string { return &s.Prefer }),
		{name: "priority", key: "Priority", kind: kindNumber, get: func(j *Job) lua.LValue { return priority(j.Spec) },
			set: func(j *Job, v lua.LValue) error { return setPriority(j.Spec, v) }},
		text("qos", "QOS", func(s *apiv1.JobSpec) *string { return &s.Qos }),
		flag("reboot", "Reboot", func(s *apiv1.JobSpec) *bool { return &s.Reboot }),
		text("req_nodes", "ReqNodeList", func(s *apiv1.JobSpec) *string { return &s.Nodes }),
		count("req_switch", "Switches", noVal, func(s *apiv1.JobSpec) *uint32 { return &s.Switches }),
		{name: "requeue", key: "Requeue", kind: kindNumber, get: func(j *Job) lua.LValue { return triOf(j.Spec.GetRequeue()) },
			set: func(j *Job, v lua.LValue) error { return setTri(&j.Spec.Requeue, v) }},
		text("reservation", "ReservationName", func(s *apiv1.JobSpec) *string { return &s.Reservation }),
		{name: "script", get: func(j *Job) lua.LValue { return optionalText(string(j.Script)) },
			set: func(j *Job, v lua.LValue) error { return setScript(j, v) }},
		count("segment_size", "", noVal16, func(s *apiv1.JobSpec) *uint32 { return &s.Segment }),
		never("selinux_context", lua.LNil),
		{name: "shared", key: "OverSubscribe", get: func(j *Job) lua.LValue { return shared(j.Spec) },
			set: func(j *Job, v lua.LValue) error { return setShared(j.Spec, v) }},
		never("site_factor", lua.LNumber(niceOffset)),
		never("sockets_per_board", lua.LNumber(noVal16)),
		count("sockets_per_node", "ReqSockets", noVal16, func(s *apiv1.JobSpec) *uint32 { return &s.SocketsPerNode }),
		never("spank_job_env", lua.LNil),
		never("spank_job_env_size", lua.LNumber(0)),
		text("std_err", "StdErr", func(s *apiv1.JobSpec) *string { return &s.Stderr }),
		text("std_in", "StdIn", func(s *apiv1.JobSpec) *string { return &s.Stdin }),
		text("std_out", "StdOut", func(s *apiv1.JobSpec) *string { return &s.Stdout }),
		readText("submit_line", func(j *Job) string { return j.Spec.GetSubmitLine() }),
		text("system_comment", "SystemComment", func(s *apiv1.JobSpec) *string { return &s.SystemComment }),
		text("task_dist", "", func(s *apiv1.JobSpec) *string { return &s.Distribution }),
		count("threads_per_core", "ReqThreads", noVal16, func(s *apiv1.JobSpec) *uint32 { return &s.ThreadsPerCore }),
		minutes("time_limit", "TimeLimit", func(s *apiv1.JobSpec) *int64 { return &s.TimeLimit }),
		minutes("time_min", "TimeMin", func(s *apiv1.JobSpec) *int64 { return &s.TimeMin }),
		text("tres_bind", "", func(s *apiv1.JobSpec) *string { return &s.GpuBind }),
		text("tres_freq", "", func(s *apiv1.JobSpec) *string { return &s.GpuFreq }),
		gres("tres_per_job", "TresPerJob", func(s *apiv1.JobSpec) *[]*apiv1.Count { return &s.PerJob }),
		gres("tres_per_node", "TresPerNode", func(s *apiv1.JobSpec) *[]*apiv1.Count { return &s.PerNode }),
		gres("tres_per_socket", "", func(s *apiv1.JobSpec) *[]*apiv1.Count { return &s.PerSocket }),
		gres("tres_per_task", "TresPerTask", func(s *apiv1.JobSpec) *[]*apiv1.Count { return &s.PerTask }),
		readNumber("user_id", func(j *Job) lua.LNumber { return lua.LNumber(j.UID) }),
		readText("user_name", func(j *Job) string { return j.User }),
		{name: "wait4switch", get: func(j *Job) lua.LValue { return seconds(j.Spec.GetSwitchWait()) },
			set: func(j *Job, v lua.LValue) error { return setSeconds(&j.Spec.SwitchWait, v) }},
		text("wckey", "WCKey", func(s *apiv1.JobSpec) *string { return &s.Wckey }),
		text("work_dir", "WorkDir", func(s *apiv1.JobSpec) *string { return &s.WorkDir }),
		readNumber("x11", func(j *Job) lua.LNumber { return x11Bits(j.Spec.GetX11()) }),
	}
}

// x11Bits is a value of --x11 as scripts see it.
func x11Bits(where string) lua.LNumber {
	switch where {
	case "all":
		return 1
	case "batch":
		return 2
	case "first":
		return 4
	case "last":
		return 8
	}
	return 0
}

// text is a field that is a string, nil where it is empty.
func text(name, key string, at func(*apiv1.JobSpec) *string) field {
	return field{
		name: name,
		key:  key,
		get:  func(j *Job) lua.LValue { return optionalText(*at(j.Spec)) },
		set: func(job *Job, v lua.LValue) error {
			value, err := textOf(v)
			*at(job.Spec) = value
			return err
		},
	}
}

// textOf is the text of a value: a string or a number, and empty for nil.
func textOf(value lua.LValue) (string, error) {
	switch v := value.(type) {
	case *lua.LNilType:
		return "", nil
	case lua.LString:
		return string(v), nil
	case lua.LNumber:
		return v.String(), nil
	}
	return "", fmt.Errorf("expected a string or nil, got %s", value.Type())
}

func optionalText(value string) lua.LValue {
	if value == "" {
		return lua.LNil
	}
	return lua.LString(value)
}

func readText(name string, get func(*Job) string) field {
	return field{name: name, get: func(j *Job) lua.LValue { return optionalText(get(j)) }}
}

func readNumber(name string, get func(*Job) lua.LNumber) field {
	return field{name: name, kind: kindNumber, get: func(j *Job) lua.LValue { return get(j) }}
}

// never is a field that no request of Muster has.
func never(name string, value lua.LValue) field {
	return field{name: name, get: func(*Job) lua.LValue { return value }}
}

// count is a field that is a positive number.
func count(name, key string, unset lua.LNumber, at func(*apiv1.JobSpec) *uint32) field {
	return field{
		name: name,
		key:  key,
		kind: kindNumber,
		get:  func(j *Job) lua.LValue { return unsetOr(*at(j.Spec), unset) },
		set:  func(j *Job, v lua.LValue) error { return setCount(at(j.Spec), unset, v) },
	}
}

func unsetOr[N uint32 | int64](n N, unset lua.LNumber) lua.LValue {
	if n == 0 {
		return unset
	}
	return lua.LNumber(n)
}

// numberOf is a number of a script; given is false for nil and for values that mean "not
// given".
func numberOf(v lua.LValue) (n int64, given bool, err error) {
	if v == lua.LNil {
		return 0, false, nil
	}
	var value float64
	switch v := v.(type) {
	case lua.LNumber:
		value = float64(v)
	case lua.LString:
		value, err = strconv.ParseFloat(strings.TrimSpace(string(v)), 64)
	default:
		err = strconv.ErrSyntax
	}
	switch {
	case err != nil:
		return 0, false, fmt.Errorf("expected a number, got %s %q", v.Type(), v.String())
	case value == noVal || lua.LNumber(value) == noVal64:
		return 0, false, nil
	case value != value || value < -(1<<62) || value >= 1<<62:
		return 0, false, fmt.Errorf("%v is out of range", value)
	}
	return int64(value), true, nil
}

func setCount(to *uint32, unset lua.LNumber, value lua.LValue) error {
	n, given, err := numberOf(value)
	switch {
	case err != nil:
		return err
	case !given || lua.LNumber(n) == unset:
		*to = 0
		return nil
	case n < 0 || n > 1<<31:
		return fmt.Errorf("%d is out of range", n)
	}
	*to = uint32(n)
	return nil
}

func setAmount(to *int64, value lua.LValue) error {
	n, given, err := numberOf(value)
	switch {
	case err != nil:
		return err
	case !given:
		n = 0
	case n < 0:
		return fmt.Errorf("%d is out of range", n)
	}
	*to = n
	return nil
}

// flag is a yes or no that Slurm has as a number.
func flag(name, key string, at func(*apiv1.JobSpec) *bool) field {
	return field{
		name: name,
		key:  key,
		kind: kindNumber,
		get:  func(j *Job) lua.LValue { return truthValue(*at(j.Spec)) },
		set: func(job *Job, value lua.LValue) error {
			if b, ok := value.(lua.LBool); ok {
				*at(job.Spec) = bool(b)
				return nil
			}
			n, given, err := numberOf(value)
			if err == nil && given && n != 0 && n != 1 && n != noVal16 && n != noVal8 {
				err = fmt.Errorf("expected 0 or 1, got %d", n)
			}
			*at(job.Spec) = given && n == 1
			return err
		},
	}
}

func truthValue(on bool) lua.LValue {
	if on {
		return lua.LNumber(1)
	}
	return lua.LNumber(0)
}

// minutes is a span that Slurm has in minutes.
func minutes(name, key string, at func(*apiv1.JobSpec) *int64) field {
	return field{
		name: name,
		key:  key,
		kind: kindMinutes,
		get: func(job *Job) lua.LValue {
			switch n := *at(job.Spec); {
			case n < 0:
				return lua.LNumber(infinite)
			case n == 0:
				return lua.LNumber(noVal)
			default:
				return lua.LNumber(n / int64(spec.Minute))
			}
		},
		set: func(job *Job, v lua.LValue) error {
			n, given, err := numberOf(v)
			switch {
			case err != nil:
				return err
			case !given:
				*at(job.Spec) = 0
			case n == infinite:
				*at(job.Spec) = -1
			case n < 0 || n > 1<<31:
				return fmt.Errorf("%d minutes are out of range", n)
			default:
				*at(job.Spec) = n * int64(spec.Minute)
			}
			return nil
		},
	}
}

func seconds(nanos int64) lua.LValue { return lua.LNumber(nanos / int64(spec.Second)) }

func setSeconds(to *int64, value lua.LValue) error {
	n, given, err := numberOf(value)
	if err == nil && (n < 0 || n > 1<<33) {
		err = fmt.Errorf("%d seconds are out of range", n)
	}
	if err != nil {
		return err
	}
	*to = 0
	if given {
		*to = n * int64(spec.Second)
	}
	return nil
}

// gres is a field that lists generic resources: gres/gpu:h100:2,gres/nic:1.
func gres(name, key string, at func(*apiv1.JobSpec) *[]*apiv1.Count) field {
	return field{
		name: name,
		key:  key,
		get:  func(j *Job) lua.LValue { return optionalText(gresText(*at(j.Spec))) },
		set: func(job *Job, v lua.LValue) error {
			value, err := textOf(v)
			if err != nil {
				return err
			}
			list, err := parseGRES(value)
			*at(job.Spec) = list
			return err
		},
	}
}

func gresText(list []*apiv1.Count) string {
	words := make([]string, len(list))
	for i, c := range list {
		words[i] = "gres/" + c.GetName()
		if c.GetType() != "" {
			words[i] += ":" + c.GetType()
		}
		words[i] += ":" + strconv.FormatInt(c.GetN(), 10)
	}
	return strings.Join(words, ",")
}

// parseGRES reads a list in the forms of several releases: gpu:2, gres:gpu:2, gres/gpu=2,
// gres/gpu:h100:2.
func parseGRES(value string) ([]*apiv1.Count, error) {
	var counts []*apiv1.Count
	for _, word := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' }) {
		rest := strings.TrimSpace(word)
		rest = strings.TrimPrefix(strings.TrimPrefix(rest, "gres:"), "gres/")
		parts := strings.Split(strings.ReplaceAll(rest, "=", ":"), ":")
		c := &apiv1.Count{Name: parts[0], N: 1}
		if last := parts[len(parts)-1]; len(parts) > 1 && last != "" && last[0] >= '0' && last[0] <= '9' {
			n, err := format.ParseCount(last)
			if err != nil {
				return nil, fmt.Errorf("invalid generic resources %q: %w", value, err)
			}
			c.N, parts = n, parts[:len(parts)-1]
		}
		if len(parts) == 2 {
			c.Type = parts[1]
		}
		if c.Name == "" || len(parts) > 2 || (len(parts) == 2 && c.Type == "") {
			return nil, fmt.Errorf("invalid generic resources %q: expected NAME[:TYPE][:COUNT]", value)
		}
		counts = append(counts, c)
	}
	return counts, nil
}

func perGPU(n int64) lua.LValue {
	if n == 0 {
		return lua.LNil
	}
	return lua.LString("gres/gpu:" + strconv.FormatInt(n, 10))
}

func setPerGPU(v lua.LValue) (int64, error) {
	value, err := textOf(v)
	if err != nil || value == "" {
		return 0, err
	}
	list, err := parseGRES(value)
	switch {
	case err != nil:
		return 0, err
	case len(list) != 1 || list[0].GetName() != "gpu" || list[0].GetType() != "" || list[0].GetN() > 1<<31:
		return 0, fmt.Errorf("expected gres/gpu:NUMBER, got %q", value)
	}
	return list[0].GetN(), nil
}

func argumentsOf(job *Job) []string {
	if job.Spec.GetCommand() == "" {
		return job.Spec.GetArgs()
	}
	return append([]string{job.Spec.GetCommand()}, job.Spec.GetArgs()...)
}

func arrayText(jobSpec *apiv1.JobSpec) string {
	words := make([]string, len(jobSpec.GetArray()))
	for i, taskRange := range jobSpec.GetArray() {
		words[i] = strconv.FormatInt(taskRange.GetFirst(), 10)
		if taskRange.GetLast() != taskRange.GetFirst() {
			words[i] += "-" + strconv.FormatInt(taskRange.GetLast(), 10)
		}
		if taskRange.GetStep() > 1 {
			words[i] += ":" + strconv.FormatInt(taskRange.GetStep(), 10)
		}
	}
	out := strings.Join(words, ",")
	if jobSpec.GetArrayThrottle() > 0 && out != "" {
		out += "%" + strconv.FormatUint(uint64(jobSpec.GetArrayThrottle()), 10)
	}
	return out
}

func licenseText(jobSpec *apiv1.JobSpec) string {
	words := make([]string, len(jobSpec.GetLicenses()))
	for i, c := range jobSpec.GetLicenses() {
		words[i] = c.GetName() + ":" + strconv.FormatInt(c.GetN(), 10)
	}
	if jobSpec.GetAnyLicense() {
		return strings.Join(words, "|")
	}
	return strings.Join(words, ",")
}

func setLicenses(jobSpec *apiv1.JobSpec, v lua.LValue) error {
	value, err := textOf(v)
	if err != nil {
		return err
	}
	jobSpec.Licenses = nil
	jobSpec.AnyLicense = strings.Contains(value, "|")
	for _, word := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == '|' }) {
		name, number, counted := strings.Cut(strings.TrimSpace(word), ":")
		c := &apiv1.Count{Name: name, N: 1}
		if counted {
			c.N, err = format.ParseCount(number)
		}
		if err != nil || name == "" {
			return fmt.Errorf("invalid licences %q: expected NAME[:COUNT],...", value)
		}
		jobSpec.Licenses = append(jobSpec.Licenses, c)
	}
	return nil
}

// Bits of mail_type.
const (
	mailBegin         = 0x1
	mailEnd           = 0x2
	mailFail          = 0x4
	mailRequeue       = 0x8
	mailTime100       = 0x10
	mailTime90        = 0x20
	mailTime80        = 0x40
	mailTime50        = 0x80
	mailStageOut      = 0x100
	mailArrayTasks    = 0x200
	mailInvalidDepend = 0x400
)

// mailNames are the types of mail as requests have them.
func mailNames() []string {
	return []string{"BEGIN", "END", "FAIL", "REQUEUE", "TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80",
		"TIME_LIMIT_50", "STAGE_OUT", "ARRAY_TASKS", "INVALID_DEPEND"}
}

const mailAll = mailBegin | mailEnd | mailFail | mailRequeue | mailInvalidDepend

func mailBits(types []string) lua.LNumber {
	bits := 0
	for _, name := range types {
		if i := slices.Index(mailNames(), name); i >= 0 {
			bits |= 1 << i
		} else if name == "ALL" {
			bits |= mailAll
		}
	}
	return lua.LNumber(bits)
}

func setMailBits(jobSpec *apiv1.JobSpec, value lua.LValue) error {
	n, _, err := numberOf(value)
	if err != nil {
		return err
	}
	names := mailNames()
	if n < 0 || n >= 1<<len(names) {
		return fmt.Errorf("%d is not a sum of slurm.MAIL_*", n)
	}
	jobSpec.MailTypes = nil
	for i, name := range names {
		if n&(1<<i) != 0 {
			jobSpec.MailTypes = append(jobSpec.MailTypes, name)
		}
	}
	return nil
}

// minCPUs are the CPUs of the tasks, as far as the request says.
func minCPUs(jobSpec *apiv1.JobSpec) lua.LValue {
	if jobSpec.GetTasks() == 0 && jobSpec.GetCpusPerTask() == 0 {
		return lua.LNumber(noVal)
	}
	return lua.LNumber(int64(max(jobSpec.GetTasks(), 1)) * int64(max(jobSpec.GetCpusPerTask(), 1)))
}

func positiveNumber(n int64) lua.LValue {
	if n == 0 {
		return lua.LNil
	}
	return lua.LNumber(n)
}

func memPerNode(jobSpec *apiv1.JobSpec) lua.LValue {
	if jobSpec.GetAllMem() {
		return lua.LNumber(0)
	}
	return positiveNumber(jobSpec.GetMemPerNode())
}

// setMemory sets memory per CPU or per node, of which a job has one.
func setMemory(jobSpec *apiv1.JobSpec, value lua.LValue, perCPU bool) error {
	n, given, err := numberOf(value)
	switch {
	case err != nil:
		return err
	case n < 0:
		return fmt.Errorf("%d MiB are out of range", n)
	}
	if given || perCPU {
		jobSpec.MemPerCpu = 0
	}
	if given || !perCPU {
		jobSpec.MemPerNode = 0
		jobSpec.AllMem = false
	}
	switch {
	case given && perCPU:
		jobSpec.MemPerCpu = n
	case given:
		jobSpec.MemPerNode = n
		jobSpec.AllMem = n == 0
	}
	return nil
}

// minMemory has memory per CPU above the flag MEM_PER_CPU.
func minMemory(jobSpec *apiv1.JobSpec) lua.LValue {
	switch {
	case jobSpec.GetMemPerCpu() > 0:
		return memPerCPU + lua.LNumber(jobSpec.GetMemPerCpu())
	case jobSpec.GetAllMem():
		return lua.LNumber(0)
	case jobSpec.GetMemPerNode() > 0:
		return lua.LNumber(jobSpec.GetMemPerNode())
	}
	return noVal64
}

func setMinMemory(jobSpec *apiv1.JobSpec, value lua.LValue) error {
	if n, ok := value.(lua.LNumber); ok && n >= memPerCPU && n < noVal64 {
		return fmt.Errorf("a Lua number cannot hold MEM_PER_CPU and an amount: set min_mem_per_cpu")
	}
	return setMemory(jobSpec, value, false)
}

func nice(jobSpec *apiv1.JobSpec) lua.LValue {
	if jobSpec.GetNice() == 0 {
		return lua.LNumber(noVal)
	}
	return lua.LNumber(int64(jobSpec.GetNice()) + niceOffset)
}

// setNice reads a nice value with or without the offset of slurm.NICE_OFFSET.
func setNice(jobSpec *apiv1.JobSpec, value lua.LValue) error {
	n, given, err := numberOf(value)
	if err != nil {
		return err
	}
	if n > niceOffset-(1<<30) {
		n -= niceOffset
	}
	if n < -(1<<30) || n > 1<<30 {
		return fmt.Errorf("%d is out of range", n)
	}
	jobSpec.Nice = 0
	if given {
		jobSpec.Nice = int32(n)
	}
	return nil
}

// priority is 0 for a job that is held.
func priority(jobSpec *apiv1.JobSpec) lua.LValue {
	if jobSpec.GetHold() {
		return lua.LNumber(0)
	}
	return unsetOr(jobSpec.GetPriority(), noVal)
}

func setPriority(jobSpec *apiv1.JobSpec, value lua.LValue) error {
	n, given, err := numberOf(value)
	switch {
	case err != nil:
		return err
	case n < 0 || n > infinite:
		return fmt.Errorf("%d is out of range", n)
	}
	jobSpec.Hold = given && n == 0
	jobSpec.Priority = 0
	if given && n != infinite {
		jobSpec.Priority = uint32(n)
	}
	return nil
}

func triOf(tri apiv1.Tri) lua.LValue {
	switch tri {
	case apiv1.Tri_TRI_NO:
		return lua.LNumber(0)
	case apiv1.Tri_TRI_YES:
		return lua.LNumber(1)
	}
	return lua.LNumber(noVal16)
}

func setTri(to *apiv1.Tri, value lua.LValue) error {
	n, given, err := numberOf(value)
	switch {
	case err != nil:
		return err
	case !given || n == noVal16:
		*to = apiv1.Tri_TRI_UNSET
	case n == 0:
		*to = apiv1.Tri_TRI_NO
	case n == 1:
		*to = apiv1.Tri_TRI_YES
	default:
		return fmt.Errorf("expected 0, 1 or slurm.NO_VAL16, got %d", n)
	}
	return nil
}

// Values of open_mode.
const (
	openAppend   = 1
	openTruncate = 2
)

func openMode(tri apiv1.Tri) lua.LValue {
	switch tri {
	case apiv1.Tri_TRI_YES:
		return lua.LNumber(openAppend)
	case apiv1.Tri_TRI_NO:
		return lua.LNumber(openTruncate)
	}
	return lua.LNumber(0)
}

func setOpenMode(jobSpec *apiv1.JobSpec, value lua.LValue) error {
	n, _, err := numberOf(value)
	if err != nil {
		return err
	}
	switch n {
	case 0:
		jobSpec.Append = apiv1.Tri_TRI_UNSET
	case openAppend:
		jobSpec.Append = apiv1.Tri_TRI_YES
	case openTruncate:
		jobSpec.Append = apiv1.Tri_TRI_NO
	default:
		return fmt.Errorf("expected slurm.OPEN_MODE_APPEND or slurm.OPEN_MODE_TRUNCATE, got %d", n)
	}
	return nil
}

func setPartitions(jobSpec *apiv1.JobSpec, v lua.LValue) error {
	value, err := textOf(v)
	if err != nil {
		return err
	}
	jobSpec.Partitions = strings.FieldsFunc(value, func(r rune) bool {
		return r == ',' || r == ' '
	})
	return nil
}

func setScript(job *Job, v lua.LValue) error {
	value, err := textOf(v)
	if err != nil {
		return err
	}
	if value == "" || len(job.Script) == 0 {
		return fmt.Errorf("a script can be replaced, not added or taken away")
	}
	job.Script = []byte(value)
	return nil
}

// sharedValues are the values of shared, by that of a request.
func sharedValues() map[spec.Sharing]lua.LNumber {
	return map[spec.Sharing]lua.LNumber{
		spec.ShareDefault: noVal16, spec.Exclusive: 0, spec.Oversubscribe: 1,
		spec.ExclusiveUser: 2, spec.ExclusiveMCS: 3, spec.ExclusiveTopo: 4,
	}
}

func shared(jobSpec *apiv1.JobSpec) lua.LValue {
	return sharedValues()[spec.Sharing(jobSpec.GetSharing())]
}

func setShared(jobSpec *apiv1.JobSpec, v lua.LValue) error {
	n, given, err := numberOf(v)
	if err != nil {
		return err
	}
	if !given {
		n = noVal16
	}
	for sharing, value := range sharedValues() {
		if lua.LNumber(n) == value {
			jobSpec.Sharing = uint32(sharing)
			return nil
		}
	}
	return fmt.Errorf("expected slurm.JOB_SHARED_* or slurm.NO_VAL16, got %d", n)
}

func componentNumber(job *Job) lua.LValue {
	if job.Component < 0 {
		return lua.LNumber(noVal)
	}
	return lua.LNumber(job.Component)
}
