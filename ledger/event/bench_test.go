package event_test

import (
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// typical are the events of a one-GPU job's life, filled as a real one is.
func typical() map[string]event.Event {
	tres := spec.TRES{CPU: 4, Mem: 16384, Node: 1, Billing: 4, Other: []spec.TRESCount{{Name: "gres/gpu", N: 1}, {Name: "gres/gpu:h100", N: 1}}}
	gpu := spec.GPURef{UUID: "GPU-5a3b2c1d-0000-4000-8000-123456789abc", Index: 3, Type: "h100"}
	return map[string]event.Event{
		"submitted": &event.JobSubmitted{UID: 123456, ID: 123456, Assoc: 17, Eligible: 1_800_000_000_000_000_000, Req: tres,
			Reason: spec.Reason{Code: spec.ReasonNone},
			Spec: &spec.JobSpec{Name: "train-resnet50", UID: 10042, GID: 10042, User: "alice", Group: "alice",
				Groups: []uint32{10042, 2000, 2001}, Account: "ml", QOS: "normal", Partitions: []string{"gpu"},
				Size: spec.Size{MinNodes: 1, MaxNodes: 1, Tasks: 1, CPUsPerTask: 4, MemPerNode: 16384,
					PerNode: []spec.Count{{Name: "gpu", Type: "h100", N: 1}}},
				Time: spec.TimeAsk{Limit: 4 * spec.Hour}, Queue: spec.QueueAsk{Requeue: spec.Yes},
				IO: spec.JobIO{WorkDir: "/home/alice/projects/resnet", Stdout: "slurm-%j.out", Umask: 0o22,
					Rlimits: []spec.Count{{Name: "NOFILE", N: 1024}, {Name: "CORE", N: 0}}},
				Script: spec.Hash{1, 2, 3}, Env: spec.Hash{4, 5, 6}, Command: "/home/alice/projects/resnet/train.sh",
				Line: "sbatch --gres=gpu:h100:1 train.sh", Host: "login1"}},
		"started": &event.JobStarted{UID: 123456, Attempt: 1, Limit: 4 * spec.Hour, Priority: 10423,
			Alloc: &spec.Allocation{Partition: "gpu", TRES: tres, Tasks: 1,
				Nodes: []spec.NodeAlloc{{ID: 17, Name: "gpu017", CPUs: spec.Bitset{0xf0}, Mem: 16384, GPUs: []spec.GPURef{gpu}, Tasks: 1}}}},
		"node-done": &event.JobNodeDone{UID: 123456, Attempt: 1, Node: "gpu017",
			Usage: spec.Usage{UserCPU: 3 * spec.Hour, SystemCPU: spec.Minute, PeakRSS: 12 << 30, HasRSS: true, ReadB: 1 << 40, WriteB: 1 << 30,
				MemMiBS: 99999999, GPUs: []spec.GPUUsage{{UUID: gpu.UUID, Busy: 3 * spec.Hour, Idle: spec.Minute, UtilNS: 2 * spec.Hour, PeakMem: 70 << 30, Has: true}}},
			Batch: &event.StepResult{Started: 1_800_000_000_000_000_000, Ended: 1_800_010_000_000_000_000}},
		"ended": &event.JobEnded{UID: 123456, Attempt: 1, State: spec.Completed, Reason: spec.Reason{Code: spec.ReasonNone}},
	}
}

func benchEach(b *testing.B, f func(b *testing.B, c *event.Codec, batch []event.Envelope)) {
	c := newCodec(b)
	events := typical()
	for _, name := range []string{"submitted", "started", "node-done", "ended"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			f(b, c, []event.Envelope{{Seq: 1_000_000, At: 1_800_000_000_000_000_000, Event: events[name],
				Actor: event.Actor{Kind: event.ActorUser, UID: 10042, Name: "alice"}, Cause: event.Cause{Command: "submit"}}})
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	benchEach(b, func(b *testing.B, c *event.Codec, batch []event.Envelope) {
		var buf []byte
		for b.Loop() {
			var err error
			if buf, err = c.Append(buf[:0], batch); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(buf)), "bytes")
	})
}

func BenchmarkDecode(b *testing.B) {
	benchEach(b, func(b *testing.B, c *event.Codec, batch []event.Envelope) {
		data, err := c.Encode(batch)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := c.Decode(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
