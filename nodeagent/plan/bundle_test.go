package plan

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/musterhpc/muster/spec"
)

// A bundle in the form in which runc spec writes it, with two mounts of its own.
const aBundle = `{"ociVersion":"1.0.2-dev","process":{"terminal":true,"user":{"uid":0,"gid":0},"args":["sh"],
 "env":["PATH=/usr/local/bin:/bin","TERM=xterm","MODEL=big"],"cwd":"/work","capabilities":{"bounding":["CAP_KILL"]},"noNewPrivileges":true},
 "root":{"path":"rootfs","readonly":true},"hostname":"runc","hooks":{"prestart":[]},
 "mounts":[{"destination":"/proc","type":"proc","source":"proc"},{"destination":"/dev","type":"tmpfs","source":"tmpfs","options":["nosuid"]},
  {"destination":"/dev/shm","type":"tmpfs","source":"shm"},{"destination":"/sys/fs/cgroup","type":"cgroup","source":"cgroup","options":["ro"]},
  {"destination":"/data","type":"none","source":"/scratch/data","options":["rbind","ro"]},{"destination":"/etc/app","type":"bind","source":"conf","options":["bind"]}],
 "linux":{"resources":{"devices":[{"allow":false,"access":"rwm"}]},"namespaces":[{"type":"pid"},{"type":"mount"}]}}`

func TestBundle(t *testing.T) {
	got, err := ReadBundle([]byte(aBundle), "/home/u/b")
	want := &Unpacked{Root: "/home/u/b/rootfs", ReadOnly: true, WorkDir: "/work", Env: []string{"PATH=/usr/local/bin:/bin", "MODEL=big"},
		Mounts: []spec.ContainerMount{{Source: "/scratch/data", Target: "/data", ReadOnly: true}, {Source: "/home/u/b/conf", Target: "/etc/app"}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v (%v), want %+v", got, err, want)
	}
	for change, say := range map[string]string{
		`"1.0.2-dev"|"2.0"`:                            "ociVersion",
		`"path":"rootfs",|`:                            "root.path",
		`"prestart":[]|"prestart":[{"path":"/bin/x"}]`: "hooks.prestart",
		`"cwd":"/work"|"cwd":"work"`:                   "process.cwd",
		`"MODEL=big"|"MODEL"`:                          "process.env",
		`"destination":"/data","type":"none","source":"/scratch/data","options":["rbind","ro"]|"destination":"/run","type":"tmpfs"`: "tmpfs at /run",
		`"destination":"/data"|"destination":"/dev"`: "cannot be mounted at /dev",
		`"destination":"/data"|"destination":"."`:    "cannot be mounted at /",
		`{"ociVersion"|["ociVersion"`:                "config.json",
	} {
		from, to, _ := strings.Cut(change, "|")
		if !strings.Contains(aBundle, from) {
			t.Fatalf("no %s", from)
		}
		got, err := ReadBundle([]byte(strings.Replace(aBundle, from, to, 1)), "/b")
		if !errors.Is(err, ErrBundle) || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %+v, %v", change, got, err)
		}
	}
}

// What a bundle says completes the container: the user's own mounts lie over it,
// and an image without a digest is none of a registry's.
func TestContainABundle(t *testing.T) {
	run := RunSpec{
		Container: &Container{Image: "/b", Own: true, Bundle: true, Mounts: []spec.ContainerMount{{Source: "/mine", Target: "/data"}}},
		Env:       []string{"PATH=/bin", "HOME=/home/u"},
	}
	run.Contain(&Unpacked{Root: "/b/rootfs", ReadOnly: true, WorkDir: "/work", Env: []string{"PATH=/app"},
		Mounts: []spec.ContainerMount{{Source: "/scratch", Target: "/data"}}})
	c := run.Container
	if c.Root != "/b/rootfs" || !c.ReadOnly || c.WorkDir != "/work" || len(c.Mounts) != 2 || c.Mounts[1].Source != "/mine" {
		t.Errorf("%+v", c)
	}
	if want := []string{"HOME=/home/u", "PATH=/app", "SLURM_CONTAINER=/b"}; !reflect.DeepEqual(run.Env, want) {
		t.Errorf("environment %q, want %q", run.Env, want)
	}
}
