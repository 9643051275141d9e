package slurmconf

import (
	"strings"
	"testing"
	"testing/fstest"
)

// What an oci.conf asks for and does not get is said key by key, and it makes no
// configuration unusable.
func TestOCIConf(t *testing.T) {
	fsys := fstest.MapFS{
		"slurm.conf": {Data: []byte("ClusterName=c\nSlurmctldHost=h\nNodeName=n1 CPUs=1\nPartitionName=p Nodes=n1\n")},
		"oci.conf":   {Data: []byte("RunTimeRun=\"runc run %n.%u.%j.%s.%t -b %b\"\nEnvExclude=\"^(SLURM_CONF)=\"\nMountSpoolDir=/var/run/slurm/\n")},
	}
	_, problems := ReadCluster(fsys, "slurm.conf")
	if problems.Err() != nil {
		t.Error(problems.Err())
	}
	var said []string
	for _, p := range problems.AtLeast(Warning) {
		if strings.Contains(p.String(), "oci.conf") {
			said = append(said, p.String())
		}
	}
	if len(said) != 2 || !strings.Contains(said[0], "RunTimeRun") || !strings.Contains(said[1], "EnvExclude") {
		t.Errorf("%q", said)
	}
	fsys["oci.conf"].Data = []byte("RunTimeWalk=x\n")
	if _, problems := ReadCluster(fsys, "slurm.conf"); !strings.Contains(problems.Err().Error(), "RunTimeWalk") {
		t.Errorf("%v", problems.Err())
	}
}
