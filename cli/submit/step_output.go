package submit

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec/hostlist"
)

// mostHeld is how much of a line that has no end yet is held back.
const mostHeld = 64 << 10

// stepOutput shows what the tasks of a step write: whole lines unless it is
// unbuffered, with the task's number where that is wanted, here or in files.
type stepOutput struct {
	mu     sync.Mutex // of what follows
	closed bool
	active atomic.Int64 // when a piece was last shown, in nanoseconds; writing while one is
	parts  []outputPart // by their first ranks; a step in one job is one part
	files  map[string]*os.File
	raw    bool
	label  bool
	digits int
	held   map[taskStream][]byte
	now    func() time.Time
}

// outputPart is where the tasks of one component write: srun a : -o file b.
type outputPart struct {
	first uint32  // rank
	sinks [2]sink // of standard output and error
}

// taskStream is one output of one task.
type taskStream struct {
	rank uint32
	fd   uint8
}

// sink is where one of the two outputs goes.
type sink struct {
	to   io.Writer
	only int64 // the rank whose output is shown; -1 = all
}

// newStepOutput is an output of so many tasks, without parts.
func newStepOutput(call *tool.Call, opts *opt.Values, tasks uint32) *stepOutput {
	return &stepOutput{
		label:  opts.On("label") && !opts.On("pty"),
		raw:    opts.On("unbuffered") || opts.On("pty"),
		digits: len(strconv.Itoa(int(max(tasks, 1) - 1))),
		held:   map[taskStream][]byte{},
		files:  map[string]*os.File{},
		now:    call.Now,
	}
}

// addPart opens the files that srun itself writes for a component, whose tasks begin
// with a rank. A file that two options name is opened once.
func (o *stepOutput) addPart(
	call *tool.Call,
	opts *opt.Values,
	facts *plan.FileFacts,
	first uint32,
) error {
	sinks := [2]sink{{to: call.Stdout, only: -1}, {to: call.Stderr, only: -1}}
	names := [2]string{opts.Text("output"), opts.Text("error")}
	for i, mode := range names {
		switch {
		case mode == "" || mode == "all" || mode == "none":
			continue
		case isFile(mode) && plan.FilePerTask(mode):
			continue // the nodes write them
		case !isFile(mode):
			n, _ := strconv.ParseInt(mode, 10, 64)
			sinks[i].only = n
			continue
		case i == 1 && mode == names[0]:
			sinks[1] = sink{to: sinks[0].to, only: -1}
			continue
		}
		path := programPath(call, plan.ExpandFile(mode, facts))
		if f := o.files[path]; f != nil {
			sinks[i] = sink{to: f, only: -1}
			continue
		}
		flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
		if opts.Text("open-mode") == "append" || opts.Text("open-mode") == "a" {
			flags = os.O_WRONLY | os.O_CREATE | os.O_APPEND
		}
		file, err := os.OpenFile(path, flags, 0o666)
		if err != nil {
			return call.Errorf(
				"Could not open %s file: %v",
				[2]string{"stdout", "stderr"}[i],
				err,
			)
		}
		sinks[i] = sink{to: file, only: -1}
		o.files[path] = file
	}
	if names[1] == "" && isFile(names[0]) { // one file for both
		sinks[1] = sink{to: sinks[0].to, only: -1}
	}
	o.parts = append(o.parts, outputPart{first, sinks})
	slices.SortFunc(o.parts, func(a, b outputPart) int { return cmp.Compare(a.first, b.first) })
	return nil
}

// writing in stepOutput.active: a piece is being shown.
const writing = math.MaxInt64

// isBusy tells that whoever reads the output still takes it, or has not taken
// all that it was given.
func (o *stepOutput) isBusy(now time.Time, within time.Duration) bool {
	at := o.active.Load()
	return at == writing || now.UnixNano()-at < int64(within)
}

// writeTask shows what a task has written; nothing is the end of its stream.
func (o *stepOutput) writeTask(rank uint32, fd uint8, data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return os.ErrClosed
	}
	o.active.Store(writing)
	defer func() { o.active.Store(o.now().UnixNano()) }()
	return o.take(rank, fd, data)
}

// take is write for who has the lock.
func (o *stepOutput) take(rank uint32, fd uint8, data []byte) error {
	part := &o.parts[0]
	for i := range o.parts {
		if o.parts[i].first <= rank {
			part = &o.parts[i]
		}
	}
	s := &part.sinks[max(min(fd, 2), 1)-1]
	if s.only >= 0 && int64(rank) != s.only {
		return nil
	}
	if o.raw && !o.label {
		_, err := s.to.Write(data)
		return err
	}
	key := taskStream{rank, fd}
	before, waits := o.held[key]
	if cut := bytes.LastIndexByte(data, '\n') + 1; !waits && cut > 0 && !o.raw &&
		len(data)-cut <= mostHeld {
		if cut < len(data) {
			o.held[key] = slices.Clone(data[cut:])
		}
		return o.showText(s, rank, data[:cut]) // as it is
	}
	held := append(before, data...)
	cut := bytes.LastIndexByte(data, '\n') + 1
	if cut > 0 {
		cut += len(held) - len(data)
	}
	if len(data) == 0 || o.raw || len(held)-cut > mostHeld {
		cut = len(held)
	}
	if cut == 0 {
		o.held[key] = held
		return nil
	}
	err := o.showText(s, rank, held[:cut])
	if rest := held[cut:]; len(rest) > 0 {
		o.held[key] = slices.Clone(rest)
	} else {
		delete(o.held, key)
	}
	return err
}

func (o *stepOutput) showText(s *sink, rank uint32, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if !o.label {
		_, err := s.to.Write(text)
		return err
	}
	var buffer bytes.Buffer
	for line := range bytes.Lines(text) {
		fmt.Fprintf(&buffer, "%*d: ", o.digits, rank)
		buffer.Write(line)
		if line[len(line)-1] != '\n' {
			buffer.WriteByte('\n')
		}
	}
	_, err := s.to.Write(buffer.Bytes())
	return err
}

// close shows what was held back and closes the files.
func (o *stepOutput) close() error {
	if !o.mu.TryLock() { // somebody waits for a reader: nothing more can be shown
		return nil
	}
	defer o.mu.Unlock()
	o.closed = true
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	keys := make([]taskStream, 0, len(o.held))
	for stream := range o.held {
		keys = append(keys, stream)
	}
	slices.SortFunc(
		keys,
		func(a, b taskStream) int { return int(a.rank)*2 + int(a.fd) - int(b.rank)*2 - int(b.fd) },
	)
	for _, stream := range keys {
		keep(o.take(stream.rank, stream.fd, nil))
	}
	for _, path := range slices.Sorted(maps.Keys(o.files)) {
		keep(o.files[path].Close())
	}
	return first
}

// exits collects how tasks ended, so that one line tells of many.
type exits struct {
	list []taskExit
}

type taskExit struct {
	node string
	rank uint32
	what string
}

// describeExits names the tasks of each node by how they ended, and forgets them:
// n1: tasks 0-3: Exited with exit code 1.
func (e *exits) describeExits() []string {
	slices.SortStableFunc(e.list, func(a, b taskExit) int {
		if a.node != b.node {
			return strings.Compare(a.node, b.node)
		}
		return strings.Compare(a.what, b.what)
	})
	var out []string
	for i := 0; i < len(e.list); {
		var ranks []int
		k := i
		for ; k < len(e.list) && e.list[k].node == e.list[i].node && e.list[k].what == e.list[i].what; k++ {
			ranks = append(ranks, int(e.list[k].rank))
		}
		out = append(
			out,
			fmt.Sprintf("%s: %s: %s", e.list[i].node, tasksText(ranks), e.list[i].what),
		)
		i = k
	}
	e.list = nil
	return out
}

// tasksText writes task 3, or tasks 0-2,5.
func tasksText(ranks []int) string {
	slices.Sort(ranks)
	if len(ranks) == 1 {
		return "task " + strconv.Itoa(ranks[0])
	}
	names := make([]string, len(ranks))
	for i, r := range ranks {
		names[i] = "t" + strconv.Itoa(r)
	}
	return "tasks " +
		strings.TrimSuffix(
			strings.TrimPrefix(strings.TrimPrefix(hostlist.Fold(names), "t"), "["),
			"]",
		)
}
