// Package acked is the list of what a cluster acknowledged, kept by its
// users: a submission counts from the moment its line is on the disk. The
// chaos test writes it and the checker reads it; the cluster never sees it.
package acked

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
)

// Kind is what a job was meant to do, so that its record can be judged.
type Kind string

// The kinds.
const (
	OK    Kind = "ok"    // exits with 0
	Fails Kind = "fails" // exits with 7
)

// Entry is one acknowledged submission.
type Entry struct {
	Job   uint32 // the number that was printed
	Tasks int    // of an array 1..Tasks; 0 = a single job
	Kind  Kind
	At    int64 // ns since 1970 when the acknowledgement was read
}

// Keys are the jobs of the entry as people name them: 12, or 12_1 and 12_2.
func (e Entry) Keys() []string {
	if e.Tasks == 0 {
		return []string{strconv.FormatUint(uint64(e.Job), 10)}
	}
	keys := make([]string, e.Tasks)
	for i := range keys {
		keys[i] = fmt.Sprintf("%d_%d", e.Job, i+1)
	}
	return keys
}

// List is an open list. It is safe for several goroutines.
type List struct {
	mu sync.Mutex
	f  *os.File
	n  int
}

// Create makes a new list; an old one is not overwritten.
func Create(path string) (*List, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &List{f: file}, nil
}

// Add returns when the entry is on the disk.
func (l *List) Add(entry Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := fmt.Fprintf(l.f, "%d %d %s %d\n", entry.Job, entry.Tasks, entry.Kind, entry.At); err != nil {
		return err
	}
	l.n++
	return l.f.Sync()
}

// Len is the number of entries added.
func (l *List) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// Close closes the file.
func (l *List) Close() error { return l.f.Close() }

// Read reads a list.
func Read(r io.Reader) ([]Entry, error) {
	var entries []Entry
	in := bufio.NewScanner(r)
	for line := 1; in.Scan(); line++ {
		fields := strings.Fields(in.Text())
		if len(fields) != 4 {
			return nil, fmt.Errorf(
				"acknowledged jobs, line %d: %q has %d fields, want job, tasks, kind and time",
				line,
				in.Text(),
				len(fields),
			)
		}
		job, err := strconv.ParseUint(fields[0], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("acknowledged jobs, line %d: %w", line, err)
		}
		tasks, err := strconv.Atoi(fields[1])
		if err != nil {
			return nil, fmt.Errorf("acknowledged jobs, line %d: %w", line, err)
		}
		at, err := strconv.ParseInt(fields[3], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("acknowledged jobs, line %d: %w", line, err)
		}
		entries = append(
			entries, Entry{Job: uint32(job), Tasks: tasks, Kind: Kind(fields[2]), At: at},
		)
	}
	return entries, in.Err()
}
