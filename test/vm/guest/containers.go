package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// imageRoot is the folder with the file tree that the containers of the proofs run in.
const imageRoot = "/var/image"

// leaveFirstRoot goes from the file system that the kernel unpacked into one in
// memory. The first one cannot be left by pivot_root, which containers use, and no
// node runs its jobs in it.
func leaveFirstRoot() error {
	const next = "/next"
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	if err := unix.Mount("devtmpfs", "/dev", "devtmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /dev: %w", err) // os/exec needs its null
	}
	if err := os.Mkdir(next, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", next, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount the next root: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == "root" || entry.Name() == "dev" {
			continue // made by the kernel, and mounted anew
		}
		if err := runCommand("/bin/busybox", "cp", "-a", "/"+entry.Name(), next+"/"); err != nil {
			return err
		}
	}
	if err := unix.Chdir(next); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the next root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// loadOverlay loads the file system of containers, a module of Debian's kernel.
func loadOverlay() error {
	module, err := os.Open("/overlay.ko")
	if err != nil {
		return err
	}
	defer func() { _ = module.Close() }()
	if err := unix.FinitModule(int(module.Fd()), "", 0); err != nil {
		return fmt.Errorf("load overlay.ko: %w", err)
	}
	return nil
}

// makeImage makes the file tree, once.
func makeImage() error {
	if _, err := os.Stat(imageRoot); err == nil {
		return nil
	}
	for path, mode := range map[string]os.FileMode{"bin": 0o755, "etc": 0o755, "data": 0o777} {
		if err := os.MkdirAll(filepath.Join(imageRoot, path), mode); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(imageRoot, "data"), 0o777); err != nil {
		return err
	}
	for _, program := range []string{"/init", "/bin/busybox"} {
		if err := runCommand("/bin/busybox", "cp", program, imageRoot+program); err != nil {
			return err
		}
	}
	for _, name := range []string{"sh", "dd", "echo", "cat", "id", "rm", "test", "sleep", "true"} {
		if err := os.Symlink("busybox", filepath.Join(imageRoot, "bin", name)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(imageRoot, "etc", "os-release"), []byte("ID=inside\n"), 0o644)
}

// proveContainers shows that a container has its own files, and no other user,
// devices or memory than its job.
func proveContainers(c *cluster) error {
	if err := makeImage(); err != nil {
		return err
	}
	const in = "--container-image=" + imageRoot
	out, err := c.run("COMPLETED", ". /etc/os-release; echo $ID $(id -u)", "-n1", "--mem=50", in)
	if err != nil {
		return err
	}
	if out != "inside 1000\n" {
		return fmt.Errorf("a script in the image sees %q", out)
	}
	if err := proveContainerDevices(c, in); err != nil {
		return err
	}
	for what, script := range map[string]string{
		"memory of a program":   "exec /init hog 200",
		"files that it writes":  "dd if=/dev/zero of=/data/large bs=1M count=200",
		"a step in a container": "exec srun -n1 " + in + " /init hog 200",
	} {
		options := []string{"-n1", in}
		if strings.Contains(script, "srun") {
			options = options[:1] // srun itself is a program of the node
		}
		if _, err := c.run("OUT_OF_MEMORY", script, append(options, "--mem=100")...); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if _, err := c.run("COMPLETED", script, append(options, "--mem=400")...); err != nil {
			return fmt.Errorf("%s, counter-test: %w", what, err)
		}
	}
	return nil
}

// proveContainerDevices is proveDevices in a container, on each way into one.
func proveContainerDevices(c *cluster, in string) error {
	const open = "/init open " + gpuFiles
	for _, path := range []struct{ name, script, option string }{
		{"batch", open, in},
		{"srun", "srun -n1 " + in + " " + open, ""},
		{"srun --overlap", "srun --overlap -n1 " + in + " " + open, ""},
		{"srun --pty", "srun --pty -n1 " + in + " " + open, ""},
	} {
		options := []string{"-n1", "--mem=50"}
		if path.option != "" {
			options = append(options, path.option)
		}
		out, err := c.run("COMPLETED", path.script, options...)
		if err != nil {
			return err
		}
		if want := "open: EPERM EPERM EPERM EPERM ENXIO"; !strings.Contains(out, want) {
			return fmt.Errorf("%s in a container without a GPU: %q, want %s", path.name, out, want)
		}
		out, err = c.run("COMPLETED", path.script, append(options, "--gpus=2")...)
		if err != nil {
			return err
		}
		if strings.Count(out, "ENXIO") != 3 || strings.Count(out, "EPERM") != 2 {
			return fmt.Errorf("%s in a container with two GPUs: %q", path.name, out)
		}
	}
	return nil
}
