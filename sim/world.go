package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// World is one simulated cluster.
type World struct {
	seed    uint64
	rng     *rand.Rand
	now     spec.Instant
	todo    agenda
	serial  uint64
	codec   *event.Codec
	profile Profile
	config  *spec.Config // the one that holds when all is calm
	changed bool         // another may be in force

	group *group
	ctl   *controller // the newest leader
	nodes []*node
	truth *truth
	pods  *kubernetes
	calm  bool // the second phase: no more faults or submissions
	err   error
	steps int
	trace []string
}

// Profile is derived from the seed before the run: which faults, how often, which cluster.
type Profile struct {
	Nodes, CPUs, GPUs int
	Jobs              int
	CrashEvery        spec.Span // controller; 0 = never
	RebootEvery       spec.Span // some node
	SilenceEvery      spec.Span // some node's network
	AgentEvery        spec.Span // restart of some agent
	HangEvery         spec.Span // of some agent, or of some shepherd
	DrainEvery        spec.Span
	RequeueEvery      spec.Span // by the administrator
	ClockEvery        spec.Span // a step of the controller's clock
	ReconfigureEvery  spec.Span
	Duplicate         int       // percent of messages delivered twice
	Slow              spec.Span // most a message takes
	Sync              spec.Span // most a batch takes to be durable
	QOSCap            bool
	Preempt           int       // 1 cancel, 2 requeue, 3 suspend, 4 suspend and take turns, for a partition of a higher tier; 0 = there is none
	Floor             int       // CPUs that are guaranteed to the account of the first user
	Power             bool      // idle nodes are powered down, and up for a job
	PowerEvery        spec.Span // by the administrator, and reboots
	BootFails         int       // percent of nodes told to come up that do not
	Fencing           int       // 1 by leases, 2 by the site's program; 0 = jobs wait for the node
	Variety
	Pods
	Groups
}

// Variety is the part of a profile that is not faults: features that jobs request, and
// what operators do.
type Variety struct {
	Sides        bool      // a second partition on some of the nodes; jobs wait in several
	Several      bool      // a second QOS with a limit; jobs are in both
	ByQOS        bool      // that QOS preempts the first, where there is preemption
	Typed        bool      // the GPUs of a node are of two types
	Shards       bool      // and are shared
	Apart        bool      // jobs that share nodes with nobody, or not with other users
	Het          int       // percent of the submissions that have two components
	Strangers    int       // nodes that describe themselves
	StrangeEvery spec.Span // that such a node comes or goes
	ReserveEvery spec.Span
	ControlEvery spec.Span // scontrol update of partitions, nodes and jobs
}

// drawInterval draws a mean interval, or never.
func drawInterval(random *rand.Rand, likely int, lo, hi spec.Span) spec.Span {
	if random.IntN(100) >= likely {
		return 0
	}
	return lo + spec.Span(random.Int64N(int64(hi-lo)))
}

func drawProfile(random *rand.Rand) Profile {
	every := func(likely int, lo, hi spec.Span) spec.Span {
		return drawInterval(random, likely, lo, hi)
	}
	profile := Profile{
		Nodes: 1 + random.IntN(4), CPUs: 1 + random.IntN(8), GPUs: random.IntN(5),
		Jobs:       5 + random.IntN(60),
		CrashEvery: every(60, 5*spec.Second, 120*spec.Second), RebootEvery: every(50, 20*spec.Second, 300*spec.Second),
		SilenceEvery: every(50, 20*spec.Second, 200*spec.Second), AgentEvery: every(50, 10*spec.Second, 100*spec.Second),
		DrainEvery: every(40, 20*spec.Second, 200*spec.Second), RequeueEvery: every(90, 10*spec.Second, 120*spec.Second),
		ClockEvery:       every(30, 20*spec.Second, 200*spec.Second),
		ReconfigureEvery: every(40, 20*spec.Second, 200*spec.Second), Duplicate: random.IntN(30),
		Slow: spec.Millisecond * spec.Span(1+random.IntN(2000)),
		Sync: spec.Millisecond * spec.Span(1+random.IntN(50)), QOSCap: random.IntN(2) == 0,
		Preempt: max(random.IntN(9)-4, 0), Floor: max(random.IntN(16)-7, 0),
		Power: random.IntN(3) == 0, PowerEvery: every(60, 20*spec.Second, 120*spec.Second),
		BootFails: random.IntN(30),
	}
	profile.HangEvery = every(50, 20*spec.Second, 200*spec.Second)
	profile.Variety = Variety{
		Sides: random.IntN(2) == 0, Several: random.IntN(2) == 0, ByQOS: random.IntN(2) == 0,
		Typed: random.IntN(2) == 0, Shards: random.IntN(2) == 0, Apart: random.IntN(3) == 0,
		Het: max(random.IntN(60)-30, 0), Strangers: max(random.IntN(5)-2, 0),
		StrangeEvery: 10*spec.Second + spec.Span(random.Int64N(int64(90*spec.Second))),
		ReserveEvery: every(50, 10*spec.Second, 100*spec.Second), ControlEvery: every(50, 5*spec.Second, 60*spec.Second),
	}
	profile.Fencing = random.IntN(3)
	profile.Pods = drawPods(random)
	profile.Groups = drawGroups(random)
	return profile
}

// happening is one thing on the agenda.
type happening struct {
	at  spec.Instant
	seq uint64
	do  func()
}

type agenda []happening

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || (a[i].at == a[j].at && a[i].seq < a[j].seq)
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push implements heap.Interface.
func (a *agenda) Push(x any) { *a = append(*a, x.(happening)) }

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	old := *a
	h := old[len(old)-1]
	*a = old[:len(old)-1]
	return h
}

// scheduleAfter puts something on the agenda.
func (w *World) scheduleAfter(d spec.Span, do func()) {
	w.serial++
	heap.Push(&w.todo, happening{w.now.Add(d), w.serial, do})
}

// upTo draws a span in [1 ms, most].
func (w *World) upTo(most spec.Span) spec.Span {
	return spec.Millisecond + spec.Span(w.rng.Int64N(int64(max(most, spec.Millisecond))))
}

// repeatEvery repeats something at random intervals around a mean, in the first
// phase only.
func (w *World) repeatEvery(mean spec.Span, do func()) {
	if mean == 0 {
		return
	}
	var again func()
	again = func() {
		if w.calm {
			return
		}
		do()
		w.scheduleAfter(w.upTo(2*mean), again)
	}
	w.scheduleAfter(w.upTo(2*mean), again)
}

func (w *World) failSeed(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(
			"seed %d, %d ms: %s",
			w.seed,
			int64(w.now)/int64(spec.Millisecond),
			fmt.Sprintf(format, args...),
		)
	}
}

func (w *World) noteLine(format string, args ...any) {
	if len(w.trace) < 5000 {
		w.trace = append(
			w.trace,
			fmt.Sprintf(
				"%9d %s",
				int64(w.now)/int64(spec.Millisecond),
				fmt.Sprintf(format, args...),
			),
		)
	}
}

// Result is the outcome of a run.
type Result struct {
	Seed     uint64
	Profile  Profile
	Events   uint64   // in the ledger
	Crashes  int      // of controllers
	Overlaps int      // leaders that began while another still believed that it led
	Hash     [32]byte // of the final state
	Log      [32]byte // of all that was written
	Attempts int
	Starts   Starts
	Trace    []string
}

// Run simulates one seed. The error names the seed and what was violated.
func Run(seed uint64) (Result, error) {
	return RunProfile(seed, ProfileOf(seed))
}

// ProfileOf is what a seed draws.
func ProfileOf(seed uint64) Profile {
	return drawProfile(rand.New(rand.NewPCG(seed, 0x70726f66696c65)))
}

// Shrink looks for the smallest profile with which a seed still fails, by
// taking away one kind of fault, of load or of size after the other.
func Shrink(seed uint64, profile Profile) (Profile, Result, error) {
	res, err := RunProfile(seed, profile)
	for again := err != nil; again; {
		again = false
		for _, cut := range cuts() {
			smaller := profile
			cut(&smaller)
			if smaller == profile {
				continue
			}
			if result, e := RunProfile(seed, smaller); e != nil {
				profile = smaller
				res = result
				err = e
				again = true
			}
		}
	}
	return profile, res, err
}

// cuts are the steps of Shrink. Each ends at something that it leaves as it is.
func cuts() []func(profile *Profile) {
	return []func(profile *Profile){
		func(profile *Profile) { profile.CrashEvery = 0 }, func(profile *Profile) { profile.RebootEvery = 0 }, func(profile *Profile) { profile.SilenceEvery = 0 },
		func(profile *Profile) { profile.AgentEvery = 0 }, func(profile *Profile) { profile.HangEvery = 0 }, func(profile *Profile) { profile.DrainEvery = 0 }, func(profile *Profile) { profile.RequeueEvery = 0 },
		func(profile *Profile) { profile.ClockEvery = 0 }, func(profile *Profile) { profile.ReconfigureEvery = 0 }, func(profile *Profile) { profile.Duplicate = 0 },
		func(profile *Profile) { profile.QOSCap = false }, func(profile *Profile) { profile.Preempt = 0 }, func(profile *Profile) { profile.Floor = 0 }, func(profile *Profile) { profile.GPUs = 0 },
		func(profile *Profile) { profile.Power = false }, func(profile *Profile) { profile.PowerEvery = 0 }, func(profile *Profile) { profile.BootFails = 0 }, func(profile *Profile) { profile.Fencing = 0 },
		func(profile *Profile) { profile.Sides = false }, func(profile *Profile) { profile.Several = false }, func(profile *Profile) { profile.ByQOS = false },
		func(profile *Profile) { profile.Typed = false }, func(profile *Profile) { profile.Shards = false }, func(profile *Profile) { profile.Apart = false },
		func(profile *Profile) { profile.Het = 0 }, func(profile *Profile) { profile.Strangers = max(profile.Strangers-1, 0) }, func(profile *Profile) { profile.ReserveEvery = 0 }, func(profile *Profile) { profile.ControlEvery = 0 },
		func(profile *Profile) { profile.PodEvery = 0 }, func(profile *Profile) { profile.GangEvery = 0 }, func(profile *Profile) { profile.CopilotEvery = 0 }, func(profile *Profile) { profile.Conflicts = 0 }, func(profile *Profile) { profile.LostWatchEvery = 0 },
		func(profile *Profile) { profile.ApartEvery = 0 }, func(profile *Profile) { profile.DiskEvery = 0 }, func(profile *Profile) { profile.Members = 1 },
		func(profile *Profile) { profile.Nodes = max(profile.Nodes-1, 1) }, func(profile *Profile) { profile.CPUs = max(profile.CPUs-1, 1) },
		func(profile *Profile) { profile.Jobs = max(profile.Jobs/2, 1) }, func(profile *Profile) { profile.Jobs = max(profile.Jobs-1, 1) },
	}
}

// newWorld is a world in which nothing has happened.
func newWorld(seed uint64, profile Profile) (*World, error) {
	codec, err := event.NewCodec()
	if err != nil {
		return nil, err
	}
	world := &World{
		seed:    seed,
		rng:     rand.New(rand.NewPCG(seed, 0x6d7573746572)),
		now:     spec.AtUnix(1_700_000_000),
		codec:   codec,
		profile: profile,
		truth:   newTruth(),
	}
	world.group = newGroup(world)
	world.pods = newKubernetes(world)
	return world, nil
}

// RunProfile simulates a seed under a profile that was not drawn from it.
func RunProfile(seed uint64, profile Profile) (Result, error) {
	world, err := newWorld(seed, profile)
	if err != nil {
		return Result{}, err
	}
	world.group.begin()
	for !world.ctl.up && world.err == nil {
		world.runUntil(world.now.Add(spec.Second))
	}
	world.ctl.foundCluster()
	for i := range world.profile.Nodes {
		world.nodes = append(world.nodes, newNode(world, nodeName(i)))
	}
	for i := range world.profile.Strangers {
		world.nodes = append(world.nodes, newNode(world, strangeName(i)))
	}
	for i, node := range world.nodes {
		node.dead = (world.profile.Power && i > 0) || i >= world.profile.Nodes
		if !node.dead {
			node.connectSoon()
		}
	}
	world.runPeople()
	world.injectFaults()
	world.runOperators()
	world.runPowers()
	world.runVariety()
	world.pods.beginPods()
	const storm, bound = 10 * spec.Minute, 6 * spec.Hour
	world.runUntil(world.now.Add(storm))
	world.healFaults()
	end := world.now.Add(bound)
	world.runUntil(
		world.now.Add(500 * spec.Millisecond),
	) // between two ticks, of which the last is always on its way
	for world.err == nil && world.now < end && !world.isSettled() {
		world.runUntil(world.now.Add(10 * spec.Second))
	}
	if world.err == nil {
		world.finalChecks()
	}
	result := Result{
		Seed:     seed,
		Profile:  world.profile,
		Events:   world.ctl.st.Seq,
		Crashes:  world.group.crashes,
		Overlaps: world.group.overlaps,
		Hash:     world.ctl.st.Hash(),
		Log:      world.group.hashLog(),
		Attempts: len(world.truth.attempts),
		Starts:   world.truth.starts,
		Trace:    world.trace,
	}
	return result, world.err
}

// runUntil lets things happen up to an instant.
func (w *World) runUntil(t spec.Instant) {
	for w.err == nil && len(w.todo) > 0 && w.todo[0].at <= t {
		h := heap.Pop(&w.todo).(happening)
		w.now = h.at
		h.do()
		w.steps++
		if w.steps > 2_000_000 {
			w.failSeed("the run does not end")
		}
	}
	w.now = max(w.now, t)
}
