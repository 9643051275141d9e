package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestExternStep: with PrologFlags=Contain,RunInJob a job has an extern step on its
// nodes, in which its prolog runs and into which a login of its user is put by PAM. The
// login ends with the job, and a user without a job gets none.
func TestExternStep(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("logins and control groups need root")
	}
	scripts := shortDir(t)
	if err := os.Chmod(scripts, 0o755); err != nil {
		t.Fatal(err)
	}
	prolog := filepath.Join(scripts, "prolog")
	text := "#!/bin/sh\n/bin/cat /proc/self/cgroup >" + scripts + "/where\n"
	if err := os.WriteFile(prolog, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	c := start(t, "Prolog="+prolog, "PrologFlags=Contain,RunInJob")
	if err := os.Chmod(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	out, errs, code := c.runAs(65534, nil, "sbatch", "--parsable", "-w", "node1", "-o", "/dev/null", "-D", "/tmp", "--wrap", "sleep 1000")
	if code != 0 {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	id := strings.TrimSpace(out)
	c.untilShell("test -s " + scripts + "/where")
	where, err := os.ReadFile(filepath.Join(scripts, "where"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(where), ".extern") {
		t.Logf("the prolog was in %s", where)
	} else if _, err := os.Stat("/sys/fs/cgroup"); err == nil {
		t.Errorf("the prolog was not in the extern step: %s", where)
	}

	// The rule of PAM in a mount namespace of its own, so that the machine's stays.
	rule := filepath.Join(scripts, "su")
	state := filepath.Join(c.dir, "state", "agents", "node1")
	err = os.WriteFile(rule, []byte("auth sufficient pam_rootok.so\naccount required pam_exec.so stdout "+bin("muster-agent")+
		" --adopt --state-dir "+state+"\nsession required pam_permit.so\n"), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	login := func(user, command string) *exec.Cmd {
		return exec.Command("unshare", "-m", "sh", "-c", "mount --bind "+rule+" /etc/pam.d/su && exec su -s /bin/sh "+user+" -c '"+command+"'")
	}
	if out, err := login("games", "true").CombinedOutput(); err == nil || !strings.Contains(string(out), "you have no job on this node") {
		t.Errorf("a login without a job: %v: %s", err, out)
	}
	inside := login("nobody", "cat /proc/self/cgroup >"+scripts+"/login; exec sleep 1000")
	file := filepath.Join(scripts, "login")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := inside.Start(); err != nil {
		t.Fatal(err)
	}
	c.untilShell("test -s " + file)
	groups, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(groups), ".extern") {
		t.Errorf("the login is in %s (%v)", groups, err)
	}
	c.must("scancel", id)
	if err := inside.Wait(); err == nil {
		t.Error("the login ended by itself")
	}
	c.until("wrap|CANCELLED by 0\nbatch|CANCELLED\nextern|COMPLETED", "sacct", "-n", "-P", "-j", id, "-o", "JobName,State")
}
