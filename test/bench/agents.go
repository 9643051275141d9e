package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
)

// agentsBench measures how soon the agents of many nodes follow a take-over.
type agentsBench struct {
	agents, times int
	timeout       time.Duration
	steady        time.Duration
	port          int
	dir, musterd  string
	profile       string
}

func (*agentsBench) help() string {
	return `muster-bench agents starts three controllers and the agents of many nodes, kills the
leading controller with SIGKILL, several times, and measures when the agents are
connected to the next one, and for how long the heartbeats of a node were not
answered. The agents are those that are shipped, each with a certificate and a
connection of its own; their nodes have no machines and run nothing. Everything
runs on this machine, so the agents' own work is part of what is measured.

The cluster is made in a folder for temporary files. Every agent has two
descriptors in this process for a moment, and one in each controller.

Usage:
  muster-bench agents [options]

Examples:
  muster bench agents --agents 10000
  muster bench agents --agents 1000 --times 5 --json
`
}

func (b *agentsBench) flags(flags *pflag.FlagSet) {
	flags.IntVar(&b.agents, "agents", 10000, "nodes")
	flags.IntVar(&b.times, "times", 3, "leaders to kill")
	flags.DurationVar(&b.timeout, "slurmd-timeout", time.Minute,
		"SlurmdTimeout; heartbeats come three times as often")
	flags.DurationVar(&b.steady, "steady", 10*time.Second, "`time` between two kills")
	flags.IntVar(&b.port, "port", 21817, "first `port` of the controllers, at 127.0.0.1 to 127.0.0.3")
	flags.StringVar(&b.dir, "dir", "",
		"the `folder` to make the cluster's in (default: the system's for temporary files)")
	flags.StringVar(&b.musterd, "musterd", "",
		"the server's `program`, with muster beside it (default: musterd beside this one)")
	flags.StringVar(&b.profile, "cpuprofile", "", "write a CPU profile of the agents to this `file`")
}

func (b *agentsBench) check() (err error) {
	if b.timeout < 3*time.Second {
		return fmt.Errorf("%w: --slurmd-timeout must be at least 3s", errUsage)
	}
	b.musterd, err = serverProgram(b.musterd)
	if err != nil {
		return err
	}
	return checkPositive(map[string]int{"agents": b.agents, "times": b.times, "port": b.port})
}

// takeOver is one loss of the leader, as the agents saw it.
type takeOver struct {
	Elected   float64   `json:"elected_s"` // until a controller leads
	Back      latencies `json:"connected"` // until an agent is connected to it
	LeaderCPU float64   `json:"leader_cpu_s"`
	AgentsCPU float64   `json:"agents_cpu_s"`
}

// agentsResult is what was found.
type agentsResult struct {
	Agents    int        `json:"agents"`
	Timeout   float64    `json:"slurmd_timeout_s"`
	First     latencies  `json:"first_connected"` // of all at once, when they are started
	TakeOvers []takeOver `json:"take_overs"`
	Silence   float64    `json:"longest_unanswered_s"` // of any node
	Lost      int        `json:"nodes_taken_for_lost"`
	LeaderMiB float64    `json:"leader_mib"`
	Machine   machine    `json:"machine"`
}

func (r *agentsResult) text(w io.Writer) {
	fmt.Fprintf(w, "%d agents started at once: connected after p50 %.2f s, p99 %.2f s, the last %.2f s\n",
		r.Agents, r.First.P50/1000, r.First.P99/1000, r.First.Max/1000)
	for _, t := range r.TakeOvers {
		fmt.Fprintf(w,
			"leader killed: another leads after %.2f s, agents connected to it after p50 %.2f s, p99 %.2f s, the last %.2f s (%.1f s of CPU in it, %.1f s in the agents)\n",
			t.Elected, t.Back.P50/1000, t.Back.P99/1000, t.Back.Max/1000, t.LeaderCPU, t.AgentsCPU)
	}
	fmt.Fprintf(w,
		"longest time between two answered heartbeats of a node: %.1f s of %.0f s (SlurmdTimeout); nodes taken for lost: %d\n",
		r.Silence, r.Timeout, r.Lost)
	fmt.Fprintf(w, "memory of the leader: %.0f MiB\n", r.LeaderMiB)
	r.Machine.text(w)
}

// groupMember is one of the controllers.
type groupMember struct {
	name, home string
	cmd        *exec.Cmd
	gone       chan struct{} // closed when the process has ended
}

// agentsRun is one run of the measurement.
type agentsRun struct {
	b         *agentsBench
	p         *progress
	dir       string
	members   []*groupMember
	addresses []string
	nodes     []*benchNode
}

func (b *agentsBench) run(ctx context.Context, p *progress) (result, error) {
	dir, err := os.MkdirTemp(b.dir, "muster-bench-agents-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	w := &agentsRun{b: b, p: p, dir: dir}
	defer func() {
		cancel()
		wg.Wait()
		w.killAll()
	}()
	if err := w.makeCluster(ctx); err != nil {
		return nil, err
	}
	res := &agentsResult{Agents: b.agents, Timeout: b.timeout.Seconds(), Machine: machineNow()}
	leader, err := w.awaitLeader(ctx, nil)
	if err != nil {
		return nil, err
	}
	if b.profile != "" {
		file, err := os.Create(b.profile)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return nil, err
		}
		defer pprof.StopCPUProfile()
	}
	p.say("%s leads; %d agents begin", leader.name, b.agents)
	began := time.Now()
	for _, node := range w.nodes {
		wg.Go(func() { node.run(ctx) })
	}
	res.First, err = w.awaitConnected(ctx, began)
	for range b.times {
		if err != nil {
			return nil, err
		}
		err = w.measureTakeOver(ctx, res)
	}
	if err != nil {
		return nil, err
	}
	for _, node := range w.nodes {
		res.Silence = max(res.Silence, node.longestSilence().Seconds())
	}
	res.Lost, err = w.countLost()
	res.Machine.after()
	return res, err
}

// makeCluster writes the configuration, makes the certificates and starts the controllers.
func (w *agentsRun) makeCluster(ctx context.Context) error {
	var list []string
	for i := range 3 {
		name, host := fmt.Sprintf("ctl%d", i+1), fmt.Sprintf("127.0.0.%d", i+1)
		list = append(list, name+"="+host)
		w.addresses = append(w.addresses, net.JoinHostPort(host, strconv.Itoa(w.b.port)))
		home := w.dir
		if i > 0 {
			home = filepath.Join(w.dir, "controllers", name)
		}
		w.members = append(w.members, &groupMember{name: name, home: home})
	}
	muster := filepath.Join(filepath.Dir(w.b.musterd), "muster")
	out, err := exec.CommandContext(ctx, muster, "init", "--dir", w.dir, "--nodes",
		strconv.Itoa(w.b.agents), "--port", strconv.Itoa(w.b.port), "--controllers",
		strings.Join(list, ","), "--conf",
		fmt.Sprintf("SlurmdTimeout=%d", int(w.b.timeout.Seconds()))).CombinedOutput()
	if err != nil {
		return fmt.Errorf("muster init: %w\n%s", err, out)
	}
	for _, member := range w.members {
		if err := w.startMember(member); err != nil {
			return err
		}
	}
	w.p.say("making %d certificates", w.b.agents)
	return w.makeNodes()
}

// makeNodes gives every node a certificate and an agent.
func (w *agentsRun) makeNodes() error {
	ca, err := pki.Dir(filepath.Join(w.dir, "state", "tls")).CA()
	if err != nil {
		return err
	}
	w.nodes = make([]*benchNode, w.b.agents)
	errs := make([]error, runtime.NumCPU())
	var wg sync.WaitGroup
	for part := range errs {
		wg.Go(func() {
			for i := part; i < len(w.nodes) && errs[part] == nil; i += len(errs) {
				w.nodes[i], errs[part] = w.makeNode(ca, i+1)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (w *agentsRun) makeNode(ca *pki.CA, number int) (*benchNode, error) {
	name := nodeName(number)
	pair, err := ca.Issue(pki.Holder{Role: identity.Agent, Name: name}, time.Now())
	if err != nil {
		return nil, err
	}
	dir := pki.Dir(filepath.Join(w.dir, "nodes", name))
	if err := os.MkdirAll(string(dir), 0o700); err != nil {
		return nil, err
	}
	if err := dir.SaveEnrolled(pair); err != nil {
		return nil, err
	}
	source, err := pki.LoadSource(dir)
	if err != nil {
		return nil, err
	}
	return newBenchNode(number, w.addresses, source), nil
}

func (w *agentsRun) logOf(m *groupMember) string { return filepath.Join(w.dir, m.name+".log") }

func (w *agentsRun) startMember(m *groupMember) error {
	log, err := os.OpenFile(w.logOf(m), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	m.cmd = exec.Command(w.b.musterd, "--role", "controller", "--config", filepath.Join(m.home, "muster.yaml"))
	m.cmd.Stdout = log
	m.cmd.Stderr = log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		return err
	}
	gone := make(chan struct{})
	m.gone = gone
	go func() {
		_ = m.cmd.Wait() // it is killed
		close(gone)
	}()
	return nil
}

func (m *groupMember) kill() {
	_ = m.cmd.Process.Kill() // it may have ended
	<-m.gone
}

func (w *agentsRun) killAll() {
	for _, m := range w.members {
		if m.cmd != nil && m.gone != nil {
			m.kill()
		}
	}
}

// leads tells whether a controller leads and serves.
func (m *groupMember) leads(ctx context.Context) bool {
	socket := filepath.Join(m.home, "run", "rest.sock")
	client := http.Client{Timeout: pingPatience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/health", nil)
	if err != nil {
		return false
	}
	reply, err := client.Do(request)
	if err != nil {
		return false
	}
	defer reply.Body.Close()
	var health struct{ Role string }
	return json.NewDecoder(reply.Body).Decode(&health) == nil && health.Role == "leader"
}

// awaitLeader waits until a controller leads that is not the one that was killed.
func (w *agentsRun) awaitLeader(ctx context.Context, killed *groupMember) (*groupMember, error) {
	var leader *groupMember
	err := pollUntil(ctx, startPatience, func() (bool, error) {
		for _, m := range w.members {
			if m != killed && m.leads(ctx) {
				leader = m
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("no controller leads: %w; %s said:\n%s", err, w.members[0].name,
			tailOf(w.logOf(w.members[0])))
	}
	return leader, nil
}

// awaitConnected waits until every agent has a connection that began after an instant.
func (w *agentsRun) awaitConnected(ctx context.Context, from time.Time) (latencies, error) {
	var times []time.Duration
	told := time.Now()
	err := pollUntil(ctx, startPatience, func() (bool, error) {
		times = times[:0]
		for _, node := range w.nodes {
			if since, connected := node.connectedSince(); connected && since.After(from) {
				times = append(times, since.Sub(from))
			}
		}
		if time.Since(told) > time.Second {
			told = time.Now()
			w.p.say("%d of %d connected after %.0f s", len(times), len(w.nodes), time.Since(from).Seconds())
		}
		return len(times) == len(w.nodes), nil
	})
	return summariseTimes(times), err
}

// measureTakeOver kills the leader, waits for the agents and starts it again.
func (w *agentsRun) measureTakeOver(ctx context.Context, res *agentsResult) error {
	select {
	case <-time.After(w.b.steady):
	case <-ctx.Done():
		return ctx.Err()
	}
	old, err := w.awaitLeader(ctx, nil)
	if err != nil {
		return err
	}
	w.p.say("%s is killed", old.name)
	agentsCPU := cpuTime(os.Getpid())
	before := map[*groupMember]time.Duration{}
	for _, m := range w.members {
		before[m] = cpuTime(m.cmd.Process.Pid)
	}
	began := time.Now()
	old.kill()
	leader, err := w.awaitLeader(ctx, old)
	if err != nil {
		return err
	}
	found := takeOver{Elected: time.Since(began).Seconds()}
	found.Back, err = w.awaitConnected(ctx, began)
	if err != nil {
		return err
	}
	found.LeaderCPU = (cpuTime(leader.cmd.Process.Pid) - before[leader]).Seconds()
	found.AgentsCPU = (cpuTime(os.Getpid()) - agentsCPU).Seconds()
	res.TakeOvers = append(res.TakeOvers, found)
	if size, err := residentBytes(leader.cmd.Process.Pid); err == nil {
		res.LeaderMiB = max(res.LeaderMiB, toMiB(size))
	}
	return w.startMember(old)
}

// countLost counts how often a controller took a node for lost, by their logs.
func (w *agentsRun) countLost() (n int, err error) {
	for _, m := range w.members {
		file, err := os.Open(w.logOf(m))
		if err != nil {
			return 0, err
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "a node does not respond") {
				n++
			}
		}
		err = errors.Join(lines.Err(), file.Close())
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}
