package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/internal/program"
	"github.com/musterhpc/muster/internal/transport/framed/client"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

const upUsage = `muster up starts a cluster on this machine: the controller with accounting,
and an agent for each node that slurm.conf places here, but for those of
State=CLOUD, which ResumeProgram powers up. What already runs is left alone.
With --nodes only the agents of these nodes are started, or stopped.

Usage:
  muster up [--dir DIR | --config FILE] [--apart] [--nodes LIST]
  muster down [--dir DIR | --config FILE] [--jobs] [--nodes LIST]

Examples:
  muster up --dir lab
  muster down --dir lab --jobs      # cancel the jobs first
  muster up --dir lab --nodes n2    # what the ResumeProgram of a lab does

Options:
`

// local is a cluster on this machine, as up and down see it.
type local struct {
	config  string
	cfg     *conffile.Config
	cluster *spec.Config
	host    string
	out     io.Writer
	wait    time.Duration
	jobs    bool
	apart   bool     // accounting in a process of its own
	picked  []string // only the agents of these nodes; nil: all that is the cluster's

	// shepherd is how down starts one, for jobs whose own is dead; without folder and node.
	shepherd runtime.Config

	again map[string]func() error // starts a daemon that was found running, should it end while it is waited for
	begun map[string]spec.Instant // when this command started a daemon, by its name
}

// UpOrDown runs `musterd up` and `musterd down`.
func UpOrDown(verb string, args []string, out, errOut io.Writer) int {
	l := local{out: out, again: map[string]func() error{}, begun: map[string]spec.Instant{}}
	flags := pflag.NewFlagSet("muster "+verb, pflag.ContinueOnError)
	flags.SetOutput(errOut)
	dir := flags.String("dir", "", "the `folder` that muster init --dir made")
	conffile.AddFlag(flags, &l.config, "muster.yaml `file`")
	flags.DurationVar(&l.wait, "wait", 60*time.Second, "how long to wait for the daemons")
	if verb == "up" {
		flags.BoolVar(&l.apart, "apart", false, "run controller and accounting in a process each")
	} else {
		flags.BoolVar(
			&l.jobs,
			"jobs",
			false,
			"cancel all jobs and wait for their end first; without a controller, kill those that run here",
		)
	}
	nodes := flags.String("nodes", "", "only the agents of these nodes, a host `list`")
	help := flags.BoolP("help", "h", false, "print this help and exit")
	if err := flags.Parse(args); err != nil {
		fmt.Fprintf(errOut, "muster %s: %v\n", verb, err)
		return 2
	}
	if *help {
		fmt.Fprint(out, upUsage, flags.FlagUsages())
		return 0
	}
	if *dir != "" {
		l.config = filepath.Join(*dir, "muster.yaml")
	}
	if flags.Changed("nodes") {
		if err := l.pick(*nodes); err != nil {
			fmt.Fprintf(errOut, "muster %s: --nodes: %v\n", verb, err)
			return 2
		}
	}
	err := l.load()
	if err == nil && verb == "up" {
		err = l.up()
	} else if err == nil {
		err = l.stopCluster()
	}
	if err != nil {
		fmt.Fprintf(errOut, "muster %s: %v\n", verb, err)
		return 1
	}
	return 0
}

// pick takes the nodes of --nodes. A list without a name is a variable of a
// script that was not set; it must not mean the whole cluster.
func (l *local) pick(list string) (err error) {
	l.picked, err = hostlist.Expand(list)
	if err != nil {
		return err
	}
	if len(l.picked) == 0 {
		return errors.New("names no node")
	}
	if l.apart {
		return errors.New("starts no accounting, so that --apart has no meaning")
	}
	return nil
}

func (l *local) load() (err error) {
	l.config, err = filepath.Abs(l.config)
	if err != nil {
		return err
	}
	l.cfg, err = conffile.Load(l.config)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist: `muster init` makes it", l.config)
	} else if err != nil {
		return err
	}
	l.cluster, _, err = conffile.ReadCluster(l.cfg)
	if err != nil {
		return err
	}
	slurm, _ := conffile.ReadSlurm(l.cfg.SlurmConf) // ReadCluster has said its problems
	self, err := os.Executable()
	if err != nil {
		return err
	}
	l.shepherd.Binary = filepath.Join(filepath.Dir(self), "muster-shepherd")
	l.shepherd.Args = runtime.CgroupArgs(slurm.Cgroup.Plugin)
	l.host, err = os.Hostname()
	if err != nil {
		return err
	}
	here := l.here()
	for _, name := range l.picked {
		if !slices.Contains(here, name) {
			return fmt.Errorf("--nodes: slurm.conf places no node %s on this machine", name)
		}
	}
	return nil
}

// nodes lists the nodes on this machine whose agents up starts.
func (l *local) nodes() []string {
	if l.picked != nil {
		return l.picked
	}
	var out []string
	for _, name := range l.here() {
		if i := slices.IndexFunc(l.cluster.Nodes, func(n spec.NodeSpec) bool { return n.Name == name }); l.cluster.Nodes[i].State != "CLOUD" {
			out = append(out, name)
		}
	}
	return out
}

// here lists the nodes that live on this machine.
func (l *local) here() []string {
	var out []string
	short, _, _ := strings.Cut(l.host, ".")
	for i := range l.cluster.Nodes {
		node := &l.cluster.Nodes[i]
		h := node.Hostname
		if h == "" {
			h = node.Name
		}
		if h == l.host || h == short || h == "localhost" {
			out = append(out, node.Name)
		}
	}
	return out
}

func (l *local) pidFile(name string) string { return filepath.Join(l.cfg.RunDir, name+".pid") }
func (l *local) logFile(name string) string { return filepath.Join(l.cfg.RunDir, name+".log") }
func (l *local) agentDir(node string) string {
	return filepath.Join(l.cfg.StateDir, "agents", node)
}

// runningPID returns the pid of a daemon that up started and that still runs.
func (l *local) runningPID(name, of string) int {
	data, err := os.ReadFile(l.pidFile(name))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	isOther := err != nil || !strings.HasPrefix(filepath.Base(exe), of)
	if isOther || program.WasKilled(pid) {
		return 0
	}
	return pid
}

// programOf is the program of a daemon by the name that up gives it.
func programOf(name string) string {
	if strings.HasPrefix(name, "agent-") {
		return "muster-agent"
	}
	return "musterd"
}

// start runs a daemon in a session of its own, its output in a log file.
func (l *local) start(name, program string, args ...string) error {
	logf, err := os.OpenFile(l.logFile(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer logf.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = logf, logf
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	l.begun[name] = spec.Instant(time.Now().UnixNano())
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(l.pidFile(name), []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o644); err != nil {
		return err
	}
	return cmd.Process.Release()
}

func (l *local) up() error {
	if err := os.MkdirAll(l.cfg.RunDir, 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if l.picked == nil {
		if err := l.startServers(self); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.wait)
	defer cancel()
	if err := l.until(ctx, "musterd", func(ctx context.Context) error {
		return l.callSocket(ctx, "Cluster/Ping", &apiv1.PingRequest{}, &apiv1.PingReply{})
	}); err != nil {
		return err
	}
	if l.picked == nil {
		fmt.Fprintf(
			l.out,
			"controller  up: socket %s, API %s, metrics http://%s/metrics\n",
			l.cfg.Socket,
			l.cfg.Listen.GRPC,
			shown(l.cfg.Listen.Metrics),
		)
		if !l.cfg.Listen.Web.Off() {
			fmt.Fprintf(
				l.out,
				"console     up: %s (sign in with the token of `muster scontrol token`)\n",
				consoleURL(l.cfg.Listen.Web),
			)
		}
	}
	nodes, here := l.nodes(), l.here()
	for _, node := range nodes {
		if err := l.startAgent(ctx, filepath.Dir(self), node, slices.Index(here, node)); err != nil {
			return fmt.Errorf("agent of %s: %w", node, err)
		}
	}
	for _, node := range nodes {
		if err := l.until(ctx, "agent-"+node, func(ctx context.Context) error { return l.registered(ctx, node) }); err != nil {
			return err
		}
		fmt.Fprintf(
			l.out,
			"node %-6s up: metrics http://%s/metrics\n",
			node,
			shown(l.metricsOf(node, slices.Index(here, node))),
		)
	}
	if l.picked != nil {
		return nil
	}
	return l.awaitAccounting(ctx)
}

// startServers starts the controller and accounting, in one process or two. A
// cluster that went up apart stays so until it is taken down, also when one of
// the two has died.
func (l *local) startServers(self string) error {
	if _, err := os.Stat(l.pidFile("accounting")); err == nil {
		l.apart = true
	}
	if !l.apart {
		return l.ensure(
			"musterd",
			func() error { return l.start("musterd", self, "--config", l.config) },
		)
	}
	if err := l.ensure("musterd", func() error { return l.start("musterd", self, "--config", l.config, "--role", "controller") }); err != nil {
		return err
	}
	return l.ensure(
		"accounting",
		func() error { return l.start("accounting", self, "--config", l.config, "--role", "accounting") },
	)
}

// ensure starts a daemon unless it runs. One that was killed a moment ago may
// still look as if it ran, for as long as the kernel takes its memory apart: if
// a daemon that was found running ends while until waits for it, it is started.
func (l *local) ensure(name string, start func() error) error {
	if l.runningPID(name, programOf(name)) != 0 {
		l.again[name] = start
		return nil
	}
	l.awaitEnd(name)
	return start()
}

// awaitEnd waits until a daemon that is ending has let go of its files: its
// successor needs their locks.
func (l *local) awaitEnd(name string) {
	data, err := os.ReadFile(l.pidFile(name))
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return
	}
	for began := time.Now(); program.IsEnding(pid) && time.Since(began) < l.wait; {
		time.Sleep(5 * time.Millisecond) //muster:sleep another process's end gives no event here
	}
}

// awaitAccounting waits until the store takes rows. A store that stays away
// is no reason to call the cluster down: jobs run without it.
func (l *local) awaitAccounting(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.wait/3)
	defer cancel()
	status := &apiv1.AccountingStatusReply{}
	name, socket := "musterd", l.cfg.Socket
	if l.apart {
		name, socket = "accounting", l.cfg.AccountingSocket
	}
	err := l.until(ctx, name, func(ctx context.Context) error {
		if err := callAt(ctx, socket, "Accounting/Status", &apiv1.AccountingStatusRequest{}, status); err != nil {
			return err
		}
		if !status.GetUp() {
			return errors.New("the store does not take rows yet")
		}
		return nil
	})
	if err != nil {
		fmt.Fprintf(
			l.out,
			"accounting  not up yet (%s): jobs run, nothing is lost; see %s\n",
			cmp.Or(status.GetError(), "the store has not answered yet"),
			l.logFile(name),
		)
		return nil
	}
	fmt.Fprintf(l.out, "accounting  up: ClickHouse %s\n", status.GetStore())
	return nil
}

func shown(addr conffile.Addr) string {
	host, port, err := net.SplitHostPort(string(addr))
	if err != nil {
		return string(addr)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// consoleURL is where a browser on this machine finds the console: it is plain
// HTTP on a loopback address, and HTTPS elsewhere.
func consoleURL(addr conffile.Addr) string {
	host, _, err := net.SplitHostPort(string(addr))
	if err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback()) {
		return "http://" + string(addr) + "/"
	}
	return "https://" + shown(addr) + "/"
}

// startAgent enrols a node, if it is not yet, and starts its agent.
func (l *local) startAgent(ctx context.Context, bin, node string, i int) error {
	return l.ensure("agent-"+node, func() error { return l.launchAgent(ctx, bin, node, i) })
}

// controller is where the agents on this machine reach theirs: over TLS, as
// agents elsewhere do, or on its socket where it listens nowhere else.
func (l *local) controller() (string, error) {
	if l.cfg.Listen.GRPC.Off() {
		return l.cfg.Socket, nil
	}
	_, port, err := net.SplitHostPort(string(l.cfg.Listen.GRPC))
	if err != nil {
		return "", fmt.Errorf("listen.grpc: %w", err)
	}
	return net.JoinHostPort("localhost", port), nil
}

func (l *local) launchAgent(ctx context.Context, bin, node string, i int) error {
	dir := l.agentDir(node)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	controller, err := l.controller()
	if err != nil {
		return err
	}
	args := []string{
		"--config",
		l.config,
		"--node",
		node,
		"--state-dir",
		dir,
		"--metrics",
		string(l.metricsOf(node, i)),
		"--controller",
		controller,
	}
	_, err = os.Stat(filepath.Join(dir, "tls", "host.pem"))
	if errors.Is(err, fs.ErrNotExist) &&
		!l.cfg.Listen.GRPC.Off() { // over the socket it needs no certificate
		reply := &apiv1.CreateTokenReply{}
		if err := l.callSocket(
			ctx,
			"Cluster/CreateToken",
			&apiv1.CreateTokenRequest{Node: node, Lifetime: int64(10 * spec.Minute)},
			reply,
		); err != nil {
			return fmt.Errorf("enrolment token: %w", err)
		}
		token := filepath.Join(dir, "token")
		if err := durable.WriteFile(token, []byte(reply.GetToken()+"\n"), 0o600); err != nil {
			return err
		}
		args = append(args, "--token-file", token)
	}
	return l.start("agent-"+node, filepath.Join(bin, "muster-agent"), args...)
}

// registered tells whether the agent of a node is known to the controller. The
// controller may not have noticed yet that the agent before it died: where this
// command started the agent, only a registration since then counts.
func (l *local) registered(ctx context.Context, node string) error {
	reply := &apiv1.ListNodesReply{}
	if err := l.callSocket(
		ctx, "Cluster/ListNodes", &apiv1.ListNodesRequest{Nodes: []string{node}}, reply,
	); err != nil {
		return err
	}
	nodes := reply.GetNodes()
	if len(nodes) != 1 || !nodes[0].GetRegistered() || nodes[0].GetLost() {
		return errors.New("the node has not registered yet")
	}
	if spec.Instant(nodes[0].GetAgentStart()) < l.begun["agent-"+node] {
		return errors.New("the node's new agent has not registered yet")
	}
	return nil
}

// callSocket makes one call on the local socket.
func (l *local) callSocket(ctx context.Context, method string, request, resp message) error {
	return callAt(ctx, l.cfg.Socket, method, request, resp)
}

func callAt(ctx context.Context, socket, method string, request, resp message) error {
	c, err := client.Dial(ctx, client.Unix(socket))
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Call(ctx, "/muster.v1."+method, request, resp)
}

// until tries again until it works, the daemon has died, or time is up.
func (l *local) until(ctx context.Context, name string, try func(context.Context) error) error {
	program := programOf(name)
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if start := l.again[name]; start != nil && l.runningPID(name, program) == 0 {
			delete(l.again, name)
			l.awaitEnd(name)
			if err := start(); err != nil {
				return err
			}
		}
		if l.runningPID(name, program) == 0 {
			return fmt.Errorf(
				"%s has ended; the last lines of %s:\n%s",
				name,
				l.logFile(name),
				tail(l.logFile(name), 5),
			)
		}
		select {
		case <-time.After(30 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf(
				"%s does not answer after %s (%w); see %s",
				name,
				l.wait,
				err,
				l.logFile(name),
			)
		}
	}
}

func tail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// message is what the framed client sends and fills.
type message = proto.Message
