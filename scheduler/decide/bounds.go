package decide

import (
	"fmt"

	"github.com/musterhpc/muster/spec"
)

// Bounds of what a job may ask for, far beyond every machine: below them no
// sum or product of a request overflows.
const (
	maxNodes    = 1 << 20
	maxTasks    = 1 << 24
	maxPerTask  = 1<<16 - 1 // CPUs or tasks of one node, task or GPU
	maxMem      = 1 << 27   // MiB: 128 TiB
	maxGRES     = 1 << 36
	maxBytes    = 1 << 42 // of what a node is asked for, where that is little else: 4 TiB
	maxEntries  = 64      // of one list
	maxSpan     = 100 * 366 * spec.Day
	maxSignal   = 64
	maxPriority = 1<<32 - 3 // the two above mean something to Slurm's tools
)

// checkBounds refuses numbers with which nothing could be computed.
func (d submission) checkBounds(jobSpec *spec.JobSpec) error {
	size := &jobSpec.Size
	for _, b := range [...]struct {
		n, most int64
		code    spec.Code
		what    string
	}{
		{int64(size.MinNodes), maxNodes, spec.CodeNodeCountInvalid, "nodes"},
		{int64(size.MaxNodes), maxNodes, spec.CodeNodeCountInvalid, "nodes"},
		{int64(size.Tasks), maxTasks, spec.CodeTaskCountInvalid, "tasks"},
		{int64(size.TasksPerNode), maxPerTask, spec.CodeTaskCountInvalid, "tasks per node"},
		{int64(size.TasksPerGPU), maxPerTask, spec.CodeTaskCountInvalid, "tasks per GPU"},
		{int64(size.TasksPerSocket), maxPerTask, spec.CodeTaskCountInvalid, "tasks per socket"},
		{int64(size.SocketsPerNode), maxPerTask, spec.CodeNodeConfigUnavailable, "sockets per node"},
		{int64(size.CoresPerSocket), maxPerTask, spec.CodeNodeConfigUnavailable, "cores per socket"},
		{int64(size.CoreSpec), maxPerTask, spec.CodeCPUCountInvalid, "cores for the system"},
		{int64(size.ThreadSpec), maxPerTask, spec.CodeCPUCountInvalid, "threads for the system"},
		{int64(jobSpec.Place.Segment), maxNodes, spec.CodeNodeCountInvalid, "nodes in a segment"},
		{int64(size.CPUsPerTask), maxPerTask, spec.CodeCPUCountInvalid, "CPUs per task"},
		{int64(size.CPUsPerGPU), maxPerTask, spec.CodeCPUCountInvalid, "CPUs per GPU"},
		{int64(size.MinCPUsPerNode), maxPerTask, spec.CodeCPUCountInvalid, "CPUs per node"},
		{int64(size.Tasks) * int64(size.CPUsPerTask), maxTasks, spec.CodeCPUCountInvalid, "CPUs"},
		{size.MemPerNode, maxMem, spec.CodeMemoryUnavailable, "MiB per node"},
		{size.MemPerCPU, maxMem, spec.CodeMemoryUnavailable, "MiB per CPU"},
		{size.MemPerGPU, maxMem, spec.CodeMemoryUnavailable, "MiB per GPU"},
		{size.TmpDisk, maxGRES, spec.CodeNodeConfigUnavailable, "MiB of temporary disk"},
		{int64(jobSpec.Time.Begin), int64(spec.FarFuture) / 2, spec.CodeInvalidTime, "ns as a begin time"},
		{int64(jobSpec.Time.Deadline), int64(spec.FarFuture) / 2, spec.CodeInvalidTime, "ns as a deadline"},
		{int64(jobSpec.Time.SignalBefore), int64(maxSpan), spec.CodeInvalidTime, "ns before the end as the time of a signal"},
		{int64(jobSpec.Time.Signal), maxSignal, spec.CodeBadRequest, "as a signal"},
		{int64(jobSpec.Queue.Priority), maxPriority, spec.CodeBadRequest, "as a priority"},
		{int64(len(jobSpec.Partitions)), maxEntries, spec.CodeBadRequest, "partitions"},
		{int64(len(jobSpec.Licenses)), maxEntries, spec.CodeBadRequest, "licences"},
	} {
		if b.n < 0 || b.n > b.most {
			return spec.Refuse(
				b.code,
				fmt.Sprintf("%d %s: 0 to %d are possible", b.n, b.what, b.most),
			)
		}
	}
	for i, list := range [...][]spec.Count{size.PerNode, size.PerTask, size.PerJob, size.PerSocket} {
		most := int64(maxGRES)
		if i == 0 && len(list) > 0 {
			most = max(most, maxBytes/int64(len(list)))
		}
		if len(list) > maxEntries {
			return spec.Refuse(spec.CodeInvalidGRES, fmt.Sprintf("%d kinds", len(list)))
		}
		for _, count := range list {
			if count.N < 0 || count.N > most {
				return spec.Refuse(
					spec.CodeInvalidGRES, fmt.Sprintf("%d of %s", count.N, count.Name),
				)
			}
		}
	}
	if l := jobSpec.Time.Limit; l != spec.Infinite && (l < 0 || l > maxSpan) {
		return spec.Refuse(spec.CodeInvalidTimeLimit, "")
	}
	return nil
}
