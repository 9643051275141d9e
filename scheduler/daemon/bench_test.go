package daemon

import (
	"sync"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// BenchmarkSubmit is the controller's own share of a submission: 64 callers,
// script and environment of 12 KiB in all, no network and no disk.
func BenchmarkSubmit(b *testing.B) {
	w := startWith(b, 0)
	w.register("n1", "n2")
	w.must(scheduler.Configure{Config: bigConfig()})
	env := make([]byte, 8192)
	script := append([]byte("#!/bin/sh\n"), make([]byte, 4086)...)
	work := make(chan struct{})
	var wg sync.WaitGroup
	for range 64 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range work {
				if _, err := w.svc.Submit(b.Context(), &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: "b", TimeLimit: int64(spec.Hour)},
					Script: &apiv1.Blob{Data: script}, Environment: &apiv1.Blob{Data: env}}); err != nil {
					b.Error(err)
				}
			}
		}()
	}
	b.ReportAllocs()
	for b.Loop() {
		work <- struct{}{}
	}
	close(work)
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

func bigConfig() *spec.Config {
	c := testConfig()
	c.Limits.MaxJobCount = 100_000_000
	return c
}

// BenchmarkWholeLife submits no-op jobs and plays the agents: each start that
// the view shows is reported done at once.
func BenchmarkWholeLife(b *testing.B) {
	w := startWith(b, 0)
	w.register("n1", "n2")
	cfg := bigConfig()
	cfg.Timing.MinJobAge = spec.Second
	w.must(scheduler.Configure{Config: cfg})
	b.ReportAllocs()
	done := 0
	submitted := 0
	reported := map[scheduler.Run]bool{}
	b.ResetTimer()
	for range b.N {
		submitted++
		r := &request{cmd: scheduler.Submit{Spec: &spec.JobSpec{User: "u", UID: 1, Name: "n"}}, actor: event.Actor{Kind: event.ActorUser, UID: 1}}
		if err := w.c.writer.enqueueCommand(b.Context(), r); err != nil {
			b.Fatal(err)
		}
		if submitted-done > 200 {
			done += w.finish(reported)
		}
	}
	for done < submitted {
		_, changed := w.c.Changed()
		n := w.finish(reported)
		if done += n; n == 0 {
			<-changed
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// finish reports every running job done.
func (w *world) finish(reported map[scheduler.Run]bool) int {
	v := w.c.View().State
	n := 0
	v.Active.Range(func(uid uint64, _ struct{}) bool {
		j := v.Job(spec.JobUID(uid))
		run := scheduler.Run{UID: j.UID, Attempt: j.Attempt}
		if !j.State.Active() || reported[run] {
			return true
		}
		reported[run] = true
		n++
		r := &request{cmd: scheduler.Report{Node: j.Alloc.Nodes[0].Name, Run: run, Epoch: j.Epoch, Done: &scheduler.NodeDone{Batch: &event.StepResult{}}}}
		_ = w.c.writer.enqueueCommand(w.t.Context(), r)
		return true
	})
	return n
}
