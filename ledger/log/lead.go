package log

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Lead is one lead of this member, from its election to its end.
//
// Raft tells a leader that it was overtaken only when it hears of it: a process that was stopped and
// continues, or whose messages were held up, takes itself for the leader in the meantime. Whoever
// answers from the state of a leader therefore has the lead confirmed: a majority says, in answer
// to something that was sent later than the question came, that it knows of no later election.
// Clocks have no part in that. A lease would need a bound on their drift, and voters that do not
// vote for a while after a restart.
type Lead struct {
	d    *Durable
	term uint64
	over <-chan struct{}
}

// Moment is a point in the order of what this member sends to the others and is asked by callers.
type Moment uint64

// PresentLead is the lead that this member has now. Of one that it does not have nothing can be
// confirmed.
func (d *Durable) PresentLead() *Lead {
	// In this order: the term of a later election does not confirm an earlier lead.
	over := d.LeadOver()
	return &Lead{d: d, term: d.raft.CurrentTerm(), over: over}
}

// Over is closed when the lead has ended.
func (l *Lead) Over() <-chan struct{} { return l.over }

// Now is the present moment.
func (l *Lead) Now() Moment { return l.d.heard.present() }

// Confirm returns nil when the lead is known to have gone on after a moment, so that the state that
// this member has applied by then has everything that was acknowledged before the moment. It returns
// ErrNotLeader when the lead is over. What the others answer anyway, for instance to a batch
// that was appended later than the moment, counts; otherwise they are asked, once for all who wait.
func (l *Lead) Confirm(ctx context.Context, since Moment) error {
	if l.d.alone {
		return nil
	}
	for {
		heard := l.d.heard.changes()
		if l.isOver() {
			return &NotLeaderError{Leader: l.d.Leader()}
		}
		if l.isConfirmed(since) {
			return nil
		}
		l.askMembers(since)
		select {
		case <-heard:
		case <-l.over:
		case <-l.d.closing:
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("waiting for a majority of the controllers: %w", context.Cause(ctx))
		}
	}
}

func (l *Lead) isOver() bool {
	select {
	case <-l.over:
		return true
	default:
		return l.d.raft.CurrentTerm() != l.term
	}
}

// isConfirmed counts the votes of those that answered something sent after a moment.
func (l *Lead) isConfirmed(since Moment) bool {
	votes := 0
	voters := 0
	for _, s := range l.d.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if string(s.ID) == l.d.opts.NodeID || l.d.heard.answered(s.ID, l.term) > since {
			votes++
		}
	}
	return votes > voters/2
}

// askMembers sends to every voter that has not answered anything since a moment. A voter that is
// being asked already is asked again by then, if its answer comes too early for somebody.
func (l *Lead) askMembers(since Moment) {
	for _, s := range l.d.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter && string(s.ID) != l.d.opts.NodeID && l.d.heard.ask(s.ID, since) {
			go l.askMember(s)
		}
	}
}

// askMember sends one heartbeat after another until nobody waits for a later answer of this member.
// Raft's own VerifyLeader does not serve: it also counts answers to what was sent before it was
// called, and it waits for the goroutine that syncs the log.
func (l *Lead) askMember(to raft.Server) {
	trans := l.d.trans
	self := trans.EncodePeer(raft.ServerID(l.d.opts.NodeID), trans.LocalAddr())
	request := raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax,
			ID:              []byte(l.d.opts.NodeID),
			Addr:            self,
		},
		Term:   l.term,
		Leader: self,
	}
	for {
		var answer raft.AppendEntriesResponse
		sent := l.d.heard.present() + 1 // at least
		err := trans.AppendEntries(to.ID, to.Address, &request, &answer)
		if answer.Term > l.term {
			l.d.raft.VerifyLeader() // has raft hear of it, too
		}
		if err == nil && answer.Success {
			if l.d.heard.stopAsking(to.ID, sent) {
				return
			}
			continue
		}
		select {
		case <-time.After(l.d.opts.Timeout / 10):
		case <-l.over:
		case <-l.d.closing:
		}
		if l.isOver() || l.d.isClosing() {
			l.d.heard.giveUpAsking(to.ID)
			return
		}
	}
}

func (d *Durable) isClosing() bool {
	select {
	case <-d.closing:
		return true
	default:
		return false
	}
}

// heard is what the other members answered.
type heard struct {
	mu     sync.Mutex
	moment Moment
	last   map[raft.ServerID]hearing
	asked  map[raft.ServerID]Moment // who is being asked, and since when the answer is wanted
	change chan struct{}            // closed and replaced at every answer
	// silent tells whether this member must not say that it leads.
	silent func() bool
}

// hearing is the newest answer of a member: to what was sent at a moment in a term.
type hearing struct {
	term uint64
	sent Moment
}

func newHeard() *heard {
	return &heard{
		last:   map[raft.ServerID]hearing{},
		asked:  map[raft.ServerID]Moment{},
		change: make(chan struct{}),
		silent: func() bool { return false },
	}
}

func (h *heard) present() Moment {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.moment
}

// noteSending gives the moment of something that is sent right afterwards.
func (h *heard) noteSending() Moment {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moment++
	return h.moment
}

// noteAnswer takes a member's answer. Only one that accepts the leader of the request's term counts.
func (h *heard) noteAnswer(
	from raft.ServerID,
	sent Moment,
	request *raft.AppendEntriesRequest,
	answer *raft.AppendEntriesResponse,
) {
	if !answer.Success || answer.Term != request.Term {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.last[from]
	if last.term > request.Term || last.term == request.Term && last.sent >= sent {
		return
	}
	h.last[from] = hearing{term: request.Term, sent: sent}
	close(h.change)
	h.change = make(chan struct{})
}

// answered is the moment of the last thing sent in a term that a member has answered.
func (h *heard) answered(id raft.ServerID, term uint64) Moment {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.last[id]
	if last.term != term {
		return 0
	}
	return last.sent
}

// changes is closed at the next answer.
func (h *heard) changes() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.change
}

// ask notes that an answer to something sent after a moment is wanted, and tells whether nobody
// asks for one yet.
func (h *heard) ask(id raft.ServerID, since Moment) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted, asking := h.asked[id]
	h.asked[id] = max(wanted, since)
	return !asking
}

// stopAsking tells whether the answer to what was sent at a moment is all that is wanted.
func (h *heard) stopAsking(id raft.ServerID, sent Moment) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked[id] >= sent {
		return false
	}
	delete(h.asked, id)
	return true
}

func (h *heard) giveUpAsking(id raft.ServerID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.asked, id)
}

// hearingTransport notes what other members answer.
type hearingTransport struct {
	raft.Transport
	heard *heard
}

// hear makes a transport note answers. Raft asks a transport what else it can.
func (h *heard) hear(t raft.Transport) raft.Transport {
	noting := hearingTransport{Transport: t, heard: h}
	if voting, ok := t.(raft.WithPreVote); ok {
		return votingTransport{hearingTransport: noting, WithPreVote: voting}
	}
	return noting
}

// votingTransport is a transport that knows elections before elections.
type votingTransport struct {
	hearingTransport
	raft.WithPreVote
}

// AppendEntries implements raft.Transport.
func (t hearingTransport) AppendEntries(
	id raft.ServerID,
	target raft.ServerAddress,
	args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse,
) error {
	if t.heard.silent() {
		return errDiskHangs
	}
	sent := t.heard.noteSending()
	err := t.Transport.AppendEntries(id, target, args, resp)
	if err == nil {
		t.heard.noteAnswer(id, sent, args, resp)
	}
	return err
}

// AppendEntriesPipeline implements raft.Transport.
func (t hearingTransport) AppendEntriesPipeline(
	id raft.ServerID,
	target raft.ServerAddress,
) (raft.AppendPipeline, error) {
	inner, err := t.Transport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := &hearingPipeline{
		AppendPipeline: inner,
		heard:          t.heard,
		from:           id,
		answers:        make(chan raft.AppendFuture),
		done:           make(chan struct{}),
		sent:           map[*raft.AppendEntriesRequest]Moment{},
	}
	go p.passAnswers()
	return p, nil
}

// Close implements raft.WithClose.
func (t hearingTransport) Close() error {
	if closer, ok := t.Transport.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// hearingPipeline notes the answers that come through a pipeline before raft reads them: the
// answer to a batch confirms the lead before the batch is acknowledged.
type hearingPipeline struct {
	raft.AppendPipeline
	heard   *heard
	from    raft.ServerID
	answers chan raft.AppendFuture
	done    chan struct{}
	once    sync.Once

	mu   sync.Mutex
	sent map[*raft.AppendEntriesRequest]Moment
}

// AppendEntries implements raft.AppendPipeline.
func (p *hearingPipeline) AppendEntries(
	args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse,
) (raft.AppendFuture, error) {
	if p.heard.silent() {
		return nil, errDiskHangs
	}
	p.mu.Lock()
	p.sent[args] = p.heard.noteSending()
	p.mu.Unlock()
	return p.AppendPipeline.AppendEntries(args, resp)
}

func (p *hearingPipeline) passAnswers() {
	for {
		var answer raft.AppendFuture
		select {
		case answer = <-p.AppendPipeline.Consumer():
		case <-p.done:
			return
		}
		p.noteAnswer(answer)
		select {
		case p.answers <- answer:
		case <-p.done:
			return
		}
	}
}

func (p *hearingPipeline) noteAnswer(answer raft.AppendFuture) {
	request := answer.Request()
	p.mu.Lock()
	sent := p.sent[request]
	delete(p.sent, request)
	p.mu.Unlock()
	if answer.Error() == nil {
		p.heard.noteAnswer(p.from, sent, request, answer.Response())
	}
}

// Consumer implements raft.AppendPipeline.
func (p *hearingPipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// Close implements raft.AppendPipeline.
func (p *hearingPipeline) Close() error {
	p.once.Do(func() { close(p.done) })
	return p.AppendPipeline.Close()
}
