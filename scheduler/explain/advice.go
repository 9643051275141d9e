package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// Advice is another request and when it would start.
type Advice struct {
	Change string // in the words of sbatch: --time=1:00:00
	Start  spec.Instant
	Gain   spec.Span // how much earlier; 0 if no start is known without it
	Nodes  []spec.NodeID
}

const maxAdvice = 5

// change is one way to ask for less: with of the values 1 to most, of which a
// smaller one never starts later. most 0 is a change without a value.
type change struct {
	most int64
	make func(js *spec.JobSpec, v int64) (text string)
}

// adviseJob looks for requests that would start earlier in the job's place: for
// each kind of change the largest request that starts now, or else the largest
// that starts as early as half of it would. Where the change costs the job its place in the
// queue, or the job waits in several partitions or QOS, a whole pass confirms it.
func adviseJob(snapshot *view.View, job *state.Job, now spec.Instant) ([]Advice, error) {
	a := advisor{
		v:    snapshot,
		jobs: []*state.Job{job},
		now:  max(now, snapshot.State.At),
		opt:  scheduler.PassOptions{Plan: snapshot.Plan},
	}
	if job.Het != nil {
		a.jobs = snapshot.State.Components(job)
	}
	leader := a.jobs[0]
	var err error
	a.x, err = scheduler.Explore(snapshot.State, now, leader.UID, a.opt)
	if err != nil || a.x == nil {
		return nil, err
	}
	for _, component := range a.jobs {
		a.asks = append(a.asks, component.Spec)
	}
	planned, _, reason := a.findStart(a.asks, spec.FarFuture)
	if reason == nil && planned <= now {
		return nil, nil // the next pass starts it
	}
	if pl := snapshot.Plan.Of(leader.UID); pl != nil {
		a.planned = pl.Start
	} else if reason == nil {
		a.planned = planned
	}
	if reason != nil && reason.Code == spec.ReasonDeadLine {
		a.room = leader.Spec.Time.Deadline.Sub(reason.Until)
	}
	a.tryAll()
	slices.SortStableFunc(
		a.found,
		func(p, q Advice) int { return int(min(max(p.Start-q.Start, -1), 1)) },
	)
	return a.found[:min(len(a.found), maxAdvice)], nil
}

// advisor looks for other requests of one job: with its components, if it is a
// heterogeneous one.
type advisor struct {
	v       *view.View
	jobs    []*state.Job    // the job, or the components
	asks    []*spec.JobSpec // what they ask for
	x       *scheduler.Explorer
	now     spec.Instant
	planned spec.Instant // 0 = not known
	room    spec.Span    // between the start and a deadline that it misses; else 0
	opt     scheduler.PassOptions
	passes  int // that confirmed an advice, or did not
	found   []Advice
}

// maxPasses bounds the whole passes of one question: each may take seconds.
const maxPasses = 12

// maxComponents is for how many components of a heterogeneous job other
// requests are looked for, one by one.
const maxComponents = 4

// tryAll tries every change: of the job, or of each component alone.
func (a *advisor) tryAll() {
	for i, job := range a.jobs[:min(len(a.jobs), maxComponents)] {
		for _, c := range a.listChanges(job) {
			a.tryChange(c, i)
		}
	}
	if len(a.jobs) == 1 {
		return
	}
	most := spec.Span(0) // what they hold together they need as long as the longest of them
	for _, job := range a.jobs {
		most = max(most, a.limitOf(job))
	}
	if c := a.askShorter(most); c != nil {
		a.tryChange(*c, everyPart)
	}
}

// everyPart stands for a change of all components.
const everyPart = -1

// findStart tells when requests would start in the job's place.
func (a *advisor) findStart(
	asks []*spec.JobSpec,
	until spec.Instant,
) (spec.Instant, []spec.NodeID, *spec.Reason) {
	if len(a.jobs) > 1 {
		return a.x.StartTogether(asks, until)
	}
	return a.x.Start(asks[0], until)
}

// applyChange applies a change to a copy of what one component asks for, or every one.
func (a *advisor) applyChange(c change, value int64, of int) (asks []*spec.JobSpec, text string) {
	asks = slices.Clone(a.asks)
	for i := range asks {
		if of != everyPart && of != i {
			continue
		}
		jobSpec := *asks[i]
		jobSpec.Queue.Array = nil // one task of an array is what would start
		limit := jobSpec.Time.Limit
		text = c.make(&jobSpec, value)
		if of == everyPart && limit != 0 {
			jobSpec.Time.Limit = min(jobSpec.Time.Limit, limit)
		}
		asks[i] = &jobSpec
	}
	switch {
	case of == everyPart:
		text += " for all components"
	case len(asks) > 1:
		text += fmt.Sprintf(" for component %d", of)
	}
	return asks, text
}

func (a *advisor) tryChange(c change, of int) {
	if c.most == 0 {
		a.testChange(c, 0, spec.FarFuture, of)
		return
	}
	start := func(v int64, until spec.Instant) (spec.Instant, bool) {
		asks, _ := a.applyChange(c, v, of)
		at, _, reason := a.findStart(asks, until)
		return at, reason == nil
	}
	low, high := int64(1), c.most+1 // low starts then, high is what was asked for
	at, ok := start(low, a.now)
	if !ok {
		low = (c.most + 1) / 2
		at, ok = start(low, spec.FarFuture)
		if !ok {
			return
		}
	}
	for high-low > 1 {
		mid := (low + high) / 2
		if _, ok := start(mid, at); ok {
			low = mid
		} else {
			high = mid
		}
	}
	a.testChange(c, low, at, of)
}

// testChange keeps a change that starts at least a minute earlier.
func (a *advisor) testChange(c change, value int64, until spec.Instant, of int) {
	asks, text := a.applyChange(c, value, of)
	start, nodes, reason := a.findStart(asks, until)
	if reason != nil || (a.planned != 0 && start.Add(spec.Minute) > a.planned) {
		return
	}
	for i, jobSpec := range asks {
		if jobSpec != a.asks[i] && !scheduler.Accepts(a.v.State, a.now, a.jobs[i], jobSpec) {
			return
		}
	}
	if a.isDoubtful(asks) {
		a.passes++
		if a.passes > maxPasses {
			return
		}
		changes := make([]scheduler.Change, len(asks))
		for i, jobSpec := range asks {
			changed := *jobSpec
			changed.Queue.Array = a.asks[i].Queue.Array
			changes[i] = scheduler.Change{UID: a.jobs[i].UID, Spec: &changed}
		}
		sure, ok := scheduler.Confirm(a.v.State, a.now, changes, a.opt)
		if !ok || (a.planned != 0 && sure.Add(spec.Minute) > a.planned) {
			return
		}
		if sure != start {
			start, nodes = sure, nil
		}
	}
	adv := Advice{Change: text, Start: start, Nodes: nodes}
	if a.planned != 0 {
		adv.Gain = a.planned.Sub(start)
	}
	a.found = append(a.found, adv)
}

// isDoubtful tells whether only a whole pass shows when requests would start: that
// of components depends on who is given room first.
func (a *advisor) isDoubtful(asks []*spec.JobSpec) bool {
	if len(asks) > 1 {
		return true
	}
	for i, jobSpec := range asks {
		if jobSpec.Choices() || jobSpec.QOS != a.asks[i].QOS {
			return true
		}
	}
	return !a.x.Sure() || a.x.Rank(asks[0]) > 0
}

// limitOf is a job's time limit, or what its partition gives it.
func (a *advisor) limitOf(job *state.Job) spec.Span {
	if partition := a.v.State.Parts.Find(job.Partition()); partition != nil {
		return partition.Spec.TimeLimit(job.Spec.Time.Limit)
	}
	return job.Spec.Time.Limit
}

// askShorter asks for less time than a limit; nil if there is none.
func (a *advisor) askShorter(limit spec.Span) *change {
	minutes := int64(limit/spec.Minute) - 1
	if a.room > 0 {
		minutes = min(minutes, int64(a.room/spec.Minute))
	}
	if limit == spec.Infinite || minutes <= 0 {
		return nil
	}
	return &change{minutes, func(jobSpec *spec.JobSpec, v int64) string {
		jobSpec.Time.Limit = spec.Span(v) * spec.Minute
		return "--time=" + format.Duration(v*60)
	}}
}

// listChanges lists the ways in which a job, or a component, could ask for less.
func (a *advisor) listChanges(job *state.Job) []change {
	jobSpec, size := job.Spec, &job.Spec.Size
	var changes []change
	if c := a.askShorter(a.limitOf(job)); c != nil {
		changes = append(changes, *c)
	}
	changes = append(changes, a.askSmaller(job)...)
	for i, list := range [...][]spec.Count{size.PerNode, size.PerJob, size.PerTask} {
		for k, count := range list {
			if count.N > 1 {
				changes = append(changes, fewerGRES(i, k, count))
			}
			if count.Type != "" && len(list) == 1 {
				changes = append(changes, anyType(i, count))
			}
		}
	}
	for i, l := range jobSpec.Licenses {
		if l.N > 1 && !jobSpec.AnyLicense {
			changes = append(changes, change{l.N - 1, func(jobSpec *spec.JobSpec, v int64) string {
				jobSpec.Licenses = slices.Clone(jobSpec.Licenses)
				jobSpec.Licenses[i].N = v
				return "--licenses=" + countsText(jobSpec.Licenses)
			}})
		}
	}
	for _, drop := range [...]struct {
		used bool
		text string
		make func(jobSpec *spec.JobSpec)
	}{
		{jobSpec.Place.Nodes != "", "without --nodelist", func(jobSpec *spec.JobSpec) { jobSpec.Place.Nodes = "" }},
		{jobSpec.Place.Exclude != "", "without --exclude", func(jobSpec *spec.JobSpec) { jobSpec.Place.Exclude = "" }},
		{jobSpec.Place.Constraint != "", "without --constraint", func(jobSpec *spec.JobSpec) { jobSpec.Place.Constraint = "" }},
		{jobSpec.Place.Reservation != "", "without --reservation", func(jobSpec *spec.JobSpec) { jobSpec.Place.Reservation = "" }},
		{jobSpec.Place.Segment > 0, "without --segment", func(jobSpec *spec.JobSpec) { jobSpec.Place.Segment, jobSpec.Place.ApartSegments = 0, false }},
		{jobSpec.Place.Switches > 0, "without --switches", func(jobSpec *spec.JobSpec) { jobSpec.Place.Switches = 0 }},
		{jobSpec.Place.Contiguous, "without --contiguous", func(jobSpec *spec.JobSpec) { jobSpec.Place.Contiguous = false }},
		{jobSpec.Place.Sharing >= spec.Exclusive && jobSpec.Place.Sharing <= spec.ExclusiveTopo, "without --exclusive", func(jobSpec *spec.JobSpec) { jobSpec.Place.Sharing = spec.ShareDefault }},
	} {
		if drop.used {
			changes = append(changes, change{0, func(jobSpec *spec.JobSpec, _ int64) string {
				drop.make(jobSpec)
				return drop.text
			}})
		}
	}
	return append(append(changes, a.otherPartitions(job)...), a.otherQOS(job)...)
}

// countsText writes a list of counts as an option takes it.
func countsText(list []spec.Count) string {
	out := make([]string, len(list))
	for i, count := range list {
		out[i] = fmt.Sprintf("%s:%d", count.Name, count.N)
	}
	return strings.Join(out, ",")
}

// otherQOS are the further QOS that the user may ask for, up to a handful.
func (a *advisor) otherQOS(job *state.Job) []change {
	var changes []change
	for _, name := range scheduler.QOSToTry(a.v.State, job.Assoc) {
		if name == job.Spec.QOS || slices.Contains(job.Spec.QOSes, name) ||
			len(changes) == maxAdvice {
			continue
		}
		changes = append(changes, change{0, func(jobSpec *spec.JobSpec, _ int64) string {
			jobSpec.QOS, jobSpec.QOSes = name, nil
			return "--qos=" + name
		}})
	}
	return changes
}

// askSmaller are changes of nodes, tasks, CPUs and memory.
func (a *advisor) askSmaller(job *state.Job) []change {
	var changes []change
	size := &job.Spec.Size
	if n := int64(size.MinNodes); n > 1 {
		changes = append(changes, change{n - 1, func(jobSpec *spec.JobSpec, value int64) string {
			jobSpec.Size.MinNodes, jobSpec.Size.MaxNodes = uint32(value), uint32(value)
			text := fmt.Sprintf("--nodes=%d", value)
			if t := int64(jobSpec.Size.Tasks); t > 0 {
				jobSpec.Size.Tasks = uint32(max(t*value/n, value))
				text += fmt.Sprintf(" --ntasks=%d", jobSpec.Size.Tasks)
			}
			return text
		}})
	}
	if n := int64(size.Tasks); n > 1 && size.MinNodes <= 1 {
		changes = append(changes, change{n - 1, func(jobSpec *spec.JobSpec, v int64) string {
			jobSpec.Size.Tasks = uint32(v)
			return fmt.Sprintf("--ntasks=%d", v)
		}})
	}
	if n := int64(size.CPUsPerTask); n > 1 {
		changes = append(changes, change{n - 1, func(jobSpec *spec.JobSpec, v int64) string {
			jobSpec.Size.CPUsPerTask = uint32(v)
			return fmt.Sprintf("--cpus-per-task=%d", v)
		}})
	}
	for _, m := range [...]struct {
		name string
		mib  int64
		to   func(jobSpec *spec.JobSpec) *int64
	}{
		{"--mem", cmp.Or(size.MemPerNode, a.allMemory(job)), func(jobSpec *spec.JobSpec) *int64 {
			jobSpec.Size.AllMem = false
			return &jobSpec.Size.MemPerNode
		}},
		{"--mem-per-cpu", size.MemPerCPU, func(jobSpec *spec.JobSpec) *int64 { return &jobSpec.Size.MemPerCPU }},
		{"--mem-per-gpu", size.MemPerGPU, func(jobSpec *spec.JobSpec) *int64 { return &jobSpec.Size.MemPerGPU }},
	} {
		step := int64(64) // MiB; large requests go in GiB
		if m.mib > 16<<10 {
			step = 1 << 10
		}
		if steps := (m.mib - 1) / step; steps > 0 {
			changes = append(changes, change{steps, func(jobSpec *spec.JobSpec, v int64) string {
				*m.to(jobSpec) = v * step
				return m.name + "=" + format.TRESMemory(v*step)
			}})
		}
	}
	return changes
}

// allMemory is the most that the memory of a whole node can be, for a job that
// gets it since it asks for none where there is no default, or for all; else 0.
func (a *advisor) allMemory(job *state.Job) (most int64) {
	partition := a.v.State.Parts.Find(job.Partition())
	if partition == nil {
		return 0
	}
	if demand := place.Resolve(a.v.State.Config, partition.Spec, job.Spec); !demand.Memory ||
		demand.MemPerNode >= 0 {
		return 0
	}
	for id := partition.Nodes.Next(0); id >= 0; id = partition.Nodes.Next(id + 1) {
		if node := a.v.State.NodeByID(spec.NodeID(id)); node != nil {
			most = max(most, node.Mem)
		}
	}
	return most
}

// fewerGRES asks for less of one entry of a list: --gres, --gpus or
// --gpus-per-task.
func fewerGRES(list, entry int, count spec.Count) change {
	return change{count.N - 1, func(jobSpec *spec.JobSpec, value int64) string {
		to, option := listOf(jobSpec, list, count.Name)
		(*to)[entry].N = value
		if count.Type != "" {
			option += count.Type + ":"
		}
		return fmt.Sprintf("%s%d", option, value)
	}}
}

// anyType asks for as many of the only entry of a list, of whatever type.
func anyType(list int, count spec.Count) change {
	return change{0, func(jobSpec *spec.JobSpec, _ int64) string {
		to, option := listOf(jobSpec, list, count.Name)
		(*to)[0].Type = ""
		return fmt.Sprintf("%s%d", option, count.N)
	}}
}

// listOf is one of the lists of what a request asks for, to be changed, and the
// option that it comes from.
func listOf(jobSpec *spec.JobSpec, list int, name string) (to *[]spec.Count, option string) {
	switch list {
	case 1:
		to, option = &jobSpec.Size.PerJob, "--gpus="
	case 2:
		to, option = &jobSpec.Size.PerTask, "--gpus-per-task="
	default:
		to, option = &jobSpec.Size.PerNode, "--gres="+name+":"
	}
	*to = slices.Clone(*to)
	return to, option
}

// otherPartitions are other partitions, up to a handful.
func (a *advisor) otherPartitions(job *state.Job) []change {
	var changes []change
	for i := range a.v.State.Parts.List {
		partition := a.v.State.Parts.List[i].Spec
		if slices.Contains(job.Spec.Partitions, partition.Name) || partition.Hidden ||
			len(changes) == maxAdvice ||
			partition.State == spec.PartitionDrain {
			continue
		}
		changes = append(changes, change{0, func(jobSpec *spec.JobSpec, _ int64) string {
			jobSpec.Partitions = []string{partition.Name}
			return "--partition=" + partition.Name
		}})
	}
	return changes
}
