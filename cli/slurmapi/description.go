package slurmapi

import (
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/schema"
	"github.com/musterhpc/muster/cli/submit"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
)

// aspect is what a field of a job's description (job_desc_msg) means to Muster.
type aspect struct {
	// option is the option of sbatch that the value is given to; a true switches it
	// on.
	option string
	// set does what no option does.
	set func(d *description, v any) string
	// update is the key of scontrol update that changes it; empty: it is fixed once
	// the job was submitted.
	update string
	// refused says why a job that asks for it is not accepted.
	refused string
	// ignored says why it changes nothing. It is a warning in the answer.
	ignored string
	// unset is what false asks for, where that is not what holds anyway.
	unset string
}

// description is a job that is described, on its way to a request.
type description struct {
	env    *tool.Env
	spec   *apiv1.JobSpec
	values schema.Values
	path   string
	wrong  problems
	warned problems
}

func option(name, update string) aspect { return aspect{option: name, update: update} }

func refuse(reason string) aspect { return aspect{refused: reason} }

func ignore(reason string) aspect { return aspect{ignored: reason} }

// descriptionAspects has a row for every field of job_desc_msg in every version.
//
//muster:table one row for each field
func descriptionAspects() map[string]aspect {
	const (
		noBinding   = "tasks are bound by srun; a job is always confined to its own CPUs and GPUs"
		noContainer = "OCI bundles are not run; an image is named in the script, with #SBATCH --container-image"
		noX11       = "X11 is forwarded by the command that submits: use sbatch --x11"
		ofSrun      = "it is for srun, which is not at the other end"
		noMemory    = "the memory of a running job is not changed"
	)
	return map[string]aspect{
		"account":                   option("account", "account"),
		"account_gather_frequency":  option("acctg-freq", ""),
		"admin_comment":             {refused: "it is set with an update, by an administrator", update: "admincomment"},
		"allocation_node_list":      ignore(ofSrun),
		"allocation_node_port":      ignore(ofSrun),
		"argv":                      {set: setArguments},
		"array":                     option("array", ""),
		"batch_features":            option("batch", ""),
		"begin_time":                {set: setBegin},
		"flags":                     {set: setFlags},
		"burst_buffer":              option("bb", ""),
		"clusters":                  {set: setClusters},
		"cluster_constraint":        option("cluster-constraint", ""),
		"comment":                   option("comment", "comment"),
		"contiguous":                option("contiguous", "contiguous"),
		"container":                 refuse(noContainer),
		"container_id":              refuse(noContainer),
		"container_type":            refuse(noContainer),
		"core_specification":        option("core-spec", "corespec"),
		"thread_specification":      option("thread-spec", "threadspec"),
		"cpu_binding":               refuse(noBinding),
		"cpu_binding_flags":         ignore(noBinding),
		"cpu_frequency":             option("cpu-freq", ""),
		"cpus_per_tres":             {set: setPerGPU("cpus-per-gpu")},
		"crontab":                   refuse("a crontab is installed with scrontab, all of its jobs together"),
		"deadline":                  {set: setDeadline},
		"delay_boot":                option("delay-boot", ""),
		"dependency":                option("dependency", "dependency"),
		"end_time":                  refuse("use time_limit, or deadline"),
		"environment":               {set: nothing}, // read with the script
		"rlimits":                   {set: setRlimits},
		"excluded_nodes":            option("exclude", "excnodelist"),
		"extra":                     option("extra", "extra"),
		"constraints":               option("constraint", "features"),
		"group_id":                  option("gid", ""),
		"hetjob_group":              ignore("the place in jobs says which component it is"),
		"immediate":                 {set: setImmediate},
		"job_id":                    refuse("the controller numbers jobs"),
		"kill_on_node_fail":         {set: nothing, unset: "no-kill"}, // true is what holds anyway
		"licenses":                  option("licenses", "licenses"),
		"mail_type":                 {set: setMailType, update: "mailtype"},
		"mail_user":                 option("mail-user", "mailuser"),
		"mcs_label":                 option("mcs-label", ""),
		"memory_binding":            refuse(noBinding),
		"memory_binding_type":       ignore(noBinding),
		"memory_per_tres":           {set: setPerGPU("mem-per-gpu")},
		"memory_update_margin":      refuse(noMemory),
		"memory_update_delay":       refuse(noMemory),
		"name":                      option("job-name", "jobname"),
		"network":                   option("network", ""),
		"nice":                      option("nice", "nice"),
		"tasks":                     option("ntasks", "numtasks"),
		"oom_kill_step":             option("oom-kill-step", ""),
		"open_mode":                 {set: setOpenMode},
		"reserve_ports":             option("resv-ports", ""),
		"overcommit":                option("overcommit", ""),
		"partition":                 option("partition", "partition"),
		"distribution_plane_size":   refuse("the distribution of tasks is given to srun"),
		"power_flags":               ignore("Slurm has no values for it"),
		"prefer":                    option("prefer", "prefer"),
		"hold":                      option("hold", "hold"),
		"priority":                  option("priority", "priority"),
		"profile":                   {set: setProfile},
		"qos":                       option("qos", "qos"),
		"reboot":                    option("reboot", "reboot"),
		"required_nodes":            option("nodelist", "reqnodelist"),
		"requeue":                   {option: "requeue", unset: "no-requeue", update: "requeue"},
		"reservation":               option("reservation", "reservationname"),
		"script":                    {set: nothing}, // read before
		"shared":                    {set: setShared},
		"site_factor":               {refused: "it is set with an update, by an administrator", update: "sitefactor"},
		"spank_environment":         refuse("Muster has no SPANK plugins"),
		"step_id":                   refuse("it is of srun"),
		"distribution":              option("distribution", ""),
		"time_limit":                {set: setTimeLimit, update: "timelimit"},
		"time_minimum":              {set: setTimeMinimum, update: "timemin"},
		"tres_bind":                 {set: setTRESBind},
		"tres_freq":                 {set: setTRESFreq},
		"tres_per_job":              {set: setTRESPer("gpus")},
		"tres_per_node":             {set: setTRESPerNode},
		"tres_per_socket":           {set: setTRESPer("gpus-per-socket")},
		"tres_per_task":             {set: setTRESPerTask},
		"user_id":                   {set: setUser},
		"wait_all_nodes":            ignore("a job always starts only when all its nodes are ready"),
		"kill_warning_flags":        {set: nothing}, // read with the signal
		"kill_warning_signal":       {set: setSignal},
		"kill_warning_delay":        {set: nothing}, // read with the signal
		"current_working_directory": {set: setWorkDir, update: "workdir"},
		"cpus_per_task":             option("cpus-per-task", "cpuspertask"),
		"minimum_cpus":              {set: setMinimumCPUs, update: "numcpus"},
		"maximum_cpus":              ignore("a job gets the CPUs of its tasks"),
		"nodes":                     option("nodes", "numnodes"),
		"minimum_nodes":             {set: setMinimumNodes, update: "numnodes"},
		"maximum_nodes":             {set: setMaximumNodes},
		"minimum_boards_per_node":   {set: only(1, "nodes have one board")},
		"minimum_sockets_per_board": option("sockets-per-node", ""),
		"sockets_per_node":          option("sockets-per-node", "reqsockets"),
		"cores_per_socket":          option("cores-per-socket", "reqcores"),
		"threads_per_core":          option("threads-per-core", "reqthreads"),
		"tasks_per_node":            option("ntasks-per-node", "ntaskspernode"),
		"tasks_per_socket":          option("ntasks-per-socket", ""),
		"tasks_per_core":            option("ntasks-per-core", ""),
		"tasks_per_board":           refuse("nodes have one board: use tasks_per_node"),
		"ntasks_per_tres":           option("ntasks-per-gpu", ""),
		"minimum_cpus_per_node":     option("mincpus", "mincpusnode"),
		"memory_per_cpu":            option("mem-per-cpu", "minmemorycpu"),
		"memory_per_node":           option("mem", "minmemorynode"),
		"temporary_disk_per_node":   option("tmp", "mintmpdisknode"),
		"selinux_context":           refuse("Muster does not set SELinux contexts"),
		"required_switches":         {set: setSwitches},
		"segment_size":              option("segment", ""),
		"standard_error":            option("error", "stderr"),
		"standard_input":            option("input", "stdin"),
		"standard_output":           option("output", "stdout"),
		"wait_for_switch":           {set: nothing}, // read with required_switches
		"wckey":                     option("wckey", "wckey"),
		"x11":                       refuse(noX11),
		"x11_magic_cookie":          refuse(noX11),
		"x11_target_host":           refuse(noX11),
		"x11_target_port":           refuse(noX11),
	}
}

// asksNothing tells a value with which clients fill the fields that they do not
// use.
func asksNothing(value any) bool {
	switch v := value.(type) {
	case string:
		return v == ""
	case bool:
		return !v
	case int64:
		return v == 0
	case []any:
		return len(v) == 0
	case schema.Values:
		return len(v) == 0
	}
	return false
}

// plainValue writes a value as an option or a key takes it.
func plainValue(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case tree.Number:
		if v.Infinite {
			return "UNLIMITED"
		}
		return strconv.FormatInt(v.N, 10)
	case []any:
		words := make([]string, len(v))
		for i, x := range v {
			words[i] = plainValue(x)
		}
		return strings.Join(words, ",")
	}
	return ""
}

func (d *description) failField(field, reason string) {
	d.wrong = append(d.wrong, schema.Problem{Path: d.path + "/" + field, Text: reason})
}

func (d *description) warn(field, reason string) {
	d.warned = append(d.warned, schema.Problem{Path: d.path + "/" + field, Text: reason})
}

// applyValues sets what the values say. Everything that is wrong is collected.
func (d *description) applyValues(t *schema.Type) {
	table := descriptionAspects()
	for i := range t.Fields {
		name := t.Fields[i].Name
		value, given := d.values[name]
		a := table[name]
		switch {
		case value == false && a.unset != "":
			d.setOption(name, a.unset, "")
		case !given || asksNothing(value):
		case a.set != nil:
			if reason := a.set(d, value); reason != "" {
				d.failField(name, reason)
			}
		case a.refused != "":
			d.failField(name, a.refused)
		case a.ignored != "":
			d.warn(name, a.ignored)
		default:
			d.setOption(name, a.option, plainValue(value))
		}
	}
	if d.spec.GetMemPerNode() != 0 && d.spec.GetMemPerCpu() != 0 {
		d.failField(
			"memory_per_cpu",
			"memory_per_node is given too, and only one of the two can be",
		)
	}
}

// setOption gives a value to an option of sbatch.
func (d *description) setOption(field, option, value string) {
	if err := submit.Describe(d.env, d.spec, option, value); err != nil {
		d.failField(field, strings.TrimPrefix(err.Error(), "sbatch: error: "))
	}
}

// giveOption is option for the functions of the table.
func (d *description) giveOption(option, value string) string {
	if err := submit.Describe(d.env, d.spec, option, value); err != nil {
		return strings.TrimPrefix(err.Error(), "sbatch: error: ")
	}
	return ""
}

func nothing(*description, any) string { return "" }

func only(n int64, reason string) func(*description, any) string {
	return func(_ *description, v any) string {
		if v == n {
			return ""
		}
		return reason
	}
}

// setArguments reads argv, of which the first is the script's name.
func setArguments(d *description, value any) string {
	for i, x := range value.([]any) {
		text, _ := x.(string)
		switch {
		case strings.ContainsRune(text, 0):
			return "an argument holds a NUL"
		case i == 0:
			d.spec.Command = text
		default:
			d.spec.Args = append(d.spec.Args, text)
		}
	}
	return ""
}

func setBegin(d *description, value any) string {
	if number, ok := value.(tree.Number); ok && !number.Infinite {
		d.spec.Begin = number.N * tool.Second
		return ""
	}
	return "expected seconds since 1970"
}

func setDeadline(d *description, value any) string {
	d.spec.Deadline = value.(int64) * tool.Second
	return ""
}

// minutesToSpan is a number of minutes in nanoseconds, -1 without a limit.
func minutesToSpan(value any) int64 {
	number, _ := value.(tree.Number)
	if number.Infinite {
		return -1
	}
	return number.N * 60 * tool.Second
}

func setTimeLimit(d *description, value any) string {
	d.spec.TimeLimit = minutesToSpan(value)
	return ""
}

func setTimeMinimum(d *description, value any) string {
	d.spec.TimeMin = minutesToSpan(value)
	return ""
}

// flagOptions are the flags of a description that an option of sbatch sets.
func flagOptions() map[string][2]string {
	return map[string][2]string{
		"KILL_INVALID_DEPENDENCY": {
			"kill-on-invalid-dep",
			"yes",
		}, "NO_KILL_INVALID_DEPENDENCY": {"kill-on-invalid-dep", "no"},
		"SPREAD_JOB": {
			"spread-job",
			"",
		}, "PREFER_MINIMUM_NODE_COUNT": {"use-min-nodes", ""}, "SPREAD_SEGMENTS": {"spread-segments", ""},
		"CONSOLIDATE_SEGMENTS": {
			"consolidate-segments",
			"",
		}, "EXPEDITED_REQUEUE": {"requeue", "expedite"},
	}
}

func setFlags(d *description, value any) string {
	options := flagOptions()
	for _, x := range value.([]any) {
		flag, _ := x.(string)
		o, known := options[flag]
		if !known {
			d.warn("flags", flag+": the controller sets it, or Muster has no such thing; ignored")
			continue
		}
		if reason := d.giveOption(o[0], o[1]); reason != "" {
			return flag + ": " + reason
		}
	}
	return ""
}

func setClusters(d *description, value any) string {
	if name := d.env.Cluster(); value != name {
		return "this is cluster " + name + ", and Muster has no federation"
	}
	return ""
}

// setUser accepts the caller's own name or number: who submits is known from the
// connection.
func setUser(d *description, value any) string {
	if value == d.env.API.User || value == strconv.FormatUint(uint64(d.env.UID), 10) {
		return ""
	}
	return "the job would be " + d.env.API.User +
		"'s, who asks; X-SLURM-USER-NAME is how an administrator asks as another user"
}

// gpuCounts reads a list such as gres/gpu:2 or gres:gpu:h100:2, of which it keeps
// what stands behind the gres.
func gpuCounts(text string) (gres []string, others []string) {
	for _, part := range strings.Split(text, ",") {
		switch {
		case strings.HasPrefix(part, "gres/"), strings.HasPrefix(part, "gres:"):
			gres = append(gres, strings.ReplaceAll(part[len("gres/"):], "=", ":"))
		case part != "":
			others = append(others, part)
		}
	}
	return gres, others
}

// setPerGPU reads an amount per GPU: gres/gpu:4.
func setPerGPU(option string) func(*description, any) string {
	return func(d *description, v any) string {
		gres, others := gpuCounts(plainValue(v))
		if len(gres) != 1 || others != nil || !strings.HasPrefix(gres[0], "gpu:") {
			return "expected gres/gpu:N"
		}
		return d.giveOption(option, strings.TrimPrefix(gres[0], "gpu:"))
	}
}

// setTRESPer reads GPUs per job or per socket.
func setTRESPer(option string) func(*description, any) string {
	return func(d *description, v any) string {
		gres, others := gpuCounts(plainValue(v))
		if len(gres) != 1 || others != nil ||
			(gres[0] != "gpu" && !strings.HasPrefix(gres[0], "gpu:")) {
			return "expected gres/gpu:N or gres/gpu:TYPE:N: other resources are asked for per node"
		}
		count := strings.TrimPrefix(strings.TrimPrefix(gres[0], "gpu"), ":")
		if count == "" {
			count = "1"
		}
		return d.giveOption(option, count)
	}
}

func setTRESPerNode(d *description, value any) string {
	gres, others := gpuCounts(plainValue(value))
	if others != nil {
		return strings.Join(others, ",") + ": expected gres/NAME:N"
	}
	return d.giveOption("gres", strings.Join(gres, ","))
}

// setTRESPerTask reads cpu:4,gres/gpu:1, which sbatch writes with =.
func setTRESPerTask(d *description, value any) string {
	var parts []string
	gres, others := gpuCounts(plainValue(value))
	for _, part := range others {
		parts = append(parts, strings.Replace(part, ":", "=", 1))
	}
	for _, part := range gres {
		at := strings.LastIndexByte(part, ':')
		if at < 0 {
			parts = append(parts, "gres/"+part+"=1")
		} else {
			parts = append(parts, "gres/"+part[:at]+"="+part[at+1:])
		}
	}
	return d.giveOption("tres-per-task", strings.Join(parts, ","))
}

func setTRESBind(d *description, value any) string {
	text, ok := strings.CutPrefix(plainValue(value), "gres/gpu:")
	if !ok {
		return "expected gres/gpu:TYPE"
	}
	return d.giveOption("gpu-bind", text)
}

func setTRESFreq(d *description, value any) string {
	text, ok := strings.CutPrefix(plainValue(value), "gpu:")
	if !ok {
		return "expected gpu:VALUE"
	}
	return d.giveOption("gpu-freq", text)
}

func setRlimits(d *description, value any) string {
	limits, _ := value.(schema.Values)
	for _, name := range spec.LimitNames() {
		number, given := limits[strings.ToLower(name)].(tree.Number)
		switch {
		case !given:
		case number.Infinite:
			d.spec.Rlimits = append(d.spec.Rlimits, &apiv1.Count{Name: name, N: -1})
		default:
			d.spec.Rlimits = append(d.spec.Rlimits, &apiv1.Count{Name: name, N: number.N})
		}
	}
	return ""
}

func setImmediate(d *description, value any) string {
	d.spec.Immediate, _ = value.(bool)
	return ""
}

// mailWords are Slurm's words for events at a part of the time limit.
func mailWords() map[string]string {
	return map[string]string{
		"TIME=100%":          "TIME_LIMIT",
		"TIME=90%":           "TIME_LIMIT_90",
		"TIME=80%":           "TIME_LIMIT_80",
		"TIME=50%":           "TIME_LIMIT_50",
		"INVALID_DEPENDENCY": "INVALID_DEPEND",
	}
}

// mailTypes are events in sbatch's words.
func mailTypes(list []string) []string {
	words := mailWords()
	out := make([]string, len(list))
	for i, word := range list {
		out[i] = word
		if other, ok := words[word]; ok {
			out[i] = other
		}
	}
	return out
}

func setMailType(d *description, _ any) string {
	return d.giveOption("mail-type", strings.Join(mailTypes(d.values.Texts("mail_type")), ","))
}

func setOpenMode(d *description, value any) string {
	list := value.([]any)
	if len(list) != 1 {
		return "expected APPEND or TRUNCATE"
	}
	return d.giveOption("open-mode", strings.ToLower(plainValue(list[0])))
}

func setProfile(_ *description, value any) string {
	for _, x := range value.([]any) {
		if x != "NOT_SET" && x != "NONE" {
			return "usage is recorded for every job; there are no profile files"
		}
	}
	return ""
}

func setShared(d *description, value any) string {
	for _, x := range value.([]any) {
		word, _ := x.(string)
		reason := ""
		switch word {
		case "oversubscribe":
			reason = d.giveOption("oversubscribe", "")
		case "none":
			reason = d.giveOption("exclusive", "")
		default:
			reason = d.giveOption("exclusive", word)
		}
		if reason != "" {
			return reason
		}
	}
	return ""
}

// setSignal reads the signal with its flags and delay.
func setSignal(d *description, value any) string {
	text := plainValue(value)
	flags := d.values.Texts("kill_warning_flags")
	if slices.Contains(flags, "BATCH_JOB") {
		text = "B:" + text
	}
	if slices.Contains(flags, "RESERVATION_JOB") {
		text = "R" + strings.TrimPrefix(":"+text, ":B")
	}
	if delay, ok := d.values["kill_warning_delay"].(tree.Number); ok {
		text += "@" + plainValue(delay)
	}
	return d.giveOption("signal", text)
}

func setWorkDir(d *description, value any) string {
	dir := plainValue(value)
	if !strings.HasPrefix(dir, "/") {
		return "expected an absolute path"
	}
	d.spec.WorkDir = dir
	return ""
}

// setMinimumCPUs accepts the number that follows from the tasks; alone, it is the
// number of tasks, as sbatch -n is.
func setMinimumCPUs(d *description, value any) string {
	n, _ := value.(int64)
	tasks, _ := d.values["tasks"].(int64)
	each, _ := d.values["cpus_per_task"].(int64)
	switch {
	case tasks == 0 && each == 0:
		return d.giveOption("ntasks", plainValue(value))
	case max(tasks, 1)*max(each, 1) == n:
		return ""
	}
	return "the number of CPUs is tasks times cpus_per_task"
}

func setMinimumNodes(d *description, value any) string {
	if d.values.Text("nodes") != "" {
		return ""
	}
	text := plainValue(value)
	if most, given := d.values["maximum_nodes"].(int64); given && most > 0 {
		text += "-" + plainValue(most)
	}
	return d.giveOption("nodes", text)
}

func setMaximumNodes(d *description, value any) string {
	least, _ := d.values["minimum_nodes"].(int64)
	if d.values.Text("nodes") != "" || least > 0 {
		return "" // read with it
	}
	return d.giveOption("nodes", "1-"+plainValue(value))
}

func setSwitches(d *description, value any) string {
	text := plainValue(value)
	if wait, given := d.values["wait_for_switch"].(int64); given && wait > 0 {
		text += "@0:" + plainValue(wait)
	}
	return d.giveOption("switches", text)
}
