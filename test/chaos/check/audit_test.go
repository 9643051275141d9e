package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/test/chaos/acked"
)

// judge reads facts as they lie in files and prints the verdict's last line.
func judge(t *testing.T, list, effects, queue, sacct string, lost ...loss) (string, verdict) {
	t.Helper()
	f := facts{losses: lost}
	var err error
	if f.acked, err = acked.Read(strings.NewReader(list)); err != nil {
		t.Fatal(err)
	}
	if f.marks, err = readMarks(strings.NewReader(effects)); err != nil {
		t.Fatal(err)
	}
	if f.queued, err = readQueue(queue); err != nil {
		t.Fatal(err)
	}
	if f.rows, err = readRows(sacct); err != nil {
		t.Fatal(err)
	}
	v := auditFacts(f)
	var out strings.Builder
	if v.print(&out) != v.good() {
		t.Error("print and good disagree")
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[len(lines)-1], v
}

func TestAudit(t *testing.T) {
	const okList, okEffects, okRow = "5 0 ok 1\n", "5 0 start 100 7\n5 0 end 200 7\n", "5|COMPLETED|0:0|10:00:00|10:00:01|0\n"
	for _, c := range []struct{ name, list, effects, queue, sacct, want string }{
		{"a job that ran", okList, okEffects, "", okRow, "acked 1 lost 0 double-run 0 unaccounted 0"},
		{"a job that nobody knows", okList, "", "", "", "acked 1 lost 1 double-run 0 unaccounted 0"},
		{"a job that waits", okList, "", "5|PENDING\n", "", "acked 1 lost 0 double-run 0 unaccounted 0"},
		{"a number given to two jobs", okList + okList, okEffects, "", okRow, "acked 2 lost 1 double-run 0 unaccounted 0"},
		{"it ran without a record", okList, okEffects, "", "", "acked 1 lost 0 double-run 0 unaccounted 1"},
		{"its record is not final", okList, okEffects, "", "5|RUNNING|0:0|10:00:00|Unknown|0\n", "acked 1 lost 0 double-run 0 unaccounted 1"},
		{"two records of one attempt", okList, okEffects, "", okRow + okRow, "acked 1 lost 0 double-run 0 unaccounted 1"},
		{"an invented end", okList, "5 0 start 100 7\n", "", okRow, "acked 1 lost 0 double-run 0 unaccounted 1"},
		{"an invented run", okList, "", "", okRow, "acked 1 lost 0 double-run 0 unaccounted 1"},
		{"an invented success", "5 0 fails 1\n", okEffects, "", okRow, "acked 1 lost 0 double-run 0 unaccounted 1"},
		{"a failure as it should be", "5 0 fails 1\n", okEffects, "", "5|FAILED|7:0|10:00:00|10:00:01|0\n", "acked 1 lost 0 double-run 0 unaccounted 0"},
		{"an invented failure", okList, okEffects, "", "5|FAILED|1:0|10:00:00|10:00:01|0\n", "acked 1 lost 0 double-run 0 unaccounted 1"},
		{"killed with its node", okList, "5 0 start 100 7\n", "", "5|NODE_FAIL|0:0|10:00:00|10:00:01|0\n", "acked 1 lost 0 double-run 0 unaccounted 0"},
		{"requeued, then it ran", okList, "5 0 start 100 7\n5 1 start 300 9\n5 1 end 400 9\n", "",
			"5|NODE_FAIL|0:0|10:00:00|10:00:01|0\n5|COMPLETED|0:0|10:00:03|10:00:04|1\n", "acked 1 lost 0 double-run 0 unaccounted 0"},
		{"requeued, one record missing", okList, "5 0 start 100 7\n5 1 start 300 9\n5 1 end 400 9\n", "", okRow, "acked 1 lost 0 double-run 0 unaccounted 1"},
		{"requeued and started again within one second", okList, "5 0 start 100 7\n5 1 start 300 9\n5 1 end 400 9\n", "",
			"5|NODE_FAIL|0:0|10:00:00|10:00:00|0\n5|COMPLETED|0:0|10:00:00|10:00:00|1\n", "acked 1 lost 0 double-run 0 unaccounted 0"},
		{"requeued, one record of another attempt", okList, "5 0 start 100 7\n5 1 start 300 9\n5 1 end 400 9\n", "",
			"5|NODE_FAIL|0:0|10:00:00|10:00:00|0\n5|COMPLETED|0:0|10:00:03|10:00:04|2\n", "acked 1 lost 0 double-run 0 unaccounted 1"},
		{"completed twice", okList, "5 0 start 100 7\n5 0 end 200 7\n5 1 start 300 9\n5 1 end 400 9\n", "",
			okRow + "5|COMPLETED|0:0|10:00:03|10:00:04|1\n", "acked 1 lost 0 double-run 0 unaccounted 1"},
		{"attempts that overlap", okList, "5 0 start 100 7\n5 1 start 150 9\n5 0 end 200 7\n5 1 end 400 9\n", "",
			"5|NODE_FAIL|0:0|10:00:00|10:00:01|0\n5|COMPLETED|0:0|10:00:03|10:00:04|1\n", "acked 1 lost 0 double-run 1 unaccounted 0"},
		{"an attempt that started twice", okList, "5 0 start 100 7\n5 0 start 150 9\n5 0 end 200 7\n", "", okRow + "5|NODE_FAIL|0:0|9|9|1\n", "acked 1 lost 0 double-run 1 unaccounted 0"},
		{"its own lock was held", okList, "5 0 double 99 9\n" + okEffects, "", okRow, "acked 1 lost 0 double-run 1 unaccounted 0"},
		{"somebody else's job ran twice at once", "", "6 0 double 99 9\n", "", "", "acked 0 lost 0 double-run 1 unaccounted 0"},
		{"an array", "5 2 ok 1\n", "5_1 0 start 1 7\n5_1 0 end 2 7\n5_2 0 start 1 8\n5_2 0 end 2 8\n", "",
			"5_1|COMPLETED|0:0|1|2|0\n5_2|COMPLETED|0:0|1|2|0\n", "acked 2 lost 0 double-run 0 unaccounted 0"},
		{"an array without its second task", "5 2 ok 1\n", "5_1 0 start 1 7\n5_1 0 end 2 7\n", "", "5_1|COMPLETED|0:0|1|2|0\n", "acked 2 lost 1 double-run 0 unaccounted 0"},
		{"a line that a killed job did not finish", okList, okEffects + "5 1 sta", "", okRow, "acked 1 lost 0 double-run 0 unaccounted 0"},
		{"cancelled by somebody", okList, "", "", "5|CANCELLED by 0|0:0|Unknown|10:00:01|0\n", "acked 1 lost 0 double-run 0 unaccounted 0"},
	} {
		if got, v := judge(t, c.list, c.effects, c.queue, c.sacct); got != c.want {
			t.Errorf("%s: %s, want %s\n%+v", c.name, got, c.want, v)
		}
	}
}

// TestAuditOfARestoredState: a job of the history that was taken back is not missed,
// and may run again, but not beside its old run.
func TestAuditOfARestoredState(t *testing.T) {
	second := func(n int64) string { return time.Unix(n, 0).Format("2006-01-02T15:04:05") }
	const taken = "20000000000 30000000000\n"
	list := "5 0 ok 10000000000\n6 0 ok 25000000000\n"
	ran := "5 0 start 21000000000 7\n5 0 end 22000000000 7\n"
	again := "5 0 start 31000000000 8\n5 0 end 32000000000 8\n"
	record := func(from, to int64, restarts string) string {
		return "5|COMPLETED|0:0|" + second(from) + "|" + second(to) + "|" + restarts + "\n"
	}
	for _, c := range []struct{ name, effects, sacct, want string }{
		{"it ran in both histories", ran + again, record(21, 22, "0") + record(31, 32, "1"), "acked 1 lost 0 double-run 0 unaccounted 0"},
		{"accounting did not hear of the first", ran + again, record(31, 32, "0"), "acked 1 lost 0 double-run 0 unaccounted 0"},
		{"its second run has no record", ran + again + "5 1 start 33000000000 9\n", record(21, 22, "0"), "acked 1 lost 0 double-run 0 unaccounted 1"},
		{"it ran over the backup, and both histories have its end", "5 0 start 18000000000 7\n5 0 end 22000000000 7\n",
			record(18, 22, "0") + record(18, 30, "1"), "acked 1 lost 0 double-run 0 unaccounted 0"},
		{"it began while the backup was made", "5 0 start 20000000001 7\n5 0 end 22000000000 7\n",
			record(20, 30, "0"), "acked 1 lost 0 double-run 0 unaccounted 0"},
		{"a task has the same number in both", ran + again, record(21, 22, "0") + record(31, 32, "0"), "acked 1 lost 0 double-run 0 unaccounted 0"},
		{"its old run lived on", "5 0 start 21000000000 7\n5 0 start 31000000000 8\n5 0 end 31500000000 7\n5 0 end 32000000000 8\n",
			record(31, 32, "0"), "acked 1 lost 0 double-run 1 unaccounted 0"},
		{"it ran twice in the second", ran + again + "5 0 start 33000000000 9\n", record(31, 32, "0"), "acked 1 lost 0 double-run 1 unaccounted 1"},
		{"nobody knows it", "", "", "acked 1 lost 1 double-run 0 unaccounted 0"},
	} {
		lost, err := readLosses(strings.NewReader(taken))
		if err != nil {
			t.Fatal(err)
		}
		if got, v := judge(t, list, c.effects, "", c.sacct, lost...); got != c.want || v.takenBack != 1 {
			t.Errorf("%s: %s, want %s\n%+v", c.name, got, c.want, v)
		}
	}
	lost, err := readLosses(strings.NewReader(taken))
	if err != nil {
		t.Fatal(err)
	}
	again6 := strings.Replace(again, "5 0", "6 0", 2)
	if got, v := judge(t, "6 0 ok 25000000000\n6 0 ok 30500000000\n", again6,
		"", "6|CANCELLED by 0|0:0|Unknown|"+second(29)+"|0\n6|COMPLETED|0:0|"+second(31)+"|"+second(32)+"|1\n", lost...); !v.good() {
		t.Errorf("a number of the lost history is given again: %s\n%+v", got, v)
	}
	for _, bad := range []string{"1\n", "5 3\n", "a b\n", "1 2 3\n"} {
		if _, err := readLosses(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is taken for a restoration", bad)
		}
	}
}

func TestWhatWaitsIsNotGood(t *testing.T) {
	if _, v := judge(t, "5 0 ok 1\n", "", "5|PENDING\n", ""); v.good() || len(v.queued) != 1 {
		t.Errorf("a cluster that did not drain passes: %+v", v)
	}
}

func TestDamagedInputIsNamed(t *testing.T) {
	if _, err := acked.Read(strings.NewReader("5 0 ok\n")); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("acked: %v", err)
	}
	if _, err := readMarks(strings.NewReader("5 0 start 1 7\n5 0 start one 7\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("marks: %v", err)
	}
	if _, err := readRows("5|COMPLETED\n"); err == nil {
		t.Error("rows: accepted")
	}
	if _, err := readQueue("nonsense\n"); err == nil {
		t.Error("queue: accepted")
	}
}

func TestListIsReadAsWritten(t *testing.T) {
	path := t.TempDir() + "/acked"
	l, err := acked.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var want []acked.Entry
	for i := range 50 {
		e := acked.Entry{Job: uint32(i + 1), Tasks: i % 3, Kind: acked.Fails, At: int64(i)}
		want = append(want, e)
		if err := l.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil || l.Len() != len(want) {
		t.Fatal(err, l.Len())
	}
	if _, err := acked.Create(path); err == nil {
		t.Error("an old list may be overwritten")
	}
	o := options{ackedPath: path}
	f, err := openList(o.ackedPath)
	if err != nil || fmt.Sprint(f) != fmt.Sprint(want) {
		t.Errorf("read %v, %v; want %v", f, err, want)
	}
}
