package collector

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/musterhpc/muster/collector/slurm"
	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Observed is what the exporter reads beside a Slurm.
type Observed struct {
	Latest  func() *slurm.Snapshot // nil before the first
	Now     func() spec.Instant
	Version string
}

// MountObserver serves the exporter of a Slurm: every figure of Mount that
// needs no ledger, and the dialects.
func MountObserver(mux *http.ServeMux, observed Observed) {
	var last atomic.Pointer[drawnSlurm]
	src := &Source{Version: observed.Version, Now: observed.Now}
	draw := func() *scrape {
		snap := observed.Latest()
		if snap == nil {
			return nil
		}
		latest := last.Load()
		if latest == nil || latest.snap != snap {
			latest = &drawnSlurm{snap, fromSlurm(snap)}
			last.Store(latest)
		}
		return &scrape{src: src, now: observed.Now(), pic: latest.pic}
	}
	mux.Handle("GET /metrics", pageHandler(newPage(observerFamilies(), processGatherer(), draw)))
	mountDialects(mux, draw)
}

type drawnSlurm struct {
	snap *slurm.Snapshot
	pic  *picture
}

func observerFamilies() []family {
	return slices.Concat(
		jobFamilies(),
		nodeFamilies(),
		shareFamilies(),
		guideFamilies(),
		sourceFamilies(),
		buildFamilies(),
	)
}

// sourceFamilies are about reading a Slurm; only the role observer has them.
//
//muster:table one entry for each metric
func sourceFamilies() []family {
	const src, card = "the commands of a Slurm, role observer only", "7"
	each := func(f func(p *part, s *scrape)) func(s *scrape) {
		return func(s *scrape) {
			for i := range s.pic.made.parts {
				f(&s.pic.made.parts[i], s)
			}
		}
	}
	return []family{
		{gaugeMetric("muster_source_up", "1 if the last try to read this from Slurm succeeded.", catalogue.None, src, card, "collector"),
			each(func(p *part, s *scrape) { s.sendSeries(oneIf(p.err == nil), p.name) })},
		{gaugeMetric("muster_source_age_seconds", "Age of the values shown; absent if it was never read.", catalogue.Seconds, src, card, "collector"), each(func(p *part, s *scrape) {
			if p.at != 0 {
				s.sendSeries(toSeconds(max(s.now.Sub(p.at), 0)), p.name)
			}
		})},
		{gaugeMetric("muster_source_read_seconds", "Time the last try took.", catalogue.Seconds, src, card, "collector"), each(func(p *part, s *scrape) { s.sendSeries(p.seconds, p.name) })},
	}
}

// fromSlurm draws the picture of a snapshot.
func fromSlurm(snap *slurm.Snapshot) *picture {
	pic := newPicture(snap.Cluster, 0)
	pic.made = making{kind: "slurm", binary: "slurmctld", version: snap.Version}
	for i := range snap.Sections {
		sec := &snap.Sections[i]
		row := part{name: sec.Name, seconds: sec.Took.Seconds(), err: sec.Err}
		if !sec.At.IsZero() {
			row.at = spec.Instant(sec.At.UnixNano())
			if pic.at == 0 || row.at < pic.at {
				pic.at = row.at // as old as the oldest part
			}
		}
		pic.made.parts = append(pic.made.parts, row)
	}
	for i := range snap.Commands {
		pic.made.commands = append(pic.made.commands, commandOf(&snap.Commands[i]))
	}
	var held licenceUse
	for i := range snap.Jobs {
		job := &snap.Jobs[i]
		row := slurmJob(job)
		pic.addJob(&row)
		if job.Reservation != "" && (row.Base == spec.Running || row.Base == spec.Suspended) {
			for _, licence := range job.Licenses {
				held.addReserved(job.Reservation, licence.Name, licence.N)
			}
		}
	}
	slurmNodes(pic, snap)
	for _, license := range snap.Licenses {
		pic.lics = append(
			pic.lics, licenceRow{Name: license.Name, Total: license.Total, Used: license.Used},
		)
	}
	for _, share := range snap.Shares {
		pic.shares = append(
			pic.shares,
			shareRow{
				Account:     share.Account,
				User:        share.User,
				RawShares:   share.RawShares,
				NormShares:  share.NormShares,
				RawUsage:    share.RawUsage,
				NormUsage:   share.NormUsage,
				EffectUsage: share.EffectUsage,
				Factor:      share.FairShare,
				HasFactor:   share.HasFairShare,
				HasUsage:    true,
			},
		)
	}
	slurmReservations(pic, snap, held)
	for i := range pic.lics {
		pic.lics[i].Reserved = snap.Licenses[i].Reserved // as Slurm counts it
	}
	pic.sched = slurmSched(&snap.Sched)
	return pic.sortRows()
}

func commandOf(command *slurm.Command) commands {
	h := &dto.Histogram{SampleCount: &command.Runs, SampleSum: &command.Seconds}
	bounds := slurm.Bounds()
	for i := range bounds {
		h.Bucket = append(
			h.Bucket,
			&dto.Bucket{UpperBound: &bounds[i], CumulativeCount: &command.Buckets[i]},
		)
	}
	return commands{Name: command.Name, Seconds: h, Errors: command.Errors}
}

// slurmJob makes a row of a record. Slurm 22.05 shows a flag instead of the
// base state: a completing job then counts as completed, one that configures
// as running.
func slurmJob(job *slurm.Job) jobRow {
	row := jobRow{
		Held:      job.Held,
		Partition: job.Partition,
		Account:   job.Account,
		User:      job.User,
		QOS:       job.QOS,
		Reason:    job.Reason,
		Count:     max(job.Tasks, 1),
		CPUs:      job.CPUs,
		Mem:       job.Mem,
		GPUs:      job.GPUs,
		Nodes:     job.Nodes,
		GPUType:   job.GPUType,
	}
	row.Base, _ = spec.ParseJobState(job.State)
	if job.Eligible > 0 {
		row.Eligible = spec.AtUnix(job.Eligible)
	}
	for _, f := range job.Flags {
		switch f {
		case "COMPLETING":
			row.Completing = true
		case "CONFIGURING":
			row.Flags |= jobConfiguring
		case "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED":
			row.Flags |= jobRequeued
		case "RESIZING":
			row.Flags |= jobResizing
		case "REVOKED":
			row.Flags |= jobRevoked
		case "SIGNALING":
			row.Flags |= jobSignaling
		case "STAGE_OUT":
			row.Flags |= jobStageOut
		case "POWER_UP_NODE":
			row.Flags |= jobPowerUp
		case "EXPEDITING":
			row.Flags |= jobExpediting
		}
	}
	switch {
	case row.Base != 0:
	case row.Completing:
		row.Base = spec.Completed
	case row.Flags&(jobConfiguring|jobResizing|jobSignaling|jobPowerUp) != 0:
		row.Base = spec.Running
	default:
		row.Base = spec.Pending
	}
	return row
}

// slurmNodes adds nodes and partitions.
func slurmNodes(pic *picture, snap *slurm.Snapshot) {
	index := map[string]int{}
	for _, name := range snap.Partitions {
		index[name] = len(pic.parts)
		pic.parts = append(pic.parts, partRow{Name: name})
	}
	for i := range snap.Nodes {
		node := &snap.Nodes[i]
		row := nodeRow{
			Name:        node.Name,
			Flags:       slurmFlags(node),
			Reason:      node.Reason,
			Busy:        node.CPUAlloc > 0,
			CPUs:        node.CPUs,
			CPUsForJobs: node.CPUsForJobs,
			CPUAlloc:    node.CPUAlloc,
			Mem:         node.Mem,
			MemForJobs:  node.Mem,
			MemAlloc:    node.MemAlloc,
			MemFree:     node.MemFree,
			Features:    node.Features,
			Parts:       node.Partitions,
		}
		if node.ReasonAt > 0 {
			row.ReasonAt = spec.AtUnix(node.ReasonAt)
		}
		row.GRES = slurmGRES(node.GRES, node.GRESUsed)
		for _, gres := range row.GRES {
			if gres.Name == "gpu" {
				row.GPUs, row.GPUAlloc = row.GPUs+gres.Total, row.GPUAlloc+gres.Used
			}
		}
		for _, name := range node.Partitions {
			k, ok := index[name]
			if !ok {
				k = len(pic.parts)
				index[name] = k
				pic.parts = append(pic.parts, partRow{Name: name})
			}
			pic.parts[k].nodes = append(pic.parts[k].nodes, int32(i))
		}
		if row.Flags&nodeInvalid != 0 {
			row.Incomplete = row.Reason
		}
		pic.nodes = append(pic.nodes, row)
	}
}

// slurmFlags reads a node's state words.
func slurmFlags(node *slurm.Node) nodeFlags {
	words := map[string]nodeFlags{
		"IDLE":             nodeIdle,
		"ALLOCATED":        nodeAlloc,
		"MIXED":            nodeMixed,
		"DOWN":             nodeDown,
		"UNKNOWN":          nodeUnknown,
		"FUTURE":           nodeFuture,
		"ERROR":            nodeError,
		"DRAIN":            nodeDrain,
		"FAIL":             nodeFail,
		"COMPLETING":       nodeCompleting,
		"NOT_RESPONDING":   nodeNoResp,
		"INVALID_REG":      nodeInvalid,
		"INVALID":          nodeInvalid,
		"PLANNED":          nodePlanned,
		"RESERVED":         nodeResv,
		"MAINTENANCE":      nodeMaint,
		"MAINT":            nodeMaint,
		"CLOUD":            nodeCloud,
		"BLOCKED":          nodeBlocked,
		"DYNAMIC_FUTURE":   nodeDynFuture,
		"DYNAMIC_NORM":     nodeDynNormal,
		"EXTERNAL":         nodeExternal,
		"POWER_DOWN":       nodePowerDown,
		"POWERING_DOWN":    nodePoweringDown,
		"POWERED_DOWN":     nodePoweredDown,
		"POWER_UP":         nodePowerUp,
		"POWERING_UP":      nodePoweringUp,
		"REBOOT_ISSUED":    nodeRebootIssued,
		"REBOOT_REQUESTED": nodeRebootRequested,
	}
	flags := words[node.State]
	for _, w := range node.Flags {
		flags |= words[w]
	}
	return flags
}

// slurmGRES reads "gpu:h100:8(S:0-1),nic:2" and the same of what is used, with
// "(IDX:0-3)".
func slurmGRES(total, used string) []gresRow {
	var rows []gresRow
	for i, text := range [...]string{total, used} {
		for _, entry := range splitGRES(text) {
			fields := strings.Split(entry, ":")
			n := gresCount(fields[len(fields)-1])
			if len(fields) < 2 || n < 0 {
				continue
			}
			typ := strings.Join(fields[1:len(fields)-1], ":")
			if i == 0 {
				rows = addGRES(rows, fields[0], typ, n, 0)
			} else {
				rows = addGRES(rows, fields[0], typ, 0, n)
			}
		}
	}
	return rows
}

// splitGRES cuts a list at its commas, without what stands in parentheses.
func splitGRES(s string) []string {
	var b strings.Builder
	depth := 0
	for _, char := range s {
		switch {
		case char == '(':
			depth++
		case char == ')':
			depth--
		case depth == 0:
			b.WriteRune(char)
		}
	}
	if b.Len() == 0 || b.String() == "N/A" {
		return nil
	}
	return strings.Split(b.String(), ",")
}

// gresCount reads a count with Slurm's suffixes; -1 for no count.
func gresCount(text string) int64 {
	scale := int64(1)
	if i := strings.IndexByte("KMGT", lastByte(text)); i >= 0 {
		scale, text = 1<<(10*(i+1)), text[:len(text)-1]
	}
	n := int64(0)
	for _, char := range text {
		if char < '0' || char > '9' {
			return -1
		}
		n = n*10 + int64(char-'0')
	}
	if text == "" {
		return -1
	}
	return n * scale
}

func lastByte(text string) byte {
	if text == "" {
		return 0
	}
	return text[len(text)-1]
}

// slurmReservations adds reservations; of one without a state its times tell.
func slurmReservations(pic *picture, snap *slurm.Snapshot, held licenceUse) {
	index := map[string]int32{}
	for i := range pic.nodes {
		index[pic.nodes[i].Name] = int32(i)
	}
	for _, reservation := range snap.Reservations {
		row := reservationRow{
			Name:      reservation.Name,
			State:     reservation.State,
			Nodes:     reservation.Nodes,
			Partition: reservation.Partition,
			Flags:     reservation.Flags,
			Users:     reservation.Users,
			Accounts:  reservation.Accounts,
			Start: spec.AtUnix(
				reservation.Start,
			),
			End:       spec.AtUnix(reservation.End),
			NodeCount: reservation.NodeCount,
			Cores:     reservation.Cores,
		}
		if row.State == "" {
			row.State = "INACTIVE"
			if row.Start <= pic.at && pic.at < row.End {
				row.State = "ACTIVE"
			}
		}
		if row.State == "ACTIVE" {
			for _, licence := range reservation.Licenses {
				pic.reserveLicence(reservation.Name, licence.Name, licence.N, held)
			}
		}
		if names, err := hostlist.Expand(reservation.Nodes); err == nil {
			for _, n := range names {
				if k, ok := index[n]; ok {
					row.members = append(row.members, k)
				}
			}
		}
		pic.resvs = append(pic.resvs, row)
	}
}

// slurmSched reads sdiag's figures; its times are in microseconds.
func slurmSched(sched *slurm.Sched) schedRow {
	const main, bf = "Main schedule statistics/", "Backfilling stats/"
	n := func(key string) int64 { return sched.Numbers[key] }
	u := func(key string) uint64 { return uint64(max(n(key), 0)) }
	us := func(key string) spec.Span { return spec.Span(n(key)) * spec.Span(time.Microsecond) }
	row := schedRow{
		Threads:      n("Server thread count"),
		ServerQueue:  n("Agent queue size"),
		Agents:       n("Agent count"),
		AgentThreads: n("Agent thread count"),
		DBDQueue: n(
			"DBD Agent queue size",
		),
		Submitted: u("Jobs submitted"),
		Started:   u("Jobs started"),
		Completed: u("Jobs completed"),
		Cancelled: u(
			"Jobs canceled",
		),
		Failed:    u("Jobs failed"),
		Since:     spec.AtUnix(n("Data since")),
		StatesAt:  spec.AtUnix(n("Job states ts")),
		Cycles:    u(main + "Total cycles"),
		CycleLast: us(main + "Last cycle"),
		CycleMax: us(main +
			"Max cycle"),
		CycleQueue: n(main + "Last queue length"),
		BFCycles:   u(bf + "Total cycles"),
		BFLast:     us(bf + "Last cycle"),
		BFMax: us(bf +
			"Max cycle"),
		BFDepthLast: n(bf + "Last depth cycle"),
		BFTryLast: n(
			bf + "Last depth cycle (try sched)",
		),
		BFQueue: n(bf + "Last queue length"),
		BFTable: n(bf +
			"Last table size"),
		Backfilled: u(
			bf + "Total backfilled jobs (since last slurm start)",
		),
		BackfilledCycle: u(bf +
			"Total backfilled jobs (since last stats cycle start)"),
		BackfilledHet: u(
			bf + "Total backfilled heterogeneous job components",
		),
		BFWhen: spec.AtUnix(n(bf +
			"Last cycle when")),
		Latency: us("Latency for 1000 calls to gettimeofday()") / 1000,
	}
	// sdiag prints means where Slurm keeps sums.
	row.CycleTotal = us(main+"Mean cycle") * spec.Span(row.Cycles)
	row.CycleDepth = u(main+"Mean depth cycle") * row.Cycles
	row.BFTotal = us(bf+"Mean cycle") * spec.Span(row.BFCycles)
	row.BFDepthTotal = u(bf+"Depth Mean") * row.BFCycles
	row.BFTryTotal = u(bf+"Depth Mean (try depth)") * row.BFCycles
	row.BFQueueTotal = u(bf+"Queue length mean") * row.BFCycles
	row.BFTableTotal = u(bf+"Mean table size") * row.BFCycles
	row.Exits, row.BFExits = map[string]uint64{}, map[string]uint64{}
	for word, line := range map[string]string{"end": "End of job queue", "max_depth": "Hit default_queue_depth", "max_job_start": "Hit sched_max_job_start",
		"lic": "Blocked on licenses", "rpc_cnt": "Hit max_rpc_cnt", "timeout": "Timeout (max_sched_time)"} {
		row.Exits[word] = u("Main scheduler exit/" + line)
	}
	for word, line := range map[string]string{"end": "End of job queue", "max_job_start": "Hit bf_max_job_start", "max_job_test": "Hit bf_max_job_test",
		"state_changed": "System state changed", "table_limit": "Hit table size limit (bf_node_space_size)", "timeout": "Timeout (bf_max_time)"} {
		row.BFExits[word] = u("Backfill exit/" + line)
	}
	for _, calls := range sched.RPCs {
		row.RPCs = append(
			row.RPCs,
			rpcRow{calls.Name, calls.Count, spec.Span(calls.Micro) * spec.Span(time.Microsecond)},
		)
	}
	for _, calls := range sched.Users {
		row.UserRPCs = append(
			row.UserRPCs,
			rpcRow{calls.Name, calls.Count, spec.Span(calls.Micro) * spec.Span(time.Microsecond)},
		)
	}
	return row
}
