package daemon

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/nodeagent/energy"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// metered is a configuration of a node of 8 CPUs with a meter, which idles at 80 W.
func metered() Config {
	cfg := testConfig()
	cfg.EnergyEvery, cfg.EnergyGap, cfg.IdleMilliWatts, cfg.EnergySource = spec.Second, spec.Minute, 80_000, "rapl"
	return cfg
}

// metering reads the meter after a number of seconds.
func (b *bench) metering(seconds, joules, busy int64, uses ...plan.Usage) {
	b.now = b.now.Add(spec.Seconds(seconds))
	b.core.Energy(&energy.Reading{At: b.now, Zones: []energy.Zone{{Name: "package-0", Micro: joules * 1e6}}}, busy*int64(spec.Second), uses)
}

func cpuOf(k plan.RunKey, seconds int64) plan.Usage {
	return plan.Usage{Key: k, UserCPU: spec.Seconds(seconds)}
}

// doneUsage is what the last report of the node says that the job used.
func doneUsage(t *testing.T, reports []*apiv1.Report) *apiv1.Usage {
	t.Helper()
	for _, r := range reports {
		if d := r.GetNodeDone(); d != nil {
			return d.GetUsage()
		}
	}
	t.Fatalf("the node is not done: %v", reports)
	return nil
}

// A job without GPUs has energy, its step a part of it, and a restart of the agent
// between two readings loses nothing.
func TestJobsHaveEnergy(t *testing.T) {
	b := newBenchWith(t, metered())
	job, step := plan.Key(1, 1, plan.StepBatch), plan.Key(1, 1, 0)
	b.welcome()
	b.metering(0, 0, 0)
	b.run(job, func(l *apiv1.Launch) {
		l.Here = wire.NodeAlloc(&spec.NodeAlloc{Name: "n1", CPUs: spec.FullBitset(4), Mem: 500})
		l.CpusPerNode = "4"
	})
	b.orders(b.stepOrder(step))
	b.answer(step, plan.Accepted, 0)
	b.started(step)
	// 10 s at 80 W are 800 J, half of them the job's; 300 J are for 30 s of CPU time.
	b.metering(10, 1100, 30, cpuOf(job, 10), cpuOf(step, 20))
	saved, err := b.core.Save("boot")
	if err != nil {
		t.Fatal(err)
	}
	again := newBenchWith(t, metered())
	again.now, again.creds = b.now, b.creds
	again.core.creds = again.creds
	if err := again.core.Restore(saved, "boot"); err != nil {
		t.Fatal(err)
	}
	again.welcome(job, step)
	b = again
	figures, ok := b.core.EnergyFigures()
	if !ok || len(figures.Jobs) != 1 || figures.Jobs[0].MJ < 699_999 || figures.Jobs[0].MJ > 700_000 || figures.NobodyMJ+figures.Jobs[0].MJ != figures.NodeMJ || figures.Source != "rapl" {
		t.Errorf("%+v", figures)
	}
	// The step ends with the reading: its CPU time is paid.
	b.exit(step, func(e *plan.Exit) { e.Usage.UserCPU = 20 * spec.Second })
	var ofStep *apiv1.Usage
	for _, r := range b.core.Outgoing() {
		if e := r.GetEnded(); e != nil && e.GetUsage() != nil {
			ofStep = e.GetUsage()
		}
	}
	if ofStep.GetEnergyMj() < 466_665 || ofStep.GetEnergyMj() > 466_667 || !ofStep.GetHasEnergy() {
		t.Errorf("the step used %v", ofStep)
	}
	b.metering(1, 1180, 30, cpuOf(job, 10)) // 80 J more, 40 of them the job's
	b.exit(job, func(e *plan.Exit) { e.Usage.UserCPU = 10 * spec.Second })
	u := doneUsage(t, b.core.Outgoing())
	if u.GetEnergyMj() < 739_998 || u.GetEnergyMj() > 740_000 || !u.GetHasEnergy() {
		t.Errorf("the job used %v", u)
	}
	if figures, _ := b.core.EnergyFigures(); len(figures.Jobs) != 0 || figures.NobodyMJ+u.GetEnergyMj() != figures.NodeMJ {
		t.Errorf("after it: %+v", figures)
	}
}

// A part of an allocation without a script has its share of the idle node; a job on
// a node without a meter has no energy, which is not the same as 0.
func TestEnergyOfHeldPartsAndWithoutAMeter(t *testing.T) {
	for _, with := range []bool{true, false} {
		cfg := testConfig()
		if with {
			cfg = metered()
		}
		b := newBenchWith(t, cfg)
		b.welcome()
		b.metering(0, 0, 0)
		k := plan.Key(2, 1, plan.StepBatch)
		b.launch(k, func(l *apiv1.Launch) { l.Batch, l.Script = false, nil })
		b.metering(10, 800, 0)
		b.orders(terminateOrder(k, ""))
		u := doneUsage(t, b.core.Outgoing())
		if want := int64(100_000); with != u.GetHasEnergy() || with && u.GetEnergyMj() != want {
			t.Errorf("with a meter %v: %v", with, u)
		}
		if _, ok := b.core.EnergyFigures(); ok != with {
			t.Errorf("figures: %v", ok)
		}
	}
}

// A meter of the whole machine has the GPUs in it: their energy is taken off.
func TestEnergyWithoutTheGPUs(t *testing.T) {
	b := newBenchWith(t, metered())
	b.core.SetDevices([]device.Device{{UUID: "GPU-0"}})
	whole := func(joules int64) {
		b.core.Energy(&energy.Reading{At: b.now, MilliWatts: 1_000 * joules, WithGPUs: true}, 0, nil)
	}
	gpu := func(mj int64) {
		b.core.Collected(&Reading{Sample: device.Sample{At: b.now, Readings: []device.Reading{
			{UUID: "GPU-0", Values: []device.Value{{Field: device.TotalEnergy, N: mj}}}}}})
	}
	gpu(5_000_000)
	whole(500)
	b.now = b.now.Add(10 * spec.Second)
	gpu(5_000_000 + 2_000_000)
	whole(500)
	if got, _ := b.core.EnergyFigures(); got.NodeMJ != 5_000_000-2_000_000 {
		t.Errorf("%+v", got)
	}
}

// meterOf is a meter in the test's hands.
type meterOf struct {
	slow  bool
	fails atomic.Bool
	asked atomic.Int64
}

func (m *meterOf) Name() string { return "ipmi" }
func (m *meterOf) IsSlow() bool { return m.slow }
func (m *meterOf) Read(_ context.Context, now spec.Instant) (*energy.Reading, error) {
	m.asked.Add(1)
	if m.fails.Load() {
		return nil, errors.New("no answer from the controller")
	}
	return &energy.Reading{At: now, MilliWatts: 100_000}, nil
}

// Both kinds of meters are read. The failure of one is reported once, and so is its return.
func TestMetersAreRead(t *testing.T) {
	for _, slow := range []bool{false, true} {
		s := newStage(t)
		meter := &meterOf{slow: slow}
		s.meter = meter
		s.configure = func(cfg *Config) {
			cfg.EnergyEvery, cfg.EnergyGap, cfg.Interval = 2*spec.Second, spec.Minute, spec.Second
		}
		s.start()
		s.pass(spec.Second, func() bool { return s.tele.energy.NodeMJ > 0 })
		meter.fails.Store(true)
		before := meter.asked.Load()
		s.pass(spec.Second, func() bool { return meter.asked.Load() >= before+3 })
		meter.fails.Store(false)
		s.pass(spec.Second, func() bool { return strings.Contains(s.log.String(), "can be read again") })
		if n := strings.Count(s.log.String(), "no answer from the controller"); n != 1 {
			t.Errorf("slow %v: it is said %d times", slow, n)
		}
		s.stop()
	}
}
