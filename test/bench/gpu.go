package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/accounting/clickhouse"
	acctd "github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/query"
	counted "github.com/musterhpc/muster/accounting/tally"
	apiv1 "github.com/musterhpc/muster/api/v1"
	agentd "github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/spec"
)

// gpuBench fills the table of GPU samples with what simulated devices do, as
// agents would hand it in, and asks what people ask.
type gpuBench struct {
	nodes, gpus, hours, days, times int
	dir                             string
	keep                            bool
}

func (*gpuBench) help() string {
	return `muster-bench gpu makes samples of simulated GPUs (jobs of ten minutes to eight hours, every
kind of load), ten seconds apart, puts them into a store of its own, and tells how many
bytes each takes on the disk and how long it takes to ask for them. It needs the
ClickHouse engine, and about 15 bytes of disk for each GPU and sample.

Usage:
  muster-bench gpu [options]

Examples:
  muster bench gpu                            # 50 nodes with 8 GPUs, one day: 69 million figures
  muster bench gpu --nodes 1000               # a large cluster: 1.4 billion
  muster bench gpu --nodes 100 --days 15      # the day is there 15 times: 104 million samples
`
}

func (b *gpuBench) flags(flags *pflag.FlagSet) {
	flags.IntVar(&b.nodes, "nodes", 50, "nodes")
	flags.IntVar(&b.gpus, "gpus", 8, "GPUs of each")
	flags.IntVar(&b.hours, "hours", 24, "hours that are simulated")
	flags.IntVar(
		&b.days,
		"days",
		1,
		"how often what was simulated is there, each a day before the other",
	)
	flags.IntVar(&b.times, "times", 5, "how often each question is asked")
	flags.StringVar(&b.dir, "dir", "", "folder for the store (default: a temporary one)")
	flags.BoolVar(&b.keep, "keep", false, "leave the store where it is")
}

func (b *gpuBench) check() error {
	return checkPositive(
		map[string]int{
			"nodes": b.nodes,
			"gpus":  b.gpus,
			"hours": b.hours,
			"days":  b.days,
			"times": b.times,
		},
	)
}

// gpuResult is what was found.
type gpuResult struct {
	Nodes     int              `json:"nodes"`
	GPUs      int              `json:"gpus"`
	Samples   uint64           `json:"samples"` // of a GPU at a time
	Figures   uint64           `json:"figures"` // in them
	Fill      float64          `json:"fill_seconds"`
	Bytes     uint64           `json:"bytes"`
	PerFigure float64          `json:"bytes_per_figure"`
	PerSample float64          `json:"bytes_per_sample"`
	Large     float64          `json:"gib_10000_nodes_90_days"`
	Columns   []gpuColumn      `json:"columns"`
	Questions []gpuAskedResult `json:"questions"`
	Machine   machine          `json:"machine"`
}

type gpuColumn struct {
	Name string  `json:"name"`
	Each float64 `json:"bytes_each"`
}

type gpuAskedResult struct {
	Name  string    `json:"name"`
	Times latencies `json:"latency"`
	Least float64   `json:"least_ms"`
	Rows  int       `json:"rows"`
}

func (r *gpuResult) text(w io.Writer) {
	fmt.Fprintf(
		w,
		"%d nodes x %d GPUs: %d samples with %d figures, made in %.1f s\n",
		r.Nodes,
		r.GPUs,
		r.Samples,
		r.Figures,
		r.Fill,
	)
	fmt.Fprintf(
		w,
		"%d bytes on disk: %.2f a sample, %.3f a figure; 10,000 nodes x 8 GPUs x 90 days would be %.0f GiB\n",
		r.Bytes,
		r.PerSample,
		r.PerFigure,
		r.Large,
	)
	for _, column := range r.Columns {
		fmt.Fprintf(w, "  %-14s %6.3f bytes each\n", column.Name, column.Each)
	}
	for _, q := range r.Questions {
		fmt.Fprintf(
			w,
			"%-44s least %8.1f ms  p50 %8.1f ms  max %8.1f ms  %d rows\n",
			q.Name,
			q.Least,
			q.Times.P50,
			q.Times.Max,
			q.Rows,
		)
	}
	r.Machine.text(w)
}

// gpuFigures is how many figures of a sample are counted: all but the number of
// processes, which no field of DCGM is.
const gpuFigures = counted.SampleFields - 1

func (b *gpuBench) run(ctx context.Context, p *progress) (result, error) {
	res := &gpuResult{Nodes: b.nodes, GPUs: b.gpus, Machine: machineNow()}
	st, err := openBenchStore(ctx, b.dir, b.keep)
	if err != nil {
		return nil, err
	}
	defer st.close()
	store := st.Store
	b.dir = st.dir
	began := time.Now()
	if err := b.fill(ctx, store, p); err != nil {
		return nil, err
	}
	res.Fill = time.Since(began).Seconds()
	if err := b.weigh(ctx, store, res); err != nil {
		return nil, err
	}
	if err := b.ask(ctx, store, res, p); err != nil {
		return nil, err
	}
	res.Machine.after()
	return res, ctx.Err()
}

// fill simulates the nodes, some at a time, and makes the copies.
func (b *gpuBench) fill(ctx context.Context, store *clickhouse.Store, p *progress) error {
	ledger := newFill(0, 1).ledger
	next, errs := make(chan int), make(chan error, b.nodes)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for n := range next {
				if err := b.node(ctx, n, func(rows []counted.GPUSample) error { return store.PutSamples(ctx, ledger, "peer", rows) }); err != nil {
					errs <- err
				}
			}
		})
	}
	for n := range b.nodes {
		if len(errs) > 0 || ctx.Err() != nil {
			break
		}
		next <- n
		p.say("node %d of %d", n+1, b.nodes)
	}
	close(next)
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	table := "`" + store.Database() + "`.gpu_samples"
	for day := 1; day < b.days; day++ {
		p.say("copy %d of %d", day+1, b.days)
		sql := fmt.Sprintf(
			"INSERT INTO %s SELECT * REPLACE (at - %d AS at, uid + %d AS uid) FROM (SELECT * FROM %s WHERE at >= fromUnixTimestamp(%d))",
			table,
			day*86400,
			day*1_000_000,
			table,
			fillFrom,
		)
		if err := store.Exec(ctx, sql); err != nil {
			return err
		}
	}
	p.say("merging")
	if err := store.Exec(ctx, "OPTIMIZE TABLE "+table+
		" FINAL SETTINGS optimize_throw_if_noop = 0"); err != nil {
		return err
	}
	return b.summarise(ctx, store)
}

// summarise stores what the ledger says of the jobs that the samples are of:
// those that are over, with what each of their devices did in all.
func (b *gpuBench) summarise(ctx context.Context, store *clickhouse.Store) error {
	db := "`" + store.Database() + "`."
	return store.Exec(ctx, "INSERT INTO "+db+
		"job_gpus (ledger, seq, cluster, uid, restarts, job_id, who, device, from, to, end_gap_us, measured, no_process_us, idle_us, rest_us)\n"+
		"SELECT ledger, 0, cluster, uid, 0, job_id, concat(user, '\\x1f', account, '\\x1f', partition, '\\x1f', 'normal'), concat(gpu_uuid, '\\x1f', node, '\\x1f', toString(gpu_index), '\\x1fh100'),\n"+
		"  toDateTime64(min(at), 6, 'UTC') AS from, toDateTime64(max(at), 6, 'UTC') + toIntervalSecond(any(seconds)) AS to, 0, true,\n"+
		"  1000000 * toInt64(sumIf(seconds, processes = 0)), 1000000 * toInt64(sumIf(seconds, processes > 0 AND util = 0)), 0\n"+
		"FROM "+db+
		"gpu_samples WHERE uid != 0 GROUP BY ledger, cluster, uid, job_id, user, account, partition, node, gpu_uuid, gpu_index")
}

// sampleEvery is the time between two samples.
const sampleEvery = 10 * spec.Second

// gpuGather is how many samples go into one call.
const gpuGather = 16_000

// gpuJob is one of the jobs of a bench, on some devices of a node.
type gpuJob struct {
	simulated.Assignment
	until spec.Instant
	user  string
}

// node makes the samples of one node and puts them in pieces.
func (b *gpuBench) node(ctx context.Context, n int, put func([]counted.GPUSample) error) error {
	name := fmt.Sprintf("node%d", n+1)
	start := spec.AtUnix(fillFrom)
	dev, err := simulated.New(
		simulated.Config{
			Node:  name,
			Start: start,
			Lines: []simulated.Declared{{Type: "h100", Count: b.gpus}},
		},
	)
	if err != nil {
		return err
	}
	list, err := dev.Inventory(ctx)
	if err != nil {
		return err
	}
	// Half of the devices in one job, a quarter in the next, and so on.
	var groups [][]string
	for at := 0; at < b.gpus; {
		size := max(1, (b.gpus-at)/2)
		var g []string
		for _, gpu := range list[at : at+size] {
			g = append(g, gpu.UUID)
		}
		groups, at = append(groups, g), at+size
	}
	jobs := make([]gpuJob, len(groups))
	made := 0
	gathered := 0
	dice := func(n int64) int64 { made++; return int64(mix(uint64(n)<<32+uint64(made))>>1) % 1000 }
	var sample device.Sample
	var procs []device.Process
	request := &apiv1.PutGpuSamplesRequest{Node: name, Seconds: uint32(sampleEvery / spec.Second)}
	for now := start; now < start.Add(spec.Span(b.hours)*spec.Hour) && ctx.Err() == nil; now = now.Add(sampleEvery) {
		changed := false
		for g := range groups {
			if now < jobs[g].until {
				continue
			}
			changed = true
			d := dice(int64(n))
			long := 10*spec.Minute + spec.Span(d*d)*spec.Hour*8/1_000_000
			jobs[g] = gpuJob{until: now.Add(long), user: ""}
			if dice(int64(n)) >= 150 { // else nobody has them for a while
				uid := uint64(n)*10_000 + uint64(made)
				jobs[g].Assignment = simulated.Assignment{
					Job:     spec.JobUID(uid),
					Attempt: 1,
					From:    now,
					Load:    simulated.LoadOf(spec.JobUID(uid)),
					UUIDs:   groups[g],
				}
				jobs[g].user = fmt.Sprintf("u%03d", uid%200)
			}
		}
		if changed {
			var on []simulated.Assignment
			for _, job := range jobs {
				if job.user != "" {
					on = append(on, job.Assignment)
				}
			}
			if err := dev.SetJobs(now, on); err != nil {
				return err
			}
		}
		if err := dev.Sample(ctx, now, &sample); err != nil {
			return err
		}
		procs, err = dev.Processes(ctx, procs[:0])
		if err != nil {
			return err
		}
		addSamples(request, &sample, procs, groups, jobs)
		gathered += len(sample.Readings)
		if gathered >= gpuGather {
			if err := putSamples(request, put); err != nil {
				return err
			}
			gathered = 0
		}
	}
	return putSamples(request, put)
}

// addSamples writes a collection as an agent does.
func addSamples(
	request *apiv1.PutGpuSamplesRequest,
	s *device.Sample,
	procs []device.Process,
	groups [][]string,
	jobs []gpuJob,
) {
	for i := range s.Readings {
		reading := &s.Readings[i]
		job := jobs[slices.IndexFunc(groups, func(g []string) bool { return slices.Contains(g, reading.UUID) })]
		busy := int64(0)
		for _, process := range procs {
			if process.UUID == reading.UUID {
				busy++
			}
		}
		uid := uint64(job.Job)
		at := slices.IndexFunc(
			request.Series,
			func(g *apiv1.GpuSeries) bool { return g.GetUuid() == reading.UUID && g.GetUid() == uid },
		)
		if at < 0 {
			at = len(request.Series)
			request.Series = append(
				request.Series,
				&apiv1.GpuSeries{
					Uuid:    reading.UUID,
					Index:   uint32(i),
					Uid:     uid,
					Attempt: job.Attempt,
					JobId:   uint32(uid),
					User:    job.user,
				},
			)
			if job.user != "" {
				request.Series[at].Account, request.Series[at].Partition = "acct"+job.user[2:3],
					"gpu"
			}
		}
		agentd.SampleReading(request.Series[at], int64(s.At)/int64(spec.Second), reading, busy)
	}
}

// putSamples hands in what was gathered, as the service takes it.
func putSamples(request *apiv1.PutGpuSamplesRequest, put func([]counted.GPUSample) error) error {
	rows, err := acctd.ReadSamples(request)
	if err != nil || rows.Len() == 0 {
		return err
	}
	request.Series = nil
	return put(rows.GPUs)
}

// mix spreads the bits of a number.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// weigh asks what lies on the disk.
func (b *gpuBench) weigh(ctx context.Context, store *clickhouse.Store, res *gpuResult) error {
	one := func(sql string, each func(scan func(...any) error) error) error {
		return store.Query(
			ctx,
			query.Query{SQL: sql, Params: []query.Param{{Name: "db", Value: store.Database()}}},
			each,
		)
	}
	const where = " WHERE database = {db:String} AND table = 'gpu_samples' AND active"
	if err := one("SELECT sum(rows), sum(bytes_on_disk) FROM system.parts"+where, func(scan func(...any) error) error { return scan(&res.Samples, &res.Bytes) }); err != nil {
		return err
	}
	res.Figures = res.Samples * gpuFigures
	res.PerSample = float64(res.Bytes) / float64(res.Samples)
	res.PerFigure = res.PerSample / gpuFigures
	res.Large = res.PerSample * 10_000 * 8 * 8640 * 90 / (1 << 30)
	return one(
		"SELECT column, sum(column_data_compressed_bytes) / sum(rows) AS each FROM system.parts_columns"+
			where+" AND part_type = 'Wide' GROUP BY column ORDER BY each DESC LIMIT 12",
		func(scan func(...any) error) error {
			var column gpuColumn
			err := scan(&column.Name, &column.Each)
			res.Columns = append(res.Columns, column)
			return err
		},
	)
}

// ask asks what people ask, some times each.
func (b *gpuBench) ask(ctx context.Context, store *clickhouse.Store, res *gpuResult, p *progress) error {
	end := spec.AtUnix(fillFrom).Add(spec.Span(b.hours) * spec.Hour)
	scope := query.Scope{Database: store.Database(), Ledger: newFill(0, 1).ledger, Cluster: "peer", Now: end}
	var uid uint64
	var first, last int64
	pick := "SELECT uid, toInt64(toUnixTimestamp(min(at))), toInt64(toUnixTimestamp(max(at))) FROM `" +
		store.Database() + "`.gpu_samples WHERE uid != 0 AND at >= fromUnixTimestamp(" +
		fmt.Sprint(fillFrom) + ") GROUP BY uid ORDER BY count() DESC, uid LIMIT 1"
	if err := store.Query(ctx, query.Query{SQL: pick}, func(scan func(...any) error) error { return scan(&uid, &first, &last) }); err != nil {
		return err
	}
	from, to := spec.AtUnix(first), spec.AtUnix(last+1)
	for _, q := range []struct {
		name string
		ask  query.Query
	}{
		{"utilisation over time of a job, 60 points", query.GPUHistory(scope, uid, 1, from, to, max(10, (last-first)/60))},
		{"the 20 users with most idle GPU hours, 30 d", (&query.Report{Start: end.Add(-30 * spec.Day), End: end}).Idle(scope, 20)},
	} {
		p.say("%s", q.name)
		out := gpuAskedResult{Name: q.name}
		var times []time.Duration
		for range b.times {
			began := time.Now()
			out.Rows = 0
			if err := store.Query(ctx, q.ask, func(func(...any) error) error { out.Rows++; return nil }); err != nil {
				return err
			}
			times = append(times, time.Since(began))
		}
		out.Times, out.Least = summariseTimes(times), float64(slices.Min(times).Microseconds())/1000
		res.Questions = append(res.Questions, out)
	}
	return nil
}
