package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	counted "github.com/musterhpc/muster/accounting/tally"
)

func TestContentHasItsSizeAndIsUniqueWhereAsked(t *testing.T) {
	for _, size := range []int{10, 64, 4096, 8192} {
		shared, unique := newContent(size, 2*size, false), newContent(size, 2*size, true)
		s1, e1 := shared.of(1)
		s2, e2 := shared.of(2)
		if !bytes.Equal(s1.GetData(), s2.GetData()) || !bytes.Equal(e1.GetData(), e2.GetData()) {
			t.Errorf("%d bytes: shared content differs", size)
		}
		u1, v1 := unique.of(1)
		u2, v2 := unique.of(2)
		if bytes.Equal(u1.GetData(), u2.GetData()) || bytes.Equal(v1.GetData(), v2.GetData()) {
			t.Errorf("%d bytes: unique content is the same", size)
		}
		if size >= 64 && (len(s1.GetData()) != size || len(u1.GetData()) != size || len(e1.GetData()) != 2*size || len(v1.GetData()) != 2*size) {
			t.Errorf("asked for %d and %d bytes, have %d, %d, %d, %d", size, 2*size, len(s1.GetData()), len(u1.GetData()), len(e1.GetData()), len(v1.GetData()))
		}
		if !bytes.HasPrefix(u2.GetData(), []byte("#!/bin/sh\n")) || !bytes.HasSuffix(v2.GetData(), []byte{0}) {
			t.Errorf("%d bytes: script %q, environment ends with %q", size, u2.GetData(), v2.GetData()[len(v2.GetData())-1:])
		}
	}
}

func TestPercentilesAreNearestRank(t *testing.T) {
	var times []time.Duration
	for i := 200; i >= 1; i-- {
		times = append(times, time.Duration(i)*time.Millisecond)
	}
	if got, want := summariseTimes(times), (latencies{P50: 100, P99: 198, Max: 200}); got != want {
		t.Errorf("have %+v, want %+v", got, want)
	}
	if got, want := summariseTimes(times[:1]), (latencies{P50: 1, P99: 1, Max: 1}); got != want {
		t.Errorf("of one: have %+v, want %+v", got, want)
	}
	if got := summariseTimes(nil); got != (latencies{}) {
		t.Errorf("of none: %+v", got)
	}
}

func TestSubmissionsInPasses(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	passes := []span{{at(100), at(200)}, {at(500), at(600)}}
	for _, c := range []struct {
		from, to int
		in       bool
	}{{0, 50, false}, {50, 101, true}, {120, 130, true}, {199, 260, true}, {201, 499, false}, {50, 700, true}, {601, 700, false}} {
		if s := (&sample{at(c.from), at(c.to)}); s.in(passes) != c.in {
			t.Errorf("a submission from %d to %d ms: in a pass %v, want %v", c.from, c.to, !c.in, c.in)
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		out  string // in standard output
		err  string // in standard error
	}{
		{"", 0, "muster-bench measures", ""},
		{"--help", 0, "Examples:", ""},
		{"submit --help", 0, "--stream", ""},
		{"run --help", 0, "--jobs", ""},
		{"gpu --help", 0, "--days", ""},
		{"gpu --nodes 0", 2, "", "--nodes"},
		{"restart --help", 0, "--tail", ""},
		{"array --help", 0, "--tasks", ""},
		{"command --help", 0, "-- COMMAND", ""},
		{"command", 2, "", "name the command after --"},
		{"command --clients 3 --times 20 -- sh -c true", 0, "sh -c true, 20 times by 3, 0 failed", ""},
		{"command --times 2 -- sh -c exit\t4", 1, "2 failed", "exit status 4"},
		{"sbmit", 2, "", `unknown measurement "sbmit"`},
		{"submit --jbos 3", 2, "", "unknown flag: --jbos"},
		{"submit 3", 2, "", `unknown argument "3"`},
		{"submit --jobs 0 --clients 0", 2, "", "--clients, --jobs must be at least 1"},
		{"run --socket /nowhere/muster.sock", 1, "", "/nowhere/muster.sock does not answer"},
		{"submit --socket= --config /nowhere/muster.yaml", 1, "", "where is the controller?"},
		{"passes --help", 0, "--rate", ""},
		{"passes --musterd /nowhere/musterd", 2, "", "/nowhere/musterd"},
		{"passes --musterd /dev/null --nodes 0", 2, "", "--nodes must be at least 1"},
		{"restart --musterd /nowhere/musterd", 2, "", "/nowhere/musterd"},
		{"accounting --dir /dev/null/x", 1, "", "/dev/null"},
		{"accounting --dir /dev/null/x --beside 1000", 1, "", "/dev/null"},
		{"gpu --dir /dev/null/x", 1, "", "/dev/null"},
	} {
		var out, errOut strings.Builder
		code := command(context.Background(), words(c.args), &out, &errOut)
		if code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errOut.String(), c.err) {
			t.Errorf("muster-bench %s: exit %d, want %d\nstdout: %s\nstderr: %s\nwant: %q, %q", c.args, code, c.code, &out, &errOut, c.out, c.err)
		}
	}
}

// words splits at spaces; a tab stands for a space within a word.
func words(s string) []string {
	out := strings.FieldsFunc(s, func(r rune) bool { return r == ' ' })
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], "\t", " ")
	}
	return out
}

func TestResultsAreTextAndJSON(t *testing.T) {
	for _, r := range []result{&submitResult{Refused: 3, Reasons: []string{"3: no"}}, &runResult{States: map[string]int{"FAILED": 2, "COMPLETED": 7}}, &restartResult{}, &passesResult{}, &arrayResult{}} {
		var text, encoded bytes.Buffer
		if err := show(&text, r, false); err != nil {
			t.Fatal(err)
		}
		if err := show(&encoded, r, true); err != nil {
			t.Fatal(err)
		}
		var back map[string]any
		if err := json.Unmarshal(encoded.Bytes(), &back); err != nil || back["machine"] == nil {
			t.Errorf("%T: %v\n%s", r, err, &encoded)
		}
		if !strings.Contains(text.String(), "machine: ") {
			t.Errorf("%T does not name the machine's load:\n%s", r, &text)
		}
	}
}

func TestSchedulerIsMeasuredInMemory(t *testing.T) {
	var out, errOut bytes.Buffer
	if code := command(context.Background(), []string{"scheduler", "--nodes", "20", "--pending", "60", "--tasks", "40", "--times", "2", "--json"}, &out, &errOut); code != exitOK {
		t.Fatalf("exit %d: %s", code, &errOut)
	}
	var r schedulerResult
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	// The array counts as one that waits, and has a reservation for each of its next tasks.
	if r.Running == 0 || r.Queue < 30 || r.Tested < r.Queue || int64(r.Reserved) < r.Queue || r.Full.P50 <= 0 || r.Incremental.P50 <= 0 || r.RSS == 0 {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"--pending", "0"}, {"--pending", "-1"}, {"--nodes", "0"}, {"--times", "0"}, {"x"}} {
		if code := command(context.Background(), append([]string{"scheduler"}, args...), &out, &errOut); code != exitUsage {
			t.Errorf("%v: exit %d, want %d", args, code, exitUsage)
		}
	}
}

// TestSamplesAreWhatAgentsSend: every device has a sample every ten seconds,
// with all that simulated devices measure, some of them in the hands of jobs.
func TestSamplesAreWhatAgentsSend(t *testing.T) {
	b := &gpuBench{nodes: 1, gpus: 4, hours: 2}
	times, held := map[string]map[int64]bool{}, 0
	if err := b.node(t.Context(), 0, func(rows []counted.GPUSample) error {
		for _, r := range rows {
			if times[r.UUID] == nil {
				times[r.UUID] = map[int64]bool{}
			}
			times[r.UUID][r.At] = true
			if (r.User != "") != (r.UID != 0) {
				t.Fatalf("%+v", r)
			}
			if r.User != "" {
				held++
			}
			for i, v := range r.Values {
				if v < 0 {
					t.Fatalf("field %d is not measured", i)
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(times) != 4 || held == 0 || held == 4*720 {
		t.Errorf("%d devices, %d samples of jobs", len(times), held)
	}
	for uuid, at := range times {
		if len(at) != 720 {
			t.Errorf("%s has %d samples", uuid, len(at))
		}
	}
}
