package settings

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/telemetry/host"
	"github.com/musterhpc/muster/spec"
)

// site writes configuration files and reads them as the agent does.
func site(t *testing.T, node string, files map[string]string, change ...func(*Options)) *Settings {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{ConfigFile: filepath.Join(dir, "muster.yaml"), Conf: filepath.Join(dir, "slurm.conf"), Node: node}
	for _, f := range change {
		f(&o)
	}
	s, err := Read(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const head = "ClusterName=c\nSlurmctldHost=ctl1(10.0.0.1)\nSlurmctldHost=ctl2\nSlurmctldPort=7001\nGresTypes=gpu\n"

func TestFindNode(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	nodes := []spec.NodeSpec{{Name: "a", Hostname: "elsewhere"}, {Name: "b", Hostname: name}, {Name: "c"}}
	for want, given := range map[string]string{"b": "", "c": "c", "a": "a"} {
		if n, err := findNode(nodes, given, "short"); err != nil || n.Name != want {
			t.Errorf("%q: %v %v", given, n, err)
		}
	}
	if n, err := findNode([]spec.NodeSpec{{Name: "short"}}, "", "short"); err != nil || n.Name != "short" {
		t.Errorf("by the node's own name: %v %v", n, err)
	}
	if _, err := findNode(nodes[:1], "", "short"); err == nil || !strings.Contains(err.Error(), "--node") {
		t.Errorf("%v", err)
	}
	if _, err := findNode(nil, "x", "short"); err == nil || !strings.Contains(err.Error(), "there is none") {
		t.Errorf("%v", err)
	}
}

func TestPlanNode(t *testing.T) {
	s := site(t, "n1", map[string]string{
		"slurm.conf": head + "JobFileAppend=1\nTaskProlog=/etc/slurm/task.sh\nTaskEpilog=/etc/slurm/after.sh\nTaskPlugin=task/affinity,task/cgroup\nDefMemPerCPU=300\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n" +
			"NodeName=n[1-2] CPUs=2 RealMemory=100\nPartitionName=p Nodes=ALL DefMemPerNode=700\n",
		"cgroup.conf": "ConstrainCores=yes\nConstrainRAMSpace=yes\nAllowedRAMSpace=110\nMaxRAMPercent=95\nMinRAMSpace=40\nMaxTasks=700\n",
	})
	n := s.planNode()
	if !n.Append || !n.Affinity || n.TaskProlog != "/etc/slurm/task.sh" || n.TaskEpilog != "/etc/slurm/after.sh" || n.Cluster != "c" || n.Memory != (plan.MemoryDefault{PerCPU: 300}) || n.Parts["p"] != (plan.MemoryDefault{PerNode: 700}) || n.CPUs.Empty() {
		t.Errorf("%+v", n)
	}
	if want := (plan.Confine{Cores: true, RAM: true, AllowedRAM: 11_000, MaxRAM: 9_500, MinRAM: 40, Tasks: 700}); n.Confine != want {
		t.Errorf("%+v, want %+v", n.Confine, want)
	}
	// Without task/cgroup cgroup.conf confines nothing, as in Slurm.
	s = site(t, "n1", map[string]string{
		"slurm.conf":  head + "TaskPlugin=task/none\nNodeName=n1 CPUs=1\nPartitionName=p Nodes=ALL\n",
		"cgroup.conf": "ConstrainRAMSpace=yes\n",
	})
	if n := s.planNode(); n.Confine != (plan.Confine{}) || n.Affinity {
		t.Errorf("%+v", n)
	}
	if !strings.HasSuffix(s.StateDir, "/agent/n1") {
		t.Error(s.StateDir)
	}
}

func TestInventoryOfASmallMachine(t *testing.T) {
	conf := head + "NodeName=n1 CPUs=128 Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=900000\nPartitionName=p Nodes=ALL\n"
	found := host.Inventory{CPUs: 2, Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 1, RealMemoryMiB: 4000, Notes: []string{"odd"}}
	inv := site(t, "n1", map[string]string{"slurm.conf": conf}).NodeInventory(found)
	if inv.CPUs != 2 || inv.Mem != 4000 || inv.Degraded != "odd" {
		t.Errorf("the truth: %+v", inv)
	}
	inv = site(t, "n1", map[string]string{"slurm.conf": conf + "SlurmdParameters=config_overrides\n"}).NodeInventory(found)
	if inv.CPUs != 128 || inv.Mem != 900000 || inv.Sockets != 2 || !strings.Contains(inv.Degraded, "odd; CPUs is declared as 128 and is 2") {
		t.Errorf("as declared: %+v", inv)
	}
}

func TestControllerAddresses(t *testing.T) {
	files := map[string]string{"slurm.conf": head + "NodeName=n1\nPartitionName=p Nodes=ALL\n"}
	for given, want := range map[string][]string{
		"": {"10.0.0.1:7001", "ctl2:7001"}, "ctl9": {"ctl9:7001"}, "ctl9:1": {"ctl9:1"}, "/run/m.sock": {"/run/m.sock"}, "::1": {"[::1]:7001"},
	} {
		got, err := site(t, "n1", files, func(o *Options) { o.Controller = given }).ControllerAddresses()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q %v", given, got, err)
		}
	}
}

// With -Z the node is what the machine is, but for what --describe says.
func TestDescribe(t *testing.T) {
	conf := map[string]string{"muster.yaml": "", "slurm.conf": head + "MaxNodeCount=9\nNodeName=n1 CPUs=1\nPartitionName=p Nodes=ALL\n",
		"gres.conf": "Name=gpu File=/dev/nvidia[0-1]\n"}
	s := site(t, "d1", conf, func(o *Options) { o.Dynamic, o.About = true, "Feature=spot,big Gres=gpu:2 RealMemory=77" })
	n := s.Node
	if n.Name != "d1" || !n.Dynamic || n.CPUs != int64(s.Host.CPUs) || n.Mem != 77 || !slices.Equal(n.Features, []string{"spot", "big"}) {
		t.Errorf("%+v", n)
	}
	if len(n.GRES) != 1 || n.GRES[0].N != 2 || n.GRES[0].Files == "" || s.AgentConfig(0, "test").Dynamic != s.dynamic {
		t.Errorf("%+v, %q", n.GRES, s.dynamic)
	}
	if s = site(t, "d1", conf, func(o *Options) { o.Dynamic, o.About = true, "CPUs=3" }); s.Node.CPUs != 3 || s.Node.Sockets != 3 || s.Node.Mem != s.Host.RealMemoryMiB {
		t.Errorf("%+v", s.Node)
	}
	dir := filepath.Dir(s.slurmConf)
	for want, o := range map[string]Options{"start its agent without -Z": {Node: "n1"}, "unknown key": {Node: "d1", About: "Colour=red"}, "are 2": {Node: "d[1-2]"}} {
		o.ConfigFile, o.Conf, o.Dynamic = filepath.Join(dir, "muster.yaml"), s.slurmConf, true
		if _, err := Read(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestDeclaredGPUs(t *testing.T) {
	s := site(t, "n1", map[string]string{
		"slurm.conf": head + "NodeName=n1 CPUs=8 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 Gres=gpu:h100:2,gpu:a100:1\nPartitionName=p Nodes=ALL\n",
		"gres.conf":  "AutoDetect=off\nNodeName=n1 Name=gpu Type=h100 File=/dev/nvidia[0-1] Cores=0-1\nNodeName=n1 Name=gpu Type=a100 Count=1\n",
	})
	got, err := DeclaredGPUs(s.Node)
	want := []simulated.Declared{
		{Type: "h100", Count: 2, Files: []string{"/dev/nvidia0", "/dev/nvidia1"}, Cores: []int{0, 1, 2, 3}},
		{Type: "a100", Count: 1},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v", got, err)
	}
}
