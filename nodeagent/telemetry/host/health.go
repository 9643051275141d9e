package host

import (
	"bytes"
	"context"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhpc/muster/nodeagent/health"
	"github.com/musterhpc/muster/spec"
)

// patience is how long one look at the node waits for file systems; those that
// have not answered by then are measured by how long they have not.
const patience = 2 * time.Second

// FileSystem is what a file system says of itself.
type FileSystem struct {
	// Used and Free are blocks; Free is what users can take, which leaves out what
	// is reserved for root or belongs to others, as df counts it.
	Used, Free   uint64
	Files, Nodes uint64 // inodes in all and free; Files is 0 where they are not counted
	ReadOnly     bool
}

// Health measures a node for the rules of package health. It remembers between
// looks what has no time of its own: since when a port is down, a process waits, a
// file system does not answer. It is for one caller at a time.
type Health struct {
	Source Source
	Paths  []string // folders whose file systems jobs need
	// Stat asks a file system; nil: the kernel.
	Stat func(path string) (FileSystem, error)
	// ClockError is what the clock may be wrong by; nil: as the kernel says.
	ClockError func() (time.Duration, error)

	asked map[string]*question
	last  map[string]FileSystem
	ports map[string]spec.Instant // that were active once, by when they last were
	stuck map[string]spec.Instant // processes in state D, by when they were first seen so
}

// question is one file system that was asked and has not answered.
type question struct {
	since spec.Instant
	done  chan struct{} // closed when it has; the rest is set before
	found FileSystem
	err   error
}

// Read measures everything once. What cannot be read on this node has no reading.
func (h *Health) Read(ctx context.Context, now spec.Instant) []health.Reading {
	readings := h.readDisks(ctx, now)
	if wrong, err := h.clockError(); err == nil {
		readings = append(readings, health.Reading{
			Rule:    "clock_error",
			Subject: "the clock",
			Value:   wrong.Milliseconds(),
		})
	}
	readings = append(readings, h.readMemoryErrors()...)
	readings = append(readings, h.readPorts(now)...)
	return append(readings, h.readStuck(now)...)
}

// answered waits for the answer as long as the context lasts. An answer that is
// there counts also when the time is up.
func (q *question) answered(ctx context.Context) bool {
	select {
	case <-q.done:
		return true
	default:
	}
	select {
	case <-q.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// readDisks asks the file systems of Paths, and the shared ones that are mounted.
func (h *Health) readDisks(ctx context.Context, now spec.Instant) (readings []health.Reading) {
	shared := h.sharedMounts()
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(h.Paths, shared))))
	if h.last == nil {
		h.last = map[string]FileSystem{}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, path := range all {
		h.ask(path, now)
	}
	for _, path := range all {
		waited := int64(0)
		question := h.asked[path]
		if question.answered(ctx) {
			delete(h.asked, path)
			delete(h.last, path)
			if question.err != nil {
				continue // there is no such folder
			}
			h.last[path] = question.found
		} else {
			waited = int64(now.Sub(question.since) / spec.Second)
		}
		readings = append(readings, health.Reading{Rule: "disk_answer", Subject: path, Value: waited})
		// One that does not answer is as full as it was.
		found, known := h.last[path]
		if known && slices.Contains(h.Paths, path) && !slices.Contains(shared, path) {
			readings = append(readings, found.readings(path)...)
		}
	}
	return readings
}

// ask asks a file system, unless a question is on its way. The goroutine ends when
// the kernel answers: a call to a file server that hangs cannot be taken back, so
// there is never more than one for a path.
func (h *Health) ask(path string, now spec.Instant) {
	if h.asked == nil {
		h.asked = map[string]*question{}
	}
	if h.asked[path] != nil {
		return
	}
	question := &question{since: now, done: make(chan struct{})}
	h.asked[path] = question
	stat := h.Stat
	if stat == nil {
		stat = statFileSystem
	}
	go func() {
		defer close(question.done)
		question.found, question.err = stat(path)
	}()
}

func statFileSystem(path string) (FileSystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return FileSystem{}, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return FileSystem{
		Used:     st.Blocks - st.Bfree,
		Free:     st.Bavail,
		Files:    st.Files,
		Nodes:    st.Ffree,
		ReadOnly: st.Flags&unix.ST_RDONLY != 0,
	}, nil
}

// readings are those of a file system that has answered.
func (f FileSystem) readings(path string) []health.Reading {
	readOnly := int64(0)
	if f.ReadOnly {
		readOnly = 1
	}
	readings := []health.Reading{{Rule: "disk_readonly", Subject: path, Value: readOnly}}
	if usable := f.Used + f.Free; usable > 0 {
		readings = append(readings, health.Reading{
			Rule: "disk_space", Subject: path, Value: percent(f.Free, usable)})
	}
	if f.Files > 0 {
		readings = append(readings, health.Reading{
			Rule: "disk_inodes", Subject: path, Value: percent(f.Nodes, f.Files)})
	}
	return readings
}

// percent is a part of a whole, rounded down, without overflow.
func percent(part, whole uint64) int64 {
	if whole < 100 {
		return int64(part * 100 / whole)
	}
	return int64(min(part/(whole/100), 100))
}

// sharedMounts are the mount points of file servers.
func (h *Health) sharedMounts() (points []string) {
	text, err := fs.ReadFile(h.Source.Proc, "self/mountinfo")
	if err != nil {
		return nil
	}
	servers := []string{"nfs", "nfs4", "lustre", "ceph", "gpfs", "beegfs", "cifs", "fuse.ceph-fuse"}
	for line := range strings.Lines(string(text)) {
		mount, kind, found := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		kinds := strings.Fields(kind)
		if found && len(fields) > 4 && len(kinds) > 0 && slices.Contains(servers, kinds[0]) {
			points = append(points, unescapeMount(fields[4]))
		}
	}
	return points
}

// unescapeMount undoes what the kernel does with blanks in mount points.
func unescapeMount(point string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(point)
}

func (h *Health) clockError() (time.Duration, error) {
	if h.ClockError != nil {
		return h.ClockError()
	}
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return 0, err
	}
	return time.Duration(t.Maxerror) * time.Microsecond, nil
}

// readMemoryErrors reads the error counters of the memory controllers (EDAC).
func (h *Health) readMemoryErrors() (readings []health.Reading) {
	controllers, _ := fs.Glob(h.Source.Sys, "devices/system/edac/mc/mc[0-9]*")
	for _, controller := range controllers {
		for file, rule := range map[string]string{"ue_count": "memory_uncorrected", "ce_count": "memory_corrected"} {
			if n, err := readCount(h.Source.Sys, path.Join(controller, file)); err == nil {
				readings = append(readings, health.Reading{Rule: rule, Subject: path.Base(controller), Value: n})
			}
		}
	}
	return readings
}

// readCount reads a file with one number.
func readCount(files fs.FS, name string) (int64, error) {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
}

// readPorts measures for how long InfiniBand ports are down. A port that was never
// active has no cable, and is nobody's concern.
func (h *Health) readPorts(now spec.Instant) (readings []health.Reading) {
	files, _ := fs.Glob(h.Source.Sys, "class/infiniband/*/ports/*/state")
	if h.ports == nil {
		h.ports = map[string]spec.Instant{}
	}
	for _, file := range files {
		text, err := fs.ReadFile(h.Source.Sys, file)
		if err != nil {
			continue
		}
		parts := strings.Split(file, "/")
		port := parts[2] + "/" + parts[4]
		if strings.Contains(string(text), "ACTIVE") {
			h.ports[port] = now
		}
		if active, was := h.ports[port]; was {
			down := int64(now.Sub(active) / spec.Second)
			readings = append(readings, health.Reading{Rule: "ib_port", Subject: port, Value: down})
		}
	}
	return readings
}

// readStuck measures for how long processes have been waiting uninterruptibly. One
// that was seen otherwise in between begins again. The worst is given.
func (h *Health) readStuck(now spec.Instant) []health.Reading {
	entries, err := fs.Glob(h.Source.Proc, "[0-9]*/stat")
	if err != nil {
		return nil
	}
	seen := map[string]spec.Instant{}
	worst := health.Reading{Rule: "stuck_tasks", Subject: "no process"}
	for _, file := range entries {
		text, err := fs.ReadFile(h.Source.Proc, file)
		if err != nil {
			continue // it has just ended
		}
		// The name is in parentheses and may hold any character.
		before, after, found := strings.Cut(string(text), "(")
		end := strings.LastIndex(after, ")")
		if !found || end < 0 {
			continue
		}
		fields := strings.Fields(after[end+1:])
		const startTime = 19 // field 22 of the file
		if len(fields) <= startTime || fields[0] != "D" {
			continue
		}
		key := strings.TrimSpace(before) + "@" + fields[startTime] // numbers are used again
		since, known := h.stuck[key]
		if !known {
			since = now
		}
		seen[key] = since
		if waited := int64(now.Sub(since) / spec.Second); waited > worst.Value {
			worst.Value = waited
			worst.Subject = "process " + strings.TrimSpace(before) + " (" + after[:end] + ")"
		}
	}
	h.stuck = seen
	return []health.Reading{worst}
}
