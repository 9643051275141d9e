package acct

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
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

func Report() *tool.Command {
	return &tool.Command{
		Name: "report", Mixed: true,
		Summary: "report how efficiently a job, a user, an account or the site used its resources, with advice",
		Usage:   []string{"[OPTIONS] JOB", "[OPTIONS] user [NAME]", "[OPTIONS] account NAME", "[OPTIONS] site", "[OPTIONS] waste", "[OPTIONS] idle", "[OPTIONS] budget", "[OPTIONS] chargeback", "[OPTIONS] namespaces", "[OPTIONS] namespace NAME", "[OPTIONS] fairshare", "[OPTIONS] findings [USER]"},
		About: `The report of a job shows CPU, memory and GPUs per node, energy, cost, and why the job waited.
Advice is based on the newest 20 runs of the same name by the same user, and states how many there were; the
estimated saving is the wait of other runs that requested no more, if there are at least ten of them. Values
that were not measured are reported as such, never as zero. CPU and memory over time are sampled every
JobAcctGatherFrequency, also for running jobs.

waste lists runs whose peak memory stayed below a part of what they held, on every node. Do not compute that from
sacct's text: MaxRSS stands on step rows and ReqMem on the job's, in units of their own (K, M, G), so that
awk '$3 != 0 && ($3/$2) < 0.5' compares 900K with 1G as 900 with 1.

findings lists what wastes most with the line that would fix it; muster findings --help says how it is counted.

idle lists the users who held GPUs longest without using them: without a process, or with an idle one. Running jobs count up to now.

fairshare shows the share, the (decayed) usage and the factor of each association by day.

namespaces shows what jobs and pods of Kubernetes held, by namespace and account; namespace NAME shows each pod of one. Kind is job,
pod (scheduled by Muster) or hold (scheduled by Kubernetes beside jobs).

The lines of chargeback and namespaces add up exactly to the total: amounts are rounded by the largest-remainder method.`,
		Options: []opt.Option{
			{Long: "window", Short: "w", Arg: "1d|7d|30d", Help: "length of the window, ending now (default: 30d)"},
			{Long: "start", Short: "S", Arg: "TIME", Help: "start of the window, instead of --window"},
			{Long: "end", Short: "E", Arg: "TIME", Help: "end of the window (default: now)"},
			{Long: "memory-below", Arg: "PERCENT", Help: "waste: share of the request below which a peak counts as waste (default: 50%)"},
			{Long: "lines", Short: "l", Arg: "N", Help: "maximum number of lines of a table (default: 20)"},
			{Long: "accounts", Short: "A", Arg: "NAME,...", Help: "waste, idle, budget, chargeback, fairshare and findings: restrict to these accounts"},
			{Long: "users", Short: "u", Arg: "NAME,...", Help: "waste, idle, chargeback, fairshare and findings: restrict to these users"},
			{Long: "clusters", Short: "M", Arg: "NAME", Help: "cluster to show: this one, or an imported one"},
			{Long: "sql", Help: "findings: print the question for muster sql behind each"},
			{Long: "brief", Help: "for a job: print only state, run time, use of CPUs, memory and GPUs, and one line of advice, as in the mail at its end"},
			{Long: "json", Help: "print JSON"},
			{Long: "yaml", Help: "print YAML"},
			{Long: "html", Help: "print an HTML page that loads nothing else; for a job it has a timeline, charts and events"},
			{Long: "csv", Help: "waste, idle, budget, chargeback, namespaces, fairshare and findings: print CSV"},
			{Long: "mail", Arg: "ADDRESS,...", Help: "mail the report as text and HTML instead of printing it; reports.mail in muster.yaml does so on a schedule"},
			{Long: "from", Arg: "ADDRESS", Help: "sender of the mail (default: muster@HOST)"},
			{Long: "smtp", Arg: "HOST:PORT", Help: "mail server, used with STARTTLS if it offers it, with TLS at port 465 (default: sendmail)"},
			{Long: "smtp-user", Arg: "NAME", Help: "user name for the mail server (AUTH PLAIN or LOGIN); requires TLS"},
			{Long: "smtp-password-file", Arg: "FILE", Help: "file with the password of --smtp-user, mode 0600"},
		},
		Example: []tool.Example{
			{Line: "muster report 22", What: "shows how well job 22 used what it held"},
			{Line: "muster report 22 --html > job22.html", What: "writes a page that can be sent to somebody"},
			{Line: "muster report user alice --window 30d --mail alice@example.org", What: "mails a month's report"},
			{Line: "muster report waste --memory-below 50%", What: "lists the runs that held twice the memory that they needed, or more"},
			{Line: "muster report idle -S 2026-10-01 -E 2026-11-01 -l 20", What: "lists the 20 users that wasted most GPU time in October"},
			{Line: "muster report namespace serve --window 7d", What: "lists what each pod of namespace serve held in a week"},
			{Line: "muster report chargeback -S 2026-10-01 -E 2026-11-01 --csv", What: "writes October's bill"},
		},
		Run: runReport,
	}
}

// reporting is one report being made.
type reporting struct {
	*tool.Call
	query apiv1.ReportQuery
	tree  tree.Object
	page  page
	table *apiv1.ReportReply // what --csv prints
	brief *page              // what --brief prints
}

func runReport(call *tool.Call) error {
	r := &reporting{Call: call}
	if err := r.readWindow("30d"); err != nil {
		return err
	}
	what := ""
	if len(call.Operands) > 0 {
		what = call.Operands[0]
	}
	takes := map[string][2]int{
		"user":       {0, 1},
		"account":    {1, 1},
		"site":       {},
		"waste":      {},
		"idle":       {},
		"budget":     {},
		"chargeback": {},
		"namespaces": {},
		"namespace":  {1, 1},
		"fairshare":  {},
		"findings":   {0, 1},
	}
	bounds, known := takes[what]
	names := len(call.Operands) - 1
	fits := bounds[0] <= names && names <= bounds[1]
	if !known {
		fits = names == 0 && tool.ValidJob(what)
	}
	if !fits {
		return &opt.UsageError{
			Command: "muster report",
			Text:    "name one job (12 or 36_7), or user [NAME], account NAME, site, waste, idle, budget, chargeback, namespaces, namespace NAME, fairshare or findings [USER]",
		}
	}
	var err error
	switch what {
	case "user":
		name := call.UserName(call.UID)
		if len(call.Operands) > 1 {
			name = call.Operands[1]
		}
		err = r.reportUser(name)
	case "account":
		err = r.reportAccount(call.Operands[1])
	case "site":
		err = r.reportSite()
	case "waste":
		err = r.reportWaste()
	case "idle":
		err = r.plainTable(
			"idle",
			"GPUs held and not used, "+r.span(),
			1,
			"Nobody held a GPU without using it.",
		)
	case "budget":
		err = r.reportBudget()
	case "chargeback":
		err = r.plainTable("chargeback", "Bill, "+r.span(), 2, "Nothing ran.")
	case "namespaces":
		err = r.plainTable("namespaces", "Jobs and pods by namespace, "+r.span(), 4, "Nothing ran.")
	case "namespace":
		name := call.Operands[1]
		r.query.By = name
		err = r.plainTable("namespaces", "Pods of namespace "+name+", "+r.span(), 4, "No pod of namespace "+name+" ran.")
	case "fairshare":
		err = r.plainTable(
			"fairshare",
			"Fair share by day (UTC), "+r.span(),
			3,
			"Nothing was noted: the controller notes shares once an hour while jobs run (PriorityType=priority/multifactor).",
		)
	case "findings":
		user := ""
		if len(call.Operands) > 1 {
			user = call.Operands[1]
		}
		err = r.reportFindings(user)
	default:
		err = r.reportJob(what)
	}
	if err != nil {
		return err
	}
	return r.printReport()
}

// readWindow reads the options about time and lines; usual is the window's length
// when none is given.
func (r *reporting) readWindow(usual string) error {
	now := r.Now()
	r.query.Zone = tool.ZoneName(r.Env)
	span, ok := tool.ParseWindow(cmp.Or(r.Opts.Text("window"), usual))
	if !ok {
		return r.Errorf(
			"--window=%s: expected a number with m, h, d or w, such as 7d",
			r.Opts.Text("window"),
		)
	}
	r.query.Start, r.query.End = now.UnixNano()-span, now.UnixNano()
	for name, at := range map[string]*int64{"start": &r.query.Start, "end": &r.query.End} {
		if text := r.Opts.Text(name); text != "" {
			seconds, err := format.ParseTime(
				text,
				format.Moment{Now: now.Unix(), Loc: r.Loc, Past: true},
			)
			if err != nil {
				return r.Errorf("--%s=%s: %s", name, text, tool.BadTimeText(text))
			}
			*at = max(seconds*tool.Second, 1)
		}
	}
	if r.query.End <= r.query.Start {
		return r.Errorf("the window ends before it begins")
	}
	if text := r.Opts.Text("lines"); text != "" {
		n, ok := tool.PositiveNumber(text)
		if !ok || n == 0 || n > 10_000 {
			return r.Errorf("--lines=%s: expected a number up to 10000", text)
		}
		r.query.Top = uint32(n)
	}
	r.query.Accounts, r.query.Users = tool.SplitList(
		r.Opts.Text("accounts"),
	), tool.SplitList(
		r.Opts.Text("users"),
	)
	return nil
}

// ask runs a report of the service.
func (r *reporting) runReport(
	name, by string,
	change func(q *apiv1.ReportQuery),
) (*apiv1.ReportReply, error) {
	query := &apiv1.ReportQuery{
		Report:   name,
		By:       by,
		Start:    r.query.GetStart(),
		End:      r.query.GetEnd(),
		Zone:     r.query.GetZone(),
		Top:      r.query.GetTop(),
		Accounts: r.query.GetAccounts(),
		Users:    r.query.GetUsers(),
		Cluster:  r.PastCluster(),
	}
	if change != nil {
		change(query)
	}
	reply := &apiv1.ReportReply{}
	if err := fetch.UpToDate(r.Call, tool.MethodAcctReport, query, reply, func(seq uint64) {
		query.MinSeq = seq
	}); err != nil {
		return nil, err
	}
	fetch.WarnBehind(r.Call, reply.GetBehind())
	return reply, nil
}

// printReport writes the report as it was asked for.
func (r *reporting) printReport() error {
	var forms []string
	for _, form := range [...]string{"brief", "json", "yaml", "html", "csv"} {
		if r.Opts.On(form) {
			forms = append(forms, "--"+form)
		}
	}
	if r.Opts.Text("mail") != "" {
		forms = append(forms, "--mail")
	}
	if len(forms) > 1 {
		return r.Errorf(
			"%s do not go together: a report is printed in one form, or mailed",
			strings.Join(forms, " and "),
		)
	}
	if to := r.Opts.Text("mail"); to != "" {
		return r.sendMail(tool.SplitList(to))
	}
	switch {
	case r.Opts.On("brief"):
		if r.brief == nil {
			return r.Errorf("--brief is for the report about a job")
		}
		return r.WriteOut([]byte(r.brief.text()))
	case render.WantsDocument(r.Call):
		return render.Print(r.Call, r.tree...)
	case r.Opts.On("csv"):
		if r.table == nil {
			return r.Errorf(
				"--csv is for waste, idle, budget, chargeback, fairshare and findings; --json prints this report as data",
			)
		}
		text, err := csvText(r.table)
		if err != nil {
			return err
		}
		return r.WriteOut(text)
	case r.Opts.On("html"):
		return r.WriteOut([]byte(r.page.renderHTML()))
	}
	return r.WriteOut([]byte(r.page.text()))
}

// csvText is a report as CSV: names of columns, then values in base units;
// what is not known is empty.
func csvText(reply *apiv1.ReportReply) ([]byte, error) {
	var buffer bytes.Buffer
	w := csv.NewWriter(&buffer)
	head := make([]string, len(reply.GetColumns()))
	for i, column := range reply.GetColumns() {
		head[i] = column.GetName()
		if u := column.GetUnit(); u != "" {
			head[i] += " (" + u + ")"
		}
	}
	lines := [][]string{head}
	for _, row := range reply.GetRows() {
		line := make([]string, len(head))
		for i, cell := range row.GetCells() {
			switch v := cell.GetKind().(type) {
			case *apiv1.Cell_Text:
				line[i] = v.Text
			case *apiv1.Cell_Int:
				line[i] = strconv.FormatInt(v.Int, 10)
			case *apiv1.Cell_Float:
				line[i] = strconv.FormatFloat(v.Float, 'f', -1, 64)
			}
		}
		lines = append(lines, line)
	}
	if err := w.WriteAll(lines); err != nil {
		return nil, fmt.Errorf("write CSV: %w", err)
	}
	return buffer.Bytes(), nil
}

// tablePart is a report as a table of a page.
func tablePart(heading string, reply *apiv1.ReportReply, head []string, none string) part {
	p := part{heading: heading, head: head, none: none}
	for _, column := range reply.GetColumns() {
		if column.GetKind() == "text" {
			p.texts++
		}
	}
	for _, row := range reply.GetRows() {
		line := make([]string, len(row.GetCells()))
		for i, cell := range row.GetCells() {
			line[i] = render.FigureText(cell, reply.GetColumns()[i])
		}
		p.rows = append(p.rows, line)
	}
	return p
}

func (r *reporting) span() string {
	clock := render.NewClock(r.Call.Env)
	return clock.Time(r.query.GetStart()) + " to " + clock.Time(r.query.GetEnd())
}

// efficiencyHead are the columns of the report efficiency, for people.
func efficiencyHead(by string) []string {
	return []string{
		by,
		"Runs",
		"CPU time",
		"GPU time",
		"CPU eff.",
		"Memory waste",
		"share",
		"GPU occ.",
		"GPU idle",
		"Failed",
		"Mean wait",
	}
}

// addUsage adds the figures of one key and a table.
func (r *reporting) addUsage(by, key string) error {
	figures, err := r.runReport("kpi", by, nil)
	if err != nil {
		return err
	}
	p := part{heading: "Figures", none: "Nothing ran."}
	for _, row := range figures.GetRows() {
		if row.GetCells()[0].GetText() != key && by != "cluster" {
			continue
		}
		for i, column := range figures.GetColumns() {
			if i > 0 && !row.GetCells()[i].GetNull() &&
				!strings.Contains(render.FigureTitle(column.GetName()), "(") {
				p.pairs = append(
					p.pairs,
					[2]string{
						render.FigureTitle(column.GetName()),
						render.FigureText(row.GetCells()[i], column),
					},
				)
			}
		}
	}
	r.page.parts = append(r.page.parts, p)
	r.tree = append(r.tree, tree.Member{Key: "figures", Value: reportTree(figures)})
	return nil
}

func (r *reporting) byTable(by, heading string, change func(q *apiv1.ReportQuery)) error {
	reply, err := r.runReport("efficiency", by, change)
	if err != nil {
		return err
	}
	r.page.parts = append(
		r.page.parts,
		tablePart(heading, reply, efficiencyHead(strings.ToUpper(by[:1])+by[1:]), "No run ended."),
	)
	r.tree = append(r.tree, tree.Member{Key: "by_" + by, Value: reportTree(reply)})
	return nil
}

func (r *reporting) reportUser(name string) error {
	if name == "" {
		return r.Errorf("name a user: this one has no name here")
	}
	r.page.title = fmt.Sprintf("User %s, %s", name, r.span())
	r.query.Users = []string{name}
	if err := r.addUsage("user", name); err != nil {
		return err
	}
	if err := r.byTable("name", "By job name, those that held most first", nil); err != nil {
		return err
	}
	var reply apiv1.AdviceReply
	query := &apiv1.AdviceQuery{User: name, Cluster: r.PastCluster()}
	if err := fetch.UpToDate(r.Call, tool.MethodAcctAdvise, query, &reply, func(seq uint64) {
		query.MinSeq = seq
	}); err != nil {
		return err
	}
	r.addAdvice(reply.GetAdvice(), true)
	return nil
}

func (r *reporting) reportAccount(name string) error {
	r.page.title = fmt.Sprintf("Account %s, %s", name, r.span())
	r.query.Accounts = []string{name}
	if err := r.addUsage("account", name); err != nil {
		return err
	}
	return r.byTable("user", "By user, those that held most first", nil)
}

func (r *reporting) reportSite() error {
	r.page.title = "The cluster, " + r.span()
	if err := r.addUsage("cluster", ""); err != nil {
		return err
	}
	if err := r.byTable("account", "By account, those that held most first", nil); err != nil {
		return err
	}
	if err := r.byTable("partition", "By partition", nil); err != nil {
		return err
	}
	if err := r.byTable("user", "By user, those that held most first", nil); err != nil {
		return err
	}
	if err := r.addPromises(); err != nil {
		return err
	}
	return r.objectives()
}

// addPromises adds how promised starts were kept, where jobs were promised any.
func (r *reporting) addPromises() error {
	return r.addFigures("promises", part{
		heading: "First promised start against the real one, by partition and QOS; kept: no more than " +
			render.Span(int64(spec.PromiseGrace)) + " late",
		texts: 2,
	})
}

// objectives adds how the waits kept the site's objectives, if there are any.
func (r *reporting) objectives() error {
	return r.addFigures("objectives", part{
		heading: "Waits against the objectives, by QOS; budget left is of the errors that the objective allows in this time",
		texts:   2,
	})
}

// addFigures adds a part with the rows of a report of the service, if it has any.
func (r *reporting) addFigures(name string, p part) error {
	reply, err := r.runReport(name, "", nil)
	if err != nil || len(reply.GetRows()) == 0 {
		return err
	}
	for _, column := range reply.GetColumns() {
		p.head = append(p.head, column.GetName())
	}
	for _, row := range reply.GetRows() {
		line := make([]string, len(p.head))
		for i, cell := range row.GetCells() {
			line[i] = render.FigureText(cell, reply.GetColumns()[i])
		}
		p.rows = append(p.rows, line)
	}
	r.page.parts = append(r.page.parts, p)
	r.tree = append(r.tree, tree.Member{Key: name, Value: reportTree(reply)})
	return nil
}

func (r *reporting) reportWaste() error {
	below := 0.5
	if text := r.Opts.Text("memory-below"); text != "" {
		value, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
		if err != nil || !(value > 0 && value <= 100) {
			return r.Errorf("--memory-below=%s: expected a percentage, such as 50%%", text)
		}
		below = value / 100
	}
	reply, err := r.runReport("waste", "", func(q *apiv1.ReportQuery) { q.Below = below })
	if err != nil {
		return err
	}
	r.table, r.tree = reply, reportTree(reply)
	r.page.title = fmt.Sprintf(
		"Runs whose peak memory stayed below %g %% of what they held, %s",
		100*below,
		r.span(),
	)
	p := part{
		head: []string{
			"JobID",
			"User",
			"Account",
			"JobName",
			"State",
			"Elapsed",
			"Held",
			"Peak",
			"Peak/held",
			"Waste",
		},
		texts: 5,
		none:  "There are none.",
	}
	for _, row := range reply.GetRows() {
		cells := row.GetCells()
		line := make([]string, len(cells))
		for i := range cells {
			line[i] = render.FigureText(cells[i], reply.GetColumns()[i])
		}
		line[6], line[7] = render.GiB(cells[6].GetInt()), render.GiB(cells[7].GetInt())
		p.rows = append(p.rows, line)
	}
	r.page.parts = append(r.page.parts, p)
	return nil
}

func (r *reporting) reportBudget() error {
	reply, err := r.runReport("budget", "", nil)
	if err != nil {
		return err
	}
	r.table, r.tree = reply, reportTree(reply)
	r.page.title = "Budgets, " + render.NewClock(r.Call.Env).Time(reply.GetEnd())
	for _, row := range reply.GetRows() {
		cells := row.GetCells()
		money := func(i int) string {
			return strings.TrimSpace(
				fmt.Sprintf("%.2f %s", cells[i].GetFloat(), reply.GetColumns()[i].GetUnit()),
			)
		}
		day := func(i int) string { return format.Time(cells[i].GetInt(), r.Loc)[:10] }
		spent := cells[5].GetFloat()
		elapsed := cells[6].GetFloat()
		forecast := cells[7].GetFloat() / cells[3].GetFloat()
		p := part{
			heading: fmt.Sprintf("%s, %s to %s, %s", cells[0].GetText(), day(1), day(2), money(3)),
			bars: []render.Bar{
				{
					Label: "Spent",
					Share: &spent,
					Text:  money(4),
				}, {Label: "Time", Share: &elapsed, Text: ""}, {Label: "Forecast", Share: &forecast, Text: money(7) +
					" at its end, as in the last seven days"}},
		}
		if !cells[8].GetNull() {
			p.list = append(p.list, "It runs out on "+day(8)+".")
		}
		if !cells[9].GetNull() {
			p.list = append(p.list, fmt.Sprintf("Warning: %d %% are passed.", cells[9].GetInt()))
		}
		if len(cells) > 10 && cells[10].GetInt() > 0 {
			p.list = append(
				p.list,
				"It is enforced: jobs wait that what is left would not pay for (muster why).",
			)
		}
		r.page.parts = append(r.page.parts, p)
	}
	if len(reply.GetRows()) == 0 {
		r.page.parts = append(
			r.page.parts,
			part{
				none: "There is no budget of these accounts: cost.budgets of muster.yaml names them.",
			},
		)
	}
	return nil
}

// plainTable is a report that is one table, as the service gives it.
func (r *reporting) plainTable(name, title string, texts int, none string) error {
	reply, err := r.runReport(name, r.query.GetBy(), nil)
	if err != nil {
		return err
	}
	r.table, r.tree = reply, reportTree(reply)
	r.page.title = title
	head := make([]string, len(reply.GetColumns()))
	for i, column := range reply.GetColumns() {
		head[i] = column.GetName()
	}
	p := part{head: head, texts: texts, none: none}
	for _, row := range reply.GetRows() {
		line := make([]string, len(head))
		for i, cell := range row.GetCells() {
			line[i] = render.FigureText(cell, reply.GetColumns()[i])
		}
		p.rows = append(p.rows, line)
	}
	r.page.parts = append(r.page.parts, p)
	return nil
}
