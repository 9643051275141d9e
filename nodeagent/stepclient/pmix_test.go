package stepclient

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/stepio"
)

// server stands for a node's part of a step that speaks PMIx. It says frames, and
// hands what comes to react, which says what follows; a connection breaks after
// it has taken as many messages as breaks says, and their effect is lost.
type server struct {
	mu     sync.Mutex
	grown  *sync.Cond
	frames []plan.Frame
	breaks []int // messages of the connections to come
	react  func(s *server, m *stepio.Message)
	opens  int
}

func newServer(react func(s *server, m *stepio.Message), breaks ...int) *server {
	s := &server{react: react, breaks: breaks}
	s.grown = sync.NewCond(&s.mu)
	return s
}

// say adds a frame. mu is held.
func (s *server) say(f plan.Frame) {
	f.Number = uint64(len(s.frames) + 1)
	s.frames = append(s.frames, f)
	s.grown.Broadcast()
}

func (s *server) serve(sock net.Conn) {
	defer func() { _ = sock.Close() }()
	r := bufio.NewReader(sock)
	if _, err := io.ReadFull(r, make([]byte, len(stepio.Preface))); err != nil {
		return
	}
	in := stepio.NewReader(r)
	open, err := in.Next()
	if err != nil {
		return
	}
	s.mu.Lock()
	s.opens++
	left := -1
	if len(s.breaks) > 0 {
		left, s.breaks = s.breaks[0], s.breaks[1:]
	}
	s.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		if _, err := sock.Write(stepio.Append(nil, &stepio.Message{Kind: stepio.Opened})); err != nil {
			return
		}
		for at := open.UpTo; ; at++ {
			s.mu.Lock()
			for uint64(len(s.frames)) <= at {
				select {
				case <-gone:
					s.mu.Unlock()
					return
				default:
				}
				s.grown.Wait()
			}
			b := stepio.Append(nil, &stepio.Message{Kind: stepio.Frame, Frame: s.frames[at]})
			s.mu.Unlock()
			if _, err := sock.Write(b); err != nil {
				return
			}
		}
	}()
	defer func() {
		s.mu.Lock()
		close(gone)
		s.grown.Broadcast()
		s.mu.Unlock()
	}()
	for {
		m, err := in.Next()
		if err != nil {
			return
		}
		if m.Kind == stepio.Ack {
			s.mu.Lock()
			over := m.UpTo == uint64(len(s.frames)) && s.frames[m.UpTo-1].End != nil
			s.mu.Unlock()
			if over {
				return
			}
			continue
		}
		if left == 0 {
			return // it was taken from the connection, and nothing came of it
		}
		left--
		s.mu.Lock()
		s.react(s, &m)
		s.mu.Unlock()
	}
}

// A question of PMIx and its answer arrive whatever connections break, and are
// said again only until they have arrived.
func TestDirectExchange(t *testing.T) {
	var answers []string
	asking := newServer(func(s *server, m *stepio.Message) {
		if m.Kind != stepio.Modex || m.Modex.Kind != plan.ModexAnswer {
			t.Errorf("the asking node is told %+v", m)
			return
		}
		answers = append(answers, string(m.Modex.Data))
		s.say(plan.Frame{Modex: &plan.Modex{Kind: plan.ModexReceipt, Number: m.Modex.Number}})
		s.say(plan.Frame{End: &plan.FrameEnd{}})
	}, 0, 0) // the answer is lost twice
	asked := newServer(func(s *server, m *stepio.Message) {
		if m.Kind != stepio.Modex || m.Modex.Kind != plan.ModexAsk || m.Modex.Rank != 1 || m.Modex.From != 0 {
			t.Errorf("the asked node is told %+v", m)
			return
		}
		s.say(plan.Frame{Modex: &plan.Modex{Kind: plan.ModexAnswer, Number: m.Modex.Number, To: m.Modex.From, Data: []byte("address")}})
		s.say(plan.Frame{End: &plan.FrameEnd{}})
	}, 0)
	// It says that it is another node: its word does not count.
	asking.say(plan.Frame{Modex: &plan.Modex{Kind: plan.ModexAsk, Number: 5, From: 1, To: 1, Rank: 1}})
	client := runServers(t, asking, asked)
	if len(answers) != 1 || answers[0] != "address" {
		t.Errorf("answers %q", answers)
	}
	if asking.opens != 3 || asked.opens != 2 {
		t.Errorf("connections %d and %d", asking.opens, asked.opens)
	}
	for _, n := range client.nodes {
		if len(n.modex) > 0 {
			t.Errorf("%s is still to be told %+v", n.Name, n.modex)
		}
	}
}

// Fences of several groups pass each other, and what the nodes have put is joined
// as it is, in the order of the nodes.
func TestFencesOfGroups(t *testing.T) {
	var mu sync.Mutex
	got := map[string]string{}
	react := func(place int, end int) func(s *server, m *stepio.Message) {
		return func(s *server, m *stepio.Message) {
			mu.Lock()
			defer mu.Unlock()
			key := fmt.Sprintf("%d:%s:%d", place, m.Fence.Group, m.Fence.Number)
			if _, again := got[key]; again {
				return
			}
			got[key] = string(m.Fence.Data)
			if end--; end == 0 {
				s.say(plan.Frame{End: &plan.FrameEnd{}})
			}
		}
	}
	// The third node's connection breaks before it has heard of any fence.
	list := []*server{newServer(react(0, 3)), newServer(react(1, 2)), newServer(react(2, 1), 0)}
	part := func(n uint32, number uint64, group, data string, nodes ...uint32) {
		list[n].say(plan.Frame{Fence: &plan.Fence{Number: number, Node: n, Data: []byte(data), Joined: true, Group: group, Nodes: nodes}})
	}
	part(1, 1, "0,1", "b", 0, 1)
	part(0, 1, "", "x", 0, 1, 2)
	part(0, 1, "0,1", "a", 0, 1)
	part(1, 1, "", "y", 0, 1, 2)
	part(0, 1, "0,9", "alone", 0)
	part(2, 1, "", "z", 0, 1, 2)
	runServers(t, list...)
	want := map[string]string{"0::1": "xyz", "1::1": "xyz", "2::1": "xyz", "0:0,1:1": "ab", "1:0,1:1": "ab", "0:0,9:1": "alone"}
	for key, data := range want {
		if got[key] != data {
			t.Errorf("fence %s brought %q, want %q", key, got[key], data)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%q", got)
	}
}

// runServers is a client of nodes, until the step is over on all.
func runServers(t *testing.T, list ...*server) *Client {
	t.Helper()
	var nodes []Node
	byName := map[string]*server{}
	for i, s := range list {
		name := fmt.Sprintf("n%d", i)
		byName[name] = s
		nodes = append(nodes, Node{Name: name, Ranks: []uint32{uint32(i)}, Credential: []byte("signed")})
	}
	client := New(Config{Nodes: nodes, Dial: func(_ context.Context, node string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go byName[node].serve(ours)
		return theirs, nil
	}})
	if err := client.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return client
}

// BenchmarkFence is a fence of 1,024 tasks on 16 nodes through the step's client,
// each task with 256 bytes for the others, over connections in memory.
func BenchmarkFence(b *testing.B) {
	const nodes, tasks, each = 16, 1024, 256
	data := slices.Repeat([]byte{7}, tasks/nodes*each)
	var list []Node
	servers := map[string]*server{}
	for i := range uint32(nodes) {
		passed := 0
		say := func(s *server) {
			s.say(plan.Frame{Fence: &plan.Fence{Number: uint64(passed + 1), Node: i, Data: data, Joined: true}})
		}
		s := newServer(func(s *server, m *stepio.Message) {
			if len(m.Fence.Data) != tasks*each {
				b.Errorf("a fence of %d bytes", len(m.Fence.Data))
			}
			if passed++; passed == b.N {
				s.say(plan.Frame{End: &plan.FrameEnd{}})
				return
			}
			say(s)
		})
		say(s)
		name := fmt.Sprintf("n%d", i)
		servers[name], list = s, append(list, Node{Name: name})
	}
	client := New(Config{Nodes: list, Dial: func(_ context.Context, node string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go servers[node].serve(ours)
		return theirs, nil
	}})
	b.SetBytes(nodes * tasks * each)
	b.ResetTimer()
	if err := client.Run(b.Context()); err != nil {
		b.Fatal(err)
	}
}
