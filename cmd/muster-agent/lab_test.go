package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/credential"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/nodeagent/assembly"
	"github.com/musterhpc/muster/nodeagent/machine"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/nodeagent/runtime/minder"
	"github.com/musterhpc/muster/nodeagent/runtime/shepherd"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/spec"
)

// asShepherd makes the test binary be muster-shepherd: what it runs then is
// the real program.
const asShepherd = "MUSTER_TEST_AS_SHEPHERD"

func TestMain(m *testing.M) {
	if os.Getenv(asShepherd) != "" || len(os.Args) > 2 && (os.Args[1] == minder.Verb || os.Args[1] == minder.TaskVerb || os.Args[1] == minder.ContainedTaskVerb) {
		os.Exit(shepherdMain())
	}
	os.Exit(m.Run())
}

func shepherdMain() int { return shepherd.Main(os.Args[1:], os.Stdout, os.Stderr) }

// controllerDouble serves agents as a controller does, and remembers what
// they say. Facts count once, whatever is repeated.
type controllerDouble struct {
	samples samplesDouble
	service.UnimplementedAgentsServer
	t       testing.TB
	ring    credential.Ring
	cluster [16]byte

	mu      sync.Mutex
	cond    *sync.Cond
	streams int
	regs    []*apiv1.Registration
	beats   int
	out     chan *apiv1.ControllerMessage // of the present stream
	silent  bool                          // acknowledges nothing
	wanted  []plan.RunKey
	numbers []uint64 // of every report, of all streams
	done    map[plan.RunKey][]*apiv1.NodeDone
	failed  map[plan.RunKey]*apiv1.LaunchFailed
	parts   map[plan.RunKey]*apiv1.RunEnded // of steps, as they were told first
	enrol   func(*apiv1.EnrolRequest) (*apiv1.EnrolReply, error)
	renew   func(identity.Identity, *apiv1.RenewRequest) (*apiv1.EnrolReply, error)
	peers   []string
}

func newControllerDouble(t testing.TB) *controllerDouble {
	ring, err := credential.NewRing(spec.Instant(time.Now().Add(-time.Minute).UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	c := &controllerDouble{t: t, ring: ring, cluster: [16]byte{9}, done: map[plan.RunKey][]*apiv1.NodeDone{}, failed: map[plan.RunKey]*apiv1.LaunchFailed{},
		parts: map[plan.RunKey]*apiv1.RunEnded{}}
	c.cond = sync.NewCond(&c.mu)
	return c
}

// Connect implements service.AgentsServer.
func (c *controllerDouble) Connect(s service.Agents_ConnectServer) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	out := make(chan *apiv1.ControllerMessage, 1<<16)
	c.mu.Lock()
	c.streams++
	c.regs = append(c.regs, first.GetRegistration())
	c.peers = append(c.peers, identity.From(s.Context()).String())
	c.out = out
	w := &apiv1.Welcome{Cluster: "lab", ClusterUuid: c.cluster[:], Heartbeat: int64(spec.Second), KillWait: int64(5 * spec.Second), Now: time.Now().UnixNano()}
	for _, k := range c.ring.Public() {
		w.CredentialKeys = append(w.CredentialKeys, k.Bytes())
	}
	for _, k := range c.wanted {
		w.Desired = append(w.Desired, &apiv1.RunKey{JobUid: k.Job, Attempt: k.Attempt, Step: k.Step})
	}
	c.cond.Broadcast()
	c.mu.Unlock()
	if err := s.Send(&apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Welcome{Welcome: w}}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	go func() {
		for {
			select {
			case m := <-out:
				if s.Send(m) != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		c.take(m, out)
	}
}

func (c *controllerDouble) take(m *apiv1.AgentMessage, out chan<- *apiv1.ControllerMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.cond.Broadcast()
	if m.GetHeartbeat() != nil {
		c.beats++
	}
	last := uint64(0)
	for _, r := range m.GetReports().GetReports() {
		k := plan.Key(r.GetRun().GetJobUid(), r.GetRun().GetAttempt(), r.GetRun().GetStep())
		c.numbers = append(c.numbers, r.GetNumber())
		last = r.GetNumber()
		if d := r.GetNodeDone(); d != nil {
			c.done[k] = append(c.done[k], d)
			for i, w := range c.wanted {
				if w == k {
					c.wanted = append(c.wanted[:i], c.wanted[i+1:]...)
					break
				}
			}
		}
		if e := r.GetEnded(); e != nil && k.Step >= 0 && c.parts[k] == nil {
			c.parts[k] = e
		}
		if f := r.GetLaunchFailed(); f != nil {
			c.failed[k] = f
		}
	}
	if last > 0 && !c.silent {
		out <- &apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Ack{Ack: &apiv1.ReportAck{UpTo: last}}}
	}
}

// Enrol implements service.AgentsServer.
func (c *controllerDouble) Enrol(_ context.Context, req *apiv1.EnrolRequest) (*apiv1.EnrolReply, error) {
	return c.enrol(req)
}

// Renew implements service.AgentsServer.
func (c *controllerDouble) Renew(ctx context.Context, req *apiv1.RenewRequest) (*apiv1.EnrolReply, error) {
	return c.renew(identity.From(ctx), req)
}

// await waits until the condition holds.
func (c *controllerDouble) await(what string, cond func() bool) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !cond() {
		c.cond.Wait()
	}
	_ = what
}

// order sends orders on the present stream.
func (c *controllerDouble) order(list ...*apiv1.Order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range list {
		if o.GetLaunch() != nil {
			c.wanted = append(c.wanted, plan.Key(o.GetRun().GetJobUid(), o.GetRun().GetAttempt(), o.GetRun().GetStep()))
		}
	}
	for len(list) > 0 {
		n := min(len(list), 64)
		c.out <- &apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Orders{Orders: &apiv1.Orders{Orders: list[:n]}}}
		list = list[n:]
	}
}

// ended waits for the end of a run and gives what was said of it first.
func (c *controllerDouble) ended(k plan.RunKey) *apiv1.NodeDone {
	c.t.Helper()
	c.await("the end of "+k.String(), func() bool { return len(c.done[k]) > 0 })
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done[k][0]
}

// samplesDouble takes GPU samples, but not those of the first call.
type samplesDouble struct {
	service.UnimplementedAccountingServer
	mu    sync.Mutex
	calls int
	rows  map[uint64]int // by job
	nodes map[string]bool
}

func (d *samplesDouble) PutGpuSamples(_ context.Context, req *apiv1.PutGpuSamplesRequest) (*apiv1.PutGpuSamplesReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls++; d.calls == 1 {
		return nil, spec.Refuse(spec.CodeDatabaseUnreachable, "not yet")
	}
	if d.rows == nil {
		d.rows, d.nodes = map[uint64]int{}, map[string]bool{}
	}
	d.nodes[req.GetNode()] = true
	for _, g := range req.GetSeries() {
		d.rows[g.GetUid()] += len(g.GetAt())
	}
	return &apiv1.PutGpuSamplesReply{}, nil
}

// of is how many samples there are of a job.
func (d *samplesDouble) of(uid uint64) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rows[uid]
}

// endpoint serves the double; close ends it with all its connections.
func (c *controllerDouble) endpoint(l net.Listener, ch *channel.Server) *grpcx.Endpoint {
	c.t.Helper()
	ep, err := grpcx.NewEndpoint(grpcx.EndpointConfig{Channel: ch, Log: slog.New(slog.DiscardHandler), Options: []grpc.ServerOption{grpc.WaitForHandlers(false)}})
	if err != nil {
		c.t.Fatal(err)
	}
	service.RegisterAgentsServer(ep, c)
	service.RegisterAccountingServer(ep, &c.samples)
	go func() { _ = ep.Serve(l) }()
	return ep
}

// lab is one node with a controller double on a unix socket.
type lab struct {
	*controllerDouble
	dir, work string
	socket    string
	opts      settings.Options
	ep        *grpcx.Endpoint
	stopAgent func()
	log       *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

const slurmConf = `ClusterName=lab
SlurmctldHost=localhost
SlurmdParameters=config_overrides
GresTypes=gpu
TaskPlugin=task/none
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
NodeName=n[1-2] CPUs=64 RealMemory=4000 Gres=gpu:h100:4
PartitionName=gpu Nodes=n[1-2] Default=YES
`

const gresConf = "AutoDetect=off\nNodeName=n[1-2] Name=gpu Type=h100 Count=4\n"

const musterYAML = `telemetry:
  interval: 1s
  samples_interval: 1s
  cluster_label: cluster
log:
  level: debug
`

func newLab(t testing.TB) *lab {
	t.Helper()
	dir, err := os.MkdirTemp("", "mag")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{controllerDouble: newControllerDouble(t), dir: dir, work: filepath.Join(dir, "work"), socket: filepath.Join(dir, "ctl.sock"), log: &syncBuffer{}}
	for name, text := range map[string]string{"slurm.conf": slurmConf, "gres.conf": gresConf, "muster.yaml": musterYAML} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{dir, l.work} {
		if err := os.MkdirAll(d, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l.opts = settings.Options{ConfigFile: filepath.Join(dir, "muster.yaml"), ConfigGiven: true, Conf: filepath.Join(dir, "slurm.conf"), Node: "n1", Controller: l.socket,
		Metrics: "127.0.0.1:0", StateDir: filepath.Join(dir, "s"), Shepherd: self, ShepherdEnv: append(os.Environ(), asShepherd+"=1")}
	t.Cleanup(l.close)
	return l
}

// serveUnix brings the controller up.
func (l *lab) serveUnix() {
	l.t.Helper()
	sock, err := listen.Unix(l.socket, 0o666)
	if err != nil {
		l.t.Fatal(err)
	}
	l.ep = l.endpoint(sock, &channel.Server{})
}

// startAgent runs the agent until it is stopped.
func (l *lab) startAgent() {
	l.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	opts := l.opts
	go func() { done <- assembly.Serve(ctx, opts, version, l.log) }()
	l.stopAgent = func() {
		cancel()
		if err := <-done; err != nil {
			l.t.Errorf("the agent: %v", err)
		}
		l.stopAgent = nil
	}
}

// up starts controller and agent, and waits until they talk.
func (l *lab) up() {
	l.t.Helper()
	l.serveUnix()
	l.startAgent()
	l.awaitStream(1)
}

func (l *lab) awaitStream(n int) {
	l.await("a connection", func() bool { return l.streams >= n })
}

// close ends the agent, all jobs and the shepherd.
func (l *lab) close() {
	if l.stopAgent != nil {
		l.stopAgent()
	}
	if l.ep != nil {
		l.ep.Close()
	}
	if l.t.Failed() {
		l.t.Logf("the agent's log:\n%s", l.log.String())
		if b, err := os.ReadFile(filepath.Join(l.opts.StateDir, "shepherd", machine.ShepherdRelease(version), "log")); err == nil {
			l.t.Logf("the shepherd's log:\n%s", b)
		}
	}
	ctx := context.Background()
	c, err := runtime.Dial(ctx, runtime.Socket(filepath.Join(l.opts.StateDir, "shepherd"), machine.ShepherdRelease(version)))
	if err == nil {
		if runs, err := c.List(ctx); err == nil {
			for _, r := range runs {
				_ = c.Kill(ctx, r.Key, plan.ScopeJob)
			}
		}
		_ = syscall.Kill(int(c.Hello().PID), syscall.SIGTERM)
		<-c.Done()
		c.Close()
	} else if !errors.Is(err, os.ErrNotExist) {
		l.t.Logf("the shepherd cannot be stopped: %v", err)
	}
	if err := os.RemoveAll(l.dir); err != nil {
		l.t.Logf("%v", err)
	}
}

// job is a launch order for a script; more changes it before it is signed.
func (l *lab) job(k plan.RunKey, script string, more ...func(*apiv1.Launch, *spec.JobSpec)) *apiv1.Order {
	l.t.Helper()
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	js := &spec.JobSpec{Name: "test", Account: "ml", QOS: "normal", Host: "login", IO: spec.JobIO{WorkDir: l.work, Umask: 0o022}}
	o := &apiv1.Launch{Batch: true, Script: []byte(script), Environment: []byte("PATH=/usr/bin:/bin\x00HOME=/\x00WHO=me\x00"), Job: &apiv1.JobInfo{
		Uid: k.Job, JobId: uint32(k.Job), Attempt: k.Attempt, UserId: uid, GroupId: gid, User: "tester", Partition: "gpu", Nodes: "n1", ArrayTask: spec.NoTask,
		NumTasks: 1}, Here: wire.NodeAlloc(&spec.NodeAlloc{Name: "n1", CPUs: spec.FullBitset(1), Mem: 500, Tasks: 1}), CpusPerNode: "1", TasksPerNode: "1"}
	for _, f := range more {
		f(o, js)
	}
	o.Job.Spec = wire.JobSpec(js)
	now := spec.Instant(time.Now().UnixNano())
	var err error
	o.Credential, err = l.ring.Sign(credential.Claims{Cluster: l.cluster, Job: spec.JobUID(k.Job), Attempt: k.Attempt, Step: spec.StepID(k.Step),
		UID: o.Job.UserId, GID: o.Job.GroupId, Groups: o.Groups, Nodes: "n1", Issued: now, Expires: now.Add(2 * spec.Minute), Launch: sha256.Sum256(o.Script)})
	if err != nil {
		l.t.Fatal(err)
	}
	return &apiv1.Order{Run: &apiv1.RunKey{JobUid: k.Job, Attempt: k.Attempt, Step: k.Step}, Kind: &apiv1.Order_Launch{Launch: o}}
}

func key(job uint64) plan.RunKey { return plan.Key(job, 1, plan.StepBatch) }

// read gives a file of the work folder.
func (l *lab) read(name string) string {
	l.t.Helper()
	b, err := os.ReadFile(filepath.Join(l.work, name))
	if err != nil {
		l.t.Errorf("%v", err)
	}
	return string(b)
}

// gate is a pipe that a job waits at.
func (l *lab) gate(name string) (open func()) {
	l.t.Helper()
	path := filepath.Join(l.work, name)
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		l.t.Fatal(err)
	}
	return func() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			l.t.Fatal(err)
		}
		_, _ = io.WriteString(f, "go\n")
		_ = f.Close()
	}
}

func (l *lab) awaitFile(name string) {
	l.t.Helper()
	for {
		if _, err := os.Stat(filepath.Join(l.work, name)); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func exitOf(d *apiv1.NodeDone) string {
	return fmt.Sprintf("%d:%d", d.GetBatch().GetExitCode(), d.GetBatch().GetExitSignal())
}

// shepherdClient speaks to the lab's shepherd beside the agent.
func (l *lab) shepherdClient() (*runtime.Client, error) {
	return runtime.Dial(context.Background(), runtime.Socket(filepath.Join(l.opts.StateDir, "shepherd"), machine.ShepherdRelease(version)))
}

// shepherdPID gives the process that answers, or -1.
func (l *lab) shepherdPID() int {
	c, err := l.shepherdClient()
	if err != nil {
		return -1
	}
	defer c.Close()
	return int(c.Hello().PID)
}

// awaitStates waits until the shepherd has so many runs.
func (l *lab) awaitStates(n int) {
	l.t.Helper()
	for {
		c, err := l.shepherdClient()
		if err != nil {
			l.t.Fatal(err)
		}
		runs, err := c.List(context.Background())
		c.Close()
		if err != nil {
			l.t.Fatal(err)
		}
		if len(runs) == n {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
