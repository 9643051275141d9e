//go:build linux

package shepherd

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/minder"
	"golang.org/x/sys/unix"
)

// A step's results and log are written by a process of its user's. Whatever is
// in them must neither fill the shepherd's memory nor make a record of its
// journal that cannot be read again.
func TestResultsOfAHostileMinder(t *testing.T) {
	s := &Shepherd{log: slog.New(slog.DiscardHandler)}
	var results []byte
	add := func(v any) {
		b, err := cbor.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, b...)
	}
	add(minder.Result{Task: &plan.TaskExit{Rank: 1, Code: 3, Error: string(make([]byte, 1<<20)), Usage: plan.Usage{UserCPU: math.MaxInt64, PeakRSS: -5}}})
	add(minder.Result{Task: &plan.TaskExit{Rank: 2, Usage: plan.Usage{UserCPU: math.MaxInt64, SystemCPU: -7}}})
	for range maxTasks + 10 {
		results = append(results, 0xa1, 1, 0xa0) // a task that says nothing
	}
	for _, c := range []struct {
		whole bool
		log   func(*os.File) error
	}{
		{false, func(f *os.File) error { _, err := f.WriteString("no \xff text"); return err }},
		{false, func(f *os.File) error { return f.Truncate(1 << 40) }},
		{true, func(f *os.File) error { return nil }},
	} {
		r := &run{launchRecord: launchRecord{Key: plan.Key(1, 1, 0), Spool: t.TempDir()}}
		b := results
		if c.whole {
			done, err := cbor.Marshal(minder.Result{Done: true})
			if err != nil {
				t.Fatal(err)
			}
			b = append(b[:len(b):len(b)], done...)
		}
		if err := os.WriteFile(filepath.Join(r.Spool, minder.ResultsName), b, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(filepath.Join(r.Spool, minder.LogName))
		if err == nil {
			err = c.log(f)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		x := plan.Exit{Key: r.Key, Started: true}
		s.readResults(r, &x)
		if len(x.Message) > maxText+100 || !utf8.ValidString(x.Message) || x.Message == "" {
			t.Errorf("whole %v: a message of %d bytes: %.40q", c.whole, len(x.Message), x.Message)
		}
		if x.Usage.UserCPU != mostCPU || x.Usage.SystemCPU != 0 || x.Usage.PeakRSS != 0 {
			t.Errorf("whole %v: %+v", c.whole, x.Usage)
		}
		if list, _, _ := parseResults(filepath.Join(r.Spool, minder.ResultsName)); len(list) != maxTasks {
			t.Errorf("%d tasks", len(list))
		}
	}
}

// A lease that its user holds on a script makes other opens of it wait; a
// launcher does not.
func TestALeaseDoesNotStopALauncher(t *testing.T) {
	path := filepath.Join(t.TempDir(), scriptName)
	r := &run{}
	r.spec = &plan.RunSpec{Script: []byte("#!/bin/sh\n")}
	if err := os.WriteFile(path, r.spec.Script, scriptMode); err != nil {
		t.Fatal(err)
	}
	var mark scriptMark
	f, err := os.Open(path)
	if err == nil {
		err = unix.Fstat(int(f.Fd()), (*unix.Stat_t)(&mark))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		t.Skipf("SKIPPED: no leases on this filesystem: %v", err)
	}
	began := time.Now()
	if err := rewriteScript(path, r, &mark); err == nil || time.Since(began) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// TestStepThatCannotBeExecuted: what is executed for a step is our own program, which an image may
// have no dynamic linker for. The user has written no script that could be at fault.
func TestStepThatCannotBeExecuted(t *testing.T) {
	r := &run{launchRecord: launchRecord{Minded: true, Spool: "/spool/step1.1.0"}, spec: &plan.RunSpec{Tasks: &plan.Tasks{}}}
	text := execMessage(r, unix.ENOENT)
	if strings.Contains(text, "script") || !strings.Contains(text, "cannot execute muster-shepherd: No such file") {
		t.Errorf("%q", text)
	}
}
