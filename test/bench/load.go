package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/framed/client"
	"github.com/musterhpc/muster/internal/transport/grpcx"
)

// content is what each submission carries: a script and an environment of
// given sizes, the same for every job or different in each.
type content struct {
	script, env []byte
	unique      bool
}

// number is where the job's own number stands in unique content.
const number = "0000000000"

func newContent(scriptBytes, envBytes int, unique bool) content {
	return content{script: pad([]byte("#!/bin/sh\n:\n# "+number+"\n# "), scriptBytes, '.', '\n'),
		env: pad(
			[]byte("PATH=/usr/bin:/bin\x00HOME=/\x00BENCH="+number+"\x00PAD="),
			envBytes,
			'.',
			0,
		), unique: unique}
}

// pad fills buffer up to size; what is there already is kept whole.
func pad(buffer []byte, size int, with, last byte) []byte {
	if n := size - len(buffer) - 1; n > 0 {
		buffer = append(buffer, bytes.Repeat([]byte{with}, n)...)
	}
	return append(buffer, last)
}

// of gives job n's script and environment.
func (c content) of(n int) (script, env *apiv1.Blob) {
	if !c.unique {
		return &apiv1.Blob{Data: c.script}, &apiv1.Blob{Data: c.env}
	}
	return &apiv1.Blob{Data: numbered(c.script, n)}, &apiv1.Blob{Data: numbered(c.env, n)}
}

func numbered(template []byte, n int) []byte {
	out := bytes.Clone(template)
	if at := bytes.Index(out, []byte(number)); at >= 0 {
		digits := strconv.Itoa(n)
		copy(out[at+max(len(number)-len(digits), 0):], digits)
	}
	return out
}

func (c content) describe() string {
	how := "the same for every job"
	if c.unique {
		how = "different for every job"
	}
	return fmt.Sprintf("script %d bytes, environment %d bytes, %s", len(c.script), len(c.env), how)
}

// load is a number of jobs to submit and how.
type load struct {
	jobs, clients int
	stream        bool
	framed        bool // single calls over the protocol of the tools, not gRPC
	window        int  // of a stream: submissions on their way
	content       content
	spec          *apiv1.JobSpec
}

// outcome of a load.
type outcome struct {
	took     time.Duration
	acked    int
	refused  map[string]int // by reason
	times    []time.Duration
	firstErr error // a client stopped: what it had not sent is missing in acked
}

// tally is one client's share of an outcome; only its client writes it.
type tally struct {
	acked   int
	refused map[string]int
	times   []time.Duration
	err     error
}

func (t *tally) refuse(reason string) {
	if t.refused == nil {
		t.refused = map[string]int{}
	}
	t.refused[reason]++
}

// submitAll submits the jobs through as many connections as there are clients.
func (l *load) submitAll(ctx context.Context, c *cluster, p *progress) (outcome, error) {
	clients := make([]caller, l.clients)
	defer func() {
		for _, cl := range clients {
			if cl.close != nil {
				cl.close()
			}
		}
	}()
	for i := range clients {
		var err error
		clients[i], err = c.dialCaller(ctx, l.framed)
		if err != nil {
			return outcome{}, fmt.Errorf("client %d: %w", i+1, err)
		}
	}
	tallies := make([]tally, l.clients)
	var next, done atomic.Int64
	stop := watchProgress(ctx, p, &done, l.jobs)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			t := &tallies[i]
			if l.stream {
				t.err = l.streamed(ctx, clients[i].api, t, &next, &done)
			} else {
				t.err = l.single(ctx, clients[i].submit, t, &next, &done)
			}
		})
	}
	wg.Wait()
	out := outcome{took: time.Since(began), refused: map[string]int{}}
	stop()
	for i := range tallies {
		t := &tallies[i]
		out.acked += t.acked
		out.times = append(out.times, t.times...)
		for reason, n := range t.refused {
			out.refused[reason] += n
		}
		if out.firstErr == nil {
			out.firstErr = t.err
		}
	}
	return out, ctx.Err()
}

func (l *load) makeRequest(n int) *apiv1.SubmitRequest {
	script, env := l.content.of(n)
	return &apiv1.SubmitRequest{Spec: l.spec, Script: script, Environment: env, Tag: uint64(n)}
}

// submitCall makes one submission and waits for its acknowledgement.
type submitCall func(context.Context, *apiv1.SubmitRequest) (*apiv1.SubmitReply, error)

// caller is one client's connection, which has answered once already.
type caller struct {
	submit submitCall
	api    service.ClusterClient // nil over the tools' protocol
	close  func()
}

// dialCaller dials as one more client would. A connection is made by its first
// call, which is not part of any rate.
func (c *cluster) dialCaller(ctx context.Context, overFrames bool) (caller, error) {
	if !overFrames {
		conn, err := grpcx.DialUnix(c.socket)
		if err != nil {
			return caller{}, err
		}
		api := service.NewClusterClient(conn)
		out := caller{api: api, close: func() { _ = conn.Close() }, // every answer has been read
			submit: func(ctx context.Context, req *apiv1.SubmitRequest) (*apiv1.SubmitReply, error) {
				return api.Submit(ctx, req)
			}}
		_, err = api.Ping(ctx, &apiv1.PingRequest{})
		return out, err
	}
	conn, err := client.Dial(ctx, client.Unix(c.socket))
	if err != nil {
		return caller{}, err
	}
	out := caller{close: func() { _ = conn.Close() }, // every answer has been read
		submit: func(ctx context.Context, req *apiv1.SubmitRequest) (*apiv1.SubmitReply, error) {
			reply := &apiv1.SubmitReply{}
			return reply, conn.Call(ctx, "/muster.v1.Cluster/Submit", req, reply)
		}}
	return out, conn.Call(ctx, "/muster.v1.Cluster/Ping", &apiv1.PingRequest{}, &apiv1.PingReply{})
}

// single makes one call after the other until the jobs are used up.
func (l *load) single(
	ctx context.Context,
	submit submitCall,
	t *tally,
	next, done *atomic.Int64,
) error {
	for {
		n := int(next.Add(1))
		if n > l.jobs {
			return nil
		}
		request := l.makeRequest(n)
		began := time.Now()
		reply, err := submit(ctx, request)
		took := time.Since(began)
		done.Add(1)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			t.refuse(err.Error())
		case reply.GetJobId() == 0:
			t.refuse("acknowledged without a job id")
		default:
			t.acked++
			t.times = append(t.times, took)
		}
	}
}

// streamed keeps window submissions of one call on their way. The time of
// each is from just before it is sent until its own acknowledgement is read.
func (l *load) streamed(
	ctx context.Context,
	api service.ClusterClient,
	t *tally,
	next, done *atomic.Int64,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := api.SubmitStream(ctx)
	if err != nil {
		return err
	}
	slots := make(chan struct{}, l.window)   // one for each submission on its way
	sentAt := make(chan time.Time, l.window) // in order, as the answers are
	sendErr := make(chan error, 1)
	go func() {
		defer close(sentAt)
		for {
			n := int(next.Add(1))
			if n > l.jobs {
				sendErr <- stream.CloseSend()
				return
			}
			request := l.makeRequest(n)
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				sendErr <- ctx.Err()
				return
			}
			sentAt <- time.Now() // there is room: each in it has a slot
			if err := stream.Send(request); err != nil {
				sendErr <- nil // the reader learns why
				return
			}
		}
	}()
	for {
		reply, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return <-sendErr
		}
		if err != nil {
			return fmt.Errorf("the stream ended after %d acknowledgements: %w", t.acked, err)
		}
		done.Add(1)
		took := time.Since(<-sentAt)
		<-slots
		switch {
		case reply.GetError() != nil:
			t.refuse(refusalText(reply.GetError()))
		case reply.GetJobId() == 0:
			t.refuse("acknowledged without a job id")
		default:
			t.acked++
			t.times = append(t.times, took)
		}
	}
}

func refusalText(e *apiv1.Error) string {
	if e.GetDetail() == "" {
		return e.GetText()
	}
	return e.GetText() + ": " + e.GetDetail()
}

// watchProgress tells once a second how far things are.
func watchProgress(ctx context.Context, p *progress, done *atomic.Int64, all int) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		last := int64(0)
		for {
			select {
			case <-tick.C:
				n := done.Load()
				p.say("%d of %d done (%d/s)", n, all, n-last)
				last = n
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// countRefusals counts them and names the most frequent reasons first.
func countRefusals(by map[string]int) (n int, lines []string) {
	reasons := slices.Collect(maps.Keys(by))
	slices.SortFunc(reasons, func(a, b string) int {
		if by[a] != by[b] {
			return by[b] - by[a]
		}
		return bytes.Compare([]byte(a), []byte(b))
	})
	for _, reason := range reasons {
		n += by[reason]
		lines = append(lines, fmt.Sprintf("%d: %s", by[reason], reason))
	}
	return n, lines
}
