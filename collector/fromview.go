package collector

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler/fairshare"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/fixed"
)

// fromView draws the picture of a published view as it is now.
func fromView(v *view.View, live func() map[string]Live, version string, now spec.Instant) *picture {
	st := v.State
	began := time.Now()
	p := newPicture(st.ClusterName, max(v.Published, st.At))
	b := &viewBuilder{p: p, st: st, index: map[spec.NodeID]int32{}, memo: map[*spec.JobSpec]string{}}
	b.jobs()
	var beats map[string]Live
	if live != nil {
		beats = live()
	}
	b.nodes(v.Plan, beats)
	b.parts()
	b.licences()
	b.reservations(max(now, st.At))
	p.sched = schedOf(v)
	p.sched.Agents = int64(len(beats))
	p.shares = sharesOf(st)
	p.made = making{kind: "muster", binary: "musterd", version: version, parts: []part{{name: "view", seconds: time.Since(began).Seconds()}}}
	return p.sortRows()
}

type viewBuilder struct {
	p     *picture
	st    *state.State
	index map[spec.NodeID]int32
	memo  map[*spec.JobSpec]string // GPU type asked for
	row   jobRow
	eff   jobEff
	named []string // by node index: partitions
	held  licenceUse
}

func (b *viewBuilder) licences() {
	for _, c := range b.st.LicenseTotals() {
		used := int64(0)
		for _, u := range b.st.Licenses {
			if u.Name == c.Name {
				used = u.N
			}
		}
		b.p.lics = append(b.p.lics, licenceRow{Name: c.Name, Total: c.N, Used: used})
	}
}

func (b *viewBuilder) jobs() {
	b.st.Jobs.Range(func(_ uint64, j *state.Job) bool {
		b.fill(j)
		b.p.addJob(&b.row)
		return true
	})
}

// fill turns a record into a row.
func (b *viewBuilder) fill(j *state.Job) {
	if _, ok := b.p.userNames[j.Spec.UID]; !ok {
		b.p.userNames[j.Spec.UID] = j.Spec.User
	}
	r := &b.row
	*r = jobRow{Base: j.State, Held: j.Hold != spec.NotHeld && j.State == spec.Pending, Partition: j.Partition(), Account: j.Spec.Account, User: j.Spec.User,
		QOS: j.QOS(), Reason: string(j.Reason.Code), Count: j.Count(), Eligible: j.Eligible}
	holds := j.HoldsNodes()
	r.Completing = holds && (j.State.Terminal() || j.Ending != nil)
	if j.Ending != nil && j.State.Active() {
		r.Base = endOf(j.Ending.Cause)
	}
	if j.State == spec.Pending && j.Restarts > 0 {
		r.Flags |= jobRequeued
	}
	if j.Configuring() {
		r.Flags |= jobConfiguring | jobPowerUp
	}
	t := &j.Req
	if j.Alloc != nil && (holds || j.State.Terminal()) {
		t = &j.Alloc.TRES
		r.Nodes = int64(len(j.Alloc.Nodes))
	} else {
		r.Nodes = max(int64(j.Spec.Size.MinNodes), 1)
	}
	r.CPUs, r.Mem, r.GPUs = t.CPU, t.Mem, t.Get("gres/gpu")
	if j.State.Active() && j.Alloc != nil && j.Alloc.Reservation != "" {
		for _, c := range j.Alloc.Licenses {
			b.held.addReserved(j.Alloc.Reservation, c.Name, c.N)
		}
	}
	if j.State == spec.Pending && r.GPUs > 0 {
		r.GPUType = b.gpuType(j.Spec)
	}
	if j.State.Terminal() && j.Started != 0 && j.Alloc != nil {
		wall := float64(j.Ended.Sub(j.Started)) / float64(spec.Second)
		b.eff = jobEff{cpuUsed: toSeconds(j.Usage.UserCPU + j.Usage.SystemCPU), cpuGiven: wall * float64(t.CPU),
			memUsed: float64(j.Usage.PeakRSS), memGiven: float64(t.Mem) * (1 << 20) / float64(max(len(j.Alloc.Nodes), 1))}
		r.Eff = &b.eff
	}
}

// endOf is the state that a job being ended will have.
func endOf(c event.EndCause) spec.JobState {
	switch c {
	case event.EndTimeLimit:
		return spec.TimedOut
	case event.EndPreempt:
		return spec.Preempted
	case event.EndNodeLost:
		return spec.NodeFailed
	case event.EndLaunchFailed:
		return spec.Failed
	case event.EndBoot:
		return spec.BootFailed
	case event.EndDeadline:
		return spec.DeadlineMissed
	case event.EndOutOfMemory:
		return spec.OutOfMemory
	case event.EndCancel, event.EndRequeue, event.EndLeader:
	}
	return spec.Cancelled
}

// gpuType is the type of GPU that a job asks for; empty for any.
func (b *viewBuilder) gpuType(js *spec.JobSpec) string {
	for _, list := range [...][]spec.Count{js.Size.PerNode, js.Size.PerJob, js.Size.PerTask, js.Size.PerSocket} {
		for _, c := range list {
			if c.Name == "gpu" && c.Type != "" {
				return c.Type
			}
		}
	}
	return ""
}

func (b *viewBuilder) nodes(plan *view.Plan, beats map[string]Live) {
	planned := map[spec.NodeID]bool{}
	if plan != nil {
		for i := range plan.Jobs {
			for _, id := range plan.Jobs[i].Nodes {
				planned[id] = true
			}
		}
	}
	b.p.nodes = make([]nodeRow, 0, b.st.Nodes.Len())
	b.st.Nodes.Range(func(_ uint64, n *state.Node) bool {
		b.index[n.ID] = int32(len(b.p.nodes))
		row := nodeRow{Name: n.Spec.Name, Flags: flagsOf(b.st, n, planned[n.ID]), Busy: len(n.Jobs) > 0, Reason: n.Reason, ReasonAt: n.ReasonAt,
			CPUs: n.Spec.CPUs, CPUsForJobs: n.CPUs, CPUAlloc: int64(n.UsedCPU.Count()), Mem: n.Spec.Mem, MemForJobs: n.Mem, MemAlloc: n.UsedMem, MemFree: -1,
			GPUs: int64(len(n.GPUs)), GPUAlloc: int64(n.UsedGPU.Count()), Features: strings.Join(n.Spec.Features, ",")}
		if n.Lost {
			row.LostAt = n.LostAt
		}
		if n.Inv != nil {
			row.Addr = n.Inv.MetricsAddr
		}
		if l, ok := beats[row.Name]; ok {
			row.MemFree = l.MemFree
		}
		row.GRES, row.Faults, row.Warned = gresOf(n), faultsOf(n), warnedOf(b.st, n)
		row.XIDs = xidsOf(n)
		row.GPUsLost = lostGPUs(n)
		b.p.nodes = append(b.p.nodes, row)
		return true
	})
}

func flagsOf(st *state.State, n *state.Node, planned bool) nodeFlags {
	var f nodeFlags
	switch {
	case n.Lost || n.Admin == event.NodeDown:
		f = nodeDown
	case n.Inv == nil && !n.Asleep():
		f = nodeUnknown
	case len(n.Jobs) > 0 && n.FreeCPUs() <= 0:
		f = nodeAlloc
	case len(n.Jobs) > 0:
		f = nodeMixed
	default:
		f = nodeIdle
		if planned {
			f |= nodePlanned
		}
	}
	if n.Admin == event.NodeDrain || n.Invalid != "" || n.Power == event.PowerDownASAP || (n.Reboot != nil && n.Reboot.ASAP && !n.Reboot.Issued) {
		f |= nodeDrain
	}
	if n.Admin == event.NodeFail {
		f |= nodeFail
	}
	if n.Invalid != "" {
		f |= nodeInvalid
	}
	if n.Lost || (n.Inv == nil && !n.Asleep()) {
		f |= nodeNoResp
	}
	f |= powerFlags(n)
	for _, uid := range n.Jobs {
		if j := st.Job(uid); j != nil && (j.State.Terminal() || j.Ending != nil) {
			f |= nodeCompleting
			break
		}
	}
	return f
}

// powerFlags are the flags of a node's power and reboot.
func powerFlags(n *state.Node) nodeFlags {
	f := [...]nodeFlags{event.PowerDownWish: nodePowerDown, event.PowerDownASAP: nodePowerDown, event.PoweringDown: nodePoweringDown,
		event.PoweredDown: nodePoweredDown, event.PowerUpWish: nodePoweredDown | nodePowerUp, event.PoweringUp: nodePoweringUp}[n.Power]
	if n.Spec.State == "CLOUD" {
		f |= nodeCloud
	}
	switch {
	case n.Reboot == nil:
	case n.Reboot.Issued:
		f |= nodeRebootIssued
	default:
		f |= nodeRebootRequested
	}
	return f
}

// gresOf lists a node's generic resources by name and type.
func gresOf(n *state.Node) []gresRow {
	var out []gresRow
	for i := range n.GPUs {
		used := int64(0)
		if n.UsedGPU.Has(i) {
			used = 1
		}
		out = addGRES(out, "gpu", n.GPUs[i].Type, 1, used)
		if n.ShareUsed(i) > 0 {
			at := slices.IndexFunc(out, func(g gresRow) bool { return g.Name == "gpu" && g.Type == n.GPUs[i].Type })
			out[at].Shared++
		}
	}
	out = addLost(out, n)
	for _, c := range n.GRES {
		out = addGRES(out, c.Name, c.Type, c.N, 0)
	}
	for _, c := range n.UsedGRES {
		out = addGRES(out, c.Name, c.Type, 0, c.N)
	}
	return out
}

// lostGPUs is how many GPUs a node lacks of those that its configuration names.
// They were bought: a count of GPUs that leaves them out hides the loss.
func lostGPUs(n *state.Node) int64 {
	if n.Inv == nil {
		return 0 // nobody knows yet: the configured ones are expected
	}
	return max(n.Spec.NodeTRES().Get("gres/gpu")-int64(len(n.GPUs)), 0)
}

// addLost adds the lost GPUs of a node under the type that they were configured
// with.
func addLost(list []gresRow, n *state.Node) []gresRow {
	left := lostGPUs(n)
	if left == 0 {
		return list
	}
	for i := range n.Spec.GRES {
		g := &n.Spec.GRES[i]
		if g.Name != "gpu" {
			continue
		}
		typ := g.Type
		present := int64(0)
		for k := range list {
			if list[k].Name != "gpu" {
				continue
			}
			if typ == "" {
				typ = list[k].Type // configured without a type: as the others of the node
			}
			if list[k].Type == typ {
				present = list[k].Total
			}
		}
		lost := min(max(g.N-present, 0), left)
		left -= lost
		list = addGRES(list, "gpu", typ, 0, 0)
		at := slices.IndexFunc(list, func(r gresRow) bool { return r.Name == "gpu" && r.Type == typ })
		list[at].Lost += lost
	}
	return list
}

// warnedOf lists the GPUs of a node whose job's user was warned. The agent says
// again how long nobody used one when that has doubled; what it has not said
// again by then is in use, or given back.
func warnedOf(st *state.State, n *state.Node) []warnedRow {
	var out []warnedRow
	for i := range n.Faults {
		f := &n.Faults[i]
		if !f.Warned {
			continue
		}
		if j := st.Job(f.Job); j != nil && j.Attempt == f.Attempt && j.State.Active() {
			out = append(out, warnedRow{Job: uint64(j.ID), User: j.Spec.User, Account: j.Spec.Account, Partition: j.Partition(), UUID: f.UUID, Idle: f.Idle, At: f.At})
		}
	}
	return out
}

// isCurrent tells whether a warning still holds.
func (w *warnedRow) isCurrent(now spec.Instant) bool { return now.Sub(w.At) <= w.Idle+2*spec.Minute }

// xidsOf lists the driver errors of a node's GPUs.
func xidsOf(n *state.Node) []xidRow {
	var out []xidRow
	for i := range n.Faults {
		f := &n.Faults[i]
		if f.Kind != spec.GPUXID {
			continue
		}
		row := xidRow{UUID: f.UUID, XID: f.XID, Class: f.Class, Count: f.Times(), At: f.At, User: f.User}
		if f.JobID != 0 {
			row.Job = strconv.FormatUint(uint64(f.JobID), 10)
		}
		for k := range n.GPUs {
			if n.GPUs[k].UUID == f.UUID {
				row.Index = strconv.FormatUint(uint64(n.GPUs[k].Index), 10)
			}
		}
		out = append(out, row)
	}
	return out
}

// faultsOf sums what is remembered of a node's GPUs.
func faultsOf(n *state.Node) []state.FaultTotals {
	var out []state.FaultTotals
	for i := range n.Faults {
		f := &n.Faults[i]
		k := slices.IndexFunc(out, func(t state.FaultTotals) bool { return t.Kind == f.Kind && t.Class == f.Class })
		if k < 0 {
			k = len(out)
			out = append(out, state.FaultTotals{Kind: f.Kind, Class: f.Class})
		}
		out[k].Count += f.Times()
	}
	return out
}

func addGRES(list []gresRow, name, typ string, total, used int64) []gresRow {
	for i := range list {
		if list[i].Name == name && list[i].Type == typ {
			list[i].Total, list[i].Used = list[i].Total+total, list[i].Used+used
			return list
		}
	}
	return append(list, gresRow{Name: name, Type: typ, Total: total, Used: used})
}

func (b *viewBuilder) parts() {
	b.p.parts = make([]partRow, len(b.st.Parts.List))
	for i := range b.st.Parts.List {
		src := &b.st.Parts.List[i]
		row := &b.p.parts[i]
		row.Name, row.nodes = src.Spec.Name, make([]int32, 0, src.Nodes.Count())
		for id := src.Nodes.Next(0); id >= 0; id = src.Nodes.Next(id + 1) {
			if k, ok := b.index[spec.NodeID(id)]; ok {
				row.nodes = append(row.nodes, k)
				b.p.nodes[k].Parts = append(b.p.nodes[k].Parts, row.Name)
			}
		}
	}
}

// schedOf maps the controller's figures to what Slurm's sdiag prints. A pass
// of Muster both starts jobs and plans the others, so the same figures answer
// for the main scheduler and for backfill.
func schedOf(v *view.View) schedRow {
	t, ps := &v.State.Totals, &v.Pass
	r := schedRow{ServerQueue: v.Writer.QueueLen, DBDQueue: int64(v.State.Seq - min(v.AccountedSeq, v.State.Seq)),
		Cycles: ps.Passes, CycleDepth: ps.DepthTotal, CycleLast: ps.Last, CycleMax: ps.Max, CycleTotal: ps.Total, CycleQueue: ps.Queue,
		BFCycles: ps.Passes, BFLast: ps.Last, BFMax: ps.Max, BFTotal: ps.Total, BFDepthTotal: ps.DepthTotal, BFTryTotal: ps.DepthTotal,
		BFDepthLast: ps.Depth, BFTryLast: ps.Depth, BFQueue: ps.Queue, BFTable: ps.Planned, BFQueueTotal: ps.QueueTotal, BFTableTotal: ps.PlannedTotal,
		BFWhen: ps.LastAt, Backfilled: t.Backfilled, BackfilledCycle: t.Backfilled,
		Submitted: t.Submitted, Started: t.Started, Completed: t.Ended[spec.Completed], Cancelled: t.Ended[spec.Cancelled],
		Failed:  t.Ended[spec.Failed] + t.Ended[spec.TimedOut] + t.Ended[spec.NodeFailed] + t.Ended[spec.OutOfMemory] + t.Ended[spec.BootFailed] + t.Ended[spec.DeadlineMissed],
		Latency: v.Writer.AppendLast, StatesAt: v.State.At, Since: v.State.Created}
	r.BFExits = map[string]uint64{"end": ps.ExitEnd, "max_job_start": ps.ExitStarts, "max_job_test": ps.ExitDepth}
	r.Exits = map[string]uint64{"end": ps.ExitEnd, "max_job_start": ps.ExitStarts, "max_depth": ps.ExitDepth}
	return r
}

// sharesOf lists the associations with what they are entitled to and what they
// have used, as sshare shows them: one row for each account and user.
func sharesOf(st *state.State) []shareRow {
	tree := fairshare.Of(st)
	part := func(n uint64) float64 { return float64(n) / float64(fixed.One) }
	out := make([]shareRow, 0, len(tree.Shares))
	for i := range tree.Shares {
		s := &tree.Shares[i]
		if s.Assoc.Partition != "" {
			continue
		}
		row := shareRow{Account: s.Assoc.Account, User: s.Assoc.User, RawShares: s.Shares, RawUsage: float64(s.Raw.Hi), NormUsage: part(s.Used), EffectUsage: part(s.Effect),
			Factor: part(s.Factor), HasFactor: s.User || !tree.Fair, HasUsage: true}
		if s.Up >= 0 && s.Siblings > 0 {
			row.NormShares = float64(s.Shares) / float64(s.Siblings)
		}
		if s.Up >= 0 && !tree.Fair {
			row.NormShares = part(s.Norm)
		}
		out = append(out, row)
	}
	return out
}

// reservations shows those of the state, and marks the nodes that one holds now.
func (b *viewBuilder) reservations(now spec.Instant) {
	if len(b.st.Reservations) == 0 {
		return
	}
	byName := make(map[string]int32, len(b.p.nodes))
	for i := range b.p.nodes {
		byName[b.p.nodes[i].Name] = int32(i)
	}
	for i := range b.st.Reservations {
		r := &b.st.Reservations[i]
		row := reservationRow{Name: r.Name, State: "INACTIVE", Nodes: strings.Join(r.Nodes, ","), Partition: r.Part, Flags: r.Flags.String(), Users: strings.Join(r.Users, ","),
			Accounts: strings.Join(r.Accounts, ","), Start: r.Start, End: r.End, NodeCount: int64(len(r.Nodes)), Cores: r.TRES.CPU}
		active := r.Start <= now && now < r.End
		for _, edge := range [...]spec.Instant{r.Start, r.End} {
			if edge > now && (b.p.until == 0 || edge < b.p.until) {
				b.p.until = edge
			}
		}
		if active {
			row.State = "ACTIVE"
			for _, c := range r.Licenses {
				b.p.reserveLicence(r.Name, c.Name, c.N, b.held)
			}
		}
		for _, name := range r.Nodes {
			k, ok := byName[name]
			if !ok {
				continue
			}
			row.members = append(row.members, k)
			if active && r.Cores == nil {
				b.p.nodes[k].Flags |= nodeResv
				if r.Flags.Has(spec.ResvMaint) {
					b.p.nodes[k].Flags |= nodeMaint
				}
			}
		}
		b.p.resvs = append(b.p.resvs, row)
	}
}
