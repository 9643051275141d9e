package slurmconf

import (
	"reflect"
	"testing"

	"github.com/musterhpc/muster/spec"
)

// Power saving as written becomes the configuration, and each node the times
// that count for it.
func TestPower(t *testing.T) {
	f, ps := Read(conf(`ClusterName=c
SuspendProgram=/opt/suspend
ResumeProgram=/opt/resume
ResumeFailProgram=/opt/failed
SuspendTime=600
SuspendTimeout=45
ResumeTimeout=300
SuspendRate=0
SuspendExcNodes=c[1-2]:1,login
SuspendExcParts=fast
SuspendExcStates=DOWN,DRAIN
SlurmctldParameters=idle_on_node_suspend
RebootProgram=/sbin/reboot
NodeName=c[1-3],login CPUs=4 RealMemory=1000 State=CLOUD
NodeName=own CPUs=4 RealMemory=1000 SuspendTime=7
NodeName=never CPUs=4 RealMemory=1000 SuspendTime=-1
PartitionName=all Nodes=ALL
PartitionName=slow Nodes=c2,c3,never SuspendTime=1200 ResumeTimeout=900
PartitionName=fast Nodes=c3 SuspendTime=INFINITE SuspendTimeout=5
PartitionName=eager Nodes=c1 PowerDownOnIdle=YES
`), "slurm.conf")
	if len(ps) != 0 {
		t.Fatal(ps)
	}
	want := &spec.PowerConfig{Suspend: "/opt/suspend", Resume: "/opt/resume", ResumeFail: "/opt/failed", IdleAfter: 600 * spec.Second, DownIn: 45 * spec.Second,
		UpIn: 300 * spec.Second, UpRate: 300, Keep: []spec.KeepUp{{Nodes: []string{"c1", "c2"}, N: 1}, {Nodes: []string{"login"}}}, KeepParts: []string{"fast"},
		KeepStates: []string{"DOWN", "DRAIN"}, IdleOnDown: true}
	if !reflect.DeepEqual(f.Config.Power, want) {
		t.Errorf("got  %+v\nwant %+v", f.Config.Power, want)
	}
	if f.Config.RebootProgram != "/sbin/reboot" {
		t.Errorf("RebootProgram is %q", f.Config.RebootProgram)
	}
	times := map[string]spec.PowerTimes{"c1": {IdleAfter: 1, DownIn: 45 * spec.Second, UpIn: 300 * spec.Second}, "c2": {IdleAfter: 1200 * spec.Second, DownIn: 45 * spec.Second, UpIn: 900 * spec.Second},
		"c3": {IdleAfter: 0, DownIn: 5 * spec.Second, UpIn: 900 * spec.Second}, "own": {IdleAfter: 7 * spec.Second, DownIn: 45 * spec.Second, UpIn: 300 * spec.Second}, "never": {IdleAfter: 0, DownIn: 45 * spec.Second, UpIn: 900 * spec.Second}}
	for i := range f.Config.Nodes {
		n := &f.Config.Nodes[i]
		var parts []*spec.PartitionSpec
		for k := range f.Config.Partitions {
			for _, name := range f.Config.Partitions[k].NodeNames {
				if name == n.Name {
					parts = append(parts, &f.Config.Partitions[k])
				}
			}
		}
		if want, ok := times[n.Name]; ok && f.Config.PowerTimes(n, parts) != want {
			t.Errorf("%s: %+v, want %+v", n.Name, f.Config.PowerTimes(n, parts), want)
		}
	}
	if f, ps := Read(conf(minimal), "slurm.conf"); len(ps) != 0 || f.Config.Power != nil || f.Config.Power.On() {
		t.Errorf("nothing is said, but: %+v %v", f.Config.Power, ps)
	}
}
