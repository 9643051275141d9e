package acct

import (
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

func Seff() *tool.Command {
	return &tool.Command{
		Name: "seff", Slurm: true,
		Summary: "show how efficiently a job used its resources",
		Usage:   []string{"[OPTIONS] JOB"},
		About: `Compares the CPU time and memory that a job used with what was allocated. Values that were not
measured are reported as such, never as zero. A running job has no figures yet: the nodes report them when
it ends.`,
		Options: []opt.Option{
			{
				Long:  "debug",
				Short: "d",
				Help:  "print the fields from which the figures are computed as well",
			},
		},
		Example: []tool.Example{{Line: "seff 4711", What: "shows the efficiency of job 4711"}},
		Run:     runSeff,
	}
}

func runSeff(call *tool.Call) error {
	if len(call.Operands) != 1 {
		return &opt.UsageError{Command: "seff", Text: "one job is to be named"}
	}
	id := call.Operands[0]
	if _, ok := jobRefs(id); !ok {
		return tool.Fail(1, "seff: error: Invalid job id: "+id)
	}
	request := &apiv1.AcctQuery{
		Jobs:            []string{id},
		AllUsers:        true,
		AllocationsOnly: true,
		Zone:            tool.ZoneName(call.Env),
	}
	var job *apiv1.AcctRow
	cluster, behind := "", uint64(0)
	err := fetch.AccountingRows(call, request, func(reply *apiv1.AcctReply) error {
		cluster, behind = reply.GetCluster(), reply.GetBehind()
		for _, r := range reply.GetRows() {
			if job == nil || r.GetArrayTasks() == "" {
				job = r
			}
			if number := tool.Itoa(r.GetJobId()); number == id {
				job = r // the record itself, not another task of its array
				break
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	fetch.WarnBehind(call, behind)
	if job == nil {
		return tool.Fail(1, "Job not found.")
	}
	return call.WriteOut(seffText(job, cluster, call.Opts.On("debug")))
}

// seffText lays the figures out.
func seffText(r *apiv1.AcctRow, cluster string, debug bool) []byte {
	var buffer []byte
	line := func(name, text string, args ...any) {
		buffer = fmt.Appendf(buffer, name+": "+text+"\n", args...)
	}
	usage := r.GetUsage()
	seconds := r.GetElapsed() / tool.Second
	cores := allocCPUs(r)
	nodes := max(allocNodes(r), 1)
	if debug {
		line(
			"Fields",
			"JobID=%d NCPUS=%d NNodes=%d ElapsedRaw=%d TotalCPU(ns)=%d PeakRSS=%d measured=%v",
			r.GetJobId(),
			cores,
			nodes,
			seconds,
			usage.GetUserCpu()+usage.GetSystemCpu(),
			usage.GetPeakRss(),
			r.GetHasUsage(),
		)
	}
	line("Job ID", "%d", r.GetJobId())
	if r.GetArrayJobId() != 0 {
		line("Array Job ID", "%s", acctID(r))
	}
	line("Cluster", "%s", cluster)
	line("User/Group", "%s/%s", r.GetUser(), r.GetGroup())
	state, ok := spec.ParseJobState(r.GetState())
	over := r.GetState() == "REQUEUED" || (ok && state.Terminal())
	if over {
		line("State", "%s (exit code %d)", r.GetState(), r.GetExitCode())
	} else {
		line("State", "%s", r.GetState())
	}
	if cores > 1 {
		line("Nodes", "%d", nodes)
		line("Cores per node", "%d", cores/nodes)
	} else {
		line("Cores", "%d", cores)
	}
	switch {
	case r.GetStart() == 0:
		return fmt.Appendf(
			buffer,
			"Efficiency not available for jobs in the %s state: it never started.\n",
			r.GetState(),
		)
	case !over:
		line("Job Wall-clock time", "%s", format.Duration(seconds))
		return fmt.Appendf(
			buffer,
			"Efficiency not available for jobs in the %s state: it is measured to its end.\n",
			r.GetState(),
		)
	case !r.GetHasUsage():
		line("Job Wall-clock time", "%s", format.Duration(seconds))
		return append(buffer, "Efficiency not available: no node reported what the job used.\n"...)
	}
	used, held := (usage.GetUserCpu()+usage.GetSystemCpu())/tool.Second, cores*seconds
	line("CPU Utilized", "%s", format.Duration(used))
	line(
		"CPU Efficiency",
		"%s of %s core-walltime",
		percentOf(float64(usage.GetUserCpu()+usage.GetSystemCpu())/1e9, float64(held)),
		format.Duration(held),
	)
	line("Job Wall-clock time", "%s", format.Duration(seconds))
	if !usage.GetHasRss() {
		line("Memory Utilized", "not measured")
		return buffer
	}
	estimated := ""
	if nodes > 1 {
		estimated = " (estimated maximum)" // the nodes' peaks need not have come together
	}
	line("Memory Utilized", "%s%s", sizeText(usage.GetPeakRss()), estimated)
	asked := r.GetAllocTres().GetMem() << 20
	each := ""
	if nodes > 1 {
		each = " (" + sizeText(asked/nodes) + "/node)"
	}
	line(
		"Memory Efficiency",
		"%s of %s%s",
		percentOf(float64(usage.GetPeakRss()), float64(asked)),
		sizeText(asked),
		each,
	)
	return buffer
}

func percentOf(part, whole float64) string {
	if whole <= 0 {
		return "0.00%"
	}
	return fmt.Sprintf("%.2f%%", 100*part/whole)
}

// sizeText is an amount of bytes as seff prints it.
func sizeText(n int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	return fmt.Sprintf("%.2f %s", f, units[i])
}
