package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/musterhpc/muster/accounting/embedded/front"
)

// Subcommand is the word by which a program runs Main; Supervisor puts it before the options.
const Subcommand = "embedded-clickhouse"

// ExitInUse is the exit status of Command when another process has the data path: the
// Supervisor waits for that to change before it gives up.
const ExitInUse = 75

// timing holds how long a supervisor waits for what.
type timing struct {
	start         time.Duration // for the first answer, of a large data path
	inUse         time.Duration // for a predecessor that is still dying
	poll          time.Duration // between questions before the first answer
	pingEvery     time.Duration // between questions after it
	pingWait      time.Duration // for an answer
	backoffFirst  time.Duration // after a first crash; twice as long after each more
	backoffLast   time.Duration
	backoffForget time.Duration // of life after which a crash counts as the first again
}

func defaultTiming() timing {
	return timing{
		start: time.Minute, inUse: 15 * time.Second, poll: 20 * time.Millisecond,
		pingEvery: 5 * time.Second, pingWait: 10 * time.Second,
		backoffFirst: 100 * time.Millisecond, backoffLast: 10 * time.Second, backoffForget: time.Minute,
	}
}

// pingsLost in a row mean that the child hangs.
const pingsLost = 3

// Supervisor keeps one engine process running.
type Supervisor struct {
	options  Options
	timing   timing
	command  []string
	log      *slog.Logger
	client   *http.Client
	restarts atomic.Uint64
	ready    atomic.Bool

	mu      sync.Mutex
	process *os.Process // nil between two children

	stop   context.CancelFunc
	ended  chan struct{} // closed when no child is left and none will come
	failed error         // why it ended; read after ended
}

// Start starts the engine as a child process and returns when it answers. command is a program
// and the arguments that make it call Main; nil means this program with Subcommand. The error
// is the child's own last words when it would not start. ctx bounds the wait for the first
// answer only; Close ends the child.
//
// Afterwards a child that dies, or hangs, is started again, with growing pauses if it keeps
// dying. Whoever has requests under way sees them fail and tries them again.
func Start(ctx context.Context, options Options, command ...string) (*Supervisor, error) {
	return start(ctx, options, defaultTiming(), command...)
}

func start(
	ctx context.Context,
	options Options,
	wait timing,
	command ...string,
) (*Supervisor, error) {
	logger := options.Log
	if logger == nil {
		logger = slog.Default()
	}
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	options.UntilEOF = true
	if len(command) == 0 {
		command = []string{"/proc/self/exe", Subcommand}
		if runtime.GOOS != "linux" {
			command[0], err = os.Executable()
			if err != nil {
				return nil, fmt.Errorf("find this program to run the ClickHouse engine: %w", err)
			}
		}
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	supervisor := &Supervisor{
		options: options,
		timing:  wait,
		command: slices.Concat(command, options.Args()),
		log:     logger,
		client:  socketClient(options.Socket),
		stop:    stop,
		ended:   make(chan struct{}),
	}
	started := make(chan struct{})
	go supervisor.run(run, started)
	select {
	case <-started:
		return supervisor, nil
	case <-supervisor.ended:
		return nil, supervisor.failed
	case <-ctx.Done():
		return nil, errors.Join(
			fmt.Errorf("wait for the ClickHouse engine: %w", ctx.Err()),
			supervisor.Close(),
		)
	}
}

// socketClient speaks HTTP over the unix socket at path.
func socketClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
		MaxIdleConns: 1,
	}}
}

// Socket is the path on which the engine answers; it stays the same over restarts.
func (s *Supervisor) Socket() string { return s.options.Socket }

// Restarts counts the children started after the first.
func (s *Supervisor) Restarts() uint64 { return s.restarts.Load() }

// Ready reports whether the child answered when it was last asked.
func (s *Supervisor) Ready() bool { return s.ready.Load() }

// PID is the child's process number, 0 between two children.
func (s *Supervisor) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.Pid
}

// Ping asks the engine whether it answers.
func (s *Supervisor) Ping(ctx context.Context) error { return s.ping(ctx, 0) }

// ping asks the engine process pid, or any when it is 0: just after a restart a predecessor may
// still answer.
func (s *Supervisor) ping(ctx context.Context, pid int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/ping", nil)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the ClickHouse engine: %w", err)
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	if from := resp.Header.Get(front.PIDHeader); pid != 0 && from != strconv.Itoa(pid) {
		return fmt.Errorf(
			"process %q answers on %s, not the ClickHouse engine started last (%d)",
			from,
			s.options.Socket,
			pid,
		)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the ClickHouse engine answered %s", resp.Status)
	}
	return err
}

// Done is closed when the supervisor has ended: by Close, or because the engine cannot be
// started any more.
func (s *Supervisor) Done() <-chan struct{} { return s.ended }

// Close stops the child: it may finish its statements for Options.Grace. It may be called more
// than once.
func (s *Supervisor) Close() error {
	s.stop()
	<-s.ended
	s.client.CloseIdleConnections()
	return s.failed
}

// run starts children one after the other until ctx is over. It stays on one thread, since the
// kernel ties a child's death signal to the thread that started it; the thread ends with run.
func (s *Supervisor) run(ctx context.Context, started chan struct{}) {
	runtime.LockOSThread()
	defer close(s.ended)
	var once sync.Once
	pause := s.timing.backoffFirst
	inUse := time.Time{}
	for first := true; ctx.Err() == nil; first = false {
		if !first && inUse.IsZero() {
			s.restarts.Add(1)
		}
		born := time.Now()
		answered, err := s.child(ctx, func() { once.Do(func() { close(started) }) })
		s.ready.Store(false)
		switch {
		case ctx.Err() != nil:
			s.failed = err
			return
		case errors.Is(err, ErrInUse) && (inUse.IsZero() || time.Since(inUse) < s.timing.inUse):
			if inUse.IsZero() {
				inUse = time.Now()
				s.log.Info("waiting for the data path", "reason", err)
			}
			pause = s.timing.backoffFirst
		case !answered && (first || !inUse.IsZero()):
			s.failed = err // it never worked: starting it again would hide why
			return
		default:
			inUse = time.Time{}
			s.log.Error(
				"the ClickHouse engine died and is started again",
				"reason",
				err,
				"pause",
				pause.String(),
			)
		}
		if time.Since(born) > s.timing.backoffForget {
			pause = s.timing.backoffFirst
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(pause*2, s.timing.backoffLast)
	}
}

// child runs one child to its end. answered tells whether it ever did; the error says how it
// ended, nil after an orderly stop.
func (s *Supervisor) child(ctx context.Context, onAnswer func()) (answered bool, err error) {
	cmd := exec.Command(s.command[0], s.command[1:]...)
	cmd.SysProcAttr = childAttributes()
	cmd.Env = append(os.Environ(), "TZ=UTC")
	stdin, err := cmd.StdinPipe() // held open for as long as we live
	if err != nil {
		return false, fmt.Errorf("start the ClickHouse engine: %w", err)
	}
	defer stdin.Close()
	words := &relay{log: s.log}
	cmd.Stdout, cmd.Stderr = words, words
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("start the ClickHouse engine: %w", err)
	}
	s.setProcess(cmd.Process)
	defer s.setProcess(nil)
	watch, unwatch := context.WithCancel(ctx)
	watched := make(chan bool, 1)
	go func() { watched <- s.watch(watch, cmd.Process, onAnswer) }()
	stopped := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	killer := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(2 * s.options.Grace): // its own, and as much for the engine's end
			_ = cmd.Process.Kill()
		case <-watch.Done():
		}
	})
	err = cmd.Wait()
	unwatch()
	answered = <-watched
	stopped()
	killer()
	words.flushLine()
	return answered, s.reason(ctx, cmd, err, words.lastError())
}

// reason puts the end of a child into words.
func (s *Supervisor) reason(ctx context.Context, cmd *exec.Cmd, err error, last string) error {
	if err == nil {
		if ctx.Err() != nil {
			return nil
		}
		return errors.New("the ClickHouse engine process ended without being told to")
	}
	if ctx.Err() != nil && last == "" {
		return fmt.Errorf("stop the ClickHouse engine: %w", err)
	}
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == ExitInUse {
		return fmt.Errorf("%w: %s", ErrInUse, strings.TrimPrefix(last, ErrInUse.Error()+": "))
	}
	if last != "" {
		return fmt.Errorf("the ClickHouse engine process ended (%w): %s", err, last)
	}
	return fmt.Errorf("the ClickHouse engine process ended: %w", err)
}

func (s *Supervisor) setProcess(process *os.Process) {
	s.mu.Lock()
	s.process = process
	s.mu.Unlock()
}

// watch asks the child until it answers and then now and again, and kills it when it has
// stopped answering.
func (s *Supervisor) watch(
	ctx context.Context, process *os.Process, onAnswer func(),
) (answered bool) {
	deadline := time.Now().Add(s.timing.start)
	lost := 0
	for wait := s.timing.poll; ; {
		ping, cancel := context.WithTimeout(ctx, s.timing.pingWait)
		err := s.ping(ping, process.Pid)
		cancel()
		switch {
		case ctx.Err() != nil:
			return answered
		case err == nil:
			s.ready.Store(true)
			onAnswer()
			answered = true
			lost = 0
			wait = s.timing.pingEvery
		case !answered && time.Now().After(deadline):
			s.log.Error(
				"the ClickHouse engine did not answer in time and is killed",
				"waited",
				s.timing.start.String(),
				"error",
				err,
			)
			_ = process.Kill()
			return false
		case answered:
			s.ready.Store(false)
			lost++
			if lost >= pingsLost {
				s.log.Error(
					"the ClickHouse engine has stopped answering and is killed",
					"error",
					err,
				)
				_ = process.Kill()
				return true
			}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return answered
		}
	}
}
