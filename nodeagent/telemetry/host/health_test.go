package host

import (
	"errors"
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/musterhpc/muster/nodeagent/health"
	"github.com/musterhpc/muster/spec"
)

// file is a file of a fixture.
func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

// stat is /proc/PID/stat of a process.
func stat(name, state string) *fstest.MapFile {
	return file("7 (" + name + ") " + state + " 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0\n")
}

// sickNode is a node with one of everything: a file server, two ports of which one
// has no cable, a memory controller, a process that waits.
func sickNode() (*Health, fstest.MapFS, fstest.MapFS) {
	proc := fstest.MapFS{
		"self/mountinfo": file("1 0 8:1 / / rw - ext4 /dev/sda rw\n" +
			"2 1 0:5 / /home\\040of rw,relatime shared:1 - nfs4 server:/home rw\n"),
		"7/stat": stat("a) (b", "D"),
		"8/stat": stat("well", "S"),
	}
	sys := fstest.MapFS{
		"devices/system/edac/mc/mc0/ue_count":     file("1\n"),
		"devices/system/edac/mc/mc0/ce_count":     file("77\n"),
		"class/infiniband/mlx5_0/ports/1/state":   file("4: ACTIVE\n"),
		"class/infiniband/mlx5_1/ports/1/state":   file("1: DOWN\n"),
		"class/infiniband/mlx5_0/ports/1/counter": file("0\n"),
	}
	h := &Health{
		Source:     Source{Proc: proc, Sys: sys},
		Paths:      []string{"/tmp", "/gone"},
		ClockError: func() (time.Duration, error) { return 1500 * time.Millisecond, nil },
		Stat: func(path string) (FileSystem, error) {
			if path == "/gone" {
				return FileSystem{}, fs.ErrNotExist
			}
			return FileSystem{Used: 981, Free: 19, Files: 50, Nodes: 1, ReadOnly: true}, nil
		},
	}
	return h, proc, sys
}

func TestHealth(t *testing.T) {
	h, proc, sys := sickNode()
	at := spec.Instant(1000 * spec.Second)
	got := h.Read(t.Context(), at)
	for _, want := range []health.Reading{
		{Rule: "disk_answer", Subject: "/home of"},
		{Rule: "disk_answer", Subject: "/tmp"},
		{Rule: "disk_readonly", Subject: "/tmp", Value: 1},
		{Rule: "disk_space", Subject: "/tmp", Value: 1},
		{Rule: "disk_inodes", Subject: "/tmp", Value: 2},
		{Rule: "clock_error", Subject: "the clock", Value: 1500},
		{Rule: "memory_uncorrected", Subject: "mc0", Value: 1},
		{Rule: "memory_corrected", Subject: "mc0", Value: 77},
		{Rule: "ib_port", Subject: "mlx5_0/1"},
		{Rule: "stuck_tasks", Subject: "no process"},
	} {
		if !slices.Contains(got, want) {
			t.Errorf("without %+v", want)
		}
	}
	if len(got) != 10 {
		t.Errorf("%d readings: %+v", len(got), got)
	}

	sys["class/infiniband/mlx5_0/ports/1/state"] = file("1: DOWN\n")
	got = h.Read(t.Context(), at.Add(61*spec.Second))
	for _, want := range []health.Reading{
		{Rule: "ib_port", Subject: "mlx5_0/1", Value: 61},
		{Rule: "stuck_tasks", Subject: "process 7 (a) (b)", Value: 61},
	} {
		if !slices.Contains(got, want) {
			t.Errorf("a minute later without %+v: %+v", want, got)
		}
	}

	proc["7/stat"] = stat("a) (b", "R")
	h.Read(t.Context(), at.Add(70*spec.Second))
	proc["7/stat"] = stat("a) (b", "D")
	got = h.Read(t.Context(), at.Add(80*spec.Second))
	if !slices.Contains(got, health.Reading{Rule: "stuck_tasks", Subject: "no process"}) {
		t.Errorf("a process that ran in between: %+v", got)
	}
}

// TestHungFileSystem: it is asked once, measured by how long it has not answered,
// and stops nobody else; when it answers it is well.
func TestHungFileSystem(t *testing.T) {
	h, _, _ := sickNode()
	hangs := make(chan struct{})
	asked := make(chan string, 100)
	h.Stat = func(path string) (FileSystem, error) {
		asked <- path
		if path == "/home of" {
			<-hangs
		}
		return FileSystem{}, errors.New("no figures")
	}
	at := spec.Instant(1000 * spec.Second)
	h.Read(t.Context(), at)
	got := h.Read(t.Context(), at.Add(45*spec.Second))
	if !slices.Contains(got, health.Reading{Rule: "disk_answer", Subject: "/home of", Value: 45}) {
		t.Errorf("%+v", got)
	}
	close(hangs)
	<-h.asked["/home of"].done
	h.Read(t.Context(), at.Add(50*spec.Second)) // takes the answer
	close(asked)
	times := 0
	for path := range asked {
		if path == "/home of" {
			times++
		}
	}
	if times != 1 {
		t.Errorf("it was asked %d times while it hung", times)
	}
}

// TestHealthOfThisMachine: the kernel's own answers can be read.
func TestHealthOfThisMachine(t *testing.T) {
	dir := t.TempDir()
	h := &Health{Source: This("/tmp"), Paths: []string{dir}}
	got := h.Read(t.Context(), spec.Instant(spec.Second))
	if !slices.ContainsFunc(got, func(r health.Reading) bool {
		return r.Rule == "disk_space" && r.Subject == dir && r.Value >= 0 && r.Value <= 100
	}) {
		t.Errorf("%+v", got)
	}
}
