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
func (v *JobView) RequestLines(rec *Record, r JobRow) {
	j, s := r.JobInfo, r.GetSpec()
	if j.GetFailure() != "" {
		rec.Line("LaunchFailure=" + j.GetFailure())
	}
	memory := "MinMemoryNode=" + v.MinMemory(j)
	switch {
	case s.GetMemPerCpu() > 0:
		memory = "MinMemoryCPU=" + v.MinMemory(j)
	case s.GetMemPerGpu() > 0:
		memory = "MinMemoryNode=0"
	}
	minCPUs := max(s.GetMinCpusPerNode(), max(s.GetCpusPerTask(), 1)*max(s.GetTasksPerNode(), 1))
	rec.Line("MinCPUsNode="+tool.Itoa(minCPUs), memory, "MinTmpDiskNode="+v.Memory(s.GetTmpDisk()))
	features := "Features=" + cmp.Or(s.GetConstraint(), Null)
	rec.Line(features, "DelayBoot=00:00:00")
	if s.GetPrefer() != "" {
		rec.Line("Prefer=" + s.GetPrefer())
	}
	if s.GetReservation() != "" {
		rec.Line("Reservation=" + s.GetReservation())
	}
	rec.Line("OverSubscribe="+Sharing(j), "Contiguous="+ZeroOne(s.GetContiguous()), "Licenses="+cmp.Or(LicencesText(s), Null), "Network=(null)")
	rec.Line("Command=" + cmp.Or(CommandLine(j), Null))
	if s.GetSubmitLine() != "" {
		rec.Line("SubmitLine=" + s.GetSubmitLine())
	}
	rec.Line("WorkDir=" + s.GetWorkDir())
	for _, t := range [...]struct{ key, text string }{{"AdminComment=", s.GetAdminComment()}, {"SystemComment=", s.GetSystemComment()},
		{"Comment=", s.GetComment()}, {"Extra=", s.GetExtra()}, {"Container=", s.GetContainer().GetImage()}} {
		if t.text != "" {
			rec.Line(t.key + t.text)
		}
	}
	rec.Line("StdErr=" + v.stderrOf(j))
	rec.Line("StdIn=" + v.Stdin(j))
	rec.Line("StdOut=" + v.Stdout(j))
	if s.GetSwitches() > 0 {
		rec.Line(fmt.Sprintf("Switches=%d@%s", s.GetSwitches(), format.Duration(s.GetSwitchWait()/tool.Second)))
	}
	rec.Line("Power=")
	if s.GetCpusPerGpu() > 0 {
		rec.Line("CpusPerTres=gres:gpu:" + tool.Itoa(s.GetCpusPerGpu()))
	}
	if s.GetMemPerGpu() > 0 {
		rec.Line("MemPerTres=gres:gpu:" + tool.Itoa(s.GetMemPerGpu()))
	}
	if text := TRESBind(s); text != "" {
		rec.Line("TresBind=" + text)
	}
	if text := TRESFreq(s); text != "" {
		rec.Line("TresFreq=" + text)
	}
	for _, t := range [...]struct {
		key  string
		list []*apiv1.Count
	}{{"TresPerJob", s.GetPerJob()}, {"TresPerNode", s.GetPerNode()}, {"TresPerSocket", s.GetPerSocket()}, {"TresPerTask", s.GetPerTask()}} {
		if len(t.list) > 0 {
			rec.Line(t.key + "=" + CountsText(t.list, "gres:", ":"))
		}
	}
	mail := ""
	if len(s.GetMailTypes()) > 0 {
		mail = "MailUser=" + cmp.Or(s.GetMailUser(), j.GetUser()) + " MailType=" + strings.Join(s.GetMailTypes(), ",")
	}
	rec.Line(mail)
}

// stderrOf is where the standard error goes, which is to the output if nothing
// else was asked for.
func (v *JobView) stderrOf(j *apiv1.JobInfo) string {
	if j.GetStderr() != "" && v.Expand {
		return j.GetStderr()
	}
	return v.Stderr(j)
}
