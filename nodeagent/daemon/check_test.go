package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// doctor looks at a node's health.
type doctor struct{ seen chan error }

func (d *doctor) Check(context.Context) error { return <-d.seen }

// TestTwoLookAtTheNode: what program and rules find is one reason, and the node is
// well only when both have looked and say so.
func TestTwoLookAtTheNode(t *testing.T) {
	s := newStage(t)
	core := s.bench.core
	core.awaited = [checkSources]bool{true, true}
	told := func() (failed []string) {
		for _, p := range core.outbox.queue {
			failed = append(failed, p.report.GetNodeCheck().GetFailed())
		}
		return failed
	}
	core.Checked(byRules, "")
	if got := told(); len(got) != 0 {
		t.Errorf("told %q before the program has looked", got)
	}
	core.Checked(byProgram, "fan")
	core.Checked(byRules, "disk")
	core.Checked(byProgram, "")
	core.Checked(byRules, "disk")
	core.Checked(byRules, "")
	if got := told(); !slices.Equal(got, []string{"fan", "fan; disk", "disk", ""}) {
		t.Errorf("told %q", got)
	}
}

// TestHealthIsLookedAt: at its own intervals, once at a time, only while the
// node is in the state that was asked for; the controller is told what is new.
func TestHealthIsLookedAt(t *testing.T) {
	s := newStage(t)
	cfg := testConfig()
	cfg.CheckEvery, cfg.CheckFirst, cfg.CheckIdle = 10*spec.Second, 5*spec.Second, true
	d := &doctor{seen: make(chan error)}
	a := New(cfg, Deps{Shepherd: s.shep, Credentials: s.bench.creds, Host: fakeHost{}, Telemetry: s.tele, Spool: s.spool, Clock: s.clock, Check: d})
	a.checkAt = s.clock.Now().Add(cfg.CheckFirst)
	a.listAt, a.saveAt = spec.FarFuture, spec.FarFuture
	tell := func(err error) (failed []string) {
		t.Helper()
		d.seen <- err
		a.wg.Wait()
		for _, f := range a.inbox.take() {
			f()
		}
		for _, p := range a.core.outbox.queue {
			failed = append(failed, p.report.GetNodeCheck().GetFailed())
		}
		return failed
	}
	var at []int
	for second := range 40 {
		if a.doDue(t.Context()); a.checks && !slices.Contains(at, second-1) {
			at = append(at, second)
			switch second {
			case 5:
				if got := tell(nil); !slices.Equal(got, []string{""}) {
					t.Errorf("told %q at first", got)
				}
			case 15:
				if got := tell(errors.New("the disk is full")); !slices.Equal(got, []string{"", "the disk is full"}) {
					t.Errorf("told %q of a full disk", got)
				}
			case 25:
				if got := tell(errors.New("the disk is full")); len(got) != 2 {
					t.Errorf("told %q of what is known", got)
				}
			case 35:
				if got := tell(nil); !slices.Equal(got, []string{"", "the disk is full", ""}) {
					t.Errorf("told %q when it was well", got)
				}
			}
		}
		s.clock.Advance(spec.Second)
	}
	if !slices.Equal(at, []int{5, 15, 25, 35}) {
		t.Errorf("looked at at %v", at)
	}
	a.core.runs[key(1)] = &run{key: key(1)} // a job: only idle nodes were to be looked at
	for range 20 {
		if a.doDue(t.Context()); a.checks {
			t.Fatal("looked at while a job runs")
		}
		s.clock.Advance(spec.Second)
	}
	if r := a.core.outbox.queue[1].report; r.GetRun().GetJobUid() != 0 || r.GetKind().(*apiv1.Report_NodeCheck) == nil {
		t.Errorf("%v", r)
	}
}
