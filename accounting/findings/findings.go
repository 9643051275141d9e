// Package findings turns what runs held and did not use into a ranked list of
// changes: who should change what, what that would have saved, and with which line.
//
// Every GPU microsecond of a finding is taken from one step of the goodput ladder
// (package kpi), and each run's time goes to at most one finding of a step, so that
// the findings and what is left of each step add up to what was bought. CPU and
// memory are other resources and are counted beside that: CPUs of a run that came
// to nothing count whole, those of others as far as no program used them.
package findings

import (
	"cmp"
	"slices"
)

// Kind is what is wrong.
type Kind string

// The kinds, each with the step of the ladder that its GPU time is taken from.
const (
	Idle      Kind = "idle"        // no device of the run did anything
	Unused    Kind = "unused-gpus" // some devices worked, others never
	Input     Kind = "input"       // devices worked, and stood still in between
	Crash     Kind = "crash"       // programs that failed in their first minute, repeatedly
	Failing   Kind = "failing"     // programs that failed later, repeatedly
	TimedOut  Kind = "timeout"
	OutOfMem  Kind = "out-of-memory"
	Preempted Kind = "preempted" // preempted, or queued again
	BadNode   Kind = "bad-node"  // runs that a node's failure ended
	Drained   Kind = "drained"
	Down      Kind = "down"
	Slow      Kind = "slow-node" // the same work takes longer there than elsewhere
	SlowGPU   Kind = "slow-gpu"  // its clock at full load is lower than its peers'
	Straggler Kind = "straggler" // nodes of a run waited for the busiest of them
	CPUs      Kind = "cpus"      // CPUs that no program used
	Memory    Kind = "memory"    // memory that no program touched
	TimeLimit Kind = "time-limit"
)

// Thresholds of a finding.
const (
	// MinRuns is how many runs must agree: fewer are an accident.
	MinRuns = 3
	// CrashWithin bounds the first minute of a run, in microseconds.
	CrashWithin = 60_000_000
	// MinAway is the GPU time, in microseconds, below which it is no news that a node
	// was away: half a hundredth of a GPU-hour, which would be listed as 0.00.
	MinAway = 18_000_000
	// slowQuarters is by how many quarters of the other nodes' time a slow node exceeds it.
	slowQuarters = 5
	// spareQuarters is what part of a request, in quarters, must be enough before
	// less is proposed.
	spareQuarters = 3
	// UnevenQuarters is what part of the busiest node's activity, in quarters, the
	// least busy node of a run stays below where the nodes are uneven.
	UnevenQuarters = 3
	// slowTenths is what part of its peers' clock, in tenths, a slow GPU reaches at most.
	slowTenths = 9
	// MinLoad is the time at full load, in seconds, after which a GPU's clock counts.
	MinLoad = 600
	// FullLoad is the utilisation in percent from which a GPU counts as fully loaded.
	FullLoad = 90
	// MinHeld is for how long, in microseconds, a run has to hold its nodes before they
	// are compared: programs load their data first.
	MinHeld = 300_000_000
	// MinActive is the activity of the busiest node, in thousandths, below which
	// a run is idle, not uneven.
	MinActive = 100
)

// Outcome is how a run ended, as far as findings tell it apart.
type Outcome string

// Outcomes of work; each but Ended is a step of the ladder's that is lost whole.
const (
	Ended        Outcome = "ended" // well, or not over
	EarlyFailure Outcome = "early"
	LateFailure  Outcome = "failed"
	LimitReached Outcome = "timeout"
	MemoryRanOut Outcome = "memory"
	NodeFailed   Outcome = "node"
	WasPreempted Outcome = "preempted"
	Other        Outcome = "other" // no change is proposed
)

// Work is what the runs of one user, account and job name with one outcome did
// within a window. Times are in microseconds times the resource.
type Work struct {
	User, Account, JobName string
	// Node is that which failed, of NodeFailed; the user is empty there.
	Node    string
	Outcome Outcome

	Runs    int64
	GPUHeld int64
	CPUHeld int64

	// Of runs that ended well or are not over: time without work of devices of
	// runs in which no device worked, of devices that never worked beside others
	// that did, and of devices that did.
	AllIdle, NeverUsed, Between             int64
	AllIdleRuns, NeverUsedRuns, BetweenRuns int64
	// CPU time that was used, and memory held and never touched, in MiB times
	// microseconds, where it was measured; the runs that were.
	CPUMeasured, CPUUsed int64
	MemHeld, MemUnused   int64
	MeasuredRuns         int64

	// Shapes: the largest of the runs.
	MostGPUs, MostWorked, MostCPUs, MostNodes int64
	MostBusyCPUs                              int64 // thousandths
	MostMem, MostPeak                         int64 // MiB on a node
	MostLimit                                 int64 // microseconds; 0 = none
	// Of runs that completed and had a limit.
	LimitRuns, LongestRun, LimitUnused int64
}

// Node is what became of the GPU time of a node that no run held.
type Node struct {
	Name                  string
	Bought, Drained, Down int64
}

// Place is how long completed single-node runs of one user, job name and number
// of GPUs took on one node. A place with 0 GPUs sums up the runs of a node that are too few
// to be compared.
type Place struct {
	User, Account, JobName, Node   string
	GPUs, Runs, Median, Total, Had int64 // Had: GPU time held with work
}

// Spread is how unevenly the nodes of one user's runs of a job name worked, of runs
// on several nodes that ended well or are not over.
type Spread struct {
	User, Account, JobName string
	Resource               Resource // GPUTime of runs with devices, else CPUTime
	// Held and AllRuns are of every run that was measured on all its nodes, Runs are those
	// that were uneven.
	Held, AllRuns, Runs int64
	// Waited is the time that the other nodes of uneven runs were less active than the
	// busiest, without what counts as idle; Open is the part of runs that are not over.
	Waited, Open int64
	// Late is the node that the others waited for most often, Behind that which did less
	// than most others, each with the runs in which it did.
	Late, Behind         string
	LateRuns, BehindRuns int64
}

// Device is what a GPU's clock was while the runs of one user and job name loaded it fully.
type Device struct {
	User, Account, JobName string
	Type                   string // as in Gres
	MemMHz                 int64  // of its memory; tells models apart that have no type
	Node, UUID             string
	Index                  int64
	Runs                   int64
	Load                   int64 // seconds at full load
	MHz                    int64 // mean clock over that
	Throttled              int64 // seconds of that held down by heat or power
	// Alone and Open are microseconds at full load of runs on one node that ended well or
	// are not over; Open is those of the latter. Runs on several nodes wait for the slowest,
	// which is a Straggler's.
	Alone, Open int64
}

// Step is a step of the ladder with its GPU time.
type Step struct {
	Name, Words string
	GPU         int64
}

// Seen is everything that findings are made of.
type Seen struct {
	Work    []Work
	Nodes   []Node
	Places  []Place
	Spreads []Spread
	Devices []Device
	Steps   []Step // empty where only some users or accounts are looked at
}

// Finding is one change that is proposed.
type Finding struct {
	Kind                         Kind
	User, Account, JobName, Node string
	// Device is the GPU that it is about, and Index its number on the node.
	Device string
	Index  int64

	Resource Resource // what the change is judged by
	Step     string   // of the ladder, that GPU is taken from, but for Open
	Runs     int64
	GPU      int64 // GPU microseconds that the change would have saved
	Open     int64 // the part of them that is taken from the step open
	CPU      int64 // CPU microseconds
	Mem      int64 // MiB times microseconds
	Basis    int64 // how much of Resource was held in all
	Money    int64 // millionths of the currency, at the prices given to Rank

	Change string // the line that would fix it; empty = no option does
	Advice string
}

// Resource is what a finding is counted in.
type Resource string

// The resources. Time limits hold nothing: a long one only keeps others waiting.
const (
	GPUTime    Resource = "gpu"
	CPUTime    Resource = "cpu"
	MemoryTime Resource = "memory"
	NoResource Resource = ""
)

// Amount is how much of its own resource the finding is about.
func (f *Finding) Amount() int64 {
	switch f.Resource {
	case GPUTime:
		return f.GPU
	case CPUTime:
		return f.CPU
	case MemoryTime:
		return f.Mem
	}
	return 0
}

// key tells findings of two windows that are about the same.
type key struct {
	kind                         Kind
	resource                     Resource
	user, account, jobName, node string
	device                       string
}

func (f *Finding) key() key {
	return key{f.Kind, f.Resource, f.User, f.Account, f.JobName, f.Node, f.Device}
}

// Find lists what was found, in no particular order; Rank orders it. What a kind
// takes of a step is bounded by what is left of the step.
func Find(seen Seen) []Finding {
	var findings []Finding
	uneven := findUneven(seen.Spreads)
	for _, group := range groupWork(seen.Work) {
		findings = append(findings, findInWork(group, uneven)...)
	}
	findings = append(findings, uneven...)
	for _, node := range seen.Nodes {
		findings = append(findings, findInNode(node)...)
	}
	devices := findSlowGPUs(seen.Devices)
	findings = append(findings, devices...)
	findings = append(findings, withoutDevices(findSlow(seen.Places), devices)...)
	slices.SortFunc(findings, func(a, b Finding) int { return compareKeys(a.key(), b.key()) })
	if len(seen.Steps) > 0 {
		bound(findings, seen.Steps)
	}
	return slices.DeleteFunc(findings, func(finding Finding) bool {
		needsAmount := finding.Kind != TimeLimit && finding.Kind != SlowGPU
		return needsAmount && finding.GPU == 0 && finding.CPU == 0 && finding.Mem == 0
	})
}

// bound keeps what findings take of a step within the step: a run may hold a
// device that its node has lost meanwhile, and the ladder does not count that.
func bound(list []Finding, steps []Step) {
	left := map[string]int64{}
	for _, step := range steps {
		left[step.Name] = step.GPU
	}
	for i := range list {
		finding := &list[i]
		if finding.Step == "" {
			continue
		}
		ended := min(finding.GPU-finding.Open, left[finding.Step])
		left[finding.Step] -= ended
		finding.Open = min(finding.Open, left[openStep])
		left[openStep] -= finding.Open
		finding.GPU = ended + finding.Open
	}
}

// openStep is the step of the ladder that has the time of runs that are not over.
const openStep = "open"

// Price is what an hour of each resource costs, in millionths; memory's unit is a
// GiB.
type Price struct{ GPU, CPU, Mem int64 }

// Known tells whether anything has a price.
func (p Price) Known() bool { return p.GPU != 0 || p.CPU != 0 || p.Mem != 0 }

const hour = 3_600_000_000 // microseconds

// Rank puts what would save most first: by money where there are prices, then by
// GPU time, CPU time and memory.
func Rank(list []Finding, price Price) {
	for i := range list {
		finding := &list[i]
		finding.Money = timesPrice(finding.GPU, price.GPU, hour) +
			timesPrice(finding.CPU, price.CPU, hour) +
			timesPrice(finding.Mem, price.Mem, hour*1024)
	}
	slices.SortFunc(list, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(b.Money, a.Money),
			cmp.Compare(b.GPU, a.GPU),
			cmp.Compare(b.CPU, a.CPU),
			cmp.Compare(b.Mem, a.Mem),
			cmp.Compare(b.Runs, a.Runs),
			compareKeys(a.key(), b.key()),
		)
	})
}

// timesPrice is amount times price by unit, without overflow: the quotient and
// the rest apart.
func timesPrice(amount, price, unit int64) int64 {
	if price == 0 {
		return 0
	}
	rest := float64(amount%unit) * float64(price) / float64(unit)
	return amount/unit*price + int64(rest)
}

func compareKeys(a, b key) int {
	return cmp.Or(
		cmp.Compare(a.kind, b.kind),
		cmp.Compare(a.resource, b.resource),
		cmp.Compare(a.user, b.user),
		cmp.Compare(a.account, b.account),
		cmp.Compare(a.jobName, b.jobName),
		cmp.Compare(a.node, b.node),
		cmp.Compare(a.device, b.device),
	)
}

// Line is a step of the ladder with what findings took of it.
type Line struct {
	Step
	Found int64
}

// Rest is what no finding is about.
func (l Line) Rest() int64 { return l.GPU - l.Found }

// AddUp sets the findings beside the steps that they were taken from.
func AddUp(list []Finding, steps []Step) []Line {
	found := map[string]int64{}
	for i := range list {
		found[list[i].Step] += list[i].GPU - list[i].Open
		found[openStep] += list[i].Open
	}
	lines := make([]Line, 0, len(steps))
	for _, step := range steps {
		lines = append(lines, Line{Step: step, Found: found[step.Name]})
	}
	return lines
}

// Progress is what became of a finding.
type Progress string

// How a finding of one window stands in the next.
const (
	Done      Progress = "done"     // the wasted part is at most half of what it was
	Better    Progress = "better"   // it is a tenth smaller, or more
	Unchanged Progress = "not done" // it is not
	Stopped   Progress = "no runs"  // nothing of the kind ran
)

// Followed is a finding of the window before with what became of it.
type Followed struct {
	Finding
	Progress Progress
	// Now is what is wasted now, and Saved how much less that is than at the rate
	// of the window before, in the resource of the kind. Money is that of Saved.
	Now, Saved int64
	SavedMoney int64
}

// FollowUp says what became of the findings of the window before, from what was
// seen in this one. A rate is compared, not an amount: who runs half as much has
// not changed anything.
func FollowUp(before []Finding, seen Seen, price Price) []Followed {
	now := map[key]int64{}
	for _, finding := range Find(seen) {
		now[finding.key()] = finding.Amount()
	}
	held := heldNow(seen)
	var out []Followed
	for _, finding := range before {
		if finding.Amount() == 0 || finding.Basis == 0 {
			continue
		}
		basis := finding.key()
		basis.kind = basisKind(finding.Kind)
		follow := Followed{Finding: finding, Progress: Stopped, Now: now[finding.key()]}
		if held[basis] > 0 {
			expected := scale(held[basis], finding.Amount(), finding.Basis)
			follow.Saved = max(0, expected-follow.Now)
			switch {
			case 2*follow.Now <= expected:
				follow.Progress = Done
			case follow.Now <= expected-expected/10:
				follow.Progress = Better
			default:
				follow.Progress = Unchanged
			}
		}
		unit, micro := int64(hour), price.GPU
		switch finding.Resource {
		case CPUTime:
			micro = price.CPU
		case MemoryTime:
			unit, micro = hour*1024, price.Mem
		}
		follow.SavedMoney = timesPrice(follow.Saved, micro, unit)
		out = append(out, follow)
	}
	slices.SortFunc(out, func(a, b Followed) int {
		return cmp.Or(
			cmp.Compare(b.SavedMoney, a.SavedMoney),
			cmp.Compare(b.Saved, a.Saved),
			compareKeys(a.key(), b.key()),
		)
	})
	return out
}

// basisKind groups the kinds that have their basis in common; the others have one
// of their own.
func basisKind(kind Kind) Kind {
	switch kind {
	case CPUs, Memory, Slow, SlowGPU, Straggler:
		return kind
	case Drained, Down:
		return Drained
	}
	return ""
}

// heldNow is the basis of every finding that could be made of what was seen.
func heldNow(seen Seen) map[key]int64 {
	out := map[key]int64{}
	for _, g := range groupWork(seen.Work) {
		k := g.key
		k.resource = GPUTime
		out[k] = g.held
		k.resource = CPUTime
		out[k] = g.cpu
		if work := g.by[Ended]; work != nil {
			k.kind = CPUs
			out[k] = work.CPUMeasured
			k.kind = Memory
			k.resource = MemoryTime
			out[k] = work.MemHeld
		}
	}
	for _, node := range seen.Nodes {
		out[key{kind: Drained, resource: GPUTime, node: node.Name}] = node.Bought
	}
	for _, place := range seen.Places {
		out[key{kind: Slow, resource: GPUTime, node: place.Node}] += place.Had
	}
	for _, spread := range seen.Spreads {
		k := key{
			kind:     Straggler,
			resource: spread.Resource,
			user:     spread.User,
			account:  spread.Account,
			jobName:  spread.JobName,
		}
		out[k] += spread.Held
	}
	for _, device := range seen.Devices {
		out[key{
			kind: SlowGPU, resource: GPUTime, node: device.Node, device: device.UUID,
		}] += device.Alone
	}
	return out
}
