package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/test/chaos/acked"
)

// jobScript appends to the side-effect file when an attempt starts and ends.
// The lock belongs to the job, not to the attempt, and every process of the
// attempt holds it: whoever cannot take it runs beside another attempt.
const jobScript = `#!/bin/sh
# usage: job.sh FOLDER SECONDS EXIT
key=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}
note() { echo "$key ${SLURM_RESTART_COUNT:-0} $1 $(date +%s%N) $$" >>"$folder/effects"; }
folder=$1
exec 9>"$folder/locks/$key"
flock -n 9 || note double
note start
sleep "$2"
note end
exit "$3"
`

// load is the users.
type load struct {
	o    *options
	list *acked.List
	path string // of the job script

	mu      sync.Mutex
	refused map[string]int // by text: what users saw while something was down
	byKind  map[string]int
	broken  error // the list cannot be written: nothing counts any more
}

func newLoad(o *options, list *acked.List) (*load, error) {
	l := &load{
		o:       o,
		list:    list,
		path:    filepath.Join(o.out, "job.sh"),
		refused: map[string]int{},
		byKind:  map[string]int{},
	}
	if err := os.WriteFile(l.path, []byte(jobScript), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(
		filepath.Join(o.out, "effects"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666,
	)
	if err != nil {
		return nil, err
	}
	return l, file.Close()
}

// job is one submission.
type job struct {
	kind    acked.Kind
	tasks   int
	seconds string
	name    string // chaos if empty
}

// draw picks a job: mostly short ones, some that fail, some arrays.
func draw(random *rand.Rand) job {
	j := job{kind: acked.OK, seconds: fmt.Sprintf("%.2f", 0.05+random.Float64()*0.8)}
	switch n := random.IntN(20); {
	case n < 2:
		j.kind = acked.Fails
	case n < 3:
		j.tasks = 2 + random.IntN(3)
	case n < 4:
		j.seconds = "3"
	}
	return j
}

func (j job) exit() string {
	if j.kind == acked.Fails {
		return "7"
	}
	return "0"
}

// runSubmissions is one user who runs sbatch again and again.
func (l *load) runSubmissions(ctx context.Context, random *rand.Rand) {
	every := time.Duration(float64(l.o.submitters) / l.o.rate * float64(time.Second))
	for ctx.Err() == nil {
		began := time.Now()
		l.send(ctx, draw(random))
		if pauseFor(ctx, every-time.Since(began)) != nil {
			return
		}
	}
}

// send submits a job through sbatch.
func (l *load) send(ctx context.Context, j job) {
	args := []string{
		"--parsable",
		"-J",
		cmp.Or(j.name, "chaos"),
		"-n",
		"1",
		"--mem-per-cpu=10",
		"-t",
		"5",
		"--requeue",
		"-D",
		l.o.out,
		"-o",
		"/dev/null",
	}
	if j.tasks > 0 {
		args = append(args, fmt.Sprintf("--array=1-%d", j.tasks))
	}
	args = append(args, l.path, l.o.out, j.seconds, j.exit())
	// Not under ctx: an sbatch that is under way may still be acknowledged.
	out, err := l.o.command(context.WithoutCancel(ctx), "sbatch", args...)
	l.note("sbatch", j, out, err)
}

// note keeps what was acknowledged; a refusal is only counted.
func (l *load) note(how string, j job, answer string, err error) {
	if err == nil {
		var id uint64
		text, _, _ := strings.Cut(strings.TrimSpace(answer), ";")
		id, err = strconv.ParseUint(text, 10, 32)
		if err == nil && id > 0 {
			err = l.list.Add(
				acked.Entry{
					Job:   uint32(id),
					Tasks: j.tasks,
					Kind:  j.kind,
					At:    time.Now().UnixNano(),
				},
			)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.byKind[how]++
			if err != nil && l.broken == nil {
				l.broken = fmt.Errorf("the list of acknowledged jobs: %w", err)
			}
			return
		}
		err = fmt.Errorf("the answer %q is not a job number", answer)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	text := err.Error()
	if i := strings.LastIndex(text, "exit status"); i >= 0 {
		text = text[i:]
	}
	l.refused[how+": "+text]++
}

// runStreams is a user of the streaming API: whenever the stream breaks it opens
// another one.
func (l *load) runStreams(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		if err := l.stream(ctx, random); err != nil && ctx.Err() == nil {
			l.note("stream", job{}, "", err)
		}
		if pauseFor(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}

func (l *load) stream(ctx context.Context, random *rand.Rand) error {
	conn, err := grpcx.DialUnix(filepath.Join(l.o.dir, "run", "muster.sock"))
	if err != nil {
		return err
	}
	defer conn.Close()
	sctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	s, err := service.NewClusterClient(conn).SubmitStream(sctx)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	sent := map[uint64]job{}
	acks := make(chan error, 1)
	go func() {
		for {
			reply, err := s.Recv()
			if err != nil {
				acks <- err
				return
			}
			mu.Lock()
			j := sent[reply.GetTag()]
			delete(sent, reply.GetTag())
			mu.Unlock()
			var refusal error
			if e := reply.GetError(); e != nil {
				refusal = errors.New(e.GetText() + " " + e.GetDetail())
			}
			l.note("stream", j, fmt.Sprint(reply.GetJobId()), refusal)
		}
	}()
	for tag := uint64(1); ; tag++ {
		j := draw(random)
		mu.Lock()
		sent[tag] = j
		mu.Unlock()
		if err := s.Send(l.request(j, tag)); err != nil {
			return <-acks // the receiver learns why
		}
		select {
		case err := <-acks:
			return err
		default:
		}
		if pauseFor(ctx, time.Duration(float64(time.Second)/l.o.stream)) != nil {
			break
		}
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	select {
	case err := <-acks:
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	case <-time.After(10 * time.Second):
		return errors.New("the stream does not end")
	}
}

func (l *load) request(j job, tag uint64) *apiv1.SubmitRequest {
	spec := &apiv1.JobSpec{
		Name:      "chaos",
		Tasks:     1,
		MemPerCpu: 10,
		TimeLimit: int64(5 * time.Minute),
		WorkDir:   l.o.out,
		Stdout:    "/dev/null",
		Args:      []string{l.o.out, j.seconds, j.exit()},
		Command:   l.path,
	}
	if j.tasks > 0 {
		spec.Array = []*apiv1.TaskRange{{First: 1, Last: int64(j.tasks), Step: 1}}
	}
	return &apiv1.SubmitRequest{Spec: spec, Script: &apiv1.Blob{Data: []byte(jobScript)},
		Environment: &apiv1.Blob{Data: []byte("PATH=/usr/local/bin:/usr/bin:/bin\x00")}, Tag: tag}
}

// fatalError is why the run does not count.
func (l *load) fatalError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// writeReport tells what users saw.
func (l *load) writeReport(out io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, how := range slices.Sorted(maps.Keys(l.byKind)) {
		fmt.Fprintf(out, "%d submissions acknowledged through %s\n", l.byKind[how], how)
	}
	reasons := slices.SortedFunc(
		maps.Keys(l.refused),
		func(a, b string) int { return l.refused[b] - l.refused[a] },
	)
	for _, reason := range reasons[:min(len(reasons), 8)] {
		fmt.Fprintf(
			out, "not acknowledged %d times: %s\n", l.refused[reason], firstLines(reason, 2),
		)
	}
}
