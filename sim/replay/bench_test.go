package replay

import (
	"runtime/debug"
	"testing"
)

// BenchmarkReplay replays KTH under EASY.
func BenchmarkReplay(b *testing.B) {
	tr := readTrace(b, "easy/KTH-SP2.easy.swf.gz")
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	b.ReportAllocs()
	for b.Loop() {
		replayed(b, tr, 100, "easy")
	}
}
