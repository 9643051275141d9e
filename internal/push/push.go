package push

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// Gatherer gives what a scrape would get. The families are read until done is called.
type Gatherer func() (families []*dto.MetricFamily, done func(), err error)

// Receiver takes values.
type Receiver interface {
	// Encode makes a message of families as they were at a time. It keeps nothing of
	// them.
	Encode(families []*dto.MetricFamily, at time.Time) Message
	// Send hands a message over.
	Send(ctx context.Context, message Message) error
	Close() error
}

// Message is what a Receiver has made of values.
type Message any

// errRefused is what a receiver will refuse again.
var errRefused = errors.New("the receiver refuses the values for good")

// maxWaiting bounds the messages that wait for a receiver that is away: five minutes at
// the usual interval.
const maxWaiting = 30

// Config is what a Pusher needs.
type Config struct {
	Gather   Gatherer
	To       Receiver
	Interval time.Duration
	// First is how long to wait before the first push, so that processes that started
	// together do not push together.
	First time.Duration
	Now   func() time.Time
	// Tried is told how each push went; nil = nobody is.
	Tried func(error)
	// Changed is told the first failure after a success, and nil at the first success
	// after a failure.
	Changed func(error)
}

// Pusher sends values at intervals.
type Pusher struct {
	cfg     Config
	waiting []Message

	mu     sync.Mutex
	status Status
}

// Status is what a Pusher has done.
type Status struct {
	Pushes   uint64 // messages that were taken
	Failures uint64 // tries that failed
	Dropped  uint64 // messages that were given up
	Waiting  int
}

// New makes a Pusher.
func New(config Config) *Pusher { return &Pusher{cfg: config} }

// Run pushes until the context ends, and a last time then, so that a process that ends in
// order leaves its last counts.
func (p *Pusher) Run(ctx context.Context) error {
	timer := time.NewTimer(p.cfg.First)
	defer timer.Stop()
	var said error
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = p.push(last) // nobody is left to be told
			return p.cfg.To.Close()
		case <-timer.C:
		}
		timer.Reset(p.cfg.Interval)
		each, cancel := context.WithTimeout(ctx, p.cfg.Interval)
		err := p.push(each)
		cancel()
		if p.cfg.Tried != nil {
			p.cfg.Tried(err)
		}
		if ctx.Err() == nil && (err == nil) != (said == nil) {
			p.cfg.Changed(err)
			said = err
		}
	}
}

// push takes the values of now and sends what waits, the oldest first.
func (p *Pusher) push(ctx context.Context) error {
	families, done, err := p.cfg.Gather()
	if err != nil && len(families) == 0 {
		done()
		return fmt.Errorf("values to be pushed: %w", err)
	}
	p.waiting = append(p.waiting, p.cfg.To.Encode(families, p.cfg.Now()))
	done()
	if over := len(p.waiting) - maxWaiting; over > 0 {
		p.waiting = p.waiting[over:]
		p.count(func(s *Status) { s.Dropped += uint64(over) })
	}
	defer func() { p.count(func(s *Status) { s.Waiting = len(p.waiting) }) }()
	for len(p.waiting) > 0 {
		err := p.cfg.To.Send(ctx, p.waiting[0])
		switch {
		case err == nil:
			p.count(func(s *Status) { s.Pushes++ })
		case errors.Is(err, errRefused):
			p.count(func(status *Status) {
				status.Failures++
				status.Dropped++
			})
			p.waiting = p.waiting[1:]
			return err
		default:
			p.count(func(s *Status) { s.Failures++ })
			return err
		}
		p.waiting = p.waiting[1:]
	}
	return nil
}

func (p *Pusher) count(f func(*Status)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.status)
}

// Status tells what was done.
func (p *Pusher) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}
