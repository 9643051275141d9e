package top

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// page is what fills the screen.
type page uint8

const (
	queuePage page = iota
	nodesPage
	gpusPage
)

// effect is what a key asks for beyond the screen. The zero value asks nothing.
type effect struct {
	quit   bool
	fetch  bool   // the lists, now
	open   string // a job: its record and the figures of its GPUs
	why    string // a job
	verb   string // cancel, hold, release or requeue …
	target string // … this job
	travel bool   // to the moment that is wanted
}

// model is the state of the screen.
type model struct {
	cluster       string
	user          string
	width, height int
	env           *tool.Env
	colour        bool
	bars          []rune

	jobs  *apiv1.ListJobsReply
	nodes *apiv1.ListNodesReply
	// moment is that of the lists, and wanted the one that keys ask for; nil is the present.
	moment, wanted *apiv1.Moment
	fault          string // why the lists are old; empty = they are not

	page     page
	cursor   map[page]int
	first    map[page]int // row at the top
	filter   string
	typing   bool
	dating   bool   // a moment is being typed
	date     string // what was typed of it
	mine     bool
	column   map[page]int
	reversed map[page]bool
	paused   bool
	help     bool

	asking  effect // waits for y
	message string

	detail *detail // over the list
}

// detail is a text about one job, with its own place.
type detail struct {
	job   string
	why   bool
	lines []string
	first int
}

func newModel(env *tool.Env, user string) *model {
	return &model{
		user:     user,
		width:    80,
		height:   24,
		env:      env,
		cursor:   map[page]int{},
		first:    map[page]int{},
		column:   map[page]int{},
		reversed: map[page]bool{},
		bars: []rune(
			render.BlockLevels,
		),
		jobs:  &apiv1.ListJobsReply{},
		nodes: &apiv1.ListNodesReply{},
	}
}

// text writes jobs as the other commands do.
func (m *model) text() *render.JobView {
	view := &render.JobView{Env: m.env}
	view.Clock = render.NewClock(m.env)
	view.Now = m.jobs.GetNow()
	return view
}

// shownJobs are the jobs of the queue that fit the filter, in their order.
func (m *model) shownJobs() []*apiv1.JobInfo {
	text, wanted := m.text(), render.ParseJobFilter(m.filter)
	var jobs []*apiv1.JobInfo
	for _, job := range m.jobs.GetJobs() {
		if m.mine && job.GetUser() != m.user {
			continue
		}
		if spec.JobState(job.GetState()).Terminal() && !job.GetCompleting() && !wanted.Over {
			continue
		}
		if wanted.Matches(job, text) {
			jobs = append(jobs, job)
		}
	}
	slices.SortStableFunc(jobs, m.jobOrder())
	if m.reversed[queuePage] {
		slices.Reverse(jobs)
	}
	return jobs
}

func (m *model) jobOrder() func(a, b *apiv1.JobInfo) int {
	now := m.jobs.GetNow()
	then := func(order func(a, b *apiv1.JobInfo) int) func(a, b *apiv1.JobInfo) int {
		return func(a, b *apiv1.JobInfo) int { return cmp.Or(order(a, b), cmp.Compare(a.GetJobId(), b.GetJobId())) }
	}
	switch jobSorts()[m.column[queuePage]] {
	case "job":
		return func(a, b *apiv1.JobInfo) int { return cmp.Compare(a.GetJobId(), b.GetJobId()) }
	case "user":
		return then(func(a, b *apiv1.JobInfo) int { return cmp.Compare(a.GetUser(), b.GetUser()) })
	case "time":
		return then(
			func(a, b *apiv1.JobInfo) int { return cmp.Compare(render.Spent(b, now), render.Spent(a, now)) },
		)
	case "gpus":
		return then(
			func(a, b *apiv1.JobInfo) int { return cmp.Compare(render.GPUs(b), render.GPUs(a)) },
		)
	case "name":
		return then(
			func(a, b *apiv1.JobInfo) int { return cmp.Compare(a.GetSpec().GetName(), b.GetSpec().GetName()) },
		)
	}
	return render.QueueOrder
}

// jobSorts and nodeSorts are what s goes through.
func jobSorts() []string { return []string{"queue", "job", "user", "name", "time", "gpus"} }

func nodeSorts() []string { return []string{"name", "state", "gpus", "cpus"} }

// shownNodes are the nodes that have each word of the filter.
func (m *model) shownNodes() []*apiv1.NodeInfo {
	words := strings.Fields(strings.ToLower(m.filter))
	var nodes []*apiv1.NodeInfo
	for _, node := range m.nodes.GetNodes() {
		all := strings.ToLower(
			strings.Join(
				append(
					[]string{node.GetName(), node.GetState(), node.GetReason()},
					node.GetPartitions()...),
				"\n",
			),
		)
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(all, w) }) {
			nodes = append(nodes, node)
		}
	}
	slices.SortStableFunc(nodes, m.nodeOrder())
	if m.reversed[m.page] {
		slices.Reverse(nodes)
	}
	return nodes
}

func (m *model) nodeOrder() func(a, b *apiv1.NodeInfo) int {
	switch nodeSorts()[m.column[m.page]] {
	case "state":
		return func(a, b *apiv1.NodeInfo) int { return cmp.Compare(a.GetState(), b.GetState()) }
	case "gpus":
		return func(a, b *apiv1.NodeInfo) int { return cmp.Compare(heldGPUs(b), heldGPUs(a)) }
	case "cpus":
		return func(a, b *apiv1.NodeInfo) int { return cmp.Compare(b.GetCpusAlloc(), a.GetCpusAlloc()) }
	}
	return func(*apiv1.NodeInfo, *apiv1.NodeInfo) int { return 0 } // as the controller lists them
}

func heldGPUs(node *apiv1.NodeInfo) (held int) {
	for _, gpu := range node.GetGpus() {
		if gpu.GetAllocated() {
			held++
		}
	}
	return held
}

// gpuRow is a GPU with its node.
type gpuRow struct {
	node *apiv1.NodeInfo
	gpu  *apiv1.GpuInfo
}

func (m *model) shownGPUs() []gpuRow {
	var rows []gpuRow
	for _, node := range m.shownNodes() {
		for _, gpu := range render.AllGPUs(node) {
			rows = append(rows, gpuRow{node, gpu})
		}
	}
	return rows
}

// countRows is how many rows the page has.
func (m *model) countRows() int {
	switch m.page {
	case nodesPage:
		return len(m.shownNodes())
	case gpusPage:
		return len(m.shownGPUs())
	case queuePage:
	}
	return len(m.shownJobs())
}

// chosen is the job on which the cursor is, as people name it, and its record;
// empty where there is none.
func (m *model) chosen() (string, *apiv1.JobInfo) {
	switch m.page {
	case queuePage:
		jobs := m.shownJobs()
		if at := m.cursor[queuePage]; at < len(jobs) {
			return nameOf(jobs[at]), jobs[at]
		}
	case gpusPage:
		rows := m.shownGPUs()
		if at := m.cursor[gpusPage]; at < len(rows) && rows[at].gpu.GetJobId() != 0 {
			return strconv.FormatUint(
					uint64(rows[at].gpu.GetJobId()),
					10,
				), m.findJob(
					rows[at].gpu.GetJobId(),
				)
		}
	case nodesPage:
	}
	return "", nil
}

// nameOf names the record of a job to the controller. One that stands for
// several tasks is named as the array.
func nameOf(job *apiv1.JobInfo) string {
	id := job.GetJobId()
	if job.GetArrayJobId() != 0 && len(job.GetArrayTasks()) > 0 {
		id = job.GetArrayJobId()
	}
	return strconv.FormatUint(uint64(id), 10)
}

func (m *model) findJob(id uint32) *apiv1.JobInfo {
	for _, job := range m.jobs.GetJobs() {
		if job.GetJobId() == id {
			return job
		}
	}
	return nil
}

// handleKey does what a key says, by the name that bubbletea gives it.
func (m *model) handleKey(key string) effect {
	m.message = ""
	switch {
	case m.asking.verb != "":
		asked := m.asking
		m.asking = effect{}
		if key == "y" || key == "Y" {
			return asked
		}
		m.message = "nothing was done"
		return effect{}
	case m.typing:
		return m.typed(key)
	case m.dating:
		return m.typeDate(key)
	case m.help:
		m.help = false
		return effect{}
	case m.detail != nil:
		return m.detailKey(key)
	}
	return m.listKey(key)
}

// typed edits the filter.
func (m *model) typed(key string) effect {
	switch key {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	default:
		m.filter = edit(m.filter, key)
	}
	m.cursor[m.page], m.first[m.page] = 0, 0
	return effect{}
}

// edit is a text that is being typed, after one more key.
func edit(text, key string) string {
	switch {
	case key == "backspace":
		runes := []rune(text)
		return string(runes[:max(len(runes)-1, 0)])
	case key == "ctrl+u":
		return ""
	case len([]rune(key)) == 1:
		return text + key
	}
	return text
}

// typeDate edits the moment, and goes there with Enter.
func (m *model) typeDate(key string) effect {
	switch key {
	case "enter":
		m.dating = false
		text := strings.TrimSpace(m.date)
		if text == "" {
			return effect{}
		}
		moment, err := m.env.ParseMoment(text)
		if err != nil {
			m.message = err.Error()
			return effect{}
		}
		return m.travelTo(moment)
	case "esc":
		m.dating = false
	default:
		m.date = edit(m.date, key)
	}
	return effect{}
}

// travelTo asks for the lists of a moment; one that is not over is the present.
func (m *model) travelTo(moment *apiv1.Moment) effect {
	if moment.GetAt() >= m.env.Now().UnixNano() {
		moment = nil
	}
	if moment == nil && m.wanted == nil && m.moment == nil {
		m.message = "this is the present"
		return effect{}
	}
	m.wanted = moment
	return effect{travel: true}
}

// stepOf is how far a key goes in time; 0 if it does not.
func stepOf(key string) spec.Span {
	switch key {
	case "[":
		return -spec.Minute
	case "]":
		return spec.Minute
	case "{":
		return -spec.Hour
	case "}":
		return spec.Hour
	}
	return 0
}

// step goes on from the moment that is wanted: several keys in a row add up, whether or not
// the lists have come.
func (m *model) step(by spec.Span) effect {
	from := m.jobs.GetNow()
	switch {
	case m.wanted.GetAt() != 0:
		from = m.wanted.GetAt()
	case m.wanted == nil:
		from = m.env.Now().UnixNano()
	}
	return m.travelTo(&apiv1.Moment{At: max(from+int64(by), 1)})
}

func (m *model) listKey(key string) effect {
	if m.moveKey(key) {
		return effect{}
	}
	if by := stepOf(key); by != 0 {
		return m.step(by)
	}
	id, job := m.chosen()
	switch key {
	case "q", "ctrl+c":
		return effect{quit: true}
	case "1", "2", "3":
		m.page = page(key[0] - '1')
	case "tab":
		m.page = (m.page + 1) % 3
	case "/":
		m.typing = true
	case "esc":
		m.filter, m.mine = "", false
	case "u":
		m.mine = !m.mine
	case "s":
		sorts := len(jobSorts())
		if m.page != queuePage {
			sorts = len(nodeSorts())
		}
		m.column[m.page] = (m.column[m.page] + 1) % sorts
	case "S":
		m.reversed[m.page] = !m.reversed[m.page]
	case "p":
		m.paused = !m.paused
	case "t":
		m.dating, m.date = true, ""
	case "n":
		return m.travelTo(nil)
	case "r":
		return effect{fetch: true}
	case "?":
		m.help = true
	case "enter":
		if m.page == nodesPage {
			m.openNode()
		} else if id != "" {
			return effect{open: id}
		}
	case "w":
		if id != "" {
			return effect{why: id}
		}
	case "c", "h":
		m.ask(key, id, job)
	}
	return effect{}
}

// openNode shows the GPUs of the node on which the cursor is.
func (m *model) openNode() {
	nodes := m.shownNodes()
	if at := m.cursor[nodesPage]; at < len(nodes) {
		m.filter, m.page = nodes[at].GetName(), gpusPage
		m.cursor[gpusPage], m.first[gpusPage] = 0, 0
	}
}

// pastStays answers who wants to change something that is over.
const pastStays = "the past cannot be changed: n goes to the present"

// ask asks before something is changed.
func (m *model) ask(key, id string, job *apiv1.JobInfo) {
	switch {
	case m.moment != nil:
		m.message = pastStays
	case id == "" || job == nil:
		m.message = "no job is chosen"
	case key == "c":
		m.asking = effect{verb: "cancel", target: id}
	case spec.JobState(job.GetState()) != spec.Pending:
		m.message = "only jobs that wait can be held"
	case job.GetHold() != 0:
		m.asking = effect{verb: "release", target: id}
	default:
		m.asking = effect{verb: "hold", target: id}
	}
}

// moveKey moves the cursor; false if the key is not for that.
func (m *model) moveKey(key string) bool {
	at := m.cursor[m.page]
	all := m.countRows()
	rows := m.visibleRows()
	switch key {
	case "down", "j":
		at++
	case "up", "k":
		at--
	case "pgdown", "ctrl+f", " ":
		at += rows
	case "pgup", "ctrl+b":
		at -= rows
	case "home", "g":
		at = 0
	case "end", "G":
		at = all
	default:
		return false
	}
	m.cursor[m.page] = max(min(at, all-1), 0)
	return true
}

// detailKey moves within a text, or leaves it.
func (m *model) detailKey(key string) effect {
	d, rows := m.detail, m.height-3
	last := max(len(d.lines)-rows, 0)
	switch key {
	case "q", "esc", "enter", "left":
		m.detail = nil
	case "ctrl+c":
		return effect{quit: true}
	case "down", "j":
		d.first = min(d.first+1, last)
	case "up", "k":
		d.first = max(d.first-1, 0)
	case "pgdown", " ":
		d.first = min(d.first+rows, last)
	case "pgup":
		d.first = max(d.first-rows, 0)
	case "w":
		return effect{why: d.job}
	case "r":
		if d.why {
			return effect{why: d.job}
		}
		return effect{open: d.job}
	case "c":
		if m.moment != nil {
			m.message = pastStays
		} else {
			m.asking = effect{verb: "cancel", target: d.job}
		}
	}
	return effect{}
}

// settleCursor keeps the cursor on a row, and the row on the screen.
func (m *model) settleCursor() {
	at := max(min(m.cursor[m.page], m.countRows()-1), 0)
	first := m.first[m.page]
	first = max(min(first, at), at-m.visibleRows()+1)
	m.cursor[m.page], m.first[m.page] = at, max(first, 0)
}

// visibleRows is how many rows of a list fit: the screen without two lines above, the
// heads and the line below.
func (m *model) visibleRows() int { return max(m.height-4, 1) }
