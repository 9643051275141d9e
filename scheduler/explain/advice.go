package explain

import (
	"cmp"
	"fmt"
	"slices"

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

// advise looks for requests that would start earlier in the job's place: for
// each kind of change the largest request that starts now, or else the largest
// that starts as early as half of it would. Where the change costs the job its place in the
// queue, or the job waits in several partitions or QOS, a whole pass confirms it.
func advise(v *view.View, j *state.Job, now spec.Instant) ([]Advice, error) {
	opt := scheduler.PassOptions{Plan: v.Plan}
	if j.Het != nil {
		return nil, nil // what one component could do without is not the whole answer
	}
	x, err := scheduler.Explore(v.State, now, j.UID, opt)
	if err != nil || x == nil {
		return nil, err
	}
	planned, _, reason := x.Start(j.Spec, spec.FarFuture)
	if reason == nil && planned <= now {
		return nil, nil // the next pass starts it
	}
	a := advisor{v: v, j: j, x: x, now: max(now, v.State.At), opt: opt}
	if pl := v.Plan.Of(j.UID); pl != nil {
		a.planned = pl.Start
	} else if reason == nil {
		a.planned = planned
	}
	if reason != nil && reason.Code == spec.ReasonDeadLine {
		a.room = j.Spec.Time.Deadline.Sub(reason.Until)
	}
	for _, c := range a.changes() {
		a.try(c)
	}
	slices.SortStableFunc(a.found, func(p, q Advice) int { return int(min(max(p.Start-q.Start, -1), 1)) })
	return a.found[:min(len(a.found), maxAdvice)], nil
}

type advisor struct {
	v       *view.View
	j       *state.Job
	x       *scheduler.Explorer
	now     spec.Instant
	planned spec.Instant // 0 = not known
	room    spec.Span    // between the start and a deadline that it misses; else 0
	opt     scheduler.PassOptions
	found   []Advice
}

// with applies a change to a copy of the job's request.
func (a *advisor) with(c change, v int64) (*spec.JobSpec, string) {
	js := *a.j.Spec
	js.Queue.Array = nil // one task of an array is what would start
	text := c.make(&js, v)
	return &js, text
}

func (a *advisor) try(c change) {
	if c.most == 0 {
		a.test(c, 0, spec.FarFuture)
		return
	}
	start := func(v int64, until spec.Instant) (spec.Instant, bool) {
		js, _ := a.with(c, v)
		at, _, r := a.x.Start(js, until)
		return at, r == nil
	}
	low, high := int64(1), c.most+1 // low starts then, high is what was asked for
	at, ok := start(low, a.now)
	if !ok {
		low = (c.most + 1) / 2
		if at, ok = start(low, spec.FarFuture); !ok {
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
	a.test(c, low, at)
}

// test keeps a change that starts at least a minute earlier.
func (a *advisor) test(c change, v int64, until spec.Instant) {
	js, text := a.with(c, v)
	start, nodes, r := a.x.Start(js, until)
	if r != nil || (a.planned != 0 && start.Add(spec.Minute) > a.planned) {
		return
	}
	if js.Choices() || js.QOS != a.j.Spec.QOS || !a.x.Sure() || a.x.Rank(js) > 0 {
		js.Queue.Array = a.j.Spec.Queue.Array
		sure, ok := scheduler.Confirm(a.v.State, a.now, a.j.UID, js, a.opt)
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

// changes lists the ways in which this job could ask for less.
func (a *advisor) changes() []change {
	js, sz := a.j.Spec, &a.j.Spec.Size
	var out []change
	limit := js.Time.Limit
	if p := a.v.State.Parts.Find(a.j.Partition()); limit == 0 && p != nil {
		limit = p.Spec.DefaultTime
	}
	minutes := int64(limit/spec.Minute) - 1
	if a.room > 0 {
		minutes = min(minutes, int64(a.room/spec.Minute))
	}
	if limit != spec.Infinite && minutes > 0 {
		out = append(out, change{minutes, func(js *spec.JobSpec, v int64) string {
			js.Time.Limit = spec.Span(v) * spec.Minute
			return "--time=" + format.Duration(v*60)
		}})
	}
	out = append(out, a.smaller()...)
	for i, list := range [...][]spec.Count{sz.PerNode, sz.PerJob, sz.PerTask} {
		for k, c := range list {
			if c.N > 1 {
				out = append(out, fewerGRES(i, k, c))
			}
			if c.Type != "" && len(list) == 1 {
				out = append(out, anyType(i, c))
			}
		}
	}
	for _, drop := range [...]struct {
		used bool
		text string
		make func(js *spec.JobSpec)
	}{
		{js.Place.Nodes != "", "without --nodelist", func(js *spec.JobSpec) { js.Place.Nodes = "" }},
		{js.Place.Exclude != "", "without --exclude", func(js *spec.JobSpec) { js.Place.Exclude = "" }},
		{js.Place.Constraint != "", "without --constraint", func(js *spec.JobSpec) { js.Place.Constraint = "" }},
		{js.Place.Segment > 0, "without --segment", func(js *spec.JobSpec) { js.Place.Segment, js.Place.ApartSegments = 0, false }},
		{js.Place.Switches > 0, "without --switches", func(js *spec.JobSpec) { js.Place.Switches = 0 }},
		{js.Place.Contiguous, "without --contiguous", func(js *spec.JobSpec) { js.Place.Contiguous = false }},
		{js.Place.Sharing >= spec.Exclusive && js.Place.Sharing <= spec.ExclusiveTopo, "without --exclusive", func(js *spec.JobSpec) { js.Place.Sharing = spec.ShareDefault }},
	} {
		if drop.used {
			out = append(out, change{0, func(js *spec.JobSpec, _ int64) string {
				drop.make(js)
				return drop.text
			}})
		}
	}
	return append(append(out, a.elsewhere()...), a.otherQOS()...)
}

// otherQOS are the further QOS that the user may ask for, up to a handful.
func (a *advisor) otherQOS() []change {
	var out []change
	for _, name := range scheduler.QOSToTry(a.v.State, a.j.Assoc) {
		if name == a.j.Spec.QOS || slices.Contains(a.j.Spec.QOSes, name) || len(out) == maxAdvice {
			continue
		}
		out = append(out, change{0, func(js *spec.JobSpec, _ int64) string {
			js.QOS, js.QOSes = name, nil
			return "--qos=" + name
		}})
	}
	return out
}

// smaller are changes of nodes, tasks, CPUs and memory.
func (a *advisor) smaller() []change {
	var out []change
	sz := &a.j.Spec.Size
	if n := int64(sz.MinNodes); n > 1 {
		out = append(out, change{n - 1, func(js *spec.JobSpec, v int64) string {
			js.Size.MinNodes, js.Size.MaxNodes = uint32(v), uint32(v)
			text := fmt.Sprintf("--nodes=%d", v)
			if t := int64(js.Size.Tasks); t > 0 {
				js.Size.Tasks = uint32(max(t*v/n, v))
				text += fmt.Sprintf(" --ntasks=%d", js.Size.Tasks)
			}
			return text
		}})
	}
	if n := int64(sz.Tasks); n > 1 && sz.MinNodes <= 1 {
		out = append(out, change{n - 1, func(js *spec.JobSpec, v int64) string {
			js.Size.Tasks = uint32(v)
			return fmt.Sprintf("--ntasks=%d", v)
		}})
	}
	if n := int64(sz.CPUsPerTask); n > 1 {
		out = append(out, change{n - 1, func(js *spec.JobSpec, v int64) string {
			js.Size.CPUsPerTask = uint32(v)
			return fmt.Sprintf("--cpus-per-task=%d", v)
		}})
	}
	for _, m := range [...]struct {
		name string
		mib  int64
		to   func(js *spec.JobSpec) *int64
	}{
		{"--mem", cmp.Or(sz.MemPerNode, a.allMemory()), func(js *spec.JobSpec) *int64 {
			js.Size.AllMem = false
			return &js.Size.MemPerNode
		}},
		{"--mem-per-cpu", sz.MemPerCPU, func(js *spec.JobSpec) *int64 { return &js.Size.MemPerCPU }},
		{"--mem-per-gpu", sz.MemPerGPU, func(js *spec.JobSpec) *int64 { return &js.Size.MemPerGPU }},
	} {
		step := int64(64) // MiB; large requests go in GiB
		if m.mib > 16<<10 {
			step = 1 << 10
		}
		if steps := (m.mib - 1) / step; steps > 0 {
			out = append(out, change{steps, func(js *spec.JobSpec, v int64) string {
				*m.to(js) = v * step
				return m.name + "=" + format.TRESMemory(v*step)
			}})
		}
	}
	return out
}

// allMemory is the most that the memory of a whole node can be, for a job that
// gets it since it asks for none where there is no default, or for all; else 0.
func (a *advisor) allMemory() (most int64) {
	p := a.v.State.Parts.Find(a.j.Partition())
	if p == nil {
		return 0
	}
	if d := place.Resolve(a.v.State.Config, p.Spec, a.j.Spec); !d.Memory || d.MemPerNode >= 0 {
		return 0
	}
	for id := p.Nodes.Next(0); id >= 0; id = p.Nodes.Next(id + 1) {
		if n := a.v.State.NodeByID(spec.NodeID(id)); n != nil {
			most = max(most, n.Mem)
		}
	}
	return most
}

// fewerGRES asks for less of one entry of a list: --gres, --gpus or
// --gpus-per-task.
func fewerGRES(list, entry int, c spec.Count) change {
	return change{c.N - 1, func(js *spec.JobSpec, v int64) string {
		to, option := listOf(js, list, c.Name)
		(*to)[entry].N = v
		if c.Type != "" {
			option += c.Type + ":"
		}
		return fmt.Sprintf("%s%d", option, v)
	}}
}

// anyType asks for as many of the only entry of a list, of whatever type.
func anyType(list int, c spec.Count) change {
	return change{0, func(js *spec.JobSpec, _ int64) string {
		to, option := listOf(js, list, c.Name)
		(*to)[0].Type = ""
		return fmt.Sprintf("%s%d", option, c.N)
	}}
}

// listOf is one of the lists of what a request asks for, to be changed, and the
// option that it comes from.
func listOf(js *spec.JobSpec, list int, name string) (to *[]spec.Count, option string) {
	switch list {
	case 1:
		to, option = &js.Size.PerJob, "--gpus="
	case 2:
		to, option = &js.Size.PerTask, "--gpus-per-task="
	default:
		to, option = &js.Size.PerNode, "--gres="+name+":"
	}
	*to = slices.Clone(*to)
	return to, option
}

// elsewhere are other partitions, up to a handful.
func (a *advisor) elsewhere() []change {
	var out []change
	for i := range a.v.State.Parts.List {
		p := a.v.State.Parts.List[i].Spec
		if slices.Contains(a.j.Spec.Partitions, p.Name) || p.Hidden || len(out) == maxAdvice || p.State == spec.PartitionDrain {
			continue
		}
		out = append(out, change{0, func(js *spec.JobSpec, _ int64) string {
			js.Partitions = []string{p.Name}
			return "--partition=" + p.Name
		}})
	}
	return out
}
