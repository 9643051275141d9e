package daemon

import (
	"bytes"
	"encoding/binary"
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

// hashOf is the hash under which content is kept. data must not change any more.
func (r *recent) hashOf(data []byte) spec.Hash {
	if len(data) > recentMost {
		return contentHash(data)
	}
	slot := &r.slot[maphash.Bytes(r.seed, data)%recentContents]
	if c := slot.Load(); c != nil && bytes.Equal(c.data, data) {
		return c.hash
	}
	c := &content{hash: contentHash(data), data: data}
	slot.Store(c)
	return c.hash
}

// maxSenders is for how many contents their senders are remembered.
const maxSenders = 4096

// senders remembers which users have sent which contents lately, so that they
// can refer to them by hash. What is forgotten has to be sent again. It is safe
// for several goroutines.
type senders [maxSenders]atomic.Pointer[sent]

// sent is a content that a user has sent.
type sent struct {
	uid  uint32
	hash spec.Hash
}

// slotOf is where a content of a user is remembered. The hash is uniformly
// distributed, so that a few bytes of it are enough.
func (s *senders) slotOf(uid uint32, hash spec.Hash) *atomic.Pointer[sent] {
	return &s[(binary.LittleEndian.Uint32(hash[:])^uid)%maxSenders]
}

func (s *senders) noteSender(uid uint32, hash spec.Hash) {
	slot := s.slotOf(uid, hash)
	if !s.knowsSender(uid, hash) {
		slot.Store(&sent{uid, hash})
	}
}

func (s *senders) knowsSender(uid uint32, hash spec.Hash) bool {
	known := s.slotOf(uid, hash).Load()
	return known != nil && *known == sent{uid, hash}
}
