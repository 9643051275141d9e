// Guest is process 1 of the machine that `make test-vm` boots: a kernel with a
// pure v2 hierarchy and nothing but Muster. It starts a controller, an agent and
// its shepherd as on a node, proves each limit together with its counter-test
// (the same program succeeds, or escapes, where the limit does not apply), prints
// one line for each proof, and powers the machine off.
//
// Run under another name it is one of the programs that the jobs run: see
// programs.go.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	// The kernel starts its first process without arguments. A number of 1 would
	// not tell it apart: the first process of a new namespace has that too.
	if len(os.Args) > 1 {
		os.Exit(runProgram(os.Args[1:]))
	}
	if err := beInit(); err != nil {
		fmt.Println("FAIL prepare the machine:", err)
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("power off:", err)
	}
}

// beInit does the duties of process 1, which are to prepare the machine and to
// wait for orphans, and leaves the proofs to a child: os/exec could not wait for
// its own children in a process that waits for all.
func beInit() error {
	if err := leaveFirstRoot(); err != nil {
		return err
	}
	if err := prepareMachine(); err != nil {
		return err
	}
	worker := exec.Command("/init", "prove")
	worker.Stdout, worker.Stderr = os.Stdout, os.Stderr
	if err := worker.Start(); err != nil {
		return err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if pid == worker.Process.Pid {
			return nil
		}
	}
}

// runProofs runs every proof in each variant and prints the last line that the host
// looks for. It returns the exit code.
func runProofs() int {
	failed := 0
	report := func(variant, name string, took time.Duration, err error) {
		if err == nil {
			fmt.Printf("PASS %s: %s (%.1f s)\n", variant, name, took.Seconds())
			return
		}
		failed++
		fmt.Printf("FAIL %s: %s: %v\n", variant, name, err)
	}
	for _, variant := range []struct {
		name  string
		group string // where the daemons run, as a service manager would place them
	}{
		{"root group", ""},
		{"delegated group", "/sys/fs/cgroup/system.slice/muster.service"},
	} {
		if !isChosen(variant.name, true) {
			continue
		}
		c := &cluster{
			dir:   "/var/lab" + strings.ReplaceAll(variant.name, " ", "-"),
			group: variant.group,
		}
		began := time.Now()
		err := c.startCluster()
		report(variant.name, "the daemons start", time.Since(began), err)
		if err != nil {
			c.showLogs()
			continue
		}
		before := failed
		for range countRepeats() {
			for _, p := range listProofs() {
				if !isChosen(p.name, false) {
					continue
				}
				began = time.Now()
				err := p.run(c)
				report(variant.name, p.name, time.Since(began), err)
			}
		}
		if failed > before {
			c.showLogs()
		}
		began = time.Now()
		err = c.stopCluster()
		report(variant.name, "the daemons end and leave no control group", time.Since(began), err)
	}
	began := time.Now()
	err := runCommand("/tests/cgroup.test", "-test.timeout=600s")
	report("unit tests", "nodeagent/runtime/cgroup", time.Since(began), err)
	fmt.Printf("muster-vm: finished, %d failed\n", failed)
	return failed
}

// countRepeats is VM_REPEAT, how many times the proofs of a variant are run one after
// another: a hang that comes rarely is found by that.
func countRepeats() int {
	count, err := strconv.Atoi(os.Getenv("VM_REPEAT"))
	if err != nil || count < 1 {
		return 1
	}
	return count
}

// isChosen tells whether VM_ONLY, which the kernel hands on, lets something be run by its
// name. Of its words, root and delegated are about variants and the others about proofs;
// where none is about its kind everything is run.
func isChosen(name string, variant bool) bool {
	counted := 0
	for word := range strings.SplitSeq(os.Getenv("VM_ONLY"), ",") {
		isVariant := word == "root" || word == "delegated"
		if word == "" || isVariant != variant {
			continue
		}
		counted++
		if strings.Contains(name, word) {
			return true
		}
	}
	return counted == 0
}

// prepareMachine mounts what every program expects and makes device files
// without a driver: opening one that is allowed fails with ENXIO, and opening
// one that is fenced off fails with EPERM before a driver is looked for.
func prepareMachine() error {
	for _, m := range []struct{ kind, target, options string }{
		{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"devtmpfs", "/dev", ""},
		{"devpts", "/dev/pts", "mode=620"}, {"tmpfs", "/dev/shm", "mode=1777"}, {"tmpfs", "/tmp", "mode=1777"}, {"tmpfs", "/run", "mode=755"},
		{"tmpfs", "/var", "mode=755"}, {"cgroup2", "/sys/fs/cgroup", ""},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.target, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
		}
	}
	for minor := range 4 {
		path := fmt.Sprintf("/dev/nvidia%d", minor)
		if err := makeDevice(path, uint32(minor)); err != nil {
			return err
		}
	}
	if err := makeDevice("/dev/nvidiactl", 255); err != nil {
		return err
	}
	if err := loadOverlay(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("vm")); err != nil {
		return err
	}
	return runCommand("/bin/busybox", "ip", "link", "set", "lo", "up")
}

func makeDevice(path string, minor uint32) error {
	const nvidiaMajor = 195
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(nvidiaMajor, minor))); err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	return os.Chmod(path, 0o666) // mknod applied the umask
}

func runCommand(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
