//go:build linux

package minder

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/cgroup"
	"github.com/musterhpc/muster/nodeagent/runtime/proc"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// Verb is the argument with which the shepherd's program minds a step:
//
//	muster-shepherd mind FOLDER [DESCRIPTOR]
//
// Its standard input is the listening socket, its standard output the file of
// results. FOLDER holds the Tasks. DESCRIPTOR is the connection to muster-pmix,
// where the tasks speak PMIx.
const Verb = "mind"

// Names in the step's folder.
const (
	TasksName   = "tasks"
	SocketName  = "io"
	ResultsName = "results"
	LogName     = "log"
)

// Exit codes of Main. How the tasks ended is in the results.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// Times of the end of a step.
const (
	// lonely is how long the output of an ended step waits for a client that is
	// not there: an agent restarts in less.
	lonely = 15 * time.Second
	// lonelyEnded is the same of a step that was told to end.
	lonelyEnded = time.Second
	// stubborn is how long processes that the minder cannot kill are waited for;
	// the shepherd, which can, deals with them then.
	stubborn = 3 * time.Second
)

// Result is one entry of the file of results.
type Result struct {
	Task *plan.TaskExit `cbor:"1,keyasint,omitempty"`
	Done bool           `cbor:"2,keyasint,omitempty"` // all tasks have an entry
	Text string         `cbor:"3,keyasint,omitempty"` // why there was none to start
}

// minder is the whole process. mu guards what the reaper shares.
type minder struct {
	spec    plan.Tasks
	mark    string
	ln      *net.UnixListener
	results *os.File
	out     *frames
	pumps   sync.WaitGroup
	fences  *fences
	pmix    *pmixServer
	taken   taken

	mu      sync.Mutex
	tasks   []*task
	running map[int]*task
	helpers map[int]chan unix.WaitStatus // programs that run after tasks
	left    int
	over    chan struct{} // closed when no task is left
	born    chan struct{} // room for one token: there are children to wait for
	alone   chan struct{} // room for one token: there was no child
	exits   []plan.TaskExit
	pieces  sync.Pool   // of *[piece]byte, for what is being read
	aborted bool        // its program has given up: what begins now ends at once
	ending  atomic.Bool // it was told to end
}

// Main minds a step until it is over.
func Main(args []string, errOut io.Writer) int {
	if len(args) != 1 && len(args) != 2 {
		fmt.Fprintln(errOut, "muster-shepherd: mind is for the shepherd itself: FOLDER is missing")
		return exitUsage
	}
	// Whatever is sent to the whole step must reach its tasks and leave the
	// minder alone; a caught signal is not ignored in what is executed.
	caught := make(chan os.Signal, 16)
	signal.Notify(
		caught,
		unix.SIGHUP,
		unix.SIGINT,
		unix.SIGQUIT,
		unix.SIGTERM,
		unix.SIGUSR1,
		unix.SIGUSR2,
		unix.SIGALRM,
		unix.SIGPIPE,
		unix.SIGVTALRM,
		unix.SIGPROF,
		unix.SIGXCPU,
		unix.SIGXFSZ,
		unix.SIGTSTP,
		unix.SIGTTIN,
		unix.SIGTTOU,
		unix.SIGIO,
		unix.SIGPWR,
		unix.SIGABRT,
	)
	closeToUser()
	m := &minder{
		out:     newFrames(),
		running: map[int]*task{},
		helpers: map[int]chan unix.WaitStatus{},
		over:    make(chan struct{}),
		born:    make(chan struct{}, 1),
		alone:   make(chan struct{}, 1),
		mark:    os.Getenv(MarkName),
		taken:   taken{at: map[int32]uint64{}},
	}
	if err := m.open(args[0], args[1:]); err != nil {
		fmt.Fprintln(errOut, "muster-shepherd:", err)
		return exitFailed
	}
	go m.heedSignals(caught)
	m.run()
	return exitOK
}

// closeToUser keeps the user's other processes from reading and writing this
// one's memory and its open files, which are the shepherd's. Where the shepherd
// is not root it would keep that out too.
func closeToUser() {
	if st, err := os.Stat("/proc/" + strconv.Itoa(os.Getppid())); err == nil {
		if own, ok := st.Sys().(*syscall.Stat_t); ok && own.Uid == 0 {
			_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
		}
	}
}

// MarkName is the variable that marks the processes of a run.
const MarkName = "MUSTER_RUN"

func (m *minder) open(folder string, descriptor []string) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	data, err := os.ReadFile(filepath.Join(folder, TasksName))
	if err != nil {
		return err
	}
	decoder, err := protocol.Decoding()
	if err == nil {
		err = decoder.Unmarshal(data, &m.spec)
	}
	if err != nil {
		return fmt.Errorf("the step's tasks: %w", err)
	}
	// The standard files must not be those of anything that is started.
	fds := [2]int{}
	for i := range fds {
		fds[i], err = unix.FcntlInt(uintptr(i), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return fmt.Errorf("standard file %d: %w", i, err)
		}
	}
	f := os.NewFile(uintptr(fds[0]), "socket")
	ln, err := net.FileListener(f)
	_ = f.Close()
	if err != nil {
		return fmt.Errorf("the step's socket: %w", err)
	}
	unixLn, ok := ln.(*net.UnixListener)
	if !ok {
		return errors.New("the step's socket is none")
	}
	unixLn.SetUnlinkOnClose(false)
	m.ln, m.results = unixLn, os.NewFile(uintptr(fds[1]), ResultsName)
	m.fences = newFences(m.spec.PMI)
	if m.spec.PMIx != nil {
		fd := -1
		if len(descriptor) > 0 {
			fd, err = strconv.Atoi(descriptor[0])
		}
		if err != nil || fd < 0 {
			return errors.New("the connection to muster-pmix is missing")
		}
		m.pmix = newPMIx(m, m.spec.PMIx, fd)
	}
	return nil
}

// run is the step's life.
func (m *minder) run() {
	for _, n := range m.spec.Notices {
		m.out.addFrame(plan.Frame{Notice: n})
	}
	m.mu.Lock()
	m.left = len(m.spec.List)
	m.mu.Unlock()
	m.startTasks()
	go m.acceptConns() // input is for tasks that are there
	go m.reapChildren()
	<-m.over
	m.clearLeftovers()
	m.pmix.close()
	m.drainPipes()
	if n, err := cgroup.OOMKills(m.spec.OOMFile); err == nil && n > 0 {
		m.tellUser(
			nil,
			fmt.Sprintf(
				"Detected %d oom_kill event(s): the step used more memory than it was allocated",
				n,
			),
		)
	}
	code, sig := plan.Worst(m.exits)
	m.recordResult(Result{Done: true})
	m.out.addFrame(plan.Frame{End: &plan.FrameEnd{Code: code, Signal: sig}})
	m.awaitDelivery()
}

// recordResult writes one result. Nobody would hear of a failure here; the shepherd
// sees that the results are not whole.
func (m *minder) recordResult(result Result) {
	b, err := cbor.Marshal(&result)
	if err == nil {
		_, err = m.results.Write(b)
	}
	if err != nil {
		m.out.addFrame(plan.Frame{Notice: m.spec.Prefix +
			"the end of the step cannot be written down: " + err.Error()})
	}
}

// noteTaskEnd notes how a task ended.
func (m *minder) noteTaskEnd(exit plan.TaskExit) {
	m.recordResult(Result{Task: &exit})
	m.out.addFrame(plan.Frame{Exit: &exit})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.exits = append(m.exits, exit)
	m.left--
	if m.left == 0 {
		close(m.over)
	}
}

// clearLeftovers kills what the tasks left behind: as their nearest living ancestor that
// wants to be, the minder is the parent of all of it.
func (m *minder) clearLeftovers() {
	until := time.Now().Add(stubborn)
	wait := time.Millisecond
	for time.Now().Before(until) {
		select {
		case <-m.alone:
		default:
		}
		putToken(m.born)
		kids, err := proc.Children()
		if err != nil {
			return // the shepherd does it by other means
		}
		for _, pid := range kids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		timer := time.NewTimer(wait)
		select {
		case <-m.alone:
			timer.Stop()
			return
		case <-timer.C:
		}
		wait = min(2*wait, 100*time.Millisecond)
	}
}

// drainPipes takes what is left in the pipes. One that something holds open which
// could not be killed is given up.
func (m *minder) drainPipes() {
	empty := make(chan struct{})
	go func() { m.pumps.Wait(); close(empty) }()
	for {
		select {
		case <-empty:
			return
		case <-time.After(stubborn):
		}
		if kids, err := proc.Children(); err == nil && len(kids) > 0 {
			for _, t := range m.tasks {
				t.closeOutput()
			}
		}
	}
}

// watched is how long the end waits for those that watch, once the step's client
// has it.
const watched = time.Second

// awaitDelivery waits until a client has everything.
func (m *minder) awaitDelivery() {
	since := time.Now()
	var had time.Time
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-m.out.heard:
			return
		case <-tick.C:
		}
		over, attended := m.out.isDelivered()
		if over {
			if had.IsZero() {
				had = time.Now()
			}
			if time.Since(had) > watched {
				return
			}
			continue
		}
		if attended {
			since = time.Now()
		}
		if alone := time.Since(since); alone > lonely || alone > lonelyEnded && m.ending.Load() {
			return
		}
	}
}

// heedSignals hears the signals that are sent to the whole step.
func (m *minder) heedSignals(caught <-chan os.Signal) {
	for sig := range caught {
		// A shell with a terminal bears SIGTERM; that its terminal is gone it
		// understands.
		if sig != unix.SIGTERM {
			continue
		}
		m.ending.Store(true)
		if m.spec.Terminal != nil {
			m.signalTasks(unix.SIGHUP)
		}
	}
}

// signalTasks sends a signal to all tasks.
func (m *minder) signalTasks(sig unix.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for pid := range m.running {
		_ = unix.Kill(-pid, sig)
	}
}

// abortTasks kills all tasks here, and those that are still to begin. The step's
// client ends those of other nodes.
func (m *minder) abortTasks() {
	m.mu.Lock()
	first := !m.aborted
	m.aborted = true
	m.mu.Unlock()
	if first {
		m.out.addFrame(plan.Frame{Abort: true})
	}
	m.signalTasks(unix.SIGKILL)
}

func wallClock() spec.Instant { return spec.Instant(time.Now().UnixNano()) }

func putToken(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
