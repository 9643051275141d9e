package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/nodeagent/telemetry/host"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

const initUsage = `muster init makes what a new cluster needs: muster.yaml, slurm.conf (unless
there is one), the certificate authority and this controller's certificate.
Nothing that exists is overwritten.

Usage:
  muster init [--dir DIR] [options]

Examples:
  muster init                                  # /etc/muster, /var/lib/muster, this machine as the only node
  muster init --dir lab --nodes 2 --gpus 8     # a lab in one folder: two nodes on this machine, 8 simulated GPUs each
  muster init --controllers ctl1=10.0.0.1,ctl2=10.0.0.2,ctl3=10.0.0.3   # on ctl1: and a folder for each of the others
  muster init --controllers ctl1=10.0.0.1,ctl2=10.0.0.2 --witness wit=10.0.0.3

Options:
`

// setup is what init is asked for.
type setup struct {
	dir, cluster    string
	nodes           int
	cpus, gpus, mem int64
	gpuType, share  string
	basePort        int
	hosts           []string
	controllers     []string
	extra           []string
	given           []string // names of the options that were given
	group           []member // controllers, read
	witness         string
	third           *member // witness, read; nil = none
}

// shapes are the options that only what is written new can follow.
var shapes = [...]string{
	"cluster",
	"nodes",
	"cpus",
	"mem",
	"gpus",
	"gpu-type",
	"share",
	"port",
	"conf",
	"controllers",
	"witness",
}

// unapplied says which of the options given have no effect on files that were
// kept.
func (o *setup) unapplied() string {
	var list []string
	for _, name := range o.given {
		if slices.Contains(shapes[:], name) {
			list = append(list, "--"+name)
		}
	}
	if list == nil {
		return ""
	}
	return "not applied: " + strings.Join(list, " ") +
		"; change the files that were kept, or remove them and run this again"
}

// check refuses numbers that no cluster can have.
func (o *setup) check() error {
	if err := o.readControllers(); err != nil {
		return err
	}
	highest := int64(65535 - 10 - max(o.nodes, 1)) // a cluster takes ports in a row
	for _, v := range [...]struct {
		name      string
		n         int64
		low, high int64
	}{{"nodes", int64(o.nodes), 0, 100_000}, {"cpus", o.cpus, 1, 1 << 20}, {"mem", o.mem, 1, 1 << 40}, {"gpus", o.gpus, 0, 1 << 16}, {"port", int64(o.basePort), 1, highest}} {
		if v.n < v.low || v.n > v.high {
			return fmt.Errorf("--%s=%d: want a number from %d to %d", v.name, v.n, v.low, v.high)
		}
	}
	return nil
}

// Init runs `musterd init`.
func Init(args []string, out, errOut io.Writer) int {
	var o setup
	flags := pflag.NewFlagSet("muster init", pflag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.StringVar(
		&o.dir,
		"dir",
		"",
		"put configuration, state and sockets into one `folder` (default: the system's folders)",
	)
	flags.StringVar(&o.cluster, "cluster", "muster", "ClusterName")
	flags.IntVar(
		&o.nodes,
		"nodes",
		0,
		"declare `N` nodes, all on this machine (default: this machine as it is)",
	)
	flags.Int64Var(&o.cpus, "cpus", 8, "CPUs of each declared node")
	flags.Int64Var(&o.mem, "mem", 16000, "memory of each declared node in `MiB`")
	flags.Int64Var(
		&o.gpus,
		"gpus",
		0,
		"GPUs of each declared node, simulated where there is no real one",
	)
	flags.StringVar(&o.gpuType, "gpu-type", "", "GPU `type` of each declared node")
	flags.StringVar(
		&o.share,
		"share",
		"",
		"what each GPU can be held in parts of: shard:8, mps:100 or vram:80G (`name:count`)",
	)
	flags.IntVar(
		&o.basePort,
		"port",
		defaultPort,
		"first `port`: API, then REST at +3 and, with --dir, the console at +6; metrics stay on 8080 unless this is changed",
	)
	flags.StringSliceVar(
		&o.hosts,
		"host",
		nil,
		"further `names` and addresses of this controller, for its certificate",
	)
	flags.StringSliceVar(
		&o.controllers,
		"controllers",
		nil,
		"several controllers, `name=address` with commas between them; the first is this host",
	)
	flags.StringVar(
		&o.witness,
		"witness",
		"",
		"the third vote of two controllers, as `name=address`: it keeps no state",
	)
	flags.StringArrayVar(
		&o.extra,
		"conf",
		nil,
		"`line` to add to slurm.conf, for example --conf 'MinJobAge=60' (repeatable)",
	)
	help := flags.BoolP("help", "h", false, "print this help and exit")
	flags.Usage = func() { fmt.Fprint(errOut, initUsage, flags.FlagUsages()) }
	if err := flags.Parse(args); err != nil {
		fmt.Fprintf(errOut, "muster init: %v\n", err)
		return 2
	}
	if *help {
		fmt.Fprint(out, initUsage, flags.FlagUsages())
		return 0
	}
	flags.Visit(func(f *pflag.Flag) { o.given = append(o.given, f.Name) })
	if err := o.run(out); err != nil {
		fmt.Fprintf(errOut, "muster init: %v\n", err)
		return 1
	}
	return 0
}

func (o *setup) run(out io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	config, path, err := o.config()
	if err != nil {
		return err
	}
	for _, dir := range [...]string{filepath.Dir(path), config.StateDir, config.RunDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	holder := pki.Holder{
		Role:  identity.Controller,
		Name:  name,
		Hosts: append([]string{name, "localhost", "127.0.0.1", "::1"}, o.hosts...),
	}
	if len(o.controllers) > 0 {
		holder = o.group[0].certificateHolder(holder.Hosts...)
	}
	slurm, err := o.slurmConf(name)
	if err != nil {
		return err
	}
	var made []string
	differs := false // what was kept is not what would have been written
	for _, f := range [...]struct {
		path string
		data []byte
	}{{path, config.YAML()}, {config.SlurmConf, slurm}} {
		fresh, err := WriteNew(f.path, f.data)
		if err != nil {
			return err
		}
		if fresh {
			made = append(made, f.path)
		} else if there, err := os.ReadFile(f.path); err != nil || !bytes.Equal(there, f.data) {
			differs = true
		}
	}
	cluster, _, err := conffile.ReadCluster(config)
	if err != nil {
		for _, path := range made { // so that it can be tried again
			err = errors.Join(err, os.Remove(path))
		}
		return err
	}
	for _, path := range [...]string{path, config.SlurmConf} {
		if slices.Contains(made, path) {
			fmt.Fprintf(out, "wrote %s\n", path)
		} else {
			fmt.Fprintf(out, "kept  %s\n", path)
		}
	}
	_, err = pki.Dir(config.TLS.Dir).Init(cluster.ClusterName, holder, time.Now())
	switch {
	case errors.Is(err, pki.ErrExists):
		fmt.Fprintf(out, "kept  %s (certificate authority)\n", config.TLS.Dir)
	case err != nil:
		return err
	default:
		fmt.Fprintf(
			out,
			"wrote %s (certificate authority and this controller's certificate)\n",
			config.TLS.Dir,
		)
	}
	if len(o.group) > 1 {
		if err := o.writeOthers(out, config, filepath.Dir(path), slurm); err != nil {
			return err
		}
	}
	if note := o.unapplied(); differs && note != "" {
		fmt.Fprintln(out, note)
	}
	fmt.Fprintf(out, "\nNext: muster up%s\n", o.dirFlag())
	return nil
}

func (o *setup) dirFlag() string {
	if o.dir == "" {
		return ""
	}
	return " --dir " + o.dir
}

// config is the muster.yaml to write and its path.
func (o *setup) config() (*conffile.Config, string, error) {
	config := conffile.Defaults()
	path := "/etc/muster/muster.yaml"
	if o.dir != "" {
		dir, err := filepath.Abs(o.dir)
		if err != nil {
			return nil, "", err
		}
		path = filepath.Join(dir, "muster.yaml")
		config.StateDir, config.RunDir = filepath.Join(dir, "state"), filepath.Join(dir, "run")
		config.SlurmConf = filepath.Join(dir, "slurm.conf")
		config.Listen.Web = conffile.Addr(fmt.Sprintf("127.0.0.1:%d", o.basePort+6))
	}
	if o.basePort != defaultPort {
		host := "127.0.0.1"
		if len(o.group) > 0 {
			host = o.group[0].address
		}
		at := func(n int) conffile.Addr { return conffile.Addr(net.JoinHostPort(host, strconv.Itoa(o.basePort+n))) }
		config.Listen.GRPC = at(0)
		config.Listen.REST = at(3)
		config.Listen.Metrics = at(4)
		config.Listen.AgentMetrics = at(10)
		config.Listen.AgentGRPC = at(1)
		config.Listen.AccountingAPI = at(2)
		config.Listen.AccountingMetrics = at(5)
	}
	if len(o.group) > 0 {
		config.Controller.Name = o.group[0].name
		if o.third != nil {
			config.Controller.Witness = o.witnessLine()
		}
	}
	if o.nodes > 0 && len(o.group) == 0 {
		// The controller and all nodes have the clock of this machine, so that its error sets
		// nothing apart. A machine without a time service would be reported by each node.
		config.Health.Rules = []string{"clock_error off"}
	}
	config.Fill()
	return config, path, config.Validate()
}

// slurmConf describes the nodes asked for, or this machine.
func (o *setup) slurmConf(hostname string) ([]byte, error) {
	var buffer bytes.Buffer
	fmt.Fprintf(
		&buffer,
		"# Written by muster init. Every key of Slurm's own documentation has its meaning here.\n",
	)
	fmt.Fprintf(&buffer, "ClusterName=%s\n", o.cluster)
	for _, c := range o.group {
		fmt.Fprintf(&buffer, "SlurmctldHost=%s(%s)\n", c.name, c.address)
	}
	if len(o.group) == 0 {
		fmt.Fprintf(&buffer, "SlurmctldHost=%s\n", hostname)
	} else if o.basePort != defaultPort {
		fmt.Fprintf(&buffer, "SlurmctldPort=%d\n", o.basePort)
	}
	fmt.Fprintf(
		&buffer,
		"SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nSchedulerType=sched/backfill\n",
	)
	fmt.Fprintf(
		&buffer,
		"SchedulerParameters=bf_firm=1,bf_promise=prediction # the first waiting job has a firm reservation; the others are fitted around it by predicted run time, shortest first\n",
	)
	fmt.Fprintf(
		&buffer,
		"PriorityType=priority/multifactor\nPriorityWeightAge=1000\nPriorityWeightPartition=1000\nPriorityWeightQOS=2000\n",
	)
	fmt.Fprintf(&buffer, "ReturnToService=2\nSlurmdTimeout=300\nKillWait=30\nMinJobAge=300\n")
	line := ""
	if o.nodes == 0 {
		inventory, err := host.Read(host.This("/tmp"))
		if err != nil {
			return nil, fmt.Errorf("this machine's inventory: %w", err)
		}
		line = fmt.Sprintf(
			"NodeName=%s CPUs=%d RealMemory=%d",
			strings.Split(hostname, ".")[0],
			inventory.CPUs,
			inventory.RealMemoryMiB*95/100,
		)
	} else {
		line = fmt.Sprintf("NodeName=node[1-%d] NodeHostname=%s CPUs=%d RealMemory=%d", o.nodes, hostname, o.cpus, o.mem)
		fmt.Fprintf(
			&buffer, "SlurmdParameters=config_overrides # the declared nodes share this machine\n",
		)
		if o.nodes == 1 {
			line = strings.Replace(line, "node[1-1]", "node1", 1)
		}
	}
	if o.gpus > 0 {
		typ := ""
		if o.gpuType != "" {
			typ = o.gpuType + ":"
		}
		types, tres, shares, err := o.shares()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&buffer, "GresTypes=gpu%s\nAccountingStorageTRES=gres/gpu%s\n", types, tres)
		line += fmt.Sprintf(" Gres=gpu:%s%d%s", typ, o.gpus, shares)
	}
	for _, e := range o.extra {
		fmt.Fprintln(&buffer, e)
	}
	fmt.Fprintf(&buffer, "%s State=UNKNOWN\n", line)
	part := "main"
	if o.gpus > 0 {
		part = "gpu"
	}
	fmt.Fprintf(
		&buffer,
		"PartitionName=%s Nodes=ALL Default=YES MaxTime=7-00:00:00 DefaultTime=01:00:00 DefMemPerCPU=500 State=UP\n",
		part,
	)
	return buffer.Bytes(), nil
}

// shares is what --share adds to GresTypes, AccountingStorageTRES and Gres.
func (o *setup) shares() (types, tres, gres string, err error) {
	if o.share == "" {
		return "", "", "", nil
	}
	name, each, _ := strings.Cut(o.share, ":")
	n, err := format.ParseCount(each)
	if err != nil || n <= 0 || !spec.Shares(name) {
		return "", "", "", fmt.Errorf(
			"--share=%s: want shard, mps or vram and how much of it each GPU has, as in shard:8, mps:100, vram:80G",
			o.share,
		)
	}
	return "," + name, ",gres/" + name, "," + name + ":" + format.Count(n*int64(o.gpus)), nil
}

// WriteNew writes a file that does not exist, and makes its folder; false when the file exists.
func WriteNew(path string, data []byte) (bool, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if _, err := file.Write(data); err != nil {
		file.Close()
		return false, err
	}
	return true, file.Close()
}
