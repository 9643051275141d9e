package daemon

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/musterhpc/muster/accounting/tally"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire/gpuseries"
	"github.com/musterhpc/muster/spec"
)

// Samples of GPUs and of what runs use take a way of their own into the store:
// the ledger neither holds nor orders them, and a store that is away loses some
// of them at the agents, which count what they lose. An agent is answered when
// its samples are on the disk, so that nothing is lost that was taken; one
// insert is made of all that came within SampleInterval.

// SampleRows are readings of GPUs and of runs.
type SampleRows struct {
	GPUs  []tally.GPUSample
	Usage []tally.UsageSample
}

// Len is the number of readings.
func (r *SampleRows) Len() int { return len(r.GPUs) + len(r.Usage) }

// samples gathers what agents send.
type samples struct {
	mu    sync.Mutex
	rows  SampleRows
	batch *sampleBatch // what rows go into
	full  chan struct{}
	last  map[string]sampleMark // by node
	odd   map[string]bool       // the nodes whose last call had readings that were left out
}

// sampleBatch is one insert, and those who wait for it.
type sampleBatch struct {
	done chan struct{}
	err  error // set before done is closed
}

// sampleMark is what a node sent last: an agent whose answer was lost sends the
// same again.
type sampleMark struct {
	uuid          string
	uid           uint64
	step          int32
	at, usedAt    int64
	rows, useRows int
}

// Bounds of samples: what waits for the store, what one call brings, and what
// begins an insert before its time.
const (
	samplesMost     = 400_000
	samplesOneCall  = 20_000
	samplesOneWrite = 100_000
)

// PutGpuSamples takes what an agent has read of its GPUs and of its runs.
func (s Service) PutGpuSamples(
	ctx context.Context,
	request *apiv1.PutGpuSamplesRequest,
) (*apiv1.PutGpuSamplesReply, error) {
	if s.D.cfg.MayPut != nil {
		if err := s.D.cfg.MayPut(ctx, request.GetNode()); err != nil {
			return nil, err
		}
	}
	rows, err := ReadSamples(request)
	if err != nil {
		return nil, err
	}
	s.D.leaveOut(request.GetNode(), &rows)
	if rows.Len() == 0 {
		return &apiv1.PutGpuSamplesReply{}, nil
	}
	batch, err := s.D.samples.addRows(request.GetNode(), rows)
	if err != nil {
		s.D.figures.samplesRefused.Add(uint64(rows.Len()))
		return nil, err
	}
	if batch != nil {
		select {
		case <-batch.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if batch.err != nil {
			return nil, s.D.storeAway(batch.err)
		}
		s.D.samples.stored(request.GetNode(), rows)
	}
	return &apiv1.PutGpuSamplesReply{Stored: uint32(rows.Len())}, nil
}

// lacksInterval tells whether readings came without the seconds between two of them. Usage may have
// them for each series instead.
func lacksInterval(request *apiv1.PutGpuSamplesRequest) bool {
	if request.GetSeconds() == 0 && len(request.GetSeries()) > 0 {
		return true
	}
	return request.GetUsageSeconds() == 0 &&
		slices.ContainsFunc(
			request.GetUsage(),
			func(u *apiv1.UsageSeries) bool { return u.GetSeconds() == 0 },
		)
}

// ReadSamples reads a message. What is malformed is refused as a whole.
func ReadSamples(request *apiv1.PutGpuSamplesRequest) (rows SampleRows, err error) {
	if request.GetNode() == "" || lacksInterval(request) {
		return rows, badSamples(request, "a node and an interval are expected")
	}
	rows.GPUs, err = readGPUs(request)
	if err == nil {
		rows.Usage, err = readUsage(request, samplesOneCall-len(rows.GPUs))
	}
	return rows, err
}

func badSamples(request *apiv1.PutGpuSamplesRequest, format string, args ...any) error {
	return spec.Refuse(spec.CodeBadRequest, "samples of "+request.GetNode()+": "+
		fmt.Sprintf(format, args...))
}

// aheadMost is how far a node's clock may be ahead of this host's. What is
// further in the future would be kept for ever, and shown to nobody.
const aheadMost = spec.Day

// leaveOut takes out the readings whose time no store keeps: impossible ones,
// those of the future, and those older than what is kept. The agent is told
// that they are done with: sent again they would be no better, and keep what
// comes behind them waiting. They are counted, and the log says once of which
// node they are.
func (d *Daemon) leaveOut(node string, rows *SampleRows) {
	now := d.cfg.Clock.Now()
	oldest, newest := int64(1), min(now.Add(aheadMost).Unix(), math.MaxUint32)
	if d.cfg.SampleKeep != spec.Infinite {
		oldest = max(oldest, now.Add(-d.cfg.SampleKeep).Unix())
	}
	var bad int
	var example int64
	no := func(at int64) bool {
		if at >= oldest && at <= newest {
			return false
		}
		bad, example = bad+1, at
		return true
	}
	rows.GPUs = slices.DeleteFunc(rows.GPUs, func(r tally.GPUSample) bool { return no(r.At) })
	rows.Usage = slices.DeleteFunc(rows.Usage, func(r tally.UsageSample) bool { return no(r.At) })
	d.figures.samplesLeftOut.Add(uint64(bad))
	if d.samples.noteStrange(node, bad > 0) {
		d.cfg.Log.Warn(
			"readings are left out: they are older than accounting.samples_keep, or their time is in the future; is the node's clock right?",
			"node",
			node,
			"readings",
			bad,
			"one_at_unix_second",
			example,
		)
	}
}

// readUsage reads what runs used, at most so many readings.
func readUsage(
	request *apiv1.PutGpuSamplesRequest, most int,
) (usageSamples []tally.UsageSample, err error) {
	for _, series := range request.GetUsage() {
		if len(series.GetCpu()) != len(series.GetAt()) ||
			len(series.GetRss()) != len(series.GetAt()) {
			return nil, badSamples(
				request,
				"%d times, %d and %d figures of job %d",
				len(series.GetAt()),
				len(series.GetCpu()),
				len(series.GetRss()),
				series.GetJobId(),
			)
		}
		if len(usageSamples)+len(series.GetAt()) > most {
			return nil, badSamples(request, "more than %d readings in one call", samplesOneCall)
		}
		for k, at := range series.GetAt() {
			usageSamples = append(
				usageSamples,
				tally.UsageSample{
					At:        at,
					Node:      request.GetNode(),
					UID:       series.GetUid(),
					Attempt:   series.GetAttempt(),
					JobID:     series.GetJobId(),
					Step:      series.GetStep(),
					User:      series.GetUser(),
					Account:   series.GetAccount(),
					Partition: series.GetPartition(),
					Seconds:   cmp.Or(series.GetSeconds(), request.GetUsageSeconds()),
					CPU:       series.GetCpu()[k],
					RSS:       series.GetRss()[k],
				},
			)
		}
	}
	return usageSamples, nil
}

// readGPUs reads what GPUs did.
func readGPUs(request *apiv1.PutGpuSamplesRequest) (gpuSamples []tally.GPUSample, err error) {
	for _, gpu := range request.GetSeries() {
		lists := sampleLists(gpu)
		for i, list := range lists {
			if len(list) != 0 && len(list) != len(gpu.GetAt()) {
				return nil, badSamples(
					request,
					"%d times and %d figures in list %d",
					len(gpu.GetAt()),
					len(list),
					i,
				)
			}
		}
		if len(gpuSamples)+len(gpu.GetAt()) > samplesOneCall {
			return nil, badSamples(request, "more than %d readings in one call", samplesOneCall)
		}
		for k, at := range gpu.GetAt() {
			row := tally.GPUSample{
				At:        at,
				Node:      request.GetNode(),
				UUID:      gpu.GetUuid(),
				Index:     gpu.GetIndex(),
				Profile:   gpu.GetProfile(),
				UID:       gpu.GetUid(),
				Attempt:   gpu.GetAttempt(),
				JobID:     gpu.GetJobId(),
				User:      gpu.GetUser(),
				Account:   gpu.GetAccount(),
				Partition: gpu.GetPartition(),
				Seconds:   request.GetSeconds(),
			}
			for i, list := range lists {
				row.Values[i] = tally.NotMeasured
				if len(list) != 0 {
					row.Values[i] = list[k]
				}
			}
			gpuSamples = append(gpuSamples, row)
		}
	}
	return gpuSamples, nil
}

// sampleLists are the lists of a series in the order of tally.SampleColumns.
func sampleLists(series *apiv1.GpuSeries) [tally.SampleFields][]int64 {
	var lists [tally.SampleFields][]int64
	for i, figure := range gpuseries.Figures() {
		lists[i] = *figure.List(series)
	}
	return lists
}

// addRows puts rows into the next insert; nil = the store has them already.
func (s *samples) addRows(node string, rows SampleRows) (*sampleBatch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last[node] == markOf(rows) {
		return nil, nil
	}
	if s.rows.Len()+rows.Len() > samplesMost {
		return nil, spec.Refuse(
			spec.CodeDatabaseUnreachable,
			fmt.Sprintf(
				"%d samples wait for the accounting store already: send these again later",
				s.rows.Len(),
			),
		)
	}
	if s.batch == nil {
		s.batch = &sampleBatch{done: make(chan struct{})}
	}
	s.rows.GPUs, s.rows.Usage = append(
		s.rows.GPUs,
		rows.GPUs...), append(
		s.rows.Usage,
		rows.Usage...)
	if s.rows.Len() >= samplesOneWrite {
		select {
		case s.full <- struct{}{}:
		default:
		}
	}
	return s.batch, nil
}

func markOf(rows SampleRows) sampleMark {
	mark := sampleMark{rows: len(rows.GPUs), useRows: len(rows.Usage)}
	if mark.rows > 0 {
		mark.uuid, mark.at = rows.GPUs[mark.rows-1].UUID, rows.GPUs[mark.rows-1].At
	}
	if mark.useRows > 0 {
		end := &rows.Usage[mark.useRows-1]
		mark.uid = end.UID
		mark.step = end.Step
		mark.usedAt = end.At
	}
	return mark
}

func (s *samples) stored(node string, rows SampleRows) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = map[string]sampleMark{}
	}
	s.last[node] = markOf(rows)
}

// noteStrange notes whether readings of a node were left out, and tells that this
// is new.
func (s *samples) noteStrange(node string, odd bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.odd[node]
	switch {
	case odd && s.odd == nil:
		s.odd = map[string]bool{node: true}
	case odd:
		s.odd[node] = true
	case was:
		delete(s.odd, node)
	}
	return odd && !was
}

// take begins an insert of all that waits.
func (s *samples) take() (SampleRows, *sampleBatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, batch := s.rows, s.batch
	s.rows, s.batch = SampleRows{}, nil
	return rows, batch
}

func (s *samples) countWaiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows.Len()
}

// keepSamples stores samples until the context ends. Before the first insert
// the schema must be there: it waits for the ingester, which makes it.
func (d *Daemon) keepSamples(ctx context.Context) {
	kept, told := false, false
	for {
		late, stop := d.cfg.Clock.After(d.cfg.SampleInterval)
		select {
		case <-ctx.Done():
			stop()
			_, batch := d.samples.take()
			batch.endBatch(ctx.Err())
			return
		case <-d.samples.full:
			stop()
		case <-late:
		}
		if !kept && d.isReady() {
			err := d.cfg.Store.KeepSamples(ctx, d.cfg.SampleKeep)
			if err != nil && !told {
				d.cfg.Log.Warn(
					"how long samples are kept cannot be set, and is tried again",
					"error",
					d.cfg.Store.Explain(err),
				)
			}
			kept, told = err == nil, err != nil
		}
		rows, batch := d.samples.take()
		if batch == nil {
			continue
		}
		err := d.putSamples(ctx, rows)
		if err != nil {
			d.figures.samplesRefused.Add(uint64(rows.Len()))
		} else {
			d.figures.samplesStored.Add(uint64(rows.Len()))
		}
		batch.endBatch(err)
	}
}

func (d *Daemon) putSamples(ctx context.Context, rows SampleRows) error {
	if !d.isReady() {
		return errNotReady
	}
	d.mu.Lock()
	ledger, cluster := d.ledger, d.cluster
	d.mu.Unlock()
	if err := d.cfg.Store.PutSamples(ctx, ledger, cluster, rows.GPUs); err != nil {
		return err
	}
	return d.cfg.Store.PutUsage(ctx, ledger, cluster, rows.Usage)
}

// isReady tells that the ingester has prepared the store.
func (d *Daemon) isReady() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stored
}

// endBatch tells those who wait for a batch what became of it.
func (b *sampleBatch) endBatch(err error) {
	if b != nil {
		b.err = err
		close(b.done)
	}
}
