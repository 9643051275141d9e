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
	"unsafe"

	"golang.org/x/sys/unix"
)

// proof shows one limit, and by a counter-test that the limit is what did it.
type proof struct {
	name string
	run  func(*cluster) error
}

func listProofs() []proof {
	return []proof{
		{"a job over its memory is OUT_OF_MEMORY and its neighbour goes on", proveMemory},
		{"files in tmpfs count as the job's memory", proveTmpfsMemory},
		{"a step over its memory is OUT_OF_MEMORY", proveStepMemory},
		{"a job's script and its step share the job's memory", proveJobMemory},
		{"a job whose script goes on after a step is out of memory succeeds", proveStepMemoryAlone},
		{"a job has no more processes than MaxTasks", proveProcesses},
		{"a job has the cores it was given and no others", proveCores},
		{"GPU devices are fenced in batch, srun, overlap and pty", proveDevices},
		{"a container has its own files, and its job's user, devices and memory", proveContainers},
		{"a job's extern step outlives its user's signals and a shortage of memory", proveExtern},
		{"the fence holds after the agent was killed", proveDevicesAfterAgent},
		{"the fence holds after agent and shepherd were killed", proveDevicesAfterShepherd},
		{"no process outlives its job, however it hides", proveNoEscape},
		{"a fork bomb ends with its job and stops nobody else", proveForkBomb},
		{"device programs go with their jobs", proveNoProgramLeaks},
	}
}

func proveMemory(c *cluster) error {
	neighbour, err := c.submitScript("/init sleep 5", "--mem=50", "-n1")
	if err != nil {
		return err
	}
	if _, err := c.run("OUT_OF_MEMORY", "exec /init hog 200", "--mem=100", "-n1"); err != nil {
		return err
	}
	if _, err := c.run("COMPLETED", "exec /init hog 200", "--mem=400", "-n1"); err != nil {
		return fmt.Errorf("counter-test: %w", err)
	}
	got, err := c.awaitEnd(neighbour)
	if err == nil && got.state != "COMPLETED" {
		err = fmt.Errorf("the neighbour ended %s", got.state)
	}
	return err
}

func proveTmpfsMemory(c *cluster) error {
	const script = "dd if=/dev/zero of=/dev/shm/$SLURM_JOB_ID bs=1M count=200; code=$?; rm /dev/shm/$SLURM_JOB_ID; exit $code"
	if _, err := c.run("OUT_OF_MEMORY", script, "--mem=100", "-n1"); err != nil {
		return err
	}
	if _, err := c.run("COMPLETED", script, "--mem=400", "-n1"); err != nil {
		return fmt.Errorf("counter-test: %w", err)
	}
	return nil
}

func proveStepMemory(c *cluster) error {
	_, err := c.run("OUT_OF_MEMORY", "exec srun -n1 /init hog 200", "--mem=100", "-n1")
	if err != nil {
		return err
	}
	_, err = c.run("COMPLETED", "exec srun -n1 /init hog 200", "--mem=400", "-n1")
	if err != nil {
		return fmt.Errorf("counter-test: %w", err)
	}
	return nil
}

// proveStepMemoryAlone has the script outlive its step: what the kernel kills in the step's
// group does not count as the script's.
func proveStepMemoryAlone(c *cluster) error {
	const step = "srun -n1 /init hog 200"
	out, err := c.run("COMPLETED", step+" || echo the step failed", "--mem=100", "-n1")
	if err != nil {
		return err
	}
	if !strings.Contains(out, "the step failed") {
		return fmt.Errorf("the step did not fail: %q", out)
	}
	out, err = c.run("COMPLETED", step+" || echo the step failed", "--mem=400", "-n1")
	if err == nil && strings.Contains(out, "the step failed") {
		err = fmt.Errorf("counter-test: %q", out)
	}
	return err
}

// proveProcesses starts more processes than a job may have, and as many where it may.
func proveProcesses(c *cluster) error {
	const script = "/init forks 120"
	if err := c.restartWith(cgroupConf + "MaxTasks=80\n"); err != nil {
		return err
	}
	out, err := c.run("FAILED", script, "-n1", "--mem=200")
	if err == nil && !strings.Contains(out, "temporarily unavailable") {
		err = fmt.Errorf("a job with 80 processes at most: %q", out)
	}
	if err := errors.Join(err, c.restartWith(cgroupConf)); err != nil {
		return err
	}
	if _, err := c.run("COMPLETED", script, "-n1", "--mem=200"); err != nil {
		return fmt.Errorf("counter-test: %w", err)
	}
	return nil
}

// proveJobMemory has the script hold a part of the job's memory in a file and its step ask
// for the rest: each alone fits into what the job has.
func proveJobMemory(c *cluster) error {
	const script = "dd if=/dev/zero of=/dev/shm/$SLURM_JOB_ID bs=1M count=60; srun -n1 /init hog 60; code=$?; rm /dev/shm/$SLURM_JOB_ID; exit $code"
	if _, err := c.run("OUT_OF_MEMORY", script, "--mem=100", "-n1"); err != nil {
		return err
	}
	if _, err := c.run("COMPLETED", script, "--mem=200", "-n1"); err != nil {
		return fmt.Errorf("counter-test: %w", err)
	}
	return nil
}

func proveCores(c *cluster) error {
	const script = "grep Cpus_allowed_list: /proc/self/status"
	out, err := c.run("COMPLETED", script, "-n1", "-c1", "--mem=50")
	if err != nil {
		return err
	}
	all, err := c.run("COMPLETED", script, "-n1", "-c2", "--mem=50")
	if err != nil {
		return err
	}
	// Moving oneself to another CPU is refused: the set is the group's, not only
	// the process's affinity.
	moved, err := c.run(
		"COMPLETED",
		"taskset -p 3 $$ >/dev/null 2>&1; "+script,
		"-n1",
		"-c1",
		"--mem=50",
	)
	if err != nil {
		return err
	}
	if strings.ContainsAny(out, "-,") || strings.ContainsAny(moved, "-,") ||
		!strings.ContainsAny(all, "-,") {
		return fmt.Errorf("one CPU: %q, after taskset: %q, two CPUs: %q", out, moved, all)
	}
	return nil
}

// gpuFiles are all devices of the node and the control device.
const gpuFiles = "/dev/nvidia0 /dev/nvidia1 /dev/nvidia2 /dev/nvidia3 /dev/nvidiactl"

func proveDevices(c *cluster) error {
	const open = "/init open " + gpuFiles
	for _, path := range []struct{ name, script string }{
		{"batch", open},
		{"srun", "srun -n1 " + open},
		{"srun --overlap", "srun --overlap -n1 " + open},
		{"srun --pty", "srun --pty -n1 " + open},
	} {
		out, err := c.run("COMPLETED", path.script, "-n1", "--mem=50")
		if err != nil {
			return err
		}
		if want := "open: EPERM EPERM EPERM EPERM ENXIO"; !strings.Contains(out, want) {
			return fmt.Errorf("%s without a GPU: %q, want %s", path.name, out, want)
		}
		out, err = c.run("COMPLETED", path.script, "-n1", "--mem=50", "--gpus=2")
		if err != nil {
			return err
		}
		if strings.Count(out, "ENXIO") != 3 || strings.Count(out, "EPERM") != 2 {
			return fmt.Errorf("%s with two GPUs: %q", path.name, out)
		}
	}
	// Counter-test: nothing but the fence refuses.
	if err := runCommand("/bin/sh", "-c", open+" | grep -q 'ENXIO ENXIO ENXIO ENXIO ENXIO'"); err != nil {
		return fmt.Errorf("counter-test: %w", err)
	}
	return nil
}

func proveDevicesAfterAgent(c *cluster) error { return proveDevicesAfter(c, "muster-agent") }

func proveDevicesAfterShepherd(c *cluster) error {
	return proveDevicesAfter(c, "muster-agent", "muster-shepherd")
}

// proveDevicesAfter kills daemons of the node, starts them again, and looks at the job
// that went on and at a new one.
func proveDevicesAfter(c *cluster, killed ...string) error {
	marker := "/tmp/restarted"
	_ = os.Remove(marker)
	const open = "/init open " + gpuFiles
	job, err := c.runUntilOutput("waiting", "echo waiting; while ! test -e "+marker+
		"; do sleep 0.1; done; "+open, "-n1", "--mem=50")
	if err != nil {
		return err
	}
	for _, name := range killed {
		if err := killByName(name); err != nil {
			return err
		}
	}
	if err := c.startDaemons(); err != nil {
		return err
	}
	if err := os.WriteFile(marker, nil, 0o644); err != nil {
		return err
	}
	const fenced = "EPERM EPERM EPERM EPERM ENXIO"
	got, err := c.awaitEnd(job)
	if err != nil {
		return err
	}
	if got.state != "COMPLETED" || !strings.Contains(got.output, fenced) {
		return fmt.Errorf("the job that went on: %+v", got)
	}
	out, err := c.run("COMPLETED", open, "-n1", "--mem=50")
	if err == nil && !strings.Contains(out, fenced) {
		err = fmt.Errorf("a new job: %q", out)
	}
	return err
}

func proveNoEscape(c *cluster) error {
	for _, how := range []string{"session", "double fork", "namespace"} {
		// Counter-test: outside of a job the sleeper outlives its parent.
		outside := exec.Command("/init", "escape", how)
		outside.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: user, Gid: user},
		}
		if out, err := outside.CombinedOutput(); err != nil {
			return fmt.Errorf("%s, outside: %w %s", how, err, out)
		}
		if sleepers() == 0 {
			return fmt.Errorf("counter-test: %s does not outlive its parent outside of a job", how)
		}
		if err := killByName("987654"); err != nil {
			return err
		}
		if _, err := c.run("COMPLETED", "/init escape '"+how+"'", "-n1", "--mem=50"); err != nil {
			return err
		}
		if n := sleepers(); n > 0 {
			return fmt.Errorf("%s: %d processes outlive the job", how, n)
		}
	}
	return nil
}

func proveForkBomb(c *cluster) error {
	job, err := c.runUntilOutput("armed", "echo armed; exec /init bomb", "-n1", "--mem=200")
	if err != nil {
		return err
	}
	if _, err := c.run("COMPLETED", "true", "-n1", "--mem=50"); err != nil {
		return fmt.Errorf("beside the bomb: %w", err)
	}
	if err := c.cancelJob(job); err != nil {
		return err
	}
	if left := processesOf("/init\x00bomb"); len(left) > 0 {
		return fmt.Errorf("%d processes of the bomb are left", len(left))
	}
	return nil
}

// proveNoProgramLeaks counts the kernel's eBPF programs before and after jobs.
func proveNoProgramLeaks(c *cluster) error {
	before := countPrograms()
	// The state says that it runs before its processes do.
	running, err := c.runUntilOutput("up", "echo up; /init sleep 3", "-n1", "--mem=50")
	if err != nil {
		return err
	}
	if countPrograms() <= before {
		return errors.New("counter-test: a running job has no device program")
	}
	if _, err := c.awaitEnd(running); err != nil {
		return err
	}
	last := ""
	for range 40 {
		last, err = c.submitScript("true", "-n1", "--mem=20")
		if err != nil {
			return err
		}
	}
	if _, err := c.awaitEnd(last); err != nil {
		return err
	}
	// The kernel frees the program of a removed group a moment later.
	var after int
	for range 100 {
		after = countPrograms()
		if after <= before {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%d programs before, %d after 41 jobs", before, after)
}

// countPrograms walks the identifiers of loaded eBPF programs.
func countPrograms() int {
	const getNextID = 11 // BPF_PROG_GET_NEXT_ID
	attributes := struct{ start, next, flags uint32 }{}
	count := 0
	for {
		_, _, errno := unix.Syscall(
			unix.SYS_BPF,
			getNextID,
			uintptr(unsafe.Pointer(&attributes)),
			unsafe.Sizeof(attributes),
		)
		if errno != 0 {
			return count
		}
		count++
		attributes.start = attributes.next
	}
}

func sleepers() int { return len(processesOf("987654")) }

// processesOf lists the processes whose command line holds a text. Zombies have
// no command line.
func processesOf(text string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var out []int
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(line, []byte(text)) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(filepath.Dir(file)), "%d", &pid); err == nil &&
			pid != os.Getpid() {
			out = append(out, pid)
		}
	}
	return out
}

// killByName kills the processes whose command line holds a text and waits until
// they are gone.
func killByName(text string) error {
	pids := processesOf(text)
	if len(pids) == 0 {
		return fmt.Errorf("no process is called %s", text)
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	for len(processesOf(text)) > 0 {
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}
