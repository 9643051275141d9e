//go:build linux

package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// Stats are a group's counters. HasMemory tells that Peak and OOMKills were measured.
type Stats struct {
	CPU, User, System spec.Span
	Peak              int64 // bytes, page cache included
	OOMKills          int64
	HasMemory         bool
}

// Stats reads the counters; of a nil Group they are zero.
func (g *Group) Stats() (Stats, error) {
	var stats Stats
	if g == nil {
		return stats, nil
	}
	if g.host.mode == V1 {
		g.cpuV1(&stats)
	} else {
		b, err := readFile(filepath.Join(g.dir, "cpu.stat"))
		if err != nil {
			return stats, fmt.Errorf("read usage: %w", err)
		}
		stats.CPU = spec.Span(findField(b, "usage_usec")) * spec.Microsecond
		stats.User = spec.Span(findField(b, "user_usec")) * spec.Microsecond
		stats.System = spec.Span(findField(b, "system_usec")) * spec.Microsecond
	}
	switch {
	case g.mem == "":
		return stats, nil
	case g.host.mode == V2:
		stats.Peak = number(filepath.Join(g.mem, "memory.peak"))
	default:
		stats.Peak = number(filepath.Join(g.mem, "memory.max_usage_in_bytes"))
	}
	var err error
	stats.OOMKills, err = OOMKills(g.OOMFile())
	stats.HasMemory = err == nil
	return stats, nil
}

// OOMFile is where the kernel counts the processes of the group that it killed
// for memory; empty where it does not.
func (g *Group) OOMFile() string {
	switch {
	case g == nil || g.mem == "":
		return ""
	case g.host.mode == V2:
		return filepath.Join(g.mem, "memory.events")
	}
	return filepath.Join(g.mem, "memory.oom_control")
}

// OOMKills reads the count out of an OOMFile.
func OOMKills(file string) (int64, error) {
	b, err := readFile(file)
	return findField(b, "oom_kill"), err
}

func (g *Group) cpuV1(stats *Stats) {
	base := g.host.v1["cpuacct"]
	if base == "" {
		return
	}
	d := filepath.Join(base, g.name)
	stats.CPU = spec.Span(number(filepath.Join(d, "cpuacct.usage")))
	stats.User = spec.Span(number(filepath.Join(d, "cpuacct.usage_user")))
	stats.System = spec.Span(number(filepath.Join(d, "cpuacct.usage_sys")))
}

// findField finds "name value" in a flat-keyed file; 0 if it is not there.
func findField(b []byte, name string) int64 {
	for len(b) > 0 {
		line, rest, _ := bytes.Cut(b, []byte("\n"))
		if v, ok := bytes.CutPrefix(line, []byte(name)); ok && len(v) > 0 && v[0] == ' ' {
			n, _ := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, 64)
			return n
		}
		b = rest
	}
	return 0
}

func number(file string) int64 {
	b, err := readFile(file)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}

func writeFile(file, text string) error {
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: file, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		_, err = unix.Write(fd, []byte(text))
		// The memory controller gives up at any signal, and the Go runtime
		// signals its own threads.
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &os.PathError{Op: "write " + text + " to", Path: file, Err: err}
		}
	}
}

// readFile reads a small file of the kernel with three system calls: the
// library's way adds the poller, and this is done for each job.
func readFile(file string) ([]byte, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: file, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	b := make([]byte, 0, 4096)
	for {
		n, err := unix.Read(fd, b[len(b):cap(b)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: file, Err: err}
		case n == 0:
			return b, nil
		default:
			b = slices.Grow(b[:len(b)+n], 512)
		}
	}
}

// cpuList folds CPU numbers into the kernel's list form (0-3,8).
func cpuList(cpus []int32) string {
	s := slices.Clone(cpus)
	slices.Sort(s)
	s = slices.Compact(s)
	var b strings.Builder
	for i := 0; i < len(s); {
		j := i
		for j+1 < len(s) && s[j+1] == s[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%d", s[i])
		if j > i {
			fmt.Fprintf(&b, "-%d", s[j])
		}
		i = j + 1
	}
	return b.String()
}

// nvidiaMajor is the character device major of NVIDIA's GPUs. Minors from
// nvidiaControl on are the control devices that every GPU program opens.
const (
	nvidiaMajor   = 195
	nvidiaControl = 254
)

// allowedMinors returns the minor numbers of those GPU devices. A file that is
// another kind of device, or a control device, needs no permission.
func allowedMinors(devices []string) (*[nvidiaControl]bool, error) {
	var allowed [nvidiaControl]bool
	for _, dev := range devices {
		var st unix.Stat_t
		if err := unix.Stat(dev, &st); err != nil {
			return nil, &os.PathError{Op: "allow device", Path: dev, Err: err}
		}
		isCharacter := st.Mode&unix.S_IFMT == unix.S_IFCHR
		minor := unix.Minor(st.Rdev)
		if isCharacter && unix.Major(st.Rdev) == nvidiaMajor && minor < nvidiaControl {
			allowed[minor] = true
		}
	}
	return &allowed, nil
}

// fenceDevices lets the group open, of NVIDIA's GPU devices, only those named. The v1
// controller cannot except one device from a forbidden range, so each other
// minor is forbidden by itself, also of devices that appear later.
func fenceDevices(dir string, devices []string) error {
	allowed, err := allowedMinors(devices)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "devices.deny")
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: file, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	for minor, ok := range allowed {
		if ok {
			continue
		}
		if _, err := unix.Write(fd, fmt.Appendf(nil, "c %d:%d rwm", nvidiaMajor, minor)); err != nil {
			return &os.PathError{Op: "write to", Path: file, Err: err}
		}
	}
	return nil
}
