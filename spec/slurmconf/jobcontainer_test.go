package slurmconf

import (
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

// Keys of a line for the node count before those for all nodes, key by key.
func TestPrivateFoldersOfNodes(t *testing.T) {
	fsys := fstest.MapFS{"etc/job_container.conf": file(`
AutoBasePath=true
BasePath=/local/%h/jobs Shared=true
NodeName=big[1-2] BasePath=/nvme/%n Dirs=/tmp,/dev/shm,/var/tmp InitScript=/etc/slurm/init.sh
NodeName=big2 Shared=false AutoBasePath=no
NodeName=login1 BasePath=none
`)}
	c, ps := ReadJobContainer(fsys, "etc/job_container.conf")
	if err := ps.Err(); err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string]PrivateFolders{
		"n1":     {Base: "/local/host/jobs", Auto: true, Dirs: []string{"/tmp", "/dev/shm"}, Shared: true},
		"big1":   {Base: "/nvme/big1", Auto: true, Dirs: []string{"/tmp", "/dev/shm", "/var/tmp"}, Shared: true, Init: "/etc/slurm/init.sh"},
		"big2":   {Base: "/nvme/big2", Dirs: []string{"/tmp", "/dev/shm", "/var/tmp"}, Init: "/etc/slurm/init.sh"},
		"login1": {},
	} {
		if got := c.Of(node, "host"); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", node, got, want)
		}
	}
}

// slurm.conf and job_container.conf belong together: one without the other is
// an error or a warning, and never silence.
func TestJobContainerTypeAndItsFile(t *testing.T) {
	conf := "BasePath=/local AutoBasePath=true\n"
	for _, c := range []struct {
		name, line, file string
		bad              bool
		said             string
		private          bool
	}{
		{"tmpfs", "JobContainerType=job_container/tmpfs", conf, false, "", true},
		{"its later name", "NamespaceType=namespace/tmpfs", conf, false, "", true},
		{"no file", "JobContainerType=job_container/tmpfs", "", true, "job_container.conf is missing", false},
		{"no base", "JobContainerType=job_container/tmpfs", "AutoBasePath=true\n", true, "BasePath is missing", false},
		{"file alone", "", conf, false, "has no effect without JobContainerType", false},
		{"none", "JobContainerType=job_container/none", "", false, "", false},
		{"namespaces of processes", "NamespaceType=namespace/linux", conf, true, "to ignore it would be unsafe", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := fstest.MapFS{"etc/slurm.conf": file(minimal + c.line + "\n")}
			if c.file != "" {
				fsys["etc/job_container.conf"] = file(c.file)
			}
			got, ps := ReadCluster(fsys, "etc/slurm.conf")
			if bad := ps.Err() != nil; bad != c.bad || !strings.Contains(ps.String(), c.said) {
				t.Errorf("error %v, want %v and %q in:\n%s", bad, c.bad, c.said, ps.String())
			}
			if !c.bad && (got.Containers != nil) != c.private {
				t.Errorf("containers: %+v, want %v", got.Containers, c.private)
			}
		})
	}
}
