//go:build linux

package minder

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
	"github.com/musterhpc/muster/spec"
)

// What a program says in the last words of its PMI need not be text; the line
// that tells of it must reach the client all the same, and all that follows it.
func TestLinesNeedNotBeText(t *testing.T) {
	m := &minder{out: newFrames()}
	m.tellUser(nil, "the program aborts: \xff\xfe")
	frame, err := protocol.Encode(protocol.Message{Op: protocol.OpStepFrames}, protocol.StepFrames{Frames: m.out.list})
	if err != nil {
		t.Fatal(err)
	}
	r, err := protocol.NewReader(bytes.NewReader(frame))
	if err != nil {
		t.Fatal(err)
	}
	var got protocol.StepFrames
	msg, err := r.Next()
	if err == nil {
		err = r.Decode(msg, &got)
	}
	if err != nil || len(got.Frames) != 1 || !strings.HasPrefix(got.Frames[0].Notice, "the program aborts: ") {
		t.Errorf("%+v: %v", got, err)
	}
}

// Output in single bytes counts with what each frame takes, and its room is
// given back.
func TestSmallOutputTakesRoomToo(t *testing.T) {
	f := newFrames()
	n := 0
	for ; f.held < keep; n++ {
		f.addFrame(plan.Frame{Output: &plan.Output{Stream: 1, Data: []byte{'x'}}})
	}
	if n > keep/cost {
		t.Errorf("%d frames are kept", n)
	}
	r := f.attachReader(0, false)
	if sent := len(f.nextFrames(r)); sent > batch/cost {
		t.Errorf("%d frames in one message", sent)
	}
	f.noteSent(r, uint64(n))
	f.ackFrames(uint64(n))
	if f.held != 0 || len(f.list) != 0 {
		t.Errorf("%d bytes and %d frames are left", f.held, len(f.list))
	}
}

// The process that minds a step ends once its end is acknowledged and every
// reader has it, whichever comes first.
func TestTheEndIsHeard(t *testing.T) {
	heard := func(f *frames) bool {
		select {
		case <-f.heard:
			return true
		default:
			return false
		}
	}
	for _, ackFirst := range []bool{true, false} {
		f := newFrames()
		f.addFrame(plan.Frame{End: &plan.FrameEnd{}})
		r := f.attachReader(0, false)
		steps := []func(){func() { f.ackFrames(1) }, func() { f.noteSent(r, uint64(len(f.nextFrames(r)))) }}
		if !ackFirst {
			steps[0], steps[1] = steps[1], steps[0]
		}
		if steps[0](); heard(f) {
			t.Errorf("acknowledged first (%v): it ends too soon", ackFirst)
		}
		steps[1]()
		f.ackFrames(1) // again
		if f.detachReader(r); !heard(f) {
			t.Errorf("acknowledged first (%v): it does not end", ackFirst)
		}
	}
}

// Nothing is kept beyond its room for somebody who watches and does not read,
// be it output or what tasks exchange; and his typing nothing does not pile up.
func TestWhoWatchesHoldsNothing(t *testing.T) {
	for name, x := range map[string]plan.Frame{
		"output": {Output: &plan.Output{Stream: 1, Data: make([]byte, piece)}},
		"fences": {Fence: &plan.Fence{Data: make([]byte, piece)}},
	} {
		f := newFrames()
		f.attachReader(0, true)
		r := f.attachReader(0, false)
		for n := range uint64(4 * keep / piece) {
			f.addFrame(x)
			f.noteSent(r, n+1)
			f.ackFrames(n + 1)
		}
		if len(f.list) > keep/piece {
			t.Errorf("%d frames with %s are kept", len(f.list), name)
		}
	}
	in := &input{}
	in.changed = sync.NewCond(&in.mu)
	m := &minder{tasks: []*task{{input: in}}}
	if err := m.passTyped(&protocol.StepInput{Rank: spec.InputAll}); err != nil || len(in.queue) != 0 {
		t.Errorf("%d empty pieces wait: %v", len(in.queue), err)
	}
}
