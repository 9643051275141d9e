package replay

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/spec"
)

const small = `; Version: 2.2
; MaxProcs: 4
1 0 -1 100 4 -1 -1 4 100 -1 1 7 1 -1 -1 -1 -1 -1
2 10 -1 50.5 3 -1 -1 -1 60 -1 1 7 1 -1 -1 -1 -1 -1 0.5
3 20 -1 30 1 -1 -1 1 40 -1 1 8 2
4 30 -1 500 1 -1 -1 1 200 -1 1 8 2 -1 -1 -1 -1 -1
5 40 -1 10 0 -1 -1 0 20 -1 1 8 2 -1 -1 -1 -1 -1
6 50 -1 10 9 -1 -1 9 20 -1 1 8 2 -1 -1 -1 -1 -1
`

func parse(t testing.TB, text string) *Trace {
	tr, err := ReadSWF(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// A log that can be worked out by hand: job 4 may not start before job 2,
// which needs three processors, has ended its head start; job 4 runs into its
// limit; job 5 is no job; job 6 is larger than the machine.
func TestSmallLog(t *testing.T) {
	tr := parse(t, small)
	if tr.Skipped != 1 || len(tr.Rows) != 5 || tr.Rows[1].Run != 50 || tr.Rows[1].Procs != 3 {
		t.Fatalf("%+v", tr)
	}
	res := replayed(t, tr, 4, "easy")
	for i, want := range []struct{ start, end int64 }{{0, 100}, {100, 150}, {100, 130}, {130, 330}} {
		j := &res.Jobs[i]
		if start, end := wholeSeconds(j.Start.Sub(epoch)), wholeSeconds(j.End.Sub(epoch)); start != want.start || end != want.end {
			t.Errorf("job %d runs from %d to %d, want %+v", i+1, start, end, want)
		}
	}
	if res.Jobs[4].Refused == nil || res.Refused != 1 {
		t.Errorf("a job that is larger than the machine was not refused")
	}
	var out bytes.Buffer
	if err := tr.WriteSWF(&out, res); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "2 10 90 50 3 -1 -1 3 60 -1 -1 7 1 -1 -1 -1 -1 -1\n") || !strings.HasPrefix(out.String(), "; Version: 2.2\n") || !strings.Contains(out.String(), "\n6 50 -1 -1 9 ") {
		t.Errorf("the schedule was written as\n%s", &out)
	}
}

func TestBadTraces(t *testing.T) {
	for text, want := range map[string]string{
		"": "there is no job", "; only a comment\n": "there is no job", "1 2 3\n": "line 1: 3 fields", "1 0 -1 x 4 -1 -1 4 100 -1\n": `line 1: field 4: "x" is no number`,
		"1 0 -1 99999999999999999 4 -1 -1 4 100 -1\n": "too large",
	} {
		if _, err := ReadSWF(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"1 0 -1 9 4 -1 -1 4 100 -1\n2 0 -1", "1 0 -1 9 4 -1 -1 4 100 -1\n"} {
		if _, err := ReadSWF(io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrUnexpectedEOF))); err == nil || !strings.Contains(err.Error(), "cut off") {
			t.Errorf("%q, then nothing: %v", text, err)
		}
	}
	if _, err := ReadITP(strings.NewReader("a,b\n1,2\n"), ""); err == nil || !strings.Contains(err.Error(), `no column "cluster"`) {
		t.Error(err)
	}
	if _, err := ReadITP(strings.NewReader("cluster,job_id,submit_s,duration_s,num_gpu\nc1,a,0,5,1\n"), "c2"); err == nil {
		t.Error("a cluster that is not in the file was read")
	}
	if _, err := RuleNamed("fair"); err == nil || !strings.Contains(err.Error(), "easy-sjbf") {
		t.Error(err)
	}
}

func TestTables(t *testing.T) {
	tr, err := ReadITP(strings.NewReader("cluster,job_id,submit_s,duration_s,num_gpu\nc1,a,20,5,1\nc2,b,0,5,1\nc1,c,10,7,8\nc1,d,10,7,0\n"), "")
	if err != nil || len(tr.Rows) != 2 || tr.Rows[0].Name != "c" || tr.Rows[0].GPUs != 8 || tr.Skipped != 1 {
		t.Errorf("%+v %v", tr, err)
	}
	const head = "job_unique_id,submit_time,eligible_time,start_time,end_time,time_limit_sec,elapsed_time,state,account_id,partition,req_cpus,alloc_nodes,req_mem_mb,req_tres,gpus\n"
	tr, err = ReadGraham(strings.NewReader(head + "5,2021-04-24 18:26:01,2021-04-24 18:26:02,2021-04-24 18:27:01,x,600,30,COMPLETED,9,21,24,1,1,\"a,b\",8\n"))
	if err != nil || len(tr.Rows) != 1 || tr.Rows[0] != (Row{ID: 5, Wait: 60, Run: 30, Procs: 24, Limit: 600, User: 9, Group: 9, GPUs: 8}) {
		t.Errorf("%+v %v", tr, err)
	}
}

// Under every policy each job runs once, never more than there is at a time,
// and the same replay gives the same schedule; first come, first served starts
// in order; where promises are kept, nobody waits longer than under that.
func TestAnySchedule(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tr := &Trace{}
		at := int64(0)
		for i := range rapid.IntRange(1, 40).Draw(rt, "jobs") {
			at += int64(rapid.IntRange(0, 40).Draw(rt, "gap"))
			limit := int64(rapid.IntRange(1, 100).Draw(rt, "limit"))
			tr.Rows = append(tr.Rows, Row{ID: int64(i + 1), Submit: at, Procs: int64(rapid.IntRange(1, 8).Draw(rt, "procs")), Limit: limit, Run: int64(rapid.IntRange(1, int(limit)).Draw(rt, "run")), User: int64(i % 3)})
		}
		for _, rule := range Rules() {
			var results [2]*Result
			for k := range results {
				w := tr.Workload(Machine{CPUs: 8}.Config(rule.Settings()))
				res, err := Run(context.Background(), w, rule, nil)
				if err != nil {
					rt.Fatalf("%s: %v", rule.Name, err)
				}
				results[k] = res
			}
			res := results[0]
			if !slices.EqualFunc(res.Jobs, results[1].Jobs, func(a, b Outcome) bool { return a == b }) {
				rt.Fatalf("%s: two replays differ", rule.Name)
			}
			for i := range res.Jobs {
				j := &res.Jobs[i]
				if !j.Started() || j.Start < j.Submit || j.End.Sub(j.Start) != tr.runOf(i) {
					rt.Fatalf("%s: job %d: %+v", rule.Name, i+1, j)
				}
				used := int64(0)
				for k := range res.Jobs {
					if o := &res.Jobs[k]; o.Start <= j.Start && (o.End > j.Start || o == j) {
						used += tr.Rows[k].Procs
					}
				}
				if used > 8 {
					rt.Fatalf("%s: %d of 8 processors are used when job %d starts", rule.Name, used, i+1)
				}
				if rule.Name == "fcfs" && i > 0 && j.Start < res.Jobs[i-1].Start {
					rt.Fatalf("fcfs: job %d overtakes job %d", i+1, i)
				}
			}
		}
	})
}

// Plans that are only estimates decide nothing: without them every job starts
// when it does with them.
func TestEstimatesDecideNothing(t *testing.T) {
	rule, err := RuleNamed("muster")
	if err != nil {
		t.Fatal(err)
	}
	all := rule
	all.Discipline.Depth = 1 << 30
	planned := 0
	rapid.Check(t, func(rt *rapid.T) {
		tr := &Trace{}
		at := int64(0)
		for i := range rapid.IntRange(20, 60).Draw(rt, "jobs") {
			at += int64(rapid.IntRange(0, 15).Draw(rt, "gap"))
			limit := int64(rapid.IntRange(1, 200).Draw(rt, "limit"))
			gpus := int64(rapid.SampledFrom([]int{1, 1, 2, 4, 8, 16}).Draw(rt, "gpus"))
			tr.Rows = append(tr.Rows, Row{ID: int64(i + 1), Submit: at, Procs: gpus, GPUs: gpus, Limit: limit, Run: int64(rapid.IntRange(1, int(limit)).Draw(rt, "run")), User: int64(i % 3)})
		}
		replay := func(r Rule) *Result {
			res, err := Run(context.Background(), tr.Workload(Machine{Nodes: 4, CPUs: 4, GPUs: 4}.Config(r.Settings())), r, nil)
			if err != nil {
				rt.Fatal(err)
			}
			return res
		}
		with, without := replay(all), replay(rule)
		for i := range with.Jobs {
			if a, b := with.Jobs[i], without.Jobs[i]; a.Start != b.Start || a.End != b.End {
				rt.Fatalf("job %d: %+v with estimates, %+v without", i+1, a, b)
			}
		}
		if with.MaxQueue > int(rule.Settings().Firm) {
			planned++
		}
	})
	if planned == 0 {
		t.Error("no queue was deeper than what is planned firmly")
	}
}

// A job that is suspended for another runs for as long as it would have,
// later.
func TestSuspended(t *testing.T) {
	config := &spec.Config{ClusterName: "t", Nodes: []spec.NodeSpec{{Name: "n", CPUs: 4, Mem: 4000}}}
	config.Sched = spec.SchedConfig{Backfill: true, PreemptType: "preempt/partition_prio", PreemptMode: "SUSPEND,GANG"}
	config.Partitions = []spec.PartitionSpec{{Name: "low", NodeNames: []string{"n"}, DefaultTime: spec.Hour, MaxTime: spec.Hour, State: spec.PartitionUp, PriorityTier: 1},
		{Name: "top", NodeNames: []string{"n"}, DefaultTime: spec.Hour, MaxTime: spec.Hour, State: spec.PartitionUp, PriorityTier: 2}}
	job := func(part string, submit, run int64) Job {
		return Job{Submit: epoch.Add(spec.Span(submit) * spec.Second), Run: spec.Span(run) * spec.Second,
			Spec: &spec.JobSpec{Name: "j", User: "u", UID: 7, Partitions: []string{part}, Size: spec.Size{Tasks: 4}}}
	}
	res, err := Run(t.Context(), &Workload{Config: config, Jobs: []Job{job("low", 0, 100), job("top", 40, 50)}}, Rule{Name: "muster"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ start, end int64 }{{0, 151}, {41, 91}} {
		j := &res.Jobs[i]
		if start, end := wholeSeconds(j.Start.Sub(epoch)), wholeSeconds(j.End.Sub(epoch)); start != want.start || end != want.end {
			t.Errorf("job %d runs from %d to %d, want %+v", i+1, start, end, want)
		}
	}
}
