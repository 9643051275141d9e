package console

import (
	"cmp"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

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
	q := v.URL.Query()
	page, _ := strconv.Atoi(q.Get("page"))
	page = max(page, 1)
	d := nodesData{Query: q.Get("q"), State: q.Get("state"), Hidden: len(reply.GetNodes()) == 0}
	d.Figures = nodeFigures(reply.GetNodes(), reply.GetNow())
	link := func(state string, page int) string {
		out := url.Values{}
		for key, value := range map[string]string{"q": d.Query, "state": state} {
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
	d.Tabs = append(d.Tabs, tab{"All", link("", 1), d.State == ""})
	for _, state := range [...]string{"idle", "mixed", "allocated", "drain", "down", "planned"} {
		d.Tabs = append(d.Tabs, tab{state, link(state, 1), d.State == state})
	}
	words := strings.Fields(strings.ToLower(d.Query))
	var found []*apiv1.NodeInfo
	for _, n := range reply.GetNodes() {
		if (d.State == "" || render.StateOf(n).Matches(d.State)) && nodeHas(n, words) {
			found = append(found, n)
		}
	}
	d.Found, d.Named = len(found), len(found) <= 128
	for _, n := range found {
		d.Map = append(d.Map, mapOf(n, reply.GetNow()))
	}
	d.From = min((page-1)*nodesOnPage, len(found))
	d.To = min(d.From+nodesOnPage, len(found))
	for _, n := range found[d.From:d.To] {
		d.Rows = append(d.Rows, nodeRow(n, reply.GetNow()))
	}
	if page > 1 {
		d.Before = link(d.State, page-1)
	}
	if d.To < len(found) {
		d.After = link(d.State, page+1)
	}
	d.From++
	return answer{page: "nodes", title: "Nodes", data: d}, nil
}

// nodeHas tells whether each word is in what a node says of itself.
func nodeHas(n *apiv1.NodeInfo, words []string) bool {
	if len(words) == 0 {
		return true
	}
	parts := append([]string{n.GetName(), n.GetState(), n.GetReason(), n.GetGres()}, n.GetPartitions()...)
	all := strings.ToLower(strings.Join(append(parts, n.GetFeatures()...), "\n"))
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(all, w) })
}

// nodeClass is the class of the style sheet for a state of a node.
func nodeClass(n *apiv1.NodeInfo) string {
	state := render.StateOf(n)
	switch {
	case strings.HasPrefix(n.GetState(), "DOWN"), state.Has("FAIL"), state.Has("NOT_RESPONDING"), state.Has("INVALID_REG"):
		return "bad"
	case state.Out(), state.Has("REBOOT_ISSUED"), state.Has("MAINTENANCE"):
		return "warn"
	case strings.HasPrefix(n.GetState(), "IDLE"):
		return "idle"
	}
	return "busy"
}

func nodeState(n *apiv1.NodeInfo) string {
	state := render.StateOf(n)
	long, _ := state.Words()
	return long + state.Suffix()
}

// gpuTrouble is what is wrong with a GPU now; empty = nothing that is known. What
// does not keep it from jobs is told for a day.
func gpuTrouble(n *apiv1.NodeInfo, uuid string, now int64) (text string, idle bool) {
	returned := int64(0)
	for _, f := range n.GetGpuFaults() {
		if f.GetUuid() == uuid && spec.GPUFaultKind(f.GetKind()) == spec.GPUReturned {
			returned = f.GetAt()
		}
	}
	for _, f := range n.GetGpuFaults() {
		kind := spec.GPUFaultKind(f.GetKind())
		if f.GetUuid() != uuid || f.GetAt() < returned || kind == spec.GPUReturned || kind == spec.GPUMIGChanged || now-f.GetAt() > int64(24*time.Hour) {
			continue
		}
		if kind == spec.GPUIdle {
			idle = true
			continue
		}
		return render.FaultText(f), false
	}
	return "", idle
}

// gpuClass is what the map shows of a GPU.
func gpuClass(n *apiv1.NodeInfo, g *apiv1.GpuInfo, now int64) string {
	wrong, idle := gpuTrouble(n, g.GetUuid(), now)
	switch {
	case wrong != "":
		return "fault"
	case g.GetAllocated() && idle:
		return "idle"
	case g.GetAllocated() && g.GetShares() > 0 && g.GetSharesUsed() > 0 && g.GetSharesUsed() < g.GetShares():
		return "part"
	case g.GetAllocated() || g.GetSharesUsed() > 0:
		return "used"
	case nodeClass(n) == "bad" || nodeClass(n) == "warn":
		return "off"
	}
	return "free"
}

func mapOf(n *apiv1.NodeInfo, now int64) mapNode {
	out := mapNode{Name: render.Clean(n.GetName()), Link: "/node/" + n.GetName(), Class: nodeClass(n)}
	used := 0
	var cells strings.Builder
	for _, g := range n.GetGpus() {
		if g.GetAllocated() {
			used++
		}
		cells.WriteString(cellOf(gpuClass(n, g, now)))
	}
	if len(n.GetGpus()) == 0 {
		class := map[string]string{"busy": "used", "idle": "free"}[out.Class]
		cells.WriteString(cellOf(cmp.Or(class, "off")))
	}
	out.Cells = template.HTML(cells.String())
	out.Title = out.Name + ": " + nodeState(n)
	if len(n.GetGpus()) > 0 {
		out.Title += ", " + strconv.Itoa(used) + " of " + strconv.Itoa(len(n.GetGpus())) + " GPUs in use"
	}
	if n.GetReason() != "" {
		out.Title += ", " + render.Clean(n.GetReason())
	}
	return out
}

func inThousandths(part, whole int64) int {
	if whole <= 0 {
		return 0
	}
	return int(min(part*1000/whole, 1000))
}

func nodeRow(n *apiv1.NodeInfo, now int64) nodeLine {
	used := int64(0)
	for _, g := range n.GetGpus() {
		if g.GetAllocated() {
			used++
		}
	}
	out := nodeLine{Name: render.Clean(n.GetName()), Link: "/node/" + n.GetName(), State: nodeState(n), Class: nodeClass(n), Partitions: render.Clean(strings.Join(n.GetPartitions(), ", ")),
		CPUs: formatNumber(n.GetCpusAlloc()) + " / " + formatNumber(n.GetCpus()), CPUBar: inThousandths(n.GetCpusAlloc(), n.GetCpus()),
		Memory: formatMemory(n.GetMemAlloc()) + " / " + formatMemory(n.GetMem()), MemoryBar: inThousandths(n.GetMemAlloc(), n.GetMem()), Jobs: formatNumber(n.GetJobsRunning()),
		Reason: render.Clean(n.GetReason())}
	if all := int64(len(n.GetGpus())); all > 0 {
		out.GPUs, out.GPUBar = formatNumber(used)+" / "+formatNumber(all), inThousandths(used, all)
	}
	if n.GetLoadMilli() >= 0 && n.GetRegistered() {
		out.Load = render.Milli(n.GetLoadMilli())
	}
	if n.GetReason() != "" {
		out.ReasonTitle = render.Clean(render.NodeReason(n, jobText(now).Clock))
	}
	return out
}

// nodeFigures are the numbers above the nodes.
func nodeFigures(nodes []*apiv1.NodeInfo, now int64) []figure {
	var out, gpuAll, gpuUsed, gpuFault, gpuOff, gpuIdle int64
	for _, n := range nodes {
		if c := nodeClass(n); c == "bad" || c == "warn" {
			out++
		}
		for _, g := range n.GetGpus() {
			gpuAll++
			switch gpuClass(n, g, now) {
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
		list = append(list, figure{"of " + formatNumber(gpuAll) + " GPUs in use", formatNumber(gpuUsed), "", "running"},
			figure{"GPUs free", formatNumber(gpuAll - gpuUsed - gpuFault - gpuOff), "", ""})
	}
	add(gpuIdle, "held without a process", "", "pending")
	add(gpuFault, "GPUs with faults", "", "failed")
	add(gpuOff, "GPUs out of service", "", "pending")
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
	reply, err := callAPI[*apiv1.ListNodesReply](v, tool.MethodListNodes, &apiv1.ListNodesRequest{Nodes: []string{name}})
	if err != nil {
		return answer{}, err
	}
	if len(reply.GetNodes()) != 1 {
		return answer{}, spec.Refuse(spec.CodeInvalidNodeName, name)
	}
	n := reply.GetNodes()[0]
	d := nodeData{Line: nodeRow(n, reply.GetNow()), Done: doneText(v.URL.Query().Get("did")), Actions: v.nodeActions(n)}
	if n.GetReason() != "" {
		d.Reason = render.Clean(n.GetReason() + " (" + cmp.Or(n.GetReasonUser(), "unknown") + ", " + render.Span(reply.GetNow()-n.GetReasonTime()) + " ago)")
	}
	d.Facts = nodeFacts(n)
	jobs, err := callAPI[*apiv1.ListJobsReply](v, tool.MethodListJobs, &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Nodes: []string{n.GetName()}}})
	if err != nil {
		return answer{}, err
	}
	names := map[uint32]string{}
	text := jobText(reply.GetNow())
	for _, j := range jobs.GetJobs() {
		l := newJobLine(j, text)
		names[j.GetJobId()] = l.ID + " " + l.Name + " of " + l.User
		d.Jobs = append(d.Jobs, l)
	}
	byUUID := map[string]string{}
	for _, g := range n.GetGpus() {
		wrong, _ := gpuTrouble(n, g.GetUuid(), reply.GetNow())
		class := gpuClass(n, g, reply.GetNow())
		l := gpuLine{Index: formatNumber(g.GetIndex()), UUID: render.Clean(g.GetUuid()), Model: render.Clean(cmp.Or(g.GetModel(), g.GetType())), Class: class, Trouble: render.Clean(wrong),
			State: map[string]string{"free": "free", "used": "in use", "part": "partly in use", "idle": "held without a process", "fault": "fault", "off": "out of service"}[class]}
		if id := g.GetJobId(); id != 0 {
			l.JobLink = "/job/" + strconv.FormatUint(uint64(id), 10)
			l.Job = cmp.Or(names[id], strconv.FormatUint(uint64(id), 10))
		}
		byUUID[g.GetUuid()] = l.Index
		d.GPUs = append(d.GPUs, l)
	}
	for _, f := range n.GetGpuFaults() {
		l := faultLine{At: newMoment(f.GetAt()), GPU: cmp.Or(byUUID[f.GetUuid()], render.Clean(f.GetUuid())), Text: render.Clean(strings.TrimSpace(render.FaultText(f) + " " + f.GetText()))}
		if f.GetJobId() != 0 {
			l.Job = strconv.FormatUint(f.GetJobId(), 10)
			l.Link = "/job/" + l.Job
		}
		d.Faults = append(d.Faults, l)
	}
	return answer{page: "node", title: "Node " + render.Clean(n.GetName()), data: d}, nil
}

func nodeFacts(n *apiv1.NodeInfo) []fact {
	var out []fact
	add := func(name, value string) {
		if value != "" {
			out = append(out, fact{Name: name, Value: render.Clean(value)})
		}
	}
	add("partitions", strings.Join(n.GetPartitions(), ", "))
	add("features", strings.Join(n.GetFeatures(), ", "))
	add("sockets × cores × threads", strconv.FormatInt(n.GetSockets(), 10)+" × "+strconv.FormatInt(n.GetCoresPerSocket(), 10)+" × "+strconv.FormatInt(n.GetThreadsPerCore(), 10))
	add("GRES", n.GetGres())
	add("weight", formatNumber(n.GetWeight()))
	add("reservation", n.GetReservation())
	add("system", strings.TrimSpace(n.GetOs()+" "+n.GetArch()))
	add("agent", n.GetVersion())
	add("address", n.GetAddr())
	add("comment", n.GetComment())
	add("degraded", n.GetDegraded())
	return out
}
