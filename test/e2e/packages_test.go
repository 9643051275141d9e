package e2e

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPackages makes the Debian packages, installs them into a folder, and holds them to what they
// promise: what the services start is there, every name of Slurm is a program, and removal leaves
// nothing behind. The maker of packages is fetched, so a machine that cannot fetch leaves this out.
func TestPackages(t *testing.T) {
	need(t)
	if os.Getuid() != 0 {
		t.Skip("not run as root: dpkg sets owners")
	}
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("no dpkg here")
	}
	for _, helper := range []string{"muster-pmix", "pam_muster.so"} {
		if _, err := os.Stat(bin(helper)); err != nil {
			t.Skipf("%v: what it is built with is not installed", err)
		}
	}
	made := t.TempDir()
	build := exec.Command("../../deploy/packages/build.sh", made)
	build.Env = append(os.Environ(), "FORMATS=deb", "VERSION=9.8.7")
	out, err := build.CombinedOutput()
	if build.ProcessState != nil && build.ProcessState.ExitCode() == 3 {
		t.Skipf("the maker of packages cannot be fetched:\n%s", out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	packages, err := filepath.Glob(filepath.Join(made, "*.deb"))
	if err != nil || len(packages) != 4 {
		t.Fatalf("made %q (%v), want four packages", packages, err)
	}
	root := filepath.Join(t.TempDir(), "root")
	admin := filepath.Join(root, "var/lib/dpkg")
	for _, dir := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(filepath.Join(admin, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(admin, "status"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg := func(args ...string) {
		t.Helper()
		// The folder has no C library and no shell: scripts run with this machine's.
		all := append([]string{"--instdir", root, "--admindir", admin, "--log", "/dev/null",
			"--force-script-chrootless", "--force-depends"}, args...)
		if out, err := exec.Command("dpkg", all...).CombinedOutput(); err != nil {
			t.Fatalf("dpkg %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	dpkg(append([]string{"--install"}, packages...)...)

	units, err := filepath.Glob(filepath.Join(root, "usr/lib/systemd/system/*.service"))
	if err != nil || len(units) != 3 {
		t.Errorf("services %q (%v), want three", units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		start := regexp.MustCompile(`(?m)^ExecStart=(\S+)`).FindSubmatch(text)
		if start == nil {
			t.Errorf("%s starts nothing", unit)
			continue
		}
		out, err := exec.Command(filepath.Join(root, string(start[1])), "--version").CombinedOutput()
		if err != nil {
			t.Errorf("%s: %s --version: %v\n%s", filepath.Base(unit), start[1], err, out)
		}
	}
	for _, name := range []string{"sbatch", "srun", "squeue", "scontrol", "sacctmgr"} {
		if out, err := exec.Command(filepath.Join(root, "usr/bin", name), "--version").CombinedOutput(); err != nil {
			t.Errorf("%s --version: %v\n%s", name, err, out)
		}
		for _, beside := range []string{"share/man/man1/" + name + ".1.gz", "share/bash-completion/completions/" + name} {
			if _, err := os.Stat(filepath.Join(root, "usr", beside)); err != nil {
				t.Error(err)
			}
		}
	}

	dpkg("--purge", "muster-slurm", "muster-controller", "muster-node", "muster")
	if left := filesIn(t, root, admin); len(left) > 0 {
		t.Errorf("removal leaves %q", left)
	}
}

// filesIn lists what is not a folder below a root, without a folder of it.
func filesIn(t *testing.T, root, without string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the root itself was removed
		}
		if err != nil {
			return err
		}
		if path == without {
			return fs.SkipDir
		}
		if !entry.IsDir() {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}
