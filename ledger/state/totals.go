package state

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/state/pmap"
	"github.com/musterhpc/muster/spec"
)

// Totals count what ever happened, for metrics that survive restarts.
type Totals struct {
	Submitted  uint64                       `cbor:"1,keyasint,omitempty"` // tasks of arrays count each
	Started    uint64                       `cbor:"2,keyasint,omitempty"`
	Backfilled uint64                       `cbor:"3,keyasint,omitempty"`
	Requeued   uint64                       `cbor:"4,keyasint,omitempty"`
	Ended      [spec.OutOfMemory + 1]uint64 `cbor:"5,keyasint"`           // by final state
	Parts      []PartTotals                 `cbor:"6,keyasint,omitempty"` // by name; replaced on write
	GPUFaults  []FaultTotals                `cbor:"7,keyasint,omitempty"` // by kind and class; replaced on write
	// How often nodes were powered down and up, and did not come up in time.
	PoweredDown uint64 `cbor:"8,keyasint,omitempty"`
	PoweredUp   uint64 `cbor:"9,keyasint,omitempty"`
	BootFailed  uint64 `cbor:"10,keyasint,omitempty"`
	// Waits are the times from submission to start by QOS, in the order of names.
	Waits []*QOSTotals `cbor:"11,keyasint,omitempty"`

	waitsOwn *pmap.Owner // who may change Waits in place
}

// QOSTotals are the totals of the jobs of one QOS.
type QOSTotals struct {
	Name string `cbor:"1,keyasint"`
	Wait Times  `cbor:"2,keyasint"` // start - submit

	Promises PromiseTotals `cbor:"3,keyasint"`

	own *pmap.Owner // who may change it in place
}

// PromiseTotals count the promises of a start that were kept and broken; see
// spec.PromiseDue. One that is voided, because its job was held, changed or
// requeued, counts in neither, and one of a job that still waits not yet.
type PromiseTotals struct {
	Kept   uint64 `cbor:"1,keyasint,omitempty"`
	Broken uint64 `cbor:"2,keyasint,omitempty"` // started too late, or ended too late without a start
	// Late is how much later than promised those started that did; early starts
	// do not make up for late ones.
	Late spec.Span `cbor:"3,keyasint,omitempty"`
}

// addStart counts a start at an instant against its promise.
func (t *PromiseTotals) addStart(promised, at spec.Instant) {
	if at <= spec.PromiseDue(promised) {
		t.Kept++
	} else {
		t.Broken++
	}
	t.Late += max(at.Sub(promised), 0)
}

// qos returns the totals of a QOS for a change.
func (t *Totals) qos(own *pmap.Owner, name string) *QOSTotals {
	if t.waitsOwn != own {
		t.Waits, t.waitsOwn = slices.Clone(t.Waits), own
	}
	i, ok := slices.BinarySearchFunc(
		t.Waits,
		name,
		func(q *QOSTotals, name string) int { return strings.Compare(q.Name, name) },
	)
	switch {
	case !ok:
		t.Waits = slices.Insert(t.Waits, i, &QOSTotals{Name: name, own: own})
	case t.Waits[i].own != own:
		totals := *t.Waits[i]
		totals.own = own
		t.Waits[i] = &totals
	}
	return t.Waits[i]
}

// Within counts the durations that are at most d, as far as the buckets tell them
// apart: those in the bucket that d lies in are left out unless d is its end.
func (t *Times) Within(d spec.Span) uint64 {
	if d < spec.Second/128 {
		return 0
	}
	n := t.Tiny
	// What is a nanosecond longer lies in the bucket after those that count.
	last := min(fineBucket(d+1), FineBuckets-1)
	for i := range max(last, 0) {
		n += t.Fine[i]
	}
	return n
}

// PartTotals are the totals of one partition.
type PartTotals struct {
	Name      string                       `cbor:"1,keyasint"`
	Submitted uint64                       `cbor:"2,keyasint,omitempty"`
	Started   uint64                       `cbor:"3,keyasint,omitempty"`
	Ended     [spec.OutOfMemory + 1]uint64 `cbor:"4,keyasint"`
	Wait      Histogram                    `cbor:"5,keyasint"`           // start - submit, seconds
	Run       Histogram                    `cbor:"6,keyasint"`           // end - start, seconds
	Sizes     []*SizeTotals                `cbor:"7,keyasint,omitempty"` // by class; those that occurred

	// Requeued counts attempts that ended with their job back in the queue, by the
	// state that the attempt had: those that a node failure ended are not in Ended.
	Requeued [spec.OutOfMemory + 1]uint64 `cbor:"8,keyasint"`

	Promises PromiseTotals `cbor:"9,keyasint"`

	sizesOwn *pmap.Owner // who may change Sizes in place
}

// SizeTotals are the times of the jobs of one size class in a partition.
type SizeTotals struct {
	Class SizeClass `cbor:"1,keyasint"`
	Wait  Times     `cbor:"2,keyasint"` // start - submit
	Run   Times     `cbor:"3,keyasint"` // end - start

	own *pmap.Owner // who may change it in place
}

// Times counts durations twice: in the fixed buckets of Histogram, and in
// buckets that grow by the fourth root of two, for readers that understand
// exponential histograms (Prometheus' schema 2).
type Times struct {
	Histogram Histogram           `cbor:"1,keyasint"`
	Tiny      uint64              `cbor:"2,keyasint,omitempty"` // of at most 1/128 s
	Fine      [FineBuckets]uint64 `cbor:"3,keyasint"`           // not cumulative; see FineFirst
}

// FineBuckets are four for each doubling between 1/128 s and 2^24 s (194
// days); the last one also counts what is longer. Bucket i of Times.Fine ends
// at 2 to the power of (FineFirst+i)/4 seconds.
const (
	FineBuckets = 124
	FineFirst   = -27
)

// FaultTotals count what happened to GPUs.
type FaultTotals struct {
	Kind  spec.GPUFaultKind `cbor:"1,keyasint"`
	Class string            `cbor:"2,keyasint,omitempty"` // of an XID
	Count uint64            `cbor:"3,keyasint"`
}

// SizeClass groups jobs by what they ask for: by their GPUs, or by their CPUs
// when they ask for none.
type SizeClass uint8

// The size classes. The values are stored.
const (
	SizeCPU1 SizeClass = iota + 1
	SizeCPU16
	SizeCPU128
	SizeCPUMore
	SizeGPU1
	SizeGPU8
	SizeGPU64
	SizeGPUMore
)

// SizeOf gives the class of a request.
func SizeOf(request *spec.TRES) SizeClass {
	n, class := request.Get("gres/gpu"), SizeGPU1
	bounds := [...]int64{1, 8, 64}
	if n == 0 {
		n = request.CPU
		class = SizeCPU1
		bounds = [...]int64{1, 16, 128}
	}
	for _, b := range bounds {
		if n <= b {
			break
		}
		class++
	}
	return class
}

// String names the class as metrics show it.
func (c SizeClass) String() string {
	names := [...]string{
		SizeCPU1:    "cpu1",
		SizeCPU16:   "cpu2-16",
		SizeCPU128:  "cpu17-128",
		SizeCPUMore: "cpu129+",
		SizeGPU1:    "gpu1",
		SizeGPU8:    "gpu2-8",
		SizeGPU64:   "gpu9-64",
		SizeGPUMore: "gpu65+",
	}
	if int(c) >= len(names) || names[c] == "" {
		return "unknown"
	}
	return names[c]
}

// Histogram counts durations in fixed buckets.
type Histogram struct {
	Buckets [16]uint64 `cbor:"1,keyasint"` // not cumulative; the last is everything beyond the bounds
	Count   uint64     `cbor:"2,keyasint,omitempty"`
	Sum     spec.Span  `cbor:"3,keyasint,omitempty"`
}

// HistogramBounds are the upper bounds of the buckets in seconds.
func HistogramBounds() [15]int64 {
	return [15]int64{
		1,
		5,
		10,
		30,
		60,
		300,
		600,
		1800,
		3600,
		7200,
		14400,
		28800,
		86400,
		172800,
		604800,
	}
}

func (h *Histogram) addValue(d spec.Span) {
	d = max(d, 0)
	bounds := HistogramBounds()
	i := 0
	for i < len(bounds) && d > spec.Seconds(bounds[i]) {
		i++
	}
	h.Buckets[i]++
	h.Count++
	h.Sum += d
}

func (t *Times) add(d spec.Span) {
	t.Histogram.addValue(d)
	if i := fineBucket(max(d, 0)); i < 0 {
		t.Tiny++
	} else {
		t.Fine[i]++
	}
}

// fineBucket gives the index in Times.Fine of a duration; -1 for a tiny one.
// The bounds within a doubling are 2^(1/4), 2^(2/4) and 2^(3/4), rounded to
// the nanosecond, so that no floating point decides.
func fineBucket(d spec.Span) int {
	const shift = 7
	n := uint64(d)
	if n > uint64(spec.Second)<<24 {
		return FineBuckets - 1
	}
	n <<= shift
	if n <= uint64(spec.Second) {
		return -1
	}
	octave := 0
	for n > uint64(2*spec.Second)<<octave {
		octave++
	}
	within := 0
	for _, bound := range [...]uint64{1_189_207_115, 1_414_213_562, 1_681_792_831} {
		if n <= bound<<octave {
			break
		}
		within++
	}
	return 4*octave + within
}

// sizeTotals returns the totals of a size class for a change. They are large, and a
// batch of events changes those of a class or two.
func (p *PartTotals) sizeTotals(own *pmap.Owner, class SizeClass) *SizeTotals {
	if p.sizesOwn != own {
		p.Sizes, p.sizesOwn = slices.Clone(p.Sizes), own
	}
	i, ok := slices.BinarySearchFunc(
		p.Sizes,
		class,
		func(t *SizeTotals, c SizeClass) int { return int(t.Class) - int(c) },
	)
	switch {
	case !ok:
		p.Sizes = slices.Insert(p.Sizes, i, &SizeTotals{Class: class, own: own})
	case p.Sizes[i].own != own:
		totals := *p.Sizes[i]
		totals.own = own
		p.Sizes[i] = &totals
	}
	return p.Sizes[i]
}

// countSubmitted counts a new job, or the tasks of one, in the totals.
func (s *State) countSubmitted(job *Job) {
	if s.draft {
		return
	}
	n := uint64(job.Count())
	s.Totals.Submitted += n
	s.partitionTotals(job.Partition()).Submitted += n
}

// countStart counts an attempt that starts in the totals.
func (s *State) countStart(job *Job, at spec.Instant) {
	if s.draft {
		return
	}
	s.Totals.Started++
	if job.Backfill {
		s.Totals.Backfilled++
	}
	wait := at.Sub(job.Submitted)
	part := s.partitionTotals(job.Partition())
	part.Started++
	part.Wait.addValue(wait)
	part.sizeTotals(s.own, SizeOf(&job.Req)).Wait.add(wait)
	qos := s.Totals.qos(s.own, job.QOS())
	qos.Wait.add(wait)
	if job.Promised != 0 {
		part.Promises.addStart(job.Promised, at)
		qos.Promises.addStart(job.Promised, at)
	}
}

// countEnd counts a verdict on a job, or on so many tasks, in the totals.
func (s *State) countEnd(job *Job, count uint64, ran bool, at spec.Instant) {
	if s.draft {
		return
	}
	s.Totals.Ended[job.State] += count
	part := s.partitionTotals(job.Partition())
	part.Ended[job.State] += count
	if !ran {
		if job.Promised != 0 && at > spec.PromiseDue(job.Promised) {
			part.Promises.Broken++
			s.Totals.qos(s.own, job.QOS()).Promises.Broken++
		}
		return
	}
	run := at.Sub(job.Started)
	part.Run.addValue(run)
	part.sizeTotals(s.own, SizeOf(&job.Req)).Run.add(run)
}

// countRequeue counts an attempt that ended with its job back in the queue.
func (s *State) countRequeue(partition string, as spec.JobState) {
	if s.draft {
		return
	}
	s.Totals.Requeued++
	totals := s.partitionTotals(partition)
	if int(as) < len(totals.Requeued) {
		totals.Requeued[as]++
	}
}

// partitionTotals returns the totals of one partition for a change. The list is copied
// once after each Freeze or Fork.
func (s *State) partitionTotals(name string) *PartTotals {
	totals := &s.Totals
	if s.partsOwn != s.own {
		totals.Parts, s.partsOwn = slices.Clone(totals.Parts), s.own
	}
	i, ok := searchSorted(totals.Parts, name, func(p *PartTotals) string { return p.Name })
	if !ok {
		totals.Parts = slices.Insert(totals.Parts, i, PartTotals{Name: name})
	}
	return &totals.Parts[i]
}
