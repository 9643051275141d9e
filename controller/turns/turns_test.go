package turns

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// scripted takes turns whose leaders do what a list says; the context ends with the list.
type scripted struct {
	turns []func(ctx context.Context, over chan struct{}) error
	done  []string
	end   context.CancelFunc
}

func (s *scripted) take(ctx context.Context) error {
	ctx, s.end = context.WithCancel(ctx)
	defer s.end()
	return Turns{
		StandBy: func(*parts.Group) error {
			s.done = append(s.done, "stand by")
			return nil
		},
		Await: func(ctx context.Context) error {
			if len(s.turns) == 0 {
				s.end()
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		},
		Lead: func() Turn {
			next := s.turns[0]
			s.turns = s.turns[1:]
			over := make(chan struct{})
			s.done = append(s.done, "lead")
			return Turn{
				Over:  over,
				Ended: func() {},
				Run:   func(ctx context.Context) error { return next(ctx, over) },
			}
		},
		Term: func() uint64 { return 1 },
		Log:  slog.New(slog.DiscardHandler),
	}.Take(ctx)
}

// loseLead is a leader that ends because the lead is over.
func loseLead(ctx context.Context, over chan struct{}) error {
	close(over)
	<-ctx.Done()
	return ctx.Err()
}

// refuseWrite is a leader whose ledger refuses a write before it says that the lead is over.
func refuseWrite(context.Context, chan struct{}) error { return daemon.ErrNotLeader }

// TestTurnsAlternate: whichever way a lead is lost, the controller stands by again, and the end of
// the process is not an error.
func TestTurnsAlternate(t *testing.T) {
	s := &scripted{turns: []func(context.Context, chan struct{}) error{loseLead, refuseWrite, loseLead}}
	if err := s.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"stand by", "lead", "stand by", "lead", "stand by", "lead", "stand by"}
	if !slices.Equal(s.done, want) {
		t.Errorf("turns: %q", s.done)
	}
}

// TestLeaderFails: an error of a leader ends the process; the controller does not stand by with a
// part that is broken.
func TestLeaderFails(t *testing.T) {
	broken := errors.New("the disk is full")
	s := &scripted{turns: []func(context.Context, chan struct{}) error{
		func(context.Context, chan struct{}) error { return broken },
		loseLead,
	}}
	if err := s.take(t.Context()); !errors.Is(err, broken) {
		t.Errorf("ended with %v", err)
	}
	if len(s.turns) != 1 {
		t.Error("it led again after an error")
	}
}

// TestTheLossIsTold: others hear that this controller leads no longer before its parts are stopped,
// which may take long.
func TestTheLossIsTold(t *testing.T) {
	told := make(chan struct{}, 2)
	over := make(chan struct{})
	first := true
	turns := Turns{
		StandBy: func(*parts.Group) error { return nil },
		Await: func(context.Context) error {
			if !first {
				return errors.New("the second turn is not for this test")
			}
			first = false
			return nil
		},
		Lead: func() Turn {
			return Turn{
				Over:  over,
				Ended: func() { told <- struct{}{} },
				Run: func(ctx context.Context) error {
					close(over)
					<-told // while the leader still runs
					<-ctx.Done()
					return nil
				},
			}
		},
		Term: func() uint64 { return 1 },
		Log:  slog.New(slog.DiscardHandler),
	}
	if err := turns.Take(t.Context()); err == nil || err.Error() != "the second turn is not for this test" {
		t.Errorf("ended with %v", err)
	}
}

// voter is a member that leads at its third question.
type voter struct {
	questions int
	err       error
}

func (v *voter) Changed() <-chan struct{} {
	changed := make(chan struct{})
	close(changed)
	return changed
}

func (v *voter) Resume(context.Context) error {
	v.questions++
	if v.questions < 3 {
		return log.ErrNotLeader
	}
	return v.err
}

// TestAwaitLead: only "not the leader" is asked again.
func TestAwaitLead(t *testing.T) {
	member := &voter{}
	if err := AwaitLead(t.Context(), member); err != nil || member.questions != 3 {
		t.Errorf("%v after %d questions", err, member.questions)
	}
	broken := errors.New("the log is damaged")
	if err := AwaitLead(t.Context(), &voter{err: broken}); !errors.Is(err, broken) {
		t.Errorf("ended with %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := AwaitLead(ctx, &voter{}); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}
