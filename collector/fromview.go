package collector

import (
	"cmp"
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
func fromView(
	snapshot *view.View,
	live func() map[string]Live,
	version string,
	now spec.Instant,
) *picture {
	cluster := snapshot.State
	began := time.Now()
	p := newPicture(cluster.ClusterName, max(snapshot.Published, cluster.At))
	builder := &viewBuilder{
		p:     p,
		st:    cluster,
		now:   max(now, cluster.At),
		index: map[spec.NodeID]int32{},
		memo:  map[*spec.JobSpec]string{},
	}
	builder.addJobs(snapshot.Plan)
	var beats map[string]Live
	if live != nil {
		beats = live()
	}
	builder.addNodes(snapshot.Plan, beats)
	builder.addPartitions()
	builder.addLicences()
	builder.addReservations(builder.now)
	p.sched = schedOf(snapshot)
	p.sched.Agents = int64(len(beats))
	p.shares = sharesOf(cluster)
	p.made = making{
		kind:    "muster",
		binary:  "musterd",
		version: version,
		parts:   []part{{name: "view", seconds: time.Since(began).Seconds()}},
	}
	return p.sortRows()
}

type viewBuilder struct {
	p     *picture
	st    *state.State
	now   spec.Instant
	index map[spec.NodeID]int32
	memo  map[*spec.JobSpec]string // GPU type asked for
	row   jobRow
	eff   jobEff
	named []string // by node index: partitions
	held  licenceUse
}

// redrawAt notes an instant from which the picture is no longer true.
func (b *viewBuilder) redrawAt(edge spec.Instant) {
	if edge > b.now && (b.p.until == 0 || edge < b.p.until) {
		b.p.until = edge
	}
}

func (b *viewBuilder) addLicences() {
	for _, count := range b.st.LicenseTotals() {
		used := int64(0)
		for _, held := range b.st.Licenses {
			if held.Name == count.Name {
				used = held.N
			}
		}
		b.p.lics = append(b.p.lics, licenceRow{Name: count.Name, Total: count.N, Used: used})
	}
}

func (b *viewBuilder) addJobs(plan *view.Plan) {
	b.st.Jobs.Range(func(_ uint64, job *state.Job) bool {
		b.fillRow(job)
		b.comparePromise(job, plan)
		b.p.addJob(&b.row)
		b.p.exemplars.addJob(job)
		return true
	})
	b.p.exemplars.nameJobs(b.st)
}

// comparePromise compares the start that a pending job was first promised with the
// time and with the plan. A job that the plan does not name has not slipped: the
// promise may be newer than the plan, which may also be cut short.
func (b *viewBuilder) comparePromise(job *state.Job, plan *view.Plan) {
	if job.State != spec.Pending || job.Promised == 0 {
		return
	}
	due := spec.PromiseDue(job.Promised)
	missed := due + 1
	b.redrawAt(missed)
	if b.now >= missed {
		b.row.Overdue = true
		return
	}
	b.row.Promised = true
	planned := plan.Of(job.UID)
	b.row.Slipped = planned != nil && planned.Start > due
}

// fillRow turns a record into a row.
func (b *viewBuilder) fillRow(job *state.Job) {
	if _, ok := b.p.userNames[job.Spec.UID]; !ok {
		b.p.userNames[job.Spec.UID] = job.Spec.User
	}
	row := &b.row
	*row = jobRow{
		Base:      job.State,
		Held:      job.Hold != spec.NotHeld && job.State == spec.Pending,
		Partition: job.Partition(),
		Account:   job.Spec.Account,
		User:      job.Spec.User,
		QOS:       job.QOS(),
		Reason:    string(job.Reason.Code),
		Count:     job.Count(),
		Eligible:  job.Eligible,
	}
	holds := job.HoldsNodes()
	row.Completing = holds && (job.State.Terminal() || job.Ending != nil)
	if job.Ending != nil && job.State.Active() {
		row.Base = endOf(job.Ending.Cause)
	}
	if job.State == spec.Pending && job.Restarts > 0 {
		row.Flags |= jobRequeued
	}
	if job.Configuring() {
		row.Flags |= jobConfiguring | jobPowerUp
	}
	tres := &job.Req
	if job.Alloc != nil && (holds || job.State.Terminal()) {
		tres = &job.Alloc.TRES
		row.Nodes = int64(len(job.Alloc.Nodes))
	} else {
		row.Nodes = max(int64(job.Spec.Size.MinNodes), 1)
	}
	row.CPUs = tres.CPU
	row.Mem = tres.Mem
	row.GPUs = tres.Get("gres/gpu")
	if job.State.Active() && job.Alloc != nil && job.Alloc.Reservation != "" {
		for _, count := range job.Alloc.Licenses {
			b.held.addReserved(job.Alloc.Reservation, count.Name, count.N)
		}
	}
	if job.State == spec.Pending && row.GPUs > 0 {
		row.GPUType = b.gpuType(job.Spec)
	}
	if job.State.Terminal() && job.Started != 0 && job.Alloc != nil {
		wall := float64(job.Ended.Sub(job.Started)) / float64(spec.Second)
		b.eff = jobEff{
			cpuUsed:  toSeconds(job.Usage.UserCPU + job.Usage.SystemCPU),
			cpuGiven: wall * float64(tres.CPU),
			memUsed: float64(
				job.Usage.PeakRSS,
			),
			memGiven: float64(tres.Mem) * (1 << 20) / float64(max(len(job.Alloc.Nodes), 1)),
		}
		row.Eff = &b.eff
	}
}

// endOf is the state that a job being ended will have.
func endOf(cause event.EndCause) spec.JobState {
	switch cause {
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
func (b *viewBuilder) gpuType(jobSpec *spec.JobSpec) string {
	for _, list := range [...][]spec.Count{jobSpec.Size.PerNode, jobSpec.Size.PerJob, jobSpec.Size.PerTask, jobSpec.Size.PerSocket} {
		for _, count := range list {
			if count.Name == "gpu" && count.Type != "" {
				return count.Type
			}
		}
	}
	return ""
}

func (b *viewBuilder) addNodes(plan *view.Plan, beats map[string]Live) {
	planned := map[spec.NodeID]bool{}
	if plan != nil {
		for i := range plan.Jobs {
			for _, nodeID := range plan.Jobs[i].Nodes {
				planned[nodeID] = true
			}
		}
	}
	b.p.nodes = make([]nodeRow, 0, b.st.Nodes.Len())
	b.st.Nodes.Range(func(_ uint64, node *state.Node) bool {
		b.index[node.ID] = int32(len(b.p.nodes))
		row := nodeRow{
			Name:        node.Spec.Name,
			Flags:       flagsOf(b.st, node, planned[node.ID]),
			Busy:        len(node.Jobs) > 0,
			Reason:      cmp.Or(node.Reason, node.Invalid),
			ReasonAt:    node.ReasonAt,
			CPUs:        node.Spec.CPUs,
			CPUsForJobs: node.CPUs,
			CPUAlloc:    int64(node.UsedCPU.Count()),
			Mem:         node.Spec.Mem,
			MemForJobs:  node.Mem,
			MemAlloc:    node.UsedMem,
			MemFree:     -1,
			GPUs: int64(
				len(node.GPUs),
			),
			GPUAlloc: int64(node.UsedGPU.Count()),
			Features: strings.Join(node.Spec.Features, ","),
		}
		if node.Lost {
			row.LostAt = node.LostAt
		}
		if node.Inv != nil {
			row.Addr = node.Inv.MetricsAddr
		}
		if live, ok := beats[row.Name]; ok {
			row.MemFree = live.MemFree
		}
		row.GRES = gresOf(node)
		row.Faults = faultsOf(node)
		row.Warned = warnedOf(b.st, node)
		row.XIDs = xidsOf(node)
		row.GPUsLost = lostGPUs(node)
		row.Incomplete = cmp.Or(node.Invalid, node.Shortfall())
		b.p.nodes = append(b.p.nodes, row)
		return true
	})
}

func flagsOf(cluster *state.State, node *state.Node, planned bool) nodeFlags {
	var flags nodeFlags
	switch {
	case node.Lost || node.Admin == event.NodeDown:
		flags = nodeDown
	case node.Inv == nil && !node.Asleep():
		flags = nodeUnknown
	case len(node.Jobs) > 0 && node.FreeCPUs() <= 0:
		flags = nodeAlloc
	case len(node.Jobs) > 0:
		flags = nodeMixed
	default:
		flags = nodeIdle
		if planned {
			flags |= nodePlanned
		}
	}
	waitsForReboot := node.Reboot != nil && node.Reboot.ASAP && !node.Reboot.Issued
	waitsForPowerDown := node.Power == event.PowerDownASAP
	if node.Admin == event.NodeDrain || node.Invalid != "" || waitsForPowerDown || waitsForReboot {
		flags |= nodeDrain
	}
	if node.Admin == event.NodeFail {
		flags |= nodeFail
	}
	if node.Invalid != "" {
		flags |= nodeInvalid
	}
	if node.Lost || (node.Inv == nil && !node.Asleep()) {
		flags |= nodeNoResp
	}
	flags |= powerFlags(node)
	for _, uid := range node.Jobs {
		if job := cluster.Job(uid); job != nil && (job.State.Terminal() || job.Ending != nil) {
			flags |= nodeCompleting
			break
		}
	}
	return flags
}

// powerFlags are the flags of a node's power and reboot.
func powerFlags(node *state.Node) nodeFlags {
	flags := [...]nodeFlags{event.PowerDownWish: nodePowerDown, event.PowerDownASAP: nodePowerDown, event.PoweringDown: nodePoweringDown,
		event.PoweredDown: nodePoweredDown, event.PowerUpWish: nodePoweredDown | nodePowerUp, event.PoweringUp: nodePoweringUp}[node.Power]
	if node.Spec.State == "CLOUD" {
		flags |= nodeCloud
	}
	switch {
	case node.Reboot == nil:
	case node.Reboot.Issued:
		flags |= nodeRebootIssued
	default:
		flags |= nodeRebootRequested
	}
	return flags
}

// gresOf lists a node's generic resources by name and type.
func gresOf(node *state.Node) []gresRow {
	var rows []gresRow
	for i := range node.GPUs {
		used := int64(0)
		if node.UsedGPU.Has(i) {
			used = 1
		}
		rows = addGRES(rows, "gpu", node.GPUs[i].Type, 1, used)
		if node.ShareUsed(i) > 0 {
			at := slices.IndexFunc(
				rows,
				func(g gresRow) bool { return g.Name == "gpu" && g.Type == node.GPUs[i].Type },
			)
			rows[at].Shared++
		}
	}
	rows = addLost(rows, node)
	for _, count := range node.GRES {
		rows = addGRES(rows, count.Name, count.Type, count.N, 0)
	}
	for _, count := range node.UsedGRES {
		rows = addGRES(rows, count.Name, count.Type, 0, count.N)
	}
	return rows
}

// lostGPUs is how many GPUs a node lacks of those that its configuration names.
// They were bought: a count of GPUs that leaves them out hides the loss.
func lostGPUs(node *state.Node) int64 {
	if node.Inv == nil {
		return 0 // nobody knows yet: the configured ones are expected
	}
	return max(node.Spec.NodeTRES().Get("gres/gpu")-int64(len(node.GPUs)), 0)
}

// addLost adds the lost GPUs of a node under the type that they were configured
// with.
func addLost(list []gresRow, node *state.Node) []gresRow {
	left := lostGPUs(node)
	if left == 0 {
		return list
	}
	for i := range node.Spec.GRES {
		gres := &node.Spec.GRES[i]
		if gres.Name != "gpu" {
			continue
		}
		typ := gres.Type
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
		lost := min(max(gres.N-present, 0), left)
		left -= lost
		list = addGRES(list, "gpu", typ, 0, 0)
		at := slices.IndexFunc(
			list,
			func(r gresRow) bool { return r.Name == "gpu" && r.Type == typ },
		)
		list[at].Lost += lost
	}
	return list
}

// warnedOf lists the GPUs of a node whose job's user was warned. The agent says
// again how long nobody used one when that has doubled; what it has not said
// again by then is in use, or given back.
func warnedOf(cluster *state.State, node *state.Node) []warnedRow {
	var rows []warnedRow
	for i := range node.Faults {
		fault := &node.Faults[i]
		if !fault.Warned {
			continue
		}
		if job := cluster.Job(fault.Job); job != nil && job.Attempt == fault.Attempt &&
			job.State.Active() {
			rows = append(
				rows,
				warnedRow{
					Job:       uint64(job.ID),
					User:      job.Spec.User,
					Account:   job.Spec.Account,
					Partition: job.Partition(),
					UUID:      fault.UUID,
					Idle:      fault.Idle,
					At:        fault.At,
				},
			)
		}
	}
	return rows
}

// isCurrent tells whether a warning still holds.
func (w *warnedRow) isCurrent(
	now spec.Instant,
) bool {
	return now.Sub(w.At) <= w.Idle+2*spec.Minute
}

// xidsOf lists the driver errors of a node's GPUs.
func xidsOf(node *state.Node) []xidRow {
	var rows []xidRow
	for i := range node.Faults {
		fault := &node.Faults[i]
		if fault.Kind != spec.GPUXID {
			continue
		}
		row := xidRow{
			UUID:  fault.UUID,
			XID:   fault.XID,
			Class: fault.Class,
			Count: fault.Times(),
			At:    fault.At,
			User:  fault.User,
		}
		if fault.JobID != 0 {
			row.Job = strconv.FormatUint(uint64(fault.JobID), 10)
		}
		for k := range node.GPUs {
			if node.GPUs[k].UUID == fault.UUID {
				row.Index = strconv.FormatUint(uint64(node.GPUs[k].Index), 10)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// faultsOf sums what is remembered of a node's GPUs.
func faultsOf(node *state.Node) []state.FaultTotals {
	var totalses []state.FaultTotals
	for i := range node.Faults {
		fault := &node.Faults[i]
		k := slices.IndexFunc(
			totalses,
			func(t state.FaultTotals) bool { return t.Kind == fault.Kind && t.Class == fault.Class },
		)
		if k < 0 {
			k = len(totalses)
			totalses = append(totalses, state.FaultTotals{Kind: fault.Kind, Class: fault.Class})
		}
		totalses[k].Count += fault.Times()
	}
	return totalses
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

func (b *viewBuilder) addPartitions() {
	b.p.parts = make([]partRow, len(b.st.Parts.List))
	for i := range b.st.Parts.List {
		src := &b.st.Parts.List[i]
		row := &b.p.parts[i]
		row.Name, row.nodes = src.Spec.Name, make([]int32, 0, src.Nodes.Count())
		for nodeID := src.Nodes.Next(0); nodeID >= 0; nodeID = src.Nodes.Next(nodeID + 1) {
			if k, ok := b.index[spec.NodeID(nodeID)]; ok {
				row.nodes = append(row.nodes, k)
				b.p.nodes[k].Parts = append(b.p.nodes[k].Parts, row.Name)
			}
		}
	}
}

// schedOf maps the controller's figures to what Slurm's sdiag prints. A pass
// of Muster both starts jobs and plans the others, so the same figures answer
// for the main scheduler and for backfill.
func schedOf(snapshot *view.View) schedRow {
	totals, pass := &snapshot.State.Totals, &snapshot.Pass
	row := schedRow{
		ServerQueue:     snapshot.Writer.QueueLen,
		DBDQueue:        int64(snapshot.State.Seq - min(snapshot.AccountedSeq, snapshot.State.Seq)),
		Cycles:          pass.Passes,
		CycleDepth:      pass.DepthTotal,
		CycleLast:       pass.Last,
		CycleMax:        pass.Max,
		CycleTotal:      pass.Total,
		CycleQueue:      pass.Queue,
		BFCycles:        pass.Passes,
		BFLast:          pass.Last,
		BFMax:           pass.Max,
		BFTotal:         pass.Total,
		BFDepthTotal:    pass.DepthTotal,
		BFTryTotal:      pass.DepthTotal,
		BFDepthLast:     pass.Depth,
		BFTryLast:       pass.Depth,
		BFQueue:         pass.Queue,
		BFTable:         pass.Planned,
		BFQueueTotal:    pass.QueueTotal,
		BFTableTotal:    pass.PlannedTotal,
		BFWhen:          pass.LastAt,
		Backfilled:      totals.Backfilled,
		BackfilledCycle: totals.Backfilled,
		Submitted:       totals.Submitted,
		Started:         totals.Started,
		Completed:       totals.Ended[spec.Completed],
		Cancelled:       totals.Ended[spec.Cancelled],
		Failed:          totals.Ended[spec.Failed] + totals.Ended[spec.TimedOut] + totals.Ended[spec.NodeFailed] + totals.Ended[spec.OutOfMemory] + totals.Ended[spec.BootFailed] + totals.Ended[spec.DeadlineMissed],
		Latency:         snapshot.Writer.AppendLast,
		StatesAt:        snapshot.State.At,
		Since:           snapshot.State.Created,
	}
	row.BFExits = map[string]uint64{
		"end":           pass.ExitEnd,
		"max_job_start": pass.ExitStarts,
		"max_job_test":  pass.ExitDepth,
	}
	row.Exits = map[string]uint64{
		"end":           pass.ExitEnd,
		"max_job_start": pass.ExitStarts,
		"max_depth":     pass.ExitDepth,
	}
	return row
}

// sharesOf lists the associations with what they are entitled to and what they
// have used, as sshare shows them: one row for each account and user.
func sharesOf(cluster *state.State) []shareRow {
	tree := fairshare.Of(cluster)
	part := func(n uint64) float64 { return float64(n) / float64(fixed.One) }
	rows := make([]shareRow, 0, len(tree.Shares))
	for i := range tree.Shares {
		share := &tree.Shares[i]
		if share.Assoc.Partition != "" {
			continue
		}
		row := shareRow{
			Account:     share.Assoc.Account,
			User:        share.Assoc.User,
			RawShares:   share.Shares,
			RawUsage:    float64(share.Raw.Hi),
			NormUsage:   part(share.Used),
			EffectUsage: part(share.Effect),
			Factor:      part(share.Factor),
			HasFactor:   share.User || !tree.Fair,
			HasUsage:    true,
		}
		if share.Up >= 0 && share.Siblings > 0 {
			row.NormShares = float64(share.Shares) / float64(share.Siblings)
		}
		if share.Up >= 0 && !tree.Fair {
			row.NormShares = part(share.Norm)
		}
		rows = append(rows, row)
	}
	return rows
}

// addReservations shows those of the state, and marks the nodes that one holds now.
func (b *viewBuilder) addReservations(now spec.Instant) {
	if len(b.st.Reservations) == 0 {
		return
	}
	byName := make(map[string]int32, len(b.p.nodes))
	for i := range b.p.nodes {
		byName[b.p.nodes[i].Name] = int32(i)
	}
	for i := range b.st.Reservations {
		reservation := &b.st.Reservations[i]
		row := reservationRow{
			Name:      reservation.Name,
			State:     "INACTIVE",
			Nodes:     strings.Join(reservation.Nodes, ","),
			Partition: reservation.Part,
			Flags:     reservation.Flags.String(),
			Users:     strings.Join(reservation.Users, ","),
			Accounts: strings.Join(
				reservation.Accounts,
				",",
			),
			Start:     reservation.Start,
			End:       reservation.End,
			NodeCount: int64(len(reservation.Nodes)),
			Cores:     reservation.TRES.CPU,
		}
		active := reservation.Start <= now && now < reservation.End
		for _, edge := range [...]spec.Instant{reservation.Start, reservation.End} {
			b.redrawAt(edge)
		}
		if active {
			row.State = "ACTIVE"
			for _, count := range reservation.Licenses {
				b.p.reserveLicence(reservation.Name, count.Name, count.N, b.held)
			}
		}
		for _, name := range reservation.Nodes {
			k, ok := byName[name]
			if !ok {
				continue
			}
			row.members = append(row.members, k)
			if active && reservation.Cores == nil {
				b.p.nodes[k].Flags |= nodeResv
				if reservation.Flags.Has(spec.ResvMaint) {
					b.p.nodes[k].Flags |= nodeMaint
				}
			}
		}
		b.p.resvs = append(b.p.resvs, row)
	}
}
