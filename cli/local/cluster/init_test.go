package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/conffile"
)

// What cannot be is refused before anything is written, or leaves nothing that
// would be kept the next time; options without effect are named.
func TestInitSaysWhatItDoesNotDo(t *testing.T) {
	run := func(dir string, args ...string) (int, string, string) {
		t.Helper()
		var out, errs bytes.Buffer
		code := Init(append([]string{"--dir", dir}, args...), &out, &errs)
		return code, out.String(), errs.String()
	}
	for _, c := range []struct{ args, want string }{
		{"--nodes=-3", "--nodes=-3: want a number from 0 to 100000"},
		{"--cpus=0", "--cpus=0: want a number from 1 to"},
		{"--mem=0", "--mem=0: want"},
		{"--gpus=-1", "--gpus=-1: want"},
		{"--port=0", "--port=0: want a number from 1 to 65524"},
		{"--nodes=500 --port=65100", "--port=65100: want a number from 1 to 65025"},
		{"--conf=AccuntingStorageHost=x", "error: AccuntingStorageHost: unknown key; did you mean AccountingStorageHost?"},
	} {
		dir := filepath.Join(t.TempDir(), "c")
		code, out, errs := run(dir, strings.Fields(c.args)...)
		if code != 1 || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit %d, %q %q; want %q", c.args, code, out, errs, c.want)
		}
		if strings.Contains(errs, "slurm.conf:") && !strings.Contains(errs, "\n"+dir+"/slurm.conf:") {
			t.Errorf("%s: the file is not named by its whole path: %q", c.args, errs)
		}
		for _, name := range []string{"muster.yaml", "slurm.conf"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				t.Errorf("%s: %s is left behind", c.args, name)
			}
		}
	}
	dir := filepath.Join(t.TempDir(), "c")
	if code, out, errs := run(dir, "--nodes=2", "--port=23450"); code != 0 || strings.Contains(out, "not applied") {
		t.Fatalf("exit %d, %q %q", code, out, errs)
	}
	if code, out, _ := run(dir); code != 0 || strings.Contains(out, "not applied") || strings.Count(out, "kept ") != 3 {
		t.Errorf("again: exit %d, %q", code, out)
	}
	if code, out, _ := run(dir, "--nodes=2", "--port=23450"); code != 0 || strings.Contains(out, "not applied") {
		t.Errorf("again with the same options: exit %d, %q", code, out)
	}
	if code, out, _ := run(dir, "--nodes=4", "--gpus=1"); code != 0 || !strings.Contains(out, "not applied: --gpus --nodes; ") {
		t.Errorf("again with other options: exit %d, %q", code, out)
	}
}

// TestLabsHaveOneClock: nodes that share this machine with their controller do not report its clock
// as a fault of their own; a node of its own does.
func TestLabsHaveOneClock(t *testing.T) {
	for _, c := range []struct {
		args string
		off  bool
	}{
		{"--nodes=2", true},
		{"", false},
		{"--nodes=2 --controllers=ctl1=10.0.0.1,ctl2=10.0.0.2,ctl3=10.0.0.3", false},
	} {
		dir := filepath.Join(t.TempDir(), "c")
		var out, errs bytes.Buffer
		args := append([]string{"--dir", dir}, strings.Fields(c.args)...)
		if code := Init(args, &out, &errs); code != 0 {
			t.Fatalf("%s: exit %d, %s", c.args, code, errs.String())
		}
		config, err := conffile.Load(filepath.Join(dir, "muster.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if off := slices.Contains(config.Health.Rules, "clock_error off"); off != c.off {
			t.Errorf("%s: the rules of health are %q", c.args, config.Health.Rules)
		}
	}
}

// On a machine that never had Slurm there is no /etc/slurm.
func TestWriteNewMakesTheFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etc", "slurm", "slurm.conf")
	for _, wrote := range []bool{true, false} {
		got, err := WriteNew(path, []byte("ClusterName=c\n"))
		if err != nil || got != wrote {
			t.Errorf("got %v and %v, want %v", got, err, wrote)
		}
	}
}
