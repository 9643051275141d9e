//go:build linux

// Package proc reads /proc: who a process is, what it uses, and which
// processes belong together when no control group tells.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Stat is one process as /proc/PID/stat has it.
type Stat struct {
	PID, PPID, Session int
	Name               string // of the program, cut to 15 bytes
	State              byte   // R S D Z T ...
	User, System       uint64 // clock ticks of 10 ms, without children
	ChildUser          uint64
	ChildSystem        uint64
	MinFaults          uint64
	MajFaults          uint64
	ChildMinFaults     uint64 // of the children that it has waited for
	ChildMajFaults     uint64
	StartTicks         uint64 // clock ticks after boot; with the pid it names a process for ever
	RSSPages           int64
	VM                 int64 // bytes of address space
	CPU                int   // on which it ran last; -1 = not told
}

// ReadStat reads /proc/PID/stat.
func ReadStat(pid int) (Stat, error) {
	data, err := readSmall("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	return parseStat(data)
}

// parseStat splits after the last parenthesis: a process may put spaces and
// parentheses into its own name.
func parseStat(data []byte) (Stat, error) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || end < open {
		return Stat{}, fmt.Errorf("proc: stat line %.40q has no name", data)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data[:open])))
	fields := strings.Fields(string(data[end+1:]))
	if err != nil || len(fields) < 22 {
		return Stat{}, fmt.Errorf("proc: stat line %.40q is short", data)
	}
	num := func(i int) uint64 { // field numbers as in proc(5)
		n, e := strconv.ParseUint(fields[i-3], 10, 64)
		if e != nil {
			err = e
		}
		return n
	}
	stat := Stat{PID: pid, Name: string(data[open+1 : end]), State: fields[0][0], PPID: int(num(4)),
		Session:   int(num(6)),
		MinFaults: num(10), MajFaults: num(12), ChildMinFaults: num(11), ChildMajFaults: num(13), User: num(14), System: num(15),
		ChildUser: num(
			16,
		), ChildSystem: num(17), StartTicks: num(22), VM: int64(num(23)), RSSPages: int64(num(24))}
	if err != nil {
		return Stat{}, fmt.Errorf("proc: stat line %.40q: %w", data, err)
	}
	stat.CPU = -1
	if len(fields) > 36 {
		if n, e := strconv.Atoi(fields[39-3]); e == nil {
			stat.CPU = n
		}
	}
	return stat, nil
}

// All reads every process that exists; those that vanish meanwhile are left out.
func All() ([]Stat, error) {
	pids, err := listNumbers("/proc")
	if err != nil {
		return nil, err
	}
	stats := make([]Stat, 0, len(pids))
	for _, pid := range pids {
		if stat, err := ReadStat(pid); err == nil {
			stats = append(stats, stat)
		}
	}
	return stats, nil
}

// Tree gives the processes of all that are the root, in its session, below
// any such process, or accepted by mark. A root of 1 or less names nothing,
// and neither init nor self nor, through them, their children ever belong:
// what Tree gives gets killed.
func Tree(all []Stat, root, self int, mark func(pid int) bool) []Stat {
	member := map[int]bool{}
	never := func(s Stat) bool { return s.PID <= 1 || s.PID == self }
	for _, stat := range all {
		if !never(stat) &&
			(root > 1 && (stat.PID == root || stat.Session == root) || mark(stat.PID)) {
			member[stat.PID] = true
		}
	}
	for grew := true; grew; {
		grew = false
		for _, stat := range all {
			if !never(stat) && !member[stat.PID] && member[stat.PPID] {
				member[stat.PID], grew = true, true
			}
		}
	}
	var stats []Stat
	for _, stat := range all {
		if member[stat.PID] {
			stats = append(stats, stat)
		}
	}
	return stats
}

// HasEnv tells whether the process was started with NAME=value in its
// environment. Without the right to look it says no.
func HasEnv(pid int, entry string) bool {
	name, value, _ := strings.Cut(entry, "=")
	return Env(pid, name) == value
}

// Env gives a variable of the environment that the process was started with;
// empty without the right to look.
func Env(pid int, name string) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for len(data) > 0 {
		one, rest, _ := bytes.Cut(data, []byte{0})
		if v, ok := bytes.CutPrefix(one, []byte(name)); ok && len(v) > 0 && v[0] == '=' {
			return string(v[1:])
		}
		data = rest
	}
	return ""
}

// Children lists the direct children of this process, over all its threads.
func Children() ([]int, error) {
	tids, err := listNumbers("/proc/self/task")
	if err != nil {
		return nil, err
	}
	var out []int
	read := false
	for _, tid := range tids {
		data, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(tid) + "/children")
		if err != nil {
			continue // the thread has ended
		}
		read = true
		for f := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(f); err == nil {
				out = append(out, pid)
			}
		}
	}
	if !read {
		return nil, errors.New("this kernel does not list children (CONFIG_PROC_CHILDREN)")
	}
	return out, nil
}

// IO reads the bytes a process has read from and written to storage; zero
// without the right to look.
func IO(pid int) (read, written int64) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/io")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch name {
		case "read_bytes":
			read = n
		case "write_bytes":
			written = n
		}
	}
	return read, written
}

// BootID names this boot of the machine.
func BootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// BootClock is the time since boot in nanoseconds; it never jumps and is the
// same for every process.
func BootClock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}

// listNumbers lists the entries of a folder that are numbers.
func listNumbers(dir string) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, n := range names {
		if v, err := strconv.Atoi(n); err == nil {
			out = append(out, v)
		}
	}
	return out, nil
}

// readSmall reads a file of at most 4 KiB with three system calls.
func readSmall(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	data := make([]byte, 4096)
	n, err := unix.Read(fd, data)
	if err != nil {
		return nil, err
	}
	return data[:n], nil
}
