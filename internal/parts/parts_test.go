package parts_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/musterhpc/muster/internal/parts"
)

var errBroken = errors.New("broken")

// TestFirstFailure: the failure of a part comes with its name; more of them block nobody.
func TestFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := parts.New(t.Context())
		for range 3 {
			g.Spawn("scheduler", func(context.Context) error { return errBroken })
		}
		synctest.Wait() // all of them have failed
		err := <-g.Failed()
		if !errors.Is(err, errBroken) || err.Error() != "scheduler: broken" {
			t.Errorf("the group failed with %v", err)
		}
		g.Stop()
	})
}

// TestStopWaits: Stop returns when every part has ended, also those that parts spawned, and what
// they return because of the end is no failure.
func TestStopWaits(t *testing.T) {
	g := parts.New(t.Context())
	ended := make(chan string, 2)
	spawned := make(chan bool)
	g.Spawn("outer", func(ctx context.Context) error {
		g.Spawn("inner", func(ctx context.Context) error {
			<-ctx.Done()
			ended <- "inner"
			return ctx.Err()
		})
		close(spawned)
		<-ctx.Done()
		ended <- "outer"
		return errBroken
	})
	<-spawned
	g.Stop()
	if len(ended) != 2 {
		t.Errorf("%d of 2 parts had ended when Stop returned", len(ended))
	}
	select {
	case err := <-g.Failed():
		t.Errorf("the end of the process is the failure %v", err)
	default:
	}
}

// TestParentEnds: parts end with the context in which the group was made.
func TestParentEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := parts.New(ctx)
	ended := make(chan bool)
	g.Spawn("one", func(ctx context.Context) error {
		<-ctx.Done()
		close(ended)
		return nil
	})
	cancel()
	<-ended
	g.Stop()
}
