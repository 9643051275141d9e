package blob

import (
	"container/list"
	"sync"
)

// cache keeps the blobs used last, up to a number of bytes.
type cache struct {
	mu    sync.Mutex
	limit int64
	size  int64
	order *list.List // of *cached, newest first
	at    map[Hash]*list.Element
}

type cached struct {
	hash Hash
	data []byte
}

func newCache(limit int64) *cache {
	return &cache{limit: limit, order: list.New(), at: map[Hash]*list.Element{}}
}

func (c *cache) get(hash Hash) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.at[hash]
	if !ok {
		return nil, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).data, true
}

func (c *cache) put(hash Hash, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.at[hash]; ok || int64(len(data)) > c.limit/8 {
		return
	}
	c.at[hash] = c.order.PushFront(&cached{hash, data})
	c.size += int64(len(data))
	for c.size > c.limit {
		c.dropOldest(c.order.Back())
	}
}

func (c *cache) remove(hash Hash) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.at[hash]; ok {
		c.dropOldest(e)
	}
}

func (c *cache) dropOldest(e *list.Element) {
	v := e.Value.(*cached)
	c.order.Remove(e)
	delete(c.at, v.hash)
	c.size -= int64(len(v.data))
}
