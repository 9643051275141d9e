// Package querytest holds questions for tests of muster sql.
package querytest

// Attacks are texts that must not be run, whoever asks.
func Attacks() []string {
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
