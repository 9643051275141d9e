// Package turns takes turns at the lead of a group of controllers: it stands by until this
// controller is elected, leads until it no longer does, and stands by again. What a standby serves
// and what a leader runs are functions of the caller; this package decides when each begins and
// ends, and what an error means.
package turns

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// ErrLeadOver ends a turn of leading: another controller leads, or none.
var ErrLeadOver = errors.New("this controller leads no longer")

// Turns says what a controller does in each of its turns.
type Turns struct {
	// StandBy starts what a standby runs. The group ends before a turn of leading begins, because
	// both listen on the same addresses.
	StandBy func(group *parts.Group) error
	// Await returns nil when this controller leads.
	Await func(ctx context.Context) error
	// Lead begins a turn.
	Lead func() Turn
	// Term is the present term of the group, for the log.
	Term func() uint64
	Log  *slog.Logger
}

// Turn is one turn of leading.
type Turn struct {
	// Over is closed when the lead is lost.
	Over <-chan struct{}
	// Ended tells others that this controller leads no longer. It is called as soon as the lead is
	// lost, before Run is told, and again when Run has returned.
	Ended func()
	Run   func(ctx context.Context) error
}

// Take takes turns until the context ends, which is not an error, or until a part fails.
func (t Turns) Take(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := t.standBy(ctx); err != nil || ctx.Err() != nil {
			return ignoreEnd(ctx, err)
		}
		err := t.lead(ctx)
		if !errors.Is(err, ErrLeadOver) {
			return ignoreEnd(ctx, err)
		}
		t.Log.Info("this controller stands by", "term", t.Term())
	}
	return nil
}

// ignoreEnd drops errors that come of the end of the process.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// standBy runs what a standby runs until this controller is elected.
func (t Turns) standBy(parent context.Context) error {
	group := parts.New(parent)
	defer group.Stop()
	if err := t.StandBy(group); err != nil {
		return err
	}
	elected := make(chan error, 1)
	group.Spawn("wait for the lead", func(ctx context.Context) error {
		elected <- t.Await(ctx)
		return nil
	})
	select {
	case err := <-elected:
		return err
	case err := <-group.Failed():
		return err
	case <-parent.Done():
		return nil
	}
}

// lead runs one turn until another controller leads, or none.
func (t Turns) lead(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	t.Log.Info("this controller was elected", "term", t.Term())
	turn := t.Lead()
	go func() {
		select {
		case <-turn.Over:
			turn.Ended()
			cancel(ErrLeadOver)
		case <-ctx.Done():
		}
	}()
	err := turn.Run(ctx)
	turn.Ended()
	if parent.Err() != nil {
		return err
	}
	// The ledger may refuse a write as of no leader before it closes Over.
	if errors.Is(context.Cause(ctx), ErrLeadOver) || errors.Is(err, daemon.ErrNotLeader) {
		return ErrLeadOver
	}
	return err
}

// Member is a member of the group as AwaitLead sees it.
type Member interface {
	// Changed is closed at the next change of the lead.
	Changed() <-chan struct{}
	// Resume returns nil where this member leads and has applied all that earlier leaders wrote,
	// and log.ErrNotLeader where it does not lead.
	Resume(ctx context.Context) error
}

// retryAfter bounds the wait for a change that came before Changed was asked for.
const retryAfter = 50 * time.Millisecond

// AwaitLead returns nil when a member leads and all that earlier leaders wrote is applied there.
func AwaitLead(ctx context.Context, member Member) error {
	for ctx.Err() == nil {
		changed := member.Changed()
		err := member.Resume(ctx)
		if err == nil || !errors.Is(err, log.ErrNotLeader) {
			return err
		}
		select {
		case <-changed:
		case <-time.After(retryAfter):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
