package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.b.String()
	l.b.Reset()
	return out
}

// TestVerbosity sets level and flags of a running controller and reads its log.
func TestVerbosity(t *testing.T) {
	out, level := &lines{}, new(slog.LevelVar)
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
	w := startDeps(t, testConfig(), func(d *Deps) {
		d.Logger, d.Verbosity = log, NewVerbosity(log, level)
		d.Identify = func(context.Context) Caller { return Caller{User: "root", Admin: true} }
	})
	w.register("n1", "n2")
	set := func(req *apiv1.SetLogRequest) *apiv1.LogInfo {
		t.Helper()
		rep, err := w.svc.SetLog(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := w.svc.GetConfig(t.Context(), &apiv1.GetConfigRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.GetLog().String(); got != rep.GetLog().String() {
			t.Errorf("the configuration says %s, the answer %s", got, rep.GetLog())
		}
		return rep.GetLog()
	}
	started := func() string {
		before := w.c.View().Pass.Passes
		id := w.submit(&apiv1.JobSpec{Name: "j", WorkDir: "/"})
		w.until("the job has started", func() bool {
			j := w.c.View().State.JobByID(spec.JobID(id))
			return j != nil && j.State == spec.Running
		})
		w.until("the pass is counted", func() bool { return w.c.View().Pass.Passes > before })
		w.must(scheduler.Tick{}) // is answered when all batches before it have been noted
		return out.take()
	}
	if got := started(); strings.Contains(got, "JobStarted") {
		t.Errorf("without a flag: %s", got)
	}
	set(&apiv1.SetLogRequest{Flags: []string{"tracejobs", "Backfill"}})
	if got := started(); !strings.Contains(got, "event=JobStarted") || !strings.Contains(got, "job=2 ") || !strings.Contains(got, "msg=pass") {
		t.Errorf("with TraceJobs and Backfill: %s", got)
	}
	if got := set(&apiv1.SetLogRequest{Flags: []string{"-TraceJobs", "+Gres"}}); !slices.Equal(got.GetFlags(), []string{"Backfill", "Gres"}) {
		t.Errorf("flags: %v", got)
	}
	if got := set(&apiv1.SetLogRequest{Flags: []string{"Steps"}}); !slices.Equal(got.GetFlags(), []string{"Steps"}) {
		t.Errorf("flags without signs: %v", got)
	}
	out.take()
	on := true
	if got := set(&apiv1.SetLogRequest{Scheduling: &on}); !got.GetScheduling() {
		t.Errorf("%v", got)
	}
	if got := started(); !strings.Contains(got, "event=JobStarted") || strings.Contains(got, "event=JobSubmitted") {
		t.Errorf("with schedloglevel: %s", got)
	}
	for text, want := range map[string]string{"quiet": "quiet", "2": "error", "warn": "warn", "DEBUG3": "debug", "4": "debug", "info": "info"} {
		if got := set(&apiv1.SetLogRequest{Level: text}).GetLevel(); got != want {
			t.Errorf("level %s is %s", text, got)
		}
	}
	set(&apiv1.SetLogRequest{Level: "quiet"})
	out.take()
	if got := started(); got != "" {
		t.Errorf("quiet: %s", got)
	}
	for _, bad := range []*apiv1.SetLogRequest{{Level: "10"}, {Flags: []string{"-Steps", "+Nosuch"}}, {Level: "debug", Flags: []string{"Nosuch"}}} {
		if _, err := w.svc.SetLog(t.Context(), bad); spec.CodeOf(err) != spec.CodeBadRequest {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if got := set(&apiv1.SetLogRequest{}); got.GetLevel() != "quiet" || !slices.Equal(got.GetFlags(), []string{"Steps"}) {
		t.Errorf("a refused change left %v", got)
	}
}

// TestDebugFlagsHaveRecords: each flag is that of an event, or of passes or calls.
func TestDebugFlagsHaveRecords(t *testing.T) {
	have := DebugBackfill | DebugAuditRPCs
	for _, kind := range event.Kinds() {
		have |= flagOfEvent(kind)
	}
	for _, row := range debugFlags() {
		if have&row.flag == 0 {
			t.Errorf("%s has no records", row.name)
		}
	}
}
