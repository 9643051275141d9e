package acct

import (
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec/format"
)

// jobRefs reads 12, 36_4, 12+1, 12.batch; 36_[1-3] is written out, which the service
// does not read.
func jobRefs(id string) ([]string, bool) {
	job, step, stepped := strings.Cut(id, ".")
	if stepped && step == "" {
		return nil, false
	}
	if isComponent(job) {
		return []string{id}, true
	}
	if !tool.ValidJob(job) {
		return nil, false
	}
	base, tasks, isTask := strings.Cut(job, "_")
	if !isTask || !strings.HasPrefix(tasks, "[") {
		return []string{strings.TrimSuffix(id, "_*")}, true
	}
	set, err := format.ParseArray(tasks)
	if err != nil || set.Count() > 10000 {
		return nil, false
	}
	var out []string
	for i := range set.All() {
		ref := base + "_" + tool.Itoa(i)
		if stepped {
			ref += "." + step
		}
		out = append(out, ref)
	}
	return out, true
}

// isComponent tells whether a text names a component of a heterogeneous job, 12+1.
func isComponent(text string) bool {
	leader, offset, ok := strings.Cut(text, "+")
	return ok && isNumber(offset) && isNumber(leader) && tool.ValidJob(leader)
}

func isNumber(text string) bool { return text != "" && tool.LeadingDigits(text) == len(text) }

// acctView is how accounting rows are shown.
type acctView struct {
	render.Clock
	cluster string
	convert format.Convert     // of amounts of memory
	policy  *apiv1.PolicyReply // for numbers of QOS and wckeys; nil = they are not asked for
}

func isStep(r *apiv1.AcctRow) bool { return r.GetStep() != "" }

// acctID is the name of a row: 12, 36_4.batch, 36_[5-9], 12+1.
func acctID(r *apiv1.AcctRow) string {
	id := tool.Itoa(r.GetJobId())
	if r.GetArrayJobId() != 0 {
		id = tool.Itoa(r.GetArrayJobId()) + "_"
		if r.GetArrayTasks() != "" {
			id += "[" + strings.Trim(r.GetArrayTasks(), "[]") + "]"
		} else {
			id += tool.Itoa(r.GetArrayTask())
		}
	} else if r.GetHetJobId() != 0 {
		id = tool.Itoa(r.GetHetJobId()) + "+" + tool.Itoa(r.GetHetOffset())
	}
	return id + stepSuffix(r)
}

func allocCPUs(r *apiv1.AcctRow) int64 {
	if n := r.GetAllocTres().GetCpu(); n > 0 {
		return n
	}
	return int64(r.GetReqCpus())
}

func allocNodes(r *apiv1.AcctRow) int64 {
	if n := r.GetAllocTres().GetNode(); n > 0 {
		return n
	}
	return int64(r.GetReqNodes())
}

func formatMegabytes(n int64) string { return format.Units(n>>20, 'M', format.Convert{}) }

// formatFrequency writes kHz as Slurm does, 2.60M; empty where nobody looked.
func formatFrequency(view *acctView, khz int64) string {
	if khz <= 0 {
		return ""
	}
	convert := view.convert
	convert.Decimal, convert.Exact = true, false
	return format.Units(khz, 0, convert)
}
