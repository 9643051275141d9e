package cli

import (
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Formats of squeue's listings.
const (
	squeueFormat = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
	squeueLong   = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
	squeueStart  = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
	squeueSteps  = "%.15i %.8j %.9P %.8u %.9M %N"
)

//muster:table the options of squeue
func squeueCommand() *command {
	const noFederation = "there is one cluster and no federation"
	return &command{
		name: "squeue", slurm: true, mixed: true,
		summary: "show the jobs that wait and run",
		usage:   []string{"[OPTIONS]"},
		about: `Without options: jobs that are pending, running, suspended or completing, in the order of partition, state and
falling priority. Behind -o stand %[.][width]letter, behind -O name[:[.][width][suffix]]; "." pads on the left.`,
		more: func() string {
			return "Letters of -o: " + fieldList(jobFields(), true) + ".\n\nNames of -O: " + fieldList(jobFields(), false) + "."
		},
		options: []opt.Option{
			{Long: "account", Short: "A", Arg: "<account_list>", Env: "SQUEUE_ACCOUNT", Help: "only jobs of these accounts"},
			{Long: "all", Short: "a", Env: "SQUEUE_ALL", Help: "show jobs of hidden partitions too", Always: "jobs of hidden partitions are shown to all"},
			{Long: "array", Short: "r", Env: "SQUEUE_ARRAY", Help: "one line for each task of an array that waits"},
			{Long: "clusters", Short: "M", Arg: "<cluster_name>", Env: "SLURM_CLUSTERS", Help: "check that this is the cluster's name, and print it first"},
			{Long: "expand-patterns", Help: "fill in the patterns (%j, %A, ...) of file names"},
			{Long: "federation", Env: "SQUEUE_FEDERATION", Refused: noFederation},
			{Long: "format", Short: "o", Arg: "<output_format>", Env: "SQUEUE_FORMAT", Help: "columns by letter"},
			{Long: "Format", Short: "O", Arg: "<output_format>", Env: "SQUEUE_FORMAT2", Help: "columns by name"},
			{Long: "helpformat", Help: "list the letters and names of columns"},
			{Long: "helpstate", Help: "list the states of jobs"},
			{Long: "hide", Refused: "jobs of hidden partitions are shown to all"},
			{Long: "iterate", Short: "i", Arg: "<seconds>", Help: "repeat every so many seconds"},
			{Long: "jobs", Short: "j", Arg: "<job_id_list>", Maybe: true, Help: "only these jobs: 12,36_4,36_[5-9]"},
			{Long: "json", Arg: "<data_parser>", Maybe: true, Env: "SLURM_JSON", Help: "print JSON"},
			{Long: "licenses", Short: "L", Arg: "<license_list>", Env: "SQUEUE_LICENSES", Help: "only jobs that ask for these licences"},
			{Long: "local", Env: "SQUEUE_LOCAL", Help: "show this cluster's jobs", Always: noFederation},
			{Long: "long", Short: "l", Help: "more columns"},
			{Long: "me", Help: "only jobs of this user"},
			{Long: "name", Short: "n", Arg: "<name_list>", Env: "SQUEUE_NAMES", Help: "only jobs of these names"},
			{Long: "noconvert", Help: "leave amounts in the unit they are kept in"},
			{Long: "nodelist", Short: "w", Arg: "<hostlist>", Help: "only jobs on these nodes"},
			{Long: "noheader", Short: "h", Help: "print no header"},
			{Long: "notme", Help: "only jobs of other users"},
			{Long: "only-job-state", Help: "ask for no more than the jobs' states", Always: "the answer is as quick without it"},
			{Long: "partition", Short: "p", Arg: "<part_list>", Env: "SQUEUE_PARTITION", Help: "only jobs in these partitions"},
			{Long: "priority", Short: "P", Env: "SQUEUE_PRIORITY", Help: "one line for each partition in which a job waits"},
			{Long: "qos", Short: "q", Arg: "<qos_list>", Env: "SQUEUE_QOS", Help: "only jobs of these QOS"},
			{Long: "reservation", Short: "R", Arg: "<reservation_list>", Help: "only jobs in these reservations"},
			{Long: "running-over", Arg: "<time>", Help: "only jobs that have run for longer"},
			{Long: "running-under", Arg: "<time>", Help: "only jobs that have run for less"},
			{Long: "sibling", Env: "SQUEUE_SIBLING", Refused: noFederation},
			{Long: "sort", Short: "S", Arg: "<sort_list>", Env: "SQUEUE_SORT", Help: "order by these letters of -o, each with - for falling: P,t,-p"},
			{Long: "start", Help: "jobs that wait, with the start and nodes that are planned for them"},
			{Long: "states", Short: "t", Arg: "<state_list>", Env: "SQUEUE_STATES", Help: "only jobs in these states: PD,R,CG or all"},
			{Long: "steps", Short: "s", Arg: "<step_list>", Maybe: true, Help: "show job steps: 12, 12.batch"},
			{Long: "user", Short: "u", Arg: "<user_list>", Env: "SQUEUE_USERS", Help: "only jobs of these users"},
			{Long: "yaml", Arg: "<data_parser>", Maybe: true, Env: "SLURM_YAML", Help: "print YAML"},
		},
		env: []variable{
			{"SLURM_TIME_FORMAT", "how points in time are written: standard, relative or a strftime format"},
			{"SLURM_BITSTR_LEN", "where the indices of an array are cut, 64 without it, 0 = nowhere"},
		},
		example: []example{
			{"squeue --me", "shows your jobs"},
			{"squeue -t PD --start", "says when the jobs that wait are planned to start"},
			{"squeue -h -o '%i %T %R' -j 12", "prints one job's state for a script"},
		},
		run: runSqueue,
	}
}

func fieldList(fields []jobField, letters bool) string {
	var out []string
	for _, f := range fields {
		switch {
		case letters && f.letter != "":
			out = append(out, "%"+f.letter+" "+f.name)
		case !letters:
			out = append(out, f.name)
		}
	}
	return strings.Join(out, ", ")
}

func runSqueue(c *call) error {
	if len(c.args) > 0 {
		// -j and -s may have their list behind a blank.
		long := ""
		for _, l := range [...]string{"jobs", "steps"} {
			if v, ok := c.opts.Get(l); ok && !v.Has && v.From == opt.FromCommand {
				long = l
			}
		}
		if long == "" || len(c.args) > 1 {
			return c.errorf("Unrecognized option: %s", c.args[len(c.args)-1])
		}
		c.opts.Put(long, c.args[0], true, opt.FromCommand)
	}
	switch {
	case c.opts.On("helpformat"):
		return c.write([]byte("Letters of -o: " + fieldList(jobFields(), true) + "\nNames of -O: " + fieldList(jobFields(), false) + "\n"))
	case c.opts.On("helpstate"):
		return c.write([]byte(stateList()))
	}
	q, err := c.squeueQuery()
	if err != nil {
		return err
	}
	if err := c.checkClusters(); err != nil {
		return err
	}
	if c.opts.On("clusters") && !q.structured() {
		if err := c.write([]byte("CLUSTER: " + c.opts.List("clusters")[0] + "\n")); err != nil {
			return err
		}
	}
	return c.repeat(func() error { return c.squeueOnce(q) })
}

func stateList() string {
	var b strings.Builder
	for _, s := range spec.JobStates() {
		fmt.Fprintf(&b, "%-4s%s\n", s.Compact(), s)
	}
	b.WriteString("CG  COMPLETING\n")
	return b.String()
}

// jobQuery is what squeue asks and how it prints the answer.
type jobQuery struct {
	req     *apiv1.ListJobsRequest
	keep    []func(r jobRow, now int64) bool
	before  string
	columns []column.Token
	fields  []jobField
	sort    []sortKey
	steps   bool
	stepIDs []string
	expand  bool // arrays
	parts   bool // a line for each partition
	dated   bool
	header  bool
	json    bool
	yaml    bool
}

func (q *jobQuery) structured() bool { return q.json || q.yaml }

func (c *call) squeueQuery() (*jobQuery, error) {
	o := c.opts
	q := &jobQuery{
		req:   &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{}},
		steps: o.On("steps"), expand: o.On("array"), parts: o.On("priority"), header: !o.On("noheader"),
		dated: o.On("long") || o.On("iterate"), json: o.On("json"), yaml: o.On("yaml"),
	}
	if q.json && q.yaml { // the command line wins over a variable
		j, _ := o.Get("json")
		y, _ := o.Get("yaml")
		q.json, q.yaml = j.Order > y.Order, y.Order > j.Order
	}
	if err := c.jobFilter(q); err != nil {
		return nil, err
	}
	if err := c.jobColumns(q); err != nil {
		return nil, err
	}
	sortText := o.Text("sort")
	switch {
	case sortText != "":
	case q.steps:
		sortText = "P,i"
	case o.On("start"):
		sortText = "P,t,S"
	default:
		sortText = "P,t,-p"
	}
	var err error
	if q.sort, err = sortKeys(sortText); err != nil {
		return nil, c.errorf("%v", err)
	}
	q.req.Detail = q.steps || q.structured()
	return q, nil
}

// jobFilter fills the request's filter from the options, and what the
// controller does not filter by into keep.
func (c *call) jobFilter(q *jobQuery) error {
	o, f := c.opts, q.req.GetFilter()
	f.Jobs, f.Users, f.Accounts = splitJobs(o.Text("jobs")), o.List("user"), o.List("account")
	f.Partitions, f.Names, f.Qos = o.List("partition"), o.List("name"), o.List("qos")
	if o.On("me") {
		f.Users = []string{itoa(c.UID)}
	}
	if o.On("notme") {
		q.keep = append(q.keep, func(r jobRow, _ int64) bool { return r.GetUserId() != c.UID })
	}
	if o.On("nodelist") {
		names, err := hostlist.Expand(o.Text("nodelist"))
		if err != nil {
			return c.errorf("%v", err)
		}
		f.Nodes = names
	}
	if err := c.stateFilter(q); err != nil {
		return err
	}
	if o.On("steps") {
		q.stepIDs = splitJobs(o.Text("steps"))
		for _, id := range q.stepIDs {
			job, _, _ := strings.Cut(id, ".")
			if !slices.Contains(f.Jobs, job) {
				f.Jobs = append(f.Jobs, job)
			}
		}
	}
	if o.On("licenses") {
		q.keep = append(q.keep, func(r jobRow, _ int64) bool {
			return slices.ContainsFunc(r.GetSpec().GetLicenses(), func(l *apiv1.Count) bool { return slices.Contains(o.List("licenses"), l.GetName()) })
		})
	}
	if o.On("reservation") {
		q.keep = append(q.keep, func(r jobRow, _ int64) bool {
			return slices.Contains(o.List("reservation"), r.GetSpec().GetReservation())
		})
	}
	for _, name := range [...]string{"running-over", "running-under"} {
		if !o.On(name) {
			continue
		}
		sec, err := format.ParseDuration(o.Text(name))
		if err != nil {
			return c.errorf("--%s: %v", name, err)
		}
		q.keep = append(q.keep, func(r jobRow, now int64) bool {
			ran := elapsed(r.JobInfo, now) / second
			return r.state() == spec.Running && (ran > sec) == (name == "running-over")
		})
	}
	return nil
}

// stateFilter reads -t. States that no job of this release can be in match
// nothing.
func (c *call) stateFilter(q *jobQuery) error {
	o, f := c.opts, q.req.GetFilter()
	if o.On("start") && !o.On("states") {
		f.States = []uint32{uint32(spec.Pending)}
		return nil
	}
	states, completing, all, bad := parseStates(o.Text("states"))
	if bad != "" {
		return fail(1, c.cmd.name+": error: Invalid job state specified: "+bad, c.cmd.name+": error: Valid job states include: "+stateWords())
	}
	f.AllStates, f.Completing = all, completing
	if onlyConfiguring(o.Text("states")) {
		q.keep = append(q.keep, func(r jobRow, _ int64) bool { return r.state() != spec.Running || configuring(r.JobInfo) })
	}
	impossible := false
	for _, s := range states {
		if s == 0 {
			impossible = true
		} else {
			f.States = append(f.States, s)
		}
	}
	if impossible && len(f.States) == 0 && !completing && !all {
		f.AllStates = true
		q.keep = append(q.keep, func(jobRow, int64) bool { return false })
	}
	if o.On("start") {
		q.keep = append(q.keep, func(r jobRow, _ int64) bool { return r.pending() })
	}
	return nil
}

func stateWords() string {
	var words []string
	for _, s := range spec.JobStates() {
		words = append(words, s.String())
	}
	return strings.Join(append(words, "COMPLETING"), ",")
}

// splitJobs splits a list of jobs at commas outside brackets: 12,36_[5-7,9].
func splitJobs(s string) []string {
	var out []string
	depth, from := 0, 0
	for i := 0; i <= len(s); i++ {
		switch {
		case i == len(s) || (s[i] == ',' && depth == 0):
			if i > from {
				out = append(out, s[from:i])
			}
			from = i + 1
		case s[i] == '[':
			depth++
		case s[i] == ']' && depth > 0:
			depth--
		}
	}
	return out
}

// jobColumns chooses the columns. -o and -O of the command line exclude each
// other: the later one wins, and either wins over a variable.
func (c *call) jobColumns(q *jobQuery) error {
	o := c.opts
	q.fields = jobFields()
	if q.steps {
		q.fields = stepFields()
	}
	letters, names := squeueFormat, ""
	switch {
	case q.steps:
		letters = squeueSteps
	case o.On("start"):
		letters = squeueStart
	case o.On("long"):
		letters = squeueLong
	}
	short, hasShort := o.Get("format")
	long, hasLong := o.Get("Format")
	plain := !o.On("long") && !o.On("start") && !q.steps // a listing of its own wins over a variable
	switch {
	case hasLong && (long.From == opt.FromCommand || plain) && (!hasShort || long.Order > short.Order):
		names = long.Text
	case hasShort && (short.From == opt.FromCommand || plain):
		letters = short.Text
	}
	var err error
	if names != "" {
		if strings.EqualFold(names, "all") {
			q.columns = everyField(q.fields)
			return nil
		}
		if q.columns, err = column.Names(names); err != nil {
			return c.errorf("%v", err)
		}
		for i := range q.columns {
			if q.columns[i].Field = canonicalName(q.fields, q.columns[i].Field); q.columns[i].Field == "" {
				return c.errorf("Invalid job format specification: %s", names)
			}
		}
		return nil
	}
	if q.before, q.columns, err = column.Letters(letters); err != nil {
		return c.errorf("%v", err)
	}
	if len(q.columns) > 0 && q.columns[0].Field == "all" {
		q.columns = everyField(q.fields)
		return nil
	}
	for _, t := range q.columns {
		if !slices.ContainsFunc(q.fields, func(f jobField) bool { return f.letter == t.Field }) {
			return c.errorf("Invalid job format specification: %s", t.Field)
		}
	}
	return nil
}

// everyField is %all: every column, separated by |.
func everyField(fields []jobField) []column.Token {
	out := make([]column.Token, len(fields))
	for i, f := range fields {
		out[i] = column.Token{Field: f.name, Suffix: "|"}
	}
	out[len(out)-1].Suffix = ""
	return out
}

// canonicalName finds the name of a column, however it is written.
func canonicalName(fields []jobField, name string) string {
	plain := func(s string) string { return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s)) }
	for _, n := range [...]string{name, jobFieldAlias(name)} {
		for _, f := range fields {
			if plain(f.name) == plain(n) {
				return f.name
			}
		}
	}
	return ""
}

func (c *call) squeueOnce(q *jobQuery) error {
	var rep apiv1.ListJobsReply
	if err := c.listJobs(q.req, &rep); err != nil {
		return loadJobsError(err)
	}
	if asked := q.req.GetFilter().GetJobs(); len(asked) == 1 && len(rep.GetUnknown()) == 1 {
		return fail(1, "slurm_load_jobs error: "+spec.CodeInvalidJobID.String())
	}
	view := &jobView{clock: c.clock(), env: c.Env, noconvert: c.opts.On("noconvert"), expand: c.opts.On("expand-patterns"), cluster: c.opts.Text("clusters")}
	view.now = rep.GetNow()
	rows := q.rows(rep.GetJobs(), view.now)
	if q.structured() {
		return c.structured(q.json, jobsTree(c, rows, view.now))
	}
	sortRows(rows, q.sort, view)
	return c.write(q.text(rows, view))
}

// listJobs asks for jobs, however many they are.
func (c *call) listJobs(req *apiv1.ListJobsRequest, rep *apiv1.ListJobsReply) error {
	return stream(c, methodStreamJobs, req, func(part *apiv1.ListJobsReply) error {
		rep.Now, rep.Seq = part.GetNow(), part.GetSeq()
		rep.Jobs, rep.Unknown = append(rep.Jobs, part.GetJobs()...), append(rep.Unknown, part.GetUnknown()...)
		return nil
	})
}

// loadJobsError words an error as Slurm's library does; clients look for it.
func loadJobsError(err error) error {
	r := explainError(err)
	return fail(1, append(r.before("squeue"), "slurm_load_jobs error: "+r.text)...)
}

// rows makes the lines of jobs: filtered, arrays expanded, steps or partitions
// apart.
func (q *jobQuery) rows(jobs []*apiv1.JobInfo, now int64) []jobRow {
	out := make([]jobRow, 0, len(jobs))
	for _, j := range jobs {
		r := jobRow{JobInfo: j, task: -1}
		if slices.ContainsFunc(q.keep, func(keep func(jobRow, int64) bool) bool { return !keep(r, now) }) {
			continue
		}
		switch {
		case q.steps:
			out = q.stepRows(out, r)
		case q.expand && r.isArray():
			for _, t := range j.GetArrayTasks() {
				for i := t.GetFirst(); i <= t.GetLast(); i += max(t.GetStep(), 1) {
					out = q.partRows(out, jobRow{JobInfo: j, task: i})
				}
			}
		default:
			out = q.partRows(out, r)
		}
	}
	return out
}

func (q *jobQuery) partRows(out []jobRow, r jobRow) []jobRow {
	if !q.parts || !r.pending() {
		return append(out, r)
	}
	for _, p := range splitList(r.GetPartition()) {
		r.part = p
		out = append(out, r)
	}
	return out
}

// stepRows adds a job's steps. The batch script is a step too; the controller
// knows it as the job itself.
func (q *jobQuery) stepRows(out []jobRow, r jobRow) []jobRow {
	if !r.state().Active() {
		return out
	}
	steps := r.GetSteps()
	if !r.GetSpec().GetShell() && !slices.ContainsFunc(steps, func(s *apiv1.StepInfo) bool { return spec.StepID(s.GetStepId()) == spec.StepBatch }) {
		steps = append([]*apiv1.StepInfo{{StepId: int32(spec.StepBatch), Name: "batch", Nodes: []string{r.GetBatchHost()}, Tasks: 1, Start: r.GetStart(),
			State: r.GetState(), Tres: r.GetAllocTres()}}, steps...)
	}
	for _, s := range steps {
		if s.GetEnd() != 0 {
			continue
		}
		name := "." + spec.StepID(s.GetStepId()).String()
		wanted := len(q.stepIDs) == 0
		for _, id := range q.stepIDs {
			job, step, one := strings.Cut(id, ".")
			wanted = wanted || ((job == itoa(r.GetJobId()) || strings.HasPrefix(job, itoa(r.GetArrayJobId())+"_")) && (!one || "."+step == name))
		}
		if wanted {
			r.step = s
			out = append(out, r)
		}
	}
	return out
}

// text lays the rows out.
func (q *jobQuery) text(rows []jobRow, v *jobView) []byte {
	fields := make([]*jobField, len(q.columns))
	for i, t := range q.columns {
		for k := range q.fields {
			if f := &q.fields[k]; f.name == t.Field || f.letter == t.Field {
				fields[i] = f
				break
			}
		}
	}
	var b []byte
	if q.dated && q.header {
		b = append(b, v.date()+"\n"...)
	}
	if q.header {
		b = append(b, q.before...)
		for i, t := range q.columns {
			b = t.Append(b, fields[i].head)
		}
		b = append(b, '\n')
	}
	for _, r := range rows {
		b = append(b, q.before...)
		for i, t := range q.columns {
			b = t.Append(b, fields[i].text(v, r))
		}
		b = append(b, '\n')
	}
	return b
}
