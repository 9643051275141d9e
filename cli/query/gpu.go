package query

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
)

func GPU() *tool.Command {
	return &tool.Command{
		Name: "gpu", Mixed: true,
		Summary: "show the use of GPUs, now and over time, by job and user",
		Usage:   []string{"top|idle|topo|job [ID] [OPTIONS]"},
		About: `Reads the metrics of the agents, so values are those of the last collection. top lists every GPU.
job lists the GPUs of a job with its usage so far, or in total if it has ended, and draws each value over
time from the samples in the accounting store. idle lists jobs whose GPUs were mostly idle. A value that was
not measured is shown as -. topo asks the controller alone, for what
the scheduler knows of each node's GPUs: how each pair is connected, and which NUMA node and CPUs each is near to. A job gets those that are
the closest to each other. Nodes that are alike are shown once.`,
		Options: []opt.Option{
			{Long: "nodes", Short: "w", Arg: "HOSTLIST", Help: "only these nodes"},
			{Long: "user", Short: "u", Arg: "NAME", Help: "only GPUs that this user's jobs hold"},
			{
				Long:  "all",
				Short: "a",
				Help:  "idle: include jobs that used their GPUs more than half of the time",
			},
			{
				Long: "width",
				Arg:  "COLUMNS",
				Help: "job: number of columns of a chart over time (default: 60)",
			},
			{Long: "iterate", Short: "i", Arg: "SECONDS", Help: "refresh interval in seconds"},
			{Long: "json", Help: "print JSON"},
			{Long: "yaml", Help: "print YAML"},
			{Long: "noheader", Short: "n", Help: "omit the header"},
		},
		Env: []tool.Variable{
			{
				Name: "MUSTER_METRICS_TOKEN_FILE",
				Help: "file with the token that the agents' metrics ask for, where they ask for one",
			},
		},
		Verbs: []tool.Verb{
			{Name: "top", Args: "", Help: "list every GPU with its load and its job"},
			{Name: "job", Args: "ID", Help: "list the GPUs of a running or ended job"},
			{Name: "idle", Args: "", Help: "list jobs whose GPUs were mostly idle, longest first"},
			{
				Name: "topo",
				Args: "",
				Help: "how the GPUs of each node are connected: NVLink, PCI, NUMA nodes",
			},
		},
		Example: []tool.Example{
			{Line: "muster gpu top -i 2", What: "watches all GPUs"},
			{Line: "muster gpu job 12345 --width 100", What: "draws what the GPUs of a job did"},
			{
				Line: "muster gpu idle -u alice",
				What: "shows which of alice's jobs leave GPUs unused",
			},
			{
				Line: "muster gpu topo -w node1",
				What: "shows which GPUs of node1 are close to each other",
			},
		},
		Run: runGPU,
	}
}

func runGPU(call *tool.Call) error {
	word := func(text string) error { return &opt.UsageError{Command: "muster gpu", Text: text} }
	if len(call.Operands) == 0 {
		return word("top, job, idle or topo is expected")
	}
	what, rest := call.Operands[0], call.Operands[1:]
	if !slices.Contains([]string{"top", "job", "idle", "topo"}, what) {
		return word("unknown word " + what + ": top, job, idle or topo is expected")
	}
	for _, name := range []string{"user", "all", "width"} {
		if _, given := call.Opts.Get(name); what == "topo" && given {
			return word("--" + name + " says nothing to muster gpu topo")
		}
	}
	job := ""
	if what == "job" {
		if len(rest) != 1 {
			return word("muster gpu job takes one job ID")
		}
		if _, ok := tool.PositiveNumber(rest[0]); !ok {
			return call.Errorf(
				"%s: expected the number of a job (tasks of arrays have one of their own: squeue -o %%A)",
				rest[0],
			)
		}
		job, rest = rest[0], nil
	}
	if len(rest) > 0 {
		return word("unexpected argument " + rest[0])
	}
	if w := call.Opts.Text("width"); w != "" {
		if _, ok := tool.PositiveNumber(w); !ok {
			return call.Errorf("--width=%s: expected a number of columns", w)
		}
	}
	return call.Repeat(func() error { return gpuOnce(call, what, job) })
}

// gpuOnce reads the agents and shows one table.
func gpuOnce(call *tool.Call, what, job string) error {
	request := &apiv1.ListNodesRequest{}
	if w := call.Opts.Text("nodes"); w != "" {
		request.Nodes = []string{w}
	}
	var reply apiv1.ListNodesReply
	if err := call.RPC(tool.MethodListNodes, request, &reply); err != nil {
		return err
	}
	if what == "topo" {
		return gpuTopo(call, reply.GetNodes())
	}
	list, silent := readGPUs(call, reply.GetNodes())
	for _, s := range silent {
		fmt.Fprintln(call.Stderr, "muster gpu: "+s)
	}
	user := call.Opts.Text("user")
	list = slices.DeleteFunc(
		list,
		func(g *gpuNow) bool { return job != "" && g.job != job || user != "" && g.user != user },
	)
	switch {
	case what == "job":
		return gpuJob(call, job, list)
	case what == "idle":
		list = slices.DeleteFunc(list, func(gpu *gpuNow) bool {
			mostlyUsed := (gpu.noProcess+gpu.idle)*2 < gpu.heldSeconds()
			return !gpu.heldAlone() || mostlyUsed && !call.Opts.On("all")
		})
		slices.SortStableFunc(
			list,
			func(a, b *gpuNow) int { return cmp.Compare(b.noProcess+b.idle, a.noProcess+a.idle) },
		)
	}
	if render.WantsDocument(call) {
		rows := make(tree.List, len(list))
		for i, gpu := range list {
			rows[i] = gpu.gpuTree()
		}
		return render.Print(call, tree.Member{Key: "gpus", Value: rows})
	}
	return call.WriteOut([]byte(gpuTable(what, list, !call.Opts.On("noheader"))))
}

// gpuJob shows the GPUs of a job, now and over time. What agents and
// accounting know stands for itself: either may be away.
func gpuJob(call *tool.Call, job string, now []*gpuNow) error {
	past, err := gpuPast(call, job)
	switch {
	case err != nil && len(now) == 0:
		return err
	case err != nil:
		fmt.Fprintln(call.Stderr, "muster gpu: no samples: "+err.Error())
		past = &apiv1.GpuHistoryReply{}
	case past.GetRun() == nil && len(now) == 0:
		return call.Errorf("there is no job %s", job)
	case past.GetRun().GetStart() == 0 && len(now) == 0:
		return call.Errorf("job %s has not started: muster why %s", job, job)
	case len(past.GetGpus()) == 0 && len(now) == 0 && past.GetRun().GetEnd() != 0:
		return call.Errorf("job %s held no GPU", job)
	case len(past.GetGpus()) == 0 && len(now) == 0:
		return call.Errorf(
			"job %s holds no GPU on a node that answers, and no samples of it are stored",
			job,
		)
	}
	if render.WantsDocument(call) {
		rows := make(tree.List, len(now))
		for i, gpu := range now {
			rows[i] = gpu.gpuTree()
		}
		return render.Print(
			call,
			tree.Member{Key: "gpus", Value: rows},
			tree.Member{Key: "history", Value: gpuHistoryTree(past)},
		)
	}
	text := gpuEnded(past.GetGpus(), !call.Opts.On("noheader"))
	if len(now) > 0 || past.GetRun().GetEnd() == 0 {
		text = ""
		if len(now) > 0 {
			text = gpuTable("job", now, !call.Opts.On("noheader"))
		}
	}
	if err == nil {
		text += "\n" + gpuHistoryText(call, past)
	}
	return call.WriteOut([]byte(text))
}

// readGPUs asks every agent at once; what says which did not answer.
func readGPUs(call *tool.Call, nodes []*apiv1.NodeInfo) (gpus []*gpuNow, silent []string) {
	const most, patience = 64, 3 * time.Second
	token, err := metricsToken(call.Env)
	if err != nil {
		silent = append(silent, err.Error())
	}
	type answer struct {
		gpus []*gpuNow
		err  error
	}
	answers := make([]answer, len(nodes))
	slots := make(chan struct{}, most)
	var wg sync.WaitGroup
	for i, node := range nodes {
		if node.GetMetricsAddr() == "" || len(node.GetGpus()) == 0 {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			text, err := readMetrics(call, node.GetMetricsAddr(), token, patience)
			answers[i] = answer{gpusOf(node.GetName(), text), err}
		})
	}
	wg.Wait()
	for i, a := range answers {
		if a.err != nil {
			silent = append(silent, nodes[i].GetName()+": "+a.err.Error())
		}
		gpus = append(gpus, a.gpus...)
	}
	return gpus, silent
}

func readMetrics(call *tool.Call, addr, token string, patience time.Duration) (string, error) {
	if call.Metrics != nil {
		return call.Metrics(call.Ctx, addr)
	}
	return fetchMetrics(call.Ctx, addr, token, patience)
}

// gpuNow is one GPU or MIG instance, or the share of a job in one.
type gpuNow struct {
	node, index, uuid, model, profile string
	job, user, account, partition     string
	lost                              bool
	shared                            bool               // a job's part of a device: its time and energy are by share
	figure                            map[string]float64 // by short name; absent: not measured
	noProcess, idle, busy, unseen     float64            // seconds of the job
}

func (g *gpuNow) heldSeconds() float64 { return g.noProcess + g.idle + g.busy + g.unseen }

// heldAlone tells whether one job has held the GPU in the window.
func (g *gpuNow) heldAlone() bool { return g.job != "" && !g.shared && g.heldSeconds() != 0 }

// formatFigure writes a figure, scaled and rounded, or -.
func (g *gpuNow) formatFigure(name string, scale float64, format string) string {
	value, ok := g.figure[name]
	if !ok {
		return "-"
	}
	return fmt.Sprintf(format, value*scale)
}

func (g *gpuNow) formatMemory() string {
	used, ok := g.figure["used"]
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.1f/%.1fG", used/1024, (used+g.figure["free"]+g.figure["reserved"])/1024)
}

// drawBar draws utilisation in eight steps.
func (g *gpuNow) drawBar() string {
	u, ok := g.figure["util"]
	if g.lost {
		return "lost"
	}
	if !ok {
		return "-"
	}
	const width = 8
	full := min(max(int(u*width/100+0.5), 0), width)
	return strings.Repeat("#", full) + strings.Repeat(".", width-full)
}

func formatSeconds(s float64) string {
	if s <= 0 {
		return "0 s"
	}
	return render.Span(int64(s) * tool.Second)
}

// gpuTable lays the rows out for one of the three words.
func gpuTable(what string, list []*gpuNow, header bool) string {
	var rows [][]string
	head := []string{
		"NODE",
		"GPU",
		"LOAD",
		"UTIL",
		"SM",
		"TENSOR",
		"MEMORY",
		"POWER",
		"TEMP",
		"JOBID",
		"USER",
		"ACCOUNT",
	}
	switch what {
	case "idle":
		head = []string{
			"JOBID",
			"USER",
			"ACCOUNT",
			"NODE",
			"GPU",
			"HELD",
			"NO PROCESS",
			"NO WORK",
			"BUSY",
			"UTIL NOW",
		}
	case "job":
		head = append(head[:9:9], "HELD", "NO PROCESS", "NO WORK", "BUSY", "ENERGY", "UUID")
	}
	if header {
		rows = append(rows, head)
	}
	for _, gpu := range list {
		name := gpu.index
		if gpu.profile != "" {
			name += "/" + gpu.profile
		}
		if gpu.shared {
			name += "/shared"
		}
		now := []string{
			gpu.node,
			name,
			gpu.drawBar(),
			gpu.formatFigure("util", 1, "%.0f%%"),
			gpu.formatFigure("sm", 100, "%.0f%%"),
			gpu.formatFigure("tensor", 100, "%.0f%%"),
			gpu.formatMemory(),
			gpu.formatFigure("power", 1, "%.0fW"),
			gpu.formatFigure("temp", 1, "%.0fC"),
		}
		switch what {
		case "idle":
			rows = append(
				rows,
				[]string{
					gpu.job,
					gpu.user,
					gpu.account,
					gpu.node,
					name,
					formatSeconds(gpu.heldSeconds()),
					formatSeconds(gpu.noProcess),
					formatSeconds(gpu.idle),
					formatSeconds(gpu.busy),
					gpu.formatFigure("util", 1, "%.0f%%"),
				},
			)
		case "job":
			rows = append(
				rows,
				append(
					now,
					formatSeconds(gpu.heldSeconds()),
					formatSeconds(gpu.noProcess),
					formatSeconds(gpu.idle),
					formatSeconds(gpu.busy),
					gpu.formatFigure("energy", 1.0/3600, "%.1fWh"),
					gpu.uuid,
				),
			)
		default:
			rows = append(
				rows,
				append(now, cmp.Or(gpu.job, "-"), cmp.Or(gpu.user, "-"), cmp.Or(gpu.account, "-")),
			)
		}
	}
	text := map[string]bool{
		"NODE":    true,
		"GPU":     true,
		"LOAD":    true,
		"JOBID":   true,
		"USER":    true,
		"ACCOUNT": true,
		"UUID":    true,
	}
	return render.Aligned(rows, func(i int) bool { return text[head[i]] })
}

func (g *gpuNow) gpuTree() tree.Object {
	object := tree.Object{
		{Key: "node", Value: g.node},
		{Key: "gpu", Value: g.index},
		{Key: "uuid", Value: g.uuid},
		{Key: "model", Value: g.model},
		{Key: "mig_profile", Value: g.profile},
		{
			Key:   "lost",
			Value: g.lost,
		},
		{Key: "shared", Value: g.shared},
		{Key: "job_id", Value: g.job},
		{Key: "user", Value: g.user},
		{Key: "account", Value: g.account},
		{Key: "partition", Value: g.partition},
		{
			Key:   "no_process_seconds",
			Value: g.noProcess,
		},
		{Key: "no_work_seconds", Value: g.idle},
		{Key: "busy_seconds", Value: g.busy},
		{Key: "unobserved_seconds", Value: g.unseen},
	}
	for _, name := range gpuFigures() {
		var value any
		if v, ok := g.figure[name.short]; ok {
			value = v
		}
		object = append(object, tree.Member{Key: name.key, Value: value})
	}
	return object
}
