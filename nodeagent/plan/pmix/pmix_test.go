package pmix

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
	"pgregory.net/rapid"
)

// brokers are those of a step whose tasks are dealt to its nodes in turn.
func brokers(nodes, tasks int) []*Broker {
	cfg := plan.PMIx{Namespace: "muster.pmix.7.0", Folder: "/tmp/f"}
	for n := range nodes {
		cfg.Hosts = append(cfg.Hosts, fmt.Sprintf("n%d", n))
	}
	for t := range tasks {
		cfg.NodeOf = append(cfg.NodeOf, uint32(t%nodes))
	}
	var out []*Broker
	for n := range nodes {
		own := cfg
		own.Node = uint32(n)
		for t := n; t < tasks; t += nodes {
			own.Ranks = append(own.Ranks, uint32(t))
		}
		out = append(out, New(own))
	}
	return out
}

func fenceMessage(number uint32, data string, ranks ...uint32) []byte {
	body := binary.LittleEndian.AppendUint32(nil, uint32(len(ranks)))
	for _, r := range ranks {
		body = binary.LittleEndian.AppendUint32(body, r)
	}
	return message(kindFence, append(body, data...), number)
}

func TestSetup(t *testing.T) {
	b := brokers(2, 5)[1]
	_, body, _, err := next(b.Setup())
	want := "namespace=muster.pmix.7.0\nhosts=n0,n1\nranks_of_hosts=0,2,4;1,3\nhost=n1\nfolder=/tmp/f\nsize=5\nplace=1\nranks=1,3\n"
	if err != nil || string(body) != want {
		t.Errorf("%q (%v), want %q", body, err, want)
	}
}

// What muster-pmix says of the tasks comes in pieces of any size.
func TestVariablesInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := brokers(1, 2)[0]
		stream := append(message(kindVariables, []byte("A=1\x00B=\x00"), 0), message(kindVariables, []byte("A=2\x00"), 1)...)
		stream = append(stream, message(kindReady, nil)...)
		got := map[uint32][]string{}
		ready := false
		for len(stream) > 0 {
			n := rapid.IntRange(1, len(stream)).Draw(t, "piece")
			res, err := b.Read(stream[:n])
			if err != nil || ready {
				t.Fatalf("%v", err)
			}
			for rank, list := range res.Variables {
				got[rank] = list
			}
			ready = res.Ready
			stream = stream[n:]
		}
		if want := map[uint32][]string{0: {"A=1", "B="}, 1: {"A=2"}}; !reflect.DeepEqual(got, want) || !ready {
			t.Errorf("%v, ready %v", got, ready)
		}
	})
}

// Fences of all tasks and of some are told apart, however they are named, and who
// takes part is known on each node.
func TestFences(t *testing.T) {
	list := brokers(3, 6)
	read := func(b *Broker, m []byte) Result {
		t.Helper()
		res, err := b.Read(m)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	all := read(list[0], fenceMessage(1, "x", 5, 4, 3, 2, 1, 0)).Frames
	if len(all) != 1 || !reflect.DeepEqual(all[0].Fence, &plan.Fence{Number: 1, Data: []byte("x"), Joined: true, Nodes: []uint32{0, 1, 2}}) {
		t.Errorf("of all tasks: %+v", all)
	}
	some := read(list[1], fenceMessage(9, "y", 4, 0, 1)).Frames
	if len(some) != 1 || !reflect.DeepEqual(some[0].Fence, &plan.Fence{Number: 1, Node: 1, Data: []byte("y"), Joined: true, Group: "0,1,4", Nodes: []uint32{0, 1}}) {
		t.Errorf("of some tasks: %+v", some)
	}
	// The tasks of one node need no other.
	here := read(list[2], fenceMessage(3, "z", 2, 5))
	if want := message(kindPassed, []byte("z"), 3, 0); len(here.Frames) != 0 || !reflect.DeepEqual(here.Send, want) {
		t.Errorf("of one node: %+v", here)
	}
	passed := &plan.Fence{Number: 1, Group: "0,1,4", Data: []byte("yy")}
	if got, want := list[1].Merged(passed), message(kindPassed, []byte("yy"), 9, 0); !reflect.DeepEqual(got, want) {
		t.Errorf("passed: %v", got)
	}
	if got := list[1].Merged(passed); got != nil {
		t.Errorf("a repeat is passed on: %v", got)
	}
	if got := list[0].Merged(&plan.Fence{Number: 2, Data: []byte("early")}); got != nil {
		t.Errorf("a fence that nobody waits at: %v", got)
	}
}

// A question finds the node of the task, and the answer who has asked; repeats of
// either are taken once.
func TestDirectExchange(t *testing.T) {
	list := brokers(2, 4)
	ask, err := list[0].Read(message(kindAsk, nil, 77, 3))
	if err != nil || len(ask.Frames) != 1 {
		t.Fatalf("%+v: %v", ask, err)
	}
	question := ask.Frames[0].Modex
	if question.To != 1 || question.From != 0 || question.Rank != 3 || question.Kind != plan.ModexAsk {
		t.Fatalf("%+v", question)
	}
	there := list[1].Modex(question)
	if want := message(kindAsk, nil, 1, 3); !reflect.DeepEqual(there.Send, want) {
		t.Fatalf("muster-pmix there is told %v", there.Send)
	}
	if again := list[1].Modex(question); again.Send != nil {
		t.Errorf("it is asked again: %v", again.Send)
	}
	said, err := list[1].Read(message(kindAnswer, []byte("address"), 1, 0))
	if err != nil || len(said.Frames) != 1 {
		t.Fatalf("%+v: %v", said, err)
	}
	reply := said.Frames[0].Modex
	if reply.To != 0 || reply.Number != question.Number || string(reply.Data) != "address" {
		t.Fatalf("%+v", reply)
	}
	for i, want := range [][]byte{message(kindAnswer, []byte("address"), 77, 0), nil} {
		got := list[0].Modex(reply)
		if !reflect.DeepEqual(got.Send, want) || len(got.Frames) != 1 || got.Frames[0].Modex.Kind != plan.ModexReceipt {
			t.Errorf("time %d: %+v", i, got)
		}
	}
	// A task that the step does not have is answered at once.
	if none, err := list[0].Read(message(kindAsk, nil, 78, 4)); err != nil || len(none.Frames) != 0 || len(none.Send) == 0 {
		t.Errorf("%+v: %v", none, err)
	}
}

func TestAbortAndFailure(t *testing.T) {
	b := brokers(1, 1)[0]
	res, err := b.Read(message(kindAbort, []byte("no way"), 0, uint32(0xffffffff)))
	if err != nil || !res.Abort || res.ExitCode != -1 || res.Message != "no way" {
		t.Errorf("%+v: %v", res, err)
	}
	if res, err := b.Read(message(kindFailed, []byte("no room"))); err != nil || res.Failed != "no room" {
		t.Errorf("%+v: %v", res, err)
	}
	for name, m := range map[string][]byte{
		"a kind":      message(99, nil),
		"no numbers":  message(kindAsk, nil, 1),
		"too many":    message(kindFence, nil, 1, 1<<31),
		"a stranger":  fenceMessage(1, "", 5),
		"of no bytes": {0, 0, 0, 0, 1},
	} {
		if _, err := brokers(1, 1)[0].Read(m); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSetupHoldsNoOtherLines(t *testing.T) {
	b := New(plan.PMIx{Namespace: "a\nsize=9", Hosts: []string{"n"}, NodeOf: []uint32{0}, Ranks: []uint32{0}})
	if _, body, _, _ := next(b.Setup()); strings.Count(string(body), "\nsize=") != 1 {
		t.Errorf("%q", body)
	}
}
