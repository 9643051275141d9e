package daemon

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// stepLines are the steps that wait for others of their jobs, in the order in
// which they came. When something of a job changes, its line is gone through
// once: each tries when it is its turn, but for those that ask for the same as
// one that has just found no room. So a thousand sruns that ask for the same
// cost one try each and one for each change, and a small step passes a large one
// that has no room, which it may be that the large one waits for.
type stepLines struct {
	c  *Controller
	mu sync.Mutex
	of map[spec.JobUID]*stepLine
}

type stepLine struct {
	waiting []*waitingStep
	came    chan struct{} // room for one token: somebody has joined or left
}

// waitingStep is a request whose turn comes.
type waitingStep struct {
	ctx    context.Context
	r      *request // nil once it is answered
	shape  string
	answer chan reply // of the try that ended the waiting
}

func newStepLines(controller *Controller) *stepLines {
	return &stepLines{c: controller, of: map[spec.JobUID]*stepLine{}}
}

// stepShape tells apart steps that ask for different things.
func stepShape(command scheduler.StartStep) string {
	step := command.Spec
	out := fmt.Sprint(step.MinNodes, step.MaxNodes, step.Tasks, step.TasksPerNode, step.CPUsPerTask,
		step.Overlap, step.Exact, step.MemPerNode, step.MemPerCPU, step.PerNode, step.PerStep,
		step.PerTask, step.NoGRES, step.Relative, step.Overcommit,
		step.External) + fmt.Sprintf("%q%q%q", step.Nodes, step.Exclude, step.Distribution)
	for i := range command.Rest {
		out += fmt.Sprintf(" %d:", command.Rest[i].UID) + stepShape(command.Rest[i])
	}
	return out
}

// countWaiting is how many steps of a job wait.
func (l *stepLines) countWaiting(job spec.JobUID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line := l.of[job]; line != nil {
		return len(line.waiting)
	}
	return 0
}

// waitForStep joins the job's line until a try succeeds or is refused for good.
func (l *stepLines) waitForStep(ctx context.Context, job spec.JobUID, r *request) reply {
	waiting := &waitingStep{
		ctx:    ctx,
		r:      r,
		shape:  stepShape(r.cmd.(scheduler.StartStep)),
		answer: make(chan reply, 1),
	}
	l.mu.Lock()
	line := l.of[job]
	if line == nil {
		line = &stepLine{came: make(chan struct{}, 1)}
		l.of[job] = line
		go l.serveWaiting(job, line)
	}
	line.waiting = append(line.waiting, waiting)
	l.mu.Unlock()
	line.callNext()
	select {
	case rep := <-waiting.answer:
		return rep
	case <-ctx.Done():
		line.callNext()
		return reply{err: ctx.Err()}
	case <-l.c.stopping:
		return reply{err: spec.Refuse(spec.CodeStopping, "")}
	}
}

func (line *stepLine) callNext() {
	select {
	case line.came <- struct{}{}:
	default:
	}
}

// listWaiting drops those who have gone and gives the others; a line that is empty is
// closed.
func (l *stepLines) listWaiting(job spec.JobUID, line *stepLine) []*waitingStep {
	l.mu.Lock()
	defer l.mu.Unlock()
	line.waiting = slices.DeleteFunc(
		line.waiting,
		func(w *waitingStep) bool { return w.ctx.Err() != nil || w.r == nil },
	)
	if len(line.waiting) == 0 {
		delete(l.of, job)
	}
	return slices.Clone(line.waiting)
}

// serveWaiting gives those who wait their turns, until nobody waits.
func (l *stepLines) serveWaiting(job spec.JobUID, line *stepLine) {
	var tried uint64
	noRoom := map[string]bool{}
	for {
		snapshot, changed := l.c.Changed()
		if now := jobChanged(snapshot, job); now != tried {
			tried = now
			clear(noRoom)
		}
		list := l.listWaiting(job, line)
		if len(list) == 0 {
			return
		}
		for _, waiting := range list {
			if noRoom[waiting.shape] {
				continue
			}
			again := *waiting.r
			again.reply = nil
			rep := l.c.writer.commitCommand(waiting.ctx, &again)
			if !stepWaits(rep.err) {
				waiting.r = nil
				waiting.answer <- rep
				continue
			}
			noRoom[waiting.shape] = true
			if spec.CodeOf(rep.err) != spec.CodeNodesBusy {
				break // the whole job is not ready
			}
		}
		for jobChanged(snapshot, job) == tried {
			select {
			case <-changed:
				snapshot, changed = l.c.Changed()
				continue
			case <-line.came:
			case <-l.c.stopping:
				return
			}
			break
		}
	}
}

// jobChanged is when a job's record, or that of another component of its
// heterogeneous job, last changed; 0 when there is none.
func jobChanged(snapshot *view.View, job spec.JobUID) uint64 {
	j := snapshot.State.Job(job)
	if j == nil {
		return 0
	}
	last := j.Changed
	for _, component := range snapshot.State.Components(j) {
		last = max(last, component.Changed)
	}
	return last
}
