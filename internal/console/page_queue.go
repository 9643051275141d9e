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

// mine is the filter for the reader's own jobs, whoever he is, so that a link
// with it means his.
const mine = "user:me"

// jobsOnPage is how many jobs a page of the queue has.
const jobsOnPage = 100

// queueData is what the page of the queue shows.
type queueData struct {
	Choice  queueChoice
	Mine    string // the link to the visitor's own jobs
	Figures []figure
	Tabs    []tab
	Groups  []group
	GroupBy []tab
	Heads   []head
	Rows    []jobLine
	Found   int
	From    int
	To      int
	Before  string // link to the page before; empty = there is none
	After   string
	Plan    *plan
}

// figure is a number with its name, and where it leads.
type figure struct {
	Name, Value, Link, Class string
}

// tab is a link of which one is chosen.
type tab struct {
	Name, Link string
	Chosen     bool
}

// head is the head of a column by which a reader may sort.
type head struct {
	Name, Link, Sorted, Class string
}

// jobLine is a job as a row.
type jobLine struct {
	Key                                          uint64
	ID, Link, Name, User, Account, Partition     string
	State, Class, Time, TimeTitle, Limit, Reason string
	Why, WhyTitle                                string
	Nodes, CPUs, GPUs, Priority                  string
}

// group is the sum of the jobs that have something in common.
type group struct {
	Name, Link                        string
	Running, Pending, GPUs, GPUsAsked int64
	Oldest                            string
	oldest                            int64
}

// queueChoice is what a reader chose, as the address of the page has it.
type queueChoice struct {
	Query string // as typed
	Sort  string // a column, with - before it for the other direction
	Group string
	Page  int
}

func readChoice(query url.Values) queueChoice {
	page, _ := strconv.Atoi(query.Get("page"))
	return queueChoice{
		Query: query.Get("q"),
		Sort:  query.Get("sort"),
		Group: query.Get("group"),
		Page:  max(page, 1),
	}
}

// queueLink is the address of the queue with this choice.
func (c queueChoice) queueLink() string {
	query := url.Values{}
	for key, value := range map[string]string{"q": c.Query, "sort": c.Sort, "group": c.Group} {
		if value != "" {
			query.Set(key, value)
		}
	}
	if c.Page > 1 {
		query.Set("page", strconv.Itoa(c.Page))
	}
	if len(query) == 0 {
		return "/queue"
	}
	return "/queue?" + query.Encode()
}

// with is the link to the same choice but for one thing.
func (c queueChoice) with(change func(c *queueChoice)) string {
	c.Page = 1
	change(&c)
	return c.queueLink()
}

// column is a column of the queue: how its rows are ordered.
type column struct {
	key, name, class string
	order            func(a, b *apiv1.JobInfo) int
}

// columns are those of the queue. Numbers begin with the largest.
func columns(now int64) []column {
	by := func(get func(j *apiv1.JobInfo) string) func(a, b *apiv1.JobInfo) int {
		return func(a, b *apiv1.JobInfo) int { return cmp.Compare(get(a), get(b)) }
	}
	most := func(get func(j *apiv1.JobInfo) int64) func(a, b *apiv1.JobInfo) int {
		return func(a, b *apiv1.JobInfo) int { return cmp.Compare(get(b), get(a)) }
	}
	return []column{
		{
			"id",
			"Job",
			"",
			func(a, b *apiv1.JobInfo) int { return cmp.Compare(a.GetJobId(), b.GetJobId()) },
		},
		{"name", "Name", "", by(func(j *apiv1.JobInfo) string { return j.GetSpec().GetName() })},
		{"user", "User", "", by((*apiv1.JobInfo).GetUser)},
		{
			"account",
			"Account",
			"wide",
			by(func(j *apiv1.JobInfo) string { return j.GetSpec().GetAccount() }),
		},
		{"partition", "Partition", "wide", by((*apiv1.JobInfo).GetPartition)},
		{
			"state",
			"State",
			"",
			by(func(j *apiv1.JobInfo) string { long, _ := render.StateNames(j); return long }),
		},
		{"time", "Time", "n", most(func(j *apiv1.JobInfo) int64 { return render.Spent(j, now) })},
		{"limit", "Limit", "n wide", most((*apiv1.JobInfo).GetTimeLimit)},
		{
			"nodes",
			"Nodes",
			"n wide",
			most(func(j *apiv1.JobInfo) int64 { return int64(j.GetNumNodes()) }),
		},
		{
			"cpus",
			"CPUs",
			"n wide",
			most(func(j *apiv1.JobInfo) int64 { return int64(j.GetNumCpus()) }),
		},
		{"gpus", "GPUs", "n", most(render.GPUs)},
		{
			"priority",
			"Priority",
			"n wide",
			most(func(j *apiv1.JobInfo) int64 { return int64(j.GetPriority()) }),
		},
	}
}

func (c *Console) queuePage(v *visit) (answer, error) {
	choice := readChoice(v.URL.Query())
	wanted := render.ParseJobFilter(strings.ReplaceAll(choice.Query, mine, "user:"+
		render.QuotedTerm(userName(v.id))))
	reply, err := v.listJobs(wanted.Over)
	if err != nil {
		return answer{}, err
	}
	now := reply.GetNow()
	found := make([]*apiv1.JobInfo, 0, len(reply.GetJobs()))
	text := jobText(now)
	for _, job := range reply.GetJobs() {
		if wanted.Matches(job, text) {
			found = append(found, job)
		}
	}
	data := queueData{
		Choice:  choice,
		Found:   len(found),
		Figures: queueFigures(reply.GetJobs()),
		Tabs:    queueTabs(choice),
	}
	for _, by := range groupings() {
		data.GroupBy = append(
			data.GroupBy,
			tab{
				by.name,
				choice.with(func(c *queueChoice) { c.Group = by.key }),
				choice.Group == by.key,
			},
		)
	}
	data.sort(found, choice, now)
	if choice.Group != "" {
		data.Groups = grouped(found, choice, now)
		return answer{page: "queue", title: "Queue", data: data}, nil
	}
	data.From = min((choice.Page-1)*jobsOnPage, len(found))
	data.To = min(data.From+jobsOnPage, len(found))
	for _, job := range found[data.From:data.To] {
		data.Rows = append(data.Rows, newJobLine(job, text))
	}
	data.From++
	if choice.Page > 1 {
		data.Before = choice.with(func(c *queueChoice) { c.Page = choice.Page - 1 })
	}
	if data.To < len(found) {
		data.After = choice.with(func(c *queueChoice) { c.Page = choice.Page + 1 })
	}
	data.Plan = planOf(found, text)
	return answer{page: "queue", title: "Queue", data: data}, nil
}

// sort orders jobs as the reader chose, and makes the heads of the columns.
func (d *queueData) sort(found []*apiv1.JobInfo, choice queueChoice, now int64) {
	order := render.QueueOrder
	key, reversed := strings.CutPrefix(choice.Sort, "-")
	for _, col := range columns(now) {
		h := head{Name: col.name, Class: col.class, Sorted: "none"}
		next := col.key
		if col.key == key {
			order = func(a, b *apiv1.JobInfo) int { return cmp.Or(col.order(a, b), cmp.Compare(a.GetJobId(), b.GetJobId())) }
			h.Sorted = "ascending"
			if reversed {
				h.Sorted = "descending"
				next = ""
			} else {
				next = "-" + key
			}
		}
		h.Link = choice.with(func(c *queueChoice) { c.Sort = next })
		d.Heads = append(d.Heads, h)
	}
	slices.SortStableFunc(found, order)
	if reversed {
		slices.Reverse(found)
	}
}

// newJobLine prepares one job as a row.
func newJobLine(job *apiv1.JobInfo, text *render.JobView) jobLine {
	state, _ := render.StateNames(job)
	line := jobLine{
		Key:  job.GetUid(),
		ID:   text.ID(render.JobRow{JobInfo: job, Task: -1}),
		Link: jobLink(job),
		Name: render.Clean(job.GetSpec().GetName()),
		User: render.Clean(job.GetUser()),
		Account: render.Clean(
			job.GetSpec().GetAccount(),
		),
		Partition: strings.ReplaceAll(render.Clean(job.GetPartition()), ",", ", "),
		State:     strings.ToLower(state),
		Class:     stateClass(job),
		Time: render.ShortSpan(
			render.Spent(job, text.Now),
		),
		Limit: limitText(job.GetTimeLimit()),
		Nodes: formatNumber(job.GetNumNodes()),
		CPUs:  formatNumber(job.GetNumCpus()),
	}
	if n := render.GPUs(job); n > 0 {
		line.GPUs = formatNumber(n)
	}
	line.TimeTitle = "ran"
	if spec.JobState(job.GetState()) == spec.Pending {
		line.TimeTitle = "waiting"
		line.Priority = formatNumber(job.GetPriority())
	}
	line.Reason, line.Why, line.WhyTitle = render.WhyLine(job, text)
	return line
}

func jobLink(job *apiv1.JobInfo) string {
	return "/job/" + strconv.FormatUint(uint64(job.GetJobId()), 10)
}

// queueFigures are the numbers above the queue.
func queueFigures(jobs []*apiv1.JobInfo) []figure {
	var running, pending, held, gpusHeld, gpusAsked int64
	for _, job := range jobs {
		switch spec.JobState(job.GetState()) {
		case spec.Running, spec.Suspended:
			running += countTasks(job)
			gpusHeld += render.GPUs(job)
		case spec.Pending:
			pending += countTasks(job)
			gpusAsked += render.GPUs(job) * countTasks(job)
			if job.GetHold() != 0 {
				held += countTasks(job)
			}
		}
	}
	return []figure{
		{
			"running",
			formatNumber(running),
			"/queue?q=state%3Arunning",
			"running",
		}, {"pending", formatNumber(pending), "/queue?q=state%3Apending", "pending"},
		{
			"held",
			formatNumber(held),
			"/queue?q=is%3Aheld",
			"",
		}, {"GPUs in use", formatNumber(gpusHeld), "/nodes", ""}, {"GPUs asked for", formatNumber(gpusAsked), "/queue?q=state%3Apending&sort=gpus", ""},
	}
}

// countTasks is for how many jobs a record stands: a pending array has one record.
func countTasks(job *apiv1.JobInfo) int64 {
	n := int64(0)
	for _, taskRange := range job.GetArrayTasks() {
		n += (taskRange.GetLast()-taskRange.GetFirst())/max(taskRange.GetStep(), 1) + 1
	}
	return max(n, 1)
}

func queueTabs(choice queueChoice) []tab {
	list := []tab{
		{Name: "All", Link: ""},
		{Name: "Mine", Link: mine},
		{Name: "Pending", Link: "state:pending"},
		{Name: "Running", Link: "state:running"},
		{Name: "Ended", Link: "is:over"},
	}
	for i := range list {
		query := list[i].Link
		list[i].Chosen = choice.Query == query
		list[i].Link = choice.with(func(c *queueChoice) { c.Query = query })
	}
	return list
}

// grouping is something that jobs can have in common.
type grouping struct {
	key, name string
	of        func(j *apiv1.JobInfo) string
}

func groupings() []grouping {
	return []grouping{
		{"", "none", nil},
		{"user", "user", (*apiv1.JobInfo).GetUser},
		{"account", "account", func(j *apiv1.JobInfo) string { return j.GetSpec().GetAccount() }},
		{"partition", "partition", (*apiv1.JobInfo).GetPartition},
		{"reason", "reason", func(job *apiv1.JobInfo) string {
			if spec.JobState(job.GetState()) != spec.Pending {
				return ""
			}
			return cmp.Or(job.GetReason().GetCode(), "None")
		}},
	}
}

// maxGroups bounds a page of groups: the largest come first.
const maxGroups = 500

// grouped sums jobs up by what the reader chose.
func grouped(jobs []*apiv1.JobInfo, choice queueChoice, now int64) []group {
	at := slices.IndexFunc(groupings(), func(g grouping) bool { return g.key == choice.Group })
	if at <= 0 {
		return nil
	}
	by := groupings()[at]
	sums := map[string]*group{}
	for _, job := range jobs {
		name := by.of(job)
		if name == "" && by.key == "reason" {
			continue
		}
		g := sums[name]
		if g == nil {
			g = &group{
				Name: render.Clean(cmp.Or(name, "(none)")),
				Link: choice.with(func(c *queueChoice) {
					c.Group = ""
					c.Query = strings.TrimSpace(
						c.Query + " " + by.key + ":" + render.QuotedTerm(name),
					)
				}),
			}
			sums[name] = g
		}
		g.add(job)
	}
	groups := make([]group, 0, len(sums))
	for _, g := range sums {
		if g.oldest != 0 {
			g.Oldest = render.ShortSpan(now - g.oldest)
		}
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b group) int {
		return cmp.Or(
			cmp.Compare(b.GPUs+b.GPUsAsked, a.GPUs+a.GPUsAsked),
			cmp.Compare(b.Running+b.Pending, a.Running+a.Pending),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return groups[:min(len(groups), maxGroups)]
}

func (g *group) add(job *apiv1.JobInfo) {
	switch spec.JobState(job.GetState()) {
	case spec.Pending:
		g.Pending += countTasks(job)
		g.GPUsAsked += render.GPUs(job) * countTasks(job)
		if g.oldest == 0 || job.GetSubmit() < g.oldest {
			g.oldest = job.GetSubmit()
		}
	case spec.Running, spec.Suspended:
		g.Running += countTasks(job)
		g.GPUs += render.GPUs(job)
	}
}
