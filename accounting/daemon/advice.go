package daemon

import (
	"context"
	"fmt"
	"math"

	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// What advice rests on.
const (
	adviceRuns  = 20 // of one work, the newest
	adviceLeast = 3  // fewer tell nothing
	advicePeers = 10 // fewer runs of others tell nothing
	adviceSpan  = 90 * spec.Day
)

// past is a run that is over, as advice looks at it.
type past struct {
	key                                          query.RunKey
	job                                          uint32
	state, partition                             string
	nodes, cpus, mem, gpus, limit, elapsed, wait int64 // MiB, microseconds
	measured                                     bool
	cpu                                          int64
	peak                                         *int64 // bytes, the largest on one node
	gpuTime, gpuUtil                             int64
	worked, watched                              uint64
}

// memPerNode is what it held on each node, in MiB.
func (p *past) memPerNode() int64 { return p.mem / max(p.nodes, 1) }

// proposal is a finding with the run that it would make: peers are those that
// ask for no more.
type proposal struct {
	*apiv1.UsageAdvice
	peers query.Peers
}

// Advise answers muster report user.
func (s Service) Advise(
	ctx context.Context, request *apiv1.AdviceQuery,
) (*apiv1.AdviceReply, error) {
	scope, behind, err := s.D.scopeOf(ctx, request.GetCluster(), request.GetMinSeq())
	if err != nil {
		return nil, s.D.storeAway(err)
	}
	switch private, err := s.D.private(ctx, scope, privateJobs); {
	case err != nil:
		return nil, s.D.storeAway(err)
	case private && request.GetUser() != s.D.callerOf(ctx).User:
		return nil, spec.Refuse(
			spec.CodeAccessDenied,
			"PrivateData=jobs: the jobs of others are theirs",
		)
	}
	names := int(request.GetNames())
	if names == 0 {
		names = 5
	}
	history := query.History{
		User:  request.GetUser(),
		Since: scope.Now.Add(-adviceSpan),
		Limit: min(names, 100),
	}
	var works []string
	err = s.D.cfg.Store.Query(ctx, history.Works(scope), func(scan func(...any) error) error {
		var work string
		err := scan(&work)
		works = append(works, work)
		return err
	})
	if err != nil {
		return nil, s.D.storeAway(err)
	}
	reply := &apiv1.AdviceReply{Behind: behind}
	for _, work := range works {
		advice, err := s.adviseUser(ctx, scope, request.GetUser(), work)
		if err != nil {
			return nil, s.D.storeAway(err)
		}
		reply.Advice = append(reply.Advice, advice...)
	}
	return reply, nil
}

// adviseUser looks at a user's newest runs of one work.
func (s Service) adviseUser(
	ctx context.Context,
	scope query.Scope,
	user, work string,
) ([]*apiv1.UsageAdvice, error) {
	var runs []past
	history := query.History{
		User:  user,
		Work:  work,
		Since: scope.Now.Add(-adviceSpan),
		Limit: adviceRuns,
	}
	err := s.D.cfg.Store.Query(ctx, history.Runs(scope), func(scan func(...any) error) error {
		var p past
		err := scan(
			&p.key.UID,
			&p.key.Restarts,
			&p.job,
			&p.state,
			&p.partition,
			&p.nodes,
			&p.cpus,
			&p.mem,
			&p.gpus,
			&p.limit,
			&p.elapsed,
			&p.wait,
			&p.measured,
			&p.cpu,
			&p.peak,
			&p.gpuTime,
			&p.gpuUtil,
			&p.worked,
			&p.watched,
		)
		runs = append(runs, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	var advices []*apiv1.UsageAdvice
	for _, p := range proposeFor(runs) {
		p.JobName = work
		if p.peers.Partition != "" {
			p.peers.Since = scope.Now.Add(-30 * spec.Day)
			if err := s.estimateGain(ctx, scope, p, runs); err != nil {
				return nil, err
			}
		}
		advices = append(advices, p.UsageAdvice)
	}
	return advices, nil
}

// estimateGain compares the waits of runs that asked for no more with the user's own.
func (s Service) estimateGain(
	ctx context.Context,
	scope query.Scope,
	p proposal,
	runs []past,
) error {
	var count uint64
	var wait float64
	err := s.D.cfg.Store.Query(
		ctx,
		p.peers.Waits(scope),
		func(scan func(...any) error) error { return scan(&count, &wait) },
	)
	if err != nil || count < advicePeers {
		return err
	}
	own := 0.0
	for i := range runs {
		own += float64(runs[i].wait) / 1e6 / float64(len(runs))
	}
	if own-wait >= 60 {
		p.Gain, p.Peers = int64((own-wait)*1e9), uint32(count)
		p.Text += fmt.Sprintf(
			"; the %d runs in %s that asked for no more waited %s on average, these %s: %s less",
			count,
			p.peers.Partition,
			format.Duration(
				int64(wait+0.5),
			),
			format.Duration(int64(own+0.5)),
			format.Duration(int64(own-wait+0.5)),
		)
	}
	return nil
}

// proposeFor finds what the newest runs of one name speak for, newest first.
func proposeFor(runs []past) []proposal {
	if len(runs) < adviceLeast {
		return nil
	}
	var proposals []proposal
	for _, f := range [...]func(runs []past) (proposal, bool){memoryAdvice, timeAdvice, cpuAdvice, gpuCountAdvice, gpuUseAdvice} {
		if p, ok := f(runs); ok {
			proposals = append(proposals, p)
		}
	}
	return proposals
}

func newProposal(kind, change string, runs int, format string, args ...any) proposal {
	return proposal{
		UsageAdvice: &apiv1.UsageAdvice{
			Kind:   kind,
			Change: change,
			Runs:   uint32(runs),
			Text:   fmt.Sprintf(format, args...),
		},
	}
}

// likeNewest is a comparison with the newest run's shape.
func likeNewest(r *past) query.Peers {
	return query.Peers{Partition: r.partition, CPUs: r.cpus, GPUs: r.gpus, Nodes: r.nodes}
}

// reserveOnPeak is what is put on top of a peak.
func reserveOnPeak(n int64) int64 { return n + n/4 }

const mib = 1 << 20

// formatGiB shows MiB.
func formatGiB(m float64) string {
	if m < 1024 {
		return fmt.Sprintf("%.0f MiB", m)
	}
	return fmt.Sprintf("%.1f GiB", m/1024)
}

// memoryAdvice: a peak far below, or at, what was held.
func memoryAdvice(runs []past) (proposal, bool) {
	last := &runs[0]
	var peak int64
	seen, killed := 0, 0
	for i := range runs {
		r := &runs[i]
		if r.peak != nil {
			seen++
			peak = max(peak, *r.peak)
		}
		if r.state == spec.OutOfMemory.String() {
			killed++
		}
	}
	held := last.memPerNode()
	if held <= 0 {
		return proposal{}, false
	}
	if killed > 0 {
		if last.state != spec.OutOfMemory.String() {
			return proposal{}, false // it was mended since
		}
		want := ceilGiB(max(held+held/2, reserveOnPeak(peak/mib)))
		return newProposal(
			"memory",
			fmt.Sprintf("--mem=%dG", want),
			len(runs),
			"%d of the last %d runs ran out of memory with %s a node",
			killed,
			len(runs),
			formatGiB(float64(held)),
		), true
	}
	if seen < adviceLeast {
		return proposal{}, false
	}
	want := ceilGiB(reserveOnPeak(peak / mib))
	if want*1024 > held*3/4 {
		return proposal{}, false
	}
	p := newProposal(
		"memory",
		fmt.Sprintf("--mem=%dG", want),
		seen,
		"the last %d runs used at most %s of %s a node",
		seen,
		formatGiB(float64(peak)/mib),
		formatGiB(float64(held)),
	)
	p.peers = likeNewest(last)
	p.peers.MemPerNode = want * 1024
	return p, true
}

func ceilGiB(m int64) int64 { return max(1, (m+1023)/1024) }

// timeAdvice: limits far above what runs take, or too short.
func timeAdvice(runs []past) (proposal, bool) {
	last := &runs[0]
	var longest int64
	ended, out := 0, 0
	for i := range runs {
		r := &runs[i]
		if r.state == spec.TimedOut.String() {
			out++
		}
		if r.state == spec.Completed.String() {
			ended++
			longest = max(longest, r.elapsed)
		}
	}
	if last.limit <= 0 {
		return proposal{}, false
	}
	if last.state == spec.TimedOut.String() && out >= 2 {
		return newProposal(
			"time",
			"",
			len(runs),
			"%d of the last %d runs reached their time limit of %s: ask for more, or save checkpoints",
			out,
			len(runs),
			formatClock(last.limit),
		), true
	}
	want := roundTime(reserveOnPeak(longest))
	if ended < adviceLeast || out > 0 || want > last.limit*3/4 {
		return proposal{}, false
	}
	p := newProposal(
		"time",
		"--time="+formatClock(want),
		ended,
		"the last %d runs that completed took at most %s of %s; a shorter limit fits into gaps before others start",
		ended,
		formatClock(longest),
		formatClock(last.limit),
	)
	p.peers = likeNewest(last)
	p.peers.MemPerNode, p.peers.Limit = last.memPerNode(), want
	return p, true
}

// formatClock writes microseconds as a time limit.
func formatClock(us int64) string { return format.Duration((us + 999_999) / 1_000_000) }

// roundTime rounds up to five minutes, hours from six hours on.
func roundTime(us int64) int64 {
	step := int64(5 * spec.Minute / spec.Microsecond)
	if us > int64(6*spec.Hour/spec.Microsecond) {
		step = int64(spec.Hour / spec.Microsecond)
	}
	return (us + step - 1) / step * step
}

// cpuAdvice: CPUs that no run kept busy.
func cpuAdvice(runs []past) (proposal, bool) {
	last := &runs[0]
	most, sum := 0.0, 0.0
	seen := 0
	for i := range runs {
		r := &runs[i]
		if r.measured && r.elapsed >= int64(spec.Minute/spec.Microsecond) {
			seen++
			busy := float64(r.cpu) / float64(r.elapsed)
			sum += busy
			most = max(most, busy)
		}
	}
	want := int64(math.Ceil(most - 0.05)) // a twentieth of a CPU is noise
	want = max(want, 1, last.nodes)
	if seen < adviceLeast || last.cpus < 2 || want > last.cpus*3/4 {
		return proposal{}, false
	}
	change := fmt.Sprintf("--cpus-per-task=%d", want)
	if last.nodes > 1 {
		change = "" // how many tasks there are decides
	}
	p := newProposal(
		"cpus",
		change,
		seen,
		"the last %d runs kept %.1f of %d CPUs busy on average, at most %.1f",
		seen,
		sum/float64(seen),
		last.cpus,
		most,
	)
	p.peers = likeNewest(last)
	p.peers.CPUs, p.peers.MemPerNode = want, last.memPerNode()
	return p, true
}

// gpuCountAdvice: devices on which nothing ever ran.
func gpuCountAdvice(runs []past) (proposal, bool) {
	last := &runs[0]
	var most uint64
	seen := 0
	for i := range runs {
		r := &runs[i]
		if r.gpus > 0 && r.watched == uint64(r.gpus) {
			seen++
			most = max(most, r.worked)
		}
	}
	if seen < adviceLeast || last.gpus == 0 || int64(most) >= last.gpus {
		return proposal{}, false
	}
	if most == 0 {
		p := newProposal(
			"gpus",
			"",
			seen,
			"none of the %d GPUs did anything in the last %d runs: ask for none, or find out why the program does not see them",
			last.gpus,
			seen,
		)
		return p, true
	}
	p := newProposal(
		"gpus",
		fmt.Sprintf("--gpus=%d", most),
		seen,
		"at most %d of %d GPUs did anything in the last %d runs",
		most,
		last.gpus,
		seen,
	)
	p.peers = likeNewest(last)
	p.peers.GPUs, p.peers.MemPerNode = int64(most), last.memPerNode()
	return p, true
}

// gpuUseAdvice: devices that work, but little.
func gpuUseAdvice(runs []past) (proposal, bool) {
	var util, held int64
	seen := 0
	for i := range runs {
		r := &runs[i]
		if r.gpuTime > 0 && r.worked > 0 {
			seen++
			util += r.gpuUtil
			held += r.gpuTime
		}
	}
	if seen < adviceLeast || float64(util) > 0.3*float64(held) {
		return proposal{}, false
	}
	return newProposal(
		"gpu_use",
		"",
		seen,
		"GPU utilisation was %.0f %% over the last %d runs: look at how data are loaded and at the batch size, or share a device",
		100*float64(util)/float64(held),
		seen,
	), true
}
