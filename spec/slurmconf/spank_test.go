package slurmconf

import (
	"strings"
	"testing"
	"testing/fstest"
)

// What a plugstack.conf would load is refused by file and line, also where it is
// only beside slurm.conf, or included; one that loads nothing is none.
func TestPlugStack(t *testing.T) {
	const minimal = "ClusterName=c\nSlurmctldHost=h\nNodeName=n CPUs=1\nPartitionName=p Nodes=n\n"
	for _, x := range []struct {
		conf, stack, extra string
		want               string // empty: nothing is refused
	}{
		{minimal, "# none\n\ninclude /etc/slurm/plugstack.conf.d/*.conf\n", "", ""},
		{minimal, "\noptional x.so\n", "", "etc/slurm/plugstack.conf:2: error: optional: SPANK"},
		{minimal, "include plugstack.conf.d/*\n", "required /usr/lib/private-tmpdir.so base=/x\n", "etc/slurm/plugstack.conf.d/a.conf:1: error: required: SPANK"},
		{minimal, "include plugstack.conf\n", "", "cannot be read"},
		{minimal + "PlugStackConfig=none\n", "required x.so\n", "", ""},
		{minimal + "PlugStackConfig=/etc/slurm/plugstack.conf\n", "required x.so\n", "", "slurm.conf:5: error: PlugStackConfig"},
	} {
		fsys := fstest.MapFS{"etc/slurm/slurm.conf": file(x.conf), "etc/slurm/plugstack.conf": file(x.stack)}
		if x.extra != "" {
			fsys["etc/slurm/plugstack.conf.d/a.conf"] = file(x.extra)
		}
		_, ps := ReadCluster(fsys, "etc/slurm/slurm.conf")
		err := ps.Err()
		switch {
		case x.want == "" && err != nil:
			t.Errorf("%q: %v", x.stack, err)
		case x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)):
			t.Errorf("%q: %v, want %q", x.stack, err, x.want)
		}
	}
}
