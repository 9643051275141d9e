package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhpc/muster/accounting/embedded/enginetest"
	"github.com/musterhpc/muster/accounting/query"
)

// TestMain lets the test binary be the engine process.
func TestMain(m *testing.M) { os.Exit(enginetest.Main(m.Run)) }

// TestBoardsAreMeasured fills a small store as the benchmark of the boards does and asks it
// every panel: no node has more devices held than it has, each device is read every ten
// seconds and in the hands of who holds it, and no panel fails.
func TestBoardsAreMeasured(t *testing.T) {
	enginetest.Need(t)
	dir := filepath.Join(t.TempDir(), "s")
	ask := func() (r boardsResult) {
		t.Helper()
		var out, errOut bytes.Buffer
		code := command(t.Context(), []string{"boards", "--jobs", "4000", "--sample-hours", "1", "--times", "1", "--dir", dir, "--keep", "--json"}, &out, &errOut)
		if code != exitOK {
			t.Fatalf("exit %d: %s", code, &errOut)
		}
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := ask()
	answers := map[string]string{}
	for _, p := range first.Panels {
		if p.Failed != "" {
			t.Errorf("%s: %s", p.Title, p.Failed)
		}
		answers[p.Title+p.Window] = p.Digest
	}
	if len(answers) < 40 || first.Fill == 0 {
		t.Errorf("%d answers, filled in %v s", len(answers), first.Fill)
	}
	second := ask()
	if second.Fill != 0 {
		t.Errorf("a store that is there was filled again, in %v s", second.Fill)
	}
	for _, p := range second.Panels {
		if answers[p.Title+p.Window] != p.Digest {
			t.Errorf("%s over %q has the digests %s and %s", p.Title, p.Window, answers[p.Title+p.Window], p.Digest)
		}
	}
	store, err := openBenchStore(t.Context(), dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer store.close()
	for _, c := range []struct {
		what, sql string
		good      func(int64) bool
	}{
		{"nodes of the widest run", "SELECT toInt64(max(alloc_nodes)) FROM muster.jobs", func(n int64) bool { return n == 32 }},
		{"runs whose rows of nodes or devices are not what they have", "SELECT toInt64(count()) FROM (SELECT uid, any(alloc_nodes) AS n, any(alloc_gpus) AS g FROM muster.jobs GROUP BY uid) AS j " +
			"LEFT JOIN (SELECT uid, count() AS n, sum(gpus) AS g FROM muster.job_nodes GROUP BY uid) AS k ON j.uid = k.uid " +
			"LEFT JOIN (SELECT uid, count() AS g FROM muster.job_gpus GROUP BY uid) AS d ON j.uid = d.uid WHERE j.n != k.n OR j.g != k.g OR j.g != d.g", func(n int64) bool { return n == 0 }},
		{"devices held by two runs at a time", "SELECT toInt64(count()) FROM (SELECT from, lagInFrame(to) OVER (PARTITION BY gpu_uuid ORDER BY from, to ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before FROM muster.job_gpus) WHERE before > from", func(n int64) bool { return n == 0 }},
		{"samples", "SELECT toInt64(count()) FROM muster.gpu_samples", func(n int64) bool { return n == 360*8000 }},
		{"samples of devices in hands", "SELECT toInt64(countIf(uid != 0)) FROM muster.gpu_samples", func(n int64) bool { return n > 1000 && n < 360*8000 }},
		{"samples in the hands of who does not hold the device", "SELECT toInt64(count()) FROM muster.gpu_samples AS s INNER JOIN muster.job_gpus AS g ON s.uid = g.uid AND s.gpu_uuid = g.gpu_uuid WHERE s.at < g.from OR s.at >= g.to", func(n int64) bool { return n == 0 }},
	} {
		var n int64
		if err := store.Query(t.Context(), query.Query{SQL: c.sql}, func(scan func(...any) error) error { return scan(&n) }); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if !c.good(n) {
			t.Errorf("%s: %d", c.what, n)
		}
	}
	var out, errOut bytes.Buffer
	if code := command(context.Background(), []string{"boards", "--sample-hours", "0"}, &out, &errOut); code != exitUsage {
		t.Errorf("no hours: exit %d: %s", code, &errOut)
	}
}
