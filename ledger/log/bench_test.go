package log_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/log/logtest"
)

// countMachine does nothing but count.
type countMachine struct{ n int }

func (m *countMachine) Apply(log.Position, []byte) error { m.n++; return nil }
func (m *countMachine) Snapshot() (func(io.Writer) error, error) {
	return func(io.Writer) error { return nil }, nil
}
func (m *countMachine) Restore(io.Reader) error { return nil }

// BenchmarkAppend prints appends a second, batches to a sync, and the time from Append to Wait's return.
func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 64} {
		for _, size := range []int{256, 16 << 10} {
			b.Run(fmt.Sprintf("callers=%d/bytes=%d", callers, size), func(b *testing.B) { benchAppend(b, callers, size) })
		}
	}
}

func benchAppend(b *testing.B, callers, size int) {
	l, err := log.Open(bg, log.Options{Dir: b.TempDir(), Machine: &countMachine{}})
	if err != nil {
		b.Fatal(err)
	}
	batch := make([]byte, size)
	for i := range batch {
		batch[i] = byte(i)
	}
	took := make([]time.Duration, b.N)
	b.SetBytes(int64(size))
	b.ResetTimer()
	var wg sync.WaitGroup
	for c := range callers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := c; i < b.N; i += callers {
				began := time.Now()
				if _, err := l.Append(batch).Wait(bg); err != nil {
					b.Error(err)
					return
				}
				took[i] = time.Since(began)
			}
		}()
	}
	wg.Wait()
	b.StopTimer()
	s := l.Stats()
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
	b.ReportMetric(float64(s.Batches)/float64(s.Groups), "batches/sync")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	if err := l.Close(bg); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRestart opens a log with a tail of so many entries.
func BenchmarkRestart(b *testing.B) {
	for _, entries := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("tail=%d", entries), func(b *testing.B) {
			opts := log.Options{Dir: b.TempDir(), Machine: &countMachine{}, SnapshotEvery: 1 << 40, SnapshotBytes: 1 << 40}
			fill(b, opts, entries)
			b.ResetTimer()
			for range b.N {
				m := &countMachine{}
				opts.Machine = m
				l, err := log.Open(context.Background(), opts)
				if err != nil {
					b.Fatal(err)
				}
				if m.n != entries {
					b.Fatalf("%d batches replayed", m.n)
				}
				b.StopTimer()
				if err := l.Close(bg); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

func fill(b *testing.B, opts log.Options, entries int) {
	l, err := log.Open(bg, opts)
	if err != nil {
		b.Fatal(err)
	}
	batch := make([]byte, 512)
	for i := range batch {
		batch[i] = byte(i)
	}
	for i := 0; i < entries; {
		for range min(10_000, entries-i) {
			l.Append(batch)
			i++
		}
		if err := l.Barrier(bg); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Close(bg); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkMemory is the twin, for comparison.
func BenchmarkMemory(b *testing.B) {
	l := log.NewMemory(&logtest.Machine{})
	for i := range b.N {
		if _, err := l.Append(fmt.Append(nil, i)).Wait(bg); err != nil {
			b.Fatal(err)
		}
	}
}
