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
func (v *JobView) RequestLines(record *Record, row JobRow) {
	job, spec := row.JobInfo, row.GetSpec()
	if job.GetFailure() != "" {
		record.Line("LaunchFailure=" + job.GetFailure())
	}
	memory := "MinMemoryNode=" + v.MinMemory(job)
	switch {
	case spec.GetMemPerCpu() > 0, job.GetDefaultMemPerCpu() > 0:
		memory = "MinMemoryCPU=" + v.MinMemory(job)
	case spec.GetMemPerGpu() > 0:
		memory = "MinMemoryNode=0"
	}
	minCPUs := max(spec.GetMinCpusPerNode(), max(spec.GetCpusPerTask(), 1)*max(spec.GetTasksPerNode(), 1))
	record.Line(
		"MinCPUsNode="+tool.Itoa(minCPUs), memory, "MinTmpDiskNode="+v.Memory(spec.GetTmpDisk()),
	)
	features := "Features=" + cmp.Or(spec.GetConstraint(), Null)
	record.Line(features, "DelayBoot=00:00:00")
	if spec.GetPrefer() != "" {
		record.Line("Prefer=" + spec.GetPrefer())
	}
	if spec.GetReservation() != "" {
		record.Line("Reservation=" + spec.GetReservation())
	}
	record.Line(
		"OverSubscribe="+Sharing(job),
		"Contiguous="+ZeroOne(spec.GetContiguous()),
		"Licenses="+cmp.Or(LicencesText(spec), Null),
		"Network=(null)",
	)
	record.Line("Command=" + cmp.Or(CommandLine(job), Null))
	if spec.GetSubmitLine() != "" {
		record.Line("SubmitLine=" + spec.GetSubmitLine())
	}
	record.Line("WorkDir=" + spec.GetWorkDir())
	for _, t := range [...]struct{ key, text string }{{"AdminComment=", spec.GetAdminComment()}, {"SystemComment=", spec.GetSystemComment()},
		{"Comment=", spec.GetComment()}, {"Extra=", spec.GetExtra()}, {"Container=", ImageName(job)}} {
		if t.text != "" {
			record.Line(t.key + t.text)
		}
	}
	if pods := spec.GetPods(); pods != nil {
		record.Line("Pods=" + PodNames(pods))
		record.Line(
			"PodOwner="+cmp.Or(pods.GetOwner(), Null), "PodGroup="+cmp.Or(pods.GetGroup(), Null),
		)
		record.Line("AdmittedBy=" + cmp.Or(pods.GetAdmits(), Null))
	}
	record.Line("StdErr=" + v.stderrOf(job))
	record.Line("StdIn=" + v.Stdin(job))
	record.Line("StdOut=" + v.Stdout(job))
	if spec.GetSwitches() > 0 {
		record.Line(
			fmt.Sprintf(
				"Switches=%d@%s",
				spec.GetSwitches(),
				format.Duration(spec.GetSwitchWait()/tool.Second),
			),
		)
	}
	record.Line("Power=")
	if spec.GetCpusPerGpu() > 0 {
		record.Line("CpusPerTres=gres:gpu:" + tool.Itoa(spec.GetCpusPerGpu()))
	}
	if spec.GetMemPerGpu() > 0 {
		record.Line("MemPerTres=gres:gpu:" + tool.Itoa(spec.GetMemPerGpu()))
	}
	if text := TRESBind(spec); text != "" {
		record.Line("TresBind=" + text)
	}
	if text := TRESFreq(spec); text != "" {
		record.Line("TresFreq=" + text)
	}
	for _, t := range [...]struct {
		key  string
		list []*apiv1.Count
	}{{"TresPerJob", spec.GetPerJob()}, {"TresPerNode", spec.GetPerNode()}, {"TresPerSocket", spec.GetPerSocket()}, {"TresPerTask", spec.GetPerTask()}} {
		if len(t.list) > 0 {
			record.Line(t.key + "=" + CountsText(t.list, "gres:", ":"))
		}
	}
	mail := ""
	if len(spec.GetMailTypes()) > 0 {
		mail = "MailUser=" + cmp.Or(spec.GetMailUser(), job.GetUser()) + " MailType=" + strings.Join(spec.GetMailTypes(), ",")
	}
	record.Line(mail)
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
