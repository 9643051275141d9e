package daemon

import (
	"bytes"
	"hash/maphash"
	"sync/atomic"

	"github.com/musterhpc/muster/spec"
)

// Scripts and environments come again and again: of a loop that submits, and
// of everyone whose shell has the same variables. Hashing them is a tenth of
// what a submission costs, comparing them a hundredth.
const (
	recentContents = 256
	recentMost     = 64 << 10 // larger ones are hashed each time
)

// recent remembers the hashes of contents that were seen lately. It is safe for
// several goroutines. A guess that two contents are the same is always checked.
type recent struct {
	seed maphash.Seed
	slot [recentContents]atomic.Pointer[content]
}

func newRecent() *recent { return &recent{seed: maphash.MakeSeed()} }

// sum is the hash under which content is kept. data must not change any more.
func (r *recent) sum(data []byte) spec.Hash {
	if len(data) > recentMost {
		return sum(data)
	}
	slot := &r.slot[maphash.Bytes(r.seed, data)%recentContents]
	if c := slot.Load(); c != nil && bytes.Equal(c.data, data) {
		return c.hash
	}
	c := &content{hash: sum(data), data: data}
	slot.Store(c)
	return c.hash
}
