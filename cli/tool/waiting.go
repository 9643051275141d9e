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

// patience bounds a call. Accounting takes as long as its question is large, and one that is
// stopped does not answer the pings that the client sends meanwhile: it needs no limit.
func (c *Call) patience(method string) (ctx context.Context, stop func()) {
	if !strings.HasPrefix(method, accountingPrefix) {
		return context.WithTimeout(c.Ctx, callPatience)
	}
	ctx, cancel := context.WithCancel(c.Ctx)
	if c.Terminal == nil || !c.Terminal(c.Stderr) {
		return ctx, cancel
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.noteWaiting(ctx)
	}()
	return ctx, func() {
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
