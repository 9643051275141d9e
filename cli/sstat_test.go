package cli

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// twoNodes are two jobs: one with its script and a step of four tasks on two
// nodes, of which one held GPUs, and an array task that has not begun.
func (w *world) twoNodes() {
	w.books()
	on := func(node string, cpu, rss int64, gpus ...*apiv1.GpuUsage) *apiv1.Measurement {
		return &apiv1.Measurement{Node: node, Usage: &apiv1.Usage{UserCpu: cpu * tool.Second, PeakRss: rss, HasRss: true, ReadBytes: 3 * rss, Gpus: gpus}, PeakVm: 2 * rss, HasVm: true, Pids: []int32{int32(cpu)}}
	}
	gpu := &apiv1.GpuUsage{Has: true, PeakMem: 10 << 30, UtilNs: 3 * tool.Second, Busy: 4 * tool.Second, EnergyMj: 500_000}
	metered := func(m *apiv1.Measurement, mj int64) *apiv1.Measurement {
		m.Usage.EnergyMj, m.Usage.HasEnergy = mj, true
		return m
	}
	w.live = &apiv1.StepUsageReply{Jobs: []*apiv1.JobSteps{
		{Job: "12", JobId: 12, Nodes: "n[1-2]", Alloc: &apiv1.Tres{Cpu: 4, Node: 2}, Steps: []*apiv1.StepMeasured{
			{Step: -5, Tasks: 1, Nodes: []*apiv1.Measurement{on("n1", 7, 1<<20)}},
			{Step: 0, Tasks: 4, Nodes: []*apiv1.Measurement{on("n1", 60, 4<<20), on("n2", 3600, 8<<20, gpu, gpu)}},
			{Step: 1, Tasks: 2, Nodes: []*apiv1.Measurement{metered(on("n1", 2, 1<<20), 1_500), metered(on("n2", 1, 2<<20), 2_500)}},
		}},
		{Job: "36_4", JobId: 40},
	}}
}

func TestSstat(t *testing.T) {
	w := newWorld(t)
	w.twoNodes()
	w.live.Jobs = w.live.GetJobs()[:1]
	for line, want := range map[string]string{
		// The lowest numbered step without -a; values of nodes, means of tasks.
		"sstat -n -P -j 12 -o jobid,ntasks,avecpu,mincpu,mincpunode,mincputask,maxrss,maxrssnode,averss,maxvmsize,maxdiskread,maxdiskwrite,nodelist,avecpufreq,consumedenergy"://
		"12.0|4|00:15:15|00:01:00|n1||8M|n2|3M|16M|24M|0|n[1-2]||1000\n",
		"sstat -n -P -a -j 12 -o jobid,averss":                     "12.batch|1M\n12.0|3M\n12.1|1536K\n",
		"sstat -n -P -a -j 12 -o jobid,averss --noconvert":         "12.batch|1048576\n12.0|3145728\n12.1|1572864\n",
		"sstat -n -P -j 12.1 -o jobid,maxrsstask,mincputask":       "12.1|1|1\n",
		"sstat -n -P -j 12.1,12.batch -o jobid":                    "12.batch\n12.1\n",
		"sstat -n -P -a 12 -i -j 12.1":                             "12.batch|n[1-2]|7\n12.0|n[1-2]|60,3600\n12.1|n[1-2]|2,1\n",
		"sstat -n -P 12 -o tresusageintot,tresusageinmaxnode":      "cpu=01:01:00,energy=1000,fs/disk=36M,gres/gpumem=20G,gres/gpuutil=75,mem=12M,pages=0,vmem=24M|cpu=n2,energy=n2,fs/disk=n2,gres/gpumem=n2,gres/gpuutil=n2,mem=n2,pages=n1,vmem=n2\n",
		"sstat -n -P 12.1 -o tresusageinmaxtask,consumedenergyraw": "cpu=0,energy=1,fs/disk=1,mem=1,pages=0,vmem=1|3\n",
	} {
		if r := w.shell(line); r.code != 0 || r.out != want || r.errOut != "" {
			t.Errorf("$ %s\n%d %q %s\nwanted %q", line, r.code, r.out, r.errOut, want)
		}
	}
}

// The line of fields without -o is Slurm's.
func TestSstatHasSlurmsColumns(t *testing.T) {
	w := newWorld(t)
	w.books()
	const want = "JobID|MaxVMSize|MaxVMSizeNode|MaxVMSizeTask|AveVMSize|MaxRSS|MaxRSSNode|MaxRSSTask|AveRSS|MaxPages|MaxPagesNode|MaxPagesTask|AvePages|MinCPU|MinCPUNode|" +
		"MinCPUTask|AveCPU|NTasks|AveCPUFreq|ReqCPUFreqMin|ReqCPUFreqMax|ReqCPUFreqGov|ConsumedEnergy|MaxDiskRead|MaxDiskReadNode|MaxDiskReadTask|AveDiskRead|MaxDiskWrite|" +
		"MaxDiskWriteNode|MaxDiskWriteTask|AveDiskWrite|TRESUsageInAve|TRESUsageInMax|TRESUsageInMaxNode|TRESUsageInMaxTask|TRESUsageInMin|TRESUsageInMinNode|TRESUsageInMinTask|" +
		"TRESUsageInTot|TRESUsageOutAve|TRESUsageOutMax|TRESUsageOutMaxNode|TRESUsageOutMaxTask|TRESUsageOutMin|TRESUsageOutMinNode|TRESUsageOutMinTask|TRESUsageOutTot"
	r := w.shell("sstat -a -P 4")
	head, row, _ := strings.Cut(r.out, "\n")
	if head != want || strings.Count(row, "|") != strings.Count(want, "|") || !strings.HasPrefix(row, "4.batch|5512K|node1|0|5512K|3316K|node1|0|3316K|0|node1|0|0|00:00:00|node1|0|00:00:00|1|") {
		t.Errorf("%s%s", r.out, r.errOut)
	}
}

// What cannot be shown is said, and what can be is shown.
func TestSstatSaysWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	w.twoNodes()
	for line, want := range map[string]string{
		"sstat":                       "sstat: error: You didn't give me any jobs to stat.\n",
		"sstat -j 12.x.y":             "sstat: error: no steps running for job 12\n",
		"sstat -j 12_":                "sstat: error: Invalid job id: 12_\n",
		"sstat -j 12 -o nosuch":       "sstat: error: Invalid field requested: \"nosuch\"\n",
		"sstat -n -j 36_4 -o jobid":   "sstat: error: no steps running for job 36_4\n",
		"sstat -n -j 12.77 -o jobid":  "sstat: error: no steps running for job 12\n",
		"sstat -n -j 12.inter -o job": "sstat: error: no steps running for job 12\n",
	} {
		job, _, _ := strings.Cut(strings.TrimPrefix(line[strings.LastIndex(line, "-j ")+1:], "j "), " ")
		all := w.live
		w.reply[tool.MethodStepUsage] = func(proto.Message) (proto.Message, error) {
			out := &apiv1.StepUsageReply{}
			for _, j := range all.GetJobs() {
				if name, _, _ := strings.Cut(job, "."); name == j.GetJob() {
					out.Jobs = append(out.Jobs, j)
				}
			}
			return out, nil
		}
		if r := w.shell(line); r.code != 1 || r.errOut != want {
			t.Errorf("$ %s\n%d %s%swanted %s", line, r.code, r.out, r.errOut, want)
		}
	}
	w.reply[tool.MethodStepUsage] = func(proto.Message) (proto.Message, error) {
		return &apiv1.StepUsageReply{Jobs: []*apiv1.JobSteps{{Job: "9", Error: &apiv1.Error{Text: "Access/permission denied"}},
			{Job: "12", JobId: 12, Silent: []string{"n2"}, Steps: w.live.GetJobs()[0].GetSteps()[:1]}}}, nil
	}
	r := w.shell("sstat -n -P -j 9,12 -o jobid")
	if r.code != 1 || r.out != "12.batch\n" || r.errOut != "sstat: error: job 9: Access/permission denied\nsstat: error: job 12: no answer from n2: what runs there is missing\n" {
		t.Errorf("%d %s%s", r.code, r.out, r.errOut)
	}
}
