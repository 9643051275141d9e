package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/spec"
)

// keepMoment is how long the state of a moment stays in memory after its last use:
// a command asks several times, and whoever looks at a moment looks again.
const keepMoment = 30 * spec.Second

// moments makes the states of past moments. One is made at a time and one is kept,
// so that whoever asks for many takes one core and the memory of one state.
type moments struct {
	c    *Controller
	turn chan struct{}

	mu   sync.Mutex
	kept *pastView // the last one that was made; nil = none
	uses uint64

	// The first event that is known, and its time: it is asked for often and changes
	// when history is removed.
	first   uint64
	firstAt spec.Instant
}

// pastView is a state of the past, and its plan for an instant.
type pastView struct {
	view *view.View
	at   spec.Instant
}

func newMoments(controller *Controller) *moments {
	return &moments{c: controller, turn: make(chan struct{}, 1)}
}

// viewAt is the view that a request asks for, with the instant for which it is
// shown: the present, unless the request names another.
func (s *head) viewAt(
	ctx context.Context,
	moment *apiv1.Moment,
) (*view.View, spec.Instant, error) {
	if moment == nil {
		return s.C.View(), s.C.deps.Clock.Now(), nil
	}
	seq, at, err := s.C.findMoment(moment)
	if err != nil {
		return nil, 0, err
	}
	v, err := s.C.moments.viewAfter(ctx, seq, at)
	if err != nil {
		return nil, 0, err
	}
	return v.view, v.at, nil
}

// planAt is the plan that a pass makes for a state.
func planAt(cluster *state.State, at spec.Instant) (*view.Plan, error) {
	run := planner{}
	outcome, err := onePass(&view.View{State: cluster}, max(at, cluster.At), &run, false)
	if err != nil {
		return nil, fmt.Errorf("plan for event %d: %w", cluster.Seq, err)
	}
	return outcome.Plan, nil
}

// findMoment finds the last event of a moment, and refuses one that is not known.
func (c *Controller) findMoment(moment *apiv1.Moment) (seq uint64, at spec.Instant, err error) {
	known, err := c.knownRange()
	if err != nil {
		return 0, 0, err
	}
	if known.last < known.first {
		return 0, 0, spec.Refuse(spec.CodeInvalidTime, "no moment of the past is known yet")
	}
	seq = moment.GetSeq()
	if seq != 0 {
		if seq < known.first || seq > known.last {
			return 0, 0, c.unknownMoment(known)
		}
		return seq, 0, nil
	}
	at = spec.Instant(moment.GetAt())
	if at > c.deps.Clock.Now() {
		return 0, 0, c.unknownMoment(known)
	}
	after, err := c.firstSince(known, at+1)
	if err != nil {
		return 0, 0, err
	}
	if after == known.first {
		return 0, 0, c.unknownMoment(known)
	}
	return after - 1, at, nil
}

// firstMoment is the first moment that can be shown; 0 = the past is not known.
func (m *moments) firstMoment() spec.Instant {
	known, err := m.c.knownRange()
	if err != nil || known.last < known.first {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.first != known.first {
		envelope, err := m.c.eventAt(known.first)
		if err != nil {
			return 0
		}
		m.first = known.first
		m.firstAt = envelope.At
	}
	return m.firstAt
}

// unknownMoment refuses a moment with the range that is known.
func (c *Controller) unknownMoment(known pastRange) error {
	first, err := c.eventAt(known.first)
	if err != nil {
		return err
	}
	return spec.Refuse(
		spec.CodeInvalidTime,
		fmt.Sprintf(
			"the past is known from %s (#%d) to now (#%d)",
			time.Unix(0, int64(first.At)).
				UTC().
				Format("2006-01-02T15:04:05.000Z"),
			known.first,
			known.last,
		),
	)
}

// viewAfter is the state after an event, as a view without anything that only the
// present knows. at is the instant for which it is shown; 0 = that of the event.
func (m *moments) viewAfter(ctx context.Context, seq uint64, at spec.Instant) (*pastView, error) {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-m.turn }()
	m.mu.Lock()
	kept := m.kept
	m.mu.Unlock()
	var cluster *state.State
	var err error
	if kept != nil && kept.view.State.Seq == seq {
		cluster = kept.view.State
	} else if cluster, err = m.foldMoment(ctx, kept, seq); err != nil {
		return nil, err
	}
	if at == 0 {
		at = cluster.At
	}
	if kept == nil || kept.view.State != cluster || kept.at != at {
		kept = &pastView{
			view: &view.View{State: cluster, Published: at, Durable: cluster.Seq}, at: at,
		}
		// The plan was never stored. The pass that made it is a function of state and
		// time, and makes it again.
		if cluster.Waiting.Len()+cluster.Sleeping.Len() > 0 {
			kept.view.Plan, err = planAt(cluster, at)
			if err != nil {
				return nil, err
			}
		}
	}
	m.keepState(kept)
	return kept, nil
}

// keepState holds a state until it has not been used for a while.
func (m *moments) keepState(v *pastView) {
	m.mu.Lock()
	m.kept = v
	m.uses++
	uses := m.uses
	m.mu.Unlock()
	go func() {
		over, stop := m.c.deps.Clock.After(keepMoment)
		defer stop()
		select {
		case <-over:
		case <-m.c.stopping:
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.uses == uses {
			m.kept = nil
		}
	}()
}

// foldMoment makes the state after an event: from the snapshot before it, or from the one
// that is kept if that is nearer.
func (m *moments) foldMoment(
	ctx context.Context,
	kept *pastView,
	seq uint64,
) (*state.State, error) {
	cluster, err := m.c.deps.Past.Snapshot(seq)
	if err != nil {
		return nil, err
	}
	if kept != nil && kept.view.State.Seq <= seq && kept.view.State.Seq > cluster.Seq {
		cluster = kept.view.State
	}
	if cluster.Frozen() {
		cluster = cluster.Fork()
	}
	if cluster.Seq == seq {
		return cluster.Freeze(), nil
	}
	reader, err := m.c.deps.Past.Read(cluster.Seq + 1)
	if err != nil {
		return nil, err
	}
	for cluster.Seq < seq {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if m.c.isStopping() {
			return nil, spec.Refuse(spec.CodeStopping, "")
		}
		batch, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the archive ends before event %d, which is in the ledger", seq)
		}
		if err != nil {
			return nil, err
		}
		for i := range batch {
			if batch[i].Seq <= cluster.Seq || batch[i].Seq > seq {
				continue
			}
			if err := cluster.Apply(&batch[i]); err != nil {
				return nil, fmt.Errorf("fold event %d: %w", batch[i].Seq, err)
			}
		}
		runtime.Gosched() // the writer and the passes go first
	}
	return cluster.Freeze(), nil
}

// nodeLive is what is known of a node beside the ledger. Of a moment of the past
// that is nothing.
func (s *nodeCalls) nodeLive(moment *apiv1.Moment, node *state.Node) wire.NodeLive {
	if moment == nil {
		return s.C.hub.nodeLive(node.Spec.Name)
	}
	return wire.NodeLive{LoadMilli: -1, MemFree: -1, Trouble: fenceTrouble(node)}
}
