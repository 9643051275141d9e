package tool

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/musterhpc/muster/spec/format"
)

// How long a question to accounting may take before a person at a terminal is told that it
// is still being answered, and how often after that.
const (
	noteAfter = 3 * time.Second
	noteEvery = time.Second
)

// limitCall bounds a call. One to accounting has no limit, because a large question takes long. An
// accounting that is stopped is noticed all the same: it does not answer the client's pings.
func (c *Call) limitCall(method string) (context.Context, context.CancelFunc) {
	if toAccounting(method) {
		return context.WithCancel(c.Ctx)
	}
	return context.WithTimeout(c.Ctx, callPatience)
}

func toAccounting(method string) bool { return strings.HasPrefix(method, accountingPrefix) }

// NoteWaiting tells a person at a terminal for how long a question to accounting has been going on.
// stop ends that, before anything else is written to stderr; it can be called again.
func (c *Call) NoteWaiting(method string) (stop func()) {
	if !toAccounting(method) || c.Terminal == nil || !c.Terminal(c.Stderr) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(c.Ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.noteWaiting(ctx)
	}()
	return func() {
		cancel()
		<-over
	}
}

// noteWaiting says on stderr for how long accounting has been at work, on one line that is
// erased at the end of the context.
func (c *Call) noteWaiting(ctx context.Context) {
	began := c.Now()
	pause := noteAfter
	for shown := false; ; shown = true {
		c.Pause(ctx, pause)
		if ctx.Err() != nil {
			if shown {
				fmt.Fprint(c.Stderr, "\r\x1b[K")
			}
			return
		}
		fmt.Fprintf(
			c.Stderr,
			"\r\x1b[K%s: accounting has been reading for %s; Ctrl-C ends it",
			c.Command.Name,
			format.Duration(int64(c.Now().Sub(began)/time.Second)),
		)
		pause = noteEvery
	}
}
