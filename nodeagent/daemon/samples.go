package daemon

import (
	"context"
	"sync"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire/gpuseries"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec"
)

// noSample stands for what was not measured.
const noSample = -1

// SampleReading writes a reading of a device at a time, in Unix seconds, behind
// those that a series has; processes is -1 where they could not be listed.
func SampleReading(gpu *apiv1.GpuSeries, at int64, reading *device.Reading, processes int64) {
	gpu.At = append(gpu.At, at)
	gpu.Processes = append(gpu.Processes, processes)
	for _, figure := range gpuseries.Figures() {
		if figure.Field == 0 {
			continue // the processes, above
		}
		value := int64(noSample)
		if n, ok := reading.Get(figure.Field); ok && n >= 0 {
			value = (n + figure.Scale/2) / figure.Scale
		}
		list := figure.List(gpu)
		*list = append(*list, value)
	}
}

// unitFacts are what a series says of its device or instance.
type unitFacts struct {
	index   uint32
	profile string
}

// makeSamples turns a collection into samples, if one is due: the first collection
// in each interval of the clock. A device is in the hands of the one run that
// lives on it and began before the reading; where several share it, of nobody.
func (c *Core) makeSamples(reading *Reading) {
	every := int64(c.cfg.SampleEvery)
	if every <= 0 || c.cfg.SampleEvery == spec.Infinite || reading.Err != nil {
		return
	}
	slot := int64(reading.Sample.At) / every
	if slot == c.sampleSlot {
		return
	}
	c.sampleSlot = slot
	processes := map[string]int64{}
	for i := range reading.Processes {
		processes[reading.Processes[i].UUID]++
	}
	for i := range reading.Sample.Readings {
		r := &reading.Sample.Readings[i]
		unit, known := c.units[r.UUID]
		if r.Lost || !known {
			continue
		}
		n := int64(noSample)
		if reading.Listed {
			n = processes[r.UUID]
		}
		gpu := &apiv1.GpuSeries{Uuid: r.UUID, Index: unit.index, Profile: unit.profile}
		if h := c.holderAt(r.UUID, reading.Sample.At); h != nil {
			gpu.Uid = h.key.Job
			gpu.Attempt = h.key.Attempt
			gpu.JobId = uint32(h.facts.ID)
			gpu.User = h.facts.User
			gpu.Account = h.facts.Account
			gpu.Partition = h.facts.Partition
		}
		SampleReading(gpu, int64(reading.Sample.At)/int64(spec.Second), r, n)
		c.fx.Samples = append(c.fx.Samples, gpu)
	}
}

// holderAt is the one run that holds a GPU and held it at an instant.
func (c *Core) holderAt(uuid string, at spec.Instant) *run {
	var found *run
	for _, key := range c.sortedKeys() {
		r := c.runs[key]
		if r.from == 0 || r.phase != living && r.phase != held || !r.holdsGPU(uuid) {
			continue
		}
		if found != nil {
			return nil
		}
		found = r
	}
	if found == nil || found.from > at {
		return nil
	}
	return found
}

// Bounds of the samples that wait: what goes into one message, and all.
const (
	sampleBatch = 1024
	samplesMost = 20_000
)

// sampleQueue keeps samples until the store has them. When it is full the
// oldest are lost, and counted.
type sampleQueue struct {
	mu      sync.Mutex
	batches []*sampleBatchOf
	rows    int
	wake    chan struct{} // room for one token
}

type sampleBatchOf struct {
	series  []*apiv1.GpuSeries
	usage   []*apiv1.UsageSeries
	rows    int
	sending bool
}

// putSamples adds samples of one reading each and gives how many were lost for them.
func (q *sampleQueue) putSamples(gpus []*apiv1.GpuSeries, usage []*apiv1.UsageSeries) (lost int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, series := range gpus {
		q.openBatch().addReading(series)
		q.rows++
	}
	for _, series := range usage {
		q.openBatch().addUsage(series)
		q.rows++
	}
	for i := 0; q.rows > samplesMost && i < len(q.batches); {
		if q.batches[i].sending {
			i++
			continue
		}
		lost += q.batches[i].rows
		q.rows -= q.batches[i].rows
		q.batches = append(q.batches[:i], q.batches[i+1:]...)
	}
	putToken(q.wake)
	return lost
}

// openBatch is the batch that the next sample goes into.
func (q *sampleQueue) openBatch() *sampleBatchOf {
	if n := len(q.batches); n > 0 && !q.batches[n-1].sending && q.batches[n-1].rows < sampleBatch {
		return q.batches[n-1]
	}
	b := &sampleBatchOf{}
	q.batches = append(q.batches, b)
	return b
}

// addReading puts one reading behind those of the same device and holder.
func (b *sampleBatchOf) addReading(gpu *apiv1.GpuSeries) {
	b.rows++
	for _, series := range b.series {
		if !isSameDevice(series, gpu) || !isSameHolder(series, gpu) {
			continue
		}
		series.At = append(series.At, gpu.At...)
		for _, figure := range gpuseries.Figures() {
			list := figure.List(series)
			*list = append(*list, *figure.List(gpu)...)
		}
		return
	}
	b.series = append(b.series, gpu)
}

// take gives the oldest batch, to be sent; nil = there is none.
func (q *sampleQueue) take() *sampleBatchOf {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.batches) == 0 {
		return nil
	}
	q.batches[0].sending = true
	return q.batches[0]
}

// settleBatch forgets a batch that was stored, or keeps it to be sent again.
func (q *sampleQueue) settleBatch(batch *sampleBatchOf, stored bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch.sending = false
	if stored && len(q.batches) > 0 && q.batches[0] == batch {
		q.batches = q.batches[1:]
		q.rows -= batch.rows
	}
}

func (q *sampleQueue) countWaiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.rows
}

// Bounds of one call and of the pauses after failures.
const (
	samplePatience = 30 * spec.Second
	samplePause    = spec.Second
	samplePauseMax = 30 * spec.Second
)

// runShipper hands samples to the store, one batch at a time. A store that is
// slow or away holds it up, and nothing else.
func (a *Agent) runShipper(ctx context.Context) {
	pause, failing := samplePause, false
	for {
		batch := a.samples.take()
		if batch == nil {
			select {
			case <-ctx.Done():
				return
			case <-a.samples.wake:
			}
			continue
		}
		err := a.shipBatch(ctx, batch)
		if ctx.Err() != nil {
			return
		}
		a.samples.settleBatch(batch, err == nil)
		a.deps.Telemetry.SetSamplesPending(a.samples.countWaiting())
		if failed := err != nil; failed != failing {
			failing = failed
			if failed {
				a.log.Warn(
					"samples of GPUs and jobs wait: the accounting does not take them",
					"error",
					err,
				)
			} else {
				a.log.Info("samples of GPUs and jobs are stored again")
			}
		}
		if err == nil {
			a.deps.Telemetry.SamplesStored(batch.rows)
			pause = samplePause
			continue
		}
		if !a.sleepFor(ctx, pause+spec.Span(a.deps.Jitter(int64(pause)))) {
			return
		}
		pause = min(2*pause, samplePauseMax)
	}
}

func (a *Agent) shipBatch(ctx context.Context, batch *sampleBatchOf) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late, stop := a.deps.Clock.After(samplePatience)
	defer stop()
	done := make(chan error, 1)
	go func() {
		done <- a.deps.Samples.Put(ctx, &apiv1.PutGpuSamplesRequest{Node: a.cfg.Node.Name, Seconds: uint32(a.cfg.SampleEvery / spec.Second), Series: batch.series,
			UsageSeconds: uint32(a.cfg.UsageEvery / spec.Second), Usage: batch.usage})
	}()
	select {
	case err := <-done:
		return err
	case <-late:
		cancel()
		return <-done
	}
}

// Samples takes samples of GPUs and jobs to where they are kept.
type Samples interface {
	// Put returns when they are stored. It may be called again with the same
	// ones; it ends with the context.
	Put(ctx context.Context, request *apiv1.PutGpuSamplesRequest) error
}

// holdsGPU tells whether a run was given a GPU.
func (r *run) holdsGPU(uuid string) bool {
	for _, g := range r.facts.GPUs {
		if g == uuid {
			return true
		}
	}
	return false
}

func isSameDevice(a, b *apiv1.GpuSeries) bool {
	return a.Uuid == b.Uuid && a.Index == b.Index && a.Profile == b.Profile
}

func isSameHolder(a, b *apiv1.GpuSeries) bool {
	return a.Uid == b.Uid && a.Attempt == b.Attempt
}
