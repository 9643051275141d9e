package console

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/spec"
)

const (
	gpusOnPage   = 100 // rows of the table of GPUs
	maxIdleGPUs  = 50  // rows of those that are held without a process
	maxGPUEvents = 40  // rows of what happened to GPUs
)

// gpusData is what the page of GPUs shows.
type gpusData struct {
	Choice   gpuChoice
	Figures  []figure
	Tabs     []tab
	Types    []gpuTypeLine
	Idle     []idleLine
	MoreIdle int
	Events   []gpuEvent
	Missing  []missingLine
	Rows     []gpuRow
	Found    int
	From     int
	To       int
	Before   string
	After    string
	Hidden   bool // nodes are private
}

// gpuChoice is what a reader chose, as the address of the page has it.
type gpuChoice struct {
	Query string
	State string
	Page  int
}

// gpusLink is the address of the page with this choice.
func (c gpuChoice) gpusLink() string {
	out := url.Values{}
	for key, value := range map[string]string{"q": c.Query, "state": c.State} {
		if value != "" {
			out.Set(key, value)
		}
	}
	if c.Page > 1 {
		out.Set("page", strconv.Itoa(c.Page))
	}
	if len(out) == 0 {
		return "/gpus"
	}
	return "/gpus?" + out.Encode()
}

// gpuTypeLine sums up the GPUs of a type. The states exclude each other, but that
// a GPU in use may be one that is held without a process.
type gpuTypeLine struct {
	Name, Link                                    string
	All, Used, Part, Idle, Free, Fault, Lost, Off int64
	Bar                                           int
}

// idleLine is a GPU that a job holds without a process on it.
type idleLine struct {
	Key, Node, NodeLink, Index string
	Job                        jobLine
	Known                      bool // the job is shown to the reader
	JobLink, JobID             string
	Since                      moment
	For, Then                  string
	since                      int64
}

// gpuEvent is something that happened to a GPU.
type gpuEvent struct {
	At                  moment
	Node, NodeLink, GPU string
	Class, What, Text   string
	Count, Job, JobLink string
	at                  int64
}

// missingLine is a node that registered with fewer GPUs than it should have.
type missingLine struct{ Node, Link, Text string }

// gpuRow is a GPU as a row.
type gpuRow struct {
	Key, Node, NodeLink, Index  string
	Class, State, Trouble       string
	Type, Model, UUID, Parent   string
	Share                       string
	Job, JobLink, JobName, User string

	words string // what a filter looks into
}

// gpuStateName is the name of a class of gpuClass, and of lost GPUs.
func gpuStateName(class string) string {
	switch class {
	case "used":
		return "in use"
	case "part":
		return "partly in use"
	case "idle":
		return "held without a process"
	case "off":
		return "out of service"
	}
	return class
}

// gpuStates are the states that a reader can choose, in the order of the tabs.
func gpuStates() []string { return []string{"used", "idle", "part", "free", "fault", "lost", "off"} }

// troubleText is a fault in a few words, with what the driver said of it.
func troubleText(trouble render.GPUTrouble) string {
	if trouble.Fault == nil {
		return ""
	}
	return render.Clean(render.FaultText(trouble.Fault))
}

// stateFits tells whether a GPU of a class has a state that a reader chose: one
// that is held in parts or without a process is in use, and a lost one has a fault.
func (r *gpuRow) stateFits(state string) bool {
	switch state {
	case "":
		return true
	case "used":
		return r.Class == "used" || r.Class == "part" || r.Class == "idle"
	case "fault":
		return r.Class == "fault" || r.Class == "lost"
	}
	return r.Class == state
}

func (c *Console) gpusPage(v *visit) (answer, error) {
	nodes, err := v.listNodes()
	if err != nil {
		return answer{}, err
	}
	jobs, err := v.listJobs(false)
	if err != nil {
		return answer{}, err
	}
	query := v.URL.Query()
	page, _ := strconv.Atoi(query.Get("page"))
	data := gpusData{
		Choice: gpuChoice{Query: query.Get("q"), State: query.Get("state"), Page: max(page, 1)},
		Hidden: len(nodes.GetNodes()) == 0,
	}
	if !slices.Contains(gpuStates(), data.Choice.State) {
		data.Choice.State = ""
	}
	data.collect(nodes, jobs)
	return answer{page: "gpus", title: "GPUs", data: data}, nil
}

// collect goes over all GPUs once.
func (d *gpusData) collect(nodes *apiv1.ListNodesReply, jobs *apiv1.ListJobsReply) {
	now, text := nodes.GetNow(), jobText(nodes.GetNow())
	holders := map[uint64]*apiv1.JobInfo{}
	for _, job := range jobs.GetJobs() {
		if spec.JobState(job.GetState()).Active() {
			holders[job.GetUid()] = job
		}
	}
	words := strings.Fields(strings.ToLower(d.Choice.Query))
	counts := map[string]int64{}
	types := map[string]*gpuTypeLine{}
	var found []gpuRow
	for _, node := range nodes.GetNodes() {
		if text := gpusMissing(node); text != "" {
			d.Missing = append(d.Missing, missingLine{
				Node: render.Clean(node.GetName()),
				Link: "/node/" + node.GetName(),
				Text: render.Clean(text),
			})
		}
		indexes := map[string]string{}
		fits := map[string]bool{}
		for _, gpu := range render.AllGPUs(node) {
			trouble := render.TroubleOf(node, gpu, now)
			job := holders[gpu.GetJobUid()]
			row := newGPURow(node, gpu, job, trouble, text)
			indexes[gpu.GetUuid()] = row.Index
			line := types[gpu.GetType()]
			if line == nil {
				line = newGPUType(gpu)
				types[gpu.GetType()] = line
			}
			line.add(&row)
			counts[row.Class]++
			if !hasWords(row.words, words) {
				continue
			}
			fits[gpu.GetUuid()] = true
			if trouble.Idle != nil {
				d.Idle = append(d.Idle, newIdleLine(&row, gpu, job, trouble.Idle, text))
			}
			if row.stateFits(d.Choice.State) {
				found = append(found, row)
			}
		}
		d.addEvents(node, indexes, fits, words, now)
	}
	for _, line := range types {
		line.Bar = inThousandths(line.Used, line.All)
		d.Types = append(d.Types, *line)
	}
	slices.SortFunc(d.Types, func(a, b gpuTypeLine) int {
		return cmp.Or(cmp.Compare(b.All, a.All), cmp.Compare(a.Name, b.Name))
	})
	d.cutLists()
	d.count(counts)
	d.Found = len(found)
	d.From = min((d.Choice.Page-1)*gpusOnPage, len(found))
	d.To = min(d.From+gpusOnPage, len(found))
	d.Rows = found[d.From:d.To]
	if d.Choice.Page > 1 {
		d.Before = gpuChoice{d.Choice.Query, d.Choice.State, d.Choice.Page - 1}.gpusLink()
	}
	if d.To < len(found) {
		d.After = gpuChoice{d.Choice.Query, d.Choice.State, d.Choice.Page + 1}.gpusLink()
	}
	d.From = min(d.From+1, d.To)
}

// gpusMissing is what a node says that it lacks of its GPUs. It may lack other things
// as well, which its own page shows.
func gpusMissing(node *apiv1.NodeInfo) string {
	var out []string
	for part := range strings.SplitSeq(node.GetDegraded(), "; ") {
		word := strings.ToLower(part)
		if strings.Contains(word, "gpu") || strings.Contains(word, "gres") {
			out = append(out, part)
		}
	}
	return strings.Join(out, "; ")
}

// cutLists orders what is listed beside the table, the worst and newest first.
func (d *gpusData) cutLists() {
	slices.SortStableFunc(d.Idle, func(a, b idleLine) int { return cmp.Compare(a.since, b.since) })
	d.MoreIdle = max(len(d.Idle)-maxIdleGPUs, 0)
	d.Idle = d.Idle[:min(len(d.Idle), maxIdleGPUs)]
	slices.SortStableFunc(d.Events, func(a, b gpuEvent) int { return cmp.Compare(b.at, a.at) })
	d.Events = d.Events[:min(len(d.Events), maxGPUEvents)]
}

// count makes the figures and the tabs, which are about all GPUs that the reader
// may see, whatever the filter.
func (d *gpusData) count(counts map[string]int64) {
	all := int64(0)
	for _, n := range counts {
		all += n
	}
	sums := map[string]int64{"": all}
	for _, state := range gpuStates() {
		for class, n := range counts {
			if (&gpuRow{Class: class}).stateFits(state) {
				sums[state] += n
			}
		}
	}
	classes := map[string]string{"used": "running", "idle": "pending", "fault": "failed", "lost": "failed"}
	d.Figures = append(d.Figures, figure{Name: "GPUs", Value: formatNumber(all), Link: "/gpus"})
	d.Tabs = append(d.Tabs, tab{"All", gpuChoice{Query: d.Choice.Query}.gpusLink(), d.Choice.State == ""})
	for _, state := range gpuStates() {
		if n := sums[state]; n > 0 && state != "part" {
			d.Figures = append(d.Figures, figure{
				Name:  gpuStateName(state),
				Value: formatNumber(n),
				Link:  gpuChoice{State: state}.gpusLink(),
				Class: classes[state],
			})
		}
		d.Tabs = append(d.Tabs, tab{
			gpuStateName(state),
			gpuChoice{Query: d.Choice.Query, State: state}.gpusLink(),
			d.Choice.State == state,
		})
	}
}

// hasWords tells whether each word is in a text.
func hasWords(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

func newGPUType(gpu *apiv1.GpuInfo) *gpuTypeLine {
	name := cmp.Or(gpu.GetType(), gpu.GetModel(), "without a type")
	return &gpuTypeLine{
		Name: render.Clean(name),
		Link: gpuChoice{Query: strings.ToLower(name)}.gpusLink(),
	}
}

func (l *gpuTypeLine) add(row *gpuRow) {
	l.All++
	switch row.Class {
	case "used":
		l.Used++
	case "part":
		l.Used++
		l.Part++
	case "idle":
		l.Used++
		l.Idle++
	case "free":
		l.Free++
	case "fault":
		l.Fault++
	case "lost":
		l.Lost++
	default:
		l.Off++
	}
}

// newGPURow prepares a GPU as a row. job is nil where nobody holds it, or where
// the reader may not see who does.
func newGPURow(
	node *apiv1.NodeInfo,
	gpu *apiv1.GpuInfo,
	job *apiv1.JobInfo,
	trouble render.GPUTrouble,
	text *render.JobView,
) gpuRow {
	row := gpuRow{
		Key:      gpu.GetUuid(),
		Node:     render.Clean(node.GetName()),
		NodeLink: "/node/" + node.GetName(),
		Index:    gpuNumber(gpu),
		Class:    gpuClass(node, gpu, text.Now),
		Type:     render.Clean(gpu.GetType()),
		Model:    render.Clean(cmp.Or(gpu.GetModel(), gpu.GetType())),
		UUID:     render.Clean(gpu.GetUuid()),
		Parent:   render.Clean(gpu.GetParent()),
		Trouble:  troubleText(trouble),
	}
	if trouble.Lost() {
		row.Class = "lost"
	}
	row.State = gpuStateName(row.Class)
	if trouble.Idle != nil && row.Trouble == "" {
		row.State = render.FaultText(trouble.Idle)
	}
	if gpu.GetShares() > 0 && gpu.GetSharesUsed() > 0 {
		row.Share = formatNumber(gpu.GetSharesUsed()) + " of " + formatNumber(gpu.GetShares()) +
			" " + render.Clean(gpu.GetShare())
	}
	if id := gpu.GetJobId(); id != 0 {
		row.Job = strconv.FormatUint(uint64(id), 10)
		row.JobLink = "/job/" + row.Job
	}
	if job != nil {
		// A task of an array has the name that the queue shows.
		row.Job = text.ID(render.JobRow{JobInfo: job, Task: -1})
		row.JobName = render.Clean(job.GetSpec().GetName())
		row.User = render.Clean(job.GetUser())
	}
	row.words = strings.ToLower(strings.Join([]string{
		row.Node, row.Type, row.Model, row.UUID, row.Parent, row.Trouble, row.State, row.Job,
		row.JobName, row.User, render.Clean(job.GetSpec().GetAccount()),
		render.Clean(strings.Join(node.GetPartitions(), "\n")),
	}, "\n"))
	return row
}

// gpuNumber is a GPU's number on its node, or its UUID where it is lost and the number is
// not known.
func gpuNumber(gpu *apiv1.GpuInfo) string {
	return cmp.Or(render.GPUNumber(gpu), render.Clean(gpu.GetUuid()))
}

func newIdleLine(
	row *gpuRow,
	gpu *apiv1.GpuInfo,
	job *apiv1.JobInfo,
	idle *apiv1.GpuFault,
	text *render.JobView,
) idleLine {
	since := idle.GetAt() - idle.GetIdle()
	line := idleLine{
		Key:      "idle " + row.Key,
		Node:     row.Node,
		NodeLink: row.NodeLink,
		Index:    row.Index,
		JobLink:  row.JobLink,
		JobID:    row.Job,
		Since:    newMoment(since),
		For:      render.Span(text.Now - since),
		since:    since,
	}
	if job != nil {
		line.Known = true
		line.Job = newJobLine(job, text)
	}
	switch {
	case idle.GetCancel() > text.Now:
		line.Then = "cancelled in " + render.Span(idle.GetCancel()-text.Now) + " unless it is used"
	case idle.GetWarned():
		line.Then = "its user is warned"
	}
	return line
}

// addEvents lists what happened to the GPUs of a node that fit the filter. What
// happened to a GPU that is gone is shown where the words fit the node or the GPU.
func (d *gpusData) addEvents(
	node *apiv1.NodeInfo,
	indexes map[string]string,
	fits map[string]bool,
	words []string,
	now int64,
) {
	for _, fault := range node.GetGpuFaults() {
		kind := spec.GPUFaultKind(fault.GetKind())
		uuid := fault.GetUuid()
		_, here := indexes[uuid]
		gone := !here && hasWords(strings.ToLower(node.GetName()+"\n"+uuid), words)
		if kind == spec.GPUIdle || !fits[uuid] && !gone {
			continue
		}
		line := gpuEvent{
			At:       newMoment(fault.GetAt()),
			Node:     render.Clean(node.GetName()),
			NodeLink: "/node/" + node.GetName(),
			GPU:      cmp.Or(indexes[uuid], render.Clean(uuid)),
			Class:    eventClass(fault),
			What:     kind.String(),
			Text:     render.Clean(fault.GetText()),
			Count:    formatNumber(max(fault.GetCount(), 1)),
			at:       fault.GetAt(),
		}
		if kind == spec.GPUXID {
			line.What = "XID " + strconv.FormatInt(fault.GetXid(), 10) + " " +
				render.Clean(fault.GetClass())
		}
		if kind == spec.GPUMIGChanged {
			line.What = "MIG changed"
		}
		if kind == spec.GPUECC {
			line.What = "ECC"
		}
		if fault.GetJobId() != 0 {
			line.Job = strconv.FormatUint(fault.GetJobId(), 10)
			line.JobLink = "/job/" + line.Job
		}
		d.Events = append(d.Events, line)
	}
}

// eventClass is the class of the style sheet for something that happened to a GPU.
func eventClass(fault *apiv1.GpuFault) string {
	switch kind := spec.GPUFaultKind(fault.GetKind()); {
	case kind == spec.GPULost, kind == spec.GPUECC,
		kind == spec.GPUXID && fault.GetClass() == "fatal":
		return "bad"
	case kind == spec.GPUReturned:
		return "ok"
	case kind == spec.GPUMIGChanged:
		return "busy"
	}
	return "warn"
}
