package collector

import (
	"fmt"
	"sort"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// An exemplar leads from a bucket of waits or run times to the trace of a job that was
// counted in it, the newest that the controller still knows. It is read from the state as
// everything else, so nothing has to be remembered when a job is counted.

// exemplarOf names a bucket.
type exemplarOf struct {
	partition string
	size      state.SizeClass
	run       bool // of run times; else of waits
	bucket    int  // index into the classic buckets
}

// exemplar is the job that stands for a bucket.
type exemplar struct {
	job   *state.Job
	name  string // as people name the job
	value spec.Span
	at    spec.Instant // when it was counted
}

// exemplars are those of a picture.
type exemplars struct {
	bounds []float64
	by     map[exemplarOf]exemplar
}

func newExemplars() exemplars {
	bounds, _ := classicBuckets()
	return exemplars{bounds: bounds, by: map[exemplarOf]exemplar{}}
}

// addJob looks at what a job was counted for.
func (e *exemplars) addJob(job *state.Job) {
	if job.Started == 0 || job.Attempt == 0 {
		return
	}
	of := exemplarOf{partition: job.Partition(), size: state.SizeOf(&job.Req)}
	if job.State != spec.Pending {
		e.keepNewer(of, exemplar{job: job, value: job.Started.Sub(job.Submitted), at: job.Started})
	}
	if job.State.Terminal() && job.Ended >= job.Started {
		of.run = true
		e.keepNewer(of, exemplar{job: job, value: job.Ended.Sub(job.Started), at: job.Ended})
	}
}

// keepNewer keeps the newer of two.
func (e *exemplars) keepNewer(jobs exemplarOf, one exemplar) {
	jobs.bucket = sort.SearchFloat64s(e.bounds, toSeconds(max(one.value, 0)))
	if jobs.bucket == len(e.bounds) {
		return // beyond the last bound, where no bucket is written
	}
	had, ok := e.by[jobs]
	if !ok || had.at < one.at || had.at == one.at && had.job.UID < one.job.UID {
		e.by[jobs] = one
	}
}

// nameJobs names the jobs that were kept.
func (e *exemplars) nameJobs(cluster *state.State) {
	for of, one := range e.by {
		one.name = strconv.FormatUint(uint64(one.job.ID), 10)
		if array := cluster.ArrayOf(one.job); array != nil && one.job.Task != spec.NoTask {
			one.name = fmt.Sprintf("%d_%d", array.ID, one.job.Task)
		}
		e.by[of] = one
	}
}

// pointExemplars puts exemplars into the buckets that hold anything. With private data the
// trace's id stands alone: it names nobody.
func (s *scrape) pointExemplars(histogram *dto.Histogram, of exemplarOf) {
	before := uint64(0)
	for i, row := range histogram.Bucket {
		of.bucket = i
		one, ok := s.pic.exemplars.by[of]
		counted := row.GetCumulativeCount() > before
		before = row.GetCumulativeCount()
		if !ok || !counted {
			continue
		}
		value := toSeconds(max(one.value, 0))
		if value > row.GetUpperBound() || i > 0 && value <= histogram.Bucket[i-1].GetUpperBound() {
			continue
		}
		row.Exemplar = &dto.Exemplar{
			Label:     []*dto.LabelPair{label("trace_id", spec.TraceID(one.name, one.job.Submitted))},
			Value:     &value,
			Timestamp: &timestamppb.Timestamp{Seconds: one.at.Unix(), Nanos: int32(int64(one.at) % int64(spec.Second))},
		}
		if !s.privacy().Users {
			jobID := strconv.FormatUint(uint64(one.job.ID), 10)
			row.Exemplar.Label = append(row.Exemplar.Label, label("slurm_job_id", jobID))
		}
		histogram.Exemplars = append(histogram.Exemplars, row.Exemplar)
	}
}

func label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }
