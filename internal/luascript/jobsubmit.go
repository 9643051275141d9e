package luascript

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// The functions of job_submit.lua.
const (
	FunctionSubmit = "slurm_job_submit"
	FunctionModify = "slurm_job_modify"
)

// Job is a job as a script sees it.
type Job struct {
	Spec *apiv1.JobSpec
	Facts
}

// Facts are what belongs to a job beside the request's fields.
type Facts struct {
	Script []byte
	Env    []byte // NAME=value, a NUL after each
	UID    uint32
	GID    uint32
	User   string
	Group  string // name of the primary group
	// DefaultAccount and DefaultQOS are those that it gets where it names none.
	DefaultAccount string
	DefaultQOS     string
	// Component is its number in a heterogeneous job; -1 = it is none.
	Component int
	Cron      bool
}

// Site is what holds for all calls: the script, and the partitions.
type Site struct {
	Script     *spec.SiteScript
	Partitions []spec.PartitionSpec
	Limits     Limits
}

// Update is a change of a job that somebody asks for.
type Update struct {
	By      uint32 // user id
	JobID   uint32
	State   string
	Nodes   string            // where it runs
	Changes map[string]string // by the key of scontrol update job, as it is written there
}

// Verdict is what a script says of a job.
type Verdict struct {
	Code int64 // 0 = slurm.SUCCESS
	Said []Line
	// Changed are the fields that it changed, as NAME: OLD -> NEW.
	Changed []string
}

// Refuses tells that the script wants no such job.
func (v *Verdict) Refuses() bool { return v.Code != 0 }

// UserText is what the script told the user, in lines.
func (v *Verdict) UserText() string {
	var lines []string
	for _, line := range v.Said {
		if line.Level == LevelUser {
			lines = append(lines, line.Text)
		}
	}
	return strings.Join(lines, "\n")
}

// JobScript is a job_submit.lua that was loaded.
type JobScript struct {
	script *script
	site   Site
	fields map[string]field
}

// LoadJobScript compiles job_submit.lua and runs its top level.
func LoadJobScript(site Site) (*JobScript, error) {
	loaded, err := loadScript(site.Script, nil, site.Limits)
	if err != nil {
		return nil, err
	}
	jobScript := &JobScript{script: loaded, site: site, fields: map[string]field{}}
	for _, f := range fields() {
		jobScript.fields[f.name] = f
	}
	if loaded.findFunction(FunctionSubmit) == nil {
		return nil, fmt.Errorf("%w: %s: it has no function %s", ErrScript, site.Script.Path, FunctionSubmit)
	}
	return jobScript, nil
}

// Close frees the script.
func (j *JobScript) Close() { j.script.close() }

// Submit hands a job to slurm_job_submit, which may change it.
func (j *JobScript) Submit(ctx context.Context, job *Job) (*Verdict, error) {
	before := &Job{}
	*before = *job
	before.Spec, _ = proto.Clone(job.Spec).(*apiv1.JobSpec)
	env := newVariables(job.Env)
	env.batch = len(job.Script) > 0
	desc := j.describe(
		func(f field) lua.LValue { return f.get(job) },
		func(f field, v lua.LValue) error { return f.set(job, v) },
		env.table(j.script.state),
		job,
	)
	code, err := j.run(ctx, FunctionSubmit, desc, j.partitions(job), lua.LNumber(job.UID))
	verdict := &Verdict{Code: code, Said: j.script.takeSaid()}
	if err != nil {
		return verdict, err
	}
	for _, f := range fields() {
		if f.set == nil {
			continue
		}
		if was, is := f.get(before), f.get(job); was != is {
			verdict.Changed = append(verdict.Changed, changeText(f.name, was, is))
		}
	}
	for _, name := range env.changed {
		verdict.Changed = append(verdict.Changed, "environment["+name+"]")
	}
	if len(env.changed) > 0 {
		job.Env = env.encode()
	}
	return verdict, nil
}

// Modify hands a change of a job to slurm_job_modify, which may change the change. Without
// that function every change is right.
func (j *JobScript) Modify(ctx context.Context, job *Job, update *Update) (*Verdict, error) {
	if j.script.findFunction(FunctionModify) == nil {
		return &Verdict{}, nil
	}
	before := map[string]string{}
	for key, value := range update.Changes {
		before[key] = value
	}
	desc := j.describe(
		func(f field) lua.LValue { return j.updateValue(f, job, update) },
		func(f field, v lua.LValue) error { return setUpdate(f, update, v) },
		lua.LNil,
		job,
	)
	code, err := j.run(ctx, FunctionModify, desc, j.record(job, update), j.partitions(job),
		lua.LNumber(update.By))
	verdict := &Verdict{Code: code, Said: j.script.takeSaid()}
	if err != nil {
		return verdict, err
	}
	keys := map[string]bool{}
	for key := range before {
		keys[key] = true
	}
	for key := range update.Changes {
		keys[key] = true
	}
	for key := range keys {
		if before[key] != update.Changes[key] {
			verdict.Changed = append(verdict.Changed,
				changeText(key, optionalText(before[key]), optionalText(update.Changes[key])))
		}
	}
	slices.Sort(verdict.Changed)
	return verdict, nil
}

// maxShown bounds a value in the list of changes.
const maxShown = 100

func changeText(name string, was, is lua.LValue) string {
	if name == "script" {
		return name
	}
	return name + ": " + shownValue(was) + " -> " + shownValue(is)
}

func shownValue(value lua.LValue) string {
	n, isNumber := value.(lua.LNumber)
	text := value.String()
	switch {
	case value == lua.LNil, isNumber && (n == noVal || n == noVal16 || n == noVal64):
		return "(none)"
	case isNumber && n == infinite:
		return "UNLIMITED"
	case len(text) > maxShown:
		return text[:maxShown] + "..."
	}
	return text
}

// run calls a function of the script and reads its code: nil is success.
func (j *JobScript) run(ctx context.Context, name string, args ...lua.LValue) (int64, error) {
	result, err := j.script.callFunction(ctx, j.script.findFunction(name), args...)
	if err != nil {
		return -1, err
	}
	if result == lua.LNil {
		return 0, nil
	}
	n, ok := result.(lua.LNumber)
	if !ok {
		return -1, fmt.Errorf("%w: %s: %s returned a %s, expected slurm.SUCCESS, slurm.ERROR or an error's number",
			ErrScript, j.site.Script.Path, name, result.Type())
	}
	return int64(n), nil
}

// describe makes the table job_desc. Reading a field that it has not gives nil; writing one is
// an error, because the script's author expects that something follows from it.
func (j *JobScript) describe(
	get func(field) lua.LValue,
	set func(field, lua.LValue) error,
	env lua.LValue,
	job *Job,
) *lua.LTable {
	state := j.script.state
	meta := state.NewTable()
	meta.RawSetString("__index", state.NewFunction(func(l *lua.LState) int {
		name := l.CheckString(2)
		switch f, ok := j.fields[name]; {
		case ok:
			l.Push(get(f))
		case name == "environment":
			l.Push(env)
		case name == "argv":
			l.Push(listTable(l, argumentsOf(job)))
		default:
			l.Push(lua.LNil)
		}
		return 1
	}))
	meta.RawSetString("__newindex", state.NewFunction(func(l *lua.LState) int {
		name := l.CheckString(2)
		f, ok := j.fields[name]
		switch {
		case !ok:
			l.RaiseError("job_desc.%s is not a field that can be set", name)
		case f.set == nil && l.Get(3) != f.get(job):
			l.RaiseError("job_desc.%s cannot be changed", name)
		case f.set != nil:
			if err := set(f, l.Get(3)); err != nil {
				l.RaiseError("job_desc.%s: %s", name, err)
			}
		}
		return 0
	}))
	out := state.NewTable()
	out.Metatable = meta
	return out
}

func listTable(l *lua.LState, words []string) *lua.LTable {
	out := l.NewTable()
	for _, word := range words {
		out.Append(lua.LString(word))
	}
	return out
}

// updateValue is a field of an update: what it is to become, and "not given" where the update
// does not name it. Who asks for what job is known always.
func (j *JobScript) updateValue(f field, job *Job, update *Update) lua.LValue {
	if f.set == nil {
		return f.get(job)
	}
	value, ok := update.Changes[f.key]
	if f.key == "" || !ok {
		return f.get(&Job{Spec: &apiv1.JobSpec{}})
	}
	switch f.kind {
	case kindNumber:
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			return lua.LNumber(n)
		}
	case kindMinutes:
		secs, err := format.ParseDuration(value)
		switch {
		case err != nil: // +30, -30: by how much, which Slurm has worked out
		case secs == format.Infinite:
			return lua.LNumber(infinite)
		default:
			return lua.LNumber(format.Minutes(secs) / 60)
		}
	case kindText:
	}
	return lua.LString(value)
}

// setUpdate changes an update. What is not given is left out of it.
func setUpdate(f field, update *Update, value lua.LValue) error {
	if f.key == "" {
		return fmt.Errorf("a job that was submitted keeps it")
	}
	text, err := textOf(value)
	if err != nil {
		return err
	}
	if n, ok := value.(lua.LNumber); ok {
		switch {
		case n == noVal || n == noVal16 || n == noVal64:
			text = ""
		case n == infinite && f.kind == kindMinutes:
			text = "UNLIMITED"
		}
	}
	if value == lua.LNil || (text == "" && f.kind != kindText) {
		delete(update.Changes, f.key)
		return nil
	}
	update.Changes[f.key] = text
	return nil
}

// record is the table job_rec: the job as it is.
func (j *JobScript) record(job *Job, update *Update) *lua.LTable {
	state := j.script.state
	out := state.NewTable()
	for name, f := range j.fields {
		out.RawSetString(name, f.get(job))
	}
	out.RawSetString("job_id", lua.LNumber(update.JobID))
	out.RawSetString("job_state", lua.LString(update.State))
	out.RawSetString("nodes", optionalText(update.Nodes))
	return out
}

// partitions is the table part_list: the partitions that the user may name.
func (j *JobScript) partitions(job *Job) *lua.LTable {
	state := j.script.state
	out := state.NewTable()
	for i := range j.site.Partitions {
		part := &j.site.Partitions[i]
		if !mayUse(part, job) {
			continue
		}
		out.RawSetString(part.Name, partitionTable(state, part))
	}
	return out
}

func mayUse(part *spec.PartitionSpec, job *Job) bool {
	if job.UID == 0 {
		return !part.DisableRootJobs
	}
	return !part.RootOnly &&
		(len(part.AllowGroups) == 0 || slices.Contains(part.AllowGroups, job.Group))
}

func partitionTable(state *lua.LState, part *spec.PartitionSpec) *lua.LTable {
	out := state.NewTable()
	for name, value := range map[string]lua.LValue{
		"name":                lua.LString(part.Name),
		"nodes":               optionalText(part.Nodes),
		"allow_accounts":      optionalText(strings.Join(part.AllowAccounts, ",")),
		"deny_accounts":       optionalText(strings.Join(part.DenyAccounts, ",")),
		"allow_qos":           optionalText(strings.Join(part.AllowQOS, ",")),
		"deny_qos":            optionalText(strings.Join(part.DenyQOS, ",")),
		"allow_groups":        optionalText(strings.Join(part.AllowGroups, ",")),
		"alternate":           optionalText(part.Alternate),
		"qos":                 optionalText(part.QOS),
		"flag_default":        truthValue(part.Default),
		"flag_hidden":         truthValue(part.Hidden),
		"flag_lln":            truthValue(part.LLN),
		"flag_root_only":      truthValue(part.RootOnly),
		"flag_req_resv":       truthValue(part.ReqResv),
		"flag_exclusive_user": truthValue(part.ExclusiveUser),
		"max_time":            limitMinutes(part.MaxTime, infinite),
		"default_time":        limitMinutes(part.DefaultTime, noVal),
		"min_nodes":           lua.LNumber(max(part.MinNodes, 1)),
		"min_nodes_orig":      lua.LNumber(max(part.MinNodes, 1)),
		"max_nodes":           unsetOr(part.MaxNodes, infinite),
		"max_nodes_orig":      unsetOr(part.MaxNodes, infinite),
		"max_cpus_per_node":   unsetOr(part.MaxCPUsPerNode, infinite),
		"def_mem_per_cpu":     positiveNumber(part.DefMemPerCPU),
		"def_mem_per_node":    positiveNumber(part.DefMemPerNode),
		"max_mem_per_cpu":     positiveNumber(part.MaxMemPerCPU),
		"max_mem_per_node":    positiveNumber(part.MaxMemPerNode),
		"priority_job_factor": lua.LNumber(max(part.PriorityJobFactor, 1)),
		"priority_tier":       lua.LNumber(max(part.PriorityTier, 1)),
		"total_nodes":         lua.LNumber(len(part.NodeNames)),
		"state_up":            partitionState(part.State),
	} {
		out.RawSetString(name, value)
	}
	return out
}

func limitMinutes(d spec.Span, unset lua.LNumber) lua.LValue {
	switch d {
	case 0:
		return unset
	case spec.Infinite:
		return lua.LNumber(infinite)
	}
	return lua.LNumber(d / spec.Minute)
}

// partitionState has the bits of Slurm: 1 takes jobs, 2 starts them.
func partitionState(state spec.PartitionState) lua.LValue {
	switch state {
	case spec.PartitionDown:
		return lua.LNumber(1)
	case spec.PartitionDrain:
		return lua.LNumber(2)
	case spec.PartitionInactive:
		return lua.LNumber(0)
	case spec.PartitionUp:
	}
	return lua.LNumber(3)
}

// variables is the environment of a job, as job_desc.environment shows it.
type variables struct {
	words   []string // NAME=value
	changed []string
	batch   bool // srun and salloc bring theirs when the job runs
}

func newVariables(env []byte) *variables {
	if len(env) == 0 {
		return &variables{}
	}
	return &variables{words: strings.Split(strings.TrimSuffix(string(env), "\x00"), "\x00")}
}

func (v *variables) find(name string) int {
	return slices.IndexFunc(v.words, func(word string) bool {
		return strings.HasPrefix(word, name+"=")
	})
}

// table makes the Lua table through which a script reads and sets variables.
func (v *variables) table(state *lua.LState) *lua.LTable {
	meta := state.NewTable()
	meta.RawSetString("__index", state.NewFunction(func(l *lua.LState) int {
		i := v.find(l.CheckString(2))
		if i < 0 {
			l.Push(lua.LNil)
			return 1
		}
		_, value, _ := strings.Cut(v.words[i], "=")
		l.Push(lua.LString(value))
		return 1
	}))
	meta.RawSetString("__newindex", state.NewFunction(func(l *lua.LState) int {
		if err := v.set(l.CheckString(2), l.Get(3)); err != nil {
			l.RaiseError("job_desc.environment: %s", err)
		}
		return 0
	}))
	out := state.NewTable()
	out.Metatable = meta
	return out
}

func (v *variables) set(name string, value lua.LValue) error {
	text, err := textOf(value)
	switch {
	case err != nil:
		return err
	case !v.batch:
		return fmt.Errorf("only a batch job has its environment yet: look at job_desc.script first")
	case name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(text, 0):
		return fmt.Errorf("%q cannot be the name or the value of a variable", name)
	}
	if !slices.Contains(v.changed, name) {
		v.changed = append(v.changed, name)
	}
	i := v.find(name)
	switch {
	case value == lua.LNil && i < 0:
	case value == lua.LNil:
		v.words = slices.Delete(v.words, i, i+1)
	case i < 0:
		v.words = append(v.words, name+"="+text)
	default:
		v.words[i] = name + "=" + text
	}
	return nil
}

func (v *variables) encode() []byte {
	if len(v.words) == 0 {
		return nil
	}
	return []byte(strings.Join(v.words, "\x00") + "\x00")
}
