package paging

import (
	"cmp"
	"compress/gzip"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/musterhpc/muster/alerts"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/sim/replay"
	"github.com/musterhpc/muster/spec"
)

// Minutes of an hour and of a day.
const (
	hour = 60
	day  = 24 * hour
)

// planted is a fault and the alert that must tell of it.
type planted struct {
	alert    string
	from, to int // minutes from its beginning to its end
	begin    func(c *cluster)
	end      func(c *cluster)
}

// faults are the planted ones, each half an hour or longer apart from the next. A
// fault has several consequences; one alert may tell of it.
func faults() []planted {
	nodes := func(c *cluster, part int) []*agent { return c.agents[:len(c.agents)*part/10] }
	return []planted{
		{alert: "MusterControllerDown", to: 12, begin: func(c *cluster) { c.ctl.down = true }, end: func(c *cluster) { c.ctl.down = false }},
		{alert: "MusterLeaderless", to: 12, begin: func(c *cluster) { c.ctl.leaderless = true }, end: func(c *cluster) { c.ctl.leaderless = false }},
		{alert: "MusterLedgerDiskLow", to: 30,
			// The disk fills up; a few minutes later writes fail too.
			begin: func(c *cluster) {
				c.ctl.free = 700 << 20
				c.events = append(c.events, happening{c.minute() + 10, func(c *cluster) { c.ctl.syncFails += 3 }})
				slices.SortStableFunc(c.events, func(a, b happening) int { return cmp.Compare(a.minute, b.minute) })
			},
			end: func(c *cluster) { c.ctl.free = 100 << 30 }},
		{alert: "MusterLedgerSyncFailed", to: 20, begin: func(c *cluster) { c.ctl.syncFails++ }},
		// A switch: four in ten nodes are away, to Prometheus too.
		{alert: "MusterAgentsLost", to: 40, begin: func(c *cluster) { each(nodes(c, 4), func(a *agent) { a.down = true }) },
			end: func(c *cluster) { each(nodes(c, 4), func(a *agent) { a.down = false }) }},
		{alert: "MusterHistoryLost", to: 70, begin: func(c *cluster) {
			seen := event.Position{Seq: c.view.State.Seq + 100}
			c.do(event.Actor{Kind: event.ActorSystem}, scheduler.Policy{Events: []event.Event{&event.HistoryLost{Witness: "node n1", Seen: seen}}})
		}},
		// Until somebody has drained the node.
		{alert: "MusterGPUXID", to: 20, begin: func(c *cluster) { c.driverError("n7", 2, 48, "fatal") }, end: func(c *cluster) { c.drain("n7", true) }},
		{alert: "MusterErrorBudgetBurnsFast", to: 40, begin: func(c *cluster) { c.ctl.slow = true }, end: func(c *cluster) { c.ctl.slow = false }},
		// What is told today, not now.
		{alert: "MusterNodesDown", to: 45, begin: func(c *cluster) { c.byName["n9"].down = true }, end: func(c *cluster) { c.byName["n9"].down = false }},
		{alert: "MusterAgentDisconnected", to: 4, begin: func(c *cluster) { c.byName["n3"].cut = true }, end: func(c *cluster) { c.byName["n3"].cut = false }},
		{alert: "MusterAccountingDown", to: 25, begin: func(c *cluster) { c.ctl.noStore = true }, end: func(c *cluster) { c.ctl.noStore = false }},
		{alert: "MusterShepherdDown", to: 20, begin: func(c *cluster) { c.byName["n4"].tel.SetShepherdUp(false) }, end: func(c *cluster) { c.byName["n4"].tel.SetShepherdUp(true) }},
		{alert: "MusterReportsStuck", to: 40, begin: func(c *cluster) { c.byName["n5"].tel.SetReportsPending(90) }, end: func(c *cluster) { c.byName["n5"].tel.SetReportsPending(0) }},
		{alert: "MusterGPUXIDOfDevice", to: 61, begin: func(c *cluster) { c.driverError("n11", 0, 63, "memory") }},
		{alert: "MusterGPUOffTheBus", to: 20, begin: func(c *cluster) { c.lose("n12", 5) }, end: func(c *cluster) { c.heal("n12", 5) }},
	}
}

func each(list []*agent, do func(a *agent)) {
	for _, a := range list {
		do(a)
	}
}

// lose has a device fall off the bus, and heal brings it back.
func (c *cluster) lose(node string, gpu int) {
	a := c.byName[node]
	if err := a.gpus.Inject(c.view.Published, a.inventory(c.t)[gpu].UUID, simulated.Fault{Kind: simulated.FaultLost}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) heal(node string, gpu int) {
	a := c.byName[node]
	if err := a.gpus.Heal(c.view.Published, a.inventory(c.t)[gpu].UUID); err != nil {
		c.t.Fatal(err)
	}
}

// routine is what happens in a cluster that is well, at minutes of each day.
func routine(minutes int, gpus bool) (out []happening) {
	at := func(minute int, what func(c *cluster)) { out = append(out, happening{minute, what}) }
	for begin := 0; begin < minutes; begin += day {
		// A release of the controller; a scrape falls into it.
		at(begin+30, func(c *cluster) { c.ctl.down = true })
		at(begin+31, func(c *cluster) { c.ctl.down = false })
		// Maintenance of three nodes: drained, restarted, back.
		for i, node := range []string{"n14", "n15", "n16"} {
			at(begin+40+i, func(c *cluster) { c.drain(node, true) })
			at(begin+60+i, func(c *cluster) { c.byName[node].down = true })
			at(begin+64+i, func(c *cluster) { c.byName[node].down = false })
			at(begin+80+i, func(c *cluster) { c.drain(node, false) })
		}
		// Two agents are restarted; Prometheus misses them once.
		for i, node := range []string{"n10", "n13"} {
			at(begin+85+i, func(c *cluster) { c.byName[node].down = true })
			at(begin+86+i, func(c *cluster) { c.byName[node].down = false })
		}
		if gpus {
			at(begin+90, func(c *cluster) { c.driverError("n2", 1, 31, "application") })
			at(begin+95, func(c *cluster) { c.driverError("n6", 3, 13, "application") })
		}
	}
	return out
}

// made is a workload of a busy cluster with bursts, and hours in which it is full.
func made(minutes int) *replay.Trace {
	tr := &replay.Trace{}
	chance := uint64(1)
	draw := func(n uint64) int64 {
		chance = chance*6364136223846793005 + 1442695040888963407
		return int64(chance >> 33 % n)
	}
	for minute := int64(0); minute < int64(minutes); minute++ {
		for range draw(3) + 1 {
			gpus := int64(1) << draw(4)
			tr.Rows = append(tr.Rows, replay.Row{ID: int64(len(tr.Rows) + 1), Submit: minute*60 + draw(60), Run: 120 + draw(9000), Limit: 14400, Procs: gpus, GPUs: gpus,
				User: 1 + draw(12), Group: 1 + draw(4), Wait: -1})
		}
	}
	slices.SortStableFunc(tr.Rows, func(a, b replay.Row) int { return cmp.Compare(a.Submit, b.Submit) })
	return tr
}

// trace opens a real workload in the folder that MUSTER_TRACES names.
func trace(t *testing.T, name string) io.Reader {
	t.Helper()
	dir := cmp.Or(os.Getenv("MUSTER_TRACES"), "../../../shared/traces")
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Skipf("SKIPPED: the real workloads are not here; MUSTER_TRACES names their folder: %v", err)
	}
	t.Cleanup(func() { f.Close() })
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// watched replays a trace for so many minutes of which the first are a normal
// cluster's, and gives what people are told.
func watched(t *testing.T, tr *replay.Trace, m replay.Machine, minutes int, events []happening) (*shipped, *recorder, map[int][]model.LabelSet) {
	t.Helper()
	rule, err := replay.RuleNamed("muster")
	if err != nil {
		t.Fatal(err)
	}
	w := tr.Workload(m.Config(rule.Settings()))
	s := readShipped(t)
	series := newRecorder(s.wanted)
	c := newCluster(t, w, series)
	slices.SortStableFunc(events, func(a, b happening) int { return cmp.Compare(a.minute, b.minute) })
	c.events = events
	began := time.Now()
	res, err := replay.RunWatched(context.Background(), w, rule, &replay.Watch{
		Every:   spec.Minute,
		Until:   c.begin.Add(spec.Span(minutes) * spec.Minute),
		See:     c.see,
		Stalled: func() bool { return c.ctl.stalled },
	})
	if err != nil {
		t.Fatal(err)
	}
	started := 0
	for i := range res.Jobs {
		if res.Jobs[i].Started() {
			started++
		}
	}
	replayed := time.Since(began)
	began = time.Now()
	fired := s.evaluated(t, series)
	t.Logf("%d minutes, %d jobs started, %d series: replayed in %.0f s, rules evaluated in %.0f s", minutes, started, len(series.series), replayed.Seconds(), time.Since(began).Seconds())
	if started == 0 {
		t.Fatal("nothing ran")
	}
	return s, series, fired
}

// agree fails where promtool tells people of other things than the fast evaluation, or
// at another time. Prometheus 2, which may be promtool's, has the sample at the very
// beginning of a range and extrapolates a little otherwise: minutes may differ by two.
func agree(t *testing.T, mine, reference []notice) {
	t.Helper()
	near := func(a, b int) bool { return a-b <= 2 && b-a <= 2 }
	for _, want := range reference {
		same := func(n notice) bool {
			return n.group == want.group && n.severity == want.severity && near(n.from, want.from) && near(n.to, want.to)
		}
		if !slices.ContainsFunc(mine, same) {
			t.Errorf("promtool tells, and the fast evaluation does not: %s", want)
		}
	}
	if len(mine) != len(reference) {
		t.Errorf("the fast evaluation tells of %d things, promtool of %d: %v", len(mine), len(reference), mine)
	}
	t.Logf("promtool tells of %d things", len(reference))
}

// TestPlantedFaultsPageOnce: after some hours of normal operation each planted fault
// notifies once, by the alert that names it, within half of the time that its duty
// allows for an answer, and nothing else pages.
func TestPlantedFaultsPageOnce(t *testing.T) {
	const quiet, apart = 2 * hour, 50
	list := faults()
	events := routine(1, true)
	end := quiet
	for i := range list {
		f := &list[i]
		f.from, f.to = end, end+f.to
		events = append(events, happening{f.from, f.begin})
		if f.end != nil {
			events = append(events, happening{f.to, f.end})
		}
		end = max(f.to+20, f.from+apart)
	}
	s, series, fired := watched(t, made(end), replay.Machine{Nodes: 16, CPUs: 16, GPUs: 8}, end, events)
	notices := s.notices(fired, end+1)
	judge(t, list, notices)
	agree(t, notices, s.notices(s.firing(t, series), end+1))
}

// judge compares what people were told with what was planted.
func judge(t *testing.T, list []planted, notices []notice) {
	t.Helper()
	const afterglow = 75 // minutes for which an error stays news, or an alert holds
	told, paged, right := 0, 0, 0
	for _, f := range list {
		within, err := time.ParseDuration(strings.Replace(alerts.Duties()[f.alert].Within, "1d", "24h", 1))
		if err != nil {
			t.Fatal(err)
		}
		var mine []notice
		for _, n := range notices {
			if n.alert == f.alert && n.from >= f.from && n.from <= f.to {
				mine = append(mine, n)
			}
		}
		switch {
		case len(mine) != 1:
			t.Errorf("%s was planted from minute %d to %d and notified %d times, want once: %v", f.alert, f.from, f.to, len(mine), mine)
		case time.Duration(mine[0].from-f.from)*time.Minute > within/2:
			t.Errorf("%s was planted at minute %d and notified at %d: there are %s to answer", f.alert, f.from, mine[0].from, within)
		case mine[0].to > f.to+afterglow:
			t.Errorf("%s ended at minute %d and the alert at %d", f.alert, f.to, mine[0].to)
		default:
			told++
			t.Logf("%-24s told after %d min", f.alert, mine[0].from-f.from)
		}
	}
	for _, n := range notices {
		if n.severity != string(alerts.Critical) {
			continue
		}
		paged++
		of := func(f planted) bool { return f.alert == n.alert && n.from >= f.from && n.from <= f.to }
		if slices.ContainsFunc(list, of) {
			right++
			continue
		}
		t.Errorf("nobody had to be woken up for this: %s", n)
	}
	for _, n := range notices {
		if n.severity != string(alerts.Critical) {
			t.Logf("told today: %s", n)
		}
	}
	t.Logf("pages: %d, of planted faults: %d (precision %.2f); faults: %d, notified in time and once: %d (recall %.2f)",
		paged, right, share(right, paged), len(list), told, share(told, len(list)))
}

// share is 1 of nothing: who pages nobody is never wrong.
func share(part, whole int) float64 {
	if whole == 0 {
		return 1
	}
	return float64(part) / float64(whole)
}

// week is how many days of the real workloads are replayed. MUSTER_PAGING_DAYS says
// another number, for somebody who is in a hurry or has an evening.
func week(t *testing.T) int {
	t.Helper()
	text := cmp.Or(os.Getenv("MUSTER_PAGING_DAYS"), "7")
	days, err := strconv.Atoi(text)
	if err != nil || days < 1 {
		t.Fatalf("MUSTER_PAGING_DAYS=%q: expected a number of days", text)
	}
	return days * day
}

// stuckOnlyWhenLate: nodes that idle for a front job are no news while the promises
// can be kept. After one was missed or moved back, and the nodes idle on, they are.
func stuckOnlyWhenLate(t *testing.T, series *recorder, notices []notice) {
	t.Helper()
	late := map[int]bool{}
	for text, v := range series.series {
		if !strings.HasPrefix(text, "muster_jobs_overdue{") && !strings.HasPrefix(text, "muster_jobs_slipped{") {
			continue
		}
		for i := range v.runs {
			for minute := v.runs[i].from; minute < v.runs[i].end() && v.runs[i].sample > 0; minute++ {
				late[minute] = true
			}
		}
	}
	for _, n := range notices {
		if n.alert == "MusterQueueStuck" && !late[n.from] {
			t.Errorf("nothing was wrong: %s", n)
		}
	}
}

// TestNormalWeekPagesNobody: a week of real workloads, with what is normal in a
// cluster on each of its days. The machines of the traces stand on 20 nodes: what a
// minute costs here is the scrapes of the agents.
func TestNormalWeekPagesNobody(t *testing.T) {
	if os.Getenv("MUSTER_LONG") == "" {
		t.Skip("a week is replayed with MUSTER_LONG only; TestPlantedFaultsPageOnce has some hours")
	}
	minutes := week(t)
	t.Run("KTH", func(t *testing.T) {
		tr, err := replay.ReadSWF(trace(t, "KTH-SP2-1996-2.1-cln.swf.gz"))
		if err != nil {
			t.Fatal(err)
		}
		machine := replay.Machine{Nodes: 20, CPUs: 5}
		s, series, fired := watched(t, tr, machine, minutes, routine(minutes, false))
		notices := s.notices(fired, minutes+1)
		judge(t, nil, notices)
		stuckOnlyWhenLate(t, series, notices)
	})
	t.Run("ITP", func(t *testing.T) {
		tr, err := replay.ReadITP(trace(t, "msft_itp_2021.csv.gz"), "")
		if err != nil {
			t.Fatal(err)
		}
		machine := replay.Machine{Nodes: 20, CPUs: 16, GPUs: 16}
		s, series, fired := watched(t, tr, machine, minutes, routine(minutes, true))
		notices := s.notices(fired, minutes+1)
		judge(t, nil, notices)
		stuckOnlyWhenLate(t, series, notices)
	})
}
