package cli

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// TestShowConfigOrder compares the order of show config with that of a real Slurm,
// as far as both have the keys; integrations find SLURM_CONF before SLURM_VERSION.
func TestShowConfigOrder(t *testing.T) {
	w := newWorld(t)
	w.config = &apiv1.GetConfigReply{Cluster: "peer", Version: "1", Controller: "vm", NextJobId: 4, SlurmConf: "/etc/slurm/slurm.conf", StateDir: "/var/lib/muster",
		Entries: []*apiv1.ConfigEntry{{Key: "SlurmctldHost", Value: "a"}, {Key: "SlurmctldHost", Value: "b"}, {Key: "SlurmctldPort", Value: "6817"},
			{Key: "JobAcctGatherFrequency", Value: "task=2"}, {Key: "ZebraKey", Value: "1"}, {Key: "ProctrackType", Value: "proctrack/cgroup"}, {Key: "ResumeTimeout", Value: "90"}}}
	var keys []string
	values := map[string]string{}
	for line := range strings.Lines(w.shell("scontrol show config").out) {
		if key, value, ok := strings.Cut(line, " = "); ok {
			keys = append(keys, strings.TrimSpace(key))
			values[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	want := []string{"AccountingStorageBackupHost", "AccountingStorageEnforce", "BOOT_TIME", "BurstBufferType", "ClusterName", "FirstJobId", "JobAcctGatherFrequency",
		"JobRequeue", "MaxArraySize", "MinJobAge", "NEXT_JOB_ID", "OverTimeLimit", "PreemptMode", "PriorityDecayHalfLife", "PriorityCalcPeriod", "PriorityWeightTRES",
		"PrivateData", "ProctrackType", "Prolog", "ResumeTimeout", "SelectTypeParameters", "SlurmctldHost[0]", "SlurmctldHost[1]", "SlurmctldPort", "SLURM_CONF",
		"SLURM_VERSION", "MUSTER_VERSION", "StateSaveLocation", "TmpFS", "WaitTime", "X11Parameters", "ZebraKey"}
	at := -1
	for _, key := range want {
		i := slices.Index(keys, key)
		if i < 0 || i <= at {
			t.Errorf("%s is line %d, behind line %d", key, i, at)
		}
		at = i
	}
	for key, value := range map[string]string{"SLURM_CONF": "/etc/slurm/slurm.conf", "StateSaveLocation": "/var/lib/muster", "ResumeTimeout": "90 sec", "SlurmctldHost[1]": "b"} {
		if values[key] != value {
			t.Errorf("%s is %q, want %q", key, values[key], value)
		}
	}
	for _, key := range []string{"AuthType", "JobAcctGatherType", "SlurmUser", "SlurmdPort", "TaskPlugin", "TreeWidth"} {
		if values[key] == "" {
			t.Errorf("%s has no value", key)
		}
	}
}

// TestLogOfTheController: the three verbs ask for what their arguments say, also behind a dash,
// and show config prints what the controller answers.
func TestLogOfTheController(t *testing.T) {
	w := newWorld(t)
	w.lab()
	w.config = &apiv1.GetConfigReply{}
	w.config.Log = &apiv1.LogInfo{Level: "debug", Flags: []string{"Backfill", "Steps"}, Scheduling: true}
	var asked *apiv1.SetLogRequest
	w.reply[tool.MethodSetLog] = func(req proto.Message) (proto.Message, error) {
		asked = req.(*apiv1.SetLogRequest)
		return &apiv1.SetLogReply{}, nil
	}
	on, off := true, false
	for line, want := range map[string]*apiv1.SetLogRequest{
		"scontrol setdebug debug2":                      {Level: "debug2"},
		"scontrol setdebug 3":                           {Level: "3"},
		"scontrol setdebugflags -Backfill +Steps":       {Flags: []string{"-Backfill", "+Steps"}},
		"scontrol setdebugflags Backfill,Steps":         {Flags: []string{"Backfill", "Steps"}},
		"scontrol schedloglevel enable":                 {Scheduling: &on},
		"scontrol schedloglevel 0":                      {Scheduling: &off},
		"scontrol schedloglevel 7":                      nil,
		"scontrol setdebug":                             nil,
		"scontrol setdebug debug nodes=n1":              nil,
		"scontrol setdebugflags":                        nil,
		"scontrol setdebugflags +Steps nodes=node[1-2]": nil,
	} {
		asked = nil
		if r := w.shell(line); (r.code == 0) != (want != nil) || !proto.Equal(asked, want) {
			t.Errorf("$ %s\n%d %v %s", line, r.code, asked, r.errOut)
		}
	}
	out := w.shell("scontrol show config").out
	for _, want := range []string{"SlurmctldDebug          = debug\n", "DebugFlags              = Backfill,Steps\n", "SlurmSchedLogLevel      = 1\n"} {
		if strings.Count(out, want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, out)
		}
	}
}

// TestShowSlurmd: what the agent found, not what slurm.conf says, and the steps that run there.
func TestShowSlurmd(t *testing.T) {
	w := newWorld(t)
	w.running()
	w.nodes[0].Hostname = "vm"
	w.nodes[0].Found = &apiv1.NodeHardware{Cpus: 2, Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 1, Mem: 3000, Addr: "10.0.0.1:6818"}
	for _, line := range []string{"scontrol show slurmd node1", "scontrol show slurmd"} {
		out := w.shell(line).out
		for _, want := range []string{"NodeName                 = node1\n", "Actual CPUs              = 2\n", "Active Steps             = 4.batch\n", "Address                  = 10.0.0.1:6818\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("$ %s: no %q:\n%s", line, want, out)
			}
		}
	}
	if r := w.shell("scontrol show slurmd nosuch"); r.code == 0 {
		t.Errorf("an unknown node: %s", r.out)
	}
}
