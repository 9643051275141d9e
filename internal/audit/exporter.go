package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/durable"
)

// Position is how far a target has come in the ledger.
type Position struct {
	Epoch uint64 `json:"epoch"` // of the event
	Seq   uint64 `json:"seq"`   // everything up to this event has been taken
}

// Source is the ledger as an exporter reads it.
type Source interface {
	// Resume gives the first event behind a position; of the zero position, the
	// first of the present epoch. gap tells that records are missing or come again,
	// because the ledger does not hold what follows the position.
	Resume(Position) (from uint64, gap string, err error)
	// Follow hands on the events from one on, as they happen, until take fails or
	// the context ends. It waits for take.
	Follow(ctx context.Context, from uint64, take func(*apiv1.EventsReply) error) error
	// Head is the newest event.
	Head() uint64
}

// Config is what an Exporter needs.
type Config struct {
	Name     string // of the target, for metrics and messages
	Target   Target
	Source   Source
	Origin   Origin
	Which    Which
	Position string    // file that remembers how far the target has come
	Refusals *Refusals // may be nil
	Pause    func(context.Context, time.Duration)
	Now      func() time.Time
	Log      *slog.Logger
}

// Exporter writes the trail to one target.
type Exporter struct {
	cfg    Config
	inbox  *inbox
	firing sync.Mutex // one goroutine at a time writes to the target

	mu       sync.Mutex
	marks    []mark // the newest last; the first has settled, or nothing has
	saved    Position
	lagSince time.Time // since when the target has not had everything
	records  uint64
	failures uint64
	said     string
}

// mark is a position and when the target had taken it.
type mark struct {
	pos    Position
	opened time.Time
	at     time.Time
}

// Times of an exporter.
const (
	keepEvery  = time.Second
	markEvery  = 250 * time.Millisecond
	pauseFirst = time.Second
	pauseMost  = 30 * time.Second
	// linesAtOnce bounds one call of a target.
	linesAtOnce = 500
	// lastWords is how long the refusals that wait at the end may take.
	lastWords = time.Second
)

// New makes an exporter with the position that an earlier one left.
func New(config Config) (*Exporter, error) {
	exporter := &Exporter{cfg: config, lagSince: config.Now()}
	if exporter.cfg.Pause == nil {
		exporter.cfg.Pause = pause
	}
	position, err := ReadPosition(config.Position)
	if err != nil {
		return nil, err
	}
	exporter.saved = position
	exporter.marks = []mark{{pos: position}}
	if config.Refusals != nil {
		exporter.inbox = config.Refusals.attachInbox()
	}
	return exporter, nil
}

// ReadPosition reads a file with a position; without one it is the zero position.
func ReadPosition(path string) (position Position, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Position{}, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &position)
	}
	if err != nil {
		return position, fmt.Errorf(
			"how far the audit trail has come (%s): %w; take the file away to begin with the present",
			path,
			err,
		)
	}
	return position, nil
}

// WritePosition replaces the file with a position.
func WritePosition(path string, position Position) error {
	data, err := json.Marshal(position)
	if err != nil {
		return err
	}
	return durable.WriteFile(path, append(data, '\n'), 0o600)
}

// Run writes until the context ends. A target that fails is tried again; nothing
// is lost by waiting, because the ledger keeps what the target has not taken.
func (e *Exporter) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { e.keep(ctx) })
	if e.inbox != nil {
		wg.Go(func() { e.tellRefusals(ctx) })
	}
	for wait := pauseFirst; ctx.Err() == nil; wait = min(2*wait, pauseMost) {
		before := e.Status().Records
		err := e.follow(ctx)
		if ctx.Err() != nil {
			break
		}
		if e.Status().Records > before {
			wait = pauseFirst
		}
		e.failed(err)
		e.cfg.Pause(ctx, wait)
	}
	wg.Wait()
	return e.end()
}

// end notes how far this has come. A connection that is closed in order loses
// nothing, so the newest position holds.
func (e *Exporter) end() error {
	e.firing.Lock()
	defer e.firing.Unlock()
	err := e.cfg.Target.Close()
	if err == nil {
		e.mu.Lock()
		newest := e.marks[len(e.marks)-1]
		e.marks = []mark{newest}
		e.mu.Unlock()
	}
	return errors.Join(err, e.save())
}

// follow writes from the position on that is known to have arrived.
func (e *Exporter) follow(ctx context.Context) error {
	from, gap, err := e.cfg.Source.Resume(e.rewind())
	if err != nil {
		return err
	}
	if gap != "" {
		e.cfg.Log.Warn(
			"the audit trail has a gap or repeats records",
			"target",
			e.cfg.Name,
			"reason",
			gap,
		)
		line, err := e.cfg.Origin.Gap(e.cfg.Now(), gap).Line()
		if err != nil {
			return err
		}
		if err := e.write(ctx, []string{line}); err != nil {
			return err
		}
	}
	err = e.cfg.Source.Follow(ctx, from, func(m *apiv1.EventsReply) error { return e.take(ctx, m) })
	if err == nil && ctx.Err() == nil {
		err = errors.New("the ledger was not followed any further")
	}
	return err
}

// take writes what belongs to the trail.
func (e *Exporter) take(ctx context.Context, message *apiv1.EventsReply) error {
	var lines []string
	for _, info := range message.GetEvents() {
		if !e.cfg.Which.Wants(info) {
			continue
		}
		line, err := e.cfg.Origin.FromEvent(info).Line()
		if err != nil {
			return err
		}
		lines = append(lines, line)
		if len(lines) == linesAtOnce {
			if err := e.write(ctx, lines); err != nil {
				return err
			}
			lines = lines[:0]
		}
	}
	if err := e.write(ctx, lines); err != nil {
		return err
	}
	if message.GetSeq() > 0 {
		e.note(Position{message.GetEpoch(), message.GetSeq()})
	}
	return nil
}

// write hands lines to the target.
func (e *Exporter) write(ctx context.Context, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	e.firing.Lock()
	defer e.firing.Unlock()
	if err := e.cfg.Target.Write(ctx, lines); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.records += uint64(len(lines))
	if e.said != "" {
		e.cfg.Log.Info("the audit trail is written again", "target", e.cfg.Name)
		e.said = ""
	}
	return nil
}

// note adds a mark. Marks that come close together are one.
func (e *Exporter) note(position Position) {
	now := e.cfg.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if last := &e.marks[len(e.marks)-1]; len(e.marks) > 1 && now.Sub(last.opened) < markEvery {
		last.pos = position
		last.at = now
		return
	}
	e.marks = append(e.marks, mark{position, now, now})
}

// settle forgets marks before the newest that has settled.
func (e *Exporter) settle() Position {
	now := e.cfg.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.marks) > 1 && now.Sub(e.marks[1].at) >= e.cfg.Target.Settles() {
		e.marks = e.marks[1:]
	}
	return e.marks[0].pos
}

// rewind goes back to what is known to have arrived.
func (e *Exporter) rewind() Position {
	position := e.settle()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.marks = e.marks[:1]
	return position
}

// keep notes from time to time how far the target has come.
func (e *Exporter) keep(ctx context.Context) {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if head := e.cfg.Source.Head(); e.Status().Seq >= head {
			e.mu.Lock()
			e.lagSince = e.cfg.Now()
			e.mu.Unlock()
		}
		if err := e.save(); err != nil {
			e.failed(err)
		}
	}
}

// save writes the position that has settled.
func (e *Exporter) save() error {
	position := e.settle()
	e.mu.Lock()
	same := position == e.saved
	e.mu.Unlock()
	if same {
		return nil
	}
	if err := WritePosition(e.cfg.Position, position); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.saved = position
	return nil
}

// Saved is how far the target has surely come, as the file has it.
func (e *Exporter) Saved() Position {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.saved
}

// failed counts a failure, and tells it once.
func (e *Exporter) failed(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failures++
	if text := err.Error(); text != e.said {
		e.said = text
		e.cfg.Log.Error(
			"the audit trail is not written; it is tried again and nothing is lost",
			"target",
			e.cfg.Name,
			"error",
			err,
		)
	}
}

// Status is how an exporter is.
type Status struct {
	Target   string
	Seq      uint64 // of the newest event that the target has taken
	Seconds  float64
	Records  uint64
	Failures uint64
	LeftOut  uint64 // refusals that were not written
}

// Status tells it.
func (e *Exporter) Status() Status {
	head := e.cfg.Source.Head()
	e.mu.Lock()
	defer e.mu.Unlock()
	status := Status{
		Target:   e.cfg.Name,
		Seq:      e.marks[len(e.marks)-1].pos.Seq,
		Records:  e.records,
		Failures: e.failures,
	}
	if status.Seq < head {
		status.Seconds = max(e.cfg.Now().Sub(e.lagSince).Seconds(), 0)
	}
	if e.inbox != nil {
		status.LeftOut = e.inbox.leftOut()
	}
	return status
}

// tellRefusals writes the refusals as they come. They are kept while the target
// is away, as far as there is room.
func (e *Exporter) tellRefusals(ctx context.Context) {
	tick := time.NewTicker(tellLeftOutEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		var lines []string
		select {
		case line := <-e.inbox.lines:
			lines = e.inbox.addWaiting(line)
		case <-tick.C:
			lines = e.leftOut()
		case <-ctx.Done():
		}
		for len(lines) > 0 && ctx.Err() == nil {
			err := e.write(ctx, lines)
			if err == nil {
				lines = nil
				break
			}
			e.failed(err)
			e.cfg.Pause(ctx, pauseFirst)
		}
		if len(lines) > 0 || ctx.Err() != nil {
			e.tellLast(lines)
		}
	}
}

// tellLast tries once to write what waits at the end.
func (e *Exporter) tellLast(lines []string) {
	lines = append(lines, e.inbox.addWaiting()...)
	lines = append(lines, e.leftOut()...)
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	if err := e.write(ctx, lines); err != nil {
		e.cfg.Log.Warn(
			"refusals are missing in the audit trail",
			"target",
			e.cfg.Name,
			"refusals",
			len(lines),
			"error",
			err,
		)
	}
}

// leftOut is the record of refusals that were left out since the last one.
func (e *Exporter) leftOut() []string {
	n := e.inbox.newlyLeftOut()
	if n == 0 {
		return nil
	}
	line, err := e.cfg.Origin.LeftOut(e.cfg.Now(), n).Line()
	if err != nil {
		e.failed(err)
		return nil
	}
	return []string{line}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
