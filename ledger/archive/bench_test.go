package archive_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
)

// sample is a batch that compresses about as job events do.
func sample(size int) []byte {
	rng := rand.New(rand.NewPCG(1, 1))
	var b []byte
	for len(b) < size {
		b = fmt.Appendf(b, "job=%d user=alice partition=gpu node=node%03d uuid=GPU-%08x;", rng.IntN(1e6), rng.IntN(999), rng.Uint32())
	}
	return b[:size]
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{256, 16 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			a := open(b, b.TempDir(), 0)
			pool := sample(8 << 20)
			b.SetBytes(int64(size))
			b.ResetTimer()
			for i := range b.N {
				at := i * 4099 % (len(pool) - size)
				if err := a.Append(uint64(i+1), uint64(i+1), uint64(i+1), pool[at:at+size]); err != nil {
					b.Fatal(err)
				}
				if i%1000 == 999 {
					if _, err := a.Sync(); err != nil {
						b.Fatal(err)
					}
				}
			}
			if _, err := a.Sync(); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			sealedAll(a)
			b.ReportMetric(float64(a.Stats().Bytes)/float64(b.N), "disk-bytes/op")
			closed(b, a)
		})
	}
}

func BenchmarkRead(b *testing.B) {
	const size, count = 1024, 200_000
	a := open(b, b.TempDir(), 0)
	pool := sample(8 << 20)
	for i := range count {
		at := i * 4099 % (len(pool) - size)
		if err := a.Append(uint64(i+1), uint64(i+1), uint64(i+1), pool[at:at+size]); err != nil {
			b.Fatal(err)
		}
	}
	sealedAll(a)
	b.SetBytes(size)
	it := a.ReadFrom(1)
	b.ResetTimer()
	for range b.N {
		_, err := it.Next()
		if errors.Is(err, io.EOF) {
			it = a.ReadFrom(1)
		} else if err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	closed(b, a)
}
