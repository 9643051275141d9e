package query_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/query/querytest"
)

// TestWordsAsNames: a word of the language is no name, neither behind AS nor of
// a WITH nor behind a table. The engine would go on with the list of tables
// where another clause was read here.
func TestWordsAsNames(t *testing.T) {
	words := strings.Fields("SELECT WITH FROM JOIN ON USING WHERE PREWHERE GROUP HAVING ORDER LIMIT OFFSET UNION EXCEPT INTERSECT WINDOW QUALIFY ARRAY where Array")
	for _, w := range words {
		for _, sql := range []string{
			"SELECT 1 FROM jobs AS " + w + ", muster.events", "SELECT 1 FROM jobs AS " + w + " JOIN muster.events ON 1", "SELECT 1 FROM (SELECT 1) AS " + w + ", muster.events",
			"WITH " + w + " AS (SELECT 1) SELECT 1 FROM " + w + ", muster.events", "WITH 1 AS " + w + " SELECT 1 FROM jobs", "SELECT 1 FROM " + w + ", muster.events", "SELECT 1 FROM jobs JOIN " + w + " ON 1, muster.events",
		} {
			if err := query.Guard(sql, views()); !errors.Is(err, query.ErrGuard) {
				t.Errorf("%q is let through", sql)
			}
		}
	}
	for _, sql := range []string{"SELECT 1 FROM jobs SELECT, muster.events", "SELECT 1 FROM jobs ARRAY JOIN gpu_uuids", "SELECT 1 FROM jobs AS ARRAY(a) JOIN muster.events ON 1", "SELECT 1 FROM jobs AS \"ARRAY\" JOIN muster.events ON 1",
		"SELECT 1 FROM jobs AS \"WHERE\", muster.events"} {
		if err := query.Guard(sql, views()); !errors.Is(err, query.ErrGuard) {
			t.Errorf("%q is let through", sql)
		}
	}
	for _, sql := range []string{"SELECT CAST([1] AS Array(UInt8))", "SELECT user AS \"group\" FROM jobs", "SELECT j.end AS finish FROM jobs AS j WHERE j.end > j.start", "SELECT CASE WHEN 1 THEN 2 END AS x"} {
		if err := query.Guard(sql, views()); err != nil {
			t.Errorf("%q: %v", sql, err)
		}
	}
}

// TestWordsAsColumns: where a value is expected the engine takes a word of the
// language for a column, and goes on with the list of tables behind it.
func TestWordsAsColumns(t *testing.T) {
	refused := func(sql string, databases ...string) {
		t.Helper()
		if err := query.Guard(sql, views(), databases...); !errors.Is(err, query.ErrGuard) {
			t.Errorf("%q is let through", sql)
		}
	}
	const begin = "SELECT 1 FROM (SELECT 1) AS a JOIN (SELECT 1) AS b ON "
	for _, w := range strings.Fields("WHERE PREWHERE GROUP HAVING ORDER LIMIT OFFSET UNION EXCEPT INTERSECT WINDOW QUALIFY limit") {
		for _, on := range []string{w + " = x", "x = " + w, "x = -" + w, "x = 1 AND " + w, "NOT " + w, "x = 1 DIV " + w, "x LIKE " + w, "now() > now() - INTERVAL " + w + " DAY", "x = CASE " + w + " WHEN 1 THEN 2 END",
			"x = " + w + "(1)", "x = " + w + "[1]", "x BETWEEN 1 AND " + w, "x = 1 ? " + w + " : 2"} {
			refused(begin + on + ", elsewhere.events AS e")
			refused(begin + on + ", live")
		}
	}
	// A window is no table.
	refused("WITH 1 AS y SELECT count() OVER w FROM jobs WINDOW w AS (PARTITION BY user), live AS (PARTITION BY user) UNION ALL SELECT 1 FROM live")
	// IN behind an operator is the function in(…).
	for _, before := range []string{"1 DIV", "1 MOD", "'x' REGEXP", "trim(BOTH", "SELECT TOP"} {
		refused("SELECT " + before + " in(1, elsewhere.events)")
	}
	// Nothing stands behind a database, whatever it looks like.
	for _, db := range []string{"system", "System", "\"system\"", "information_schema", "acct", "`acct`"} {
		refused("SELECT "+db+".events FROM jobs", "acct")
		refused("SELECT x("+db+" . events)", "acct")
	}
	for _, sql := range []string{"SELECT a.acct.x FROM (SELECT 1) AS a", "SELECT 1 FROM jobs AS a JOIN jobs AS b ON a.end = b.limit WHERE NOT a.x ORDER BY 1 LIMIT 5 OFFSET 2", "SELECT 1 FROM jobs WHERE -1 < uid",
		"SELECT 1 FROM jobs HAVING CASE WHEN 1 THEN 1 END", "SELECT count() OVER w FROM jobs WINDOW w AS (PARTITION BY user)", "SELECT 1 FROM jobs AS a WHERE [1] = [1] UNION DISTINCT (SELECT 1 FROM jobs EXCEPT SELECT 1)",
		"SELECT 1 FROM jobs WHERE EXISTS (SELECT 1)", "SELECT 1 FROM jobs GROUP BY ALL", "SELECT 1 FROM jobs WHERE partition IN ('gpu') AND group IN ('g')", "SELECT group FROM jobs WHERE group IN ('g') GROUP BY group"} {
		if err := query.Guard(sql, views(), "acct"); err != nil {
			t.Errorf("%q: %v", sql, err)
		}
	}
}

func views() []string {
	var out []string
	for _, v := range query.Views() {
		out = append(out, v.Name)
	}
	return out
}

func TestAttacks(t *testing.T) {
	for _, sql := range querytest.Attacks() {
		if err := query.Guard(sql, views()); !errors.Is(err, query.ErrGuard) {
			t.Errorf("%q is let through", sql)
		}
	}
	if len(querytest.Attacks()) < 120 {
		t.Errorf("only %d attacks", len(querytest.Attacks()))
	}
}

// questions are what people ask; a guard that refuses them is no use.
func questions() []string {
	return []string{
		"SELECT 1", "select count() from jobs", "SELECT user, sum(alloc_cpus * elapsed_us) / 3.6e9 AS cpu_hours FROM jobs WHERE end >= now() - INTERVAL 7 DAY GROUP BY user ORDER BY cpu_hours DESC LIMIT 10",
		"SELECT * FROM jobs WHERE user IN ('alice', 'bob') AND state NOT IN ('COMPLETED')", "SELECT j.job_id, s.name FROM jobs AS j JOIN steps AS s USING (uid, restarts) LIMIT 5",
		"SELECT j.user FROM jobs j LEFT JOIN steps s ON j.uid = s.uid AND j.restarts = s.restarts WHERE s.state = 'FAILED'",
		"WITH big AS (SELECT * FROM jobs WHERE alloc_gpus >= 8), heavy AS (SELECT user, count() AS n FROM big GROUP BY user) SELECT * FROM heavy ORDER BY n",
		"SELECT toStartOfDay(end) AS day, countIf(state = 'FAILED') AS failed, quantile(0.95)(dateDiff('second', submit, start)) AS p95 FROM jobs GROUP BY day ORDER BY day",
		"SELECT user, job_id FROM jobs WHERE uid IN (SELECT uid FROM job_gpus WHERE util_us = 0)", "SELECT arrayJoin(gpu_uuids) AS gpu, count() FROM jobs GROUP BY gpu",
		"SELECT name, row_number() OVER (PARTITION BY user ORDER BY end DESC) AS n FROM jobs", "SELECT state, count() FROM jobs GROUP BY ALL WITH ROLLUP", "SELECT if(alloc_gpus > 0, 'gpu', 'cpu') AS kind, uniqExact(user) FROM jobs GROUP BY kind",
		"SELECT 'it''s -- fine; SETTINGS' AS x, \"state\" FROM jobs", "SELECT CASE WHEN state = 'FAILED' THEN 1 ELSE 0 END FROM jobs", "SELECT jobs.state FROM jobs UNION ALL SELECT steps.state FROM steps",
		"SELECT (job_id, restarts) IN ((1, 0), (2, 0)) FROM jobs", "SELECT arrayMap(x -> x * 2, [1, 2, 3])", "SELECT alloc_tres['gres/gpu:h100'] FROM jobs", "SELECT max(end)::Date FROM jobs",
		"SELECT * EXCEPT (work_dir) FROM jobs WHERE NOT (user = 'x' OR account IN ('a'))",
	}
}

func TestQuestions(t *testing.T) {
	for _, sql := range questions() {
		if err := query.Guard(sql, views()); err != nil {
			t.Errorf("%s\n%v", sql, err)
		}
	}
}

// Whatever is let through is one SELECT: its brackets and quotes are closed, it
// has no second statement, and no name of a database stands before a table.
func TestGuardTakesNoNonsense(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.SampledFrom(strings.Fields("SELECT FROM jobs system . , ( ) file IN WITH a AS JOIN ON 1 'x' ; SETTINGS UNION ALL WHERE x one USING ARRAY -- /* { }")), 1, 14).Draw(t, "words")
		sql := "SELECT " + strings.Join(words, " ")
		if query.Guard(sql, []string{"jobs"}) != nil {
			return
		}
		// Behind the dot of a name a word is a column, for the engine as well: jobs . FROM is the column FROM.
		flat := strings.NewReplacer(". FROM", ". x", ". JOIN", ". x", ". IN", ". x", ". SETTINGS", ". x").Replace(strings.Join(strings.Fields(sql), " "))
		for _, bad := range []string{";", "{", "}", "--", "/*", "SETTINGS", "FROM system", "JOIN system", "FROM file", "FROM one", "file (", "file(", "IN system", "IN one", "IN ( one )"} {
			if strings.Contains(flat, bad) {
				t.Fatalf("%q is let through", sql)
			}
		}
		if strings.Count(sql, "(") != strings.Count(sql, ")") {
			t.Fatalf("%q is let through", sql)
		}
	})
}
