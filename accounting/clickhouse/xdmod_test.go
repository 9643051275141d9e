package clickhouse

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// traces opens a file of the folder of real workloads, or skips.
func traces(t *testing.T, name string) *os.File {
	t.Helper()
	dir := os.Getenv("MUSTER_TRACES")
	if dir == "" {
		dir = "../../../shared/traces"
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Skipf("NOT TESTED against real workloads: %v (set MUSTER_TRACES to their folder)", err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// phillips is a real cluster's dump as rows; jobs that got no node are left
// out.
func phillips(t *testing.T) *tally.Batch {
	t.Helper()
	z, err := gzip.NewReader(traces(t, "xdmod/sacct_phillips.log.gz"))
	if err != nil {
		t.Fatal(err)
	}
	b := &tally.Batch{First: 1}
	instant := func(s string) int64 {
		at, err := time.Parse("2006-01-02T15:04:05", s)
		if err != nil {
			t.Fatal(err)
		}
		return at.UnixMicro()
	}
	amount := func(list, name string) int64 {
		for _, part := range strings.Split(list, ",") {
			if n, ok := strings.CutPrefix(part, name+"="); ok {
				v, err := strconv.ParseInt(n, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
		}
		return 0
	}
	lines := bufio.NewScanner(z)
	for lines.Scan() {
		f := strings.Split(lines.Text(), "|")
		if f[len(f)-2] == "None assigned" {
			continue
		}
		b.Last++
		r := tally.JobRow{
			Seq:       b.Last,
			UID:       b.Last,
			Attempt:   1,
			ArrayTask: -1,
			Count:     1,
			Partition: f[3],
			Account:   f[5],
			User:      f[8],
			Submit:    instant(f[10]),
			Eligible:  instant(f[11]),
			Start:     instant(f[12]),
			End:       instant(f[13]),
		}
		r.State, _, _ = strings.Cut(f[16], " ")
		cpus, err := strconv.ParseInt(f[18], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		r.Alloc = tally.Amounts{CPUs: cpus, GPUs: amount(f[22], "gres/gpu"), Nodes: amount(f[22], "node")}
		b.Jobs = append(b.Jobs, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestXDMoD: what another accounting system reports about a real cluster,
// day by day and in all, is what our reports say.
func TestXDMoD(t *testing.T) {
	b := phillips(t)
	s := openStore(t, startEngine(t).Socket(), "xdmod")
	w, _ := newWriter(t, s, tally.New())
	if err := w.Write(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	tres := map[string]string{
		"total_cpu_hours":  "cpu",
		"total_gpu_hours":  "gres/gpu",
		"total_node_hours": "node",
	}
	sc := scopeOf(s, w, spec.AtUnix(2_000_000_000))
	lines := bufio.NewScanner(traces(t, "xdmod/expected_phillips.csv"))
	checked := 0
	for lines.Scan() {
		f := strings.Split(lines.Text(), ",")
		name, ok := tres[f[1]]
		if !ok {
			continue
		}
		first, last, ok := strings.Cut(f[3], "..")
		if !ok {
			last = first
		}
		from, err := time.Parse(time.DateOnly, first)
		if err != nil {
			t.Fatal(err)
		}
		to, err := time.Parse(time.DateOnly, last)
		if err != nil {
			t.Fatal(err)
		}
		r := query.Report{
			Start: spec.AtUnix(from.Unix()),
			End:   spec.AtUnix(to.AddDate(0, 0, 1).Unix()),
			TRES:  name,
		}
		q, err := r.Used(sc)
		if err != nil {
			t.Fatal(err)
		}
		sum := new(big.Int)
		err = s.Query(context.Background(), q, func(scan func(...any) error) error {
			var account, user, used string
			var energy int64
			if err := scan(&account, &user, &used, &energy); err != nil {
				return err
			}
			n, ok := new(big.Int).SetString(used, 10)
			if !ok {
				return fmt.Errorf("%q is no amount", used)
			}
			sum.Add(sum, n)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		hours, _ := new(big.Float).Quo(new(big.Float).SetInt(sum), big.NewFloat(3.6e9)).Float64()
		want, err := strconv.ParseFloat(f[4], 64)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(hours-want) > 5e-5 {
			t.Errorf("%s of %s: %.4f, expected %.4f", f[1], f[3], hours, want)
		}
		checked++
	}
	if checked != 36 {
		t.Errorf("%d figures were compared", checked)
	}
}
