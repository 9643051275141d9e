package tool

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/musterhpc/muster/spec"
)

// A controller that limits the calls of each user refuses what comes too soon
// with CodeBackoff, before it has looked at it, so that the call can be repeated.
const (
	firstBackoff    = 500 * time.Millisecond
	longestBackoff  = 8 * time.Second
	backoffPatience = time.Minute // as long as a call may take
)

// Patiently repeats a call that the controller refuses because the user calls too
// often. do must leave nothing behind where it fails so. Each wait is twice as
// long as the one before, and spread at random: the commands of a loop must not
// come back all at once.
func (c *Call) Patiently(ctx context.Context, do func() error) error {
	until := c.Now().Add(backoffPatience)
	for wait := firstBackoff; ; wait = min(2*wait, longestBackoff) {
		err := do()
		if err == nil || ExplainError(err).Code != spec.CodeBackoff ||
			c.Now().Add(wait).After(until) {
			return err
		}
		c.Pause(ctx, wait/2+rand.N(wait))
		if ctx.Err() != nil {
			return err
		}
	}
}
