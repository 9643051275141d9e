package main

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/telemetry/host"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// settings are everything the agent is told, read and joined.
type settings struct {
	options
	cfg       *conffile.Config
	cluster   *slurmconf.Cluster
	node      *spec.NodeSpec
	dynamic   string // the NodeName record of -Z, or empty
	host      host.Inventory
	warnings  []string
	slurmConf string
}

// defaultPort is the controller's where slurm.conf names none.
const defaultPort = 6817

// loadConfig reads muster.yaml; without one the defaults hold.
func loadConfig(o options) (*conffile.Config, error) {
	cfg, err := conffile.Load(o.config)
	if errors.Is(err, fs.ErrNotExist) && !o.configGiven {
		cfg, err = conffile.Defaults(), nil
		cfg.Fill()
	}
	return cfg, err
}

// readSettings reads muster.yaml and slurm.conf and finds this node in them.
func readSettings(o options) (*settings, error) {
	s := &settings{options: o}
	var err error
	s.cfg, err = loadConfig(o)
	if err != nil {
		return nil, err
	}
	var problems slurmconf.Problems
	if o.sent != nil {
		s.slurmConf = filepath.Join(o.sent.root, o.sent.name)
		s.cluster, problems = conffile.ReadSlurmBelow(o.sent.root, o.sent.name)
	} else {
		s.slurmConf, err = filepath.Abs(orElse(o.conf, s.cfg.SlurmConf))
		if err != nil {
			return nil, err
		}
		s.cluster, problems = conffile.ReadSlurm(s.slurmConf)
	}
	if err := problems.Err(); err != nil {
		return nil, fmt.Errorf("the cluster's configuration cannot be used:\n%w", err)
	}
	for _, p := range problems.AtLeast(slurmconf.Warning) {
		s.warnings = append(s.warnings, p.String())
	}
	s.host, err = host.Read(host.This("/tmp"))
	if err != nil {
		return nil, err
	}
	if o.dynamic {
		err = s.describeNode()
	} else {
		s.node, err = findNode(s.cluster.Config.Nodes, o.node, s.host.Hostname)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.slurmConf, err)
	}
	s.stateDir, err = filepath.Abs(
		orElse(o.stateDir, filepath.Join(s.cfg.StateDir, "agent", s.node.Name)),
	)
	if err != nil {
		return nil, err
	}
	if s.shepherd == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		s.shepherd = filepath.Join(filepath.Dir(self), "muster-shepherd")
	}
	return s, nil
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// findNode finds the node by its name, or by the name of this host.
func findNode(nodes []spec.NodeSpec, name, hostname string) (*spec.NodeSpec, error) {
	full, err := os.Hostname()
	if err != nil {
		full = hostname
	}
	for i := range nodes {
		node := &nodes[i]
		if name != "" {
			if node.Name == name {
				return node, nil
			}
			continue
		}
		if slices.Contains([]string{hostname, full}, orElse(node.Hostname, node.Name)) {
			return node, nil
		}
	}
	if name != "" {
		return nil, fmt.Errorf("there is no node %s; there is %s", name, someNodes(nodes))
	}
	return nil, fmt.Errorf(
		"no node has this host's name %s as its NodeName or NodeHostname (there is %s): name one with --node",
		hostname,
		someNodes(nodes),
	)
}

// describeNode makes the node's own description, for -Z: what the machine has, with
// what --describe says instead or besides.
func (s *settings) describeNode() error {
	name := orElse(s.options.node, s.host.Hostname)
	if slices.ContainsFunc(
		s.cluster.Config.Nodes,
		func(n spec.NodeSpec) bool { return n.Name == name },
	) {
		return fmt.Errorf("node %s is in the file: start its agent without -Z", name)
	}
	said := map[string]bool{}
	for _, word := range strings.Fields(s.about) {
		key, _, _ := strings.Cut(word, "=")
		said[strings.ToLower(key)] = true
	}
	line := "NodeName=" + name
	found := []struct {
		key string
		n   int64
	}{{"CPUs", int64(s.host.CPUs)}, {"Sockets", int64(s.host.Sockets)}, {"CoresPerSocket", int64(s.host.CoresPerSocket)},
		{"ThreadsPerCore", int64(s.host.ThreadsPerCore)}, {"RealMemory", s.host.RealMemoryMiB}}
	shape := said["cpus"] || said["sockets"] || said["corespersocket"] || said["threadspercore"] ||
		said["boards"] ||
		said["socketsperboard"] ||
		said["procs"]
	for _, f := range found {
		if f.n > 0 && !said[strings.ToLower(f.key)] && (f.key == "RealMemory" || !shape) {
			line += fmt.Sprintf(" %s=%d", f.key, f.n)
		}
	}
	s.dynamic = strings.TrimSpace(line + " " + s.about)
	nodes, err := slurmconf.ReadNode(s.dynamic, &s.cluster.Config)
	if err != nil {
		return fmt.Errorf("--describe: %w", err)
	}
	if len(nodes) != 1 {
		return fmt.Errorf("-Z is for one node, and %s are %d", name, len(nodes))
	}
	if problems := s.cluster.Gres.Merge(nodes); problems.Err() != nil {
		return problems.Err()
	}
	s.node = &nodes[0]
	return nil
}

// someNodes names the nodes, or the first of very many.
func someNodes(nodes []spec.NodeSpec) string {
	names := make([]string, 0, 64)
	for i := range nodes {
		names = append(names, nodes[i].Name)
		if len(names) == cap(names) {
			break
		}
	}
	text := hostlist.Fold(names)
	if len(names) < len(nodes) {
		text += ", …"
	}
	return orElse(text, "none")
}

// planNode is the node as runs are prepared for it.
func (s *settings) planNode() plan.Node {
	file, limits := s.cluster.File, &s.cluster.Config.Limits
	node := plan.Node{
		Name: s.node.Name, Host: s.host.Hostname, Cluster: s.cluster.Config.ClusterName, SlurmConf: s.slurmConf, MemoryMiB: s.host.RealMemoryMiB,
		MPSEach: mpsEach(s.node.GRES),
		Append:  limits.JobFileAppend, Affinity: file.Agent.TaskAffinity, Parts: map[string]plan.MemoryDefault{},
		Memory: plan.MemoryDefault{
			PerCPU:  limits.DefMemPerCPU,
			PerNode: limits.DefMemPerNode,
			PerGPU:  limits.DefMemPerGPU,
		},
	}
	for i := range s.cluster.Config.Partitions {
		p := &s.cluster.Config.Partitions[i]
		node.Parts[p.Name] = plan.MemoryDefault{
			PerCPU:  p.DefMemPerCPU,
			PerNode: p.DefMemPerNode,
			PerGPU:  p.DefMemPerGPU,
		}
	}
	node.TaskProlog, node.TaskEpilog = file.Agent.TaskProlog, file.Agent.TaskEpilog
	node.Space = s.space()
	cpus := s.host.Allowed
	if cpus == nil {
		cpus = s.host.Online
	}
	for _, c := range cpus {
		node.CPUs = node.CPUs.Set(c)
	}
	if c := s.cluster.Cgroup; file.Agent.TaskCgroup && c.Plugin != "disabled" {
		node.Confine = plan.Confine{
			Cores:   c.ConstrainCores,
			Devices: c.ConstrainDevices,
			RAM:     c.ConstrainRAM,
			Swap:    c.ConstrainSwap,
			AllowedRAM: int64(
				c.AllowedRAM,
			),
			AllowedSwap: int64(c.AllowedSwap),
			MaxRAM:      int64(c.MaxRAM),
			MinRAM:      c.MinRAM,
			Tasks:       c.MaxTasks,
		}
	}
	return node
}

// orphanAfter is how long a run that the controller does not know is left
// alone: an administrator who has restored an old ledger wants to see it.
const orphanAfter = 2 * spec.Minute

func (s *settings) agentConfig(started spec.Instant) daemon.Config {
	scripts := newNodeScripts(&s.cluster.File.Agent, s.node.Name)
	config := daemon.Config{
		Node: s.planNode(), Version: version, Place: s.host.Hostname + ":" + s.stateDir, Started: started, Declared: s.node.GRES, Dynamic: s.dynamic, Interval: s.cfg.Telemetry.Interval,
		SampleEvery: sampleEvery(&s.cfg.Telemetry), UsageEvery: s.usageEvery(), IdleAfter: s.cfg.GPU.IdleAfter, IdleGrace: s.cfg.GPU.IdleGrace,
		Orphans:         plan.Policy{KillOrphans: true, OrphanAfter: orphanAfter, OrphanGrace: s.cluster.Config.Timing.KillWait},
		UnkillableAfter: s.cluster.Config.Timing.UnkillableAfter,
		MessageTimeout:  s.cluster.Config.Timing.MessageTimeout,
		GPUFreq:         s.cluster.File.Agent.GPUFreq,
		OverMemoryKill:  s.cluster.File.Agent.OverMemoryKill, Location: time.Local, Account: lookUpAccount,
		Unable: s.unable(),
		Prolog: len(s.cluster.File.Agent.Prolog) > 0, Epilog: len(s.cluster.File.Agent.Epilog) > 0 || scripts.checksAfterJobs(),
	}
	config.RulesEvery = s.cfg.Health.Interval
	check := &s.cluster.File.Agent.Check
	config.CheckIdle, config.CheckBusy = check.Idle || !check.Busy, check.Busy || !check.Idle
	config.CheckEvery = check.Every
	if check.Once {
		config.CheckEvery = 0
	}
	if check.Spread && config.CheckEvery > 0 {
		h := fnv.New32a()
		_, _ = h.Write([]byte(s.node.Name))
		config.CheckFirst = spec.Span(h.Sum32()) % config.CheckEvery
	}
	return config
}

// sampleEvery is the time between two samples: not less than that between two
// collections, in whole seconds.
func sampleEvery(telemetry *conffile.Telemetry) spec.Span {
	if telemetry.SamplesInterval == spec.Infinite {
		return 0
	}
	return max(telemetry.SamplesInterval, wholeSeconds(telemetry.Interval))
}

// usageEvery is the time between two samples of jobs, as JobAcctGatherFrequency
// says: not less than that between two collections.
func (s *settings) usageEvery() spec.Span {
	every := s.cluster.File.Agent.SampleEvery
	if every <= 0 {
		return 0
	}
	return max(every, wholeSeconds(s.cfg.Telemetry.Interval))
}

func wholeSeconds(
	d spec.Span,
) spec.Span {
	return (d + spec.Second - 1) / spec.Second * spec.Second
}

// nodeInventory is what the node registers of the machine. With config_overrides
// a node keeps its declared size where the machine is smaller.
func (s *settings) nodeInventory(found host.Inventory) spec.Inventory {
	inv := spec.Inventory{
		BootID: found.BootID, BootedAt: found.BootTime, Hostname: found.Hostname, OS: found.OS, Arch: found.Arch,
		CPUs: int64(
			found.CPUs,
		), Sockets: int64(found.Sockets), CoresPerSocket: int64(found.CoresPerSocket), ThreadsPerCore: int64(found.ThreadsPerCore),
		Mem: found.RealMemoryMiB, TmpDisk: found.TmpDiskMiB, Degraded: strings.Join(found.Notes, "; "),
	}
	if !s.cluster.Config.ConfigOverrides {
		return inv
	}
	var weak []string
	keep := func(what string, have *int64, declared int64) {
		if declared > *have {
			weak = append(
				weak,
				fmt.Sprintf(
					"%s is declared as %d and is %d (config_overrides)",
					what,
					declared,
					*have,
				),
			)
			*have = declared
		}
	}
	keep("CPUs", &inv.CPUs, s.node.CPUs)
	keep("RealMemory", &inv.Mem, s.node.Mem)
	keep("TmpDisk", &inv.TmpDisk, s.node.TmpDisk)
	if len(weak) > 0 {
		inv.Sockets, inv.CoresPerSocket, inv.ThreadsPerCore = s.node.Sockets, s.node.CoresPerSocket, s.node.ThreadsPerCore
		inv.Degraded = strings.Trim(inv.Degraded+"; "+strings.Join(weak, "; "), "; ")
	}
	return inv
}

// mpsEach tells that several GPUs of a node may be shared by MPS at a time.
func mpsEach(gres []spec.GRESSpec) bool {
	return slices.ContainsFunc(
		gres,
		func(g spec.GRESSpec) bool { return g.Name == "mps" && g.HasFlag("all_sharing") },
	)
}

// declaredGPUs are the GPUs of the node's line, for the provider that
// simulates them where there are no real ones.
func declaredGPUs(node *spec.NodeSpec) ([]simulated.Declared, error) {
	var out []simulated.Declared
	var instances []string
	for i := range node.GRES {
		gres := &node.GRES[i]
		if gres.Name != "gpu" {
			continue
		}
		if simulated.IsProfile(gres.Type) {
			for range gres.N {
				instances = append(instances, gres.Type)
			}
			continue
		}
		declared := simulated.Declared{Type: gres.Type, Count: int(gres.N)}
		if gres.Files != "" {
			files, err := daemon.DeviceFiles(gres.Files)
			if err != nil {
				return nil, fmt.Errorf("File=%s: %w", gres.Files, err)
			}
			if len(files) == declared.Count {
				declared.Files = files
			}
		}
		if gres.Cores != "" {
			cores, err := format.ParseArray(gres.Cores)
			if err != nil {
				return nil, fmt.Errorf("Cores=%s: %w", gres.Cores, err)
			}
			threads := int(max(node.ThreadsPerCore, 1))
			for c := range cores.All() {
				for t := range threads {
					declared.Cores = append(declared.Cores, int(c)*threads+t)
				}
			}
		}
		if gres.Links != "" && declared.Count == 1 {
			for _, l := range strings.Split(gres.Links, ",") {
				v, err := strconv.Atoi(strings.TrimSpace(l))
				if err != nil {
					return nil, fmt.Errorf("Links=%s: %w", gres.Links, err)
				}
				declared.Links = append(declared.Links, v)
			}
		}
		out = append(out, declared)
	}
	return append(out, simulated.Partitioned(instances)...), nil
}

// controllerAddresses are the addresses to try, in order: a path is a unix socket.
func (s *settings) controllerAddresses() ([]string, error) {
	port := s.cluster.Control.Port
	if s.sent != nil {
		return s.sent.controllers, nil
	}
	if s.controller != "" {
		return namedControllers(s.controller, port), nil
	}
	// A node on the controller's host needs no certificate, but with one it is
	// reached from other machines, and reaches them.
	_, err := os.Stat(filepath.Join(s.nodeParty().tls, pki.HostFile))
	enrolled := err == nil || s.tokenFile != ""
	var out []string
	for _, h := range s.cluster.Control.Hosts {
		if _, err := os.Stat(s.cfg.Socket); err == nil && !enrolled && h.Name == s.host.Hostname {
			out = append(out, s.cfg.Socket)
			continue
		}
		out = append(out, withPort(orElse(h.Addr, h.Name), port))
	}
	if len(out) == 0 {
		return nil, fmt.Errorf(
			"%s names no SlurmctldHost: name the controller with --controller",
			s.slurmConf,
		)
	}
	return out, nil
}

// namedControllers are those of --controller: a path is a unix socket.
func namedControllers(list string, port uint32) []string {
	var out []string
	for _, one := range strings.Split(list, ",") {
		if !strings.Contains(one, "/") {
			one = withPort(one, port)
		}
		out = append(out, one)
	}
	return out
}

// withPort is an address with its port: that of slurm.conf, where it has none.
func withPort(addr string, port uint32) string {
	if _, _, err := net.SplitHostPort(addr); err == nil {
		return addr
	}
	if port == 0 {
		port = defaultPort
	}
	return net.JoinHostPort(strings.Trim(addr, "[]"), strconv.FormatUint(uint64(port), 10))
}

// printNode prints this machine as slurmd -C does.
func printNode(out interface{ Write([]byte) (int, error) }) error {
	inv, err := host.Read(host.This("/tmp"))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, inv.String())
	return err
}
