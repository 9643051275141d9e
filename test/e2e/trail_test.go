package e2e

import (
	"bufio"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// receiver takes the audit trail over TCP, until it is closed.
type receiver struct {
	t       *testing.T
	address string
	l       net.Listener

	mu    sync.Mutex
	text  strings.Builder
	conns []net.Conn
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t, address: "127.0.0.1:0"}
	r.open()
	t.Cleanup(r.close)
	return r
}

// open listens where it listened before.
func (r *receiver) open() {
	r.t.Helper()
	l, err := net.Listen("tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.address = l.Addr().String()
	r.l = l
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.conns = append(r.conns, c)
			r.mu.Unlock()
			go r.read(c)
		}
	}()
}

// read takes messages with their length before them (RFC 6587).
func (r *receiver) read(c net.Conn) {
	in := bufio.NewReader(c)
	for {
		size, err := in.ReadString(' ')
		if err != nil {
			return
		}
		n, err := strconv.Atoi(strings.TrimSpace(size))
		if err != nil {
			r.t.Errorf("a message begins with %q", size)
			return
		}
		text := make([]byte, n)
		if _, err := io.ReadFull(in, text); err != nil {
			return
		}
		r.mu.Lock()
		r.text.Write(text)
		r.text.WriteByte('\n')
		r.mu.Unlock()
	}
}

func (r *receiver) close() {
	_ = r.l.Close() // it may be closed
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close() // the other side may have gone
	}
	r.conns = nil
}

// has tells whether the submission of a job has arrived.
func (r *receiver) has(job string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(r.text.String()) {
		if strings.Contains(line, `"job-submitted"`) && strings.Contains(line, "job "+job+" ") {
			return true
		}
	}
	return false
}

func (r *receiver) await(job string) {
	r.t.Helper()
	for range 1200 {
		if r.has(job) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.t.Fatalf("the submission of job %s is missing in the trail:\n%s", job, r.text.String())
}

// TestTrailAcrossElection: what a leader had not delivered to the audit trail when it
// was killed the next leader delivers.
func TestTrailAcrossElection(t *testing.T) {
	c := newTrio(t, "--controllers", "ctl1=127.0.0.1,ctl2=127.0.0.2", "--witness", "wit=127.0.0.3")
	to := newReceiver(t)
	for _, name := range trioNames[:2] {
		path := filepath.Join(c.home(name), "muster.yaml")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		const section = "\naudit:\n" // the first controller's file has it
		target := "  syslog: tcp://" + to.address + "\n"
		text := strings.Replace(string(data), section, section+target, 1)
		if !strings.Contains(text, target) {
			text += section + target
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.patience(name)
		c.begin(name)
	}
	c.patience(witnessName)
	c.beginWitness()
	leads, standby := c.pair("ctl1")
	first, _ := c.must(leads, "sbatch", "--parsable", "--hold", "--wrap", "true")
	to.await(first)
	c.until("", leads, "squeue", "-h", "-t", "R")
	for range 400 {
		if _, err := os.Stat(filepath.Join(c.home(standby), "state", "audit", "syslog.json")); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	to.close()
	lost, _ := c.must(leads, "sbatch", "--parsable", "--hold", "--wrap", "true")
	c.kill9(leads)
	to.open()
	c.untilLeads(standby)
	to.await(lost)
}
