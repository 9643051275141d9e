package luascript

import (
	"bufio"
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// patience is how much longer than its limit a call may take before the child is ended: an
// answer that names the line is worth waiting for.
const patience = 2 * time.Second

// ErrLate tells that a script did not answer in time, and that its process was ended.
var ErrLate = errors.New("the script did not answer in time")

// Runner runs job_submit.lua in a child process, one job after another.
type Runner struct {
	// Command is the program and its arguments that call Serve.
	Command []string

	mu      sync.Mutex
	process *process
	loaded  any // mark of the site that the child has
}

// process is a child that runs.
type process struct {
	cmd     *exec.Cmd
	in      *bufio.Writer
	encoder *gob.Encoder
	decoder *gob.Decoder
	closeIn func() error
	words   *tail // the end of what it wrote on standard error
}

// Submit hands a job to slurm_job_submit. mark tells whether site is the one of the call
// before: it is sent to the child only when mark changed.
func (r *Runner) Submit(ctx context.Context, mark any, site func() Site, job *Job) (*Verdict, error) {
	a, err := r.ask(ctx, mark, site, job, nil)
	if err != nil {
		return nil, err
	}
	if a.Failed != "" {
		return a.Verdict, errors.New(a.Failed)
	}
	return a.Verdict, r.take(a, job)
}

// Modify hands a change of a job to slurm_job_modify.
func (r *Runner) Modify(
	ctx context.Context,
	mark any,
	site func() Site,
	job *Job,
	update *Update,
) (*Verdict, error) {
	a, err := r.ask(ctx, mark, site, job, update)
	if err != nil {
		return nil, err
	}
	if a.Failed != "" {
		return a.Verdict, errors.New(a.Failed)
	}
	update.Changes = a.Update.Changes
	return a.Verdict, nil
}

// Check says what is wrong with a script that is to be taken: whether it loads, and defines
// one of some functions at least. It uses a child of its own.
func Check(command []string, source *spec.SiteScript, functions ...string) error {
	runner := &Runner{Command: command}
	defer runner.Close()
	if err := runner.start(); err != nil {
		return err
	}
	limits := DefaultLimits()
	wanted := &order{Site: &Site{Script: source, Limits: limits}, Functions: functions}
	a, err := runner.exchange(wanted, limits.Time+patience)
	if err == nil && a.Failed != "" {
		err = errors.New(a.Failed)
	}
	return err
}

// take gives a job what the script made of it.
func (r *Runner) take(a *answer, job *Job) error {
	changed := &apiv1.JobSpec{}
	if err := proto.Unmarshal(a.Spec, changed); err != nil {
		return err
	}
	job.Spec = changed
	job.Facts = *a.Facts
	return nil
}

// ask sends one order and waits for the answer. A child that is late, or that died, is
// replaced with the next order.
func (r *Runner) ask(
	ctx context.Context,
	mark any,
	site func() Site,
	job *Job,
	update *Update,
) (*answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r.process == nil {
		if err := r.start(); err != nil {
			return nil, err
		}
	}
	wanted := site()
	wait := wanted.Limits.Time + patience
	if r.loaded != mark {
		r.loaded = nil
		a, err := r.exchange(&order{Site: &wanted}, wait)
		if err != nil || a.Failed != "" {
			return a, err
		}
		r.loaded = mark
	}
	data, err := proto.Marshal(job.Spec)
	if err != nil {
		return nil, err
	}
	return r.exchange(&order{Spec: data, Facts: &job.Facts, Update: update}, wait)
}

// exchange sends an order and reads the answer.
func (r *Runner) exchange(o *order, wait time.Duration) (*answer, error) {
	type result struct {
		answer *answer
		err    error
	}
	child := r.process
	done := make(chan result, 1)
	go func() { // ends with the answer, or with the pipes of a child that is ended below
		a := &answer{}
		err := errors.Join(child.encoder.Encode(o), child.in.Flush())
		if err == nil {
			err = child.decoder.Decode(a)
		}
		done <- result{a, err}
	}()
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case got := <-done:
		if got.err != nil {
			words := r.end()
			if strings.Contains(words, "out of memory") {
				return nil, fmt.Errorf("%w: its process has no memory left", ErrScript)
			}
			return nil, fmt.Errorf("%w: its process ended: %w: %s", ErrScript, got.err, words)
		}
		return got.answer, nil
	case <-late.C:
		r.end()
		<-done
		return nil, fmt.Errorf("%w: %v", ErrLate, wait)
	}
}

func (r *Runner) start() error {
	cmd := exec.Command(r.Command[0], r.Command[1:]...)
	cmd.Env = []string{"GOMAXPROCS=2"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	words := &tail{}
	cmd.Stderr = words
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", strings.Join(r.Command, " "), err)
	}
	buffer := bufio.NewWriter(in)
	r.process = &process{
		cmd:     cmd,
		in:      buffer,
		encoder: gob.NewEncoder(buffer),
		decoder: gob.NewDecoder(bufio.NewReader(out)),
		closeIn: in.Close,
		words:   words,
	}
	r.loaded = nil
	return nil
}

// end ends the child and gives its last words.
func (r *Runner) end() string {
	child := r.process
	r.process = nil
	r.loaded = nil
	if child == nil {
		return ""
	}
	_ = child.closeIn()
	_ = child.cmd.Process.Kill() // it may be gone
	_ = child.cmd.Wait()
	return child.words.String()
}

// Close ends the child.
func (r *Runner) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
}

// tail keeps the beginning and drops the rest of what is written: a program that dies says
// first why.
type tail struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

// maxTail bounds what is kept, so that a script that prints without end costs no memory.
const maxTail = 512

// Write implements io.Writer.
func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if room := maxTail - t.kept.Len(); room > 0 {
		t.kept.Write(data[:min(room, len(data))])
	}
	return len(data), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(t.kept.String())
}
