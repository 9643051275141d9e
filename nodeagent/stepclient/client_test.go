package stepclient

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/stepio"
	"github.com/musterhpc/muster/spec"
)

// part stands for a step's part on a node: it keeps frames until they are
// acknowledged, takes input once, and breaks connections by chance.
type part struct {
	t      *testing.T
	rand   *rand.Rand
	frames []plan.Frame
	mu     sync.Mutex
	acked  uint64
	input  bytes.Buffer
	eof    bool
	opens  int
	breaks int // connections that are still to be broken
	most   int // bytes before they are
	acks   int
	denied bool
}

func (p *part) dial() net.Conn {
	ours, theirs := net.Pipe()
	go p.serve(ours)
	return theirs
}

func (p *part) serve(sock net.Conn) {
	defer func() { _ = sock.Close() }()
	r := bufio.NewReader(sock)
	preface := make([]byte, len(stepio.Preface))
	if _, err := io.ReadFull(r, preface); err != nil || string(preface) != stepio.Preface {
		p.t.Errorf("it begins with %q (%v)", preface, err)
		return
	}
	in := stepio.NewReader(r)
	open, err := in.Next()
	if err != nil || open.Kind != stepio.Open || string(open.Credential) != "signed" {
		p.t.Errorf("it opens with %+v (%v)", open, err)
		return
	}
	p.mu.Lock() // of the source of chance too
	p.opens++
	budget := 1 << 30
	if p.breaks > 0 {
		p.breaks--
		budget = p.rand.IntN(p.most)
	}
	if open.UpTo < p.acked {
		p.t.Errorf("it says to have %d, and %d was acknowledged", open.UpTo, p.acked)
	}
	p.mu.Unlock()
	var sending sync.Mutex
	send := func(m stepio.Message) bool {
		b := stepio.Append(nil, &m)
		sending.Lock()
		defer sending.Unlock()
		n := min(len(b), budget)
		budget -= n
		_, err := sock.Write(b[:n])
		if n < len(b) {
			_ = sock.Close()
			return false
		}
		return err == nil
	}
	if p.denied {
		send(stepio.Message{Kind: stepio.Refused, Code: stepio.Denied, Text: "no"})
		return
	}
	if !send(stepio.Message{Kind: stepio.Opened}) {
		return
	}
	go func() {
		for _, f := range p.frames {
			if f.Number > open.UpTo && !send(stepio.Message{Kind: stepio.Frame, Frame: f}) {
				return
			}
		}
	}()
	for {
		m, err := in.Next()
		if err != nil {
			return
		}
		p.mu.Lock()
		var answer *stepio.Message
		switch m.Kind {
		case stepio.Ack:
			p.acks++
			p.acked = max(p.acked, m.UpTo)
			if m.UpTo == uint64(len(p.frames)) {
				p.mu.Unlock()
				return
			}
		case stepio.Input:
			if have := uint64(p.input.Len()); m.Offset > have {
				p.t.Errorf("input at %d, and only %d is there", m.Offset, have)
			} else if rest := have - m.Offset; rest < uint64(len(m.Data)) {
				p.input.Write(m.Data[rest:])
			}
			p.eof = p.eof || len(m.Data) == 0
			answer = &stepio.Message{Kind: stepio.Taken, Rank: m.Rank, Offset: uint64(p.input.Len())}
		}
		p.mu.Unlock()
		if answer != nil && !send(*answer) {
			return
		}
	}
}

// Whatever connections break, the output arrives whole and once, and so does
// the input; what there is much of is acknowledged on the way.
func TestBrokenConnections(t *testing.T) {
	acks := 0
	for seed := range uint64(20) {
		most, much := 700, ""
		if seed%2 == 1 {
			most, much = 400*700, strings.Repeat("x", 5000)
		}
		var want strings.Builder
		parts := map[string]*part{}
		var nodes []Node
		for i := range uint32(2) {
			p := &part{t: t, rand: rand.New(rand.NewPCG(seed, uint64(i))), breaks: 15, most: most}
			for k := range 100 {
				text := fmt.Sprintf("%d:%d%s\n", i, k, much)
				p.frames = append(p.frames, plan.Frame{Number: uint64(k + 1), Output: &plan.Output{Rank: i, Stream: 1, Data: []byte(text)}})
			}
			p.frames = append(p.frames, plan.Frame{Number: 101, Exit: &plan.TaskExit{Rank: i, Code: int32(i)}}, plan.Frame{Number: 102, End: &plan.FrameEnd{}})
			name := fmt.Sprintf("n%d", i)
			parts[name], nodes = p, append(nodes, Node{Name: name, Ranks: []uint32{i}, Credential: []byte("signed")})
		}
		got, exits, ended := map[uint32]string{}, map[uint32]int{}, 0
		c := New(Config{Nodes: nodes,
			Dial:   func(_ context.Context, node string) (net.Conn, error) { return parts[node].dial(), nil },
			Output: func(rank uint32, _ uint8, data []byte) error { got[rank] += string(data); return nil },
			Exit:   func(_ string, x plan.TaskExit) { exits[x.Rank]++ },
			Ended:  func(string, plan.FrameEnd, error) { ended++ }})
		done := make(chan error, 1)
		fed := make(chan error, 1)
		go func() {
			for k := range 50 {
				line := fmt.Sprintf("line %d\n", k)
				want.WriteString(line)
				if err := c.Input(t.Context(), spec.InputAll, []byte(line)); err != nil {
					fed <- err
					return
				}
			}
			fed <- c.CloseInput(t.Context(), spec.InputAll)
		}()
		if err := <-fed; err != nil {
			t.Fatal(err)
		}
		go func() { done <- c.Run(t.Context()) }()
		if err := <-done; err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i := range uint32(2) {
			var all strings.Builder
			for k := range 100 {
				fmt.Fprintf(&all, "%d:%d%s\n", i, k, much)
			}
			if got[i] != all.String() || exits[i] != 1 {
				t.Fatalf("seed %d: rank %d has %d exits and wrote %q", seed, i, exits[i], got[i])
			}
			p := parts[fmt.Sprintf("n%d", i)]
			p.mu.Lock()
			if text := p.input.String(); !strings.HasPrefix(want.String(), text) || p.opens < 2 {
				t.Fatalf("seed %d: node %d read %q over %d connections", seed, i, text, p.opens)
			}
			if p.acks > 10 || much == "" && p.acks > 1 {
				t.Errorf("seed %d: node %d heard %d times what has come", seed, i, p.acks)
			}
			acks += p.acks
			p.mu.Unlock()
		}
		if ended != 2 {
			t.Fatalf("seed %d: %d nodes ended", seed, ended)
		}
	}
	if acks < 50 { // 40 are those of the ends
		t.Errorf("%d acknowledgements: nothing is acknowledged on the way", acks)
	}
	t.Logf("%d acknowledgements", acks)
}

func TestWhatEndsAClient(t *testing.T) {
	full := errors.New("disk full")
	for name, x := range map[string]struct {
		part   *part
		output error
		want   error
	}{
		"a refused credential":        {&part{denied: true}, nil, ErrDenied},
		"output that nobody can take": {&part{frames: []plan.Frame{{Number: 1, Output: &plan.Output{Data: []byte("x")}}}}, full, full},
	} {
		x.part.t = t
		c := New(Config{Nodes: []Node{{Name: "n1", Ranks: []uint32{0}, Credential: []byte("signed")}},
			Dial:   func(context.Context, string) (net.Conn, error) { return x.part.dial(), nil },
			Output: func(uint32, uint8, []byte) error { return x.output }})
		if err := c.Run(t.Context()); !errors.Is(err, x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The fences of two nodes meet in the client, and both are told.
func TestFences(t *testing.T) {
	got := make(chan plan.Fence, 2)
	serve := func(node uint32) net.Conn {
		ours, theirs := net.Pipe()
		go func() {
			r := bufio.NewReader(ours)
			_, _ = r.Discard(len(stepio.Preface))
			in := stepio.NewReader(r)
			_, _ = in.Next()
			// One key, as package pmi writes it.
			part := append([]byte{1, 'a' + byte(node), 1}, '0'+byte(node))
			b := stepio.Append(nil, &stepio.Message{Kind: stepio.Opened})
			b = stepio.Append(b, &stepio.Message{Kind: stepio.Frame, Frame: plan.Frame{Number: 1, Fence: &plan.Fence{Number: 1, Node: node, Data: part}}})
			_, _ = ours.Write(b)
			for {
				m, err := in.Next()
				if err != nil {
					return
				}
				switch m.Kind {
				case stepio.Ack:
					if m.UpTo == 2 {
						_ = ours.Close()
					}
				case stepio.Merged:
					got <- m.Fence
					_, _ = ours.Write(stepio.Append(nil, &stepio.Message{Kind: stepio.Frame, Frame: plan.Frame{Number: 2, End: &plan.FrameEnd{}}}))
				}
			}
		}()
		return theirs
	}
	c := New(Config{Nodes: []Node{{Name: "0"}, {Name: "1"}}, Dial: func(_ context.Context, node string) (net.Conn, error) { return serve(uint32(node[0] - '0')), nil }})
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if f := <-got; f.Number != 1 || string(f.Data) != "\x01a\x010\x01b\x011" {
			t.Errorf("%+v", f)
		}
	}
}

// What is typed at a task that does not read waits here, and not in the agent:
// neither more pieces than it takes nor more bytes.
func TestInputWaitsForAnswers(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for size, most := range map[int]int{1: stepio.MaxPieces, stepio.MaxInput: stepio.MaxWindow / stepio.MaxInput} {
		c := New(Config{Nodes: []Node{{Name: "n1", Ranks: []uint32{0}}}})
		n := 0
		for c.Input(ended, 0, make([]byte, size)) == nil {
			n++
		}
		if n != most {
			t.Errorf("%d pieces of %d bytes leave, want %d", n, size, most)
		}
	}
}
