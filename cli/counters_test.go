package cli

import (
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// A step of four tasks on two nodes: sacct names the extremes by node and rank and the
// mean, also beyond one node. A row without tasks shows what it showed before.
func TestSacctKnowsTasks(t *testing.T) {
	w := newWorld(t)
	w.books()
	counters := []*apiv1.CounterValue{{Counter: uint32(spec.CounterFabricIn), N: 11}, {Counter: uint32(spec.CounterFabricOut), N: 12},
		{Counter: uint32(spec.CounterLustreRead), N: 13}, {Counter: uint32(spec.CounterLustreWrite), N: 14}}
	job := &apiv1.AcctRow{Uid: 5, JobId: 5, ArrayTask: -1, State: "COMPLETED", Account: "ml", NodeList: "n[1-2]", HasUsage: true,
		Usage: &apiv1.Usage{UserCpu: 100 * tool.Second, ReadBytes: 5, WriteBytes: 6, Counters: counters}}
	step := &apiv1.AcctRow{Uid: 5, JobId: 5, ArrayTask: -1, Step: "0", State: "COMPLETED", NodeList: "n[1-2]", Tasks: 4, HasUsage: true, AllocTres: &apiv1.Tres{Node: 2},
		Usage: &apiv1.Usage{UserCpu: 100 * tool.Second, PeakRss: 8 << 20, HasRss: true, Tasks: []*apiv1.TaskSpread{
			{Kind: uint32(spec.TaskCPU), Tasks: 4, Sum: 100_000_000, Min: 10_000_000, Max: 40_000_000, MinRank: 3, MaxRank: 1, MinNode: "n2", MaxNode: "n1"},
			{Kind: uint32(spec.TaskRSS), Tasks: 4, Sum: 6 << 20, Min: 1 << 20, Max: 3 << 20, MinRank: 0, MaxRank: 2, MinNode: "n1", MaxNode: "n2"},
			{Kind: uint32(spec.TaskRead), Tasks: 4, Sum: 4 << 20, Min: 0, Max: 2 << 20, MaxRank: 3, MaxNode: "n2", MinNode: "n1"}}}}
	w.acct = []*apiv1.AcctRow{job, step}
	for line, want := range map[string]string{
		"sacct -n -P -j 5 -o jobid,mincpu,mincpunode,mincputask,avecpu":                                       "5||||\n5.0|00:00:10|n2|3|00:00:25\n",
		"sacct -n -P -j 5 -o jobid,maxrss,maxrssnode,maxrsstask,averss":                                       "5||||\n5.0|3M|n2|2|1536K\n",
		"sacct -n -P -j 5.0 -o maxdiskread,maxdiskreadnode,maxdiskreadtask,avediskread,maxpages,maxpagesnode": "|||||\n2.00M|n2|3|1.00M|0|\n",
		"sacct -n -P -X -j 5 -o tresusageintot,tresusageouttot":                                               "|\n",
	} {
		if r := w.shell(line); r.code != 0 || r.out != want {
			t.Errorf("$ %s\n%d %q %s\nwanted %q", line, r.code, r.out, r.errOut, want)
		}
	}
	step.Usage.Counters, step.Usage.Tasks = counters, nil
	if r := w.shell("sacct -n -P -j 5.0 -o tresusageintot,tresusageouttot"); r.out != "|\ncpu=00:01:40,fs/disk=0,fs/lustre=13,ic/ofed=11,mem=8M,pages=0|fs/disk=0,fs/lustre=14,ic/ofed=12\n" {
		t.Errorf("%q %s", r.out, r.errOut)
	}
}
