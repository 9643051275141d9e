package daemon

import (
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// A job with a part of a GPU sees that GPU and no other, and finds in its
// environment how much of it it has; no figure of the device is taken for its.
func TestPartsOfGPUs(t *testing.T) {
	devices := []device.Device{{UUID: "GPU-0", Files: []string{"/dev/nvidia0"}}, {UUID: "GPU-1", Index: 1, Files: []string{"/dev/nvidia1"}}}
	for name, tc := range map[string]struct {
		share *apiv1.GpuShare
		each  bool // an MPS server for each GPU
		fence bool
		want  []string
		none  string
	}{
		"shard": {share: &apiv1.GpuShare{Name: "shard", N: 3, Of: 8}, want: []string{"CUDA_VISIBLE_DEVICES=1", "SLURM_JOB_GPUS=1", "SLURM_SHARDS_ON_NODE=3"},
			none: "SLURM_GPUS_ON_NODE= CUDA_MPS"},
		"mps rounds down": {share: &apiv1.GpuShare{Name: "mps", N: 199, Of: 300}, want: []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=66", "CUDA_VISIBLE_DEVICES=GPU-1"},
			none: "CUDA_MPS_PIPE SLURM_SHARDS"},
		"mps behind a fence": {share: &apiv1.GpuShare{Name: "mps", N: 50, Of: 100}, fence: true, want: []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50", "CUDA_VISIBLE_DEVICES=0"}},
		"mps of each GPU":    {share: &apiv1.GpuShare{Name: "mps", N: 50, Of: 100}, each: true, want: []string{"CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps-1"}},
		"memory": {share: &apiv1.GpuShare{Name: "vram", N: 20 << 30, Of: 80 << 30},
			want: []string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20480M", "MUSTER_VRAM_BYTES=21474836480", "CUDA_VISIBLE_DEVICES=1"}, none: "CUDA_MPS_ACTIVE"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			cfg.Node.MPSEach, cfg.Node.Confine.Devices, cfg.Node.Enforces.Devices = tc.each, tc.fence, tc.fence
			b := newBenchWith(t, cfg)
			b.core.SetDevices(devices)
			b.welcome()
			tc.share.Uuid, tc.share.Index = "GPU-1", 1
			fx := b.launch(key(1), func(l *apiv1.Launch) { l.Here.Shares = []*apiv1.GpuShare{tc.share} })
			env := fx.Launch[0].Env
			for _, w := range tc.want {
				if !slices.Contains(env, w) {
					t.Errorf("no %s in %q", w, env)
				}
			}
			for _, no := range strings.Fields(tc.none) {
				if slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, no) }) {
					t.Errorf("%s in %q", no, env)
				}
			}
			if tc.fence && !slices.Equal(fx.Launch[0].Devices, []string{"/dev/nvidia1"}) {
				t.Errorf("it may open %q", fx.Launch[0].Devices)
			}
			b.answer(key(1), plan.Accepted, 0)
			b.started(key(1))
			part := map[string]int{"shard": 375, "mps rounds down": 663, "memory": 250}[name]
			if part == 0 {
				part = 500
			}
			if a := b.core.Assignments(); len(a) != 1 || !slices.Equal(a[0].UUIDs, []string{"GPU-1"}) || a[0].Share != part {
				t.Errorf("the device is simulated as %+v, want %d thousandths", a, part)
			}
			jobs := b.core.Jobs()
			if len(jobs) != 1 || len(jobs[0].GPUs) != 0 || !slices.Equal(jobs[0].Shares, []GPUPart{{"GPU-1", part}}) {
				t.Errorf("shown as %+v, want %d thousandths", jobs, part)
			}
			if a := b.core.Accounts(); len(a) != 1 || a[0].Share != int64(part) || a[0].GPU != "GPU-1" {
				t.Errorf("counted as %+v", a)
			}
		})
	}
}

// A part of a GPU that is not here drains the node, as a whole one does.
func TestPartOfAnUnknownGPU(t *testing.T) {
	b := newBench(t)
	b.core.SetDevices([]device.Device{{UUID: "GPU-0"}})
	b.welcome()
	fx := b.launch(key(1), func(l *apiv1.Launch) {
		l.Here.Shares = []*apiv1.GpuShare{{Uuid: "GPU-9", Name: "shard", N: 1, Of: 2}}
	})
	if len(fx.Launch) > 0 {
		t.Errorf("it is launched: %+v", fx.Launch)
	}
}

// What a job with a part of a GPU used is in its report: the device's times,
// integrals and energy while it had the part, times the part, and how that
// came about.
func TestUsageOfAPart(t *testing.T) {
	b := newBench(t)
	b.core.SetDevices([]device.Device{{UUID: "GPU-1"}, {UUID: "GPU-2", MIG: []device.MIG{{UUID: "MIG-1", Profile: "3g.40gb", Slices: 3}}}})
	b.welcome()
	part := func(l *apiv1.Launch) { l.Here.Shares = []*apiv1.GpuShare{{Uuid: "GPU-1", Name: "shard", N: 1, Of: 4}} }
	b.run(key(1), part)
	b.run(key(2), func(l *apiv1.Launch) { l.Here.Gpus = []*apiv1.GpuRef{{Uuid: "MIG-1"}} })
	read := func(energy, util int64) {
		b.core.Collected(&Reading{Listed: true, Processes: []device.Process{{PID: 1, UUID: "GPU-1"}}, Sample: device.Sample{At: b.now, Readings: []device.Reading{
			{UUID: "GPU-1", Values: []device.Value{{Field: device.TotalEnergy, N: energy}, {Field: device.GPUUtil, N: util}, {Field: device.FBUsed, N: 1000}}},
			{UUID: "GPU-2", Values: []device.Value{{Field: device.TotalEnergy, N: energy}}}, {UUID: "MIG-1", Values: []device.Value{{Field: device.GraphicsActive, N: 500_000}}}}}})
	}
	read(1000, 0)
	b.now = b.now.Add(8 * spec.Second)
	read(9000, 50)
	ended := func(k plan.RunKey) *apiv1.GpuUsage {
		t.Helper()
		b.exit(k)
		read(9000, 50)
		for _, q := range b.core.outbox.queue {
			if g := q.report.GetNodeDone().GetUsage().GetGpus(); q.run == k && len(g) == 1 {
				return g[0]
			}
		}
		t.Fatalf("no usage of %s", k)
		return nil
	}
	if g := ended(key(1)); spec.GPUMethod(g.GetMethod()) != spec.GPUByShare || g.GetShare() != 250 || g.GetBusy() != int64(2*spec.Second) || g.GetUtilNs() != int64(spec.Second) ||
		g.GetEnergyMj() != 2000 || g.GetPeakMem() != 0 || g.GetMemMibS() != 2000 || !g.GetHas() {
		t.Errorf("a quarter: %v", g)
	}
	if g := ended(key(2)); spec.GPUMethod(g.GetMethod()) != spec.GPUBySlices || g.GetShare() != 0 || g.GetEnergyMj() != 9000*3/7-1000*3/7 {
		t.Errorf("an instance: %v", g)
	}
}
