package daemon_test

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// TestEngineKilledWhileAsked kills the engine while people ask: each question is
// answered rightly, or refused as one that the store cannot be reached for, and
// all are answered again once the engine is back.
func TestEngineKilledWhileAsked(t *testing.T) {
	engine := startEngine(t)
	log := busy(t, 300)
	ledger := newLedger(t)
	ledger.add(t, log, 25)
	r := newRig(t, engine.Socket(), ledger)
	r.cfg.Log = nil // it has much to say
	r.clock.set(log[len(log)-1].At.Add(spec.Hour))
	r.start()
	r.stored(log[len(log)-1].Seq)
	ask := map[string]func() (string, error){
		"sacct": func() (string, error) {
			reply, err := r.Service().Jobs(t.Context(), &apiv1.AcctQuery{AllUsers: true, Start: 1})
			return fmt.Sprint(len(reply.GetRows())), err
		},
		"sreport": func() (string, error) {
			reply, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "cluster userutilizationbyaccount", Start: int64(log[0].At), End: int64(log[len(log)-1].At)})
			return fmt.Sprint(reply.GetRows()), err
		},
	}
	want := map[string]string{}
	for name, f := range ask {
		got, err := f()
		if err != nil {
			t.Fatal(err)
		}
		want[name] = got
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for name, f := range ask {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				got, err := f()
				switch {
				case err != nil && spec.CodeOf(err) != spec.CodeDatabaseUnreachable:
					t.Errorf("%s: %v", name, err)
				case err == nil && got != want[name]:
					t.Errorf("%s says %s, and said %s", name, got, want[name])
				}
			}
		}()
	}
	for n := range 3 {
		before := engine.Restarts()
		kill(t, engine.PID)
		for began := time.Now(); engine.Restarts() == before && time.Since(began) < 30*time.Second; {
			time.Sleep(10 * time.Millisecond) //muster:sleep until the engine is started again
		}
		if engine.Restarts() == before {
			t.Fatalf("the engine does not come back after its death %d", n+1)
		}
	}
	close(stop)
	wg.Wait()
	for name, f := range ask {
		for began := time.Now(); ; {
			got, err := f()
			if err == nil {
				if got != want[name] {
					t.Errorf("%s says %s, and said %s", name, got, want[name])
				}
				break
			}
			if time.Since(began) > 30*time.Second {
				t.Fatalf("%s is not answered again: %v", name, err)
			}
		}
	}
}

// kill kills a process once there is one: number 0 would be the test itself.
func kill(t *testing.T, pid func() int) {
	t.Helper()
	for began := time.Now(); time.Since(began) < 30*time.Second; {
		if n := pid(); n > 1 {
			_ = syscall.Kill(n, syscall.SIGKILL)
			return
		}
		time.Sleep(10 * time.Millisecond) //muster:sleep until the engine runs
	}
	t.Fatal("there is no engine to kill")
}
