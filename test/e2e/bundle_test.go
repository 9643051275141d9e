package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/runtime/mpitest"
)

// writeBundle makes an OCI bundle whose files are few and which shows the node's
// /usr, and a folder at its own path.
func writeBundle(t *testing.T, folder, shown string) {
	t.Helper()
	root := filepath.Join(folder, "rootfs")
	for _, d := range []string{"etc", "work", "usr"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "etc", "os-release"), []byte("ID=bundle\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	mount := func(source, target string, options ...string) map[string]any {
		return map[string]any{"destination": target, "type": "none", "source": source, "options": options}
	}
	config := map[string]any{
		"ociVersion": "1.0.2",
		"root":       map[string]any{"path": "rootfs", "readonly": true},
		"process":    map[string]any{"args": []string{"never", "run"}, "cwd": "/work", "env": []string{"PATH=/usr/bin", "FROM_BUNDLE=yes"}},
		"mounts": []map[string]any{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
			mount("/usr", "/usr", "rbind", "ro"),
			mount("/etc/openmpi", "/etc/openmpi", "rbind", "ro"),
			mount(shown, shown, "rbind"),
		},
	}
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "config.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestBundle: a script, steps and the steps of an allocation run in an OCI bundle,
// as its config.json says; sacct names it, a program of Open MPI in it finds the
// node's PMIx and one of MPICH its PMI-2; a bundle that cannot be run says why.
func TestBundle(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("containers need an agent that is root")
	}
	c := start(t)
	shown := filepath.Join(c.dir, "shown")
	if err := os.Mkdir(shown, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/etc/openmpi"); err != nil {
		t.Skipf("%v (deploy/deps/install.sh installs Open MPI)", err)
	}
	folder := filepath.Join(c.dir, "bundle")
	writeBundle(t, folder, shown)
	const look = `. /etc/os-release; echo $ID $PWD $FROM_BUNDLE $SLURM_CONTAINER; if touch x 2>/dev/null; then echo writable; fi`
	seen := "bundle /work yes " + folder
	if got := c.must("srun", "-n", "2", "--container", folder, "sh", "-c", look); got != seen+"\n"+seen {
		t.Errorf("a step sees %q", got)
	}
	script := filepath.Join(c.dir, "script.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n#SBATCH --container=bundle\n"+look+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	id := c.must("sbatch", "--parsable", "-W", "-o", c.dir+"/out", script)
	if out, err := os.ReadFile(filepath.Join(c.dir, "out")); err != nil || string(out) != seen+"\n" {
		t.Errorf("a script sees %q (%v)", out, err)
	}
	c.until(folder, "sacct", "-n", "-X", "-P", "-j", id, "-o", "Container")
	inner := c.must("salloc", "-n", "1", "--container", folder, "sh", "-c", "grep -q ID=bundle /etc/os-release && echo bad; "+bin("muster")+" srun sh -c '"+look+"'")
	if !strings.HasSuffix(inner, seen) || strings.Contains(inner, "bad") {
		t.Errorf("a step of an allocation sees %q", inner)
	}
	t.Setenv("OMPI_MCA_btl", "self,tcp")
	for _, tc := range [][2]string{{"openmpi", "pmix"}, {"mpich", "pmi2"}} {
		t.Run(tc[1], func(t *testing.T) {
			if tc[1] == "pmix" {
				needPMIx(t)
			}
			program := mpitest.Program(t, shown, tc[0])
			worldOf(t, 4, c.must("srun", "--mpi="+tc[1], "-N", "2", "-n", "4", "--container", folder, program))
		})
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no bundle": {[]string{"--container", shown}, "config.json"},
		"both":      {[]string{"--container", folder, "--container-image", "app"}, "exclude each other"},
	} {
		_, errs, code := c.run(append(append([]string{"srun", "-n1"}, tc.args...), "true")...)
		if code == 0 || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: exit %d, %q", name, code, errs)
		}
	}
	if err := os.WriteFile(filepath.Join(shown, "config.json"), []byte(`{"ociVersion":"1.0.2","root":{"path":"rootfs"},"hooks":{"prestart":[{"path":"/bin/true"}]}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := c.run("srun", "-n1", "--container", shown, "true"); code == 0 || !strings.Contains(errs, "hooks are not run") {
		t.Errorf("hooks: exit %d, %q", code, errs)
	}
}
