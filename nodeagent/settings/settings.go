// Package settings is what the agent of a node or of a login host is told: its command line,
// muster.yaml, slurm.conf with its companions, this host's own or the controller's, and the
// machine, read and joined. It derives from them what the agent's daemon needs.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
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

// Settings are everything the agent is told, read and joined.
type Settings struct {
	Options
	Config    *conffile.Config
	Cluster   *slurmconf.Cluster
	Node      *spec.NodeSpec
	dynamic   string // the NodeName record of -Z, or empty
	Host      host.Inventory
	Warnings  []string
	slurmConf string
}

// defaultPort is the controller's where slurm.conf names none.
const defaultPort = 6817

// loadConfig reads muster.yaml; without one the defaults hold.
func loadConfig(options Options) (*conffile.Config, error) {
	config, err := conffile.Load(options.ConfigFile)
	if errors.Is(err, fs.ErrNotExist) && !options.ConfigGiven {
		config, err = conffile.Defaults(), nil
		config.Fill()
	}
	return config, err
}

// Read reads muster.yaml and slurm.conf and finds this node in them.
func Read(options Options) (*Settings, error) {
	settings := &Settings{Options: options}
	var err error
	settings.Config, err = loadConfig(options)
	if err != nil {
		return nil, err
	}
	var problems slurmconf.Problems
	if options.Sent != nil {
		settings.slurmConf = filepath.Join(options.Sent.root, options.Sent.name)
		settings.Cluster, problems = conffile.ReadSlurmBelow(options.Sent.root, options.Sent.name)
	} else {
		settings.slurmConf, err = filepath.Abs(cmp.Or(options.Conf, settings.Config.SlurmConf))
		if err != nil {
			return nil, err
		}
		settings.Cluster, problems = conffile.ReadSlurm(settings.slurmConf)
	}
	if err := problems.Err(); err != nil {
		return nil, fmt.Errorf("the cluster's configuration cannot be used:\n%w", err)
	}
	for _, problem := range problems.AtLeast(slurmconf.Warning) {
		settings.Warnings = append(settings.Warnings, problem.String())
	}
	settings.Host, err = host.Read(host.This("/tmp"))
	if err != nil {
		return nil, err
	}
	if options.Dynamic {
		err = settings.describeNode()
	} else {
		settings.Node, err = findNode(
			settings.Cluster.Config.Nodes, options.Node, settings.Host.Hostname,
		)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", settings.slurmConf, err)
	}
	settings.StateDir, err = filepath.Abs(
		cmp.Or(
			options.StateDir, filepath.Join(settings.Config.StateDir, "agent", settings.Node.Name),
		),
	)
	if err != nil {
		return nil, err
	}
	if settings.Shepherd == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		settings.Shepherd = filepath.Join(filepath.Dir(self), "muster-shepherd")
	}
	return settings, nil
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
		if slices.Contains([]string{hostname, full}, cmp.Or(node.Hostname, node.Name)) {
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
func (s *Settings) describeNode() error {
	name := cmp.Or(s.Options.Node, s.Host.Hostname)
	if slices.ContainsFunc(
		s.Cluster.Config.Nodes,
		func(n spec.NodeSpec) bool { return n.Name == name },
	) {
		return fmt.Errorf("node %s is in the file: start its agent without -Z", name)
	}
	said := map[string]bool{}
	for _, word := range strings.Fields(s.About) {
		key, _, _ := strings.Cut(word, "=")
		said[strings.ToLower(key)] = true
	}
	line := "NodeName=" + name
	found := []struct {
		key string
		n   int64
	}{{"CPUs", int64(s.Host.CPUs)}, {"Sockets", int64(s.Host.Sockets)}, {"CoresPerSocket", int64(s.Host.CoresPerSocket)},
		{"ThreadsPerCore", int64(s.Host.ThreadsPerCore)}, {"RealMemory", s.Host.RealMemoryMiB}}
	shape := false
	for _, key := range [...]string{
		"cpus", "procs", "boards", "sockets", "socketsperboard", "corespersocket", "threadspercore",
	} {
		shape = shape || said[key]
	}
	for _, f := range found {
		if f.n > 0 && !said[strings.ToLower(f.key)] && (f.key == "RealMemory" || !shape) {
			line += fmt.Sprintf(" %s=%d", f.key, f.n)
		}
	}
	s.dynamic = strings.TrimSpace(line + " " + s.About)
	nodes, err := slurmconf.ReadNode(s.dynamic, &s.Cluster.Config)
	if err != nil {
		return fmt.Errorf("--describe: %w", err)
	}
	if len(nodes) != 1 {
		return fmt.Errorf("-Z is for one node, and %s are %d", name, len(nodes))
	}
	if problems := s.Cluster.Gres.Merge(nodes); problems.Err() != nil {
		return problems.Err()
	}
	s.Node = &nodes[0]
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
	return cmp.Or(text, "none")
}

// planNode is the node as runs are prepared for it.
func (s *Settings) planNode() plan.Node {
	file, limits := s.Cluster.File, &s.Cluster.Config.Limits
	node := plan.Node{
		Name: s.Node.Name, Host: s.Host.Hostname, Cluster: s.Cluster.Config.ClusterName, SlurmConf: s.slurmConf, MemoryMiB: s.Host.RealMemoryMiB,
		MPSEach: mpsEach(s.Node.GRES),
		Append:  limits.JobFileAppend, Affinity: file.Agent.TaskAffinity, Parts: map[string]plan.MemoryDefault{},
		Memory: plan.MemoryDefault{
			PerCPU:  limits.DefMemPerCPU,
			PerNode: limits.DefMemPerNode,
			PerGPU:  limits.DefMemPerGPU,
		},
	}
	for i := range s.Cluster.Config.Partitions {
		partition := &s.Cluster.Config.Partitions[i]
		node.Parts[partition.Name] = plan.MemoryDefault{
			PerCPU:  partition.DefMemPerCPU,
			PerNode: partition.DefMemPerNode,
			PerGPU:  partition.DefMemPerGPU,
		}
	}
	node.TaskProlog, node.TaskEpilog = file.Agent.TaskProlog, file.Agent.TaskEpilog
	node.LimitsKept = file.Agent.LimitsKept
	node.Nice = plan.NicePolicy(file.Agent.PrioProcess)
	node.LoginTimeout = file.Agent.LoginTimeout
	node.LoginCache = filepath.Join(s.StateDir, "env_cache")
	node.Space = s.privateSpace()
	node.PMIx = s.findPMIx()
	cpus := s.Host.Allowed
	if cpus == nil {
		cpus = s.Host.Online
	}
	for _, c := range cpus {
		node.CPUs = node.CPUs.Set(c)
	}
	if cgroup := s.Cluster.Cgroup; file.Agent.TaskCgroup && cgroup.Plugin != "disabled" {
		node.Confine = plan.Confine{
			Cores:   cgroup.ConstrainCores,
			Devices: cgroup.ConstrainDevices,
			RAM:     cgroup.ConstrainRAM,
			Swap:    cgroup.ConstrainSwap,
			AllowedRAM: int64(
				cgroup.AllowedRAM,
			),
			AllowedSwap: int64(cgroup.AllowedSwap),
			MaxRAM:      int64(cgroup.MaxRAM),
			MinRAM:      cgroup.MinRAM,
			Tasks:       cgroup.MaxTasks,
		}
	}
	return node
}

// orphanAfter is how long a run that the controller does not know is left
// alone: an administrator who has restored an old ledger wants to see it.
const orphanAfter = 2 * spec.Minute

// AgentConfig is what the agent's daemon is told. Account is the caller's.
func (s *Settings) AgentConfig(started spec.Instant, version string) daemon.Config {
	return daemon.Config{
		Node: s.planNode(), Version: version, Place: s.Host.Hostname + ":" + s.StateDir, Started: started, Declared: s.Node.GRES, Dynamic: s.dynamic, Interval: s.Config.Telemetry.Interval,
		SampleEvery: sampleEvery(&s.Config.Telemetry), UsageEvery: s.usageEvery(), IdleAfter: s.Config.GPU.IdleAfter, IdleGrace: s.Config.GPU.IdleGrace,
		Orphans:         plan.Policy{KillOrphans: true, OrphanAfter: orphanAfter, OrphanGrace: s.Cluster.Config.Timing.KillWait},
		UnkillableAfter: s.Cluster.Config.Timing.UnkillableAfter,
		MessageTimeout:  s.Cluster.Config.Timing.MessageTimeout,
		GPUFreq:         s.Cluster.File.Agent.GPUFreq,
		OverMemoryKill:  s.Cluster.File.Agent.OverMemoryKill, Location: time.Local,
		Unable:     s.checkSpace(),
		Programs:   s.programs(),
		RulesEvery: s.Config.Health.Interval,
	}
}

// programs are which of the site's programs run, and when.
func (s *Settings) programs() daemon.Programs {
	conf := &s.Cluster.File.Agent
	check := &conf.Check
	programs := daemon.Programs{
		Prolog:      len(conf.Prolog) > 0,
		Epilog:      len(conf.Epilog) > 0 || conf.ChecksAfterJobs(),
		Contain:     conf.Contain,
		PrologInJob: conf.PrologInJob,
		TaskProlog:  conf.TaskProlog,
		TaskEpilog:  conf.TaskEpilog,
		CheckIdle:   check.Idle || !check.Busy,
		CheckBusy:   check.Busy || !check.Idle,
		CheckEvery:  check.Every,
	}
	if check.Once {
		programs.CheckEvery = 0
	}
	if check.Spread && programs.CheckEvery > 0 {
		h := fnv.New32a()
		_, _ = h.Write([]byte(s.Node.Name))
		programs.CheckFirst = spec.Span(h.Sum32()) % programs.CheckEvery
	}
	return programs
}

// NeedsRestart tells whether anything but the site's programs differs from other
// settings: the agent reads that when it starts.
func (s *Settings) NeedsRestart(other *Settings) bool {
	startOnly := func(settings *Settings) daemon.Config {
		config := settings.AgentConfig(0, "")
		config.Programs = daemon.Programs{}
		config.Node.TaskProlog, config.Node.TaskEpilog = "", ""
		config.Location = nil
		return config
	}
	sameMeter := s.Config.Energy == other.Config.Energy &&
		reflect.DeepEqual(s.Cluster.File.Agent.Gather, other.Cluster.File.Agent.Gather) &&
		s.Cluster.Gather.IPMIEvery == other.Cluster.Gather.IPMIEvery &&
		s.Cluster.Gather.OFEDPort == other.Cluster.Gather.OFEDPort &&
		slices.Equal(s.Cluster.Gather.Interfaces, other.Cluster.Gather.Interfaces)
	return !sameMeter || !reflect.DeepEqual(startOnly(s), startOnly(other))
}

// Bounds of the time between two readings that still tells what was in between: a
// counter of a processor may wrap around in some minutes.
const (
	leastEnergyGap = spec.Minute
	mostEnergyGap  = 10 * spec.Minute
)

// MeterTimes gives the time between two readings of the node's meter, and the
// longest between two that is believed. A slow meter is a management controller's.
// 0 reads it never.
func (s *Settings) MeterTimes(slow bool) (every, gap spec.Span) {
	gather := &s.Cluster.File.Agent.Gather
	every = cmp.Or(gather.EnergyEvery, gather.NodeEvery)
	if every == spec.Infinite {
		return 0, 0
	}
	least := s.Config.Telemetry.Interval
	if slow {
		least = s.Config.Energy.Interval
		if slices.Contains(gather.Energy, "ipmi") && s.Config.Energy.Source == "auto" {
			least = s.Cluster.Gather.IPMIEvery
		}
	}
	every = max(every, least)
	return every, min(max(3*every, leastEnergyGap), mostEnergyGap)
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
func (s *Settings) usageEvery() spec.Span {
	every := s.Cluster.File.Agent.SampleEvery
	if every <= 0 {
		return 0
	}
	return max(every, wholeSeconds(s.Config.Telemetry.Interval))
}

func wholeSeconds(
	d spec.Span,
) spec.Span {
	return (d + spec.Second - 1) / spec.Second * spec.Second
}

// CountEvery is the time between two readings of the node's counters: the shorter of
// the two that JobAcctGatherFrequency gives, not more often than anything is read.
func (s *Settings) CountEvery() spec.Span {
	gather := &s.Cluster.File.Agent.Gather
	every := spec.Infinite
	for _, one := range []spec.Span{gather.NetworkEvery, gather.FilesystemEvery} {
		if one > 0 {
			every = min(every, one)
		}
	}
	if every == spec.Infinite {
		every = 0
	}
	return max(every, s.Config.Telemetry.Interval)
}

// NodeInventory is what the node registers of the machine. With config_overrides
// a node keeps its declared size where the machine is smaller.
func (s *Settings) NodeInventory(found host.Inventory) spec.Inventory {
	inventory := spec.Inventory{
		BootID: found.BootID, BootedAt: found.BootTime, Hostname: found.Hostname, OS: found.OS, Arch: found.Arch,
		CPUs: int64(
			found.CPUs,
		), Sockets: int64(found.Sockets), CoresPerSocket: int64(found.CoresPerSocket), ThreadsPerCore: int64(found.ThreadsPerCore),
		Mem: found.RealMemoryMiB, TmpDisk: found.TmpDiskMiB, Degraded: strings.Join(found.Notes, "; "),
	}
	if !s.Cluster.Config.ConfigOverrides {
		return inventory
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
	keep("CPUs", &inventory.CPUs, s.Node.CPUs)
	keep("RealMemory", &inventory.Mem, s.Node.Mem)
	keep("TmpDisk", &inventory.TmpDisk, s.Node.TmpDisk)
	if len(weak) > 0 {
		inventory.Sockets = s.Node.Sockets
		inventory.CoresPerSocket = s.Node.CoresPerSocket
		inventory.ThreadsPerCore = s.Node.ThreadsPerCore
		inventory.Degraded = strings.Trim(inventory.Degraded+"; "+strings.Join(weak, "; "), "; ")
	}
	return inventory
}

// mpsEach tells that several GPUs of a node may be shared by MPS at a time.
func mpsEach(gres []spec.GRESSpec) bool {
	return slices.ContainsFunc(
		gres,
		func(g spec.GRESSpec) bool { return g.Name == "mps" && g.HasFlag("all_sharing") },
	)
}

// DeclaredGPUs are the GPUs of the node's line, for the provider that
// simulates them where there are no real ones.
func DeclaredGPUs(node *spec.NodeSpec) ([]simulated.Declared, error) {
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

// ControllerAddresses are the addresses to try, in order: a path is a unix socket.
func (s *Settings) ControllerAddresses() ([]string, error) {
	port := s.Cluster.Control.Port
	if s.Sent != nil {
		return s.Sent.Controllers, nil
	}
	if s.Controller != "" {
		return namedControllers(s.Controller, port), nil
	}
	// A node on the controller's host needs no certificate, but with one it is
	// reached from other machines, and reaches them.
	_, err := os.Stat(filepath.Join(s.NodeParty().TLS, pki.HostFile))
	enrolled := err == nil || s.TokenFile != ""
	var out []string
	for _, h := range s.Cluster.Control.Hosts {
		if _, err := os.Stat(s.Config.Socket); err == nil && !enrolled && h.Name == s.Host.Hostname {
			out = append(out, s.Config.Socket)
			continue
		}
		out = append(out, withPort(cmp.Or(h.Addr, h.Name), port))
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

// StateFolders are the state folders of this machine's agents: that of the command
// line, or all below state_dir of muster.yaml.
func (o Options) StateFolders() ([]string, error) {
	if o.StateDir != "" {
		return []string{o.StateDir}, nil
	}
	config, err := loadConfig(o)
	if err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(config.StateDir, "agent", "*"))
}

// ShepherdDir is where the shepherds of this node live.
func (s *Settings) ShepherdDir() string { return ShepherdDir(s.StateDir) }

// ShepherdDir is where the shepherds of a node live, in the state folder of its agent.
func ShepherdDir(stateDir string) string { return filepath.Join(stateDir, "shepherd") }
