package daemon_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// reportOf asks for a report.
func (r *rig) reportOf(t *testing.T, q *apiv1.ReportQuery) *apiv1.ReportReply {
	t.Helper()
	reply, err := r.Service().Report(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// cells gives the column of a name in each row, as texts.
func cells(t *testing.T, reply *apiv1.ReportReply, name string) []string {
	t.Helper()
	i := slices.IndexFunc(reply.GetColumns(), func(c *apiv1.ReportColumn) bool { return c.GetName() == name })
	if i < 0 {
		t.Fatalf("no column %q", name)
	}
	var out []string
	for _, row := range reply.GetRows() {
		switch k := row.GetCells()[i].GetKind().(type) {
		case *apiv1.Cell_Text:
			out = append(out, k.Text)
		case *apiv1.Cell_Int:
			out = append(out, fmt.Sprint(k.Int))
		default:
			out = append(out, fmt.Sprintf("%.2f", row.GetCells()[i].GetFloat()))
		}
	}
	return out
}

// TestUsageByKeys: the reports by QOS, key and size say what a plain loop over
// the events says.
func TestUsageByKeys(t *testing.T) {
	engine := startEngine(t)
	for seed := range 2 {
		h := rapid.Custom(func(t *rapid.T) *tallytest.History { return tallytest.Random(t, 400) }).Example(seed + 20)
		now := h.Now.Add(spec.Minute)
		ledger := newLedger(t)
		ledger.add(t, h.Log, 25)
		r := newRigIn(t, engine.Socket(), fmt.Sprintf("keys%d", seed), ledger)
		r.clock.set(now)
		r.start()
		r.stored(uint64(len(h.Log)))
		p := readPlain(t, h.Log)
		p.now = tally.Cut(now)
		from, to := tally.Cut(h.Log[0].At), tally.Cut(now)
		ask := func(name string) *apiv1.ReportQuery {
			return &apiv1.ReportQuery{Report: name, Start: from * 1000, End: to * 1000, Grouping: []int64{2, 3}}
		}
		sum := func(key func(*prun) []string) string {
			used := map[string]int64{}
			for _, pr := range p.runs {
				if pr.start != 0 && pr.start < to && (pr.end == 0 || pr.end > from) {
					n := int64(0)
					if pr.end == 0 || pr.end > pr.start {
						n = pr.alloc.TRES.CPU * within(pr.start, pr.held(p.now), from, to)
					}
					for _, k := range key(pr) {
						used[k] += n
					}
				}
			}
			return lines(used)
		}
		got := func(reply *apiv1.ReportReply, value string, names ...string) string {
			out := map[string]int64{}
			for i, v := range cells(t, reply, value) {
				k := ""
				for _, n := range names {
					k += cells(t, reply, n)[i] + "/"
				}
				var n int64
				fmt.Sscan(v, &n)
				out[k] += n * 1e6
			}
			return lines(out)
		}
		same := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("seed %d, %s:\n%s\nthe loop:\n%s", seed, what, got, want)
			}
		}
		same("by QOS", got(r.reportOf(t, ask("cluster AccountUtilizationByQOS")), "Used", "Account", "QOS"),
			sum(func(r *prun) []string { return []string{r.spec.Account + "/" + r.spec.QOS + "/"} }))
		same("keys by user", got(r.reportOf(t, ask("cluster WCKeyUtilizationByUser")), "Used", "WCKey", "Login"),
			sum(func(r *prun) []string { return []string{r.spec.WCKey + "//", r.spec.WCKey + "/" + r.spec.User + "/"} }))
		same("users by key", got(r.reportOf(t, ask("cluster UserUtilizationByWckey")), "Used", "Login", "WCKey"),
			sum(func(r *prun) []string { return []string{r.spec.User + "/" + r.spec.WCKey + "/"} }))
		flat := ask("job SizesByAccount")
		flat.Flat = true
		for col, in := range map[string]func(n int64) bool{"0-1 CPUs": func(n int64) bool { return n < 2 }, "2-2 CPUs": func(n int64) bool { return n == 2 }, ">= 3 CPUs": func(n int64) bool { return n >= 3 }} {
			want := map[string]int64{}
			for _, pr := range p.runs {
				if pr.start != 0 && pr.start < to && (pr.end == 0 || pr.end > from) {
					k := pr.spec.Account + "/"
					want[k] += 0
					if in(pr.alloc.TRES.CPU) && (pr.end == 0 || pr.end > pr.start) {
						want[k] += pr.alloc.TRES.CPU * within(pr.start, pr.held(p.now), from, to)
					}
				}
			}
			same(col, got(r.reportOf(t, flat), col, "Account"), lines(want))
		}
		// Lumped, the top has everything; as counts, every run once.
		whole := r.reportOf(t, ask("job SizesByAccount"))
		if share := cells(t, whole, "% of cluster"); len(share) != 1 || share[0] != "100.00" {
			t.Errorf("the top account has %v percent", share)
		}
		count := ask("job SizesByWckey")
		count.Count = true
		n, runs := 0, 0
		for _, c := range []string{"0-1 CPUs", "2-2 CPUs", ">= 3 CPUs"} {
			for _, v := range cells(t, r.reportOf(t, count), c) {
				var k int
				fmt.Sscan(v, &k)
				n += k
			}
		}
		for _, pr := range p.runs {
			if pr.start != 0 && pr.start < to && (pr.end == 0 || pr.end > from) {
				runs++
			}
		}
		if n != runs {
			t.Errorf("%d runs are counted by size, the loop counts %d", n, runs)
		}
		r.stop()
	}
}

func lines(m map[string]int64) string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, cmp.Compare[string])
	out := ""
	for _, k := range keys {
		out += fmt.Sprintf("%s %d\n", k, m[k]/1e6)
	}
	return out
}

// spanning is a history of jobs of some hours each, over some days, in whole
// seconds.
func spanning(t tallytest.TB, from spec.Instant, span spec.Span) []event.Envelope {
	h := tallytest.New(t, from.Add(-spec.Day))
	h.Nodes(2, 64, 512_000, 8)
	h.Now = from.Add(-2 * spec.Hour)
	for i := 0; h.Now < from.Add(span); i++ {
		uid := h.Submit(tallytest.Ask{Name: "train", User: "alice", UID: 1001, Account: "ml", QOS: "normal", CPUs: int64(1 + i%5), Mem: 4000})
		h.Wait(17 * spec.Second)
		h.Start(uid, fmt.Sprintf("n%d", 1+i%2))
		h.Wait(spec.Seconds(int64(4000 + 977*(i%7))))
		h.Finish(uid, spec.Usage{UserCPU: 50 * spec.Second})
	}
	return h.Log
}

// TestDaysAddUp: the days of a zone, also those of 23 and 25 hours, add up to
// the whole, and so do their hours: nothing is counted twice or lost at a
// change of the clock.
func TestDaysAddUp(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	engine := startEngine(t)
	part := 6 * spec.Hour
	if os.Getenv("MUSTER_LONG") == "" {
		part = 12 * spec.Hour
	}
	for name, first := range map[string]time.Time{"spring": time.Date(2026, 3, 28, 0, 0, 0, 0, berlin), "autumn": time.Date(2026, 10, 24, 0, 0, 0, 0, berlin)} {
		begin := spec.Instant(first.UnixNano())
		log := spanning(t, begin, 4*spec.Day)
		ledger := newLedger(t)
		ledger.add(t, log, 25)
		r := newRigIn(t, engine.Socket(), name, ledger)
		end := spec.Instant(first.AddDate(0, 0, 3).UnixNano())
		r.clock.set(end.Add(2 * spec.Day))
		r.start()
		r.stored(log[len(log)-1].Seq)
		for _, rep := range []string{"cluster UserUtilizationByAccount", "cluster Utilization", "job SizesByAccount"} {
			type window struct{ from, to spec.Instant }
			asked := map[window]*apiv1.ReportReply{} // one answer has all columns
			for _, col := range map[string][]string{"cluster UserUtilizationByAccount": {"Used"}, "cluster Utilization": {"Allocated", "Reported", "Idle", "Down"}, "job SizesByAccount": {"0-49 CPUs"}}[rep] {
				total := func(from, to spec.Instant) (sum int64) {
					w := window{from, to}
					if asked[w] == nil {
						asked[w] = r.reportOf(t, &apiv1.ReportQuery{Report: rep, Start: int64(from), End: int64(to)})
					}
					for _, v := range cells(t, asked[w], col) {
						var n int64
						fmt.Sscan(v, &n)
						sum += n
					}
					return sum
				}
				whole, days, parts := total(begin, end), int64(0), int64(0)
				for d := range 3 {
					a, b := spec.Instant(first.AddDate(0, 0, d).UnixNano()), spec.Instant(first.AddDate(0, 0, d+1).UnixNano())
					days += total(a, b)
					if want := map[string]spec.Span{"spring": 23 * spec.Hour, "autumn": 25 * spec.Hour}[name]; d == 1 && b.Sub(a) != want {
						t.Fatalf("the middle day of %s has %d hours", name, b.Sub(a)/spec.Hour)
					}
					for h := a; h < b; h = h.Add(part) {
						parts += total(h, min(h.Add(part), b))
					}
				}
				if whole == 0 && col != "Down" || days != whole || parts != whole {
					t.Errorf("%s, %s %s: whole %d, by days %d, by parts of days %d", name, rep, col, whole, days, parts)
				}
			}
		}
		r.stop()
	}
}

// TestNodeEvents: what was not up is listed from when to when, said again at
// midnight or not; what goes on has no end.
func TestNodeEvents(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(t0))
	h.Nodes(2, 64, 512_000, 0)
	h.Wait(spec.Hour)
	h.Put(&event.NodeStateSet{Node: "n1", State: event.NodeDrain, Reason: "gpu xid 79"})
	h.Wait(3 * spec.Day) // midnights
	h.Put(&event.NodeStateSet{Node: "n1", State: event.NodeResume})
	h.Wait(spec.Hour)
	h.Put(&event.NodeStateSet{Node: "n2", State: event.NodeDown, Reason: "power"})
	h.Wait(2 * spec.Day)
	h.Put(&event.NodeStateSet{Node: "n1", State: event.NodeDrain, Reason: "again"})
	ledger := newLedger(t)
	ledger.add(t, h.Log, 25)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.clock.set(h.Now.Add(spec.Hour))
	r.start()
	r.stored(uint64(len(h.Log)))
	list := func(q *apiv1.ReportQuery) (out string) {
		q.Report = "node events"
		rep := r.reportOf(t, q)
		for i, node := range cells(t, rep, "NodeName") {
			hours := func(text string) int64 {
				var ns int64
				fmt.Sscan(text, &ns)
				return max(-1, (ns/1e9-t0)/3600)
			}
			out += fmt.Sprintf("%s %d-%d %s; ", node, hours(cells(t, rep, "TimeStart")[i]), hours(cells(t, rep, "TimeEnd")[i]), cells(t, rep, "Reason")[i])
		}
		return out
	}
	all := &apiv1.ReportQuery{Start: 1, End: int64(h.Now.Add(spec.Hour))}
	if got := list(all); got != "n1 1-73 gpu xid 79; n2 74--1 power; n1 122--1 again; " {
		t.Errorf("all of it: %s", got)
	}
	day := &apiv1.ReportQuery{Start: int64(spec.AtUnix(t0 + 30*3600)), End: int64(spec.AtUnix(t0 + 31*3600)), Nodes: []string{"n[1-2]"}}
	if got := list(day); got != "n1 1-73 gpu xid 79; " {
		t.Errorf("one hour: %s", got)
	}
	if got := list(&apiv1.ReportQuery{Start: 1, End: int64(h.Now), Nodes: []string{"n2"}}); got != "n2 74--1 power; " {
		t.Errorf("one node: %s", got)
	}
}
