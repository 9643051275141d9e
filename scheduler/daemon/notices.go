package daemon

import (
	"slices"
	"strings"
	"sync"
	"unicode"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// maxNotice bounds the line of scontrol notify.
const maxNotice = 1024

// listeners are the streams of srun and salloc that attend a job: what scontrol
// notify says of the job is told to them. Nothing of it is kept.
type listeners struct {
	mu sync.Mutex
	of map[spec.JobUID][]chan string
}

// addStream adds a stream; leave takes it away.
func (l *listeners) addStream(uid spec.JobUID) (lines <-chan string, leave func()) {
	ch := make(chan string, 4)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[spec.JobUID][]chan string{}
	}
	l.of[uid] = append(l.of[uid], ch)
	return ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.of[uid] = slices.DeleteFunc(l.of[uid], func(c chan string) bool { return c == ch })
		if len(l.of[uid]) == 0 {
			delete(l.of, uid)
		}
	}
}

// tellStreams passes a line to the streams of a job and counts those that took it. One
// whose client does not read misses it.
func (l *listeners) tellStreams(uid spec.JobUID, line string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	told := 0
	for _, ch := range l.of[uid] {
		select {
		case ch <- line:
			told++
		default:
		}
	}
	return told
}

// notifyFollowers gives a line to who follows a job: to the error output of its script, or to
// the srun or salloc that made it.
func (c *Controller) notifyFollowers(job *state.Job, line string) *spec.Error {
	line = strings.TrimRightFunc(line, unicode.IsSpace)
	switch {
	case line == "" || len(line) > maxNotice || strings.ContainsFunc(line, unicode.IsControl):
		return spec.Refuse(
			spec.CodeBadRequest,
			"a message is one line of at most 1024 bytes without control characters",
		)
	case job.State.Terminal():
		return spec.Refuse(spec.CodeAlreadyDone, "")
	case job.Spec.Shell && c.listeners.tellStreams(job.UID, line) == 0:
		return spec.Refuse(spec.CodeDisabled, "no srun or salloc attends the job")
	case job.Spec.Shell:
		return nil
	case !job.GoesOn():
		return spec.Refuse(spec.CodeJobNotRunning, "")
	}
	host := job.Alloc.Nodes[0].Name
	conn := c.hub.connOf(host)
	if conn == nil {
		return spec.Refuse(spec.CodeNodesBusy, "the agent of "+host+
			", where the script runs, is not connected: try again")
	}
	conn.queueOrder(
		&apiv1.Order{
			Run: runKey(job),
			Kind: &apiv1.Order_Signal{
				Signal: &apiv1.SignalRun{Scope: uint32(event.SignalBatch), Message: line},
			},
		},
	)
	return nil
}
