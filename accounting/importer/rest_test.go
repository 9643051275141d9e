package importer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/importer"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// restServer answers as a slurmrestd: of 22.05 as one was recorded, and of
// v0.0.41, whose states are lists and whose numbers are objects.
func restServer(t *testing.T, version string, answer func() (int, string)) (*httptest.Server, *[]string) {
	t.Helper()
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("X-SLURM-USER-TOKEN") != "secret" || r.Header.Get("X-SLURM-USER-NAME") != "alice":
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, "Authentication failure")
		case r.URL.Path == "/openapi/v3":
			flags := ""
			if version != "38" {
				flags = `{"name":"show_duplicates"},{"name":"disable_truncate_usage_time"},`
			}
			fmt.Fprintf(w, `{"paths":{"/slurm/v0.0.44/jobs/":{"get":{}},"/slurmdb/v0.0.9/jobs":{"get":{}},"/slurmdb/v0.0.%s/jobs/":{"get":{"parameters":[%s{"name":"start_time"}]}}}}`, version, flags)
		case r.URL.Path == "/slurmdb/v0.0."+version+"/jobs/":
			asked = append(asked, r.URL.RawQuery)
			code, text := answer()
			w.WriteHeader(code)
			fmt.Fprint(w, text)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return s, &asked
}

func recorded(t *testing.T, version string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/slurmrestd_v0.0." + version + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestREST: what slurmrestd says becomes the same rows by the old form and the
// new, with keys that sacct's lines have too.
func TestREST(t *testing.T) {
	s := openStore(t)
	want := "1 1 -1 COMPLETED 0:0 wrap alice root 1 8000 1 2.0 60 steps 1 of batch with 3282 us, 3235840 B\n" +
		"2 2 2 FAILED %s a|b alice root 1 8000 1 2.0 60 steps 1 of batch with 280 us, 3256320 B\n"
	// That of 22.05 says 0 of a job that sacct says 3:0 of.
	for version, exit := range map[string]string{"38": "0:0", "41": "3:9"} {
		text := recorded(t, version)
		if version == "41" {
			text = strings.ReplaceAll(text, `"user": "root"`, `"user": "alice"`)
		}
		server, asked := restServer(t, version, func() (int, string) { return http.StatusOK, text })
		cluster := "v" + version
		ledger := tally.ImportedLedger(cluster)
		pull := func() importer.Result {
			w, err := s.NewImportWriter(t.Context(), ledger, cluster)
			if err != nil {
				t.Fatal(err)
			}
			c := importer.Config{Ledger: ledger, Store: importer.In(s), Writer: w, Rejected: func(r importer.Reject) { t.Errorf("%s rejects %+v", version, r) }}
			source := importer.Slurm{REST: &importer.REST{Address: server.URL, User: "alice", Token: "secret"}}
			var sum importer.Result
			if err := source.Pull(t.Context(), c, time.Unix(1_795_330_000, 0), time.Unix(1_795_340_000, 0), sum.Sum); err != nil {
				t.Fatal(err)
			}
			if pos, err := s.Position(t.Context(), ledger); err != nil || pos.At != spec.AtUnix(1_795_340_000) {
				t.Errorf("the position is at %v, %v", pos.At, err)
			}
			return sum
		}
		if sum := pull(); sum.New != 3 || sum.Open != 1 || sum.Steps != 4 || !sum.Reconciled() {
			t.Errorf("%s: %+v", version, sum)
		}
		if sum := pull(); sum.New != 0 || sum.Known != 3 {
			t.Errorf("%s again: %+v", version, sum)
		}
		if q := (*asked)[0]; !strings.Contains(q, "start_time=uts1795330000") || strings.Contains(q, "show_duplicates=true") != (version == "41") {
			t.Errorf("%s was asked %s", version, q)
		}
		got := ""
		sql := "SELECT concat(toString(job_id), ' ', toString(if(array_job_id = 0, job_id, array_job_id)), ' ', toString(array_task), ' ', toString(j.state), ' ', toString(exit_code), ':', toString(exit_signal), ' ', j.name, ' ', j.user, ' ', " +
			"j.account, ' ', toString(alloc_cpus), ' ', toString(alloc_mem_mib), ' ', toString(alloc_nodes), ' ', toString(round(j.elapsed_us / 1e6)), '.0 ', toString(limit_us / 60000000), ' steps ', toString(n), ' of ', " +
			"sname, ' with ', toString(cpu), ' us, ', toString(rss), ' B') FROM muster.jobs AS j INNER JOIN (SELECT uid, count() AS n, any(name) AS sname, sum(user_cpu_us) AS cpu, any(peak_rss) AS rss FROM muster.steps WHERE ledger = {ledger:UUID} GROUP BY uid) AS st ON j.uid = st.uid " +
			"WHERE j.ledger = {ledger:UUID} AND job_id < 3 ORDER BY job_id"
		err := s.Query(t.Context(), query.Query{SQL: sql, Params: []query.Param{{Name: "ledger", Value: uuidOf(ledger)}}}, func(scan func(...any) error) error {
			var text string
			err := scan(&text)
			got += text + "\n"
			return err
		})
		if want := fmt.Sprintf(want, exit); err != nil || got != want {
			t.Errorf("%s: %v\n%swant\n%s", version, err, got, want)
		}
	}
}

// TestRESTRefuses: what a slurmrestd cannot do is said with its own words, and
// an answer that breaks off moves nothing on.
func TestRESTRefuses(t *testing.T) {
	pull := func(address, token string) error {
		source := importer.Slurm{REST: &importer.REST{Address: address, User: "alice", Token: token}}
		c := importer.Config{Store: nothing{}, Writer: nothing{}}
		return source.Pull(context.Background(), c, time.Unix(1_795_330_000, 0), time.Unix(1_795_340_000, 0), func(*importer.Result) {})
	}
	whole := recorded(t, "38")
	for want, answer := range map[string]struct {
		code int
		text string
	}{
		"Unable to connect to database (7000)": {500, `{"errors":[{"error_number":7000,"error":"Unable to connect to database"}]}`},
		"Nothing works (1)":                    {200, `{"jobs":[],"errors":[{"error_number":1,"description":"Nothing works"}]}`},
		"unexpected EOF":                       {200, whole[:len(whole)/2]},
		"no jobs":                              {200, `{"hello":1}`},
		"stands where":                         {200, `[]`},
		"502":                                  {502, `<html>`},
	} {
		server, _ := restServer(t, "38", func() (int, string) { return answer.code, answer.text })
		if err := pull(server.URL, "secret"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	server, _ := restServer(t, "38", func() (int, string) { return 200, whole })
	if err := pull(server.URL, "wrong"); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("a wrong token: %v", err)
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"paths":{}}`) }))
	t.Cleanup(other.Close)
	if err := pull(other.URL, ""); !errors.Is(err, importer.ErrREST) {
		t.Errorf("another server: %v", err)
	}
	if err := pull("unix:/nonexistent/socket", ""); err == nil {
		t.Error("a socket that is not there")
	}
}

// TestPulledHalf: a sacct that dies in the middle, after some of its lines were
// stored, leaves a position from which they are read again.
func TestPulledHalf(t *testing.T) {
	s := openStore(t)
	dir := t.TempDir()
	line := func(id int) string {
		return fmt.Sprintf("%d|COMPLETED|1795330100|1795330100|1795330200|u|1", id)
	}
	script := func(tail string) importer.Slurm {
		text := "#!/bin/sh\ncase $1 in --helpformat) echo " + strings.Join(importer.Columns(), " ") + "; exit;; esac\necho 'JobIDRaw|State|Submit|Start|End|User|AllocCPUS'\n" +
			"echo '" + line(1) + "'\necho '" + line(2) + "'\n" + tail + "\n"
		if err := os.WriteFile(dir+"/sacct", []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return importer.Slurm{Bin: dir}
	}
	ledger := tally.ImportedLedger("half")
	pull := func(source importer.Slurm) (importer.Result, error) {
		w, err := s.NewImportWriter(t.Context(), ledger, "half")
		if err != nil {
			t.Fatal(err)
		}
		c := importer.Config{Ledger: ledger, Store: importer.In(s), Writer: w, Batch: 1}
		var sum importer.Result
		return sum, source.Pull(t.Context(), c, time.Unix(1_795_330_000, 0), time.Unix(1_795_340_000, 0), sum.Sum)
	}
	if _, err := pull(script("exit 1")); err == nil {
		t.Fatal("it is taken for whole")
	}
	if pos, err := s.Position(t.Context(), ledger); err != nil || pos.At > spec.AtUnix(1_795_330_000) {
		t.Errorf("the position is at %v: what was not read is left out the next time, %v", pos.At, err)
	}
	sum, err := pull(script("echo '" + line(3) + "'"))
	if err != nil {
		t.Fatal(err)
	}
	if n := one(t, s, "SELECT toFloat64(count()) FROM muster.jobs WHERE ledger = toUUID('"+uuidOf(ledger)+"')"); n != 3 {
		t.Errorf("%v runs, %+v", n, sum)
	}
	if pos, err := s.Position(t.Context(), ledger); err != nil || pos.At != spec.AtUnix(1_795_340_000) {
		t.Errorf("the position is at %v, %v", pos.At, err)
	}
}
