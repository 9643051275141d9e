package daemon_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/spec"
)

// cpuOf is how many seconds of CPU time a process has used.
func cpuOf(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return float64(user+system) / 100
}

// self is how many seconds of CPU time this process has used.
func self() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// BenchmarkCatchUp stores 880,000 events that came while the store was away.
// The service runs and its tables are made when they come.
func BenchmarkCatchUp(b *testing.B) {
	var away []daemon.Entry
	var last uint64
	var at spec.Instant
	func() { // the events themselves are not kept: the collector would go over them again and again
		log := busy(b, 200_000)
		ledger := newLedger(b)
		ledger.add(b, log, 100)
		away, last, at = ledger.entries, log[len(log)-1].Seq, ledger.at
	}()
	engine := startEngine(b)
	var took time.Duration
	var used, own float64
	n := 0
	for b.Loop() {
		ledger := newLedger(b)
		ledger.come(away[:1], at)
		r := newRigIn(b, engine.Socket(), fmt.Sprintf("bench%d", n), ledger)
		r.cfg.Interval = 100 * spec.Millisecond
		r.start()
		r.stored(away[0].Last)
		theirs, ours, began := cpuOf(engine.PID()), self(), time.Now()
		ledger.come(away[1:], at)
		r.stored(last)
		took, used, own = took+time.Since(began), used+cpuOf(engine.PID())-theirs, own+self()-ours
		r.stop()
		n++
	}
	events := float64(n) * float64(last-away[0].Last)
	b.ReportMetric(events/took.Seconds(), "events/s")
	b.ReportMetric(used/events*1e6, "engine-us/event")
	b.ReportMetric(own/events*1e6, "us/event")
}

// BenchmarkTrickle feeds jobs at a steady rate, and measures how long it takes
// from the ledger to the store, and what it costs in CPUs.
func BenchmarkTrickle(b *testing.B) {
	for _, rate := range []int{10, 200, 1000} {
		b.Run(fmt.Sprintf("jobs=%d/s", rate), func(b *testing.B) {
			const ticks, tick = 200, 20 * time.Millisecond
			log := busy(b, rate*ticks/50)
			ledger := newLedger(b)
			engine := startEngine(b)
			r := newRig(b, engine.Socket(), ledger)
			r.cfg.Interval = 100 * spec.Millisecond
			r.start()
			var waits []time.Duration
			for range 1 { // once: it takes as long as it takes
				used, own, began := cpuOf(engine.PID()), self(), time.Now()
				type mark struct {
					seq uint64
					at  time.Time
				}
				marks := make(chan mark, ticks)
				done := make(chan struct{})
				go func() {
					defer close(done)
					for m := range marks {
						for r.Status().Seq < m.seq {
							time.Sleep(2 * time.Millisecond) //muster:sleep a measurement of time
						}
						waits = append(waits, time.Since(m.at))
					}
				}()
				for i := range ticks {
					if part := log[len(log)*i/ticks : len(log)*(i+1)/ticks]; len(part) > 0 {
						ledger.add(b, part, 50)
						marks <- mark{part[len(part)-1].Seq, time.Now()}
					}
					time.Sleep(tick) //muster:sleep a steady rate
				}
				close(marks)
				<-done
				took := time.Since(began).Seconds()
				b.ReportMetric((cpuOf(engine.PID())-used)/took, "engine-CPUs")
				b.ReportMetric((self()-own)/took, "CPUs")
			}
			slices.Sort(waits)
			b.ReportMetric(float64(waits[len(waits)/2].Milliseconds()), "p50-ms")
			b.ReportMetric(float64(waits[len(waits)*99/100].Milliseconds()), "p99-ms")
			b.ReportMetric(float64(r.Status().Batches), "batches")
		})
	}
}
