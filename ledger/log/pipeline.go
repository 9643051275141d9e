package log

import (
	"sync"

	"github.com/hashicorp/raft"
)

// transport is raft's own one, but for its pipelines, and that it sees the end of processes.
type transport struct {
	*raft.NetworkTransport
	ending endingLayer
}

// ConnectionEnded implements Prober.
func (t transport) ConnectionEnded() <-chan struct{} { return t.ending.ended }

// Probe implements Prober.
func (t transport) Probe(address string) error { return t.ending.probe(address) }

// AppendEntriesPipeline implements raft.Transport.
func (t transport) AppendEntriesPipeline(
	id raft.ServerID,
	target raft.ServerAddress,
) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := &pipeline{
		AppendPipeline: inner,
		answers:        make(chan raft.AppendFuture),
		done:           make(chan struct{}),
	}
	go p.collect()
	return p, nil
}

// pipeline takes the answers out of raft's pipeline whether raft reads them or not.
//
// raft stops reading at the first answer that is not a success, such as that of a member that was
// started anew or has heard of a later election. Its sender may then be about to send, and
// waits in AppendEntries for room, which only a read answer makes. It waits for ever: that member
// gets nothing more of the log while this one leads, and this one's shutdown does not end.
type pipeline struct {
	raft.AppendPipeline
	answers chan raft.AppendFuture
	done    chan struct{}
	once    sync.Once
}

// collect passes answers on in their order. Raft keeps few requests under way, so few wait here.
func (p *pipeline) collect() {
	var waiting []raft.AppendFuture
	for {
		var out chan<- raft.AppendFuture
		var next raft.AppendFuture
		if len(waiting) > 0 {
			out = p.answers
			next = waiting[0]
		}
		select {
		case answer := <-p.AppendPipeline.Consumer():
			waiting = append(waiting, answer)
		case out <- next:
			waiting = waiting[1:]
		case <-p.done:
			return
		}
	}
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.done) })
	return p.AppendPipeline.Close()
}
