package daemon

import (
	"bytes"
	"fmt"
	"testing"
)

// The hash is right for each content, however many share a slot.
func TestRecentContents(t *testing.T) {
	r := newRecent()
	for round := range 3 {
		for i := range 2000 {
			data := []byte(fmt.Sprint("script ", i))
			if got := r.hashOf(data); got != contentHash(data) {
				t.Fatalf("round %d, content %d: %v", round, i, got)
			}
		}
	}
	for _, size := range []int{0, recentMost, recentMost + 1} {
		data := bytes.Repeat([]byte{7}, size)
		if r.hashOf(data) != contentHash(data) || r.hashOf(data) != contentHash(data) {
			t.Errorf("%d bytes", size)
		}
	}
}

func BenchmarkContents(b *testing.B) {
	data := bytes.Repeat([]byte("VAR=value\x00"), 1200)
	b.Run("again", func(b *testing.B) {
		r := newRecent()
		for b.Loop() {
			r.hashOf(data)
		}
	})
	b.Run("hashed", func(b *testing.B) {
		for b.Loop() {
			contentHash(data)
		}
	})
}
