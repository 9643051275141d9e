package serve

import "sync/atomic"

// budget counts bytes that may be held; it never makes anybody wait.
type budget struct {
	max  int64
	used atomic.Int64
}

func newBudget(max int64) *budget { return &budget{max: max} }

func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.max {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) { b.used.Add(-n) }
