//go:build linux

package minder

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/pmix"
	"golang.org/x/sys/unix"
)

// pmixWait is how long muster-pmix may take until the tasks can begin. It reads
// the topology of the node first, which takes tenths of a second on a busy one.
const pmixWait = time.Minute

// pmixServer is the step's PMIx on this node: muster-pmix, which the shepherd has
// started beside this process, and what travels between it and the other nodes. A
// nil one serves nothing.
type pmixServer struct {
	m     *minder
	sock  *os.File
	ready chan struct{} // closed once the tasks can begin or cannot
	gone  chan struct{} // closed once muster-pmix is gone

	mu        sync.Mutex
	broker    *pmix.Broker
	variables map[uint32][]string
	began     bool
	failed    string
	closing   bool
}

// errNoPMIx is why a task cannot begin.
var errNoPMIx = errors.New("PMIx cannot be served on this node")

// newPMIx takes the connection to muster-pmix by its descriptor.
func newPMIx(m *minder, config *plan.PMIx, fd int) *pmixServer {
	unix.CloseOnExec(fd)
	server := &pmixServer{
		m:         m,
		sock:      newPolledFile(fd),
		ready:     make(chan struct{}),
		gone:      make(chan struct{}),
		broker:    pmix.New(*config),
		variables: map[uint32][]string{},
	}
	go server.read()
	server.write(server.broker.Setup())
	return server
}

// read takes what muster-pmix says until it ends.
func (p *pmixServer) read() {
	defer close(p.gone)
	buf := make([]byte, 64<<10)
	for {
		n, err := p.sock.Read(buf)
		if err == nil {
			err = p.take(buf[:n])
		}
		if err != nil {
			p.end(err)
			return
		}
	}
}

// take takes a piece of what muster-pmix says.
func (p *pmixServer) take(data []byte) error {
	p.mu.Lock()
	result, err := p.broker.Read(data)
	for rank, list := range result.Variables {
		p.variables[rank] = list
	}
	if result.Failed != "" {
		p.failed = result.Failed
	}
	p.write(result.Send)
	if result.Ready && !p.began {
		p.began = true
		close(p.ready)
	}
	p.mu.Unlock()
	for i := range result.Frames {
		p.m.out.addFrame(result.Frames[i])
	}
	if result.Abort {
		p.m.tellUser(nil, fmt.Sprintf("task %d: PMIx: the program aborts the step with exit code %d: %s",
			result.Rank, result.ExitCode, result.Message))
		p.m.abortTasks()
	}
	return err
}

// end notes that muster-pmix has ended. Before the end of the tasks that is the
// end of the step: they cannot find each other any more.
func (p *pmixServer) end(err error) {
	p.mu.Lock()
	early := !p.began
	reason := p.failed
	if reason == "" {
		reason = "muster-pmix has ended: " + err.Error()
	}
	p.failed = reason
	if early {
		p.began = true
		close(p.ready)
	}
	closing := p.closing
	p.mu.Unlock()
	if !closing && !early {
		p.m.tellUser(nil, "PMIx: "+reason)
		p.m.abortTasks()
	}
}

// write sends to muster-pmix, which reads at all times. That it has ended is the
// reader's to notice.
func (p *pmixServer) write(data []byte) {
	if len(data) > 0 {
		_, _ = p.sock.Write(data)
	}
}

// environ gives the variables that a task needs, once muster-pmix knows them.
func (p *pmixServer) environ(rank uint32) ([]string, error) {
	if p == nil {
		return nil, nil
	}
	timer := time.NewTimer(pmixWait)
	defer timer.Stop()
	select {
	case <-p.ready:
	case <-timer.C:
		return nil, fmt.Errorf("%w: muster-pmix did not become ready in %v", errNoPMIx, pmixWait)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != "" {
		return nil, fmt.Errorf("%w: %s", errNoPMIx, p.failed)
	}
	return p.variables[rank], nil
}

// merged lets the tasks of a group go on with what all nodes have put.
func (p *pmixServer) merged(fence *plan.Fence) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(p.broker.Merged(fence))
	return nil
}

// modex takes a question or an answer of another node.
func (p *pmixServer) modex(modex *plan.Modex) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	result := p.broker.Modex(modex)
	p.write(result.Send)
	for i := range result.Frames {
		p.m.out.addFrame(result.Frames[i])
	}
	return nil
}

// close ends muster-pmix and waits until it has removed its files. One that does not end in time
// is left to the shepherd: when this process has ended, that kills what is left of the run and
// removes the folder of muster-pmix.
func (p *pmixServer) close() {
	if p == nil {
		return
	}
	// Whoever writes holds mu, and waits for as long as the user keeps muster-pmix stopped.
	_ = p.sock.SetWriteDeadline(time.Now())
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	// It closes its end when it is done, which the reader sees.
	_ = shutdownWriting(p.sock)
	select {
	case <-p.gone:
	case <-time.After(stubborn):
	}
	_ = p.sock.Close()
}

func shutdownWriting(file *os.File) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var done error
	err = conn.Control(func(fd uintptr) { done = unix.Shutdown(int(fd), unix.SHUT_WR) })
	return errors.Join(err, done)
}

// withVariables replaces variables of an environment by others.
func withVariables(env, over []string) []string {
	if len(over) == 0 {
		return env
	}
	own := make(map[string]bool, len(over))
	for _, e := range over {
		name, _, _ := strings.Cut(e, "=")
		own[name] = true
	}
	out := make([]string, 0, len(env)+len(over))
	for _, e := range env {
		if name, _, _ := strings.Cut(e, "="); !own[name] {
			out = append(out, e)
		}
	}
	return append(out, over...)
}
