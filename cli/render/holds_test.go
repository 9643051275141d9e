package render

import (
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// TestHoldText: what a pod holds, as scontrol and why write it.
func TestHoldText(t *testing.T) {
	h := &apiv1.ForeignHold{Id: "u1", Space: "web", Owner: "p1", MilliCpu: 2735, Mem: 3417, Gpus: []*apiv1.HeldGpu{{Uuid: "GPU-a", Index: 3}}}
	if got := HoldName(h) + " " + HoldTRES(h) + " " + HoldGPUs(h); got != "web/p1 cpu=2.735,mem=3417M,gres/gpu=1 3:GPU-a" {
		t.Error(got)
	}
	for milli, want := range map[int64]string{0: "0", 3000: "3", 500: "0.5", 1001: "1.001", 50: "0.05"} {
		if got := milliCPU(milli); got != want {
			t.Errorf("%d: %s, want %s", milli, got, want)
		}
	}
	lines := (&WhyView{}).blockerLines(&apiv1.WhyReply{Holds: []*apiv1.WaitedHold{{Node: "n1", Name: "web/p1", MilliCpu: 2735, Gpus: 1}}})
	if len(lines) != 1 || !strings.Contains(lines[0], "pod") || !strings.Contains(lines[0], "web/p1") || !strings.Contains(lines[0], "on n1") {
		t.Errorf("%q", lines)
	}
}
