// Package host reads what a node is (Inventory) and how it does (Stats) from
// /proc, /sys and /etc.
//
// Files come through fs.FS, so a fixture tree gives the same answers as a
// machine. A missing file is an error only where the node cannot be registered
// without it; everything else that is missing or odd is left at its zero value
// and named in Inventory.Notes.
package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/musterhpc/muster/spec"
)

// ErrHost is wrapped by every error about a file that cannot be used.
var ErrHost = errors.New("cannot read the node")

// Source is where a node is read from.
type Source struct {
	Proc, Sys, Etc fs.FS
	// Statfs gives the size of a path's file system and what users may still
	// take of it, in bytes. Nil leaves TmpDisk at 0.
	Statfs func(path string) (total, available int64, err error)
	// TmpFS is the path whose file system TmpDisk is about ("/tmp").
	TmpFS string
	Arch  string // as uname -m prints it
}

// This is the machine the program runs on.
func This(tmpFS string) Source {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64", "386": "i686"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	return Source{
		Proc:   os.DirFS("/proc"),
		Sys:    os.DirFS("/sys"),
		Etc:    os.DirFS("/etc"),
		Statfs: statfs,
		TmpFS:  tmpFS,
		Arch:   arch,
	}
}

func statfs(path string) (total, available int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return int64(s.Blocks) * s.Bsize, int64(s.Bavail) * s.Bsize, nil
}

// Inventory is what a node registers.
type Inventory struct {
	Hostname string // short, without the domain
	Arch     string
	OS       string // sysname, release and version, as scontrol shows it
	Distro   string // PRETTY_NAME of os-release
	Kernel   string // release
	BootID   string
	BootTime spec.Instant // whole seconds

	CPUs           int // online
	Online         []int
	Allowed        []int // that this process may use; nil when not restricted
	Boards         int   // always 1: Linux does not say
	Sockets        int
	CoresPerSocket int
	ThreadsPerCore int
	CPUModel       string
	NUMA           []NUMANode

	RealMemoryMiB int64
	TmpDiskMiB    int64
	Uptime        spec.Span
	LoadCenti     [3]int64 // load over 1, 5 and 15 minutes, hundredths
	Notes         []string // what was odd, one sentence each
}

// NUMANode is one memory domain.
type NUMANode struct {
	ID        int
	CPUs      []int
	MemoryMiB int64
}

// Read reads a node's inventory. Errors wrap ErrHost and name the file.
func Read(src Source) (Inventory, error) {
	inventory := Inventory{Arch: src.Arch, Boards: 1}
	name, err := readText(src.Proc, "sys/kernel/hostname")
	if err != nil {
		return inventory, err
	}
	inventory.Hostname, _, _ = strings.Cut(name, ".")
	inventory.BootID, err = readText(src.Proc, "sys/kernel/random/boot_id")
	if err != nil {
		return inventory, err
	}
	inventory.Kernel, err = readText(src.Proc, "sys/kernel/osrelease")
	if err != nil {
		return inventory, err
	}
	version, _ := readText(src.Proc, "sys/kernel/version") // shown only
	inventory.OS = strings.TrimSpace("Linux " + inventory.Kernel + " " + version)
	inventory.Distro = distroName(src.Etc)

	stat, err := readParsed(src.Proc, "stat", ParseStat)
	if err != nil {
		return inventory, err
	}
	inventory.BootTime = stat.BootTime
	memory, err := readParsed(src.Proc, "meminfo", ParseMeminfo)
	if err != nil {
		return inventory, err
	}
	inventory.RealMemoryMiB = memory.TotalBytes >> 20
	inventory.Uptime, err = readParsed(src.Proc, "uptime", ParseUptime)
	if err != nil {
		return inventory, err
	}
	inventory.LoadCenti, err = readParsed(src.Proc, "loadavg", ParseLoadavg)
	if err != nil {
		return inventory, err
	}
	if err := inventory.findTopology(src); err != nil {
		return inventory, err
	}
	inventory.readNUMA(src.Sys)
	if src.Statfs != nil && src.TmpFS != "" {
		total, _, err := src.Statfs(src.TmpFS)
		if err != nil {
			inventory.note("TmpDisk is unknown: %v", err)
		}
		inventory.TmpDiskMiB = total >> 20
	}
	return inventory, nil
}

func (inv *Inventory) note(format string, args ...any) {
	inv.Notes = append(inv.Notes, fmt.Sprintf(format, args...))
}

// String gives the node as a line of slurm.conf, with what it found.
func (inv Inventory) String() string {
	return fmt.Sprintf(
		"NodeName=%s CPUs=%d Boards=%d SocketsPerBoard=%d CoresPerSocket=%d ThreadsPerCore=%d RealMemory=%d TmpDisk=%d",
		inv.Hostname,
		inv.CPUs,
		inv.Boards,
		inv.Sockets,
		inv.CoresPerSocket,
		inv.ThreadsPerCore,
		inv.RealMemoryMiB,
		inv.TmpDiskMiB,
	)
}

// cpu is the place of one CPU.
type cpu struct{ id, pkg, core int }

// findTopology finds sockets, cores and threads: from /sys, else from
// /proc/cpuinfo, else every CPU is a core of one socket.
func (inv *Inventory) findTopology(src Source) error {
	info, err := readText(src.Proc, "cpuinfo")
	if err != nil {
		return err
	}
	table := ParseCPUInfo(info)
	inv.CPUModel = table.Model
	if online, err := readText(src.Sys, "devices/system/cpu/online"); err == nil {
		inv.Online, err = ParseList(online)
		if err != nil {
			return fmt.Errorf("%w: /sys/devices/system/cpu/online: %w", ErrHost, err)
		}
	}
	if len(inv.Online) == 0 {
		for _, c := range table.cpus {
			inv.Online = append(inv.Online, c.id)
		}
		slices.Sort(inv.Online)
		inv.Online = slices.Compact(inv.Online)
	}
	inv.CPUs = len(inv.Online)
	if inv.CPUs == 0 {
		return fmt.Errorf(
			"%w: neither /sys/devices/system/cpu/online nor /proc/cpuinfo names a CPU",
			ErrHost,
		)
	}
	cpus := make([]cpu, 0, inv.CPUs)
	for _, id := range inv.Online {
		c, ok := sysCPU(src.Sys, id)
		if !ok {
			c, ok = table.findCPU(id)
		}
		if !ok {
			c = cpu{id: id, pkg: 0, core: id}
		}
		cpus = append(cpus, c)
	}
	inv.countPlaces(cpus)
	if status, err := readText(src.Proc, "self/status"); err == nil {
		inv.noteRestriction(status)
	}
	return nil
}

// sysCPU reads a CPU's place from /sys. Dies are told apart by core ids in
// practice, but not by rule, so the die is part of the core's number.
func sysCPU(sys fs.FS, id int) (cpu, bool) {
	dir := fmt.Sprintf("devices/system/cpu/cpu%d/topology", id)
	pkg, err1 := number(sys, path.Join(dir, "physical_package_id"))
	core, err2 := number(sys, path.Join(dir, "core_id"))
	if err1 != nil || err2 != nil {
		return cpu{}, false
	}
	die, err := number(sys, path.Join(dir, "die_id"))
	if err != nil || die < 0 {
		die = 0
	}
	return cpu{id: id, pkg: max(pkg, 0), core: die<<16 | core&0xffff}, true
}

// countPlaces turns places into sockets, cores and threads. Where they are uneven the
// largest of each is taken, so that no CPU is left out, and a note says so.
func (inv *Inventory) countPlaces(cpus []cpu) {
	type core struct{ pkg, core int }
	threads := map[core]int{}
	cores := map[int]int{}
	for _, c := range cpus {
		k := core{c.pkg, c.core}
		if threads[k] == 0 {
			cores[c.pkg]++
		}
		threads[k]++
	}
	inv.Sockets = len(cores)
	for _, n := range cores {
		inv.CoresPerSocket = max(inv.CoresPerSocket, n)
	}
	for _, n := range threads {
		inv.ThreadsPerCore = max(inv.ThreadsPerCore, n)
	}
	if n := inv.Sockets * inv.CoresPerSocket * inv.ThreadsPerCore; n != inv.CPUs {
		inv.note("the CPUs are uneven: %d online, %d sockets x %d cores x %d threads would be %d",
			inv.CPUs, inv.Sockets, inv.CoresPerSocket, inv.ThreadsPerCore, n)
	}
}

// noteRestriction notes a process that may not use every CPU, as in a container.
func (inv *Inventory) noteRestriction(status string) {
	for _, line := range strings.Split(status, "\n") {
		list, ok := strings.CutPrefix(line, "Cpus_allowed_list:")
		if !ok {
			continue
		}
		allowed, err := ParseList(strings.TrimSpace(list))
		if err != nil {
			return
		}
		allowed = slices.DeleteFunc(
			allowed,
			func(c int) bool { return !slices.Contains(inv.Online, c) },
		)
		if len(allowed) < len(inv.Online) {
			inv.Allowed = allowed
			inv.note("the agent may use %d of the node's %d CPUs", len(allowed), len(inv.Online))
		}
		return
	}
}

// readNUMA reads the memory domains; a machine without any has none.
func (inv *Inventory) readNUMA(sys fs.FS) {
	list, err := readText(sys, "devices/system/node/online")
	if err != nil {
		return
	}
	ids, err := ParseList(list)
	if err != nil {
		inv.note("the NUMA nodes are unknown: %v", err)
		return
	}
	for _, id := range ids {
		node := NUMANode{ID: id}
		dir := fmt.Sprintf("devices/system/node/node%d", id)
		if cpus, err := readText(sys, path.Join(dir, "cpulist")); err == nil {
			node.CPUs, _ = ParseList(cpus) // a node of memory alone has none
		}
		if info, err := readText(sys, path.Join(dir, "meminfo")); err == nil {
			for _, line := range strings.Split(info, "\n") {
				if fields := strings.Fields(line); len(fields) >= 4 && fields[2] == "MemTotal:" {
					if kib, err := strconv.ParseInt(fields[3], 10, 64); err == nil && kib > 0 {
						node.MemoryMiB = kib >> 10
					}
				}
			}
		}
		inv.NUMA = append(inv.NUMA, node)
	}
}

// distroName gives PRETTY_NAME of os-release, or "".
func distroName(etc fs.FS) string {
	release, err := readText(etc, "os-release")
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(release, "\n") {
		if v, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(v, `"'`)
		}
	}
	return ""
}

// readText reads a small file without its last newline.
func readText(fsys fs.FS, name string) (string, error) {
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrHost, err)
	}
	return strings.TrimSpace(string(data)), nil
}

func number(fsys fs.FS, name string) (int, error) {
	text, err := readText(fsys, name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// readParsed reads a file with a parser and names the file in its error.
func readParsed[T any](fsys fs.FS, name string, parse func(string) (T, error)) (T, error) {
	var none T
	text, err := readText(fsys, name)
	if err != nil {
		return none, err
	}
	v, err := parse(text)
	if err != nil {
		return none, fmt.Errorf("%w: /proc/%s: %w", ErrHost, name, err)
	}
	return v, nil
}
