package e2e

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/dashboards"
	"github.com/musterhpc/muster/dashboards/preview"
)

// mover does the actions that the table of moves names and looks at the
// panels.
type mover struct {
	*watched
	source preview.Source
	job    string // that the dashboard of a job shows
	run    string // the job that works
	undo   func() // of the present action
}

// nothing is a job number that no job has.
const nothing = "999999"

// measure is what a panel shows as one number: the sum of its values now, or
// the number of its rows.
func (m *mover) measure(move dashboards.Move, p dashboards.Panel) (float64, error) {
	now := time.Now()
	scope := dashboards.Scope{Vars: map[string][]string{"cluster": {"lab"}, "job": {m.job}}, From: now.Add(-5 * time.Minute), To: now, Step: 2 * time.Second}
	total := 0.0
	for _, q := range p.Queries {
		instant := p
		if q.Lang != dashboards.SQL {
			instant.Kind = dashboards.Stat
		}
		d, err := m.source.Query(context.Background(), scope, instant, q)
		if err != nil {
			return 0, err
		}
		for _, s := range d.Series {
			switch {
			case move.Of == "rows":
				total++
			case strings.Contains(s.Name, move.Of):
				total += sum(s.Values, q.Lang == dashboards.SQL)
			}
		}
		for _, row := range d.Rows {
			if move.Of == "" {
				total++
				continue
			}
			for i, name := range d.Columns {
				if v, ok := row[i].(float64); ok && name == move.Of {
					total += v
				}
			}
		}
	}
	return total, nil
}

// sum adds up all values, or takes the last; what is not a number is nothing.
func sum(values []float64, all bool) float64 {
	if !all && len(values) > 0 {
		values = values[len(values)-1:]
	}
	total := 0.0
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			total += v
		}
	}
	return total
}

// do does one action and waits until all its panels have moved.
func (m *mover) do(t *testing.T, a dashboards.Action, act func()) {
	type watch struct {
		dashboards.Move
		panel        dashboards.Panel
		before, last float64
		err          error
	}
	var watching []*watch
	for _, move := range dashboards.Moves() {
		if move.Action == a {
			w := &watch{Move: move, panel: panelOf(t, move)}
			w.before, w.err = m.measure(move, w.panel)
			watching = append(watching, w)
		}
	}
	began := time.Now()
	act()
	all := len(watching)
	for len(watching) > 0 && time.Since(began) < 8*time.Minute {
		time.Sleep(500 * time.Millisecond)
		var left []*watch
		for _, w := range watching {
			w.last, w.err = m.measure(w.Move, w.panel)
			if w.Noisy && w.err == nil {
				w.before = min(w.before, w.last)
			}
			if w.err != nil || w.Way == dashboards.Up && !(w.last > w.before) || w.Way == dashboards.Down && !(w.last < w.before) {
				left = append(left, w)
			}
		}
		watching = left
	}
	for _, w := range watching {
		t.Errorf("%s / %s / %s (%s) should have gone %s: it was %v and is %v, %v", w.Board, w.Row, w.Panel, w.Of, w.Way, w.before, w.last, w.err)
	}
	t.Logf("%s moved %d of %d panels in %v", a, all-len(watching), all, time.Since(began).Round(time.Second))
	if m.undo != nil {
		m.undo()
		m.undo = nil
	}
}

func panelOf(t *testing.T, m dashboards.Move) dashboards.Panel {
	t.Helper()
	for _, b := range dashboards.All() {
		for _, r := range b.Rows {
			for _, p := range r.Panels {
				if b.UID == m.Board && r.Title == m.Row && p.Title == m.Panel {
					return p
				}
			}
		}
	}
	t.Fatalf("no panel %s / %s / %s", m.Board, m.Row, m.Panel)
	return dashboards.Panel{}
}

// TestEveryPanelMoves does every action of the table of moves in a lab and
// sees each panel go where the table says.
func TestEveryPanelMoves(t *testing.T) {
	// Most panels show KPIs. A lab on a busy machine computes them for several seconds, and
	// with the defaults it would then rest for ten times as long.
	w := watch(t, setting{"kpi_interval: 15s", "kpi_interval: 1s"}, setting{"kpi_share: 10", "kpi_share: 50"})
	m := &mover{watched: w, source: preview.Source{Prometheus: w.prometheus, ClickHouse: w.file("run/clickhouse.sock"), Database: "muster"}.Open(), job: nothing}
	m.must("sacctmgr", "-i", "add", "account", "bio", "fairshare=3")
	m.must("sacctmgr", "-i", "add", "user", "root", "account=bio")
	acts := m.actions()
	for _, d := range dashboards.Actions() {
		act := acts[d.Action]
		if act == nil {
			t.Fatalf("the lab cannot %s", d.Action)
		}
		if !t.Run(string(d.Action), func(t *testing.T) { m.do(t, d.Action, act) }) {
			t.Logf("what follows may suffer")
		}
	}
}

// actions are what the table names.
//
//muster:table one entry for each action
func (m *mover) actions() map[dashboards.Action]func() {
	return map[dashboards.Action]func(){
		dashboards.Run:    m.runJobs,
		dashboards.Wait:   m.waitForMore,
		dashboards.Finish: m.finish,
		dashboards.Set:    func() { m.must("sacctmgr", "-i", "modify", "account", "ml", "set", "fairshare=9") },
		dashboards.Fail: func() {
			for range 3 {
				m.watched.job("--gres=gpu:1", "--comment", "sim:util=50", "--time=5", "--wrap", "sleep 2; exit 3")
				m.watched.job("--time=5", "--wrap", "exit 1")
			}
		},
		dashboards.Hold: func() {
			m.job = m.watched.job("--gres=gpu:1", "--comment", "sim:util=0,shape=idle", "--time=5", "--wrap", "sleep 25")
		},
		dashboards.Break: func() {
			var jobs []string
			for _, load := range []string{"xid=48@1s", "xid=74@1s", "thermal@1s+60s", "lost@2s"} {
				jobs = append(jobs, m.watched.job("--gres=gpu:h100:1", "--nodelist=node2", "--comment", "sim:util=50,"+load, "--time=5", "--wrap", "sleep 200"))
			}
			m.undo = func() { m.must(append([]string{"scancel"}, jobs...)...) }
		},
		dashboards.Reserve: func() {
			m.must("scontrol", "create", "reservation", "ReservationName=now", "StartTime=now", "Duration=60", "Nodes=node3", "Users=root", "Flags=IGNORE_JOBS")
			m.must("scontrol", "create", "reservation", "ReservationName=later", "StartTime=now+2hours", "Duration=60", "Nodes=node3", "Users=root", "Flags=IGNORE_JOBS")
			job := m.watched.job("--reservation=now", "-L", "ansys:2", "-c", "2", "--time=5", "--wrap", "sleep 200")
			m.undo = func() { m.must("scancel", job) }
		},
		dashboards.Drain:  func() { m.scontrol("nodename=node2", "state=drain", "reason=fan") },
		dashboards.Hammer: m.hammer,
		dashboards.Slow: func() {
			m.edit("muster.yaml", "interval: 1s", "interval: 15s")
			m.kill9("agent-node1")
			m.must("up", "--dir", m.dir)
			m.edit("muster.yaml", "interval: 15s", "interval: 1s")
		},
		dashboards.Freeze: m.freeze,
		dashboards.Cut:    m.cut,
		dashboards.Kill: func() {
			m.kill9("agent-node3")
			shepherd := m.process("muster-shepherd", "--node\x00node1\x00")
			m.signal(shepherd, syscall.SIGSTOP)
			m.undo = func() { m.signal(shepherd, syscall.SIGCONT) }
		},
		dashboards.End: func() { m.kill9("musterd") },
		dashboards.Renew: func() {
			day := func(n int) string { return time.Now().AddDate(0, 0, n).Format(time.DateOnly) }
			m.edit("muster.yaml", "ml "+day(-10)+" ", "ml "+day(-25)+" ")
			m.must("up", "--dir", m.dir)
		},
	}
}

// runJobs starts work: one job does everything a job can be seen to do.
func (m *mover) runJobs() {
	const work = `( head -c 500m /dev/zero; while [ ! -e enough ]; do sleep 0.2; done ) | tail -c 500m >/dev/null &
while [ ! -e enough ]; do printf '%1000000s' > written; done
wait`
	m.run = m.watched.job("--gres=gpu:h100:2", "--nodelist=node1", "-c", "2", "--mem=2000", "--time=20", "--comment", "sim:util=80,mem=70,warmup=1s", "--wrap", work)
	m.job = m.run
	m.watched.job("--gres=gpu:a100_3g.20gb:1", "--nodelist=node3", "--time=20", "--comment", "sim:util=60", "--wrap", "while [ ! -e enough ]; do sleep 0.2; done")
}

func (m *mover) waitForMore() {
	m.job = m.watched.job("-N3", "--exclusive", "--gres=gpu:h100:1", "--time=5", "--wrap", "sleep 1")
	m.watched.job("--gres=gpu:h100:4", "-N2", "--time=5", "--wrap", "sleep 1")
	m.watched.job("-H", "--time=5", "--wrap", "true")
}

// finish lets what waits see small jobs pass it, then ends the work.
func (m *mover) finish() {
	m.job = m.run
	for range 4 {
		m.watched.job("--gres=gpu:h100:1", "--comment", "sim:util=90", "--time=1", "--wrap", "timeout 2 sh -c 'while :; do :; done'; sleep 1")
	}
	m.eventually("the small jobs pass the large one", func() bool { return strings.Count(m.must("squeue", "-h", "-t", "R", "-o", "%i"), "\n") >= 4 })
	m.watched.job("-A", "bio", "--time=1", "--wrap", "timeout 2 sh -c 'while :; do :; done'")
	m.write("enough", "")
}

// hammer submits more than a controller is asked in a day, and what it refuses;
// again where a machine was too quick for anybody to see it.
func (m *mover) hammer() {
	var all sync.WaitGroup
	stop := make(chan struct{})
	all.Go(func() {
		for range 4 {
			select {
			case <-stop:
				return
			default:
			}
			m.watched.run("bench", "submit", "--socket", m.file("run/muster.sock"), "--config", m.file("muster.yaml"), "--clients", "128", "--jobs", "2000", "--unique", "--fill=false", "-q")
		}
	})
	all.Go(func() {
		for range 30 {
			m.watched.run("sbatch", "--gres=gpu:99", "-N1", "--wrap", "true")
		}
	})
	m.undo = func() { close(stop); all.Wait() }
}

// freeze stops the controller for a while; a job ends meanwhile.
func (m *mover) freeze() {
	job := m.watched.job("--nodelist=node1", "--time=5", "--wrap", "sleep 1")
	m.until("R", "squeue", "-h", "-j", job, "-o", "%t")
	pid := m.pid("musterd")
	m.signal(pid, syscall.SIGSTOP)
	m.undo = func() {
		m.signal(pid, syscall.SIGCONT)
		m.eventually("accounting goes on", func() bool {
			d, err := m.source.Query(context.Background(), dashboards.Scope{To: time.Now()}, dashboards.Panel{Kind: dashboards.Stat}, dashboards.Query{Expr: "muster_accounting_up == 1 and muster_accounting_lag_events == 0"})
			return err == nil && !d.Empty()
		})
	}
}

func (m *mover) signal(pid int, s syscall.Signal) {
	if err := syscall.Kill(pid, s); err != nil {
		m.watched.cluster.t.Errorf("%v to %d: %v", s, pid, err)
	}
}

// cut kills the engine of the accounting store as often as it comes back.
func (m *mover) cut() {
	stop := make(chan struct{})
	var breaking sync.WaitGroup
	breaking.Go(func() { m.keepDown(stop) })
	m.watched.job("--time=5", "--wrap", "true")
	m.undo = func() { close(stop); breaking.Wait() }
}

func (m *mover) pid(name string) int {
	data, err := os.ReadFile(filepath.Join(m.dir, "run", name+".pid"))
	if err != nil {
		m.watched.cluster.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		m.watched.cluster.t.Fatal(fmt.Errorf("%s: %w", name, err))
	}
	return pid
}
