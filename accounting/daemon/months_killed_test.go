package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// monthsEnv makes the test binary one that archives, purges and reads back a
// month until it is killed.
const monthsEnv = "MUSTER_TEST_MONTHS"

// monthsJob is what it is told.
type monthsJob struct {
	Socket, Root string
	Scope        query.Scope
	Month        query.Month
}

// months is the victim of TestMonthsKilled.
func months() int {
	var job monthsJob
	if err := json.Unmarshal([]byte(os.Getenv(monthsEnv)), &job); err != nil {
		return 1
	}
	s, err := clickhouse.Open(clickhouse.Options{Socket: job.Socket, Database: "muster"})
	if err != nil {
		return 1
	}
	ctx := context.Background()
	for {
		if _, err = s.Archive(ctx, job.Scope, job.Month, job.Root); err != nil {
			break
		}
		if _, err = s.Purge(ctx, job.Scope, job.Month, job.Root); err != nil {
			break
		}
		if _, err = s.Unarchive(ctx, job.Scope, job.Month, job.Root); err != nil {
			break
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// month is a service over a ledger whose last days of March are over. Some
// runs go on in April, on nodes that say nothing since March.
type month struct {
	*rig
	h    *tallytest.History
	m    query.Month
	away []spec.JobUID
}

func newMonth(t *testing.T, engine string) *month {
	t.Helper()
	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	h := tallytest.New(t, spec.Instant(april.AddDate(0, 0, -3).UnixNano()))
	h.Nodes(2, 64, 512_000, 8)
	var away []spec.JobUID
	for range 2 {
		uid := h.Submit(tallytest.Ask{Name: "away", User: "bob", UID: 1002, Account: "ml", QOS: "normal", CPUs: 1, Mem: 4000})
		h.Start(uid, "n1")
		away = append(away, uid)
	}
	for i := range 80 {
		h.Wait(spec.Hour)
		runOnce(h, i)
	}
	ledger := newLedger(t)
	ledger.add(t, h.Log, 25)
	r := newRig(t, engine, ledger)
	r.cfg.Archive = t.TempDir()
	r.clock.set(spec.Instant(april.AddDate(0, 0, 5).UnixNano()))
	r.start()
	m, err := query.ParseMonth("2026-03")
	if err != nil {
		t.Fatal(err)
	}
	return &month{r, h, m, away}
}

func runOnce(h *tallytest.History, i int) {
	uid := h.Submit(tallytest.Ask{Name: "train", User: "alice", UID: 1001, Account: "ml", QOS: "normal", CPUs: int64(1 + i%5), Mem: 4000})
	h.Start(uid, fmt.Sprintf("n%d", 1+i%2))
	h.Wait(spec.Seconds(int64(100 + 7*i)))
	h.Finish(uid, spec.Usage{UserCPU: 50 * spec.Second})
}

func (m *month) verb(verb string) error {
	return m.Service().Maintain(&apiv1.MaintainRequest{Verb: verb, Name: m.m.String()}, &careStream{ctx: m.t.Context()})
}

// must runs a verb, once the days are added up.
func (m *month) must(verb string) {
	m.t.Helper()
	for began := time.Now(); ; {
		err := m.verb(verb)
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "added up yet") || time.Since(began) > time.Minute {
			m.t.Fatalf("%s: %v", verb, err)
		}
		time.Sleep(20 * time.Millisecond) //muster:sleep until the writer has added up the days
	}
}

// refused asks for a verb until it is refused: while the service has not heard
// yet how far the days are added up, there is nothing for it to do.
func (m *month) refused(verb string, why error) {
	m.t.Helper()
	for began := time.Now(); ; {
		err := m.verb(verb)
		if err != nil && strings.Contains(err.Error(), why.Error()) {
			return
		}
		if err != nil || time.Since(began) > time.Minute {
			m.t.Fatalf("%s is not refused (%v): %v", verb, why, err)
		}
		time.Sleep(20 * time.Millisecond) //muster:sleep until the writer has heard of its days
	}
}

// state is what the tables that grow have.
func (m *month) state() (out string) {
	m.t.Helper()
	for _, a := range query.AgedTables() {
		sql := fmt.Sprintf("SELECT concat(toString(count()), ' ', toString(sum(cityHash64(tuple(*))))) FROM muster.%s", a.Name)
		err := m.store.Query(m.t.Context(), query.Query{SQL: sql}, func(scan func(...any) error) error {
			var text string
			err := scan(&text)
			out += a.Name + " " + text + "\n"
			return err
		})
		if err != nil {
			m.t.Fatal(err)
		}
	}
	return out
}

func (m *month) good(when string) {
	m.t.Helper()
	if bad := m.care("verify", ""); bad != nil {
		m.t.Errorf("%s: %v", when, bad)
	}
}

// TestMonthsKilled kills what archives, purges and reads back a month, at any
// instant. Whatever is done next, the month can be read back, and is what it
// was.
func TestMonthsKilled(t *testing.T) {
	engine := startEngine(t).Socket()
	m := newMonth(t, engine)
	last := m.h.Log[len(m.h.Log)-1].Seq
	m.stored(last)
	m.must("archive")
	m.must("purge")
	m.must("unarchive")
	first := m.state()
	scope := query.Scope{Database: "muster", Ledger: tallytest.LedgerID, Cluster: "peer", Seq: last, Now: m.clock.Now()}
	pos, err := m.store.Position(t.Context(), tallytest.LedgerID)
	if err != nil {
		t.Fatal(err)
	}
	scope.Gen, scope.Rolled = pos.Gen, query.Rolled(pos.Rolled)
	text, err := json.Marshal(monthsJob{engine, m.cfg.Archive, scope, m.m})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	rounds := 4
	if os.Getenv("MUSTER_LONG") == "" {
		rounds = 2
	}
	for round := range rounds {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), monthsEnv+"="+string(text))
		var said strings.Builder
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.IntN(700)) * time.Millisecond) //muster:sleep the instant of the kill
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait() // it was killed
		if said.Len() > 0 {
			t.Fatalf("the one that is killed ended by itself: %s", said.String())
		}
		before := m.state()
		if round%2 == 1 { // as retention does; a month that is half read back is refused
			_ = m.verb("archive")
			_ = m.verb("purge")
		}
		m.must("unarchive")
		if got := m.state(); got != first {
			t.Fatalf("after kill %d, which left\n%sthe month is\n%swas\n%s", round, before, got, first)
		}
	}
	m.good("after the kills")
}

// TestMonthsLate: what comes for a month after it was archived and purged is
// added to its archive, and takes nothing from it. What a purge that was
// broken off has deleted, retention notes.
func TestMonthsLate(t *testing.T) {
	m := newMonth(t, startEngine(t).Socket())
	m.stored(m.h.Log[len(m.h.Log)-1].Seq)
	all := m.left() + 2
	for _, uid := range m.away {
		m.must("archive")
		m.must("purge")
		// A node that was away says late what ended in March.
		from, j := len(m.h.Log), m.h.State.Job(uid)
		m.h.End(uid, spec.Completed, spec.ExitStatus{})
		ended := spec.Instant(m.m.Until * 1000).Add(-spec.Hour)
		m.h.Put(&event.JobNodeDone{UID: uid, Attempt: j.Attempt, Node: "n1", Batch: &event.StepResult{Started: j.Started, Ended: ended}})
		late := m.h.Log[len(m.h.Log)-1].Seq
		m.h.Wait(spec.Day) // which makes the days be added up again
		runOnce(m.h, 1)
		m.ledger.add(t, m.h.Log[from:], 25)
		m.rolled(late)
		m.refused("purge", clickhouse.ErrNoArchive)
	}
	m.must("archive")
	m.must("archive") // again: nothing twice
	m.must("purge")
	m.good("after the purges")
	if left := m.left(); left != 0 {
		t.Fatalf("%d steps are left", left)
	}
	m.must("unarchive")
	m.good("when all is back")
	if have := m.left(); have != all {
		t.Errorf("%d steps are back, there were %d", have, all)
	}
	m.stop()
	if err := m.store.Exec(t.Context(), "INSERT INTO muster.purges (ledger, cluster, id, phase, month, `table`, upto, sums, rolled) SELECT ledger, cluster, generateUUIDv4(), 'begun', '2026-02', 'steps', 1, sums, rolled FROM muster.purges LIMIT 1"); err != nil {
		t.Fatal(err)
	}
	m.cfg.RetainEvery = 20 * spec.Millisecond
	m.start()
	for began := time.Now(); ; {
		var open uint64
		err := m.store.Query(t.Context(), query.Query{SQL: "SELECT uniqIf(id, phase = 'begun') - uniqIf(id, phase = 'done') FROM muster.purges"}, func(scan func(...any) error) error {
			var n int64
			err := scan(&n)
			open = uint64(n)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if open == 0 {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatal("a purge that was broken off is not ended")
		}
		time.Sleep(20 * time.Millisecond) //muster:sleep until retention has looked
	}
}

// rolled waits until an event is in the rollups.
func (m *month) rolled(seq uint64) {
	m.t.Helper()
	for began := time.Now(); ; {
		pos, err := m.store.Position(m.t.Context(), tallytest.LedgerID)
		if err != nil {
			m.t.Fatal(err)
		}
		if pos.Rolled.Seq >= seq {
			return
		}
		if time.Since(began) > time.Minute {
			m.t.Fatalf("event %d is not added up: %+v", seq, pos)
		}
		time.Sleep(20 * time.Millisecond) //muster:sleep until the writer has added up the days
	}
}

// left is how many steps the month has.
func (m *month) left() (n uint64) {
	m.t.Helper()
	err := m.store.Query(m.t.Context(), query.Query{SQL: "SELECT count() FROM muster.steps WHERE end < '2026-04-01 00:00:00'"}, func(scan func(...any) error) error { return scan(&n) })
	if err != nil {
		m.t.Fatal(err)
	}
	return n
}
