package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// user is who runs the jobs: a regular user, since root could leave its group.
const user = 1000

// cluster is a controller and one node on this machine.
type cluster struct {
	dir   string
	group string // the control group of the daemons; "" is the root
}

// startCluster configures the cluster and starts it.
func (c *cluster) startCluster() error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	err := runCommand(
		"/bin/muster",
		"init",
		"--dir",
		c.dir,
		"--nodes",
		"1",
		"--gpus",
		"4",
		"--gpu-type",
		"h100",
	)
	if err != nil {
		return err
	}
	// The lab's node is larger than the machine and not confined to it. This one
	// is what the machine is.
	slurmConf := filepath.Join(c.dir, "slurm.conf")
	text, err := os.ReadFile(slurmConf)
	if err != nil {
		return err
	}
	sized := strings.NewReplacer("CPUs=8 RealMemory=16000", "CPUs=2 RealMemory=1200", "SlurmdParameters=config_overrides", "TaskPlugin=task/cgroup,task/affinity\nProctrackType=proctrack/cgroup\nPrologFlags=Contain\n#").
		Replace(string(text))
	if err := os.WriteFile(slurmConf, []byte(sized), 0o644); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"gres.conf":   "Name=gpu Type=h100 File=/dev/nvidia[0-3]\n",
		"cgroup.conf": cgroupConf,
	} {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return c.startDaemons()
}

// cgroupConf is the cgroup.conf of the proofs.
const cgroupConf = "ConstrainCores=yes\nConstrainRAMSpace=yes\nConstrainSwapSpace=yes\nConstrainDevices=yes\n"

// restartWith has the agent read another cgroup.conf.
func (c *cluster) restartWith(text string) error {
	if err := os.WriteFile(filepath.Join(c.dir, "cgroup.conf"), []byte(text), 0o644); err != nil {
		return err
	}
	if err := killByName("muster-agent"); err != nil {
		return err
	}
	return c.startDaemons()
}

// startDaemons starts the daemons that do not run, in the group of the variant.
func (c *cluster) startDaemons() error {
	command := []string{"/bin/muster", "up", "--dir", c.dir}
	if c.group != "" {
		if err := delegateControllers(c.group); err != nil {
			return err
		}
		command = append([]string{"/init", "join", c.group}, command...)
	}
	return runCommand(command[0], command[1:]...)
}

// delegateControllers makes a group with all controllers, as Delegate=yes does.
func delegateControllers(group string) error {
	if err := os.MkdirAll(group, 0o755); err != nil {
		return err
	}
	const controllers = "+memory +pids +cpuset +cpu +io"
	for _, parent := range []string{"/sys/fs/cgroup", filepath.Dir(group)} {
		if err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte(controllers), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// stopCluster ends the daemons, and checks that no job left a group behind.
func (c *cluster) stopCluster() error {
	if err := runCommand("/bin/muster", "down", "--dir", c.dir, "--jobs"); err != nil {
		return err
	}
	left, err := jobGroups()
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("control groups of jobs are left: %v", left)
	}
	return err
}

// jobGroups lists the control groups of runs, whose names end in .batch or in the
// number of a step.
func jobGroups() ([]string, error) {
	var out []string
	err := filepath.WalkDir(
		"/sys/fs/cgroup",
		func(path string, entry os.DirEntry, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil // it went away meanwhile
			}
			if err == nil && entry.IsDir() && strings.Count(entry.Name(), ".") >= 2 {
				out = append(out, path)
			}
			return err
		},
	)
	return out, err
}

func (c *cluster) showLogs() {
	logs, _ := filepath.Glob(filepath.Join(c.dir, "run", "*.log"))
	for _, path := range logs {
		text, _ := os.ReadFile(path)
		fmt.Printf("--- %s\n%s\n", path, text[max(0, len(text)-3000):])
	}
}

// muster runs a command as the user and returns what it printed.
func (c *cluster) muster(args ...string) (string, error) {
	cmd := exec.Command("/bin/muster", args...)
	cmd.Env = []string{"PATH=/bin", "HOME=/tmp", "USER=alice", "MUSTER_SOCKET=" +
		filepath.Join(c.dir, "run", "muster.sock")}
	cmd.Dir = "/tmp"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("muster %s: %w\n%s%s", strings.Join(args, " "), err, out, errOut.Bytes())
	}
	return string(out), err
}

// submitScript hands in a script and returns the number of its job.
func (c *cluster) submitScript(script string, options ...string) (string, error) {
	args := append([]string{"sbatch", "--parsable", "--output=" + c.outputOf("%j")}, options...)
	out, err := c.muster(append(args, "--wrap", script)...)
	return strings.TrimSpace(out), err
}

// outputOf is the file of a job's output. The clusters of the variants both begin with
// job 1.
func (c *cluster) outputOf(job string) string {
	return "/tmp/" + filepath.Base(c.dir) + "-" + job + ".out"
}

// finished is how a job ended.
type finished struct {
	state  string
	output string
}

// patience bounds each wait for a job. It is far above what an emulated machine needs
// under load: a wait that reaches it hangs, and says what the cluster looks like.
const patience = 8 * time.Minute

// describeHang says what the cluster shows of a job that does not get on.
func (c *cluster) describeHang(job, waited string) error {
	var text strings.Builder
	for _, args := range [][]string{
		{"scontrol", "show", "job", job},
		{"squeue"},
		{"sinfo", "-R"},
		{"scontrol", "show", "node"},
		{"why", job},
	} {
		out, err := c.muster(args...)
		fmt.Fprintf(&text, "$ %s\n%s", strings.Join(args, " "), out)
		if err != nil {
			fmt.Fprintf(&text, "%v\n", err)
		}
	}
	return fmt.Errorf("waited %s for job %s %s\n%s", patience, job, waited, text.String())
}

// awaitEnd returns how a job ended once it has.
func (c *cluster) awaitEnd(job string) (finished, error) {
	giveUp := time.Now().Add(patience)
	for {
		if time.Now().After(giveUp) {
			return finished{}, c.describeHang(job, "to end")
		}
		state, err := c.jobState(job)
		if err != nil {
			return finished{}, err
		}
		switch state {
		case "PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "":
			time.Sleep(50 * time.Millisecond)
			continue
		}
		text, err := os.ReadFile(c.outputOf(job))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return finished{state, string(text)}, err
	}
}

func (c *cluster) jobState(job string) (string, error) {
	out, err := c.muster("scontrol", "show", "job", job)
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(out, "JobState=")
	state, _, _ := strings.Cut(rest, " ")
	return state, nil
}

// run submits a script, waits for its end and checks how it ended.
func (c *cluster) run(wanted, script string, options ...string) (string, error) {
	job, err := c.submitScript(script, options...)
	if err != nil {
		return "", err
	}
	got, err := c.awaitEnd(job)
	if err == nil && got.state != wanted {
		err = fmt.Errorf(
			"job %s (%s) %v ended %s, want %s\n%s",
			job,
			script,
			options,
			got.state,
			wanted,
			got.output,
		)
	}
	return got.output, err
}

// runUntilOutput submits a script and returns once it has printed a word.
func (c *cluster) runUntilOutput(word, script string, options ...string) (string, error) {
	job, err := c.submitScript(script, options...)
	if err != nil {
		return job, err
	}
	giveUp := time.Now().Add(patience)
	for {
		if time.Now().After(giveUp) {
			return job, c.describeHang(job, fmt.Sprintf("to print %q", word))
		}
		text, err := os.ReadFile(c.outputOf(job))
		if err == nil && strings.Contains(string(text), word) {
			return job, nil
		}
		state, err := c.jobState(job)
		if err != nil {
			return job, err
		}
		if state != "PENDING" && state != "RUNNING" && state != "CONFIGURING" {
			return job, fmt.Errorf(
				"job %s ended %s before it printed %q: %s",
				job,
				state,
				word,
				text,
			)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// cancelJob ends a job and waits until it is gone.
func (c *cluster) cancelJob(job string) error {
	if _, err := c.muster("scancel", job); err != nil {
		return err
	}
	_, err := c.awaitEnd(job)
	return err
}
