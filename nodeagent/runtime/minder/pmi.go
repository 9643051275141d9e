//go:build linux

package minder

import (
	"fmt"
	"os"
	"sync"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/pmi"
	"golang.org/x/sys/unix"
)

// fences is the step's PMI on this node. What the tasks here have put before a
// fence leaves as a frame; the step's client sends what all nodes have.
type fences struct {
	cfg *plan.PMI

	mu     sync.Mutex
	server *pmi.Server
	tasks  map[int]*os.File
}

func newFences(config *plan.PMI) *fences {
	f := &fences{cfg: config, tasks: map[int]*os.File{}}
	if config != nil {
		f.server = pmi.New(*config)
	}
	return f
}

// serveTask makes a task's connection and gives the task's end of it.
func (m *minder) serveTask(t *task) (int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	ours, f := newPolledFile(pair[0]), m.fences
	f.mu.Lock()
	f.tasks[t.index] = ours
	f.mu.Unlock()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := ours.Read(buf)
			if err == nil {
				err = m.handleTaskMessage(t, buf[:n])
				if err != nil {
					m.tellUser(t, fmt.Sprintf("task %d: PMI: %v", t.Rank, err))
				}
			}
			if err != nil {
				break
			}
		}
		f.mu.Lock()
		delete(f.tasks, t.index)
		f.mu.Unlock()
		_ = ours.Close()
	}()
	return pair[1], nil
}

// handleTaskMessage takes what a task has sent.
func (m *minder) handleTaskMessage(t *task, data []byte) error {
	f := m.fences
	f.mu.Lock()
	defer f.mu.Unlock()
	result, err := f.server.Read(t.index, data)
	if err != nil {
		return err
	}
	f.answerTasks(result)
	if result.Abort {
		m.tellUser(
			nil,
			fmt.Sprintf(
				"task %d: PMI: the program aborts the step with exit code %d: %s",
				t.Rank,
				result.ExitCode,
				result.Message,
			),
		)
		m.abortTasks()
	}
	switch part := (plan.Fence{Number: result.Number, Node: f.cfg.Node, Data: result.Fence}); {
	case result.Reached && f.cfg.Nodes > 1:
		m.out.addFrame(plan.Frame{Fence: &part})
	case result.Reached:
		return f.passFence(&part)
	}
	return nil
}

// answerTasks writes to the tasks. mu is held.
func (f *fences) answerTasks(result pmi.Result) {
	for _, answer := range result.Answers {
		if w := f.tasks[answer.Task]; w != nil {
			_, _ = w.Write(answer.Data) // a task that has gone needs no answer
		}
	}
}

// completeFence lets the tasks go on with what all nodes have put.
func (f *fences) completeFence(all *plan.Fence) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server == nil {
		return nil
	}
	return f.passFence(all)
}

// passFence is complete with mu held.
func (f *fences) passFence(all *plan.Fence) error {
	result, err := f.server.Merged(all.Number, all.Data)
	f.answerTasks(result)
	return err
}
