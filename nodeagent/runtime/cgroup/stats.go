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
	// Read and Write are bytes from and to block devices; HasIO tells that they were
	// measured.
	Read, Write int64
	HasIO       bool
	// Counters are what else the kernel has of the group.
	Counters spec.CounterValues
}

// Stats reads the counters; of a nil Group they are zero.
func (g *Group) Stats() (Stats, error) {
	var stats Stats
	if g == nil {
		return stats, nil
	}
	g.readIO(&stats)
	if g.host.mode == V1 {
		g.cpuV1(&stats)
	} else {
		data, err := readFile(filepath.Join(g.dir, "cpu.stat"))
		if err != nil {
			return stats, fmt.Errorf("read usage: %w", err)
		}
		stats.CPU = spec.Span(findField(data, "usage_usec")) * spec.Microsecond
		stats.User = spec.Span(findField(data, "user_usec")) * spec.Microsecond
		stats.System = spec.Span(findField(data, "system_usec")) * spec.Microsecond
		if hasField(data, "throttled_usec") {
			stats.count(spec.CounterThrottled, findField(data, "throttled_usec"))
		}
		g.readPressure(&stats)
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

// ID is the kernel's number of the group in the v2 hierarchy; 0 where it is in none.
func (g *Group) ID() uint64 {
	if g == nil {
		return 0
	}
	return g.id
}

// learnID asks the kernel for the number, which outlives the group: what was counted
// under it is read after the group is gone.
func (g *Group) learnID() {
	if g.host.mode == V1 {
		return
	}
	var stat unix.Stat_t
	if err := unix.Stat(g.dir, &stat); err == nil {
		g.id = stat.Ino
	}
}

func (s *Stats) count(counter spec.Counter, n int64) {
	s.Counters = s.Counters.With(counter, n)
}

// readIO reads what the group did with block devices: io.stat of v2, or the blkio
// controller of v1.
func (g *Group) readIO(stats *Stats) {
	if g.host.mode == V2 {
		data, err := readFile(filepath.Join(g.dir, "io.stat"))
		if err != nil {
			return // the controller is not there
		}
		io := parseIOStat(data)
		stats.Read = io.read
		stats.Write = io.write
		stats.HasIO = true
		stats.count(spec.CounterReadOps, io.reads)
		stats.count(spec.CounterWriteOps, io.writes)
		return
	}
	base := g.host.v1["blkio"]
	if base == "" {
		return
	}
	dir := filepath.Join(base, g.name)
	bytes, err := readFile(filepath.Join(dir, "blkio.throttle.io_service_bytes"))
	if err != nil {
		return
	}
	stats.Read, stats.Write = parseBlkio(bytes)
	// From 6.10 on kernels count here only for groups that have a limit.
	stats.HasIO = stats.Read+stats.Write > 0
	if !stats.HasIO {
		return
	}
	if requests, err := readFile(filepath.Join(dir, "blkio.throttle.io_serviced")); err == nil {
		reads, writes := parseBlkio(requests)
		stats.count(spec.CounterReadOps, reads)
		stats.count(spec.CounterWriteOps, writes)
	}
}

// ioStat is what a group did with all block devices.
type ioStat struct{ read, write, reads, writes int64 }

// parseIOStat adds up the devices of io.stat: "8:0 rbytes=4096 wbytes=0 rios=1 ...".
// A partition is counted with its disk only, and a device that lies on others (LVM,
// RAID) beside them: what a job wrote through it counts for both.
func parseIOStat(data []byte) (sum ioStat) {
	for line := range bytes.Lines(data) {
		for _, field := range bytes.Fields(line) {
			name, value, ok := bytes.Cut(field, []byte("="))
			if !ok {
				continue
			}
			n, err := strconv.ParseInt(string(value), 10, 64)
			if err != nil || n < 0 {
				continue
			}
			switch string(name) {
			case "rbytes":
				sum.read += n
			case "wbytes":
				sum.write += n
			case "rios":
				sum.reads += n
			case "wios":
				sum.writes += n
			}
		}
	}
	return sum
}

// parseBlkio adds up the devices of a file of the blkio controller: "8:0 Read 4096".
func parseBlkio(data []byte) (read, write int64) {
	for line := range bytes.Lines(data) {
		fields := bytes.Fields(line)
		if len(fields) != 3 {
			continue // the total of all
		}
		n, err := strconv.ParseInt(string(fields[2]), 10, 64)
		if err != nil || n < 0 {
			continue
		}
		switch string(fields[1]) {
		case "Read":
			read += n
		case "Write":
			write += n
		}
	}
	return read, write
}

// readPressure reads for how long tasks of the group waited; kernels without
// pressure stall information, or with it switched off, have no such files.
func (g *Group) readPressure(stats *Stats) {
	for _, p := range []struct {
		file    string
		counter spec.Counter
	}{
		{"cpu.pressure", spec.CounterCPUStall},
		{"memory.pressure", spec.CounterMemStall},
		{"io.pressure", spec.CounterIOStall},
	} {
		data, err := readFile(filepath.Join(g.dir, p.file))
		if err != nil {
			continue
		}
		if total, ok := parsePressure(data); ok {
			stats.count(p.counter, total)
		}
	}
}

// parsePressure gives the total of the line "some avg10=0.00 ... total=1234".
func parsePressure(data []byte) (total int64, ok bool) {
	for line := range bytes.Lines(data) {
		rest, some := bytes.CutPrefix(line, []byte("some "))
		if !some {
			continue
		}
		_, text, found := bytes.Cut(rest, []byte("total="))
		n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
		return n, found && err == nil
	}
	return 0, false
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
func findField(data []byte, name string) int64 {
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		if v, ok := bytes.CutPrefix(line, []byte(name)); ok && len(v) > 0 && v[0] == ' ' {
			n, _ := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, 64)
			return n
		}
		data = rest
	}
	return 0
}

// hasField tells that a flat-keyed file has a name.
func hasField(data []byte, name string) bool {
	return bytes.HasPrefix(data, []byte(name+" ")) || bytes.Contains(data, []byte("\n"+name+" "))
}

func number(file string) int64 {
	data, err := readFile(file)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
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
	data := make([]byte, 0, 4096)
	for {
		n, err := unix.Read(fd, data[len(data):cap(data)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: file, Err: err}
		case n == 0:
			return data, nil
		default:
			data = slices.Grow(data[:len(data)+n], 512)
		}
	}
}

// cpuList folds CPU numbers into the kernel's list form (0-3,8).
func cpuList(cpus []int32) string {
	s := slices.Clone(cpus)
	slices.Sort(s)
	s = slices.Compact(s)
	var text strings.Builder
	for i := 0; i < len(s); {
		j := i
		for j+1 < len(s) && s[j+1] == s[j]+1 {
			j++
		}
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, "%d", s[i])
		if j > i {
			fmt.Fprintf(&text, "-%d", s[j])
		}
		i = j + 1
	}
	return text.String()
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
		var status unix.Stat_t
		if err := unix.Stat(dev, &status); err != nil {
			return nil, &os.PathError{Op: "allow device", Path: dev, Err: err}
		}
		isCharacter := status.Mode&unix.S_IFMT == unix.S_IFCHR
		minor := unix.Minor(status.Rdev)
		if isCharacter && unix.Major(status.Rdev) == nvidiaMajor && minor < nvidiaControl {
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
