package query

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// maxForecasts bounds the jobs that one forecast tries: each costs the controller a
// plan of the queue.
const maxForecasts = 200

// Forecast is the command muster forecast.
func Forecast() *tool.Command {
	return &tool.Command{
		Name:    "forecast",
		Summary: "say how long jobs would wait that are submitted now, and when those that wait will start",
		Usage:   []string{"[OPTIONS]"},
		About: `For each partition and QOS the scheduler that runs in production is asked where a job of each size would
start, beside all that runs and waits. Nothing is submitted. The job is yours, so your limits and your priority count, as with
sbatch --test-only. A size that cannot start says why. Below that are the jobs that wait now, by partition and QOS, and how many of them the
plan has start within an hour, four hours, half a day and later; an array counts as one until its tasks start.

It is a prediction: jobs that end before their time limit make starts earlier, and jobs of higher priority that are submitted
later make them later.`,
		Options: []opt.Option{
			{Long: "partition", Short: "p", Arg: "<name>", Help: "only these partitions"},
			{Long: "qos", Short: "q", Arg: "<name>", Help: "these QOS (default: yours)"},
			{
				Long:  "size",
				Short: "s",
				Arg:   "<list>",
				Help:  "sizes: 4gpu, 16cpu, 2node, separated by commas (default: one GPU or CPU, one node, four nodes)",
			},
			{
				Long:  "time",
				Short: "t",
				Arg:   "<time>",
				Help:  "time limit of the jobs (default: the partition's, or an hour)",
			},
			{Long: "json", Help: "print JSON"},
			{Long: "yaml", Help: "print YAML"},
		},
		Example: []tool.Example{
			{Line: "muster forecast", What: "tries the usual sizes in all partitions"},
			{Line: "muster forecast -p gpu -q normal,high -s 1gpu,8gpu,4node -t 12:00:00", What: "compares two QOS"},
		},
		Run: runForecast,
	}
}

// forecastSize is how much a job asks for.
type forecastSize struct {
	text string
	n    uint32
	unit string // gpu, cpu or node
}

// forecastRow is a partition, QOS and size with what is predicted.
type forecastRow struct {
	partition, qos string
	size           forecastSize
	limit          int64 // nanoseconds
	start          int64 // 0 = none is predicted
	wait           int64
	nodes          string
	why            string // there is no start
}

// forecastWithin are the ends of the times in which pending jobs are counted, in hours.
func forecastWithin() []int64 { return []int64{1, 4, 12} }

// forecastQueue is the pending jobs of a partition and QOS.
type forecastQueue struct {
	partition, qos string
	jobs           int
	within         []int // that start within each time, and behind the last
	unplanned      int   // the plan has no start for them
}

func runForecast(call *tool.Call) error {
	if err := call.RefuseOperands(); err != nil {
		return err
	}
	var nodes apiv1.ListNodesReply
	var parts apiv1.ListPartitionsReply
	err := call.RPCAll(
		tool.Request{Method: tool.MethodListPartitions, Req: &apiv1.ListPartitionsRequest{}, Resp: &parts},
		tool.Request{Method: tool.MethodListNodes, Req: &apiv1.ListNodesRequest{}, Resp: &nodes},
	)
	if err != nil {
		return tool.Fail(1, tool.ExplainError(err).Text)
	}
	rows, err := forecastRows(call, &parts, &nodes)
	if err != nil {
		return err
	}
	if n := len(rows); n > maxForecasts {
		return call.Errorf("%d jobs would be tried, and %d is the limit: name a --partition, a --size or a --qos", n, maxForecasts)
	}
	for i := range rows {
		if err := rows[i].predictStart(call, mostGPUsOf(&nodes, rows[i].partition)); err != nil {
			return err
		}
	}
	queues, err := forecastQueues(call)
	if err != nil {
		return err
	}
	if render.WantsDocument(call) {
		return writeForecast(call, rows, queues)
	}
	return printForecast(call, rows, queues)
}

// forecastQueues counts the jobs that wait by when the plan has them start.
func forecastQueues(call *tool.Call) ([]*forecastQueue, error) {
	filter := &apiv1.JobFilter{States: []uint32{uint32(spec.Pending)}, Partitions: call.Opts.List("partition"), Qos: call.Opts.List("qos")}
	var reply apiv1.ListJobsReply
	if err := fetch.Jobs(call, &apiv1.ListJobsRequest{Filter: filter}, &reply); err != nil {
		return nil, tool.Fail(1, tool.ExplainError(err).Text)
	}
	by := map[[2]string]*forecastQueue{}
	var queues []*forecastQueue
	for _, job := range reply.GetJobs() {
		key := [2]string{job.GetPartition(), job.GetQos()}
		queue := by[key]
		if queue == nil {
			queue = &forecastQueue{
				partition: key[0], qos: key[1], within: make([]int, len(forecastWithin())+1),
			}
			by[key] = queue
			queues = append(queues, queue)
		}
		queue.jobs++
		if job.GetPlannedStart() == 0 {
			queue.unplanned++
			continue
		}
		at := 0
		for _, hours := range forecastWithin() {
			if job.GetPlannedStart() > reply.GetNow()+hours*3600*tool.Second {
				at++
			}
		}
		queue.within[at]++
	}
	slices.SortFunc(queues, func(a, b *forecastQueue) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.qos, b.qos))
	})
	return queues, nil
}

// forecastRows are what is tried.
func forecastRows(call *tool.Call, parts *apiv1.ListPartitionsReply, nodes *apiv1.ListNodesReply) ([]forecastRow, error) {
	var limit int64
	if text := call.Opts.Text("time"); text != "" {
		seconds, err := format.ParseDuration(text)
		if err != nil || seconds <= 0 || seconds == format.Infinite {
			return nil, call.Errorf("--time=%s: expected minutes, MM:SS, HH:MM:SS or D-HH:MM:SS", text)
		}
		limit = seconds * tool.Second
	}
	var sizes []forecastSize
	if call.Opts.On("size") {
		for _, text := range call.Opts.List("size") {
			size, ok := parseForecastSize(text)
			if !ok {
				return nil, call.Errorf("--size=%s: expected a number with gpu, cpu or node, as in 8gpu", text)
			}
			sizes = append(sizes, size)
		}
	}
	all := parts.GetPartitions()
	for _, name := range call.Opts.List("partition") {
		known := false
		for _, partition := range all {
			known = known || partition.GetName() == name
		}
		if !known {
			return nil, call.Errorf("--partition=%s: there is no such partition", name)
		}
	}
	qos := call.Opts.List("qos")
	if len(qos) == 0 {
		qos = []string{""}
	}
	var rows []forecastRow
	for _, partition := range fetch.ShownPartitions(call, all) {
		of := sizes
		if of == nil {
			of = usualSizes(partition, mostGPUsOf(nodes, partition.GetName()))
		}
		for _, q := range qos {
			for _, size := range of {
				rows = append(
					rows,
					forecastRow{
						partition: partition.GetName(),
						qos:       q,
						size:      size,
						limit:     forecastLimit(limit, partition),
					},
				)
			}
		}
	}
	return rows, nil
}

// forecastLimit is the time limit that a job is tried with.
func forecastLimit(asked int64, partition *apiv1.PartitionInfo) int64 {
	const hour = 3600 * tool.Second
	switch {
	case asked != 0:
		return asked
	case partition.GetDefaultTime() > 0:
		return partition.GetDefaultTime()
	case partition.GetMaxTime() > 0:
		return min(partition.GetMaxTime(), hour)
	}
	return hour
}

// mostGPUsOf is how many GPUs a node of a partition has at most.
func mostGPUsOf(nodes *apiv1.ListNodesReply, partition string) uint32 {
	most := uint32(0)
	for _, node := range nodes.GetNodes() {
		for _, p := range node.GetPartitions() {
			if p == partition {
				most = max(most, uint32(len(node.GetGpus())))
			}
		}
	}
	return most
}

// usualSizes are those that are tried in a partition when none are named.
func usualSizes(partition *apiv1.PartitionInfo, gpus uint32) []forecastSize {
	unit := "cpu"
	if gpus > 0 {
		unit = "gpu"
	}
	sizes := []forecastSize{{"1" + unit, 1, unit}, {"1node", 1, "node"}}
	if partition.GetTotalNodes() >= 4 {
		sizes = append(sizes, forecastSize{"4node", 4, "node"})
	}
	return sizes
}

func parseForecastSize(text string) (forecastSize, bool) {
	for _, unit := range []string{"gpu", "cpu", "node"} {
		if digits, ok := strings.CutSuffix(text, unit); ok {
			n, err := strconv.ParseUint(digits, 10, 31)
			return forecastSize{text, uint32(n), unit}, err == nil && n > 0
		}
	}
	return forecastSize{}, false
}

// predictStart asks where one job would start.
func (row *forecastRow) predictStart(call *tool.Call, gpus uint32) error {
	job := &apiv1.JobSpec{
		Name:       "forecast",
		Partitions: []string{row.partition},
		Qos:        row.qos,
		TimeLimit:  row.limit,
		WorkDir:    call.Dir,
		Shell:      true,
	}
	switch row.size.unit {
	case "gpu":
		job.PerJob = []*apiv1.Count{{Name: "gpu", N: int64(row.size.n)}}
	case "cpu":
		job.Tasks = row.size.n
	case "node":
		job.MinNodes, job.MaxNodes = row.size.n, row.size.n
		job.Sharing = uint32(spec.Exclusive)
		if gpus > 0 {
			job.PerNode = []*apiv1.Count{{Name: "gpu", N: int64(gpus)}}
		}
	}
	var reply apiv1.SubmitReply
	if err := call.RPC(
		tool.MethodSubmit, &apiv1.SubmitRequest{Spec: job, TestOnly: true}, &reply,
	); err != nil {
		if fetch.ControllerGone(err) {
			return tool.Fail(1, tool.ExplainError(err).Text)
		}
		row.why = tool.ExplainError(err).Text
		return nil
	}
	row.start = reply.GetPlannedStart()
	row.wait = max(row.start-call.Now().UnixNano(), 0)
	row.nodes = reply.GetPlannedNodes()
	return nil
}

func printForecast(call *tool.Call, rows []forecastRow, queues []*forecastQueue) error {
	table := [][]string{{"PARTITION", "QOS", "SIZE", "LIMIT", "WAIT", "NODES"}}
	for _, row := range rows {
		line := []string{row.partition, cmp.Or(row.qos, "-"), row.size.text, render.Span(row.limit)}
		if row.why != "" {
			line = append(line, "-", row.why)
		} else {
			line = append(line, render.Span(row.wait), row.nodes)
		}
		table = append(table, line)
	}
	text := render.AlignedTexts(table)
	if len(queues) > 0 {
		table = [][]string{{"PARTITION", "QOS", "PENDING"}}
		for _, hours := range forecastWithin() {
			table[0] = append(table[0], fmt.Sprintf("IN %d H", hours))
		}
		table[0] = append(table[0], "LATER", "NO START")
		for _, queue := range queues {
			line := []string{queue.partition, queue.qos, strconv.Itoa(queue.jobs)}
			before := 0
			for _, n := range queue.within[:len(queue.within)-1] {
				before += n
				line = append(line, strconv.Itoa(before))
			}
			line = append(line, strconv.Itoa(queue.within[len(queue.within)-1]))
			table = append(table, append(line, strconv.Itoa(queue.unplanned)))
		}
		text += "\n" + render.AlignedTexts(table)
	}
	return call.WriteOut([]byte(text))
}

// writeForecast writes the same for programs.
func writeForecast(call *tool.Call, rows []forecastRow, queues []*forecastQueue) error {
	sizes := tree.List{}
	for _, row := range rows {
		object := tree.Object{
			{Key: "partition", Value: row.partition},
			{Key: "qos", Value: row.qos},
			{Key: "size", Value: row.size.text},
			{Key: "limit_seconds", Value: row.limit / tool.Second},
		}
		if row.why != "" {
			object = append(object, tree.Member{Key: "reason", Value: row.why})
		} else {
			object = append(
				object,
				tree.Member{Key: "start", Value: row.start / tool.Second},
				tree.Member{Key: "wait_seconds", Value: row.wait / tool.Second},
				tree.Member{Key: "nodes", Value: row.nodes},
			)
		}
		sizes = append(sizes, object)
	}
	pending := tree.List{}
	for _, queue := range queues {
		object := tree.Object{
			{Key: "partition", Value: queue.partition},
			{Key: "qos", Value: queue.qos},
			{Key: "jobs", Value: int64(queue.jobs)},
		}
		before := int64(0)
		for i, hours := range forecastWithin() {
			before += int64(queue.within[i])
			object = append(
				object, tree.Member{Key: fmt.Sprintf("start_within_%dh", hours), Value: before},
			)
		}
		object = append(
			object,
			tree.Member{Key: "start_later", Value: int64(queue.within[len(queue.within)-1])},
			tree.Member{Key: "no_start", Value: int64(queue.unplanned)},
		)
		pending = append(pending, object)
	}
	return render.Print(
		call,
		tree.Member{Key: "now", Value: call.Now().Unix()},
		tree.Member{Key: "sizes", Value: sizes},
		tree.Member{Key: "pending", Value: pending},
	)
}
