//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"golang.org/x/sys/unix"
)

// ErrBusy means that a group still holds processes.
var ErrBusy = errors.New("the control group still holds processes")

// Group is the control group of one run. A nil Group stands for "not tracked".
// Where memory is limited it lies in a group of its job, which the job's other
// runs on this node share: all of them together are held to the job's memory.
type Group struct {
	host  *Host
	name  string
	dir   string   // in the tracking hierarchy
	extra []string // folders in v1 hierarchies
	mem   string   // folder with the memory counters; empty without
	jobs  []string // folders of the job around those of the run
	id    uint64   // the kernel's number; 0 where the group is in no v2 hierarchy
}

// Settings are what a group is made with.
type Settings struct {
	Limits  plan.Limits
	Job     plan.Limits // the memory of all of the job's groups together
	CPUs    []int32     // for Limits.Cores
	Devices []string    // device files allowed; used with Fence
	Fence   bool
}

// remakeTries bounds how often our folders are made again that others have just taken away.
const remakeTries = 3

// Create makes a group. In mode None it gives nil and no error.
func (h *Host) Create(name string, settings Settings) (*Group, error) {
	if h.mode == None {
		return nil, nil
	}
	for try := 1; ; try++ {
		group, err := h.create(name, settings)
		if err == nil || try == remakeTries || !h.lacksFolder() {
			return group, err
		}
		// A shepherd of another release takes the folders away when it ends, where it sees
		// no group in them.
		if err := h.remakeFolders(); err != nil {
			return nil, err
		}
	}
}

func (h *Host) create(name string, settings Settings) (*Group, error) {
	group := &Group{host: h, name: name, dir: filepath.Join(h.track, name)}
	var err error
	if h.mode == V2 {
		group.dir, err = group.nestInJob(
			h.track,
			func(job string) error { return h.jobV2(job, settings.Job) },
		)
	} else {
		err = unix.Mkdir(group.dir, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("make control group %s: %w", group.dir, err)
	}
	if err := group.setLimit(settings); err != nil {
		_ = group.Remove()
		return nil, fmt.Errorf("limit control group %s: %w", name, err)
	}
	group.learnID()
	return group, nil
}

// Parts of a run's name, uid.attempt.step.epoch, and what a job's folder has in the place
// of the step.
const (
	nameParts = 4
	stepPart  = 2
	jobWord   = "job"
)

// jobOf is the folder in which the groups of a job's attempt are, by the name of
// one of them.
func jobOf(name string) string {
	parts := strings.Split(name, ".")
	if len(parts) == nameParts {
		parts[stepPart] = jobWord
		return strings.Join(parts, ".")
	}
	return olderJobOf(name)
}

// isJobs tells that a folder is a job's by its name.
func isJobs(name string) bool {
	parts := strings.Split(name, ".")
	return len(parts) == stepPart || len(parts) == nameParts && parts[stepPart] == jobWord
}

// olderJobOf is jobOf of older releases: runs with an epoch had a folder each.
func olderJobOf(name string) string {
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		return name[:i]
	}
	return name + ".job"
}

// nestTries bounds how often a job's folder is made again that its last group
// has just taken away.
const nestTries = 100

// nestInJob makes the group's folder inside of its job's, which prepare has set up.
func (g *Group) nestInJob(base string, prepare func(job string) error) (string, error) {
	job := filepath.Join(base, jobOf(g.name))
	dir := filepath.Join(job, g.name)
	var err error
	for range nestTries {
		err = unix.Mkdir(job, 0o755)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return dir, err
		}
		err = prepare(job)
		if err == nil {
			err = unix.Mkdir(dir, 0o755)
		}
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
			break
		}
	}
	if err == nil || errors.Is(err, unix.EEXIST) {
		g.jobs = append(g.jobs, job)
	} else {
		_ = unix.Rmdir(job) // unless other runs are in it
	}
	return dir, err
}

// findGroup is where a group of this name is below base: in its job's folder, or, of
// older releases, in a folder of its own or beside it.
func (g *Group) findGroup(base string) string {
	for _, folder := range []string{jobOf(g.name), olderJobOf(g.name)} {
		job := filepath.Join(base, folder)
		if dir := filepath.Join(job, g.name); dirExists(dir) {
			g.jobs = append(g.jobs, job)
			return dir
		}
	}
	return filepath.Join(base, g.name)
}

func dirExists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// Open gives the handle of a group that exists, after a restart.
func (h *Host) Open(name string) *Group {
	if h.mode == None {
		return nil
	}
	group := &Group{host: h, name: name, dir: filepath.Join(h.track, name)}
	if h.mode == V2 {
		group.dir = group.findGroup(h.track)
	}
	for c, base := range h.v1 {
		d := filepath.Join(base, name)
		if c == "memory" {
			d = group.findGroup(base)
		}
		if d == group.dir {
			continue
		}
		if dirExists(d) {
			group.extra = append(group.extra, d)
			if c == "memory" {
				group.mem = d
			}
		}
	}
	if h.v2["memory"] {
		group.mem = group.dir
	}
	group.learnID()
	return group
}

// At gives the handle of a group by its folder, for another program than the one
// that made it. It can be looked at and killed.
func At(mode Mode, dir string) *Group {
	return &Group{host: &Host{mode: mode}, name: filepath.Base(dir), dir: dir}
}

// Path gives the folder that tracks the processes.
func (g *Group) Path() string {
	if g == nil {
		return ""
	}
	return g.dir
}

func (g *Group) setLimit(settings Settings) error {
	host := g.host
	if host.mode == V2 {
		return g.limitV2(settings)
	}
	if host.mode == V1 && host.v1["cpuacct"] != "" {
		if _, err := g.enterController("cpuacct"); err != nil {
			return err
		}
	}
	if host.v1["blkio"] != "" {
		if _, err := g.enterController("blkio"); err != nil {
			return err
		}
	}
	if limits := settings.Limits; (limits.MemoryBytes > 0 || settings.Job.MemoryBytes > 0) &&
		host.v1["memory"] != "" {
		d, err := g.nestInJob(
			host.v1["memory"],
			func(job string) error { return jobV1(job, settings.Job) },
		)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		g.mem, g.extra = d, append(g.extra, d)
		if err := limitMemoryV1(d, limits); err != nil {
			return err
		}
	}
	if n := settings.Limits.Pids; n > 0 && host.v1["pids"] != "" {
		d, err := g.enterController("pids")
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(d, "pids.max"), strconv.FormatInt(n, 10)); err != nil {
			return err
		}
	}
	if settings.Limits.Cores && len(settings.CPUs) > 0 && host.v1["cpuset"] != "" {
		d, err := g.enterController("cpuset")
		if err != nil {
			return err
		}
		mems, err := os.ReadFile(filepath.Join(host.v1["cpuset"], "cpuset.mems"))
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(d, "cpuset.mems"), strings.TrimSpace(string(mems))); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(d, "cpuset.cpus"), cpuList(settings.CPUs)); err != nil {
			return err
		}
	}
	if settings.Fence && host.v1["devices"] != "" {
		d, err := g.enterController("devices")
		if err != nil {
			return err
		}
		return fenceDevices(d, settings.Devices)
	}
	if settings.Fence && host.devicePrograms {
		return fenceV2(g.dir, settings.Devices)
	}
	return nil
}

// jobV1 sets up a job's folder of the v1 memory controller.
func jobV1(dir string, limits plan.Limits) error {
	// Kernels before 5.11 count what is below a folder only where this says so.
	_ = writeFile(filepath.Join(dir, "memory.use_hierarchy"), "1")
	return limitMemoryV1(dir, limits)
}

func limitMemoryV1(d string, limits plan.Limits) error {
	if limits.MemoryBytes == 0 {
		return nil
	}
	if err := writeFile(filepath.Join(d, "memory.limit_in_bytes"), strconv.FormatInt(limits.MemoryBytes, 10)); err != nil {
		return err
	}
	if limits.SwapBytes == 0 {
		return nil
	}
	both := limits.MemoryBytes + max(limits.SwapBytes, 0)
	return writeFile(filepath.Join(d, "memory.memsw.limit_in_bytes"), strconv.FormatInt(both, 10))
}

// jobV2 sets up a job's folder: it hands the controllers on to the groups in it.
func (h *Host) jobV2(dir string, limits plan.Limits) error {
	if err := h.handDown(dir); err != nil || !h.v2["memory"] {
		return err
	}
	return limitMemoryV2(dir, limits)
}

// handDown gives the groups in a folder the controllers that we have.
func (h *Host) handDown(dir string) error {
	for _, c := range controllersV2 {
		if !h.v2[c] {
			continue
		}
		if err := writeFile(filepath.Join(dir, "cgroup.subtree_control"), "+"+c); err != nil {
			return err
		}
	}
	return nil
}

func limitMemoryV2(dir string, limits plan.Limits) error {
	if limits.MemoryBytes == 0 {
		return nil
	}
	if err := writeFile(filepath.Join(dir, "memory.max"), strconv.FormatInt(limits.MemoryBytes, 10)); err != nil ||
		limits.SwapBytes == 0 {
		return err
	}
	err := writeFile(
		filepath.Join(dir, "memory.swap.max"),
		strconv.FormatInt(max(limits.SwapBytes, 0), 10),
	)
	if errors.Is(err, os.ErrNotExist) && dirExists(dir) {
		return nil // a kernel without swap accounting has no such file, and no swap to forbid
	}
	return err
}

func (g *Group) limitV2(settings Settings) error {
	host, limits := g.host, settings.Limits
	if host.v2["memory"] {
		g.mem = g.dir
		if err := limitMemoryV2(g.dir, limits); err != nil {
			return err
		}
	}
	if host.v2["pids"] && limits.Pids > 0 {
		if err := writeFile(filepath.Join(g.dir, "pids.max"), strconv.FormatInt(limits.Pids, 10)); err != nil {
			return err
		}
	}
	if host.v2["cpuset"] && limits.Cores && len(settings.CPUs) > 0 {
		if err := writeFile(filepath.Join(g.dir, "cpuset.cpus"), cpuList(settings.CPUs)); err != nil {
			return err
		}
	}
	if settings.Fence && host.devicePrograms {
		return fenceV2(g.dir, settings.Devices)
	}
	return nil
}

// enterController makes the group's folder under one v1 controller.
func (g *Group) enterController(controller string) (string, error) {
	d := filepath.Join(g.host.v1[controller], g.name)
	if err := unix.Mkdir(d, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return "", err
	}
	g.extra = append(g.extra, d)
	return d, nil
}

// Entry holds the open files that a starting process needs to be put into the
// group; close it once the process runs.
type Entry struct {
	CgroupFD int // v2 folder to be born in; -1 for none
	Joins    []int
}

// Enter opens what a process needs to start in the group.
func (g *Group) Enter() (Entry, error) {
	entry := Entry{CgroupFD: -1}
	if g == nil {
		return entry, nil
	}
	var files []string
	switch {
	case g.host.mode == V1:
		files = append(files, filepath.Join(g.dir, "tasks"))
	case g.host.cloneInto:
		fd, err := unix.Open(g.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return entry, fmt.Errorf("open control group %s: %w", g.dir, err)
		}
		entry.CgroupFD = fd
	default:
		files = append(files, filepath.Join(g.dir, "cgroup.procs"))
	}
	for _, d := range g.extra {
		files = append(files, filepath.Join(d, "tasks"))
	}
	for _, f := range files {
		fd, err := unix.Open(f, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			entry.Close()
			return Entry{CgroupFD: -1}, fmt.Errorf("open %s: %w", f, err)
		}
		entry.Joins = append(entry.Joins, fd)
	}
	return entry, nil
}

// Close closes the files.
func (e *Entry) Close() {
	if e.CgroupFD >= 0 {
		_ = unix.Close(e.CgroupFD)
		e.CgroupFD = -1
	}
	for _, fd := range e.Joins {
		_ = unix.Close(fd)
	}
	e.Joins = nil
}

// ErrNoGroup means that runs have no control groups here.
var ErrNoGroup = errors.New("runs have no control groups on this node")

// Adopt moves a process into the group, in every hierarchy that it has a part of.
// What the process has started before stays where it is.
func (g *Group) Adopt(pid int) error {
	if g == nil {
		return ErrNoGroup
	}
	for _, dir := range append([]string{g.dir}, g.extra...) {
		if err := writeFile(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("adopt process %d: %w", pid, err)
		}
	}
	return nil
}

// Procs lists the processes of the group.
func (g *Group) Procs() ([]int, error) {
	if g == nil {
		return nil, nil
	}
	data, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []int
	for f := range strings.FieldsSeq(string(data)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	return out, nil
}

// Signal sends a signal to every process of the group once.
func (g *Group) Signal(signal unix.Signal) error {
	pids, err := g.Procs()
	for _, pid := range pids {
		_ = unix.Kill(pid, signal)
	}
	return err
}

// Kill kills every process of the group, also those that fork meanwhile. It
// returns before they are gone.
func (g *Group) Kill() error {
	if g == nil {
		return nil
	}
	if g.host.mode != V1 {
		err := writeFile(filepath.Join(g.dir, "cgroup.kill"), "1")
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return err
		}
		// Linux before 5.14: hold them still, then kill them one by one.
		_ = writeFile(filepath.Join(g.dir, "cgroup.freeze"), "1")
		defer func() { _ = writeFile(filepath.Join(g.dir, "cgroup.freeze"), "0") }()
		return g.Signal(unix.SIGKILL)
	}
	state := filepath.Join(g.dir, "freezer.state")
	_ = writeFile(state, "FROZEN")
	err := g.Signal(unix.SIGKILL)
	return errors.Join(err, writeFile(state, "THAWED"))
}

// Empty tells that no process is left.
func (g *Group) Empty() (bool, error) {
	if g == nil {
		return true, nil
	}
	if g.host.mode == V1 {
		pids, err := g.Procs()
		return len(pids) == 0, err
	}
	data, err := readFile(filepath.Join(g.dir, "cgroup.events"))
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	return findField(data, "populated") == 0, err
}

// WaitEmpty returns when no process is left or the context ends. It looks
// again at growing intervals, killing each time: v1 tells nobody.
func (g *Group) WaitEmpty(ctx context.Context, kill bool) error {
	wait := time.Millisecond
	for {
		if empty, err := g.Empty(); err != nil || empty {
			return err
		}
		if kill {
			if err := g.Kill(); err != nil {
				return err
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		wait = min(2*wait, 200*time.Millisecond)
	}
}

// Remove removes an empty group; ErrBusy if it is not empty.
func (g *Group) Remove() error {
	if g == nil {
		return nil
	}
	for _, d := range append([]string{g.dir}, g.extra...) {
		switch err := unix.Rmdir(d); {
		case err == nil || errors.Is(err, unix.ENOENT):
		case errors.Is(err, unix.EBUSY):
			return ErrBusy
		default:
			return fmt.Errorf("remove control group %s: %w", d, err)
		}
	}
	for _, job := range g.jobs {
		_ = unix.Rmdir(job) // of the job's last run
	}
	return nil
}
