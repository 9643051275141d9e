package daemon

import (
	"fmt"
	"strings"
	"testing"

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
