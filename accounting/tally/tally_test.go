package tally_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/event/eventtest"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// whole folds a history in one piece.
func whole(t tallytest.TB, log []event.Envelope) (*tally.Tally, *tally.Batch) {
	ta := tally.New()
	for i := range log {
		if err := ta.Apply(&log[i]); err != nil {
			t.Fatalf("%v", err)
		}
	}
	return ta, ta.Take()
}

// appendOnly is a batch without its live rows, which depend on the cuts.
func appendOnly(b *tally.Batch) tally.Batch {
	c := tally.Batch{First: b.First}
	add(&c, b)
	c.Live = nil
	return c
}

func add(sum *tally.Batch, b *tally.Batch) {
	sum.Events = append(sum.Events, b.Events...)
	sum.Jobs = append(sum.Jobs, b.Jobs...)
	sum.Live = append(sum.Live, b.Live...)
	sum.Steps = append(sum.Steps, b.Steps...)
	sum.Nodes = append(sum.Nodes, b.Nodes...)
	sum.GPUs = append(sum.GPUs, b.GPUs...)
	sum.NodeStates = append(sum.NodeStates, b.NodeStates...)
	sum.Reasons = append(sum.Reasons, b.Reasons...)
	sum.Associations = append(sum.Associations, b.Associations...)
	sum.Last, sum.At = b.Last, b.At
}

type runKey struct {
	uid      uint64
	restarts uint32
}

// TestCuts: batches may be cut anywhere, and the tally resumed from a
// snapshot at any cut, also by folding quietly what is stored already.
func TestCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := tallytest.Random(t, 150).Log
		_, want := whole(t, log)
		got := tally.Batch{First: 1}
		ta := tally.New()
		live := map[runKey]tally.LiveRow{}
		snap, from := []byte(nil), 0
		for i := range log {
			if err := ta.Apply(&log[i]); err != nil {
				t.Fatalf("%v", err)
			}
			if i+1 < len(log) && rapid.IntRange(0, 9).Draw(t, "cut") > 0 {
				continue
			}
			b := ta.Take()
			add(&got, b)
			for _, r := range b.Live {
				k := runKey{r.UID, r.Restarts}
				if old, ok := live[k]; ok && r.Seq < old.Seq {
					t.Fatalf("run %v goes back from event %d to %d", k, old.Seq, r.Seq)
				}
				live[k] = r
			}
			switch rapid.IntRange(0, 5).Draw(t, "then") {
			case 0:
				var err error
				if snap, err = ta.Snapshot(); err != nil {
					t.Fatalf("%v", err)
				}
				from = i + 1
			case 1: // crash and resume
				ta = resume(t, snap, log[from:i+1])
				live = map[runKey]tally.LiveRow{}
				for _, r := range ta.AllLive() {
					live[runKey{r.UID, r.Restarts}] = r
				}
			}
		}
		if w, g := appendOnly(want), appendOnly(&got); !reflect.DeepEqual(w, g) {
			t.Fatalf("cut into batches the rows differ%s", differ(w, g))
		}
		open := map[runKey]tally.LiveRow{}
		for k, r := range live {
			if !r.Final {
				open[k] = r
			}
		}
		all := map[runKey]tally.LiveRow{}
		for _, r := range ta.AllLive() {
			all[runKey{r.UID, r.Restarts}] = r
		}
		if !reflect.DeepEqual(open, all) {
			t.Fatalf("the live rows are not the open runs\nwant %+v\ngot  %+v", all, open)
		}
	})
}

// differ names the first rows that differ.
func differ(w, g tally.Batch) string {
	wv, gv := reflect.ValueOf(w), reflect.ValueOf(g)
	for i := range wv.NumField() {
		a, b := wv.Field(i), gv.Field(i)
		if reflect.DeepEqual(a.Interface(), b.Interface()) {
			continue
		}
		name := wv.Type().Field(i).Name
		if a.Kind() != reflect.Slice || a.Len() != b.Len() {
			return fmt.Sprintf(" in %s", name)
		}
		for k := range a.Len() {
			if x, y := a.Index(k).Interface(), b.Index(k).Interface(); !reflect.DeepEqual(x, y) {
				return fmt.Sprintf(" in row %d of %s\nwant %+v\ngot  %+v", k, name, x, y)
			}
		}
	}
	return ""
}

func resume(t *rapid.T, snap []byte, tail []event.Envelope) *tally.Tally {
	ta := tally.New()
	if snap != nil {
		var err error
		if ta, err = tally.Restore(snap); err != nil {
			t.Fatalf("%v", err)
		}
	}
	ta.Quiet(true)
	for i := range tail {
		if err := ta.Apply(&tail[i]); err != nil {
			t.Fatalf("%v", err)
		}
	}
	if b := ta.Take(); b.Rows() != 0 {
		t.Fatalf("a quiet fold makes %d rows", b.Rows())
	}
	ta.Quiet(false)
	return ta
}

// TestConservation: what the rows say was allocated is what the events say,
// to the microsecond.
func TestConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := tallytest.Random(t, 200).Log
		ta, b := whole(t, log)
		type held struct{ cpu, mem, gpu int64 }
		var want held
		now := map[string]held{} // held by each run on each node
		var sum held
		at := int64(0)
		alloc := map[spec.JobUID]*spec.Allocation{}
		for i := range log {
			next := tally.Cut(log[i].At)
			want.cpu += sum.cpu * (next - at)
			want.mem += sum.mem * (next - at)
			want.gpu += sum.gpu * (next - at)
			at = next
			switch e := log[i].Event.(type) {
			case *event.JobStarted:
				alloc[e.UID] = e.Alloc
				for _, n := range e.Alloc.Nodes {
					h := held{int64(n.CPUs.Count()), n.Mem, int64(len(n.GPUs))}
					now[fmt.Sprint(e.UID, n.Name)] = h
					sum = held{sum.cpu + h.cpu, sum.mem + h.mem, sum.gpu + h.gpu}
				}
			case *event.JobNodeDone:
				h := now[fmt.Sprint(e.UID, e.Node)]
				sum = held{sum.cpu - h.cpu, sum.mem - h.mem, sum.gpu - h.gpu}
			}
		}
		var got held
		var gpuRows int64
		for _, r := range b.Nodes {
			got.cpu += r.CPUs * (r.To - r.From)
			got.mem += r.Mem * (r.To - r.From)
			got.gpu += r.GPUs * (r.To - r.From)
		}
		for _, r := range b.GPUs {
			gpuRows += r.To - r.From
		}
		if gpuRows != got.gpu {
			t.Fatalf("the devices were held for %d us, the nodes' parts say %d", gpuRows, got.gpu)
		}
		for _, r := range ta.AllLive() {
			for i := range r.HeldNodes {
				to := r.HeldTo[i]
				if to == 0 {
					to = at
				}
				got.cpu += r.HeldCPUs[i] * (to - r.Start)
				got.mem += r.HeldMem[i] * (to - r.Start)
				got.gpu += r.HeldGPUs[i] * (to - r.Start)
			}
		}
		if got != want {
			t.Fatalf("the rows add up to %+v, the events to %+v", got, want)
		}
	})
}

// run is a run as a plain reading of the events gives it.
type run struct {
	submit, start, end int64
	count              int64
	attempt            uint32
}

// TestRuns: each run of each job is exactly one row, over or live.
func TestRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := tallytest.Random(t, 200).Log
		ta, b := whole(t, log)
		want := map[runKey]*run{}
		cur := map[spec.JobUID]runKey{}
		for i := range log {
			at := tally.Cut(log[i].At)
			switch e := log[i].Event.(type) {
			case *event.JobSubmitted:
				cur[e.UID] = runKey{uid: uint64(e.UID)}
				r := &run{submit: at, count: 1}
				if a := e.Spec.Queue.Array; a != nil {
					r.count = a.Tasks.Len()
				}
				want[cur[e.UID]] = r
			case *event.ArrayTaskSplit:
				if rec := want[cur[e.Array]]; e.UID != e.Array {
					rec.count--
					cur[e.UID] = runKey{uint64(e.UID), cur[e.Array].restarts}
					want[cur[e.UID]] = &run{submit: rec.submit, count: 1}
				}
			case *event.JobStarted:
				want[cur[e.UID]].start, want[cur[e.UID]].attempt = at, e.Attempt
			case *event.JobEnded:
				want[cur[e.UID]].end = at
			case *event.JobRequeued:
				if r := want[cur[e.UID]]; r.end == 0 {
					r.end = at
				}
				k := cur[e.UID]
				k.restarts++
				cur[e.UID], want[k] = k, &run{submit: at, count: 1}
			}
		}
		got := map[runKey]*run{}
		enter := func(r *tally.JobRow) {
			k := runKey{r.UID, r.Restarts}
			if got[k] != nil {
				t.Fatalf("run %v has two rows", k)
			}
			got[k] = &run{r.Submit, r.Start, r.End, int64(r.Count), r.Attempt}
		}
		for i := range b.Jobs {
			enter(&b.Jobs[i])
		}
		for _, r := range ta.AllLive() {
			enter(&r.JobRow)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("the runs are not those of the events\nwant %v\ngot  %v", show(want), show(got))
		}
		if n := len(b.Events); n != len(log) {
			t.Fatalf("%d events in the audit trail of %d", n, len(log))
		}
	})
}

// TestFollowsState: what the tally holds of jobs and nodes is what the fold of
// package state holds, at any point of a history.
func TestFollowsState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := tallytest.Random(t, 150)
		ta, b := whole(t, h.Log)
		open := map[uint64]tally.LiveRow{}
		for _, r := range ta.AllLive() {
			open[r.UID] = r
		}
		h.State.Jobs.Range(func(_ uint64, j *state.Job) bool {
			r, ok := open[uint64(j.UID)]
			delete(open, uint64(j.UID))
			if over := j.State.Terminal() && !j.HoldsNodes(); over == ok {
				t.Fatalf("job uid %d is over: %v, live: %v", j.UID, over, ok)
			} else if over {
				return true
			}
			want := fmt.Sprintln(j.State, j.Restarts, tally.Cut(j.Submitted), tally.Cut(j.Eligible), j.ID, j.Task, j.Count(), j.Spec.Comment, j.Req.CPU)
			got := fmt.Sprintln(r.State, r.Restarts, r.Submit, r.Eligible, r.JobID, r.ArrayTask, r.Count, r.Comment, r.Req.CPUs)
			if j.State == spec.Pending {
				want += j.Reason.String()
				got += r.Reason
			} else {
				want += fmt.Sprint(j.Attempt, tally.Cut(j.Started), int64(j.Limit)/1000, j.Alloc.TRES.CPU, j.Usage.UserCPU/1000)
				got += fmt.Sprint(r.Attempt, r.Start, r.Limit, r.Alloc.CPUs, r.Used.UserCPU)
			}
			if got != want {
				t.Fatalf("job uid %d\nstate %s\ntally %s", j.UID, want, got)
			}
			return true
		})
		if len(open) > 0 {
			t.Fatalf("live rows of jobs that are gone: %v", open)
		}
		last := map[string]tally.NodeStateRow{}
		for _, r := range b.NodeStates {
			last[r.Node] = r
		}
		for name, r := range last {
			n := h.State.Node(name)
			if gone := n == nil || n.Removed; gone != (r.Class == tally.ClassGone) {
				t.Fatalf("node %s: gone is %v, row %+v", name, gone, r)
			} else if gone {
				continue
			}
			asleep := n.Power == event.PoweringDown || n.Power == event.PoweredDown
			if (n.Usable() && !asleep) != (r.Class == tally.ClassUp) || (n.Usable() && asleep && r.Class != tally.ClassPlanned) || r.Reason != n.Reason || r.CPUs != n.CPUs || (n.Inv != nil && r.GPUs != int64(len(n.GPUs))) {
				t.Fatalf("node %s: usable %v, reason %q, %d GPUs; row %+v", name, n.Usable(), n.Reason, len(n.GPUs), r)
			}
		}
	})
}

func show(m map[runKey]*run) string {
	out := map[runKey]run{}
	for k, r := range m {
		out[k] = *r
	}
	return fmt.Sprint(out)
}

// TestBodies: the audit trail's JSON is JSON, and says everything that is not
// empty.
func TestBodies(t *testing.T) {
	for _, k := range event.Kinds() {
		env := event.Envelope{Seq: 1, At: 1, Event: eventtest.Full(k)}
		ta := tally.New()
		// A lone event contradicts the ledger; its row is made all the same.
		if err := ta.Apply(&env); errors.Is(err, event.ErrNewer) {
			t.Errorf("%s is not known: %v", k, err)
		}
		b := ta.Take()
		if len(b.Events) != 1 || b.Events[0].Kind != k.String() {
			t.Fatalf("%s: rows %+v", k, b.Events)
		}
		var fields map[string]any
		if err := json.Unmarshal([]byte(b.Events[0].Body), &fields); err != nil {
			t.Errorf("%s: %v\n%s", k, err, b.Events[0].Body)
		}
		if n := reflect.TypeOf(env.Event).Elem().NumField(); len(fields) != n {
			t.Errorf("%s: %d of %d fields: %s", k, len(fields), n, b.Events[0].Body)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		env := eventtest.RandomEnvelope(t, eventtest.Wild{})
		env.Seq = 1
		ta := tally.New()
		_ = ta.Apply(&env)
		if b := ta.Take(); !json.Valid([]byte(b.Events[0].Body)) {
			t.Fatalf("not JSON: %q", b.Events[0].Body)
		}
	})
}

// TestRestated: at the first event of a day every node's state is said again.
func TestRestated(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(86400*100+3600))
	h.Nodes(2, 4, 1000, 1)
	h.Put(&event.NodeStateSet{Node: "n2", State: event.NodeDrain, Reason: "disk"})
	h.Wait(3 * spec.Day)
	h.Submit(tallytest.Ask{User: "alice"})
	_, b := whole(t, h.Log)
	var got []string
	for _, r := range b.NodeStates {
		if r.Restated {
			got = append(got, fmt.Sprintf("%d %s %s %s cpus=%d gpus=%d %s", r.At/1e6, r.Node, r.State, r.Class, r.CPUs, r.GPUs, r.Reason))
		}
	}
	want := []string{"8899200 n1 UP up cpus=4 gpus=1 ", "8899200 n2 DRAIN down cpus=4 gpus=1 disk"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRefuses: events that do not fit are refused, and damage is recognised.
func TestRefuses(t *testing.T) {
	ta := tally.New()
	err := ta.Apply(&event.Envelope{Seq: 2, Event: &event.JobEligible{UID: 1}})
	if !errors.Is(err, tally.ErrContradiction) {
		t.Errorf("a gap: %v", err)
	}
	err = tally.New().Apply(&event.Envelope{Seq: 1, Event: &event.JobEligible{UID: 1}})
	if !errors.Is(err, tally.ErrContradiction) {
		t.Errorf("an unknown job: %v", err)
	}
	h := tallytest.New(t, spec.AtUnix(1000))
	h.Nodes(1, 4, 1000, 0)
	h.Submit(tallytest.Ask{User: "alice"})
	ta, _ = whole(t, h.Log)
	snap, err := ta.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for i := range snap {
		bad := append([]byte(nil), snap...)
		bad[i] ^= 1
		if _, err := tally.Restore(bad); !errors.Is(err, tally.ErrSnapshot) && !errors.Is(err, event.ErrNewer) {
			t.Fatalf("bit flipped in byte %d: %v", i, err)
		}
	}
	if _, err := tally.Restore(snap[:len(snap)-1]); !errors.Is(err, tally.ErrSnapshot) {
		t.Errorf("cut short: %v", err)
	}
}

func BenchmarkApply(b *testing.B) {
	for _, quiet := range []bool{false, true} {
		b.Run(fmt.Sprintf("quiet=%v", quiet), func(b *testing.B) {
			log := jobs(b, 2000)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				ta := tally.New()
				ta.Quiet(quiet)
				for i := range log {
					if err := ta.Apply(&log[i]); err != nil {
						b.Fatal(err)
					}
				}
				ta.Take()
				n += len(log)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// jobs is a history of short jobs with a GPU each.
func jobs(t tallytest.TB, n int) []event.Envelope {
	h := tallytest.New(t, spec.AtUnix(1_790_812_800))
	h.Nodes(2, 64, 512_000, 8)
	for range n {
		uid := h.Submit(tallytest.Ask{Name: "train", User: "alice", UID: 1001, Account: "ml", QOS: "normal", CPUs: 4, Mem: 4000, GPUs: 1})
		h.Wait(spec.Second)
		h.Start(uid, "n1")
		h.Wait(spec.Minute)
		h.Finish(uid, spec.Usage{UserCPU: 50 * spec.Second, HasRSS: true, PeakRSS: 1 << 30})
		h.Put(&event.JobPurged{UIDs: []spec.JobUID{uid}})
	}
	return h.Log
}
