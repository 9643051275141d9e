package console

import (
	"cmp"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// nodesOnPage is how many nodes the table has; the map has all of them.
const nodesOnPage = 100

// nodesData is what the page of nodes shows.
type nodesData struct {
	Query   string
	State   string
	Figures []figure
	Tabs    []tab
	Map     []mapNode
	Named   bool // the map has room for names
	Rows    []nodeLine
	Found   int
	Before  string
	After   string
	From    int
	To      int
	Hidden  bool // nodes are private
}

// mapNode is a node of the map with a cell for each GPU.
type mapNode struct {
	Name, Link, Title, Class string
	// Cells are the GPUs, each free, used, part, idle, fault or off. They are made
	// without the template, which would take most of the time of a page for
	// thousands of them.
	Cells template.HTML
}

// cellOf is the element of a GPU. Its classes are words of gpuClass.
func cellOf(class string) string { return "<i class=" + class + "></i>" }

// nodeLine is a node as a row.
type nodeLine struct {
	Name, Link, State, Class, Partitions string
	CPUs, Memory, GPUs, Load, Jobs       string
	CPUBar, MemoryBar, GPUBar            int // thousandths
	Reason, ReasonTitle                  string
}

func (c *Console) nodesPage(v *visit) (answer, error) {
	reply, err := v.listNodes()
	if err != nil {
		return answer{}, err
	}
	query := v.URL.Query()
	page, _ := strconv.Atoi(query.Get("page"))
	page = max(page, 1)
	data := nodesData{
		Query: query.Get("q"), State: query.Get("state"), Hidden: len(reply.GetNodes()) == 0,
	}
	data.Figures = nodeFigures(reply.GetNodes(), reply.GetNow())
	link := func(state string, page int) string {
		out := url.Values{}
		for key, value := range map[string]string{"q": data.Query, "state": state} {
			if value != "" {
				out.Set(key, value)
			}
		}
		if page > 1 {
			out.Set("page", strconv.Itoa(page))
		}
		if len(out) == 0 {
			return "/nodes"
		}
		return "/nodes?" + out.Encode()
	}
	data.Tabs = append(data.Tabs, tab{"All", link("", 1), data.State == ""})
	for _, state := range [...]string{"idle", "mixed", "allocated", "drain", "down", "planned"} {
		data.Tabs = append(data.Tabs, tab{state, link(state, 1), data.State == state})
	}
	words := strings.Fields(strings.ToLower(data.Query))
	var found []*apiv1.NodeInfo
	for _, node := range reply.GetNodes() {
		if (data.State == "" || render.StateOf(node).Matches(data.State)) && nodeHas(node, words) {
			found = append(found, node)
		}
	}
	data.Found, data.Named = len(found), len(found) <= 128
	for _, node := range found {
		data.Map = append(data.Map, mapOf(node, reply.GetNow()))
	}
	data.From = min((page-1)*nodesOnPage, len(found))
	data.To = min(data.From+nodesOnPage, len(found))
	for _, node := range found[data.From:data.To] {
		data.Rows = append(data.Rows, nodeRow(node, reply.GetNow()))
	}
	if page > 1 {
		data.Before = link(data.State, page-1)
	}
	if data.To < len(found) {
		data.After = link(data.State, page+1)
	}
	data.From++
	return answer{page: "nodes", title: "Nodes", data: data}, nil
}

// nodeHas tells whether each word is in what a node says of itself.
func nodeHas(node *apiv1.NodeInfo, words []string) bool {
	if len(words) == 0 {
		return true
	}
	parts := append(
		[]string{node.GetName(), node.GetState(), node.GetReason(), node.GetGres()},
		node.GetPartitions()...)
	all := strings.ToLower(strings.Join(append(parts, node.GetFeatures()...), "\n"))
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(all, w) })
}

// nodeClass is the class of the style sheet for a state of a node.
func nodeClass(node *apiv1.NodeInfo) string {
	state := render.StateOf(node)
	switch {
	case strings.HasPrefix(node.GetState(), "DOWN"),
		state.Has("FAIL"),
		state.Has("NOT_RESPONDING"),
		state.Has("INVALID_REG"):
		return "bad"
	case state.Out(), state.Has("REBOOT_ISSUED"), state.Has("MAINTENANCE"):
		return "warn"
	case strings.HasPrefix(node.GetState(), "IDLE"):
		return "idle"
	}
	return "busy"
}

func nodeState(node *apiv1.NodeInfo) string {
	state := render.StateOf(node)
	long, _ := state.Words()
	return long + state.Suffix()
}

// gpuClass is what the map shows of a GPU.
func gpuClass(node *apiv1.NodeInfo, gpu *apiv1.GpuInfo, now int64) string {
	trouble := render.TroubleOf(node, gpu, now)
	switch {
	case trouble.Fault != nil:
		return "fault"
	case trouble.Idle != nil:
		return "idle"
	case gpu.GetAllocated() && gpu.GetShares() > 0 && gpu.GetSharesUsed() > 0 && gpu.GetSharesUsed() < gpu.GetShares():
		return "part"
	case gpu.GetAllocated() || gpu.GetSharesUsed() > 0:
		return "used"
	case nodeClass(node) == "bad" || nodeClass(node) == "warn":
		return "off"
	}
	return "free"
}

func mapOf(node *apiv1.NodeInfo, now int64) mapNode {
	out := mapNode{
		Name:  render.Clean(node.GetName()),
		Link:  "/node/" + node.GetName(),
		Class: nodeClass(node),
	}
	used := 0
	var cells strings.Builder
	all := render.AllGPUs(node)
	for _, gpu := range all {
		if gpu.GetAllocated() {
			used++
		}
		cells.WriteString(cellOf(gpuClass(node, gpu, now)))
	}
	if len(all) == 0 {
		class := map[string]string{"busy": "used", "idle": "free"}[out.Class]
		cells.WriteString(cellOf(cmp.Or(class, "off")))
	}
	out.Cells = template.HTML(cells.String())
	out.Title = out.Name + ": " + nodeState(node)
	if len(all) > 0 {
		out.Title += ", " + strconv.Itoa(used) + " of " + strconv.Itoa(len(all)) +
			" GPUs in use"
	}
	if node.GetReason() != "" {
		out.Title += ", " + render.Clean(node.GetReason())
	}
	return out
}

func inThousandths(part, whole int64) int {
	if whole <= 0 {
		return 0
	}
	return int(min(part*1000/whole, 1000))
}

func nodeRow(node *apiv1.NodeInfo, now int64) nodeLine {
	used := int64(0)
	for _, gpu := range node.GetGpus() {
		if gpu.GetAllocated() {
			used++
		}
	}
	line := nodeLine{Name: render.Clean(node.GetName()), Link: "/node/" + node.GetName(),
		State: nodeState(node), Class: nodeClass(node),
		Partitions: render.Clean(strings.Join(node.GetPartitions(), ", ")),
		CPUs:       formatNumber(node.GetCpusAlloc()) + " / " + formatNumber(node.GetCpus()),
		CPUBar:     inThousandths(node.GetCpusAlloc(), node.GetCpus()),
		Memory:     formatMemory(node.GetMemAlloc()) + " / " + formatMemory(node.GetMem()),
		MemoryBar:  inThousandths(node.GetMemAlloc(), node.GetMem()),
		Jobs:       formatNumber(node.GetJobsRunning()),
		Reason:     render.Clean(node.GetReason())}
	if all := int64(len(node.GetGpus())); all > 0 {
		line.GPUs, line.GPUBar = formatNumber(used)+" / "+formatNumber(all),
			inThousandths(used, all)
	}
	if node.GetLoadMilli() >= 0 && node.GetRegistered() {
		line.Load = render.Milli(node.GetLoadMilli())
	}
	if node.GetReason() != "" {
		line.ReasonTitle = render.Clean(render.NodeReason(node, jobText(now).Clock))
	}
	return line
}

// nodeFigures are the numbers above the nodes.
func nodeFigures(nodes []*apiv1.NodeInfo, now int64) []figure {
	var out, gpuAll, gpuUsed, gpuFault, gpuOff, gpuIdle int64
	for _, node := range nodes {
		if c := nodeClass(node); c == "bad" || c == "warn" {
			out++
		}
		for _, gpu := range render.AllGPUs(node) {
			gpuAll++
			switch gpuClass(node, gpu, now) {
			case "used", "part":
				gpuUsed++
			case "idle":
				gpuUsed++
				gpuIdle++
			case "fault":
				gpuFault++
			case "off":
				gpuOff++
			}
		}
	}
	list := []figure{{Name: "nodes", Value: formatNumber(int64(len(nodes))), Link: "/nodes"}}
	add := func(n int64, name, link, class string) {
		if n > 0 {
			list = append(list, figure{name, formatNumber(n), link, class})
		}
	}
	add(out, "out of service", "/nodes?state=drain", "failed")
	if gpuAll > 0 {
		list = append(
			list,
			figure{
				"of " + formatNumber(gpuAll) + " GPUs in use",
				formatNumber(gpuUsed),
				"/gpus?state=used",
				"running",
			},
			figure{
				"GPUs free",
				formatNumber(gpuAll - gpuUsed - gpuFault - gpuOff),
				"/gpus?state=free",
				"",
			},
		)
	}
	add(gpuIdle, "held without a process", "/gpus?state=idle", "pending")
	add(gpuFault, "GPUs with faults", "/gpus?state=fault", "failed")
	add(gpuOff, "GPUs out of service", "/gpus?state=off", "pending")
	return list
}

// nodeData is what the page of a node shows.
type nodeData struct {
	Line    nodeLine
	Reason  string
	Facts   []fact
	GPUs    []gpuLine
	Faults  []faultLine
	Jobs    []jobLine
	Actions []action
	Done    string
	Events  string // where what happened on the node is read
}

// gpuLine is a GPU of a node.
type gpuLine struct {
	Index, UUID, Model, Class, State, Trouble string
	Job, JobLink                              string
}

// faultLine is something that happened to a GPU.
type faultLine struct {
	At        moment
	GPU, Text string
	Job, Link string
}

func (c *Console) nodePage(v *visit) (answer, error) {
	name := v.PathValue("name")
	reply, err := callAPI[*apiv1.ListNodesReply](
		v,
		tool.MethodListNodes,
		&apiv1.ListNodesRequest{Nodes: []string{name}},
	)
	if err != nil {
		return answer{}, err
	}
	if len(reply.GetNodes()) != 1 {
		return answer{}, spec.Refuse(spec.CodeInvalidNodeName, name)
	}
	node := reply.GetNodes()[0]
	data := nodeData{
		Line:    nodeRow(node, reply.GetNow()),
		Done:    doneText(v.URL.Query().Get("did")),
		Actions: v.nodeActions(node),
	}
	if node.GetReason() != "" {
		data.Reason = render.Clean(node.GetReason() + " (" +
			cmp.Or(node.GetReasonUser(), "unknown") + ", " +
			render.Span(reply.GetNow()-node.GetReasonTime()) + " ago)")
	}
	data.Facts = nodeFacts(node)
	data.Events = v.nodeEventsLink(name, reply.GetNow())
	jobs, err := callAPI[*apiv1.ListJobsReply](
		v,
		tool.MethodListJobs,
		&apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Nodes: []string{node.GetName()}}},
	)
	if err != nil {
		return answer{}, err
	}
	names := map[uint32]string{}
	text := jobText(reply.GetNow())
	for _, job := range jobs.GetJobs() {
		line := newJobLine(job, text)
		names[job.GetJobId()] = line.ID + " " + line.Name + " of " + line.User
		data.Jobs = append(data.Jobs, line)
	}
	byUUID := map[string]string{}
	for _, gpu := range render.AllGPUs(node) {
		wrong := troubleText(render.TroubleOf(node, gpu, reply.GetNow()))
		class := gpuClass(node, gpu, reply.GetNow())
		line := gpuLine{
			Index:   gpuNumber(gpu),
			UUID:    render.Clean(gpu.GetUuid()),
			Model:   render.Clean(cmp.Or(gpu.GetModel(), gpu.GetType())),
			Class:   class,
			Trouble: render.Clean(wrong),
			State:   gpuStateName(class),
		}
		if id := gpu.GetJobId(); id != 0 {
			line.JobLink = "/job/" + strconv.FormatUint(uint64(id), 10)
			line.Job = cmp.Or(names[id], strconv.FormatUint(uint64(id), 10))
		}
		byUUID[gpu.GetUuid()] = line.Index
		data.GPUs = append(data.GPUs, line)
	}
	for _, fault := range node.GetGpuFaults() {
		line := faultLine{
			At:  newMoment(fault.GetAt()),
			GPU: cmp.Or(byUUID[fault.GetUuid()], render.Clean(fault.GetUuid())),
			Text: render.Clean(strings.TrimSpace(render.FaultText(fault) +
				" " + fault.GetText())),
		}
		if fault.GetJobId() != 0 {
			line.Job = strconv.FormatUint(fault.GetJobId(), 10)
			line.Link = "/job/" + line.Job
		}
		data.Faults = append(data.Faults, line)
	}
	return answer{page: "node", title: "Node " + render.Clean(node.GetName()), data: data}, nil
}

func nodeFacts(node *apiv1.NodeInfo) []fact {
	var facts []fact
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, fact{Name: name, Value: render.Clean(value)})
		}
	}
	add("partitions", strings.Join(node.GetPartitions(), ", "))
	add("features", strings.Join(node.GetFeatures(), ", "))
	add("sockets × cores × threads", strconv.FormatInt(node.GetSockets(), 10)+" × "+
		strconv.FormatInt(node.GetCoresPerSocket(), 10)+" × "+
		strconv.FormatInt(node.GetThreadsPerCore(), 10))
	add("GRES", node.GetGres())
	add("weight", formatNumber(node.GetWeight()))
	add("reservation", node.GetReservation())
	add("system", strings.TrimSpace(node.GetOs()+" "+node.GetArch()))
	add("agent", node.GetVersion())
	add("address", node.GetAddr())
	add("comment", node.GetComment())
	add("degraded", node.GetDegraded())
	return facts
}
