package render

import (
	"cmp"
	"fmt"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec/format"
)

// RequestLines are the second half of a job: what it asked for and its files.
//
//muster:table the lines of a job in Slurm's order
func (v *JobView) RequestLines(rec *Record, row JobRow) {
	job, spec := row.JobInfo, row.GetSpec()
	if job.GetFailure() != "" {
		rec.Line("LaunchFailure=" + job.GetFailure())
	}
	memory := "MinMemoryNode=" + v.MinMemory(job)
	switch {
	case spec.GetMemPerCpu() > 0, job.GetDefaultMemPerCpu() > 0:
		memory = "MinMemoryCPU=" + v.MinMemory(job)
	case spec.GetMemPerGpu() > 0:
		memory = "MinMemoryNode=0"
	}
	minCPUs := max(spec.GetMinCpusPerNode(), max(spec.GetCpusPerTask(), 1)*max(spec.GetTasksPerNode(), 1))
	rec.Line("MinCPUsNode="+tool.Itoa(minCPUs), memory, "MinTmpDiskNode="+v.Memory(spec.GetTmpDisk()))
	features := "Features=" + cmp.Or(spec.GetConstraint(), Null)
	rec.Line(features, "DelayBoot=00:00:00")
	if spec.GetPrefer() != "" {
		rec.Line("Prefer=" + spec.GetPrefer())
	}
	if spec.GetReservation() != "" {
		rec.Line("Reservation=" + spec.GetReservation())
	}
	rec.Line("OverSubscribe="+Sharing(job), "Contiguous="+ZeroOne(spec.GetContiguous()), "Licenses="+cmp.Or(LicencesText(spec), Null), "Network=(null)")
	rec.Line("Command=" + cmp.Or(CommandLine(job), Null))
	if spec.GetSubmitLine() != "" {
		rec.Line("SubmitLine=" + spec.GetSubmitLine())
	}
	rec.Line("WorkDir=" + spec.GetWorkDir())
	for _, t := range [...]struct{ key, text string }{{"AdminComment=", spec.GetAdminComment()}, {"SystemComment=", spec.GetSystemComment()},
		{"Comment=", spec.GetComment()}, {"Extra=", spec.GetExtra()}, {"Container=", ImageName(job)}} {
		if t.text != "" {
			rec.Line(t.key + t.text)
		}
	}
	if pods := spec.GetPods(); pods != nil {
		rec.Line("Pods=" + PodNames(pods))
		rec.Line("PodOwner="+cmp.Or(pods.GetOwner(), Null), "PodGroup="+cmp.Or(pods.GetGroup(), Null))
		rec.Line("AdmittedBy=" + cmp.Or(pods.GetAdmits(), Null))
	}
	rec.Line("StdErr=" + v.stderrOf(job))
	rec.Line("StdIn=" + v.Stdin(job))
	rec.Line("StdOut=" + v.Stdout(job))
	if spec.GetSwitches() > 0 {
		rec.Line(fmt.Sprintf("Switches=%d@%s", spec.GetSwitches(), format.Duration(spec.GetSwitchWait()/tool.Second)))
	}
	rec.Line("Power=")
	if spec.GetCpusPerGpu() > 0 {
		rec.Line("CpusPerTres=gres:gpu:" + tool.Itoa(spec.GetCpusPerGpu()))
	}
	if spec.GetMemPerGpu() > 0 {
		rec.Line("MemPerTres=gres:gpu:" + tool.Itoa(spec.GetMemPerGpu()))
	}
	if text := TRESBind(spec); text != "" {
		rec.Line("TresBind=" + text)
	}
	if text := TRESFreq(spec); text != "" {
		rec.Line("TresFreq=" + text)
	}
	for _, t := range [...]struct {
		key  string
		list []*apiv1.Count
	}{{"TresPerJob", spec.GetPerJob()}, {"TresPerNode", spec.GetPerNode()}, {"TresPerSocket", spec.GetPerSocket()}, {"TresPerTask", spec.GetPerTask()}} {
		if len(t.list) > 0 {
			rec.Line(t.key + "=" + CountsText(t.list, "gres:", ":"))
		}
	}
	mail := ""
	if len(spec.GetMailTypes()) > 0 {
		mail = "MailUser=" + cmp.Or(spec.GetMailUser(), job.GetUser()) + " MailType=" + strings.Join(spec.GetMailTypes(), ",")
	}
	rec.Line(mail)
}

// PodNames are the pods of a job, NAMESPACE/NAME with commas.
func PodNames(pods *apiv1.PodSet) string {
	var names []string
	for _, pod := range pods.GetPods() {
		names = append(names, pods.GetSpace()+"/"+pod.GetName())
	}
	return strings.Join(names, ",")
}

// stderrOf is where the standard error goes, which is to the output if nothing
// else was asked for.
func (v *JobView) stderrOf(job *apiv1.JobInfo) string {
	if job.GetStderr() != "" && v.Expand {
		return job.GetStderr()
	}
	return v.Stderr(job)
}
