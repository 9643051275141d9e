//go:build linux

package minder

import (
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
	"golang.org/x/sys/unix"
)

// TestStoppedPMIx: a muster-pmix that its user has stopped, which reads nothing, does not hold up
// the end of the step.
func TestStoppedPMIx(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := newPMIx(&minder{}, &plan.PMIx{}, pair[0])
	locked := make(chan struct{})
	written := make(chan struct{})
	go func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		close(locked)
		p.write(make([]byte, 64<<20)) // more than a socket takes
		close(written)
	}()
	<-locked
	closed := make(chan struct{})
	go func() { p.close(); close(closed) }()
	<-written
	_ = unix.Close(pair[1]) // killed by the shepherd
	<-closed
}
