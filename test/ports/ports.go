// Package ports finds free ports for the labs of tests, which run at the same time.
package ports

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
)

// Lab is how many ports in a row a lab of two nodes takes, with some to spare.
const Lab = 20

// ErrNone is returned where no ports are free.
var ErrNone = errors.New("no free ports")

const (
	first = 20000
	last  = 60000
	step  = 2 * Lab
	// A process begins its search at a place of its own, far from those of processes with numbers near
	// its own: test programs that start together would find the same ports otherwise.
	places = 20000
	spread = 997
)

// Finder finds ports of one process, never the same ones twice. Its zero value is ready for use.
type Finder struct {
	mu   sync.Mutex
	next int // where the next search begins
}

// Free finds the first of count ports in a row on which nothing listens.
func (f *Finder) Free(count int) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	start := max(first+os.Getpid()*spread%places, f.next)
	for ; start+count < last; start += max(step, count) {
		if areFree(start, count) {
			f.next = start + max(step, count)
			return start, nil
		}
	}
	return 0, fmt.Errorf("%w: %d in a row", ErrNone, count)
}

func areFree(start, count int) bool {
	for port := start; port < start+count; port++ {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		_ = listener.Close()
	}
	return true
}
