package daemon_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// sqlStream collects an answer.
type sqlStream struct {
	grpc.ServerStream
	ctx context.Context
	out strings.Builder
}

func (s *sqlStream) Context() context.Context { return s.ctx }

func (s *sqlStream) Send(r *apiv1.SqlReply) error {
	s.out.Write(r.GetData())
	return nil
}

// crowd is a history of three users in a tree of accounts: carol coordinates
// ml, and with it vision below; dora is an operator. more happens at its end.
func crowd(t tallytest.TB, more ...event.Event) []event.Envelope {
	h := tallytest.New(t, spec.AtUnix(t0))
	h.Nodes(2, 64, 512_000, 8)
	for _, a := range []spec.Account{{Name: "root"}, {Name: "ml", Parent: "root", Coordinators: []string{"carol"}}, {Name: "vision", Parent: "ml"}, {Name: "physics", Parent: "root"}} {
		h.Put(&event.AccountPut{Account: a})
	}
	h.Put(&event.UserPut{User: spec.User{Name: "dora", AdminLevel: "Operator"}})
	h.Put(&event.UserPut{User: spec.User{Name: "eve", AdminLevel: "Operator"}})
	h.Put(&event.UserPut{User: spec.User{Name: "eve"}}) // no more
	for i, a := range []spec.Association{{Account: "vision", User: "alice"}, {Account: "physics", User: "bob"}} {
		a.ID = uint32(901 + i)
		h.Put(&event.AssociationPut{Association: a})
	}
	for i, who := range []struct{ user, account string }{{"alice", "vision"}, {"bob", "physics"}, {"carol", "ml"}, {"bob", "physics"}} {
		uid := h.Submit(tallytest.Ask{Name: "secret-of-" + who.user, User: who.user, UID: uint32(1001 + i), Account: who.account, QOS: "normal", CPUs: 4, Mem: 4000, GPUs: 1})
		h.Wait(spec.Second)
		h.Start(uid, "n1")
		h.Wait(spec.Minute)
		if i < 3 {
			h.Finish(uid, spec.Usage{UserCPU: 50 * spec.Second, HasRSS: true, PeakRSS: 1 << 30})
		}
	}
	for _, ev := range more {
		h.Put(ev)
	}
	return h.Log
}

// sqlRig is a service whose caller, and whose PrivateData, are what a test says.
type sqlRig struct {
	*rig
	who     daemon.Caller
	private []string
}

func newSQLRig(t *testing.T, more ...event.Event) *sqlRig {
	ledger := newLedger(t)
	log := crowd(t, more...)
	ledger.add(t, log, 25)
	s := &sqlRig{rig: newRig(t, startEngine(t).Socket(), ledger)}
	s.who.Admin = true
	s.cfg.Identify = func(context.Context) daemon.Caller { return s.who }
	s.cfg.Private = func(context.Context) []string { return s.private }
	s.clock.set(log[len(log)-1].At.Add(spec.Minute))
	s.start()
	s.stored(uint64(len(log)))
	return s
}

func (s *sqlRig) ask(user, sql string) (string, error) {
	return s.askIn(user, sql, "csv")
}

func (s *sqlRig) askIn(user, sql, format string) (string, error) {
	s.who = daemon.Caller{User: user, Admin: user == "root"}
	out := &sqlStream{ctx: s.t.Context()}
	err := s.Service().Sql(&apiv1.SqlQuery{Sql: sql, Format: format}, out)
	return out.out.String(), err
}

// TestSQLPrivateData: the views that are no rows of jobs keep what PrivateData
// hides elsewhere.
func TestSQLPrivateData(t *testing.T) {
	s := newSQLRig(t, &event.SharesNoted{Shares: []event.ShareNote{
		{Assoc: 901, Norm: 500_000, Used: 250_000, Factor: 750_000, Raw: 60},
		{Assoc: 902, Norm: 500_000, Used: 750_000, Factor: 250_000, Raw: 180},
	}})
	const users = "SELECT DISTINCT user FROM associations WHERE user != '' ORDER BY user"
	const shares = "SELECT user, raw FROM fairshare WHERE user != '' ORDER BY user"
	for _, question := range []string{users, shares} {
		s.private = nil
		public, err := s.ask("alice", question)
		if err != nil || !strings.Contains(public, "bob") {
			t.Fatalf("%s: without PrivateData alice sees %q, %v", question, public, err)
		}
		if got, err := s.ask("root", question); err != nil || got != public {
			t.Errorf("%s: root sees %q, %v", question, got, err)
		}
		s.private = []string{"usage"}
		if got, err := s.ask("alice", question); err != nil || strings.Contains(got, "bob") || !strings.Contains(got, "alice") {
			t.Errorf("%s: with PrivateData=usage alice sees %q, %v", question, got, err)
		}
		if got, err := s.ask("carol", question); err != nil || strings.Contains(got, "bob") || !strings.Contains(got, "alice") {
			t.Errorf("%s: with PrivateData=usage a coordinator of alice's account sees %q, %v", question, got, err)
		}
	}
	s.private = []string{"reservations"}
	if got, err := s.ask("alice", "SELECT * FROM reservations"); err == nil {
		t.Errorf("with PrivateData=reservations alice sees %q", got)
	}
	s.private = []string{"usage"}
	if got, err := s.ask("alice", "SELECT count() > 0 FROM node_states"); err != nil {
		t.Errorf("with PrivateData=usage alice does not see nodes: %q, %v", got, err)
	}
	s.private = []string{"nodes"}
	if got, err := s.ask("alice", "SELECT * FROM node_states"); err == nil {
		t.Errorf("with PrivateData=nodes alice sees %q", got)
	}
}

// TestSQLWhoSeesWhat: the filter is forced in every view and in every place of
// a question where a view can stand.
func TestSQLWhoSeesWhat(t *testing.T) {
	s := newSQLRig(t)
	users := map[string][]string{"alice": {"alice"}, "bob": {"bob"}, "carol": {"alice", "carol"}, "dora": {"alice", "bob", "carol"}, "root": {"alice", "bob", "carol"}, "eve": nil, "mallory": nil}
	for who, sees := range users {
		for _, sql := range []string{
			"SELECT DISTINCT user FROM jobs", "SELECT user FROM jobs UNION DISTINCT SELECT user FROM jobs", "SELECT DISTINCT user FROM (SELECT * FROM jobs)",
			"WITH x AS (SELECT * FROM jobs) SELECT DISTINCT user FROM x", "SELECT DISTINCT user FROM jobs WHERE uid IN (SELECT uid FROM jobs)", "WITH jobs AS (SELECT * FROM jobs) SELECT DISTINCT user FROM jobs",
			"SELECT DISTINCT a.user FROM jobs AS a JOIN jobs AS b ON a.uid = b.uid", "SELECT DISTINCT user FROM jobs WHERE 1 = 1 OR user = 'bob'", "SELECT arrayJoin(groupUniqArray(user)) FROM jobs",
			"SELECT arrayJoin((SELECT groupUniqArray(user) FROM jobs))", "SELECT DISTINCT user FROM jobs ORDER BY user LIMIT 100", "SELECT DISTINCT user FROM pending_reasons",
		} {
			got, err := s.ask(who, sql)
			if err != nil {
				t.Errorf("%s: %s: %v", who, sql, err)
				continue
			}
			lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(got, `"`, "")), "\n")[1:]
			slices.Sort(lines)
			if !slices.Equal(lines, sees) {
				t.Errorf("%s: %s gives %v, want %v", who, sql, lines, sees)
			}
		}
		for _, view := range []string{"steps", "job_nodes", "job_gpus"} { // bob's second job still runs
			got, err := s.ask(who, "SELECT DISTINCT user FROM "+view)
			if lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(got, `"`, "")), "\n")[1:]; err != nil || len(lines) != len(sees) {
				t.Errorf("%s sees %v in %s, want %v (%v)", who, lines, view, sees, err)
			}
		}
		if _, err := s.ask(who, "SELECT count() FROM events"); (err == nil) != (who == "root" || who == "dora") {
			t.Errorf("%s reads events: %v", who, err)
		}
	}
	for _, v := range query.Views() {
		for _, format := range []string{"table", "csv", "json", "parquet"} {
			got, err := s.askIn("root", "SELECT * FROM "+v.Name, format)
			nothing := []string{"associations", "gpu_samples", "usage_samples", "qos_history", "reservations", "fairshare", "holds"} // in this history
			if empty := slices.Contains(nothing, v.Name) && format == "json"; err != nil || (got == "" && !empty) || (format == "parquet") != strings.HasPrefix(got, "PAR1") {
				t.Errorf("%s as %s: %v, %d bytes", v.Name, format, err, len(got))
			}
		}
	}
}

// TestSQLSecondWall: what the engine makes of a text is checked too. The guard
// refuses these by their words; here it has no say.
func TestSQLSecondWall(t *testing.T) {
	s := newSQLRig(t)
	lines := func(q query.Query) (out []string) {
		err := s.store.Query(t.Context(), q, func(scan func(...any) error) error {
			var line string
			err := scan(&line)
			out = append(out, line)
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", q.SQL, err)
		}
		return out
	}
	names := lines(query.Names(query.Scope{Database: s.store.Database()}))
	for sql, ok := range map[string]bool{
		"SELECT 1 FROM jobs AS WHERE, muster.events": false, "SELECT 1 FROM jobs AS ARRAY JOIN muster.purges AS z ON 1": false,
		"SELECT 1 FROM (SELECT 1 AS \"limit\") AS a JOIN (SELECT 1 AS x) AS b ON x = limit, muster.jobs AS e": false,
		"SELECT * FROM purges": false, "WITH purges AS (SELECT 1) SELECT * FROM purges": false, "SELECT 1 FROM jobs, events": false,
		"SELECT 1 WHERE 1 IN muster.jobs": false, "SELECT 1 WHERE 1 NOT IN purges": false, "SELECT 1 WHERE 1 GLOBAL IN system.one": false, "SELECT * FROM numbers(3)": false,
		"SELECT * FROM (SELECT * FROM url('http://localhost/', CSV, 'a String'))": false, "SELECT 1 SETTINGS max_threads = 9": false,
		"SELECT (SELECT count() FROM muster.jobs)": false, "SELECT 1 FROM jobs UNION ALL SELECT 1 FROM system.tables": false,
		"WITH x AS (SELECT * FROM jobs) SELECT * FROM x AS a JOIN steps AS b USING uid WHERE a.uid IN (SELECT uid FROM x) AND a.user IN ('a', 'b') AND 1 IN (a.uid)": true,
		"SELECT name FROM jobs WHERE name = 'a\nb' OR name IN ('a\n  TableIdentifier purges')":                                                                       true,
	} {
		err := query.CheckTree(lines(query.Tree(sql)), query.Viewer{User: "bob"}, names)
		if (err == nil) != ok {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// TestSQLNonsense: whatever words of the language stand between a view and a
// table, the engine never reads the table: what it calls a list of tables and
// what the guard does are the same.
func TestSQLNonsense(t *testing.T) {
	s := newSQLRig(t)
	// Of the accounting's own database the guard refuses the name, whatever stands before it.
	for _, sql := range []string{"CREATE DATABASE elsewhere", "CREATE TABLE elsewhere.one ENGINE = TinyLog AS SELECT 1"} {
		if err := s.store.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	words := strings.Fields("SELECT WITH FROM JOIN ON USING WHERE PREWHERE GROUP HAVING ORDER LIMIT OFFSET UNION EXCEPT INTERSECT WINDOW QUALIFY IN ARRAY AS AS AS FINAL LEFT FULL INNER CROSS SEMI ANTI ASOF PASTE BY ALL ANY " +
		", , , , ( ) jobs x \"x\" 1 (SELECT 1) = LATERAL")
	for _, w := range words {
		sql := "SELECT 1 FROM (SELECT 1 AS \"" + strings.Trim(w, `"`) + "\") AS y JOIN (SELECT 1 AS a) AS z ON a = " + w + ", elsewhere.one AS e"
		if got, err := s.ask("bob", sql); err == nil {
			t.Errorf("%s is answered: %s", sql, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		sql := rapid.SampledFrom([]string{"SELECT 1 FROM jobs ", "SELECT 1 FROM jobs AS ", "WITH ", "SELECT 1 FROM (SELECT 1) ", "SELECT 1 FROM jobs JOIN jobs AS y ON 1 ",
			"SELECT 1 FROM (SELECT 1 AS \"WHERE\", 1 AS \"LIMIT\", 1 AS \"GROUP\", 1 AS \"UNION\") AS y JOIN (SELECT 1 AS x) AS z ON x = "}).Draw(t, "begin") +
			strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 0, 4).Draw(t, "words"), " ") + rapid.SampledFrom([]string{" elsewhere.one", ", elsewhere.one", ", elsewhere.one AS w ON 1"}).Draw(t, "end")
		if got, err := s.ask("bob", sql); err == nil {
			t.Fatalf("%s is answered: %s", sql, got)
		}
	})
}

// TestSQLExamples: every question that the pages show is answered as it stands.
func TestSQLExamples(t *testing.T) {
	s := newSQLRig(t)
	asked := 0
	for _, page := range []string{"views.md", "accounting.md", "gpus.md"} {
		data, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range strings.Split(string(data), "```sql\n") {
			if i == 0 {
				continue
			}
			sql, _, _ := strings.Cut(block, "```")
			asked++
			if _, err := s.ask("root", sql); err != nil {
				t.Errorf("%s: %s: %v", page, sql, err)
			}
		}
	}
	if asked <= len(query.Views()) {
		t.Errorf("%d questions, of %d views", asked, len(query.Views()))
	}
	for _, v := range query.Views() {
		names := map[string]bool{}
		for _, c := range v.Columns {
			if c.About == "" || names[c.Name] || strings.Contains(c.About, " / ") {
				t.Errorf("%s: column %s is %q", v.Name, c.Name, c.About)
			}
			names[c.Name] = true
		}
	}
}

// TestSQLAttacks: no way around the filter, out of the brackets, over the
// limits, or to anything that is not accounting. What the guard refuses is
// tried in package query; here the real engine answers.
func TestSQLAttacks(t *testing.T) {
	s := newSQLRig(t)
	before := s.rows()
	leak := func(sql string) {
		t.Helper()
		got, err := s.ask("alice", sql)
		if text := got + fmt.Sprint(err); strings.Contains(text, "secret-of-bob") {
			t.Errorf("%s shows another's rows: %s", sql, text)
		}
	}
	// A word of the language as a column goes on with the list of tables.
	for _, w := range []string{"limit", "where", "group", "union", "window"} {
		leak("SELECT e.name FROM (SELECT 1 AS \"" + w + "\") AS a JOIN (SELECT 1 AS x) AS b ON x = " + w + ", muster.jobs AS e")
	}
	// An error, or its absence, must not tell of rows that are filtered away.
	for _, sql := range []string{
		"SELECT toUInt64(name) FROM jobs", "SELECT count() FROM jobs WHERE toUInt64(name) = 1", "SELECT toDate(name) FROM jobs", "SELECT CAST(name AS UInt8) FROM jobs",
		"SELECT count() FROM jobs WHERE toUInt64(if(user = 'bob', name, '1')) = 1", "SELECT user FROM jobs ORDER BY toUInt64(if(user = 'bob', name, '1'))",
		"SELECT count() FROM jobs GROUP BY toUInt64(if(user = 'bob', name, '1'))", "SELECT count() FROM jobs AS a JOIN jobs AS b ON a.uid = toUInt64(if(b.user = 'bob', b.name, '1'))",
		"SELECT intDiv(1, if(user = 'bob', 0, 1)) FROM jobs", "SELECT [1][if(user = 'bob', -9, 1)] FROM steps", "SELECT max(toUInt64(if(user = 'bob', name, '1'))) FROM job_nodes",
		"SELECT sum(toUInt64(name)) FROM steps WHERE user = 'bob'", "SELECT count() FROM pending_reasons WHERE toUInt64(if(user = 'bob', code, '1')) = 1",
		"SELECT match(name, if(user = 'bob', '[', 'x')) FROM jobs",
	} {
		leak(sql)
	}
	for _, sql := range []string{
		"SELECT count() FROM jobs WHERE toUInt64(if(user = 'bob', name, '1')) = 1", "SELECT sum(intDiv(1, if(user = 'bob', 0, 1))) FROM jobs",
		"SELECT count() FROM (SELECT toUInt64(if(account = 'physics', name, '1')) AS x FROM jobs) WHERE x = 1",
	} {
		if got, err := s.ask("alice", sql); err != nil {
			t.Errorf("%s tells that there are rows of another: %s %v", sql, got, err)
		}
		if _, err := s.ask("bob", sql); err == nil {
			t.Errorf("%s would not have told", sql)
		}
	}
	// Limits hold.
	for _, sql := range []string{
		"SELECT length(arrayMap(x -> concat(toString(x), 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'), range(1000000000)))", "SELECT arrayJoin(range(2000000)) AS x",
		"SELECT uniqExact(a) FROM (SELECT arrayJoin(range(100000000)) AS a)",
		strings.Repeat("SELECT 1 UNION ALL ", 9000) + "SELECT 1", "SELECT " + strings.Repeat("(", 3000) + "1" + strings.Repeat(")", 3000), "SELECT '" + strings.Repeat("x", 70_000) + "'",
	} {
		if got, err := s.ask("alice", sql); err == nil {
			t.Errorf("%.80s… is answered with %d bytes", sql, len(got))
		}
	}
	if _, err := s.ask("alice", "SELECT count() FROM jobs"); err != nil {
		t.Errorf("after the attacks: %v", err)
	}
	// Names that are nobody's.
	for _, who := range []string{"", "' OR 1=1 --", "alice' OR 'a'='a", `alice\`, "{me:String}", "*"} {
		got, err := s.ask(who, "SELECT count() AS n FROM jobs")
		if err == nil && !strings.Contains(got, "\n0") {
			t.Errorf("%q sees %s", who, got)
		}
	}
	if after := s.rows(); after != before {
		t.Errorf("the attacks changed the store:\n%s\n%s", before, after)
	}
	// Errors are the question's, not ours.
	if _, err := s.ask("alice", "SELECT nosuch FROM jobs"); err == nil || strings.Contains(err.Error(), "ledger") || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("an unknown column: %v", err)
	}
}

// TestSQLExplain: every report's SQL can be printed, and be run as it is.
func TestSQLExplain(t *testing.T) {
	s := newSQLRig(t)
	names := []string{"sacct", "kpi"}
	for _, r := range daemon.Reports() {
		if strings.Contains(r, " ") {
			names = append(names, "sreport-"+strings.ReplaceAll(strings.ToLower(r), " ", "-"))
		}
	}
	for _, name := range names {
		out := &sqlStream{ctx: t.Context()}
		if err := s.Service().Sql(&apiv1.SqlQuery{Explain: name}, out); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		n := 0
		for sql := range strings.SplitSeq(out.out.String(), ";\n") {
			if strings.TrimSpace(sql) == "" {
				continue
			}
			n++
			if err := s.store.Query(t.Context(), query.Query{SQL: sql}, func(func(...any) error) error { return nil }); err != nil {
				t.Errorf("%s: %v\n%s", name, err, sql)
			}
		}
		if n == 0 {
			t.Errorf("%s: nothing", name)
		}
	}
	if err := s.Service().Sql(&apiv1.SqlQuery{Explain: "sreport-nosuch"}, &sqlStream{ctx: t.Context()}); err == nil {
		t.Error("a report that is none is explained")
	}
}

// TestPrivateToOperators: accounting in a process of its own learns from the
// store who is an operator, and who is one no more.
func TestPrivateToOperators(t *testing.T) {
	s := newSQLRig(t)
	s.cfg.Private, s.cfg.Operators = func(context.Context) []string { return []string{"jobs", "usage"} }, true
	s.stop()
	s.start()
	s.stored(1)
	for who, all := range map[string]bool{"dora": true, "eve": false, "alice": false, "nobody": false, "": false} {
		s.who = daemon.Caller{User: who}
		rep, err := s.Service().Jobs(t.Context(), &apiv1.AcctQuery{AllUsers: true, AllocationsOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		switch {
		case all:
			want = 4
		case who == "alice":
			want = 1
		}
		_, denied := s.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "user top", Start: t0 * int64(spec.Second), End: (t0 + 86400) * int64(spec.Second)})
		if len(rep.GetRows()) != want || (denied == nil) != all {
			t.Errorf("%q sees %d jobs, want %d; a report: %v", who, len(rep.GetRows()), want, denied)
		}
		why, err := s.Service().Reasons(t.Context(), &apiv1.ReasonsQuery{Job: "2"})
		if err != nil || (why.GetRun() != nil) != all {
			t.Errorf("the reasons of bob's job for %q: %v, %v", who, why.GetRun(), err)
		}
	}
}
