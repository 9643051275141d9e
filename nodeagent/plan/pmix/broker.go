package pmix

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/nodeagent/plan"
)

// Result is what follows from an input.
type Result struct {
	// Variables are those of a task, by its rank, that PMIx needs; Ready tells that
	// all tasks have theirs.
	Variables map[uint32][]string
	Ready     bool
	Frames    []plan.Frame // for the step's client
	Send      []byte       // to muster-pmix
	// Abort: a task wants the step to end, and why.
	Abort    bool
	Rank     uint32
	ExitCode int32
	Message  string
	Failed   string // why muster-pmix cannot serve
}

// question is what another node asks of a task here.
type question struct {
	node   uint32
	number uint64
}

// group is who takes part in fences together.
type group struct {
	nodes   []uint32          // that have tasks of it, in order
	reached uint64            // fences that the tasks here have come to
	waits   map[uint64]uint32 // those that others have not, and muster-pmix's numbers for them
}

// Broker stands between muster-pmix of a node and the other nodes. One owner
// calls it.
type Broker struct {
	cfg    plan.PMIx
	buffer []byte
	groups map[string]*group
	asked  map[uint32]bool // questions of muster-pmix that wait
	asks   map[uint32]question
	repeat map[question]bool
	last   uint32
}

// New makes the broker of a node.
func New(config plan.PMIx) *Broker {
	return &Broker{
		cfg:    config,
		groups: map[string]*group{},
		asked:  map[uint32]bool{},
		asks:   map[uint32]question{},
		repeat: map[question]bool{},
	}
}

// Setup is the first message to muster-pmix.
func (b *Broker) Setup() []byte {
	ranks := make([][]string, len(b.cfg.Hosts))
	for rank, node := range b.cfg.NodeOf {
		if int(node) < len(ranks) {
			ranks[node] = append(ranks[node], strconv.Itoa(rank))
		}
	}
	lists := make([]string, len(ranks))
	for i := range ranks {
		lists[i] = strings.Join(ranks[i], ",")
	}
	here := make([]string, len(b.cfg.Ranks))
	for i, rank := range b.cfg.Ranks {
		here[i] = strconv.FormatUint(uint64(rank), 10)
	}
	host := ""
	if int(b.cfg.Node) < len(b.cfg.Hosts) {
		host = b.cfg.Hosts[b.cfg.Node]
	}
	var text strings.Builder
	for _, line := range [][2]string{
		{"namespace", b.cfg.Namespace},
		{"hosts", strings.Join(b.cfg.Hosts, ",")},
		{"ranks_of_hosts", strings.Join(lists, ";")},
		{"host", host},
		{"folder", b.cfg.Folder},
		{"size", strconv.Itoa(len(b.cfg.NodeOf))},
		{"place", strconv.FormatUint(uint64(b.cfg.Node), 10)},
		{"ranks", strings.Join(here, ",")},
	} {
		text.WriteString(line[0] + "=" + strings.ReplaceAll(line[1], "\n", "") + "\n")
	}
	return message(kindSetup, []byte(text.String()))
}

// Read takes what muster-pmix has sent, whole messages or not.
func (b *Broker) Read(data []byte) (Result, error) {
	var result Result
	b.buffer = append(b.buffer, data...)
	for {
		k, body, n, err := next(b.buffer)
		if err != nil || n == 0 {
			return result, err
		}
		if err := b.handle(k, body, &result); err != nil {
			return result, err
		}
		b.buffer = slices.Delete(b.buffer, 0, n)
	}
}

// handle takes one message; body is the buffer's.
func (b *Broker) handle(k kind, body []byte, result *Result) error {
	switch k {
	case kindVariables:
		head, rest, err := numbers(body, 1)
		if err != nil {
			return err
		}
		if result.Variables == nil {
			result.Variables = map[uint32][]string{}
		}
		for v := range bytes.SplitSeq(rest, []byte{0}) {
			if bytes.IndexByte(v, '=') > 0 {
				result.Variables[head[0]] = append(result.Variables[head[0]], string(v))
			}
		}
	case kindReady:
		result.Ready = true
	case kindFence:
		return b.noteFence(body, result)
	case kindAsk:
		head, _, err := numbers(body, 2)
		if err != nil {
			return err
		}
		return b.ask(head[0], head[1], result)
	case kindAnswer:
		head, rest, err := numbers(body, 2)
		if err != nil {
			return err
		}
		b.sendAnswer(head[0], int32(head[1]), bytes.Clone(rest), result)
	case kindAbort:
		head, rest, err := numbers(body, 2)
		if err != nil {
			return err
		}
		result.Abort = true
		result.Rank = head[0]
		result.ExitCode = int32(head[1])
		result.Message = string(rest)
	case kindFailed:
		result.Failed = string(body)
	default:
		return fmt.Errorf("%w: kind %d", ErrProtocol, k)
	}
	return nil
}

// noteFence notes that the tasks of this node which take part in a fence are
// there.
func (b *Broker) noteFence(body []byte, result *Result) error {
	head, rest, err := numbers(body, 2)
	if err != nil {
		return err
	}
	ranks, data, err := numbers(rest, int(head[1]))
	if err != nil {
		return err
	}
	g, name, err := b.groupOf(ranks)
	if err != nil {
		return err
	}
	g.reached++
	g.waits[g.reached] = head[0]
	fence := &plan.Fence{
		Number: g.reached,
		Node:   b.cfg.Node,
		Data:   bytes.Clone(data),
		Joined: true,
		Group:  name,
		Nodes:  g.nodes,
	}
	if len(g.nodes) > 1 {
		result.Frames = append(result.Frames, plan.Frame{Fence: fence})
		return nil
	}
	result.Send = append(result.Send, b.Merged(fence)...)
	return nil
}

// groupOf gives the group of ranks, all of the step without any.
func (b *Broker) groupOf(ranks []uint32) (*group, string, error) {
	slices.Sort(ranks)
	ranks = slices.Compact(ranks)
	if n := len(ranks); n > 0 && int(ranks[n-1]) >= len(b.cfg.NodeOf) {
		return nil, "", fmt.Errorf("%w: a fence of task %d, which the step does not have", ErrProtocol, ranks[n-1])
	}
	if len(ranks) == len(b.cfg.NodeOf) {
		ranks = nil
	}
	text := make([]string, len(ranks))
	for i, r := range ranks {
		text[i] = strconv.FormatUint(uint64(r), 10)
	}
	name := strings.Join(text, ",")
	if g := b.groups[name]; g != nil {
		return g, name, nil
	}
	g := &group{waits: map[uint64]uint32{}}
	if len(ranks) == 0 {
		g.nodes = slices.Clone(b.cfg.NodeOf)
	}
	for _, r := range ranks {
		g.nodes = append(g.nodes, b.cfg.NodeOf[r])
	}
	slices.Sort(g.nodes)
	g.nodes = slices.Compact(g.nodes)
	b.groups[name] = g
	return g, name, nil
}

// Merged takes what the tasks of all nodes have put before a fence. A repeat
// changes nothing.
func (b *Broker) Merged(fence *plan.Fence) []byte {
	g := b.groups[fence.Group]
	if g == nil {
		return nil
	}
	number, waits := g.waits[fence.Number]
	if !waits {
		return nil
	}
	delete(g.waits, fence.Number)
	return message(kindPassed, fence.Data, number, 0)
}

// statusNotFound is PMIX_ERR_NOT_FOUND.
const statusNotFound = -46

// ask takes a question of muster-pmix about a task of another node there.
func (b *Broker) ask(number, rank uint32, result *Result) error {
	if int(rank) >= len(b.cfg.NodeOf) {
		result.Send = append(result.Send, answer(number, statusNotFound, nil)...)
		return nil
	}
	b.asked[number] = true
	result.Frames = append(result.Frames, plan.Frame{Modex: &plan.Modex{
		Kind:   plan.ModexAsk,
		Number: uint64(number),
		From:   b.cfg.Node,
		To:     b.cfg.NodeOf[rank],
		Rank:   rank,
	}})
	return nil
}

func answer(number uint32, status int32, data []byte) []byte {
	return message(kindAnswer, data, number, uint32(status))
}

// Modex takes a question or an answer of another node. A repeat is answered with
// a receipt and changes nothing else.
func (b *Broker) Modex(modex *plan.Modex) Result {
	var result Result
	switch modex.Kind {
	case plan.ModexAsk:
		q := question{modex.From, modex.Number}
		if b.repeat[q] {
			break
		}
		b.repeat[q] = true
		b.last++
		b.asks[b.last] = q
		result.Send = message(kindAsk, nil, b.last, modex.Rank)
	case plan.ModexAnswer:
		number := uint32(modex.Number)
		if b.asked[number] {
			delete(b.asked, number)
			result.Send = answer(number, modex.Status, modex.Data)
		}
		result.Frames = []plan.Frame{
			{Modex: &plan.Modex{Kind: plan.ModexReceipt, Number: modex.Number, From: b.cfg.Node}},
		}
	case plan.ModexReceipt:
	}
	return result
}

// sendAnswer sends the answer of a task here to the node that has asked.
func (b *Broker) sendAnswer(number uint32, status int32, data []byte, result *Result) {
	q, ok := b.asks[number]
	if !ok {
		return
	}
	delete(b.asks, number)
	result.Frames = append(result.Frames, plan.Frame{Modex: &plan.Modex{
		Kind:   plan.ModexAnswer,
		Number: q.number,
		From:   b.cfg.Node,
		To:     q.node,
		Status: status,
		Data:   data,
	}})
}
