package daemon

import (
	"fmt"
	"testing"

	"github.com/musterhpc/muster/spec"
)

// TestPropose: what runs speak for, and when they speak for nothing.
func TestPropose(t *testing.T) {
	const hour = int64(spec.Hour / spec.Microsecond)
	gb := func(n float64) *int64 { v := int64(n * (1 << 30)); return &v }
	base := past{state: "COMPLETED", partition: "gpu", nodes: 1, cpus: 16, mem: 64 * 1024, gpus: 4, limit: 24 * hour, elapsed: hour, measured: true,
		cpu: 15 * hour, peak: gb(60), gpuTime: 4 * hour, gpuUtil: 3 * hour, worked: 4, watched: 4}
	runs := func(n int, change func(i int, p *past)) []past {
		out := make([]past, n)
		for i := range out {
			out[i] = base
			out[i].limit = hour + hour/5
			change(i, &out[i])
		}
		return out
	}
	for name, c := range map[string]struct {
		runs []past
		want string
	}{
		"well used":   {runs(20, func(int, *past) {}), ""},
		"memory":      {runs(20, func(i int, p *past) { p.peak = gb(11 - float64(i%3)) }), "memory --mem=14G the last 20 runs used at most 11.0 GiB of 64.0 GiB a node\n"},
		"two runs":    {runs(2, func(i int, p *past) { p.peak = gb(1) }), ""},
		"unmeasured":  {runs(9, func(i int, p *past) { p.peak, p.measured, p.watched, p.worked, p.gpuTime = nil, false, 0, 0, 0 }), ""},
		"peak of 0":   {runs(3, func(i int, p *past) { p.peak = gb(0) }), "memory --mem=1G the last 3 runs used at most 0 MiB of 64.0 GiB a node\n"},
		"killed":      {runs(5, func(i int, p *past) { p.state = "OUT_OF_MEMORY" }), "memory --mem=96G 5 of the last 5 runs ran out of memory with 64.0 GiB a node\n"},
		"was killed":  {runs(5, func(i int, p *past) { p.state = [...]string{"COMPLETED", "OUT_OF_MEMORY"}[min(i, 1)]; p.peak = gb(1) }), ""},
		"time":        {runs(4, func(i int, p *past) { p.limit = 24 * hour }), "time --time=01:15:00 the last 4 runs that completed took at most 01:00:00 of 1-00:00:00; a shorter limit fits into gaps before others start\n"},
		"timeouts":    {runs(4, func(i int, p *past) { p.state = "TIMEOUT"; p.limit = hour }), "time  4 of the last 4 runs reached their time limit of 01:00:00: ask for more, or save checkpoints\n"},
		"no limit":    {runs(4, func(i int, p *past) { p.limit = -1 }), ""},
		"cpus":        {runs(4, func(i int, p *past) { p.cpu = 2*hour + int64(i)*hour/10 }), "cpus --cpus-per-task=3 the last 4 runs kept 2.1 of 16 CPUs busy on average, at most 2.3\n"},
		"idle device": {runs(4, func(i int, p *past) { p.worked = 1 }), "gpus --gpus=1 at most 1 of 4 GPUs did anything in the last 4 runs\n"},
		"no device":   {runs(4, func(i int, p *past) { p.worked = 0 }), "gpus  none of the 4 GPUs did anything in the last 4 runs: ask for none, or find out why the program does not see them\n"},
		"slow device": {runs(4, func(i int, p *past) { p.gpuUtil = hour / 2 }), "gpu_use  GPU utilisation was 12 % over the last 4 runs: look at how data are loaded and at the batch size, or share a device\n"},
	} {
		got := ""
		for _, p := range proposeFor(c.runs) {
			got += fmt.Sprintln(p.Kind, p.Change, p.Text)
		}
		if got != c.want {
			t.Errorf("%s:\n%sexpected\n%s", name, got, c.want)
		}
	}
}
