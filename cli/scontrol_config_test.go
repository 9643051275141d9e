package cli

import (
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
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
