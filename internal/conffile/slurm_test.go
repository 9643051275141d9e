package conffile

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSlurmFiles: what one host reads, another reads alike from the files that
// were sent, wherever they lie: includes, named relatively and wholly, and what
// lies beside.
func TestSlurmFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("slurm.conf", "ClusterName=c\nSlurmctldHost=h\nGresTypes=gpu\nInclude nodes.conf\nInclude "+dir+"/deep/parts.conf\n")
	write("nodes.conf", "NodeName=n[1-2] CPUs=2 RealMemory=100 Gres=gpu:1\n")
	write("deep/parts.conf", "PartitionName=p Nodes=ALL Default=YES\n")
	write("gres.conf", "NodeName=n[1-2] Name=gpu File=/dev/null\n")
	write("cgroup.conf", "ConstrainCores=yes\n")
	write("other.conf", "secret\n")
	if err := os.Chmod(filepath.Join(dir, "nodes.conf"), 0o600); err != nil {
		t.Fatal(err)
	}
	name, files, err := SlurmFiles(filepath.Join(dir, "slurm.conf"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	root := t.TempDir()
	for _, f := range slices.Sorted(maps.Keys(files)) {
		if err := CheckFileName(f); err != nil {
			t.Error(err)
		}
		got = append(got, strings.TrimPrefix("/"+f, dir+"/"))
		path := filepath.Join(root, f)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, files[f].Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for f, mode := range map[string]fs.FileMode{"nodes.conf": 0o600, "slurm.conf": 0o644} {
		if got := files[strings.TrimPrefix(dir, "/")+"/"+f].Mode; got != mode {
			t.Errorf("%s has mode %o, not %o", f, got, mode)
		}
	}
	if want := "cgroup.conf deep/parts.conf gres.conf nodes.conf slurm.conf"; strings.Join(got, " ") != want {
		t.Errorf("sent are %v, want %s", got, want)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	c, problems := ReadSlurmBelow(root, name)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if len(c.Config.Nodes) != 2 || len(c.Config.Partitions) != 1 || len(c.Config.Nodes[1].GRES) != 1 || !c.Cgroup.ConstrainCores {
		t.Errorf("read are %+v, %+v", c.Config.Nodes, c.Cgroup)
	}
	if _, _, err := SlurmFiles(filepath.Join(dir, "slurm.conf")); err == nil {
		t.Error("files that are gone are sent")
	}
}

func TestCheckFileName(t *testing.T) {
	for _, name := range []string{"", ".", "..", "/etc/passwd", "../x", "a/../../x", "a//b", "a/"} {
		if err := CheckFileName(name); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
	if err := CheckFileName("etc/slurm/slurm.conf"); err != nil {
		t.Error(err)
	}
}

// TestSentMode: a file that only its owner could read stays so, and nobody else
// may ever write one.
func TestSentMode(t *testing.T) {
	for perm, want := range map[uint32]fs.FileMode{0: 0o644, 0o600: 0o600, 0o640: 0o640, 0o666: 0o644, 0o4777: 0o755, 0o400: 0o600, 1 << 31: 0o600} {
		if got := SentMode(perm); got != want {
			t.Errorf("%o becomes %o, not %o", perm, got, want)
		}
	}
}
