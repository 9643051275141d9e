package paging

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/sim/replay"
	"github.com/musterhpc/muster/spec"
)

// slurmdTimeout is how long a node may be silent.
const slurmdTimeout = 5 * spec.Minute

// controller is what a fault changes of the controller; the zero value is healthy.
type controller struct {
	down       bool // does not answer
	leaderless bool
	noStore    bool // accounting takes no rows
	free       uint64
	syncFails  uint64
	syncs      uint64
	slow       bool // submissions are
	stalled    bool // each pass fails
	passes     uint64
}

// agent is a compute node as its exporter and the controller see it.
type agent struct {
	name     string
	tel      *telemetry.Telemetry
	gpus     *simulated.Provider
	devices  []device.Device // with the UUIDs that the ledger knows
	down     bool            // the node is away
	cut      bool            // it answers Prometheus and has no way to the controller
	silent   spec.Instant    // since when; 0 = it is heard
	reported bool            // its silence is in the ledger
	held     map[string]spec.JobUID
	sample   device.Sample
}

// cluster is a replayed cluster with its exporters.
type cluster struct {
	t          testing.TB
	begin      spec.Instant
	ctl        controller
	agents     []*agent
	byName     map[string]*agent
	acts       []replay.Act // of faults, to be carried out after this look
	events     []happening
	series     *recorder
	view       *view.View
	calls      collector.Calls
	objectives *collector.Objectives
	page       http.Handler
	standby    http.Handler
	text       bytes.Buffer // of a scrape
}

// happening is something that goes wrong, or is done, at a minute of the replay.
type happening struct {
	minute int
	what   func(c *cluster)
}

func newCluster(t testing.TB, w *replay.Workload, series *recorder) *cluster {
	t.Helper()
	c := &cluster{t: t, begin: w.Jobs[0].Submit.Add(-spec.Second), byName: map[string]*agent{}, series: series}
	c.ctl.free = 200 << 30
	var err error
	if c.objectives, err = objectives(); err != nil {
		t.Fatal(err)
	}
	for i := range w.Config.Nodes {
		c.agents = append(c.agents, newAgent(t, &w.Config.Nodes[i], c.begin))
		c.byName[c.agents[i].name] = c.agents[i]
	}
	src := collector.Source{
		View: func() *view.View { return c.view }, Agents: c.connected, Version: "test",
		Now:  func() spec.Instant { return c.view.Published },
		Raft: c.raft, Calls: &c.calls, Objectives: c.objectives,
		Accounting: func() collector.AccountingLag {
			return collector.AccountingLag{Up: !c.ctl.noStore, Seq: c.view.State.Seq}
		},
	}
	mux := http.NewServeMux()
	collector.Mount(mux, src)
	c.page = mux
	src.Cluster = "replay" // a standby has it from its configuration
	c.standby = collector.StandbyHandler(src)
	return c
}

func newAgent(t testing.TB, n *spec.NodeSpec, begin spec.Instant) *agent {
	t.Helper()
	a := &agent{name: n.Name, held: map[string]spec.JobUID{}}
	var err error
	a.tel, err = telemetry.New(telemetry.Options{Cluster: "replay", Node: n.Name, Version: "test", Provider: "simulated", ClusterLabel: "cluster", NoProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	var gpus int64
	for _, g := range n.GRES {
		gpus += g.N
	}
	if gpus > 0 {
		a.gpus, err = simulated.New(simulated.Config{Node: n.Name, Start: begin, Lines: []simulated.Declared{{Type: "h100", Count: int(gpus)}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	a.tel.SetShepherdUp(true)
	a.tel.SetControllerConnected(true)
	return a
}

// objectives are those of a site that says nothing.
func objectives() (*collector.Objectives, error) {
	list, err := conffile.Defaults().Objectives()
	return collector.NewObjectives(list), err
}

// serve is a minute of the API: some submissions, answered at once unless the disk
// is slow, and of what objectives about time see.
func (c *cluster) serve() {
	if c.ctl.down || c.ctl.leaderless {
		return
	}
	for i := range 20 {
		took := 4 * time.Millisecond
		if c.ctl.slow && i%3 == 0 {
			took = time.Second
		}
		c.calls.Observe("Cluster/Submit", "", took, false)
	}
	c.ctl.syncs += 200
	heard, expected := collector.Reachable(c.view.State, func(node string) bool { return !c.byName[node].down && !c.byName[node].cut })
	c.objectives.Tick(time.Minute, collector.Condition{Connected: heard, Expected: expected, Goodput: 0.8})
}

func (c *cluster) raft() collector.Raft {
	r := collector.Raft{Leader: !c.ctl.leaderless, LeaderKnown: !c.ctl.leaderless, FreeBytes: c.ctl.free, ReserveBytes: 256 << 20, Syncs: c.ctl.syncs, SyncFailures: c.ctl.syncFails}
	return r
}

// connected counts the agents with a stream to the controller.
func (c *cluster) connected() int {
	n := 0
	for _, a := range c.agents {
		if !a.down && !a.cut {
			n++
		}
	}
	return n
}

// see is one minute: what happens then, the scrapes, and what the controller
// notices of its agents.
func (c *cluster) see(v *view.View) ([]replay.Act, error) {
	c.view = v
	c.acts = nil
	minute := c.minute()
	for len(c.events) > 0 && c.events[0].minute <= minute {
		c.events[0].what(c)
		c.events = c.events[1:]
	}
	c.serve()
	// With jobs that wait the daemon makes a pass twice a minute; the replay makes
	// none where it would change nothing.
	if !c.ctl.stalled {
		c.ctl.passes += 2
	}
	v.Pass.Passes = c.ctl.passes
	v.Pass.Times[0] = c.ctl.passes
	c.load()
	if err := c.scrape(); err != nil {
		return nil, err
	}
	c.listen()
	return c.acts, nil
}

func (c *cluster) minute() int { return int(c.view.Published.Sub(c.begin) / spec.Minute) }

// load has the simulated GPUs do what the jobs that hold them do.
func (c *cluster) load() {
	held := map[string]map[string]spec.JobUID{}
	c.view.State.Jobs.Range(func(_ uint64, j *state.Job) bool {
		if j.Alloc == nil || !j.HoldsNodes() {
			return true
		}
		for k := range j.Alloc.Nodes {
			n := &j.Alloc.Nodes[k]
			if held[n.Name] == nil {
				held[n.Name] = map[string]spec.JobUID{}
			}
			for _, g := range n.GPUs {
				held[n.Name][g.UUID] = j.UID
			}
		}
		return true
	})
	for _, a := range c.agents {
		if a.gpus == nil || same(a.held, held[a.name]) {
			continue
		}
		a.held = held[a.name]
		var jobs []simulated.Assignment
		for i, d := range a.devices {
			if uid := a.held[d.UUID]; uid != 0 {
				own := a.inventory(c.t)[i].UUID
				jobs = append(jobs, simulated.Assignment{Job: uid, Attempt: 1, From: c.view.Published, Load: simulated.Load{Util: 90, Memory: 50}, UUIDs: []string{own}})
			}
		}
		if err := a.gpus.SetJobs(c.view.Published, jobs); err != nil {
			c.t.Fatal(err)
		}
	}
}

func same(a, b map[string]spec.JobUID) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

func (a *agent) inventory(t testing.TB) []device.Device {
	t.Helper()
	list, err := a.gpus.Inventory(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// collect reads the node's GPUs and shows them under the names that the ledger
// has for them, by their place.
func (a *agent) collect(t testing.TB, now spec.Instant, n *state.Node) {
	t.Helper()
	if a.gpus == nil {
		return
	}
	a.devices = a.inventory(t)
	if err := a.gpus.Sample(context.Background(), now, &a.sample); err != nil {
		t.Fatal(err)
	}
	for i := range a.devices {
		if r := a.sample.Find(a.devices[i].UUID); r != nil {
			r.UUID = n.Inv.GPUs[i].UUID
		}
		a.devices[i].UUID = n.Inv.GPUs[i].UUID
	}
	a.tel.SetDevices(a.devices)
	a.tel.SetSample(&a.sample)
	a.tel.Collected(telemetry.SourceGPU, spec.Millisecond, nil)
}

// scrape is what Prometheus does once a minute.
func (c *cluster) scrape() error {
	page := c.page
	if c.ctl.leaderless {
		page = c.standby
	}
	c.series.begin(c.view.Published)
	var body []byte
	if !c.ctl.down {
		rec := httptest.NewRecorder()
		page.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		body = rec.Body.Bytes()
	}
	if err := c.series.target("slurm", "ctl:8080", !c.ctl.down, body); err != nil {
		return err
	}
	for _, a := range c.agents {
		c.text.Reset()
		if !a.down {
			a.tel.SetControllerConnected(!a.cut && !c.ctl.down && !c.ctl.leaderless)
			a.collect(c.t, c.view.Published, c.view.State.Node(a.name))
			if _, err := a.tel.WriteTo(&c.text); err != nil {
				return err
			}
		}
		if err := c.series.target("dcgm", a.name+":9400", !a.down, c.text.Bytes()); err != nil {
			return err
		}
	}
	c.series.end()
	return nil
}

// listen does what the controller does about agents that fall silent and that come
// back. One that is away hears nothing.
func (c *cluster) listen() {
	if c.ctl.down || c.ctl.leaderless {
		return
	}
	now := c.view.Published
	for _, a := range c.agents {
		away := a.down || a.cut
		switch {
		case away && a.silent == 0:
			a.silent = now
		case away && !a.reported && now.Sub(a.silent) >= slurmdTimeout:
			a.reported = true
			c.do(event.Actor{Kind: event.ActorSystem}, scheduler.NodeSilent{Node: a.name, LastSeen: a.silent})
		case !away && a.reported:
			a.silent, a.reported = 0, false
			c.do(event.Actor{Kind: event.ActorNode, Name: a.name}, scheduler.RegisterNode{Node: a.name, Inventory: *c.view.State.Node(a.name).Inv})
		case !away:
			a.silent = 0
		}
	}
}

// do has the ledger take a command after this look.
func (c *cluster) do(by event.Actor, cmd scheduler.Command) {
	c.acts = append(c.acts, replay.Act{By: by, Command: cmd})
}

// operator is root, at the keyboard.
func operator() event.Actor { return event.Actor{Kind: event.ActorUser, Name: "root"} }

// drain takes a node out of service, or puts it back.
func (c *cluster) drain(node string, on bool) {
	cmd := scheduler.UpdateNodes{Nodes: []string{node}, State: event.NodeResume}
	if on {
		cmd.State, cmd.Reason = event.NodeDrain, new("maintenance")
	}
	c.do(operator(), cmd)
}

// driverError is what an agent reports of an XID.
func (c *cluster) driverError(node string, gpu int, xid int64, class string) {
	n := c.view.State.Node(node)
	fault := spec.GPUFault{UUID: n.Inv.GPUs[gpu].UUID, Kind: spec.GPUXID, XID: xid, Class: class, At: c.view.Published, Count: 1}
	c.do(event.Actor{Kind: event.ActorNode, Name: node}, scheduler.GPUReport{Node: node, Fault: fault})
	a := c.byName[node]
	own := a.inventory(c.t)[gpu].UUID
	if err := a.gpus.Inject(c.view.Published, own, simulated.Fault{Kind: simulated.FaultXID, XID: int(xid)}); err != nil {
		c.t.Fatal(err)
	}
}
