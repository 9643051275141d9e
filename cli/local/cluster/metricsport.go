package cluster

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/internal/conffile"
)

// metricsOf returns the metrics address of a node's agent: the one that it runs
// with, or for an agent that is to be started the address that suits the place
// of its node among those of this machine.
func (l *local) metricsOf(node string, place int) conffile.Addr {
	if running := l.metricsInUse(node); running != "" {
		return running
	}
	// The files name the agents of nodes that have left slurm.conf too.
	files, err := filepath.Glob(l.pidFile("agent-*"))
	if err != nil {
		return l.cfg.Listen.AgentMetrics
	}
	var taken []conffile.Addr
	for _, file := range files {
		other := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "agent-"), ".pid")
		if address := l.metricsInUse(other); address != "" {
			taken = append(taken, address)
		}
	}
	return freeMetrics(l.cfg.Listen.AgentMetrics, place, taken)
}

// metricsInUse returns the address that a running agent was given, or "".
func (l *local) metricsInUse(node string) conffile.Addr {
	name := "agent-" + node
	pid := l.runningPID(name, programOf(name))
	if pid == 0 {
		return ""
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	args := strings.Split(string(data), "\x00")
	at := slices.Index(args, "--metrics")
	if at < 0 || at+1 == len(args) {
		return ""
	}
	return conffile.Addr(args[at+1])
}

// portsTried bounds the search for a port. Beyond it the agent is given its
// preferred one and reports itself why it cannot listen there.
const portsTried = 1000

// freeMetrics returns the first address from that of a place that no agent
// holds and on which nothing else listens. Where nodes were added to slurm.conf before
// others, the preferred port of a new node is in use by an agent that was
// started when its node had that place.
func freeMetrics(first conffile.Addr, place int, taken []conffile.Addr) conffile.Addr {
	host, text, err := net.SplitHostPort(string(first))
	if err != nil {
		return first
	}
	port, err := strconv.Atoi(text)
	if err != nil || port == 0 {
		return first
	}
	preferred := port + place
	for candidate := preferred; candidate < min(preferred+portsTried, 1<<16); candidate++ {
		address := net.JoinHostPort(host, strconv.Itoa(candidate))
		if slices.Contains(taken, conffile.Addr(address)) {
			continue
		}
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		_ = listener.Close()
		return conffile.Addr(address)
	}
	return conffile.Addr(net.JoinHostPort(host, strconv.Itoa(preferred)))
}
