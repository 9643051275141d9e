package clickhouse

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/spec"
)

// What is written straight into blocks is what the driver would have written:
// random histories, every table, every column.
func TestBlocksAreWhatTheDriverWrites(t *testing.T) {
	e := startEngine(t)
	histories := rapid.Custom(func(t *rapid.T) *tallytest.History { return tallytest.Random(t, 200) })
	for i := range 4 {
		h := histories.Example(i + 1)
		var seen [2]string
		for k, direct := range []bool{true, false} {
			s := openStore(t, e.Socket(), fmt.Sprintf("blocks%d%v", i, direct))
			if s.direct = direct; !direct && s.http != true {
				t.Fatal("the engine is not reached over HTTP")
			}
			ta := tally.New()
			w, _ := newWriter(t, s, ta)
			half := len(h.Log) / 2
			for _, part := range [...][2]int{{0, half}, {half, len(h.Log)}} {
				if err := w.Write(context.Background(), fold(t, ta, h.Log[part[0]:part[1]])); err != nil {
					t.Fatal(err)
				}
			}
			live := one[string](t, s, "SELECT concat(toString(count()), ' ',"+
				" toString(sum(cityHash64(toString(tuple(*))))))"+
				" FROM "+s.qualifyTable("live"))
			seen[k] = digest(t, s) + live
		}
		if seen[0] != seen[1] {
			t.Errorf("history %d:\n%s\n%s", i, seen[0], seen[1])
		}
		if strings.Contains(seen[0], " 0 0") && i == 0 {
			t.Logf("a table is empty: %s", seen[0])
		}
	}
}

// Values at the edges come back as they were.
func TestBlocksKeepExtremes(t *testing.T) {
	e := startEngine(t)
	s := openStore(t, e.Socket(), "extremes")
	rows := []tally.EventRow{
		{Seq: 1, At: 0, Kind: "", Body: "", ActorUID: 0},
		{
			Seq:      2,
			At:       -1,
			Kind:     "κ",
			ActorUID: ^uint32(0),
			CauseSeq: ^uint64(0),
			Body:     strings.Repeat("x", 3*streamRoom) + "\x00\t'\\",
		},
		{Seq: ^uint64(0), At: tally.Cut(spec.AtUnix(4_000_000_000)), Host: "\xff\xfe", Body: "ok"},
	}
	if err := sendRows(
		context.Background(),
		newInsert(s, "events"),
		"",
		eventColumns(source{cluster: "c"}),
		rows,
	); err != nil {
		t.Fatal(err)
	}
	got := one[string](t, s, "SELECT toString(groupArray(("+
		"seq, toUnixTimestamp64Micro(at), hex(kind), actor_uid, cause_seq, hex(host), length(body),"+
		" hex(substring(body, greatest(length(body) - 3, 1))))))"+
		" FROM (SELECT * FROM "+s.qualifyTable("events")+" ORDER BY seq)")
	want := "[(1,0,'',0,0,'',0,''),(2,-1,'CEBA',4294967295,18446744073709551615,'',393220,'0009275C'),(18446744073709551615,4000000000000000,'',0,0,'FFFE',2,'6F6B')]"
	if got != want {
		t.Errorf("%s\nwanted %s", got, want)
	}
	// An error of the engine is the insert's error.
	s.db = "nosuch"
	if err := sendRows(
		context.Background(),
		newInsert(s, "events"),
		"",
		eventColumns(source{}),
		rows[:1],
	); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("into a database that is not there: %v", err)
	}
}

// Every table that the writer fills is written straight: a column whose type
// changes without its encoder would go back to the driver, and nobody would see.
func TestEveryTableOfTheWriterIsWrittenStraight(t *testing.T) {
	s := &Store{}
	check := func(table string, ok bool) {
		if !ok {
			t.Errorf("table %s has a column that only the driver writes", table)
		}
	}
	check("events", canEncode(newInsert(s, "events"), eventColumns(source{})))
	check("jobs", canEncode(newInsert(s, "jobs"), jobColumns(source{})))
	check("live", canEncode(newInsert(s, "live"), liveColumns(source{}, 1)))
	check("steps", canEncode(newInsert(s, "steps"), stepColumns(source{})))
	check("job_nodes", canEncode(newInsert(s, "job_nodes"), nodeColumns(source{})))
	check("job_gpus", canEncode(newInsert(s, "job_gpus"), gpuColumns(source{})))
	check("node_states", canEncode(newInsert(s, "node_states"), nodeStateColumns(source{})))
	check("pending_reasons", canEncode(newInsert(s, "pending_reasons"), reasonColumns(source{})))
	check("associations", canEncode(newInsert(s, "associations"), associationColumns(source{})))
}
