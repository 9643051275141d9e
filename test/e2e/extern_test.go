package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// externProcesses lists the processes in the control groups of the extern step, as a
// process in it has them in /proc/self/cgroup.
func externProcesses(t *testing.T, groups string) []string {
	t.Helper()
	var names []string
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && strings.Contains(parts[2], ".extern") {
			names = append(names, parts[2])
		}
	}
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, folder := range folders {
		theirs, _ := os.ReadFile(filepath.Join(folder, "cgroup"))
		if slices.ContainsFunc(names, func(name string) bool { return strings.Contains(string(theirs), name) }) {
			out = append(out, filepath.Base(folder))
		}
	}
	return out
}

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

	// The user cannot end the step, neither by a signal to the process that keeps it nor
	// by a kill of all steps of the job. That ends the login, and leaves room for another.
	killed := 0
	for _, pid := range externProcesses(t, string(groups)) {
		owner, err := os.Stat("/proc/" + pid)
		if err != nil || owner.Sys().(*syscall.Stat_t).Uid != 0 {
			continue
		}
		command, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if err != nil || string(command) != "sleep\x00infinity\x00" {
			continue
		}
		killed++
		kill := exec.Command("sh", "-c", "kill -9 "+pid)
		kill.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := kill.CombinedOutput(); err == nil {
			t.Errorf("the user could signal the extern step's own process: %s", out)
		}
	}
	if killed != 1 {
		t.Errorf("%d processes of root keep the extern step, expected 1", killed)
	}
	if out, errs, code := c.runAs(65534, nil, "scancel", "-s", "KILL", id); code != 0 {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	if err := inside.Wait(); err == nil {
		t.Error("the login outlived a kill of the job's steps")
	}
	c.must("squeue", "-j", id)
	inside = login("nobody", "cat /proc/self/cgroup >"+scripts+"/again; exec sleep 1000")
	again := filepath.Join(scripts, "again")
	if err := os.WriteFile(again, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(again, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := inside.Start(); err != nil {
		t.Fatal(err)
	}
	c.untilShell("test -s " + again)
	c.must("scancel", id)
	if err := inside.Wait(); err == nil {
		t.Error("the login ended by itself")
	}
	c.until("wrap|CANCELLED by 0\nbatch|CANCELLED\nextern|COMPLETED", "sacct", "-n", "-P", "-j", id, "-o", "JobName,State")
}

// TestLoginSeesPrivateFolders: a login that pam_muster puts into a job sees the private
// folders of that job, and the node's own do not change.
func TestLoginSeesPrivateFolders(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("logins and mount namespaces need root")
	}
	module := bin("pam_muster.so")
	if _, err := os.Stat(module); err != nil {
		t.Skipf("%v: `make build` leaves it out without libpam0g-dev (deploy/deps/install.sh test installs it)", err)
	}
	if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("mount namespaces are not possible here: %v: %s", err, out)
	}
	c := start(t, "PrologFlags=Contain")
	if err := os.Chmod(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text := "AutoBasePath=true\nBasePath=" + c.dir + "/private Dirs=/var/tmp\n"
	if err := os.WriteFile(filepath.Join(c.dir, "job_container.conf"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	conf, err := os.OpenFile(filepath.Join(c.dir, "slurm.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conf.WriteString("JobContainerType=job_container/tmpfs\n")
	if err := errors.Join(err, conf.Close()); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"agent-node1", "agent-node2"} {
		c.kill9(node)
	}
	c.must("scontrol", "reconfigure")
	c.must("up", "--dir", c.dir)
	output := filepath.Join(c.dir, "job.out")
	if err := os.WriteFile(output, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(output, 0o666); err != nil {
		t.Fatal(err)
	}
	secret := "/var/tmp/" + filepath.Base(c.dir)
	out, errs, code := c.runAs(65534, nil, "sbatch", "--parsable", "-w", "node1", "-o", output, "-D", "/tmp", "--wrap",
		"echo of the job >"+secret+"; echo begun; sleep 1000")
	if code != 0 {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	id := strings.TrimSpace(out)
	c.untilShell("grep -q begun " + output)

	rule := filepath.Join(c.dir, "su")
	state := filepath.Join(c.dir, "state", "agents", "node1")
	text = "auth sufficient pam_rootok.so\naccount required " + module + " program=" + bin("muster-agent") +
		" state-dir=" + state + "\nsession required pam_permit.so\n"
	if err := os.WriteFile(rule, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	login := func(user, command string) ([]byte, error) {
		return exec.Command("unshare", "-m", "sh", "-c",
			"mount --bind "+rule+" /etc/pam.d/su && exec su -s /bin/sh "+user+" -c '"+command+"'").CombinedOutput()
	}
	said, err := login("nobody", "cat "+secret+"; echo of the login >>"+secret+"; cat /proc/self/cgroup")
	if err != nil || !strings.HasPrefix(string(said), "of the job\n") || !strings.Contains(string(said), ".extern") {
		t.Errorf("the login: %v: %s", err, said)
	}
	if _, err := os.Stat(secret); err == nil {
		t.Errorf("%s is on the node too", secret)
	}
	if said, err := login("games", "true"); err == nil || !strings.Contains(string(said), "you have no job on this node") {
		t.Errorf("a login without a job: %v: %s", err, said)
	}
	if said, err := login("root", "ls "+secret+" 2>&1 || true"); err != nil || !strings.Contains(string(said), "No such file") {
		t.Errorf("a login of root: %v: %s", err, said)
	}
	c.must("scancel", id)
	c.until("", "squeue", "-h", "-j", id)
	if left, err := filepath.Glob(c.dir + "/private/*"); err != nil || len(left) > 0 {
		t.Errorf("private folders are left: %v (%v)", left, err)
	}
}
