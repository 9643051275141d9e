package console

import (
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// maxScript bounds the part of a script that a page shows.
const maxScript = 256 << 10

// scriptData is what the page of a job's script shows.
type scriptData struct {
	ID      string
	Text    string
	Cut     bool   // the script is longer than Text
	Missing string // why there is no script
	Again   string // the lines that submit the job again
	Lost    string // settings of the job that these lines do not repeat
}

// scriptPart is the script of a job with the lines that run it again. The
// accounting decides who gets it, as for scontrol write batch_script.
func (c *Console) scriptPart(v *visit) (answer, error) {
	id := v.PathValue("id")
	if !tool.ValidTarget(id) {
		return answer{}, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	data := scriptData{ID: id}
	out := answer{
		page:  "job-script",
		title: "Script of job " + id,
		bare:  v.Header.Get("X-Console") != "",
	}
	// The job may be younger than what the accounting has read of the ledger.
	seq, _ := c.cfg.Changed()
	reply, err := callAPI[*apiv1.AcctScriptReply](
		v,
		tool.MethodAcctScripts,
		&apiv1.AcctScriptQuery{Jobs: []string{id}, MinSeq: seq},
	)
	scripts := reply.GetScripts()
	switch {
	case err != nil:
		data.Missing = render.Clean(tool.ExplainError(err).Text)
	case len(scripts) == 0 && reply.GetBehind() > 0:
		data.Missing = "the accounting has not read of the job yet"
		out.status = http.StatusServiceUnavailable // the script of the page tries again
	case len(scripts) == 0:
		data.Missing = "the accounting does not know the job"
	case scripts[len(scripts)-1].GetMissing():
		data.Missing = "the script is no longer kept, or the job has none"
	default:
		script := scripts[len(scripts)-1].GetData()
		data.Cut = len(script) > maxScript
		data.Text = shown(string(script[:min(len(script), maxScript)]))
		data.fillAgain(v, id)
	}
	out.data = data
	return out, nil
}

// fillAgain adds the lines that submit the job again, if the controller still
// remembers what the job requested. Only its owner gets them: an administrator
// who copied them would run another user's script as himself.
func (d *scriptData) fillAgain(v *visit, id string) {
	reply, err := callAPI[*apiv1.ListJobsReply](
		v,
		tool.MethodListJobs,
		&apiv1.ListJobsRequest{
			Filter: &apiv1.JobFilter{Jobs: []string{id}, AllStates: true},
			Detail: true,
		},
	)
	if err != nil || len(reply.GetJobs()) == 0 || reply.GetJobs()[0].GetUserId() != v.id.UID {
		return
	}
	d.Again, d.Lost = runAgain(reply.GetJobs()[0], id)
}

// mayReadScript tells whether the accounting would show the script of a job to
// the visitor, as far as the console can tell.
func (v *visit) mayReadScript(job *apiv1.JobInfo) bool {
	if job.GetSpec().GetShell() || v.console.cfg.Door.Admit(v.id, tool.MethodAcctScripts) != nil {
		return false
	}
	return job.GetUserId() == v.id.UID || v.isAdministrator()
}

// againOption is one option of sbatch with the field of a job that it sets.
type againOption struct {
	field string // name of the field in JobSpec
	text  func(s *apiv1.JobSpec) string
}

// textOption is an option with a text as it was written.
func textOption(field, long string, get func(s *apiv1.JobSpec) string) againOption {
	return againOption{field, func(s *apiv1.JobSpec) string { return withValue(long, get(s)) }}
}

// countOption is an option with a number, of which 0 is not set.
func countOption(field, long string, get func(s *apiv1.JobSpec) uint32) againOption {
	return againOption{field, func(jobSpec *apiv1.JobSpec) string {
		if get(jobSpec) == 0 {
			return ""
		}
		return withValue(long, strconv.FormatUint(uint64(get(jobSpec)), 10))
	}}
}

// memoryOption is an option with an amount in MiB.
func memoryOption(field, long string, get func(s *apiv1.JobSpec) int64) againOption {
	return againOption{field, func(jobSpec *apiv1.JobSpec) string {
		if get(jobSpec) == 0 {
			return ""
		}
		return withValue(long, strconv.FormatInt(get(jobSpec), 10)+"M")
	}}
}

// spanOption is an option with a length of time.
func spanOption(field, long string, get func(s *apiv1.JobSpec) int64) againOption {
	return againOption{field, func(jobSpec *apiv1.JobSpec) string {
		switch ns := get(jobSpec); {
		case ns == 0:
			return ""
		case ns < 0:
			return withValue(long, "UNLIMITED")
		default:
			return withValue(long, format.Duration(ns/tool.Second))
		}
	}}
}

// gresOption is an option with generic resources: prefix is what the option
// does not repeat of their names.
func gresOption(field, long, prefix string, get func(s *apiv1.JobSpec) []*apiv1.Count) againOption {
	return againOption{field, func(jobSpec *apiv1.JobSpec) string {
		var parts []string
		for _, count := range get(jobSpec) {
			name := strings.TrimPrefix(count.GetName(), "gres/")
			words := []string{name, count.GetType(), strconv.FormatInt(count.GetN(), 10)}
			if name == prefix {
				words = words[1:]
			} else if prefix != "" {
				return "" // the option takes GPUs only
			}
			if count.GetType() == "" {
				words = append(words[:len(words)-2], words[len(words)-1])
			}
			parts = append(parts, strings.Join(words, ":"))
		}
		return withValue(long, strings.Join(parts, ","))
	}}
}

// againOptions are the options of the line that runs a job again.
//
//muster:table one row for each option
func againOptions() []againOption {
	return []againOption{
		textOption("name", "job-name", (*apiv1.JobSpec).GetName),
		textOption("account", "account", (*apiv1.JobSpec).GetAccount),
		textOption("qos", "qos", (*apiv1.JobSpec).GetQos),
		textOption("partitions", "partition", func(s *apiv1.JobSpec) string { return strings.Join(s.GetPartitions(), ",") }),
		textOption("wckey", "wckey", (*apiv1.JobSpec).GetWckey),
		textOption("comment", "comment", (*apiv1.JobSpec).GetComment),
		textOption("min_nodes", "nodes", nodesWanted),
		countOption("tasks", "ntasks", (*apiv1.JobSpec).GetTasks),
		countOption("tasks_per_node", "ntasks-per-node", (*apiv1.JobSpec).GetTasksPerNode),
		countOption("cpus_per_task", "cpus-per-task", (*apiv1.JobSpec).GetCpusPerTask),
		countOption("cpus_per_gpu", "cpus-per-gpu", (*apiv1.JobSpec).GetCpusPerGpu),
		countOption("min_cpus_per_node", "mincpus", (*apiv1.JobSpec).GetMinCpusPerNode),
		memoryOption("mem_per_node", "mem", (*apiv1.JobSpec).GetMemPerNode),
		memoryOption("mem_per_cpu", "mem-per-cpu", (*apiv1.JobSpec).GetMemPerCpu),
		memoryOption("mem_per_gpu", "mem-per-gpu", (*apiv1.JobSpec).GetMemPerGpu),
		gresOption("per_node", "gres", "", (*apiv1.JobSpec).GetPerNode),
		gresOption("per_job", "gpus", "gpu", (*apiv1.JobSpec).GetPerJob),
		gresOption("per_task", "gpus-per-task", "gpu", (*apiv1.JobSpec).GetPerTask),
		spanOption("time_limit", "time", (*apiv1.JobSpec).GetTimeLimit),
		spanOption("time_min", "time-min", (*apiv1.JobSpec).GetTimeMin),
		textOption("nodes", "nodelist", (*apiv1.JobSpec).GetNodes),
		textOption("exclude", "exclude", (*apiv1.JobSpec).GetExclude),
		textOption("constraint", "constraint", (*apiv1.JobSpec).GetConstraint),
		textOption("reservation", "reservation", (*apiv1.JobSpec).GetReservation),
		textOption("stdin", "input", (*apiv1.JobSpec).GetStdin),
		textOption("stdout", "output", (*apiv1.JobSpec).GetStdout),
		textOption("stderr", "error", (*apiv1.JobSpec).GetStderr),
		textOption("work_dir", "chdir", (*apiv1.JobSpec).GetWorkDir),
	}
}

// notRepeated are fields that no option repeats on purpose: what belongs to the
// submission itself, and what the lines have in another place.
var notRepeated = map[string]bool{
	"max_nodes": true, "args": true, "command": true, "submit_line": true, "submit_host": true, "umask": true,
	"rlimits": true, "admin_comment": true, "system_comment": true, "mcs_label": true,
}

// nodesWanted is the value of --nodes: N, or N-M.
func nodesWanted(jobSpec *apiv1.JobSpec) string {
	least, most := jobSpec.GetMinNodes(), jobSpec.GetMaxNodes()
	switch {
	case least == 0:
		return ""
	case most > least:
		return strconv.FormatUint(uint64(least), 10) + "-" + strconv.FormatUint(uint64(most), 10)
	}
	return strconv.FormatUint(uint64(least), 10)
}

// withValue is an option with its value; empty without one.
func withValue(long, value string) string {
	if value == "" {
		return ""
	}
	return "--" + long + "=" + quoted(value)
}

// runAgain writes the lines that submit a job again with the script that was
// kept, which may not be the one that now stands in the file. What was asked
// for is written from the record of the job, because its submit line has lost
// the quotes. lost names settings that the lines do not repeat; those of the
// script's own directives hold again by themselves.
func runAgain(job *apiv1.JobInfo, id string) (lines, lost string) {
	jobSpec := job.GetSpec()
	file := "job-" + id + ".sh"
	words := []string{"sbatch"}
	said := map[string]bool{}
	for _, option := range againOptions() {
		if text := option.text(jobSpec); text != "" {
			words = append(words, text)
			said[option.field] = true
		}
	}
	words = append(words, quoted(file))
	for _, arg := range jobSpec.GetArgs() {
		words = append(words, quoted(arg))
	}
	var left []string
	fields := jobSpec.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		name := string(fields.Get(i).Name())
		if jobSpec.ProtoReflect().Has(fields.Get(i)) && !said[name] && !notRepeated[name] &&
			set(jobSpec, fields.Get(i)) {
			left = append(left, strings.ReplaceAll(name, "_", " "))
		}
	}
	return "scontrol write batch_script " + quoted(id) + " " + quoted(file) + "\n" +
		strings.Join(words, " "), strings.Join(left, ", ")
}

// set tells whether a field was chosen by somebody: an enumeration may be set
// to what it is anyway.
func set(jobSpec *apiv1.JobSpec, field protoreflect.FieldDescriptor) bool {
	if field.Kind() != protoreflect.EnumKind {
		return true
	}
	return jobSpec.ProtoReflect().Get(field).Enum() != 0
}

// plainWord are the characters that a shell takes as they are.
const plainWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+"

// quoted is a word as a shell reads it back. A character that a terminal would
// obey, or that would show the line in another order, is written as its number.
func quoted(word string) string {
	if word != "" && strings.Trim(word, plainWord) == "" {
		return word
	}
	if strings.IndexFunc(word, deceives) >= 0 {
		return ansiQuoted(word)
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// ansiQuoted is a word in bash's $'…', byte by byte where that is needed.
func ansiQuoted(word string) string {
	var text strings.Builder
	text.WriteString("$'")
	for _, r := range word {
		switch {
		case r == '\'' || r == '\\':
			text.WriteByte('\\')
			text.WriteRune(r)
		case deceives(r):
			for _, c := range []byte(string(r)) {
				text.WriteString(`\x` + hexByte(c))
			}
		default:
			text.WriteRune(r)
		}
	}
	return text.String() + "'"
}

func hexByte(c byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[c>>4], digits[c&15]})
}

// deceives tells a character that a screen obeys instead of showing it:
// controls, and marks that turn the direction of the text around.
func deceives(r rune) bool {
	switch {
	case r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0):
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f:
		return true
	}
	return (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069)
}

// shown is a text of several lines in which every character can be seen.
func shown(text string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(text, "\ufffd") {
		if r == '\n' || r == '\t' || !deceives(r) {
			b.WriteRune(r)
			continue
		}
		b.WriteString("[U+" + strings.ToUpper(strconv.FormatInt(int64(r)+0x10000, 16)[1:]) + "]")
	}
	return b.String()
}
