//go:build linux

package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Clocks are the frequencies of the CPUs at one look, each read when it is first
// asked for.
type Clocks struct {
	mhz  map[int]uint64 // that were asked for
	info map[int]uint64 // of /proc/cpuinfo; nil = it was not read
	sys  string
	proc string
}

// NewClocks begins a look.
func NewClocks() *Clocks {
	return &Clocks{mhz: map[int]uint64{}, sys: "/sys/devices/system/cpu", proc: "/proc/cpuinfo"}
}

// MHz is the frequency of a CPU: what cpufreq says or, where there is none as in
// virtual machines, /proc/cpuinfo. 0 = neither does.
func (c *Clocks) MHz(cpu int) uint64 {
	if cpu < 0 {
		return 0
	}
	if n, ok := c.mhz[cpu]; ok {
		return n
	}
	b, err := readSmall(c.sys + "/cpu" + strconv.Itoa(cpu) + "/cpufreq/scaling_cur_freq")
	if khz, e := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32); err == nil && e == nil {
		c.mhz[cpu] = khz / 1000
		return khz / 1000
	}
	if c.info == nil {
		c.info = map[int]uint64{}
		b, _ := os.ReadFile(c.proc)
		c.read(b)
	}
	c.mhz[cpu] = c.info[cpu]
	return c.info[cpu]
}

// read takes the lines "processor : 3" and "cpu MHz : 2596.096" of cpuinfo.
func (c *Clocks) read(data []byte) {
	cpu := -1
	for line := range bytes.Lines(data) {
		name, value, ok := strings.Cut(string(line), ":")
		switch value = strings.TrimSpace(value); {
		case !ok:
		case strings.TrimSpace(name) == "processor":
			n, err := strconv.Atoi(value)
			cpu = n
			if err != nil {
				cpu = -1
			}
		case strings.TrimSpace(name) == "cpu MHz" && cpu >= 0:
			whole, _, _ := strings.Cut(value, ".")
			if n, err := strconv.ParseUint(whole, 10, 24); err == nil {
				c.info[cpu] = n
			}
		}
	}
}
