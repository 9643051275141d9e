package embedded

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// BenchmarkSelect1 is the time of the smallest statement, through driver, socket and engine.
func BenchmarkSelect1(b *testing.B) {
	s := startEngine(b, Options{})
	c := open(b, clientOptions(s.Socket()))
	times := make([]time.Duration, 0, b.N)
	for b.Loop() {
		at := time.Now()
		one[uint8](b, c, "SELECT 1")
		times = append(times, time.Since(at))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkInsert is rows of seven columns in batches of 100,000.
func BenchmarkInsert(b *testing.B) {
	s := startEngine(b, Options{})
	for name, method := range map[string]clickhouse.CompressionMethod{"none": clickhouse.CompressionNone, "lz4": clickhouse.CompressionLZ4} {
		b.Run(name, func(b *testing.B) {
			o := clientOptions(s.Socket())
			o.Compression = &clickhouse.Compression{Method: method}
			c := open(b, o)
			mustExec(b, c, `CREATE OR REPLACE TABLE bench (id UInt64, at DateTime64(6, 'UTC'), user LowCardinality(String), state Enum8('a' = 1, 'b' = 2),
				cpus UInt32, mem UInt64, name String) ENGINE = MergeTree ORDER BY id SETTINGS fsync_after_insert = 1, fsync_part_directory = 1`)
			const rows = 100_000
			at := time.Now()
			for b.Loop() {
				batch, err := c.PrepareBatch(context.Background(), "INSERT INTO bench")
				if err != nil {
					b.Fatal(err)
				}
				for i := range uint64(rows) {
					if err := batch.Append(i, at, "user"+strconv.Itoa(int(i%100)), "a", uint32(i), i<<20, "job-name"); err != nil {
						b.Fatal(err)
					}
				}
				if err := batch.Send(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkDurableInsert is one row a statement, acknowledged when it is on disk, by eight writers.
func BenchmarkDurableInsert(b *testing.B) {
	s := startEngine(b, Options{})
	o := clientOptions(s.Socket())
	o.MaxOpenConns, o.MaxIdleConns = 8, 8
	c := open(b, o)
	mustExec(b, c, "CREATE TABLE durable (a UInt64) ENGINE = MergeTree ORDER BY a SETTINGS fsync_after_insert = 1, fsync_part_directory = 1")
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := c.Exec(context.Background(), "INSERT INTO durable VALUES (1)"); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "inserts/s")
}

// BenchmarkRead is the driver reading a million rows.
func BenchmarkRead(b *testing.B) {
	s := startEngine(b, Options{})
	c := open(b, clientOptions(s.Socket()))
	const rows = 1_000_000
	for b.Loop() {
		res, err := c.Query(context.Background(), fmt.Sprintf("SELECT number FROM numbers(%d)", rows))
		if err != nil {
			b.Fatal(err)
		}
		var n uint64
		for res.Next() {
			if err := res.Scan(&n); err != nil {
				b.Fatal(err)
			}
		}
		if res.Err() != nil || n != rows-1 {
			b.Fatal(n, res.Err())
		}
	}
	b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds(), "rows/s")
}
