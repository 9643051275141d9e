// Package parts runs the parts of a process side by side, until the first one fails or the process
// is told to end.
package parts

import (
	"context"
	"fmt"
	"sync"
)

// Group runs parts. They share a context, which ends all of them.
type Group struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	failed chan error
}

// New makes a group whose parts end with the context at the latest.
func New(parent context.Context) *Group {
	ctx, cancel := context.WithCancel(parent)
	return &Group{ctx: ctx, cancel: cancel, failed: make(chan error, 1)}
}

// Context is what the parts end with.
func (g *Group) Context() context.Context { return g.ctx }

// Spawn runs a part until the context ends. A part may spawn others.
func (g *Group) Spawn(name string, part func(context.Context) error) {
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		err := part(g.ctx)
		if err == nil || g.ctx.Err() != nil {
			return // what fails because the process ends is no failure
		}
		select {
		case g.failed <- fmt.Errorf("%s: %w", name, err):
		case <-g.ctx.Done():
		}
	}()
}

// Failed gives the failure of a part, the first one first. Whoever runs the group waits for it.
func (g *Group) Failed() <-chan error { return g.failed }

// Cancel tells the parts to end.
func (g *Group) Cancel() { g.cancel() }

// Stop tells the parts to end, and waits for them.
func (g *Group) Stop() {
	g.cancel()
	g.wg.Wait()
}
