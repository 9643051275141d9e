package pmi

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/musterhpc/muster/nodeagent/plan"
)

// ErrProtocol is what a task says that is not PMI.
var ErrProtocol = errors.New("not PMI")

// Bounds of what tasks may send and put.
const (
	maxMessage = 64 << 10
	maxKey     = 1 << 10
	maxValue   = 32 << 10
	maxHeld    = 60 << 20 // bytes of all keys and values: they fit into one message
	pairCost   = 6        // at most what a pair takes besides
)

// Answer is what a task is sent.
type Answer struct {
	Task int // by local id
	Data []byte
}

// Result is what follows from an input.
type Result struct {
	Answers []Answer
	// Fence, when Reached, is what this node's tasks have put before the fence
	// of that number.
	Reached bool
	Number  uint64
	Fence   []byte
	// Abort: a task wants the step to end, and why.
	Abort    bool
	Message  string
	ExitCode int32
}

// task is what is known of one task's conversation.
type task struct {
	version int // 0 before it has said which it speaks
	buffer  []byte
	spawn   bool // it is within a command of several lines
	waiting bool // at the fence
	thread  string
	wants   string // the attribute of the node that it waits for
	over    bool
}

// Server serves the tasks of one node. One owner calls it.
type Server struct {
	cfg    plan.PMI
	tasks  []task
	put    map[string]string // since the last fence
	kvs    map[string]string // of all nodes, before it
	attr   map[string]string // of this node
	held   int
	fences uint64
	at     int // tasks at the fence
}

// New makes the server of a node.
func New(config plan.PMI) *Server {
	return &Server{
		cfg:   config,
		tasks: make([]task, len(config.Ranks)),
		put:   map[string]string{},
		attr:  map[string]string{},
		kvs:   map[string]string{processMapping: config.Mapping},
	}
}

const processMapping = "PMI_process_mapping"

// Read takes what a task has sent, whole messages or not.
func (s *Server) Read(local int, data []byte) (Result, error) {
	var result Result
	if local < 0 || local >= len(s.tasks) {
		return result, fmt.Errorf("%w: no task %d here", ErrProtocol, local)
	}
	t := &s.tasks[local]
	t.buffer = append(t.buffer, data...)
	for {
		m, n, err := nextMessage(t)
		if err != nil {
			return result, err
		}
		if n == 0 {
			return result, nil
		}
		t.buffer = slices.Delete(t.buffer, 0, n)
		if err := s.handleMessage(local, m, &result); err != nil {
			return result, err
		}
	}
}

// handleMessage answers one message.
func (s *Server) handleMessage(local int, m message, result *Result) error {
	t := &s.tasks[local]
	if t.version == 0 {
		return s.init(local, m, result)
	}
	if t.waiting {
		return fmt.Errorf("%w: %s during a fence", ErrProtocol, m.cmd)
	}
	t.thread = m.get("thrid")
	if t.version == 2 {
		return s.answerPMI2(local, m, result)
	}
	return s.answerPMI1(local, m, result)
}

// init begins a conversation.
func (s *Server) init(local int, m message, result *Result) error {
	if m.cmd != "init" {
		return fmt.Errorf("%w: it begins with %q", ErrProtocol, m.cmd)
	}
	version, subversion := m.get("pmi_version"), m.get("pmi_subversion")
	rc := "0"
	switch version {
	case "1":
		s.tasks[local].version, subversion = 1, "1"
	case "2":
		s.tasks[local].version, subversion = 2, "0"
	default:
		version, rc = "1", "-1"
	}
	result.addAnswer(local,
		"cmd=response_to_init rc="+rc+" pmi_version="+version+" pmi_subversion="+
			subversion+"\n")
	return nil
}

func (r *Result) addAnswer(local int, text string) {
	r.Answers = append(r.Answers, Answer{Task: local, Data: []byte(text)})
}

// storeKey keeps what a task puts.
func (s *Server) storeKey(in map[string]string, key, value string) error {
	size := len(key) + len(value) + pairCost
	switch {
	case key == "" || len(key) > maxKey:
		return fmt.Errorf("a key of %d bytes", len(key))
	case len(value) > maxValue:
		return fmt.Errorf("a value of %d bytes", len(value))
	case s.held+size > maxHeld:
		return errors.New("the tasks have put too much")
	}
	s.held += size
	in[key] = value
	return nil
}

// lookUpKey finds what was put before the last fence, or by this node since.
func (s *Server) lookUpKey(key string) (string, bool) {
	if v, ok := s.put[key]; ok {
		return v, true
	}
	v, ok := s.kvs[key]
	return v, ok
}

// noteFence notes that a task waits.
func (s *Server) noteFence(local int, result *Result) {
	s.tasks[local].waiting = true
	s.at++
	if s.at < len(s.tasks) {
		return
	}
	s.fences++
	result.Reached = true
	result.Number = s.fences
	result.Fence = encodePairs(s.put)
}

// Merged takes what the tasks of all nodes have put before a fence; who waits
// there goes on. A repeat changes nothing.
func (s *Server) Merged(number uint64, data []byte) (Result, error) {
	var result Result
	if number != s.fences || s.at < len(s.tasks) {
		return result, nil
	}
	if err := decodePairs(data, func(k, v string) { s.kvs[k] = v }); err != nil {
		return result, err
	}
	clear(s.put)
	s.at = 0
	for i := range s.tasks {
		t := &s.tasks[i]
		if !t.waiting {
			continue
		}
		t.waiting = false
		if t.version == 2 {
			s.answerThread(i, &result, "kvs-fence-response", "rc", "0")
		} else {
			result.addAnswer(i, "cmd=barrier_out rc=0\n")
		}
	}
	return result, nil
}

// stepSize is how many tasks the whole step has.
func (s *Server) stepSize() string { return strconv.FormatUint(uint64(s.cfg.Size), 10) }

func (s *Server) abortStep(m message, result *Result, code, text string) {
	n, err := strconv.ParseInt(m.get(code), 10, 32)
	if err != nil {
		n = 1
	}
	result.Abort = true
	result.Message = m.get(text)
	result.ExitCode = int32(n)
}
