package state

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// benchCluster is a cluster of 100 GPU nodes whose jobs count in ten
// counters each: two QOS with user and account, and four associations.
func benchCluster(tb testing.TB) *bench {
	tb.Helper()
	b := &bench{tb: tb, s: New()}
	c := &spec.Config{ClusterName: "bench", Sched: spec.SchedConfig{Memory: true}}
	var names []string
	for i := range 100 {
		name := fmt.Sprintf("gpu%03d", i)
		names = append(names, name)
		c.Nodes = append(c.Nodes, spec.NodeSpec{Name: name, CPUs: 128, Mem: 1 << 20, GRES: []spec.GRESSpec{{Name: "gpu", Type: "h100", N: 8}}})
	}
	c.Partitions = []spec.PartitionSpec{{Name: "batch", NodeNames: names}, {Name: "gpu", NodeNames: names, QOS: "part"}}
	for i := range 18 {
		c.Partitions = append(c.Partitions, spec.PartitionSpec{Name: fmt.Sprintf("zz%d", i), NodeNames: names})
	}
	b.put(&event.ClusterCreated{Name: "bench", Version: 1})
	b.put(&event.ConfigAdopted{Config: c})
	for i, name := range names {
		inv := spec.Inventory{BootID: "b", CPUs: 128, Mem: 1 << 20}
		for g := range 8 {
			inv.GPUs = append(inv.GPUs, spec.GPU{Index: uint32(g), UUID: fmt.Sprintf("GPU-%08d-%d", i, g), Type: "h100"})
		}
		b.put(&event.NodeRegistered{Node: name, Inventory: inv})
	}
	b.put(&event.QOSPut{QOS: spec.QOS{ID: 1, Name: "normal"}})
	b.put(&event.QOSPut{QOS: spec.QOS{ID: 2, Name: "part"}})
	for i, a := range []string{"root", "dept", "ml"} {
		b.put(&event.AssociationPut{Association: spec.Association{ID: uint32(i + 1), Account: a, Parent: uint32(i)}})
	}
	for u := range 100 {
		b.put(&event.AssociationPut{Association: spec.Association{ID: uint32(100 + u), Account: "ml", User: fmt.Sprintf("user%d", u), Parent: 3}})
	}
	return b
}

type bench struct {
	tb testing.TB
	s  *State
}

func (b *bench) put(e event.Event) {
	env := event.Envelope{Seq: b.s.Seq + 1, At: b.s.At + spec.Instant(spec.Millisecond), Event: e,
		Actor: event.Actor{Kind: event.ActorUser, UID: 10042, Name: "user42"}, Cause: event.Cause{Command: "submit"}}
	if err := b.s.Apply(&env); err != nil {
		b.tb.Fatal(err)
	}
}

// submitted is a job as sbatch makes one.
func (b *bench) submitted(i int) *event.JobSubmitted {
	u := uint32(i % 100)
	user := fmt.Sprintf("user%d", u)
	return &event.JobSubmitted{UID: b.s.NextUID, ID: b.s.NextID, Assoc: 100 + u, Eligible: 1,
		Req:    spec.TRES{CPU: 4, Mem: 16384, Node: 1, Billing: 4, Other: []spec.TRESCount{{Name: "gres/gpu", N: 1}, {Name: "gres/gpu:h100", N: 1}}},
		Reason: spec.Reason{Code: spec.ReasonNone},
		Spec: &spec.JobSpec{Name: fmt.Sprintf("job-%d", i), UID: 10000 + u, GID: 100, User: user, Group: "users", Groups: []uint32{100, 2000},
			Account: "ml", QOS: "normal", Partitions: []string{"gpu"},
			Size: spec.Size{MinNodes: 1, Tasks: 1, CPUsPerTask: 4, MemPerNode: 16384, PerNode: []spec.Count{{Name: "gpu", N: 1}}},
			Time: spec.TimeAsk{Limit: spec.Hour}, Script: spec.Hash{byte(i), byte(i >> 8), byte(i >> 16)}, Env: spec.Hash{byte(u)},
			IO:      spec.JobIO{WorkDir: "/home/" + user, Stdout: "slurm-%j.out", Umask: 0o22, Rlimits: []spec.Count{{Name: "NOFILE", N: 1024}}},
			Command: "/home/" + user + "/train.sh", Line: "sbatch --gres=gpu:1 train.sh", Host: "login1"}}
}

// life are the events of one job on node i%100: submitted, started, ended,
// node done. Job i uses the i/100%8-th GPU there.
func (b *bench) life(i int) (sub *event.JobSubmitted, start *event.JobStarted, end *event.JobEnded, done *event.JobNodeDone) {
	sub = b.submitted(i)
	n, g := i%100, i/100%8
	alloc := &spec.Allocation{Partition: "gpu", TRES: sub.Req, Tasks: 1, Nodes: []spec.NodeAlloc{{ID: spec.NodeID(n), Name: fmt.Sprintf("gpu%03d", n),
		CPUs: spec.Bitset{0xf << (4 * g)}, Mem: 16384, GPUs: []spec.GPURef{{UUID: fmt.Sprintf("GPU-%08d-%d", n, g), Index: uint32(g), Type: "h100"}}}}}
	return sub, &event.JobStarted{UID: sub.UID, Attempt: 1, Alloc: alloc, Limit: spec.Hour},
		&event.JobEnded{UID: sub.UID, Attempt: 1, State: spec.Completed},
		&event.JobNodeDone{UID: sub.UID, Attempt: 1, Node: alloc.Nodes[0].Name, Usage: spec.Usage{UserCPU: spec.Second, PeakRSS: 1 << 20}}
}

// BenchmarkLife folds the whole life of a job, with a snapshot for readers
// every 100 jobs and 400 jobs running at any time.
func BenchmarkLife(b *testing.B) {
	w := benchCluster(b)
	type running struct {
		end  *event.JobEnded
		done *event.JobNodeDone
		uid  spec.JobUID
	}
	var queue []running
	i := 0
	one := func(publish bool) {
		sub, start, end, done := w.life(i)
		i++
		w.put(sub)
		w.put(start)
		queue = append(queue, running{end, done, sub.UID})
		if len(queue) > 400 {
			w.put(queue[0].end)
			w.put(queue[0].done)
			w.put(&event.JobPurged{UIDs: []spec.JobUID{queue[0].uid}})
			queue = queue[1:]
		}
		if publish && i%100 == 0 {
			w.s.Freeze()
		}
	}
	for range 1000 {
		one(false)
	}
	b.ReportAllocs()
	for b.Loop() {
		one(true)
	}
	b.StopTimer()
	if err := w.s.Check(); err != nil {
		b.Fatal(err)
	}
	if u := w.s.Usage.Len(); u < 10 {
		b.Fatalf("%d counters", u)
	}
}

// BenchmarkFold replays a log of complete lives, decoding included; the
// figure is per event.
func BenchmarkFold(b *testing.B) {
	w := benchCluster(b)
	setup := w.s.Freeze()
	c, err := event.NewCodec()
	if err != nil {
		b.Fatal(err)
	}
	const jobs = 5000
	var batches [][]byte
	var log []event.Envelope
	put := func(e event.Event) {
		w.put(e)
		log = append(log, event.Envelope{Seq: w.s.Seq, At: w.s.At, Event: e, Actor: event.Actor{Kind: event.ActorUser, UID: 10042, Name: "user42"}})
		if len(log) == 100 {
			data, err := c.Encode(log)
			if err != nil {
				b.Fatal(err)
			}
			batches, log = append(batches, data), nil
		}
	}
	for i := range jobs {
		sub, start, end, done := w.life(i)
		for _, e := range []event.Event{sub, start, end, done} {
			put(e)
		}
	}
	events := len(batches) * 100
	b.ReportAllocs()
	for b.Loop() {
		s := setup.Fork()
		for _, data := range batches {
			log, err := c.Decode(data)
			if err != nil {
				b.Fatal(err)
			}
			for i := range log {
				if err := s.Apply(&log[i]); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
}

// pending is a state with n jobs that wait.
func pending(tb testing.TB, n int) *State {
	w := benchCluster(tb)
	for i := range n {
		w.put(w.submitted(i))
	}
	return w.s
}

func BenchmarkSubmit(b *testing.B) {
	w := benchCluster(b)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		w.put(w.submitted(i))
		i++
	}
}

// BenchmarkDecodeSnapshot is a restart with 100,000 jobs that wait.
func BenchmarkDecodeSnapshot(b *testing.B) {
	data := encoded(b, pending(b, 100_000))
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(bytes.NewReader(data)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeSnapshot(b *testing.B) {
	s := pending(b, 100_000).Freeze()
	var buf bytes.Buffer
	b.ReportAllocs()
	for b.Loop() {
		buf.Reset()
		if err := s.Encode(&buf); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(buf.Len()))
}

func BenchmarkHash(b *testing.B) {
	s := pending(b, 100_000).Freeze()
	for b.Loop() {
		s.Hash()
	}
}

func BenchmarkCheck(b *testing.B) {
	s := pending(b, 100_000).Freeze()
	for b.Loop() {
		if err := s.Check(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkArray is the array of a million tasks: it is one record.
func BenchmarkArray(b *testing.B) {
	w := benchCluster(b)
	b.ReportAllocs()
	for b.Loop() {
		e := w.submitted(1)
		e.Spec.Queue.Array = spec.NewArrayAsk(spec.TaskSet{{First: 0, Last: 999_999, Step: 1}}, 0)
		w.put(e)
	}
}

// BenchmarkMemory reports the bytes that a waiting job keeps.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s := pending(b, 20_000)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/20_000, "bytes/job")
		runtime.KeepAlive(s)
	}
}
