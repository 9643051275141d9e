package clickhouse

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/ledger/event"
)

// BenchmarkCatchUp decodes, folds and stores a ledger of short jobs, as an
// ingester that is far behind does.
func BenchmarkCatchUp(b *testing.B) {
	for _, events := range []int{5_000, 50_000, 150_000} {
		b.Run(fmt.Sprintf("batch=%d", events), func(b *testing.B) {
			e := startEngine(b)
			s := openStore(b, e.Socket(), "bench")
			codec, err := event.NewCodec()
			if err != nil {
				b.Fatal(err)
			}
			log := shortJobs(b, 40_000)
			var entries [][]byte
			for at := 0; at < len(log); at += 100 {
				data, err := codec.Encode(log[at:min(at+100, len(log))])
				if err != nil {
					b.Fatal(err)
				}
				entries = append(entries, data)
			}
			n, rows := 0, 0
			used := cpu(e.PID())
			for b.Loop() {
				ta := tally.New()
				w, _, err := s.NewWriter(context.Background(), [16]byte{byte(n >> 16), byte(n >> 8), byte(n), 1}, "peer")
				if err != nil {
					b.Fatal(err)
				}
				if err := w.Generation(context.Background(), nil); err != nil {
					b.Fatal(err)
				}
				pending := make(chan *tally.Batch, 1)
				done := make(chan error, 1)
				go func() {
					var err error
					for batch := range pending {
						if err == nil {
							err = w.Write(context.Background(), batch)
						}
					}
					done <- err
				}()
				for _, data := range entries {
					envs, err := codec.Decode(data)
					if err != nil {
						b.Fatal(err)
					}
					for i := range envs {
						if err := ta.Apply(&envs[i]); err != nil {
							b.Fatal(err)
						}
					}
					if ta.Rows() >= events {
						batch := ta.Take()
						rows += batch.Rows()
						pending <- batch
					}
				}
				batch := ta.Take()
				rows += batch.Rows()
				pending <- batch
				close(pending)
				if err := <-done; err != nil {
					b.Fatal(err)
				}
				n += len(log)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric((cpu(e.PID())-used)/float64(n)*1e6, "engine-us/event")
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// cpu is how many seconds of CPU time a process has used.
func cpu(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return float64(user+system) / 100
}
