package daemon

import (
	"fmt"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// TestUsageSamples: one sample of each living run in each interval, with the
// CPUs that it used since the one before, or since its start; what an agent
// that was started meanwhile cannot know is not made up.
func TestUsageSamples(t *testing.T) {
	cfg := testConfig()
	cfg.UsageEvery = 10 * spec.Second
	b := newBenchWith(t, cfg)
	b.welcome()
	var cpu spec.Span
	see := func(want string, keys ...plan.RunKey) {
		t.Helper()
		b.core.Effects()
		var list []plan.Usage
		for _, k := range keys {
			list = append(list, plan.Usage{Key: k, UserCPU: cpu, SystemCPU: cpu, RSS: 5 << 20})
		}
		b.core.Usage(b.now, list)
		b.core.sampledUsage(b.now, list)
		var out []string
		for _, u := range b.core.Effects().Usage {
			out = append(out, fmt.Sprintf("job %d %d.%d.%d %s/%s at %d cpu %d rss %d", u.GetJobId(), u.GetUid(), u.GetAttempt(), u.GetStep(), u.GetUser(), u.GetAccount(), u.GetAt()[0]%1000, u.GetCpu()[0], u.GetRss()[0]))
		}
		if got := strings.Join(out, "; "); got != want {
			t.Errorf("sampled %q\nwant %q", got, want)
		}
	}
	b.run(key(1))
	b.now, cpu = b.now.Add(10*spec.Second), 15*spec.Second
	see("job 1001 1.1.-5 alice/ml at 10 cpu 3000 rss 5120", key(1), key(9))
	b.now = b.now.Add(5 * spec.Second)
	see("", key(1)) // not due
	b.now, cpu = b.now.Add(5*spec.Second), 16*spec.Second
	see("job 1001 1.1.-5 alice/ml at 20 cpu 200 rss 5120", key(1))
	data, err := b.core.Save("boot")
	if err != nil {
		t.Fatal(err)
	}
	now := b.now.Add(25 * spec.Second)
	cfg.Started = now
	b = newBenchWith(t, cfg)
	b.now = now
	if err := b.core.Restore(data, "boot"); err != nil {
		t.Fatal(err)
	}
	b.welcome(key(1))
	see("job 1001 1.1.-5 alice/ml at 45 cpu -1 rss 5120", key(1))
	b.now, cpu = b.now.Add(8*spec.Second), 20*spec.Second
	see("job 1001 1.1.-5 alice/ml at 53 cpu 1000 rss 5120", key(1))
	b.exit(key(1))
	b.now = b.now.Add(10 * spec.Second)
	see("", key(1)) // it is over
}

// TestUsageSamplesOfOne: a job that says how often it is sampled is, but no
// oftener than anybody looks, and one that says never is never.
func TestUsageSamplesOfOne(t *testing.T) {
	cfg := testConfig()
	cfg.UsageEvery, cfg.Interval = 30*spec.Second, 5*spec.Second
	b := newBenchWith(t, cfg)
	b.welcome()
	say := func(every int64) func(*apiv1.Launch) {
		return func(l *apiv1.Launch) { l.Job.Spec.SampleEvery = every }
	}
	b.run(key(1), say(int64(10*spec.Second)))
	b.run(key(2), say(int64(spec.Second)))
	b.run(key(3), say(-1))
	b.run(key(4))
	count := map[string]int{}
	for range 60 / 5 {
		b.now = b.now.Add(5 * spec.Second)
		b.core.Effects()
		b.core.sampledUsage(b.now, []plan.Usage{{Key: key(1)}, {Key: key(2)}, {Key: key(3)}, {Key: key(4)}})
		for _, u := range b.core.Effects().Usage {
			count[fmt.Sprintf("%d every %d", u.GetUid(), u.GetSeconds())]++
		}
	}
	// The first reading stands in the clock's interval that has begun.
	if got, want := fmt.Sprint(count), "map[1 every 10:7 2 every 5:12 4 every 30:3]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestVirtualSize: the largest address space and the frequency of a run outlive
// a restart of the agent and come with its end.
func TestVirtualSize(t *testing.T) {
	b := newBenchWith(t, testConfig())
	b.welcome()
	b.run(key(1))
	b.now = b.now.Add(10 * spec.Second)
	b.core.Usage(b.now, []plan.Usage{{Key: key(1), RSS: 1, PeakVM: 7 << 20, KHz: 2_500_000}})
	data, err := b.core.Save("boot")
	if err != nil {
		t.Fatal(err)
	}
	now := b.now
	b = newBenchWith(t, testConfig())
	b.now = now
	if err := b.core.Restore(data, "boot"); err != nil {
		t.Fatal(err)
	}
	b.welcome(key(1))
	b.core.Usage(b.now, []plan.Usage{{Key: key(1), RSS: 1, PeakVM: 6 << 20}})
	m := b.core.Measure(b.now, []plan.Usage{{Key: key(1)}})
	if len(m) != 1 || m[0].GetPeakVm() != 7<<20 || m[0].GetUsage().GetCpuKhz() != 2_500_000 {
		t.Errorf("while it lives: %v", m)
	}
	b.exit(key(1))
	for _, r := range b.core.Outgoing() {
		if d := r.GetNodeDone(); d != nil && (d.GetUsage().GetPeakVm() != 7<<20 || d.GetUsage().GetCpuKhz() != 2_500_000) {
			t.Errorf("at its end: %v", d)
		}
	}
}
