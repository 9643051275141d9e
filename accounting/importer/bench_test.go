package importer_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/importer"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// dump writes n jobs of one month, each with its batch step unless bare.
func dump(w io.Writer, n int, steps bool) error {
	r := rand.New(rand.NewPCG(1, 2))
	cols := importer.Columns()
	if _, err := io.WriteString(w, strings.Join(cols, "|")+"\n"); err != nil {
		return err
	}
	at := func(sec int64) string { return time.Unix(sec, 0).UTC().Format("2006-01-02T15:04:05") }
	cell := map[string]string{}
	line := make([]string, len(cols))
	write := func() error {
		for i, c := range cols {
			line[i] = cell[c]
		}
		_, err := io.WriteString(w, strings.Join(line, "|")+"\n")
		return err
	}
	const begin, month = 1_790_000_000, 30 * 86400
	for i := range n {
		submit := begin + int64(i)*month/int64(n)
		start := submit + r.Int64N(3600)
		end := start + 1 + r.Int64N(4*3600)
		cpus, user := 1+r.IntN(32), r.IntN(200)
		state := [...]string{"COMPLETED", "COMPLETED", "COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED by 1001"}[r.IntN(7)]
		clear(cell)
		for k, v := range map[string]string{"JobIDRaw": fmt.Sprint(i + 1), "JobID": fmt.Sprint(i + 1), "Cluster": "bench", "Partition": fmt.Sprintf("p%d", i%5), "QOS": "normal",
			"Account": fmt.Sprintf("acct%d", user%20), "User": fmt.Sprintf("user%d", user), "UID": fmt.Sprint(1000 + user), "Group": "users", "GID": "100", "State": state,
			"ExitCode": "0:0", "DerivedExitCode": "0:0", "Submit": at(submit), "Eligible": at(submit), "Start": at(start), "End": at(end), "TimelimitRaw": "600",
			"Suspended": "00:00:00", "NNodes": "1", "AllocCPUS": fmt.Sprint(cpus), "ReqCPUS": fmt.Sprint(cpus), "ReqMem": "4000M",
			"ReqTRES":   fmt.Sprintf("billing=%d,cpu=%d,mem=4000M,node=1", cpus, cpus),
			"AllocTRES": fmt.Sprintf("billing=%d,cpu=%d,gres/gpu=2,mem=4000M,node=1", cpus, cpus), "NodeList": fmt.Sprintf("n%d", i%500), "TotalCPU": "01:10:00", "UserCPU": "01:00:00",
			"SystemCPU": "10:00.123", "Priority": "4294", "AssocID": "12", "WorkDir": "/home/u", "JobName": fmt.Sprintf("job%d", user%7)} {
			cell[k] = v
		}
		if err := write(); err != nil {
			return err
		}
		if steps {
			cell["JobIDRaw"], cell["JobID"], cell["JobName"] = cell["JobIDRaw"]+".batch", cell["JobID"]+".batch", "batch"
			cell["MaxRSS"], cell["NTasks"], cell["TRESUsageInTot"] = "2000K", "1", "cpu=01:10:00,energy=0,fs/disk=1234,mem=2000K,pages=0,vmem=3000K"
			if err := write(); err != nil {
				return err
			}
		}
	}
	return nil
}

// BenchmarkRead measures reading alone, BenchmarkImport with a fresh store.
func BenchmarkRead(b *testing.B) {
	var text strings.Builder
	if err := dump(&text, 100_000, false); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		if _, err := importer.Import(b.Context(), importer.Config{Store: nothing{}, Writer: nothing{}, Now: spec.AtUnix(1_800_000_000)}, strings.NewReader(text.String())); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkImport: a million lines, and half of them steps.
func BenchmarkImport(b *testing.B) {
	for _, steps := range []bool{false, true} {
		var text strings.Builder
		n := 1_000_000
		if steps {
			n = 500_000
		}
		if err := dump(&text, n, steps); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("steps=%v", steps), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				s := openStore(b)
				ledger := tally.ImportedLedger("bench")
				w, err := s.NewImportWriter(b.Context(), ledger, "bench")
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				res, err := importer.Import(b.Context(), importer.Config{Ledger: ledger, Store: importer.In(s), Writer: w, Now: spec.AtUnix(1_800_000_000)}, strings.NewReader(text.String()))
				if err != nil || !res.Reconciled() || res.New != n {
					b.Fatal(err, res)
				}
			}
			b.ReportMetric(1e6*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}

// BenchmarkGraham tells what the tables of jobs take on the disk for each job
// of a real site, with the parts merged as the engine does in time.
func BenchmarkGraham(b *testing.B) {
	for b.Loop() {
		s := openStore(b)
		res, _ := graham(b, s)
		w, err := s.NewImportWriter(b.Context(), tally.ImportedLedger("graham"), "graham")
		if err == nil {
			err = importer.RollUp(b.Context(), w)
		}
		if err != nil {
			b.Fatal(err)
		}
		sum := 0.0
		for _, table := range [...]string{"jobs", "job_nodes", "rollup_days", "rollup_quarters"} { // the trace has no steps and no devices
			if err := s.Exec(b.Context(), "OPTIMIZE TABLE muster."+table+" FINAL"); err != nil {
				b.Fatal(err)
			}
			bytes := one(b, s, "SELECT toFloat64(sum(bytes_on_disk)) FROM system.parts WHERE active AND database = 'muster' AND table = '"+table+"'") / float64(res.New)
			b.ReportMetric(bytes, table+"-bytes/job")
			sum += bytes
		}
		b.ReportMetric(sum, "bytes/job")
	}
}
