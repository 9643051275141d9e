package host

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// tick is the kernel's unit of CPU time towards programs, on every Linux.
const tick = 10 * spec.Millisecond

// Stat is /proc/stat: CPU time of all CPUs since the start, nanoseconds.
type Stat struct {
	UserNS, NiceNS, SystemNS, IdleNS    int64
	IOWaitNS, IRQNS, SoftIRQNS, StealNS int64
	BootTime                            spec.Instant
}

// ParseStat reads /proc/stat.
func ParseStat(text string) (Stat, error) {
	var stat Stat
	var cpu, boot bool
	for _, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "cpu":
			into := []*int64{
				&stat.UserNS,
				&stat.NiceNS,
				&stat.SystemNS,
				&stat.IdleNS,
				&stat.IOWaitNS,
				&stat.IRQNS,
				&stat.SoftIRQNS,
				&stat.StealNS,
			}
			if len(fields) < 5 {
				return Stat{}, fmt.Errorf(
					"the cpu line has %d figures, want at least 4", len(fields)-1,
				)
			}
			for i, p := range into {
				if i+1 >= len(fields) {
					break // an old kernel has fewer
				}
				n, err := strconv.ParseInt(fields[i+1], 10, 64)
				if err != nil || n < 0 || n > math.MaxInt64/int64(tick) {
					return Stat{}, fmt.Errorf("the cpu line has %q", fields[i+1])
				}
				*p = n * int64(tick)
			}
			cpu = true
		case "btime":
			n, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil || n < 0 || n > math.MaxInt64/int64(spec.Second) {
				return Stat{}, fmt.Errorf("btime is %q", fields[1])
			}
			stat.BootTime = spec.AtUnix(n)
			boot = true
		}
	}
	if !cpu || !boot {
		return Stat{}, errors.New("there is no cpu line or no btime line")
	}
	return stat, nil
}

// Meminfo is the part of /proc/meminfo that is used, in bytes.
type Meminfo struct {
	TotalBytes, AvailableBytes int64
}

// ParseMeminfo reads /proc/meminfo. A kernel that does not say what is
// available gives what is free.
func ParseMeminfo(text string) (Meminfo, error) {
	var meminfo Meminfo
	free, available := int64(0), int64(-1)
	for _, line := range strings.Split(text, "\n") {
		name, rest, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		var into *int64
		switch name {
		case "MemTotal":
			into = &meminfo.TotalBytes
		case "MemFree":
			into = &free
		case "MemAvailable":
			into = &available
		default:
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) != 2 || fields[1] != "kB" {
			return Meminfo{}, fmt.Errorf(
				"%s is %q, want a number of kB",
				name,
				strings.TrimSpace(rest),
			)
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64>>10 {
			return Meminfo{}, fmt.Errorf("%s is %q", name, fields[0])
		}
		*into = n << 10
	}
	if meminfo.TotalBytes == 0 {
		return Meminfo{}, errors.New("there is no MemTotal")
	}
	meminfo.AvailableBytes = available
	if available < 0 {
		meminfo.AvailableBytes = free
	}
	return meminfo, nil
}

// ParseUptime reads /proc/uptime.
func ParseUptime(text string) (spec.Span, error) {
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return 0, errors.New("it is empty")
	}
	centi, err := parseHundredths(fields[0])
	if err != nil || centi > math.MaxInt64/int64(10*spec.Millisecond) {
		return 0, fmt.Errorf("invalid time %q", fields[0])
	}
	return spec.Span(centi) * 10 * spec.Millisecond, nil
}

// ParseLoadavg reads /proc/loadavg, in hundredths.
func ParseLoadavg(text string) ([3]int64, error) {
	var load [3]int64
	fields := strings.Fields(text)
	if len(fields) < 3 {
		return load, fmt.Errorf("it has %d figures, want 3", len(fields))
	}
	for i := range load {
		n, err := parseHundredths(fields[i])
		if err != nil {
			return [3]int64{}, fmt.Errorf("invalid load %q", fields[i])
		}
		load[i] = n
	}
	return load, nil
}

// parseHundredths reads a decimal such as 12.34 exactly; further digits are cut.
func parseHundredths(text string) (int64, error) {
	whole, part, _ := strings.Cut(text, ".")
	w, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || w < 0 || w > math.MaxInt64/1000 {
		return 0, fmt.Errorf("%q is no figure", text)
	}
	part = (part + "00")[:2]
	p, err := strconv.ParseUint(part, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("%q is no figure", text)
	}
	return w*100 + int64(p), nil
}

// maxCPU bounds a list, so that a damaged file cannot fill the memory.
const maxCPU = 1 << 16

// ErrList is wrapped by ParseList.
var ErrList = errors.New("bad CPU list")

// ParseList reads a kernel list such as "0-3,8,10-11", ascending.
func ParseList(list string) ([]int, error) {
	var out []int
	if list == "" {
		return nil, nil
	}
	for _, part := range strings.Split(list, ",") {
		first, last, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(first)
		b := a
		if err == nil && ranged {
			b, err = strconv.Atoi(last)
		}
		if err != nil || a < 0 || b < a || b > maxCPU || (len(out) > 0 && a <= out[len(out)-1]) {
			return nil, fmt.Errorf("%w: %q", ErrList, list)
		}
		for c := a; c <= b; c++ {
			out = append(out, c)
		}
	}
	return out, nil
}

// CPUInfo is /proc/cpuinfo as far as it is used.
type CPUInfo struct {
	Model string
	cpus  []cpu
}

// ParseCPUInfo reads /proc/cpuinfo; what it does not find it leaves out.
func ParseCPUInfo(text string) CPUInfo {
	var info CPUInfo
	var c cpu
	began, core := false, false
	end := func() {
		if began {
			if !core { // an architecture that does not tell cores
				c.core = c.id
			}
			info.cpus = append(info.cpus, c)
		}
		c = cpu{}
		began = false
		core = false
	}
	for _, line := range strings.Split(text, "\n") {
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok {
			if name == "" {
				end()
			}
			continue
		}
		n, err := strconv.Atoi(value)
		if err == nil && (n < 0 || n > maxCPU) {
			continue
		}
		switch {
		case name == "processor" && err == nil:
			end()
			c.id, began = n, true
		case name == "physical id" && err == nil:
			c.pkg = n
		case name == "core id" && err == nil:
			c.core, core = n, true
		case name == "model name" && info.Model == "":
			info.Model = value
		}
	}
	end()
	return info
}

func (i CPUInfo) findCPU(id int) (cpu, bool) {
	for _, c := range i.cpus {
		if c.id == id {
			return c, true
		}
	}
	return cpu{}, false
}
