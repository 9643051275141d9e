package daemon_test

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// rate is what holds from an instant on, in microseconds.
type rate struct {
	from                    int64
	cpu, mem, node, gpu, nv float64 // for an hour; nv is gres/gpu:h100
	grams                   float64 // for a kWh, with what cooling needs
}

// plainRates makes rates that change within a history, for the service and for
// the loops.
func plainRates(first, end int64) (kpi.Rates, []rate) {
	at := [...]int64{first + (end-first)/5, first + (end-first)/2}
	list := []rate{{at[0], 0.5, 0.25, 0, 2, 0, 400 * 1.5}, {at[1], 1, 0.125, 3, 4, 0.75, 125.5 * 1.5}}
	out := kpi.Rates{Currency: "EUR", PUE: 1500}
	for _, r := range list {
		from := spec.Instant(r.from * 1000)
		m := func(v float64) int64 { return int64(v * 1e6) }
		out.Prices = append(out.Prices, kpi.PriceList{From: from, Per: []kpi.Price{{TRES: "cpu", Micro: m(r.cpu)}, {TRES: "mem", Micro: m(r.mem)},
			{TRES: "node", Micro: m(r.node)}, {TRES: "gres/gpu", Micro: m(r.gpu)}, {TRES: "gres/gpu:h100", Micro: m(r.nv)}}})
		out.Carbon = append(out.Carbon, kpi.Intensity{From: from, Milli: int64(r.grams / 1.5 * 1000)})
	}
	return out, list
}

// during calls f for each rate with when it holds.
func (p *plain) during(from, to int64, f func(r rate, from, until int64)) {
	for i, r := range p.rates {
		until := to
		if i+1 < len(p.rates) {
			until = min(to, p.rates[i+1].from)
		}
		if a := max(from, r.from); a < until {
			f(r, a, until)
		}
	}
}

// failures are the states that count as one, by class.
func failures() map[string]string {
	return map[string]string{"FAILED": "user", "TIMEOUT": "timeout", "OUT_OF_MEMORY": "memory", "NODE_FAIL": "node", "BOOT_FAIL": "boot", "DEADLINE": "deadline"}
}

// sums are what the loops add up.
type sums struct {
	from, to                                 int64
	cpuUsed, cpuHeld, waste, held            float64
	util, idle, gpuHeld, sm, smHeld          float64
	gpuAlloc, cpuAlloc, cost                 float64
	energy, carbon                           float64
	slow, slowRuns, stretch, stretchW        float64
	memSeen, gpuSeen, measured, powered, any bool
	completed, ended                         int64
	failed                                   map[string]int64 // by class
	lost                                     map[string]float64
	waits, eligible                          []float64
	promises, kept                           int64
	late                                     []float64
}

// kpis computes every figure for the runs that keep picks.
func (p *plain) kpis(by kpi.Dimension, key string, from, to int64, part string, keep func(r *prun) bool) map[string]float64 {
	s := &sums{from: from, to: to, failed: map[string]int64{}, lost: map[string]float64{}}
	for _, r := range p.runs {
		if keep(r) {
			p.run(s, r)
		}
	}
	var capCPU, capGPU float64
	p.each(from, to, func(n pnode, us int64) {
		if part == "" || slices.Contains(n.parts, part) {
			capCPU += float64(n.cpus) * float64(us) / 1e6
			capGPU += float64(n.gpu) * float64(us) / 1e6
		}
	})
	out := s.figures(capCPU, capGPU)
	p.fairness(out, by, key, from, to)
	if by == kpi.ByCluster {
		p.ladder(out, from, to)
	}
	return out
}

// run adds one run.
func (p *plain) run(s *sums, r *prun) {
	from, to := s.from, s.to
	endedIn := r.end != 0 && r.end >= from && r.end < to
	startedIn := r.start != 0 && r.start >= from && r.start < to
	ran := r.start != 0 && r.start < to && (r.end == 0 || r.end > from)
	waits := r.eligible != 0 && r.eligible < to && (r.start == 0 || r.start >= to) && (r.end == 0 || r.end >= to)
	if !endedIn && !ran && !waits {
		return
	}
	s.any = true
	if startedIn {
		s.waits = append(s.waits, float64(r.start-r.submit)/1e6)
	}
	if r.eligible != 0 {
		waited := func(until int64) {
			for range r.count {
				s.eligible = append(s.eligible, max(0, float64(until-r.eligible)/1e6))
			}
		}
		switch {
		case startedIn:
			waited(r.start)
		case waits:
			waited(to)
		case endedIn && r.start == 0:
			waited(r.end)
		}
	}
	p.promise(s, r)
	class := failures()[r.state]
	if endedIn && class != "" {
		s.failed[class] += r.count
	}
	if endedIn && r.state == "COMPLETED" {
		s.completed += r.count
	}
	if r.start == 0 || !ran && !endedIn {
		return
	}
	over := float64(within(r.start, r.end, from, to)) / 1e6
	if r.end != 0 && r.end <= r.start {
		over = 0
	}
	until := r.end
	if until == 0 {
		until = to
	}
	length, waited := max(0, float64(until-r.start)/1e6), float64(r.start-r.submit)/1e6
	if endedIn {
		s.ended += r.count
		s.slow += max(1, (waited+length)/max(length, 10))
		s.slowRuns++
	}
	if length > 0 {
		w := float64(len(r.alloc.Nodes)) * over
		s.stretch += (waited + length) / length * w
		s.stretchW += w
	}
	gpus := float64(r.alloc.TRES.Get("gres/gpu"))
	active := 1.0
	if length > 0 {
		active = max(0, 1-float64(r.paused/spec.Microsecond)/1e6/length)
	}
	if r.stopped != 0 { // it stands still now
		stop, paused := tally.Cut(r.stopped), int64(r.paused/spec.Microsecond)
		active = 0
		if over > 0 {
			active = float64(within(r.start, stop, from, to)) / 1e6 / over * float64(stop-r.start-paused) / max(float64(stop-r.start), 1)
		}
	}
	s.cpuAlloc += float64(r.alloc.TRES.CPU) * over * active
	s.gpuAlloc += gpus * over
	if endedIn && class != "" {
		s.lost[class] += gpus * over
	}
	p.during(from, to, func(t rate, a, b int64) {
		if r.end == 0 || r.end > r.start {
			price := t.cpu*float64(r.alloc.TRES.CPU) + t.mem*float64(r.alloc.TRES.Mem)/1024 + t.node*float64(r.alloc.TRES.Node) + t.gpu*gpus +
				t.nv*float64(r.alloc.TRES.Get("gres/gpu:h100"))
			s.cost += price * float64(within(r.start, r.end, a, b)) / 3.6e9
		}
	})
	if r.over {
		p.used(s, r)
	}
}

// promise judges the first promise of a run, if that belongs to the window.
func (p *plain) promise(s *sums, r *prun) {
	const grace = 60_000_000
	if r.promised == 0 {
		return
	}
	due := r.promised + grace
	inTime := r.start != 0 && r.start <= due
	if inTime {
		due = r.start
	} else if r.start == 0 && r.end != 0 && r.end < due {
		return
	}
	if due < s.from || due >= s.to {
		return
	}
	s.promises++
	if inTime {
		s.kept++
	}
	until := s.to
	for _, at := range []int64{r.end, r.start} {
		if at != 0 && at < s.to {
			until = at
		}
	}
	s.late = append(s.late, float64(max(0, until-r.promised))/1e6)
}

// used adds what a run that is over used on its nodes.
func (p *plain) used(s *sums, r *prun) {
	for i := range r.alloc.Nodes {
		a := &r.alloc.Nodes[i]
		d := r.done[a.Name]
		if d.lost || r.start >= s.to || min(d.at, r.end) < s.from {
			continue
		}
		s.measured = true
		until := min(d.at, r.end)
		whole := float64(until - r.start)
		part := float64(max(0, min(until, s.to)-max(r.start, s.from)))
		share := 0.0
		if whole > 0 {
			share = part / whole
		} else if r.start >= s.from {
			share = 1
		}
		power := func(joules float64) {
			s.powered = true
			s.energy += joules * share
			p.during(s.from, s.to, func(t rate, a, b int64) {
				w := 0.0
				if whole > 0 {
					w = float64(max(0, min(until, b)-max(r.start, a))) / whole
				} else if r.start >= a && r.start < b {
					w = 1
				}
				s.carbon += joules / 3.6e6 * w * t.grams
			})
		}
		s.cpuUsed += float64(int64(d.usage.UserCPU/1000)+int64(d.usage.SystemCPU/1000)) / 1e6 * share
		s.cpuHeld += float64(a.CPUs.Count()) * part / 1e6
		if d.usage.HasRSS {
			s.memSeen = true
			s.waste += max(0, float64(a.Mem<<20)-float64(d.usage.PeakRSS)) * part / 1e6
			s.held += float64(a.Mem<<20) * part / 1e6
		}
		if d.usage.HasEnergy {
			power(float64(d.usage.EnergyMJ) / 1000)
		}
		for _, g := range d.usage.GPUs {
			s.gpuSeen = true
			s.util += float64(int64(g.UtilNS/1000)) / 1e6 * share
			s.idle += float64(int64(g.NoProcess/1000)+int64(g.Idle/1000)) / 1e6 * share
			s.gpuHeld += part / 1e6
			if g.SMNS >= 1000 || g.UtilNS < 1000 {
				s.sm += float64(int64(g.SMNS/1000)) / 1e6 * share
				s.smHeld += part / 1e6
			}
			if g.EnergyMJ > 0 {
				power(float64(g.EnergyMJ) / 1000)
			}
		}
	}
}

func (s *sums) figures(capCPU, capGPU float64) map[string]float64 {
	out := map[string]float64{}
	ratio := func(name string, num, den float64) {
		if den != 0 {
			out[name] = num / den
		}
	}
	ratio("cpu_efficiency", s.cpuUsed, s.cpuHeld)
	if s.memSeen {
		out["memory_waste"] = s.waste / 3600
	}
	ratio("memory_waste_share", s.waste, s.held)
	ratio("gpu_occupancy", s.util, s.gpuHeld)
	ratio("gpu_efficiency", s.sm, s.smHeld)
	if s.gpuSeen {
		out["gpu_idle"] = s.idle / 3600
	}
	slices.Sort(s.waits)
	slices.Sort(s.eligible)
	for name, level := range map[string]float64{"p50": 0.5, "p95": 0.95, "p99": 0.99} {
		if n := len(s.waits); n > 0 {
			out["wait_"+name] = s.waits[int(level*float64(n))]
		}
		if n := len(s.eligible); n > 0 {
			out["wait_eligible_"+name] = s.eligible[max(int(math.Ceil(level*float64(n))), 1)-1]
		}
	}
	ratio("promise_kept", float64(s.kept), float64(s.promises))
	if n := len(s.late); n > 0 {
		slices.Sort(s.late)
		out["promise_late_p95"] = s.late[int(0.95*float64(n))]
	}
	ratio("bounded_slowdown", s.slow, s.slowRuns)
	ratio("expansion_factor", s.stretch, s.stretchW)
	judged, failed, lost := s.completed, int64(0), 0.0
	for _, class := range failures() {
		judged += s.failed[class]
		failed += s.failed[class]
		lost += s.lost[class]
	}
	for _, class := range failures() {
		ratio("failure_rate_"+class, float64(s.failed[class]), float64(judged))
	}
	ratio("failure_rate", float64(failed), float64(judged))
	if s.any {
		ratio("gpu_allocation", s.gpuAlloc, capGPU)
		ratio("utilisation", s.cpuAlloc, capCPU)
		out["lost_gpu_hours"] = lost / 3600
		for _, class := range failures() {
			out["lost_gpu_hours_"+class] = s.lost[class] / 3600
		}
		out["throughput"] = float64(s.ended) / (float64(s.to-s.from) / 3.6e9)
		out["cost"] = s.cost
	}
	if s.powered {
		out["energy"], out["carbon"] = s.energy/3.6e6, s.carbon/1000
	}
	return out
}

// fairness computes the figures about associations. The tree of the random
// histories has two levels: accounts below root, users in accounts.
func (p *plain) fairness(out map[string]float64, by kpi.Dimension, key string, from, to int64) {
	if by != kpi.ByCluster && by != kpi.ByAccount && by != kpi.ByUser {
		return
	}
	if v, ok := p.driftIn(by, key, from, to, true); ok {
		out["fairshare_drift"] = v
	}
	const day = int64(86_400_000_000)
	if n := (to - from) / day; n >= 2 && by == kpi.ByCluster {
		var x, y []float64
		for i := range n {
			if v, ok := p.driftIn(by, key, to-(n-i)*day, to-(n-i-1)*day, i == 0); ok {
				x, y = append(x, float64(i)), append(y, v)
			}
		}
		if len(x) > 1 {
			var sx, sy, sxx, sxy float64
			for i := range x {
				sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
			}
			k := float64(len(x))
			out["fairshare_drift_slope"] = (k*sxy - sx*sy) / (k*sxx - sx*sx)
		}
	}
}

func (p *plain) driftIn(by kpi.Dimension, key string, from, to int64, first bool) (float64, bool) {
	type who struct{ account, user string }
	used, total := map[who]float64{}, 0.0
	for _, r := range p.runs {
		began := r.eligible
		if began == 0 || r.start != 0 && r.start < began {
			began = r.start
		}
		over := r.end
		if over == 0 {
			over = math.MaxInt64
		}
		over = max(over, began)
		if began == 0 || began >= to || !(over > from || began >= from || first && over == from) {
			continue
		}
		k := who{r.spec.Account, r.spec.User}
		used[k] += 0
		if r.start != 0 && (r.end == 0 || r.end > r.start) {
			u := float64(r.alloc.TRES.Billing) * float64(within(r.start, r.end, from, to)) / 1e6
			used[k] += u
			total += u
		}
	}
	sum, found := 0.0, by == kpi.ByCluster
	share := func(a string, u string) float64 { return float64(max(1, p.shares(a, u))) }
	for k, u := range used {
		var accounts, users float64
		seen := map[string]bool{}
		for o := range used {
			if !seen[o.account] {
				seen[o.account] = true
				accounts += share(o.account, "")
			}
			if o.account == k.account {
				users += share(o.account, o.user)
			}
		}
		part := math.Abs(u/total-share(k.account, "")/accounts*share(k.account, k.user)/users) / 2
		if by == kpi.ByCluster || by == kpi.ByAccount && k.account == key || by == kpi.ByUser && k.user == key {
			sum += part
			found = true
		}
	}
	return sum, found && total > 0
}

// shares are those of an association.
func (p *plain) shares(account, user string) int64 {
	return p.state.Policy.FindAssoc(account, user, "").Shares
}

func checkKPIs(t *testing.T, r *rig, p *plain, from, to int64) {
	t.Helper()
	for _, by := range kpi.Dimensions() {
		reply, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "kpi", By: string(by), Start: from * 1000, End: to * 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range reply.GetRows() {
			key := row.GetCells()[0].GetText()
			part := ""
			if by == kpi.ByPartition {
				part = key
			}
			want := p.kpis(by, key, from, to, part, func(pr *prun) bool {
				own := map[kpi.Dimension]string{kpi.ByCluster: key, kpi.ByPartition: pr.partition, kpi.ByAccount: pr.spec.Account, kpi.ByUser: pr.spec.User,
					kpi.ByQOS: pr.spec.QOS}[by]
				return slices.Contains(strings.Split(own, ","), key)
			})
			for i, col := range reply.GetColumns() {
				if i == 0 {
					continue
				}
				v, there := want[col.GetName()]
				cell := row.GetCells()[i]
				if col.GetName() == "gpu_ladder_drained" {
					continue // the loops know both as down
				}
				if col.GetName() == "gpu_ladder_down" {
					v -= figure(reply, row, "gpu_ladder_drained")
				}
				if cell.GetNull() == there {
					t.Errorf("%s of %s %s in [%d, %d): null is %v, the loop says %v (%v)", col.GetName(), by, key, from, to, cell.GetNull(), v, there)
				} else if there && math.Abs(v-cell.GetFloat()) > 1e-9*max(1, math.Abs(v)) {
					t.Errorf("%s of %s %s in [%d, %d): %v, the loop says %v", col.GetName(), by, key, from, to, cell.GetFloat(), v)
				}
			}
		}
	}
}

// figure is a figure of a row by its name.
func figure(reply *apiv1.ReportReply, row *apiv1.ReportRow, name string) float64 {
	for i, col := range reply.GetColumns() {
		if col.GetName() == name {
			return row.GetCells()[i].GetFloat()
		}
	}
	return 0
}

// ladder finds what became of the GPU time that was bought, piece by piece of
// each node's time.
func (p *plain) ladder(out map[string]float64, from, to int64) {
	us, idle, bought := map[string]int64{}, map[string]int64{}, int64(0)
	outcome := func(r *prun) string {
		class := failures()[r.state]
		switch {
		case r.end == 0:
			return "open"
		case r.state == "COMPLETED":
			return "good"
		case class != "":
			return "failed_" + class
		case r.state == "CANCELLED":
			return "cancelled"
		}
		return "preempted"
	}
	type hold struct {
		a, b, gpus int64
		step       string
	}
	holds := map[string][]hold{}
	for _, r := range p.runs {
		if r.start == 0 {
			continue
		}
		for i := range r.alloc.Nodes {
			n := &r.alloc.Nodes[i]
			until := r.end
			if d, ok := r.done[n.Name]; ok && (until == 0 || d.at < until) {
				until = d.at
			}
			if until == 0 || until > to {
				until = to
			}
			holds[n.Name] = append(holds[n.Name], hold{max(r.start, from), until, int64(len(n.GPUs)), outcome(r)})
			if d := r.done[n.Name]; r.over && !d.lost && r.start < to && min(d.at, r.end) >= from {
				whole, part := min(d.at, r.end)-r.start, max(0, min(d.at, r.end, to)-max(r.start, from))
				share := 0.0
				if whole > 0 {
					share = float64(part) / float64(whole)
				} else if r.start >= from {
					share = 1
				}
				for _, g := range d.usage.GPUs {
					idle[outcome(r)] += int64(math.RoundToEven(float64(int64(g.NoProcess/1000)+int64(g.Idle/1000)) * share))
				}
			}
		}
	}
	for name, list := range p.nodes {
		for i, n := range list {
			end := to
			if i+1 < len(list) {
				end = min(to, list[i+1].at)
			}
			begin := max(from, n.at)
			if n.class == "" || begin >= end {
				continue
			}
			cuts := []int64{begin, end}
			for _, h := range holds[name] {
				cuts = append(cuts, min(max(h.a, begin), end), min(max(h.b, begin), end))
			}
			slices.Sort(cuts)
			for k := 1; k < len(cuts); k++ {
				dt, left := cuts[k]-cuts[k-1], n.gpu
				bought += n.gpu * dt
				for _, s := range kpi.HeldSteps() {
					for _, h := range holds[name] {
						if h.step == s.Name && h.a <= cuts[k-1] && h.b >= cuts[k] && h.a < h.b {
							took := min(left, h.gpus)
							us[s.Name], left = us[s.Name]+took*dt, left-took
						}
					}
				}
				us[map[string]string{"up": "unallocated", "planned": "off", "down": "down"}[n.class]] += left * dt
			}
		}
	}
	if bought == 0 {
		return
	}
	for _, step := range []string{"good", "open"} {
		moved := min(us[step], idle[step])
		us[step], us["held_idle"] = us[step]-moved, us["held_idle"]+moved
	}
	sum := int64(0)
	for _, s := range kpi.Steps() {
		out["gpu_ladder_"+s.Name] = float64(us[s.Name]) / 3.6e9
		sum += us[s.Name]
	}
	if sum != bought {
		panic("the loop's own steps do not add up")
	}
	out["gpu_bought"], out["goodput"] = float64(bought)/3.6e9, float64(us["good"])/float64(bought)
}

// checkLadder: in the store's own integers the steps add up to what was bought.
func checkLadder(t *testing.T, r *rig, from, until int64) {
	t.Helper()
	if from, until = from/second*second, until/second*second; from >= until {
		return
	}
	text := fmt.Sprintf("SELECT sum(gpu_us), any(bought_gpu_us), min(gpu_us) FROM `%s`.goodput_within(cluster = 'peer', from = %d, until = %d)", r.store.Database(), from/second, until/second)
	var sum, bought, least int64
	err := r.store.Query(t.Context(), query.Query{SQL: text}, func(scan func(...any) error) error { return scan(&sum, &bought, &least) })
	if err != nil || sum != bought || least < 0 {
		t.Errorf("the steps add up to %d of %d bought, the least is %d (%v)", sum, bought, least, err)
	}
}

// checkCharge: each line of the bill is what a loop over the runs gives, in
// whole numbers, and the lines add up to the rounded whole.
func checkCharge(t *testing.T, r *rig, p *plain, from, to int64) {
	t.Helper()
	reply, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "chargeback", Start: from * 1000, End: to * 1000})
	if err != nil {
		t.Fatal(err)
	}
	exact, total, cpu := map[string]*big.Int{}, new(big.Int), new(big.Int)
	for _, pr := range p.runs {
		if pr.start == 0 || pr.start >= to || pr.end != 0 && pr.end <= from {
			continue
		}
		k := pr.spec.Account + "/" + pr.spec.User
		if exact[k] == nil {
			exact[k] = new(big.Int)
		}
		if pr.end != 0 && pr.end <= pr.start {
			continue
		}
		cpu.Add(cpu, big.NewInt(pr.alloc.TRES.CPU*within(pr.start, pr.end, from, to)))
		p.during(from, to, func(t rate, a, b int64) {
			milli := func(v float64) int64 { return int64(v * 1000) } // prices are thousandths here
			price := (milli(t.cpu)*pr.alloc.TRES.CPU+milli(t.node)*pr.alloc.TRES.Node+milli(t.gpu)*pr.alloc.TRES.Get("gres/gpu")+
				milli(t.nv)*pr.alloc.TRES.Get("gres/gpu:h100"))*1024 + milli(t.mem)*pr.alloc.TRES.Mem
			n := new(big.Int).Mul(big.NewInt(price*1000), big.NewInt(within(pr.start, pr.end, a, b)))
			exact[k].Add(exact[k], n)
			total.Add(total, n)
		})
	}
	micro := big.NewInt(3_600_000_000 * 1024) // exact parts in a millionth of the currency
	sum, seconds := new(big.Int), new(big.Int)
	for _, row := range reply.GetRows() {
		c := row.GetCells()
		k := c[0].GetText() + "/" + c[1].GetText()
		got, ok := new(big.Int).SetString(strings.Replace(c[len(c)-1].GetText(), ".", "", 1), 10)
		if !ok || exact[k] == nil {
			t.Fatalf("a line of %s costs %s", k, c[len(c)-1].GetText())
		}
		if diff := new(big.Int).Sub(new(big.Int).Mul(got, micro), exact[k]); diff.CmpAbs(micro) >= 0 {
			t.Errorf("%s pays %s, the loop says %v / %v", k, c[len(c)-1].GetText(), exact[k], micro)
		}
		sum.Add(sum, got)
		seconds.Add(seconds, big.NewInt(c[3].GetInt()))
		delete(exact, k)
	}
	if len(exact) > 0 {
		t.Errorf("the bill lacks %v", exact)
	}
	near := func(what string, sum, exact, unit *big.Int) {
		if d := new(big.Int).Sub(new(big.Int).Mul(sum, unit), exact); d.Lsh(d, 1).CmpAbs(unit) > 0 {
			t.Errorf("the lines' %s add up to %v, the ledger's is %v / %v", what, sum, exact, unit)
		}
	}
	near("cost", sum, total, micro)
	near("cpu-seconds", seconds, cpu, big.NewInt(1_000_000))
}

// TestBudget: how a budget stands is what its bill adds up to.
func TestBudget(t *testing.T) {
	ledger := newLedger(t)
	h := tallytest.New(t, spec.AtUnix(1_790_000_000))
	h.Nodes(2, 4, 8000, 2)
	h.Accounts([]string{"ml", "bio"}, map[string][]string{"ml": {"alice"}, "bio": {"eve"}})
	for _, who := range []tallytest.Ask{{User: "alice", UID: 1001, Account: "ml", CPUs: 2}, {User: "eve", UID: 1003, Account: "bio", CPUs: 1}} {
		uid := h.Submit(who)
		h.Start(uid, "n1")
		h.Wait(10 * spec.Hour)
		h.Finish(uid, spec.Usage{})
	}
	ledger.add(t, h.Log, 25)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.clock.set(h.Now)
	var err error
	r.cfg.Rates, err = kpi.ParseRates("EUR", "", []string{"2026-01-01 cpu=0.5"}, nil, []string{"ml 2026-01-01 2027-01-01 40 warn=20 enforce", "root 2026-01-01 2027-01-01 100", "bio 2025-01-01 2026-01-01 7"})
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan []kpi.Spent, 100)
	r.cfg.Enforce = func(_ context.Context, list []kpi.Spent) { told <- list }
	r.cfg.Refresh = spec.Second
	r.start()
	r.stored(uint64(len(h.Log)))
	for list := range told { // the first may be of a part of the ledger
		if len(list) != 1 || list[0].Account != "ml" {
			t.Fatalf("enforced: %+v", list)
		}
		if list[0].Spent == 10 {
			break
		}
	}
	reply, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "budget"})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, row := range reply.GetRows() {
		c := row.GetCells()
		got += fmt.Sprintln(c[0].GetText(), c[3].GetFloat(), c[4].GetFloat(), c[5].GetFloat(), c[9].GetInt())
	}
	if want := "ml 40 10 0.25 20\nroot 100 15 0.15 0\nbio 7 0 0 0\n"; got != want {
		t.Errorf("budgets:\n%s", got)
	}
	if _, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "kpi", By: "account"}); err != nil {
		t.Error(err)
	}
}
