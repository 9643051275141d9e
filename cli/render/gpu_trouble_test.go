package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// TestTroubleOf: a report of an idle GPU is about the job that it names and holds
// until the agent should have said it again, and a loss is not forgotten.
func TestTroubleOf(t *testing.T) {
	const now = int64(100 * 24 * time.Hour)
	ago := func(d time.Duration) int64 { return now - int64(d) }
	held := &apiv1.GpuInfo{Uuid: "GPU-1", Allocated: true, JobUid: 7}
	fault := func(kind spec.GPUFaultKind, at int64) *apiv1.GpuFault {
		return &apiv1.GpuFault{Uuid: "GPU-1", Kind: uint32(kind), At: at}
	}
	idle := func(job uint64, at int64, span time.Duration) *apiv1.GpuFault {
		out := fault(spec.GPUIdle, at)
		out.JobUid = job
		out.Idle = int64(span)
		return out
	}
	for _, c := range []struct {
		name   string
		gpu    *apiv1.GpuInfo
		faults []*apiv1.GpuFault
		fault  spec.GPUFaultKind // 0 = none
		idle   bool
	}{
		{name: "nothing", gpu: held},
		{name: "idle", gpu: held, faults: []*apiv1.GpuFault{idle(7, ago(time.Minute), 10*time.Minute)}, idle: true},
		{name: "idle until it doubles", gpu: held, faults: []*apiv1.GpuFault{idle(7, ago(11*time.Minute), 10*time.Minute)}, idle: true},
		{name: "used again", gpu: held, faults: []*apiv1.GpuFault{idle(7, ago(13*time.Minute), 10*time.Minute)}},
		{name: "another job holds it", gpu: held, faults: []*apiv1.GpuFault{idle(6, ago(time.Minute), 10*time.Minute)}},
		{name: "given back", gpu: &apiv1.GpuInfo{Uuid: "GPU-1"}, faults: []*apiv1.GpuFault{idle(7, ago(time.Minute), 10*time.Minute)}},
		{name: "the newest of two", gpu: held, faults: []*apiv1.GpuFault{fault(spec.GPUXID, ago(time.Hour)), fault(spec.GPUECC, ago(time.Minute))}, fault: spec.GPUECC},
		{name: "a day ago", gpu: held, faults: []*apiv1.GpuFault{fault(spec.GPUXID, ago(25*time.Hour))}},
		{name: "lost a week ago", gpu: held, faults: []*apiv1.GpuFault{fault(spec.GPULost, ago(7*24*time.Hour)), fault(spec.GPUXID, ago(time.Hour))}, fault: spec.GPULost},
		{name: "answers again", gpu: held, faults: []*apiv1.GpuFault{fault(spec.GPUXID, ago(time.Hour)), fault(spec.GPUReturned, ago(time.Minute))}},
		{name: "of another GPU", gpu: &apiv1.GpuInfo{Uuid: "GPU-2"}, faults: []*apiv1.GpuFault{fault(spec.GPULost, ago(time.Hour))}},
		{name: "of its device", gpu: &apiv1.GpuInfo{Uuid: "MIG-2", Parent: "GPU-1"}, faults: []*apiv1.GpuFault{fault(spec.GPULost, ago(time.Hour))}, fault: spec.GPULost},
	} {
		got := TroubleOf(&apiv1.NodeInfo{GpuFaults: c.faults}, c.gpu, now)
		if kind := spec.GPUFaultKind(got.Fault.GetKind()); kind != c.fault || (got.Idle != nil) != c.idle {
			t.Errorf("%s: %v, idle %v", c.name, kind, got.Idle)
		}
		if c.idle && got.Idle != c.faults[0] {
			t.Errorf("%s: idle by %v, not by %v", c.name, got.Idle, c.faults[0])
		}
	}
}

// TestAllGPUs: a GPU that a node has lost, and that its agent no longer finds, is still one of
// its GPUs, until it is back or another takes its place.
func TestAllGPUs(t *testing.T) {
	gpus := func(indexes ...uint32) (out []*apiv1.GpuInfo) {
		for _, i := range indexes {
			out = append(out, &apiv1.GpuInfo{Index: i, Uuid: fmt.Sprint("GPU-", i), Type: "h100"})
		}
		return out
	}
	fault := func(uuid string, kind spec.GPUFaultKind, at int64) *apiv1.GpuFault {
		return &apiv1.GpuFault{Uuid: uuid, Kind: uint32(kind), At: at}
	}
	lost := []*apiv1.GpuFault{fault("GPU-1", spec.GPUXID, 4), fault("GPU-1", spec.GPULost, 5)}
	for name, c := range map[string]struct {
		gres   string
		gpus   []*apiv1.GpuInfo
		faults []*apiv1.GpuFault
		want   string
	}{
		"all there":          {"gpu:h100:3", gpus(0, 1, 2), nil, "0 1 2"},
		"lost and listed":    {"gpu:h100:3", gpus(0, 1, 2), lost, "0 1 2"},
		"lost and gone":      {"gpu:h100:3(S:0-1)", gpus(0, 2), lost, "0 1:GPU-1 2"},
		"another came":       {"gpu:h100:3", gpus(0, 2, 7), lost, "0 2 7"},
		"back":               {"gpu:h100:3", gpus(0, 2), append(slices.Clone(lost), fault("GPU-1", spec.GPUReturned, 6)), "0 2"},
		"back and lost":      {"gpu:h100:3", gpus(0, 2), append(slices.Clone(lost), fault("GPU-1", spec.GPUReturned, 3)), "0 1:GPU-1 2"},
		"missing, not lost":  {"gpu:h100:3", gpus(0, 2), nil, "0 2"},
		"two are lost":       {"gpu:h100:4,shard:8", gpus(0, 3), append(slices.Clone(lost), fault("GPU-2", spec.GPULost, 9)), "0 3 ?:GPU-1 ?:GPU-2"},
		"one of two is lost": {"gpu:h100:4", gpus(0, 3), lost, "0 3 ?:GPU-1"},
		"no gres":            {"", gpus(0, 2), lost, "0 2"},
		"of each type one":   {"gpu:a100,gpu:h100", gpus(0), lost, "0 1:GPU-1"},
		"none is left":       {"gpu:1", nil, lost, "0:GPU-1"},
	} {
		node := &apiv1.NodeInfo{Gres: c.gres, Gpus: c.gpus, GpuFaults: c.faults}
		var got []string
		for _, gpu := range AllGPUs(node) {
			text := cmp.Or(GPUNumber(gpu), "?")
			if trouble := TroubleOf(node, gpu, 10); trouble.Lost() && !slices.Contains(c.gpus, gpu) {
				text += ":" + gpu.GetUuid()
			}
			got = append(got, text)
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: have %s, want %s", name, text, c.want)
		}
		if len(node.GetGpus()) != len(c.gpus) {
			t.Errorf("%s: the node has changed", name)
		}
	}
}
