package runtime_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/nodeagent/runtime/proc"
)

const noop = "#!/bin/sh\nexit 0\n"

// BenchmarkLaunchNoop runs no-op batch jobs through a real shepherd: launch,
// spool, fork, wait, journal, acknowledge, with 32 under way at a time and a
// 4 KiB environment. Compare with BenchmarkXargs: the same script, bare.
func BenchmarkLaunchNoop(b *testing.B) {
	for _, mode := range []string{"", "v1", "none"} {
		b.Run("mode="+mode, func(b *testing.B) { launchNoop(b, "--cgroup-mode", mode) })
	}
	b.Run("memory-limited", func(b *testing.B) { launchNoop(b) })
}

func launchNoop(b *testing.B, args ...string) {
	l := newLabAt(b, "", args...)
	l.client.Close()
	c, err := runtime.Dial(context.Background(), runtime.Socket(l.cfg.Dir, l.cfg.Release))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	const window = 32
	slots := make(chan struct{}, window) // one token for each run under way
	done := make(chan struct{})
	left := b.N
	err = c.Subscribe(context.Background(), func(batch []plan.Event) {
		var keys []plan.RunKey
		for _, e := range batch {
			if e.Exited != nil {
				if e.Exited.Code != 0 || e.Exited.Failure != plan.None {
					b.Errorf("%+v", e.Exited)
				}
				keys = append(keys, e.Exited.Key)
			}
		}
		if len(keys) == 0 {
			return
		}
		if err := c.Ack(context.Background(), keys); err != nil {
			b.Error(err)
		}
		for range keys {
			<-slots
		}
		if left -= len(keys); left == 0 {
			close(done)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	env := []string{"PATH=/usr/bin:/bin"}
	for i := range 64 {
		env = append(env, "VARIABLE_"+strconv.Itoa(i)+"="+strings.Repeat("x", 50))
	}
	limited := len(args) == 0
	before, err := proc.ReadStat(int(c.Hello().PID))
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for i := 0; i < b.N; {
		slots <- struct{}{}
		n := 1
	fill:
		for i+n < b.N && n < window {
			select {
			case slots <- struct{}{}:
				n++
			default:
				break fill
			}
		}
		specs := make([]plan.RunSpec, n)
		for j := range specs {
			specs[j] = l.job("exit 0")
			specs[j].Env = env
			specs[j].Stdout = "/dev/null"
			if limited {
				specs[j].Limits.MemoryBytes = 64 << 20
			}
		}
		if _, err := c.Launch(context.Background(), specs); err != nil {
			b.Fatal(err)
		}
		i += n
	}
	<-done
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	if after, err := proc.ReadStat(int(c.Hello().PID)); err == nil {
		const tick = 10_000 // microseconds
		b.ReportMetric(float64((after.User+after.System-before.User-before.System)*tick)/float64(b.N), "shepherd-us/job")
	}
}

// BenchmarkXargs is what the machine can do without a workload manager.
func BenchmarkXargs(b *testing.B) {
	script := filepath.Join(b.TempDir(), "script")
	if err := os.WriteFile(script, []byte(noop), 0o755); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command("xargs", "-P4", "-n1", script)
	cmd.Stdin = strings.NewReader(strings.Repeat("x\n", b.N))
	b.ResetTimer()
	if err := cmd.Run(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
