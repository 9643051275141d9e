package sending

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	tracesrpc "go.opentelemetry.io/proto/otlp/collector/trace/v1"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/audit"
	"github.com/musterhpc/muster/internal/otlp"
	"github.com/musterhpc/muster/internal/traces"
)

// Source is the ledger as a Sender reads it.
type Source interface {
	// Now is the position behind the newest event.
	Now() audit.Position
	// Head is the newest event.
	Head() uint64
	// Resume gives the first event behind a position. gap tells that traces are missing
	// or come again, because the ledger does not hold what follows the position.
	Resume(audit.Position) (from uint64, gap string, err error)
	// FollowLives hands on the events from one on, as they happen, and before them those
	// that belong to the jobs that were known there, until take fails or the context
	// ends. It waits for take.
	FollowLives(ctx context.Context, from uint64, take func(*apiv1.EventsReply) error) error
}

// Receiver takes spans.
type Receiver interface {
	SendTraces(context.Context, *tracesrpc.ExportTraceServiceRequest) (otlp.Rejected, error)
	Close() error
}

// Config is what a Sender needs.
type Config struct {
	Source   Source
	To       Receiver
	Resource Resource
	Position string // file that remembers how far this has come
	Pause    func(context.Context, time.Duration)
	Now      func() time.Time
	Log      *slog.Logger
}

// Sender sends traces of jobs to one collector.
type Sender struct {
	cfg Config

	mu      sync.Mutex
	taken   audit.Position // up to here every trace has been taken
	saved   audit.Position
	waiting int64 // when the oldest trace that is not taken was whole, in nanoseconds; 0 = none
	status  Status
	said    string
}

// Status is how a Sender is.
type Status struct {
	Seq      uint64 // up to this event every trace has been taken
	Seconds  float64
	Traces   uint64
	Spans    uint64
	Refused  uint64 // spans that the collector did not want
	Failures uint64
}

// Times of a Sender.
const (
	saveEvery  = time.Second
	firstPause = time.Second
	maxPause   = 30 * time.Second
	// maxAsked bounds the pause that a collector asks for.
	maxAsked = 5 * time.Minute
)

// New makes a Sender with the position that an earlier one left. Without one it begins
// with the jobs that end from now on: muster traces tells of those before.
func New(config Config) (*Sender, error) {
	sender := &Sender{cfg: config}
	if sender.cfg.Pause == nil {
		sender.cfg.Pause = pause
	}
	position, err := audit.ReadPosition(config.Position)
	if err != nil {
		return nil, err
	}
	sender.saved = position
	if position == (audit.Position{}) {
		position = config.Source.Now()
	}
	sender.taken = position
	return sender, nil
}

// Run sends until the context ends.
func (s *Sender) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { s.keep(ctx) })
	for wait := firstPause; ctx.Err() == nil; wait = min(2*wait, maxPause) {
		before := s.Saved()
		err := s.follow(ctx)
		if ctx.Err() != nil {
			break
		}
		if s.Saved() != before {
			wait = firstPause
		}
		s.failed(err)
		s.cfg.Pause(ctx, wait)
	}
	wg.Wait()
	return errors.Join(s.cfg.To.Close(), s.save())
}

// follow reads the ledger from where every trace has been taken.
func (s *Sender) follow(ctx context.Context) error {
	from, gap, err := s.cfg.Source.Resume(s.position())
	if err != nil {
		return err
	}
	if gap != "" {
		s.cfg.Log.Warn("traces of jobs are missing or come again", "reason", gap)
	}
	lives := traces.NewBuilder(0, from-1)
	err = s.cfg.Source.FollowLives(ctx, from, func(m *apiv1.EventsReply) error {
		for _, event := range m.GetEvents() {
			lives.Add(event)
		}
		if err := s.deliver(ctx, lives.Take()); err != nil {
			return err
		}
		if m.GetSeq() >= from {
			s.note(audit.Position{Epoch: m.GetEpoch(), Seq: m.GetSeq()})
		}
		return nil
	})
	if err == nil && ctx.Err() == nil {
		err = errors.New("the ledger was not followed any further")
	}
	return err
}

// deliver hands traces over, however long that takes; an error is the context's end.
func (s *Sender) deliver(ctx context.Context, list []*traces.Trace) error {
	if len(list) == 0 {
		return nil
	}
	s.mu.Lock()
	s.waiting = list[0].Root.End
	s.mu.Unlock()
	for _, m := range s.cfg.Resource.messages(list) {
		if err := s.send(ctx, m); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = 0
	s.status.Traces += uint64(len(list))
	return nil
}

// send hands one message over. A collector that refuses it for good is asked for each
// trace of it, so that one that it cannot bear costs no other.
func (s *Sender) send(ctx context.Context, m message) error {
	for wait := firstPause; ; wait = min(2*wait, maxPause) {
		rejected, err := s.cfg.To.SendTraces(ctx, m.request)
		if err == nil {
			s.sent(m, rejected)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var why *otlp.Error
		known := errors.As(err, &why)
		if known && why.Never {
			return s.refused(ctx, m, err)
		}
		s.failed(err)
		if known {
			wait = max(wait, min(why.After, maxAsked))
		}
		s.cfg.Pause(ctx, wait)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// refused sends the traces of a message one by one, and gives up one that comes alone.
func (s *Sender) refused(ctx context.Context, m message, why error) error {
	if len(m.jobs) > 1 {
		for _, one := range m.split() {
			if err := s.send(ctx, one); err != nil {
				return err
			}
		}
		return nil
	}
	s.cfg.Log.Error(
		"the collector refuses the trace of a job for good; muster traces --jobs writes it",
		"job", m.jobs[0],
		"error", why,
	)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Refused += uint64(m.spans)
	return nil
}

// sent counts what the collector took.
func (s *Sender) sent(m message, rejected otlp.Rejected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := uint64(min(max(rejected.Count, 0), int64(m.spans)))
	s.status.Spans += uint64(m.spans) - left
	s.status.Refused += left
	if left > 0 {
		s.cfg.Log.Error(
			"the collector left out spans of jobs",
			"jobs", m.jobs,
			"spans", left,
			"reason", rejected.Why,
		)
	}
	if s.said != "" {
		s.said = ""
		s.cfg.Log.Info("traces of jobs are sent again")
	}
}

// failed counts a failure, and tells it once.
func (s *Sender) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Failures++
	if text := err.Error(); text != s.said {
		s.said = text
		s.cfg.Log.Error("traces of jobs are not sent; it is tried again and nothing is lost", "error", err)
	}
}

func (s *Sender) position() audit.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

func (s *Sender) note(position audit.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = position
}

// keep notes from time to time how far this has come.
func (s *Sender) keep(ctx context.Context) {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := s.save(); err != nil {
			s.failed(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// save writes the position to its file.
func (s *Sender) save() error {
	s.mu.Lock()
	position := s.taken
	same := position == s.saved
	s.mu.Unlock()
	if same {
		return nil
	}
	if err := audit.WritePosition(s.cfg.Position, position); err != nil {
		return fmt.Errorf("how far traces of jobs have been sent: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = position
	return nil
}

// Saved is how far this has surely come, as the file has it.
func (s *Sender) Saved() audit.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saved
}

// Status tells how the Sender is.
func (s *Sender) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	status.Seq = s.taken.Seq
	if s.waiting != 0 {
		status.Seconds = max(s.cfg.Now().Sub(time.Unix(0, s.waiting)).Seconds(), 0)
	}
	return status
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
