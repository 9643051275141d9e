package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// withGPU gives a launch a device, and clocks for it.
func withGPU(freq string) func(*apiv1.Launch) {
	return func(l *apiv1.Launch) {
		l.Here.Gpus = []*apiv1.GpuRef{{Uuid: "GPU-0"}}
		l.Job.Spec.GpuFreq = freq
	}
}

func TestClocksAreSetBeforeTheRunBegins(t *testing.T) {
	cfg := testConfig()
	cfg.GPUFreq = "high"
	b := newBenchWith(t, cfg)
	b.core.SetDevices([]device.Device{{UUID: "GPU-0"}})
	b.welcome()
	fx := b.launch(key(1), withGPU("low,verbose"))
	if want := (Tune{key(1), []string{"GPU-0"}, "low,verbose"}); len(fx.Launch) > 0 || len(fx.Tune) != 1 || fx.Tune[0].Freq != want.Freq || !slices.Equal(fx.Tune[0].GPUs, want.GPUs) {
		t.Fatalf("%+v", fx)
	}
	if got := b.core.Tuning(); !slices.Equal(got, []string{key(1).String()}) {
		t.Errorf("tuned for %q", got)
	}
	b.core.Tuned(key(1), []string{"a line"})
	if fx = b.core.Effects(); len(fx.Launch) != 1 || !slices.Equal(fx.Launch[0].Notices, []string{"a line"}) || len(fx.Tune) > 0 {
		t.Fatalf("%+v", fx)
	}
	b.core.Tuned(key(1), nil) // said twice
	if fx = b.core.Effects(); len(fx.Launch) > 0 {
		t.Errorf("launched twice: %+v", fx)
	}
	b.answer(key(1), plan.Accepted, 0)
	b.started(key(1))
	if got := b.core.Tuning(); len(got) != 1 {
		t.Errorf("tuned for %q", got)
	}
	if fx = b.exit(key(1)); !fx.Jobs || len(b.core.Tuning()) > 0 {
		t.Errorf("it is over, and tuned for is %q", b.core.Tuning())
	}
	// Without a word of the job the site's default holds, and only for GPUs.
	if fx = b.launch(key(2), withGPU("")); len(fx.Tune) != 1 || fx.Tune[0].Freq != "high" {
		t.Errorf("%+v", fx)
	}
	if fx = b.launch(key(3)); len(fx.Tune) > 0 || len(fx.Launch) != 1 {
		t.Errorf("%+v", fx)
	}
	// One that is ended meanwhile never begins, and its end is reported.
	b.orders(terminateOrder(key(2), ""))
	b.core.Tuned(key(2), nil)
	if fx = b.core.Effects(); len(fx.Launch) > 0 || len(b.core.Tuning()) > 1 {
		t.Errorf("%+v", fx)
	}
	if sent := b.sent(); !strings.Contains(sent, "2.1.batch done 0:15") {
		t.Errorf("sent %s", sent)
	}
	// A part of the job without a script is held.
	fx = b.launch(key(4), withGPU("low"), func(l *apiv1.Launch) { l.Batch, l.Script = false, nil })
	if len(fx.Tune) != 1 {
		t.Fatalf("%+v", fx)
	}
	b.core.Tuned(key(4), nil)
	if fx = b.core.Effects(); len(fx.Launch) > 0 || !slices.Contains(b.core.Running(), key(4)) || !slices.Contains(b.core.Tuning(), key(4).String()) {
		t.Errorf("%+v", fx)
	}
}

// fakeClocks notes what it is asked.
type fakeClocks struct {
	w     *watch
	tuned []string
	kept  []string
	fails bool
}

func (c *fakeClocks) Tune(_ context.Context, owner string, uuids []string, _ spec.GPUFreq) (done, failed []string) {
	c.w.do(func() { c.tuned = append(c.tuned, owner+" "+strings.Join(uuids, ",")) })
	if c.fails {
		return nil, []string{"the clocks of GPU-0 stay as they are: not permitted"}
	}
	return []string{"GpuFreq=memory_freq:2,graphics_freq:1"}, nil
}

func (c *fakeClocks) Keep(_ context.Context, owners []string) error {
	c.w.do(func() { c.kept = append(c.kept, strings.Join(owners, " ")) })
	return errors.New("a device does not answer")
}

// TestAgentTunes: the job begins whether its clocks could be set or not, and is
// told; when it is over its clocks are set back, and again as long as that
// fails.
func TestAgentTunes(t *testing.T) {
	for name, c := range map[string]struct {
		freq  string
		fails bool
		none  bool
		want  []string
	}{
		"set":         {"low", false, false, nil},
		"verbose":     {"low,verbose", false, false, []string{"GpuFreq=memory_freq:2,graphics_freq:1"}},
		"refused":     {"low", true, false, []string{"--gpu-freq=low: the clocks of GPU-0 stay as they are: not permitted"}},
		"no provider": {"low", false, true, []string{"--gpu-freq=low: the clocks of GPUs cannot be set on this node"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.clocks = &fakeClocks{w: s.watch, fails: c.fails}
			if c.none {
				s.clocks = nil
			}
			var notices []string
			s.shep.launch = func(runs []plan.RunSpec) error { notices = runs[0].Notices; return nil }
			s.start()
			s.agent.inbox.putItems(func() { s.agent.core.SetDevices([]device.Device{{UUID: "GPU-0"}}) })
			st := s.stream(1)
			st.welcome(testCluster)
			st.orders(s.bench.order(key(1), withGPU(c.freq)))
			s.until(func() bool { return len(s.shep.batches) == 1 })
			s.do(func() {
				if !slices.Equal(notices, c.want) {
					t.Errorf("the job is told %q, want %q", notices, c.want)
				}
			})
			if c.none {
				return
			}
			s.until(func() bool { return slices.Equal(s.clocks.tuned, []string{key(1).String() + " GPU-0"}) })
			// The next look at what runs leaves the clocks of this one alone.
			s.pass(spec.Second, func() bool { return slices.Contains(s.clocks.kept, key(1).String()) })
			s.exit(key(1), 0)
			s.until(func() bool { return s.clocks.kept[len(s.clocks.kept)-1] == "" })
			n := 0
			s.do(func() { n = len(s.clocks.kept) })
			s.pass(spec.Second, func() bool { return len(s.clocks.kept) > n })
			if !strings.Contains(s.log.String(), "a device does not answer") {
				t.Errorf("nothing is logged: %s", s.log.String())
			}
		})
	}
}
