package daemon_test

import (
	"cmp"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// plain reads a history with loops, from the events and the folded state
// alone, to say what the SQL must answer.
type plain struct {
	state *state.State
	rates []rate
	runs  []*prun
	nodes map[string][]pnode // points of change, in order
	now   int64
}

// prun is one run of a job; times in microseconds, 0 = not.
type prun struct {
	submit, eligible, start, end int64
	promised                     int64
	over                         bool // its rows are final
	state                        string
	count                        int64
	partition                    string
	spec                         *spec.JobSpec
	req                          spec.TRES
	alloc                        *spec.Allocation
	done                         map[string]pdone
	stopped                      spec.Instant // since when it is suspended; 0 = it is not
	paused                       spec.Span    // how long it was before
}

// resumes ends a suspension, as the end of a run does.
func (r *prun) resumes(at spec.Instant) {
	if r.stopped != 0 {
		r.paused += at.Sub(r.stopped)
		r.stopped = 0
	}
}

// held is until when a run held its resources, without the time that it was
// suspended; open ones up to now.
func (r *prun) held(now int64) int64 {
	until := cmp.Or(r.end, now)
	if r.stopped != 0 {
		until = tally.Cut(r.stopped)
	}
	return until - int64(r.paused/spec.Microsecond)
}

type pdone struct {
	at    int64
	lost  bool
	usage spec.Usage
}

type pnode struct {
	at        int64
	class     string // "" = gone
	cpus, gpu int64
	parts     []string
}

func readPlain(t testing.TB, log []event.Envelope) *plain {
	p := &plain{nodes: map[string][]pnode{}}
	cur := map[spec.JobUID]*prun{}
	s := state.New()
	p.state = s
	for i := range log {
		env := &log[i]
		at := tally.Cut(env.At)
		p.job(cur, env, at)
		if err := s.Apply(env); err != nil {
			t.Fatal(err)
		}
		// An eligible instant is whatever the fold says.
		s.Jobs.Range(func(_ uint64, j *state.Job) bool {
			if r := cur[j.UID]; r != nil && j.State == spec.Pending {
				r.eligible = tally.Cut(j.Eligible)
				r.promised = tally.Cut(j.Promised)
			}
			return true
		})
		for _, name := range []string{"n1", "n2", "n3", "d1"} {
			p.node(s, name, at)
		}
	}
	return p
}

// job follows one event about a job.
func (p *plain) job(cur map[spec.JobUID]*prun, env *event.Envelope, at int64) {
	open := func(uid spec.JobUID, r prun) {
		r.done = map[string]pdone{}
		cur[uid] = &r
		p.runs = append(p.runs, &r)
	}
	switch e := env.Event.(type) {
	case *event.JobSubmitted:
		n := int64(1)
		if a := e.Spec.Queue.Array; a != nil {
			n = a.Tasks.Len()
		}
		open(e.UID, prun{submit: at, eligible: tally.Cut(e.Eligible), state: "PENDING", count: n, spec: e.Spec, req: e.Req, partition: strings.Join(e.Spec.Partitions, ",")})
	case *event.JobUpdated:
		cur[e.UID].spec = e.Spec
	case *event.ArrayTaskSplit:
		if e.UID != e.Array {
			cur[e.Array].count--
			r := *cur[e.Array]
			r.count = 1
			open(e.UID, r)
		}
	case *event.JobStarted:
		r := cur[e.UID]
		r.start, r.alloc, r.state, r.partition = at, e.Alloc, "RUNNING", e.Alloc.Partition
		if r.eligible == 0 {
			r.eligible = at
		}
	case *event.JobNodeDone:
		r := cur[e.UID]
		r.done[e.Node] = pdone{at, e.Lost, e.Usage}
		r.over = r.end != 0 && len(r.done) == len(r.alloc.Nodes)
	case *event.JobSuspended:
		if cur[e.UID].state != "SUSPENDED" {
			cur[e.UID].state, cur[e.UID].stopped = "SUSPENDED", env.At
		}
	case *event.JobResumed:
		cur[e.UID].state = "RUNNING"
		cur[e.UID].resumes(env.At)
	case *event.JobEnded:
		r := cur[e.UID]
		r.resumes(env.At)
		r.end, r.state = at, e.State.String()
		r.over = r.start == 0 || len(r.done) == len(r.alloc.Nodes)
	case *event.JobRequeued:
		r := cur[e.UID]
		if r.end == 0 {
			r.resumes(env.At)
			r.end, r.over, r.state = at, true, "REQUEUED"
			if e.State != spec.Pending {
				r.state = e.State.String()
			}
		}
		open(e.UID, prun{submit: at, state: "PENDING", count: 1, spec: r.spec, req: r.req, partition: strings.Join(r.spec.Partitions, ",")})
	}
}

// node notes what holds for a node, if that has changed.
func (p *plain) node(s *state.State, name string, at int64) {
	now := pnode{at: at}
	if n := s.Node(name); n != nil && !n.Removed {
		now.class, now.cpus = "down", n.CPUs
		off := n.Power == event.PoweringDown || n.Power == event.PoweredDown
		switch {
		case off && n.Admin == event.NodeResume && n.Invalid == "" && !n.Lost && (n.Reboot == nil || !(n.Reboot.ASAP || n.Reboot.Issued)):
			now.class = "planned"
		case n.Usable() && !off:
			now.class = "up"
		}
		now.gpu = 2
		if name == "d1" {
			now.gpu = 0 // it is added without devices
		}
		if n.Inv != nil {
			now.gpu = int64(len(n.GPUs))
		}
		for i := range s.Parts.List {
			if slices.Contains(s.Parts.List[i].Spec.NodeNames, name) {
				now.parts = append(now.parts, s.Parts.List[i].Spec.Name)
			}
		}
	}
	list := p.nodes[name]
	if len(list) > 0 {
		last := list[len(list)-1]
		if last.class == now.class && last.gpu == now.gpu && last.cpus == now.cpus && slices.Equal(last.parts, now.parts) {
			return
		}
	}
	p.nodes[name] = append(list, now)
}

// within is the part of [a, b) in [from, to); b = 0 means it goes on.
func within(a, b, from, to int64) int64 {
	if b == 0 {
		b = to
	}
	return max(0, min(b, to)-max(a, from))
}

func (p *plain) each(from, to int64, f func(n pnode, us int64)) {
	for _, list := range p.nodes {
		for i, n := range list {
			end := to
			if i+1 < len(list) {
				end = list[i+1].at
			}
			if us := within(n.at, end, from, to); us > 0 && n.class != "" {
				f(n, us)
			}
		}
	}
}

// utilization is what sreport cluster utilization must say, in TRES-seconds.
func (p *plain) utilization(from, to int64, tres string) map[string]int64 {
	const hour = int64(3_600_000_000)
	amountOf := func(t spec.TRES) int64 { return t.Get(tres) }
	nodeOf := func(n pnode) int64 {
		if tres == "cpu" {
			return n.cpus
		}
		return n.gpu
	}
	var allocated, down, planDown, idle, planned, reported, over int64
	for h := from / hour; h*hour < to; h++ {
		a, b := max(from, h*hour), min(to, (h+1)*hour)
		var alloc, wait, rep int64
		out := map[string]int64{} // of service, by class
		p.each(a, b, func(n pnode, us int64) {
			rep += nodeOf(n) * us
			out[n.class] += nodeOf(n) * us
		})
		for _, r := range p.runs {
			if r.start != 0 {
				if r.end == 0 || r.end > r.start {
					alloc += amountOf(r.alloc.TRES) * within(r.start, r.held(p.now), a, b)
				}
				for i := range r.alloc.Nodes {
					n := &r.alloc.Nodes[i]
					until := r.end
					if d, ok := r.done[n.Name]; ok && (until == 0 || d.at < until) {
						until = d.at
					}
					if until != 0 && until <= r.start {
						continue
					}
					held := int64(n.CPUs.Count())
					if tres != "cpu" {
						held = int64(len(n.GPUs))
					}
					list := p.nodes[n.Name]
					for k, pt := range list {
						end := to
						if k+1 < len(list) {
							end = list[k+1].at
						}
						lo, hi := max(pt.at, r.start, a), min(end, b)
						if until != 0 {
							hi = min(hi, until)
						}
						out[pt.class] -= held * max(0, hi-lo)
					}
				}
			}
			if r.eligible != 0 {
				until := cmp.Or(r.start, r.end)
				if until == 0 || until > r.eligible {
					wait += amountOf(r.req) * r.count * within(r.eligible, until, a, b)
				}
			}
		}
		dn, pd := max(out["down"], 0), max(out["planned"], 0)
		left := max(0, rep-alloc-dn-pd)
		plan := min(left, wait)
		allocated, down, planDown, reported, planned = allocated+alloc, down+dn, planDown+pd, reported+rep, planned+plan
		idle, over = idle+left-plan, over+max(0, alloc+dn+pd-rep)
	}
	const s = 1_000_000
	return map[string]int64{"Allocated": allocated / s, "Down": down / s, "PLND Down": planDown / s, "Idle": idle / s, "Planned": planned / s, "Reported": reported / s, "OverCommitted": over / s}
}

// TestPlainLoops: on random histories every KPI and every sum of the reports
// is what a plain loop over the events gives.
func TestPlainLoops(t *testing.T) {
	engine := startEngine(t)
	still := 0
	defer func() {
		if still == 0 {
			t.Error("in no history a run stands still at the end")
		}
	}()
	seeds := 4
	if os.Getenv("MUSTER_LONG") == "" {
		seeds = 2
	}
	for seed := range seeds {
		h := rapid.Custom(func(t *rapid.T) *tallytest.History { return tallytest.Random(t, 400) }).Example(seed)
		first, now := tally.Cut(h.Log[0].At), h.Now.Add(spec.Minute)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			ledger := newLedger(t)
			ledger.add(t, h.Log, 25)
			r := newRigIn(t, engine.Socket(), fmt.Sprintf("plain%d", seed), ledger)
			r.clock.set(now)
			p := readPlain(t, h.Log)
			p.now = tally.Cut(now)
			for _, run := range p.runs {
				if run.stopped != 0 {
					still++
				}
			}
			r.cfg.Rates, p.rates = plainRates(first, tally.Cut(now))
			r.start()
			r.stored(uint64(len(h.Log)))
			end := tally.Cut(now)
			third := (end - first) / 3
			windows := [][2]int64{
				{first, end},
				{first + third, end - third},
				{end - third, end},
				{first - 3600e6, first + third/2},
				{end - 4*86400e6, end},
			}
			if os.Getenv("MUSTER_LONG") == "" {
				windows = [][][2]int64{{windows[0], windows[3]}, {windows[1]}}[seed]
			}
			for i, w := range windows {
				checkKPIs(t, r, p, w[0], w[1])
				checkCharge(t, r, p, w[0], w[1])
				checkReports(t, r, p, w[0], w[1])
				if i < 2 { // they are made of the same text, which all windows have tried
					checkLadder(t, r, w[0], w[1])
					checkStored(t, r, p, w[0], min(w[1], ledger.lastEvent()))
				}
			}
		})
	}
}

func checkReports(t *testing.T, r *rig, p *plain, from, to int64) {
	t.Helper()
	for _, tres := range []string{"cpu", "gres/gpu"} {
		reply, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "cluster utilization", Tres: []string{tres}, Start: from * 1000, End: to * 1000})
		if err != nil {
			t.Fatal(err)
		}
		want := p.utilization(from, to, tres)
		got := map[string]int64{}
		for i, col := range reply.GetColumns() {
			if _, ok := want[col.GetName()]; ok {
				got[col.GetName()] = reply.GetRows()[0].GetCells()[i].GetInt()
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("utilization of %s in [%d, %d): %v, the loop says %v", tres, from, to, got, want)
		}
		reply, err = r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "cluster userutilizationbyaccount", Tres: []string{tres}, Start: from * 1000, End: to * 1000})
		if err != nil {
			t.Fatal(err)
		}
		sums := map[string]*big.Int{}
		for _, pr := range p.runs {
			if pr.start != 0 && pr.start < to && (pr.end == 0 || pr.end > from) {
				k := pr.spec.User + "/" + pr.spec.Account
				if sums[k] == nil {
					sums[k] = new(big.Int)
				}
				if pr.end == 0 || pr.end > pr.start {
					n := new(big.Int).Mul(big.NewInt(pr.alloc.TRES.Get(tres)), big.NewInt(within(pr.start, pr.held(p.now), from, to)))
					sums[k].Add(sums[k], n)
				}
			}
		}
		if len(sums) != len(reply.GetRows()) {
			t.Errorf("%d users in [%d, %d), the loop finds %d", len(reply.GetRows()), from, to, len(sums))
		}
		for _, row := range reply.GetRows() {
			k := row.GetCells()[1].GetText() + "/" + row.GetCells()[3].GetText()
			if w := new(big.Int).Div(cmp.Or(sums[k], new(big.Int)), big.NewInt(1_000_000)).Int64(); w != row.GetCells()[5].GetInt() {
				t.Errorf("%s used %d %s-seconds in [%d, %d), the loop says %d", k, row.GetCells()[5].GetInt(), tres, from, to, w)
			}
		}
	}
}
