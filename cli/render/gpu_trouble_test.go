package render

import (
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
