package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/transport/credential"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/stepclient"
	"github.com/musterhpc/muster/nodeagent/stepserver"
	"github.com/musterhpc/muster/spec"
)

// step is a launch order for a step's part of n tasks that run a shell command.
func (l *lab) step(k plan.RunKey, n int, command string, more ...func(*spec.StepSpec)) *apiv1.Order {
	l.t.Helper()
	ss := &spec.StepSpec{Argv: []string{"sh", "-c", command}, WorkDir: l.work, Umask: 0o022, InputTask: spec.InputAll}
	for _, f := range more {
		f(ss)
	}
	o := l.job(k, "", func(o *apiv1.Launch, _ *spec.JobSpec) {
		o.Batch, o.Script = false, nil
		o.Step = &apiv1.StepLaunch{Spec: wire.StepSpec(ss), Here: wire.NodeAlloc(&spec.NodeAlloc{Name: "n1", CPUs: spec.FullBitset(1), Tasks: uint32(n)}), Nodes: "n1",
			NumNodes: 1, TasksPerNode: fmt.Sprint(n), Tasks: uint32(n), LaunchHost: "login"}
		for i := range n {
			o.Step.Ranks = append(o.Step.Ranks, uint32(i))
		}
		o.Step.Peers = []*apiv1.StepNode{{Name: "n1", Ranks: o.Step.Ranks}}
	})
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(o.GetLaunch().GetStep())
	if err != nil {
		l.t.Fatal(err)
	}
	o.GetLaunch().Credential = l.sign(k, sha256.Sum256(data))
	return o
}

// sign makes a credential of this user's for a run.
func (l *lab) sign(k plan.RunKey, launch [32]byte, more ...func(*credential.Claims)) []byte {
	l.t.Helper()
	now := spec.Instant(time.Now().UnixNano())
	c := credential.Claims{Cluster: l.cluster, Job: spec.JobUID(k.Job), Attempt: k.Attempt, Step: spec.StepID(k.Step), UID: uint32(os.Getuid()),
		GID: uint32(os.Getgid()), Nodes: "n1", Issued: now, Expires: now.Add(2 * spec.Minute), Launch: launch}
	for _, f := range more {
		f(&c)
	}
	raw, err := l.ring.Sign(c)
	if err != nil {
		l.t.Fatal(err)
	}
	return raw
}

var attachHash = sha256.Sum256([]byte("step input and output"))

// viewer is a client of a step, with what it has seen.
type viewer struct {
	*stepclient.Client
	mu      sync.Mutex
	cond    *sync.Cond
	out     map[uint32]string
	exits   map[uint32]plan.TaskExit
	notices []string
	breaks  int
	done    chan error
}

func (l *lab) view(k plan.RunKey, tasks int, more ...func(*stepclient.Config)) *viewer {
	v := &viewer{out: map[uint32]string{}, exits: map[uint32]plan.TaskExit{}, done: make(chan error, 1)}
	v.cond = sync.NewCond(&v.mu)
	note := func(f func()) {
		v.mu.Lock()
		defer v.mu.Unlock()
		f()
		v.cond.Broadcast()
	}
	node := stepclient.Node{Name: "n1", Run: k, Credential: l.sign(k, attachHash)}
	for i := range tasks {
		node.Ranks = append(node.Ranks, uint32(i))
	}
	cfg := stepclient.Config{Nodes: []stepclient.Node{node},
		Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", filepath.Join(l.opts.StateDir, stepserver.Socket))
		},
		Output: func(rank uint32, _ uint8, data []byte) error {
			note(func() { v.out[rank] += string(data) })
			return nil
		},
		Exit:    func(_ string, x plan.TaskExit) { note(func() { v.exits[x.Rank] = x }) },
		Notice:  func(_, text string) { note(func() { v.notices = append(v.notices, text) }) },
		Trouble: func(string, error) { note(func() { v.breaks++ }) }}
	for _, f := range more {
		f(&cfg)
	}
	v.Client = stepclient.New(cfg)
	go func() { v.done <- v.Run(context.Background()) }()
	return v
}

func (v *viewer) await(cond func() bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for !cond() {
		v.cond.Wait()
	}
}

// part waits for the end of a step's part.
func (c *controllerDouble) part(k plan.RunKey) *apiv1.RunEnded {
	c.t.Helper()
	c.await("the end of "+k.String(), func() bool { return c.parts[k] != nil })
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parts[k]
}

// A step runs inside of its job; its output and input pass an agent that is
// stopped and started meanwhile, and nothing is lost or doubled.
func TestAStepAndAnAgentThatRestarts(t *testing.T) {
	l := newLab(t)
	l.up()
	job := key(1)
	l.order(l.job(job, "#!/bin/sh\nwhile [ ! -e over ]; do sleep 0.05; done\n"))
	k := plan.Key(1, 1, 0)
	const lines = 200_000
	l.order(l.step(k, 2, fmt.Sprintf(`echo $SLURM_PROCID $SLURM_STEP_ID $SLURM_NTASKS $WHO; seq 1 %d; cat; exit $SLURM_PROCID`, lines)))
	v := l.view(k, 2)
	for i := range 3 {
		v.await(func() bool { return len(v.out[0]) > 1000*i })
		if err := v.Input(t.Context(), spec.InputAll, []byte("piece\n")); err != nil {
			t.Fatal(err)
		}
		l.stopAgent()
		l.startAgent()
		l.awaitStream(i + 2)
	}
	if err := v.CloseInput(t.Context(), spec.InputAll); err != nil {
		t.Fatal(err)
	}
	if err := <-v.done; err != nil {
		t.Fatal(err)
	}
	var rest strings.Builder
	for i := range lines {
		fmt.Fprintln(&rest, i+1)
	}
	rest.WriteString("piece\npiece\npiece\n")
	for i := range uint32(2) {
		if want := fmt.Sprintf("%d 0 2 me\n", i) + rest.String(); v.out[i] != want {
			t.Errorf("task %d wrote %d bytes, want %d; the end is %q", i, len(v.out[i]), len(want), v.out[i][max(0, len(v.out[i])-40):])
		}
		if v.exits[i].Code != int32(i) {
			t.Errorf("task %d: %+v", i, v.exits[i])
		}
	}
	if v.breaks == 0 {
		t.Error("no connection broke: this test shows nothing")
	}
	e := l.part(k)
	if e.GetExitCode() != 1 || e.GetUnknown() || e.GetUsage().GetUserCpu()+e.GetUsage().GetSystemCpu() == 0 || e.GetUsage().GetPeakRss() == 0 {
		t.Errorf("%v", e)
	}
	if err := os.WriteFile(filepath.Join(l.work, "over"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if d := l.ended(job); d.GetBatch().GetExitCode() != 0 {
		t.Errorf("%v", d)
	}
}

// A job without a script holds the node until it is ended, and its steps end
// before the node is given back.
func TestAStepOfAnAllocation(t *testing.T) {
	l := newLab(t)
	l.up()
	job, k := key(2), plan.Key(2, 1, 0)
	l.order(l.step(k, 1, "trap 'echo down; exit 4' TERM; echo up; while :; do sleep 0.05; done")) // before its job: it waits
	l.order(l.job(job, "", func(o *apiv1.Launch, _ *spec.JobSpec) { o.Batch, o.Script = false, nil }))
	v := l.view(k, 1)
	v.await(func() bool { return v.out[0] == "up\n" })
	l.order(&apiv1.Order{Run: &apiv1.RunKey{JobUid: 2, Attempt: 1, Step: plan.StepBatch}, Kind: &apiv1.Order_Terminate{Terminate: &apiv1.Terminate{Grace: int64(spec.Minute)}}})
	if err := <-v.done; err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(v.out[0], "down\n") || v.exits[0].Code != 4 {
		t.Errorf("%q %+v", v.out[0], v.exits[0])
	}
	if e := l.part(k); e.GetExitCode() != 4 {
		t.Errorf("%v", e)
	}
	l.ended(job)
}

// Those who watch a step see what it writes from then on, may type to it, and
// neither take anything from its own client nor hold it up, however slow they
// are; they learn what they have missed, and its end.
func TestWatchers(t *testing.T) {
	l := newLab(t)
	l.up()
	job, k := key(6), plan.Key(6, 1, 0)
	l.order(l.job(job, "#!/bin/sh\nsleep 1000\n"))
	begin := filepath.Join(t.TempDir(), "begin")
	l.order(l.step(k, 1, "echo before; while [ ! -e "+begin+" ]; do echo tick; sleep 0.02; done; head -c 6000000 /dev/zero | tr '\\0' y; read x; echo got $x; exit 5"))
	v := l.view(k, 1)
	v.await(func() bool { return strings.HasPrefix(v.out[0], "before\n") })
	watch := func(c *stepclient.Config) { c.Watch = true }
	resume, first := make(chan struct{}), make(chan struct{})
	stuck := false
	slow := l.view(k, 1, watch, func(c *stepclient.Config) {
		show := c.Output
		c.Output = func(rank uint32, fd uint8, data []byte) error {
			if !stuck {
				stuck = true
				close(first)
				<-resume
			}
			return show(rank, fd, data)
		}
	})
	<-first
	quick := l.view(k, 1, watch)
	quick.await(func() bool { return quick.out[0] != "" })
	if err := os.WriteFile(begin, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	v.await(func() bool { return strings.Count(v.out[0], "y") == 6000000 })
	if err := quick.Input(t.Context(), 0, []byte("two\n")); err != nil {
		t.Fatal(err)
	}
	if err := <-v.done; err != nil || !strings.HasSuffix(v.out[0], "ygot two\n") {
		t.Errorf("the step's own client: %v, %d bytes", err, len(v.out[0]))
	}
	close(resume)
	for name, w := range map[string]*viewer{"quick": quick, "slow": slow} {
		if err := <-w.done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(w.out[0], "before") {
			t.Errorf("%s: it saw what came before it", name)
		}
	}
	if len(slow.notices) == 0 || len(slow.out[0]) >= 6000000 {
		t.Errorf("the slow one saw %d bytes and heard %q", len(slow.out[0]), slow.notices)
	}
	if e := l.part(k); e.GetExitCode() != 5 {
		t.Errorf("%v", e)
	}
}

// Only a credential for this step's input and output opens them, and only to
// its user.
func TestWhoMayAttach(t *testing.T) {
	l := newLab(t)
	l.up()
	k := plan.Key(3, 1, 0)
	l.order(l.job(key(3), "#!/bin/sh\nsleep 1000\n"))
	l.order(l.step(k, 1, "sleep 1000"))
	v := l.view(k, 1)
	stranger, err := credential.NewRing(spec.Instant(time.Now().Add(-time.Minute).UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	now := spec.Instant(time.Now().UnixNano())
	forged, err := stranger.Sign(credential.Claims{Cluster: l.cluster, Job: 3, Attempt: 1, UID: uint32(os.Getuid()), Nodes: "n1", Issued: now,
		Expires: now.Add(spec.Minute), Launch: attachHash})
	if err != nil {
		t.Fatal(err)
	}
	for name, raw := range map[string][]byte{
		"none":                    nil,
		"a stranger's":            forged,
		"that of an order":        l.sign(k, sha256.Sum256([]byte("order"))),
		"another step's":          l.sign(plan.Key(3, 1, 1), attachHash),
		"another job's":           l.sign(plan.Key(4, 1, 0), attachHash),
		"one for another node":    l.sign(k, attachHash, func(c *credential.Claims) { c.Nodes = "n2" }),
		"one for another cluster": l.sign(k, attachHash, func(c *credential.Claims) { c.Cluster[0]++ }),
	} {
		c := stepclient.New(stepclient.Config{Nodes: []stepclient.Node{{Name: "n1", Ranks: []uint32{0}, Run: k, Credential: raw}},
			Dial: func(ctx context.Context, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", filepath.Join(l.opts.StateDir, stepserver.Socket))
			}})
		if err := c.Run(t.Context()); !errors.Is(err, stepclient.ErrDenied) {
			t.Errorf("%s: %v", name, err)
		}
	}
	v.Signal(9)
	if err := <-v.done; err != nil || v.exits[0].Signal != 9 {
		t.Errorf("%v, %+v", err, v.exits[0])
	}
	if e := l.part(k); e.GetExitSignal() != 9 {
		t.Errorf("%v", e)
	}
}

// A client on another machine reaches a step through the agent there, over TLS;
// who is no agent reaches nothing.
func TestStepsOfAnotherMachine(t *testing.T) {
	l, a := newLab(t), newAuthority(t)
	l.enrol = func(req *apiv1.EnrolRequest) (*apiv1.EnrolReply, error) {
		issued, err := pki.Enrol(context.Background(), a.ca, a.tokens, pki.Request{Token: req.GetToken(), Node: req.GetNode(), CSR: req.GetCsr()}, time.Now())
		return &apiv1.EnrolReply{Certificate: issued.CertPEM, Ca: a.ca.CertPEM()}, err
	}
	l.opts.Controller = l.serveTLS(a)
	l.opts.TokenFile = a.token(t, "n1")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	if err := os.WriteFile(l.opts.ConfigFile, []byte(musterYAML+"listen:\n  agent_grpc: "+address+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	l.startAgent()
	l.awaitStream(1)
	k := plan.Key(6, 1, 0)
	l.order(l.job(key(6), "#!/bin/sh\nsleep 1000\n"))
	l.order(l.step(k, 1, "cat; echo over"))
	source, err := pki.LoadSource(pki.Dir(filepath.Join(l.opts.StateDir, "tls")))
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatalf("%q: %v", address, err)
	}
	there := stepserver.NewRelay("elsewhere", port, source, slog.New(slog.DiscardHandler))
	run := func(uid uint32) (string, error) {
		var out strings.Builder
		c := stepclient.New(stepclient.Config{Nodes: []stepclient.Node{{Name: "n1", Address: "127.0.0.1", Ranks: []uint32{0}, Run: k, Credential: l.sign(k, attachHash)}},
			Dial: func(ctx context.Context, _ string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					defer func() { _ = ours.Close() }()
					there.ServeConn(ctx, ours, func(net.Conn) (uint32, bool, error) { return uid, true, nil })
				}()
				return theirs, nil
			},
			Output: func(_ uint32, _ uint8, data []byte) error { out.Write(data); return nil }})
		if err := c.Input(t.Context(), spec.InputAll, []byte("far\n")); err != nil {
			return "", err
		}
		if err := c.CloseInput(t.Context(), spec.InputAll); err != nil {
			return "", err
		}
		err := c.Run(t.Context())
		return out.String(), err
	}
	if _, err := run(uint32(os.Getuid()) + 1); !errors.Is(err, stepclient.ErrDenied) {
		t.Errorf("another user: %v", err)
	}
	l.revocations(address, source)
	if got, err := run(uint32(os.Getuid())); err != nil || got != "far\nover\n" {
		t.Errorf("%q, %v", got, err)
	}
	if e := l.part(k); e.GetExitCode() != 0 {
		t.Errorf("%v", e)
	}
	if c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{stepserver.ALPN}}}).DialContext(t.Context(), "tcp", address); err == nil {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("somebody without a certificate is answered")
		}
		_ = c.Close()
	}
}

// revocations has the controller revoke the certificate of the other machine: its
// connection ends, and it gets no other until that holds no more.
func (l *lab) revocations(address string, source *pki.Source) {
	l.t.Helper()
	// A client that says hello and no more stays for OpenWait.
	cut := func() bool {
		c, err := (&tls.Dialer{Config: source.Client("n1", identity.Agent, stepserver.ALPN)}).DialContext(l.t.Context(), "tcp", address)
		if err != nil {
			return true
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(stepserver.OpenWait / 4))
		_, err = c.Read(make([]byte, 1))
		return !errors.Is(err, os.ErrDeadlineExceeded)
	}
	revoke := func(serials ...string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.out <- &apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Revoked{Revoked: &apiv1.Revoked{Serials: serials}}}
	}
	first := make(chan bool)
	go func() { first <- cut() }()
	time.Sleep(200 * time.Millisecond) // it may be there then, and is kept out in any case
	revoke("ab", source.Self().Serial)
	if !<-first {
		l.t.Error("the connection of a machine goes on that was revoked")
	}
	if !cut() {
		l.t.Error("a machine that was revoked connects again")
	}
	revoke("ab")
	for range 20 { // until it is told
		if !cut() {
			return
		}
	}
	l.t.Error("a machine that is not revoked is kept out")
}
