package query_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/accounting/query"
)

// attacks are texts that must not be run, whoever asks.
func attacks() []string {
	return []string{
		// Other statements, and more than one.
		"DROP TABLE jobs", "INSERT INTO jobs SELECT 1", "SELECT 1; DROP TABLE jobs", "ALTER TABLE jobs DELETE WHERE 1", "SET max_memory_usage = 0",
		"SYSTEM SHUTDOWN", "KILL QUERY WHERE 1", "EXPLAIN SELECT 1", "SHOW TABLES", "DESCRIBE TABLE jobs", "CREATE TABLE x AS jobs", "",
		// Out of the brackets.
		"SELECT 1) UNION ALL SELECT * FROM (SELECT 2", "SELECT (1", "SELECT 1 -- )", "SELECT 1 /* )", "SELECT 1 /* */ FROM jobs", "SELECT 1 # x", "SELECT 'x", "SELECT `x",
		"SELECT $$x$$", "SELECT {x:String}", "SELECT {x:Identifier}", "SELECT x'41'", "SELECT \u00a01", "SELECT \x00",
		// Settings and outputs.
		"SELECT 1 SETTINGS readonly = 0", "SELECT * FROM (SELECT 1 SETTINGS max_execution_time = 0)", "SELECT 1 FORMAT Native", "SELECT 1 INTO OUTFILE '/tmp/x'",
		"SELECT 1 settings readonly=0",
		// Other tables.
		"SELECT * FROM system.tables", "SELECT * FROM `system`.`tables`", "SELECT * FROM \"system\".tables", "SELECT * FROM `system.tables`", "SELECT * FROM muster.jobs",
		"SELECT * FROM ingest", "SELECT * FROM live", "SELECT * FROM information_schema.tables", "SELECT * FROM jobs, system.users", "SELECT * FROM jobs JOIN system.users ON 1",
		"SELECT * FROM jobs JOIN steps ON 1, system.users", "SELECT * FROM jobs JOIN steps USING uid, tally_snapshots", "SELECT * FROM (system.users)",
		"SELECT 1.FROM system.tables", "SELECT 1e1FROM system.tables", "SELECT 1FROM system.tables", "SELECT * FROM (DESCRIBE TABLE system.users)", "SELECT * FROM (SHOW TABLES)",
		"SELECT * FROM (EXPLAIN SELECT 1)", "SELECT * FROM jobs WHERE 1 IN system.one", "SELECT 1 IN (system.one)", "SELECT 1 IN ((muster.jobs))", "SELECT 1 NOT IN tally_snapshots",
		"SELECT 1 IN (`muster`.`jobs`)", "SELECT 1 GLOBAL IN muster.jobs", "SELECT in(1, system.one)", "SELECT NOT in(1, system.one)", "SELECT `in`(1, system.one)",
		"SELECT f(1 IN muster.jobs, 2)", "SELECT notIn(1, system.one)", "WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a",
		"SELECT * FROM (WITH ingest AS (SELECT 1) SELECT * FROM ingest)", "SELECT (SELECT 1) AS ingest, * FROM ingest", "WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT * FROM a) SELECT * FROM a",
		"SELECT * FROM jobs ARRAY JOIN gpu_uuids JOIN system.one ON 1", "FROM system.one SELECT *",
		// Table functions, whoever calls them.
		"SELECT * FROM file('/etc/passwd')", "SELECT * FROM file('/etc/passwd', 'LineAsString')", "SELECT * FROM url('http://127.0.0.1', CSV)", "SELECT * FROM remote('127.0.0.1', muster.jobs)",
		"SELECT * FROM remoteSecure('h', system.one)", "SELECT * FROM cluster('c', muster.jobs)", "SELECT * FROM clusterAllReplicas('c', system, one)", "SELECT * FROM s3('x')",
		"SELECT * FROM mysql('h', 'd', 't', 'u', 'p')", "SELECT * FROM postgresql('h', 'd', 't', 'u', 'p')", "SELECT * FROM executable('x.sh', CSV, 'a Int')", "SELECT * FROM merge('muster', '.*')",
		"SELECT * FROM merge('.*')", "SELECT * FROM numbers(1e12)", "SELECT * FROM zeros(1)", "SELECT * FROM input('a Int')", "SELECT * FROM values('a Int', 1)", "SELECT * FROM generateRandom('a Int')",
		"SELECT * FROM hdfs('x')", "SELECT * FROM jdbc('x')", "SELECT * FROM odbc('x')", "SELECT * FROM sqlite('/x', 't')", "SELECT * FROM mongodb('h')", "SELECT * FROM dictionary('x')",
		"SELECT * FROM view(SELECT 1)", "SELECT * FROM viewExplain('', '', (SELECT 1))", "SELECT * FROM loop(muster.jobs)", "SELECT * FROM fileCluster('c', 'x')", "SELECT * FROM python('x')",
		"SELECT * FROM `file`('/etc/passwd')", "SELECT * FROM null('a Int')", "SELECT * FROM azureBlobStorage('x')", "SELECT * FROM mergeTreeIndex(muster, jobs)",
		// Functions that do more than compute.
		"SELECT file('/etc/passwd')", "SELECT sleep(3)", "SELECT sleepEachRow(3)", "SELECT throwIf(1)", "SELECT hostName()", "SELECT currentUser()", "SELECT version()", "SELECT getSetting('readonly')",
		"SELECT getMacro('x')", "SELECT dictGet('d', 'a', 1)", "SELECT joinGet('muster.jobs', 'user', 1)", "SELECT catboostEvaluate('/x', 1)", "SELECT filesystemAvailable()",
		"SELECT hasColumnInTable('muster', 'jobs', 'x')", "SELECT evalMLMethod(1, 2)", "SELECT currentDatabase()", "SELECT tcpPort()", "SELECT initializeAggregation('sum', 1)",
		"SELECT arrayReduce('sum', [1])", "SELECT addressToLine(1)", "SELECT demangle('x')", "SELECT serverUUID()", "SELECT queryID()", "SELECT user()", "SELECT connectionId()",
		"SELECT sumState(cpus) FROM jobs", "SELECT finalizeAggregation(x) FROM jobs", "SELECT reinterpret(1, 'x')", "SELECT encrypt('aes-256-ofb', 'x', 'k')", "SELECT * APPLY(file) FROM jobs",
		"SELECT COLUMNS('.*') FROM jobs", "SELECT repeat('x', 1000000000)", "SELECT randomString(1000000000)", "SELECT formatRow('CSV', 1)", "SELECT logTrace('x')", "SELECT flameGraph(1)",
	}
}

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
	for _, sql := range attacks() {
		if err := query.Guard(sql, views()); !errors.Is(err, query.ErrGuard) {
			t.Errorf("%q is let through", sql)
		}
	}
	if len(attacks()) < 120 {
		t.Errorf("only %d attacks", len(attacks()))
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
