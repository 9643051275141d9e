package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// login runs a command of root in the extern step of the user's job, into which
// muster-agent --adopt puts it as pam_exec would have it.
func (c *cluster) login(command string) error {
	state := filepath.Join(c.dir, "state", "agents", "node1")
	cmd := exec.Command("/bin/sh", "-c", "/bin/muster-agent --adopt --state-dir "+state+" && exec "+command)
	cmd.Env = []string{"PATH=/bin", "PAM_USER=alice", "PAM_TYPE=account"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return err
}

// proveExtern shows that the process which keeps an extern step is root's, and that a
// login which needs more memory than the job has is ended in its place.
func proveExtern(c *cluster) error {
	const done = "/tmp/logins-done"
	_ = os.Remove(done)
	job, err := c.runUntilOutput("up", "echo up; while ! test -e "+done+"; do sleep 0.1; done", "--mem=100", "-n1")
	if err != nil {
		return err
	}
	keepers := processesOf("sleep\x00infinity")
	if len(keepers) != 1 {
		return fmt.Errorf("%d processes keep the extern step, want 1", len(keepers))
	}
	keeper := keepers[0]
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", keeper))
	if err != nil || string(score) != "-1000\n" {
		return fmt.Errorf("its oom_score_adj is %q (%w)", score, err)
	}
	kill := exec.Command("/bin/sh", "-c", fmt.Sprintf("kill -9 %d", keeper))
	kill.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	if out, err := kill.CombinedOutput(); err == nil || !strings.Contains(string(out), "not permitted") {
		return fmt.Errorf("its user's signal: %w %s", err, out)
	}
	err = c.login("/init hog 200")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		return fmt.Errorf("a login that uses twice the memory of the job: %w", err)
	}
	if unix.Kill(keeper, 0) != nil {
		return errors.New("a shortage of memory ended the extern step")
	}
	// Counter-test: what fits runs, in the same step.
	if err := c.login("/init hog 50"); err != nil {
		return fmt.Errorf("counter-test: %w", err)
	}
	if err := os.WriteFile(done, nil, 0o644); err != nil {
		return err
	}
	got, err := c.awaitEnd(job)
	if err == nil && got.state != "COMPLETED" {
		err = fmt.Errorf("the job ended %s", got.state)
	}
	return err
}
