package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// progress writes what is going on to standard error.
type progress struct {
	w     io.Writer
	quiet bool
}

func (p *progress) say(format string, args ...any) {
	if !p.quiet {
		fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// machine is what else could explain a figure.
type machine struct {
	CPUs       int     `json:"cpus"`
	LoadBefore float64 `json:"load1_before"`
	LoadAfter  float64 `json:"load1_after"`
	CPUSeconds float64 `json:"cpu_seconds"` // busy time of the whole machine between the two
	busy       float64
}

func machineNow() machine {
	return machine{CPUs: runtime.NumCPU(), LoadBefore: load1(), busy: busySeconds()}
}

func (m *machine) after() {
	m.LoadAfter = load1()
	m.CPUSeconds = busySeconds() - m.busy
}

func (m *machine) text(w io.Writer) {
	fmt.Fprintf(
		w,
		"machine: %d CPUs, load %.1f before, %.1f after, %.1f CPU seconds used by everything on it\n",
		m.CPUs,
		m.LoadBefore,
		m.LoadAfter,
		m.CPUSeconds,
	)
}

// load1 is the load average of the last minute, 0 where it is not known.
func load1() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), " ")
	value, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return value
}

// ticksPerSecond is USER_HZ, which is 100 on every architecture Linux has.
const ticksPerSecond = 100

// busySeconds is the CPU time that the machine has spent since it booted,
// without idle, waiting for disks, and what a hypervisor took.
func busySeconds() float64 {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	var sum float64
	for i, f := range strings.Fields(string(line)) {
		// cpu user nice system idle iowait irq softirq steal …
		if i == 0 || i == 4 || i == 5 || i > 7 {
			continue
		}
		value, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return 0
		}
		sum += value
	}
	return sum / ticksPerSecond
}

// residentBytes is the resident memory of a process in bytes.
func residentBytes(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", pid)
}

// cpuTime is what a process has used so far, 0 when it cannot be read.
func cpuTime(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name may hold anything; the numbers come after its closing bracket.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	var ticks int64
	for _, v := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// latencies of single operations.
type latencies struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

// summariseTimes sorts the times and takes the percentiles (nearest rank).
func summariseTimes(times []time.Duration) latencies {
	if len(times) == 0 {
		return latencies{}
	}
	slices.Sort(times)
	at := func(percent int) float64 {
		i := (len(times)*percent + 99) / 100
		return toMilliseconds(times[max(i, 1)-1])
	}
	return latencies{P50: at(50), P99: at(99), Max: toMilliseconds(times[len(times)-1])}
}

func toMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

func sortedCopy(list []string) []string {
	slices.Sort(list)
	return list
}

func toMiB(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func sortedKeys(m map[string]int) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	return sortedCopy(keys)
}

// maxRSS is the most memory that this process has had resident, in bytes; 0
// where it is not known.
func maxRSS() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Maxrss << 10
}

// threadTime is the CPU time that this thread has used; 0 where it is not
// known. Beside it a wall time tells how much else the machine did.
func threadTime() time.Duration {
	var u syscall.Rusage
	const thread = 1 // RUSAGE_THREAD
	if syscall.Getrusage(thread, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
