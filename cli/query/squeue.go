package query

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
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
func Squeue() *tool.Command {
	return &tool.Command{
		Name: "squeue", Slurm: true, Mixed: true,
		Summary: "show pending and running jobs",
		Usage:   []string{"[OPTIONS]"},
		About: `Without options: pending, running, suspended and completing jobs, sorted by partition, state and
descending priority. -o takes %[.][width]letter, -O takes name[:[.][width][suffix]]; "." pads on the left.`,
		More: func() string {
			return "Letters of -o: " + fieldList(jobFields(), true) + ".\n\nNames of -O: " + fieldList(jobFields(), false) +
				".\n\nEarlyStart and PromisesKept are Muster's own, and ALL leaves them out: when a pending job starts if running jobs end as\n" +
				"similar runs of their users did, and how many promised starts of the partition were kept. They are filled in for the first\n" +
				fmt.Sprint(maxRanged) + " jobs with a planned start."
		},
		Options: []opt.Option{
			{Long: "account", Also: "accounts", Short: "A", Arg: "<account_list>", Env: "SQUEUE_ACCOUNT", Help: "only jobs of these accounts"},
			{Long: "all", Short: "a", Env: "SQUEUE_ALL", Help: "include jobs in hidden partitions", Always: "they are shown unless --hide is given"},
			{Long: "array", Short: "r", Env: "SQUEUE_ARRAY", Help: "show each pending array task on its own line"},
			{Long: "clusters", Short: "M", Arg: "<cluster_name>", Env: "SLURM_CLUSTERS", Help: "clusters to show, one after the other, each below its name; all = every known one"},
			{Long: "expand-patterns", Help: "expand the patterns (%j, %A, ...) in file names"},
			{Long: "federation", Env: "SQUEUE_FEDERATION", Help: "include the other clusters of the federation", Always: tool.NoFederation},
			{Long: "format", Short: "o", Arg: "<output_format>", Env: "SQUEUE_FORMAT", Help: "columns to show, by letter"},
			{Long: "Format", Short: "O", Arg: "<output_format>", Env: "SQUEUE_FORMAT2", Help: "columns to show, by name"},
			{Long: "helpformat", Help: "list the letters and names of columns"},
			{Long: "helpreason", Help: "list the reasons why jobs wait"},
			{Long: "helpstate", Help: "list the states of jobs"},
			{Long: "hide", Help: "do not show jobs that are only in hidden partitions, unless --all is given"},
			{Long: "iterate", Short: "i", Arg: "<seconds>", Help: "refresh interval in seconds"},
			{Long: "jobs", Short: "j", Arg: "<job_id_list>", Maybe: true, Help: "only these jobs: 12,36_4,36_[5-9]"},
			{Long: "json", Arg: "<data_parser>", Maybe: true, Env: "SLURM_JSON", Help: "print JSON"},
			{Long: "licenses", Short: "L", Arg: "<license_list>", Env: "SQUEUE_LICENSES", Help: "only jobs that ask for these licences"},
			{Long: "local", Env: "SQUEUE_LOCAL", Help: "show this cluster's jobs", Always: tool.NoFederation},
			{Long: "long", Short: "l", Help: "show more columns"},
			{Long: "me", Help: "only jobs of this user"},
			{Long: "name", Short: "n", Arg: "<name_list>", Env: "SQUEUE_NAMES", Help: "only jobs of these names"},
			{Long: "noconvert", Help: "print amounts in the unit in which they are stored"},
			{Long: "nodelist", Also: "nodes", Short: "w", Arg: "<hostlist>", Help: "only jobs on these nodes"},
			{Long: "noheader", Short: "h", Help: "omit the header"},
			{Long: "notme", Help: "only jobs of other users"},
			{Long: "only-job-state", Help: "query the states of the jobs only", Always: "the answer is as quick without it"},
			{Long: "partition", Also: "partitions", Short: "p", Arg: "<part_list>", Env: "SQUEUE_PARTITION", Help: "only jobs in these partitions"},
			{Long: "priority", Short: "P", Env: "SQUEUE_PRIORITY", Help: "show one line for each partition of a pending job"},
			{Long: "qos", Short: "q", Arg: "<qos_list>", Env: "SQUEUE_QOS", Help: "only jobs of these QOS"},
			{Long: "reservation", Short: "R", Arg: "<reservation_list>", Help: "only jobs in these reservations"},
			{Long: "running-over", Arg: "<time>", Help: "only jobs that have run for longer"},
			{Long: "running-under", Arg: "<time>", Help: "only jobs that have run for less"},
			{Long: "sibling", Env: "SQUEUE_SIBLING", Help: "include the copies of jobs on other clusters", Always: tool.NoFederation},
			{Long: "sort", Short: "S", Arg: "<sort_list>", Env: "SQUEUE_SORT", Help: "sort by these letters of -o; - before a letter reverses its order: P,t,-p"},
			{Long: "start", Help: "pending jobs with their planned start and nodes"},
			{Long: "states", Short: "t", Arg: "<state_list>", Env: "SQUEUE_STATES", Help: "only jobs in these states: PD,R,CG or all"},
			{Long: "steps", Short: "s", Arg: "<step_list>", Maybe: true, Help: "show job steps: 12, 12.batch"},
			{Long: "user", Also: "users", Short: "u", Arg: "<user_list>", Env: "SQUEUE_USERS", Help: "only jobs of these users"},
			{Long: "yaml", Arg: "<data_parser>", Maybe: true, Env: "SLURM_YAML", Help: "print YAML"},
		},
		Env: []tool.Variable{
			{Name: "SLURM_TIME_FORMAT", Help: "format of timestamps: standard, relative or a strftime format"},
			{Name: "SLURM_BITSTR_LEN", Help: "maximum length of the indices of an array (default: 64; 0: unlimited)"},
		},
		Example: []tool.Example{
			{Line: "squeue --me", What: "shows your jobs"},
			{Line: "squeue -t PD --start", What: "shows the planned start of pending jobs"},
			{Line: "squeue --start -O jobid,earlystart,starttime,promiseskept", What: "shows it as a range, with the share of promises kept"},
			{Line: "squeue -h -o '%i %T %R' -j 12", What: "prints one job's state for a script"},
		},
		Fields: squeueFields,
		Run:    runSqueue,
	}
}

func fieldList(fields []jobField, letters bool) string {
	var out []string
	for _, field := range fields {
		switch {
		case letters && field.letter != "":
			out = append(out, "%"+field.letter+" "+field.name)
		case !letters:
			out = append(out, field.name)
		}
	}
	return strings.Join(out, ", ")
}

func runSqueue(call *tool.Call) error {
	if len(call.Operands) > 0 {
		// -j and -s may have their list behind a blank.
		long := ""
		for _, l := range [...]string{"jobs", "steps"} {
			if v, ok := call.Opts.Get(l); ok && !v.Has && v.From == opt.FromCommand {
				long = l
			}
		}
		if long == "" || len(call.Operands) > 1 {
			return call.Errorf("Unrecognized option: %s", call.Operands[len(call.Operands)-1])
		}
		call.Opts.Put(long, call.Operands[0], true, opt.FromCommand)
	}
	switch {
	case call.Opts.On("helpformat"):
		return call.WriteOut([]byte("Letters of -o: " + fieldList(jobFields(), true) +
			"\nNames of -O: " + fieldList(jobFields(), false) + "\n"))
	case call.Opts.On("helpstate"):
		return call.WriteOut([]byte(render.JobStateList()))
	case call.Opts.On("helpreason"):
		return call.WriteOut([]byte(render.ReasonList()))
	}
	query, err := squeueQuery(call)
	if err != nil {
		return err
	}
	return call.Repeat(func() error {
		return call.EachHeaded(query.structured || !query.header, func(call *tool.Call) error {
			return squeueOnce(call, query)
		})
	})
}

// hidesPartitions keeps the jobs that are in a partition which is not hidden.
func hidesPartitions(call *tool.Call) (func(render.JobRow, int64) bool, error) {
	var reply apiv1.ListPartitionsReply
	if err := call.RPC(
		tool.MethodListPartitions, &apiv1.ListPartitionsRequest{}, &reply,
	); err != nil {
		return nil, err
	}
	hidden := map[string]bool{}
	for _, partition := range reply.GetPartitions() {
		hidden[partition.GetName()] = partition.GetHidden()
	}
	return func(row render.JobRow, _ int64) bool {
		for name := range strings.SplitSeq(row.GetPartition(), ",") {
			if !hidden[name] {
				return true
			}
		}
		return false
	}, nil
}

// jobQuery is what squeue asks and how it prints the answer.
type jobQuery struct {
	req     *apiv1.ListJobsRequest
	keep    []func(r render.JobRow, now int64) bool
	before  string
	columns []column.Token
	fields  []jobField
	sort    []render.SortKey
	steps   bool
	stepIDs []string
	expand  bool // arrays
	parts   bool // a line for each partition
	dated   bool
	header  bool
	// structured: a document is printed, not columns.
	structured bool
}

func squeueQuery(call *tool.Call) (*jobQuery, error) {
	values := call.Opts
	query := &jobQuery{
		req: &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{}},
		steps: values.On(
			"steps",
		), expand: values.On("array"), parts: values.On("priority"), header: !values.On("noheader"),
		dated: values.On("long") || values.On("iterate"), structured: render.WantsDocument(call),
	}
	if err := jobFilter(call, query); err != nil {
		return nil, err
	}
	if err := jobColumns(call, query); err != nil {
		return nil, err
	}
	sortText := values.Text("sort")
	switch {
	case sortText != "":
	case query.steps:
		sortText = "P,i"
	case values.On("start"):
		sortText = "P,t,S"
	default:
		sortText = "P,t,-p"
	}
	var err error
	query.sort, err = sortKeys(sortText)
	if err != nil {
		return nil, call.Errorf("%v", err)
	}
	query.req.Detail = query.steps || query.structured
	return query, nil
}

// jobFilter fills the request's filter from the options, and what the
// controller does not filter by into keep.
func jobFilter(call *tool.Call, query *jobQuery) error {
	values, filter := call.Opts, query.req.GetFilter()
	filter.Jobs = tool.SplitJobs(values.Text("jobs"))
	for _, id := range filter.GetJobs() {
		if !tool.ValidTarget(id) {
			return call.Errorf("Invalid job id: %s", id)
		}
	}
	filter.Users = values.List("user")
	filter.Accounts = values.List("account")
	filter.Partitions = values.List("partition")
	filter.Names = values.List("name")
	filter.Qos = values.List("qos")
	if values.On("me") {
		filter.Users = []string{tool.Itoa(call.UID)}
	}
	if values.On("notme") {
		query.keep = append(
			query.keep,
			func(r render.JobRow, _ int64) bool { return r.GetUserId() != call.UID },
		)
	}
	if values.On("nodelist") {
		names, err := hostlist.Expand(values.Text("nodelist"))
		if err != nil {
			return call.Errorf("%v", err)
		}
		filter.Nodes = names
	}
	if err := stateFilter(call, query); err != nil {
		return err
	}
	if values.On("steps") {
		query.stepIDs = tool.SplitJobs(values.Text("steps"))
		for _, id := range query.stepIDs {
			job, _, _ := strings.Cut(id, ".")
			if !slices.Contains(filter.Jobs, job) {
				filter.Jobs = append(filter.Jobs, job)
			}
		}
	}
	if values.On("licenses") {
		query.keep = append(query.keep, func(row render.JobRow, _ int64) bool {
			return slices.ContainsFunc(
				row.GetSpec().GetLicenses(),
				func(l *apiv1.Count) bool {
					return slices.Contains(values.List("licenses"), l.GetName())
				},
			)
		})
	}
	if values.On("reservation") {
		query.keep = append(query.keep, func(row render.JobRow, _ int64) bool {
			return slices.Contains(values.List("reservation"), row.GetSpec().GetReservation())
		})
	}
	for _, name := range [...]string{"running-over", "running-under"} {
		if !values.On(name) {
			continue
		}
		seconds, err := format.ParseDuration(values.Text(name))
		if err != nil {
			return call.Errorf("--%s: %v", name, err)
		}
		query.keep = append(query.keep, func(row render.JobRow, now int64) bool {
			ran := render.Elapsed(row.JobInfo, now) / tool.Second
			return row.State() == spec.Running && (ran > seconds) == (name == "running-over")
		})
	}
	return nil
}

// stateFilter reads -t. States that no job of this release can be in match
// nothing.
func stateFilter(call *tool.Call, query *jobQuery) error {
	values, filter := call.Opts, query.req.GetFilter()
	if values.On("start") && !values.On("states") {
		filter.States = []uint32{uint32(spec.Pending)}
		return nil
	}
	states, completing, all, bad := render.ParseStates(values.Text("states"))
	if bad != "" {
		return tool.Fail(
			1,
			call.Command.Name+": error: Invalid job state specified: "+bad,
			call.Command.Name+
				": error: Valid job states include: "+stateWords(),
		)
	}
	filter.AllStates, filter.Completing = all, completing
	if render.OnlyConfiguring(values.Text("states")) {
		query.keep = append(
			query.keep,
			func(r render.JobRow, _ int64) bool { return r.State() != spec.Running || render.Configuring(r.JobInfo) },
		)
	}
	impossible := false
	for _, s := range states {
		if s == 0 {
			impossible = true
		} else {
			filter.States = append(filter.States, s)
		}
	}
	if impossible && len(filter.States) == 0 && !completing && !all {
		filter.AllStates = true
		query.keep = append(query.keep, func(render.JobRow, int64) bool { return false })
	}
	if values.On("start") {
		query.keep = append(query.keep, func(r render.JobRow, _ int64) bool { return r.Pending() })
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

// jobColumns chooses the columns. -o and -O of the command line exclude each
// other: the later one wins, and either wins over a variable.
func jobColumns(call *tool.Call, query *jobQuery) error {
	values := call.Opts
	every := jobFields() // of ALL
	query.fields = append(slices.Clip(every), rangeFields()...)
	if query.steps {
		every = stepFields()
		query.fields = every
	}
	letters, names := squeueFormat, ""
	switch {
	case query.steps:
		letters = squeueSteps
	case values.On("start"):
		letters = squeueStart
	case values.On("long"):
		letters = squeueLong
	}
	short, hasShort := values.Get("format")
	long, hasLong := values.Get("Format")
	plain := !values.On("long") && !values.On("start") &&
		!query.steps // a listing of its own wins over a variable
	switch {
	case hasLong && (long.From == opt.FromCommand || plain) && (!hasShort || long.Order > short.Order):
		names = long.Text
	case hasShort && (short.From == opt.FromCommand || plain):
		letters = short.Text
	}
	var err error
	if names != "" {
		if strings.EqualFold(names, "all") {
			query.columns = everyField(every)
			return nil
		}
		query.columns, err = column.Names(names)
		if err != nil {
			return call.Errorf("%v", err)
		}
		for i := range query.columns {
			query.columns[i].Field = canonicalName(query.fields, query.columns[i].Field)
			if query.columns[i].Field == "" {
				return call.Errorf("Invalid job format specification: %s", names)
			}
		}
		return nil
	}
	query.before, query.columns, err = column.Letters(letters)
	if err != nil {
		return call.Errorf("%v", err)
	}
	if len(query.columns) > 0 && query.columns[0].Field == "all" {
		query.columns = everyField(every)
		return nil
	}
	for _, token := range query.columns {
		if !slices.ContainsFunc(
			query.fields,
			func(f jobField) bool { return f.letter == token.Field },
		) {
			return call.Errorf("Invalid job format specification: %s", token.Field)
		}
	}
	return nil
}

// everyField is %all: every column, separated by |.
func everyField(fields []jobField) []column.Token {
	tokens := make([]column.Token, len(fields))
	for i, field := range fields {
		tokens[i] = column.Token{Field: field.name, Suffix: "|"}
	}
	tokens[len(tokens)-1].Suffix = ""
	return tokens
}

// canonicalName finds the name of a column, however it is written.
func canonicalName(fields []jobField, name string) string {
	plain := func(s string) string { return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s)) }
	for _, n := range [...]string{name, jobFieldAlias(name)} {
		for _, field := range fields {
			if plain(field.name) == plain(n) {
				return field.name
			}
		}
	}
	return ""
}

func squeueOnce(call *tool.Call, query *jobQuery) error {
	if call.Opts.On("hide") && !call.Opts.On("all") {
		hide, err := hidesPartitions(call)
		if err != nil {
			return err
		}
		visible := *query
		visible.keep = append(slices.Clip(query.keep), hide)
		query = &visible
	}
	var reply apiv1.ListJobsReply
	if err := fetch.Jobs(call, query.req, &reply); err != nil {
		if why := tool.ExplainError(err); why.Code == spec.CodeInvalidNodeName {
			return call.Errorf("Invalid node name %s", why.Detail)
		}
		return fetch.JobsError(err)
	}
	if asked := query.req.GetFilter().GetJobs(); len(asked) == 1 && len(reply.GetUnknown()) == 1 &&
		!isTaskOfKnownArray(call, asked[0]) {
		return tool.Unknown(spec.CodeInvalidJobID, "slurm_load_jobs error: "+
			spec.CodeInvalidJobID.String())
	}
	view := &render.JobView{
		Clock:     render.NewClock(call.Env),
		Env:       call.Env,
		Noconvert: call.Opts.On("noconvert"),
		Expand:    call.Opts.On("expand-patterns"),
		Cluster:   call.NamedCluster(),
	}
	shows := func(token column.Token) bool { return token.Field == "Cluster" }
	if view.Cluster == "" && slices.ContainsFunc(query.columns, shows) {
		view.Cluster = call.Cluster()
	}
	view.Now = reply.GetNow()
	rows := query.makeRows(reply.GetJobs(), view.Now)
	if query.structured {
		jobs := make([]*apiv1.JobInfo, len(rows))
		for i := range rows {
			jobs[i] = rows[i].JobInfo
		}
		return render.JobsAnswer(call, jobs, view.Now)
	}
	if len(rows) == 0 {
		// A host may not know a user whose jobs there are, so that this is no error.
		if user := call.UnknownUser(query.req.GetFilter().GetUsers()); user != "" {
			fmt.Fprintf(call.Stderr, "squeue: error: Invalid user: %s\n\n", user)
		}
	}
	sortRows(rows, query.sort, view)
	if query.showsRanges() {
		var err error
		view.Ranges, err = readRanges(call, rows)
		if err != nil {
			return fetch.JobsError(err)
		}
	}
	return call.WriteOut(query.text(rows, view))
}

// isTaskOfKnownArray tells a task that the controller has no record of, while it knows its array:
// the task is over, or was never there, and neither is an error in Slurm.
func isTaskOfKnownArray(call *tool.Call, id string) bool {
	array, _, isTask := strings.Cut(id, "_")
	if !isTask {
		return false
	}
	request := &apiv1.ListJobsRequest{
		Filter: &apiv1.JobFilter{Jobs: []string{array}, AllStates: true},
	}
	var reply apiv1.ListJobsReply
	err := fetch.Jobs(call, request, &reply)
	return err == nil && len(reply.GetJobs()) > 0
}

// makeRows makes the lines of jobs: filtered, arrays expanded, steps or partitions
// apart.
func (q *jobQuery) makeRows(jobs []*apiv1.JobInfo, now int64) []render.JobRow {
	rows := make([]render.JobRow, 0, len(jobs))
	for _, job := range jobs {
		row := render.JobRow{JobInfo: job, Task: -1}
		tasks, some := q.namedTasks(row)
		if slices.ContainsFunc(
			q.keep,
			func(keep func(render.JobRow, int64) bool) bool { return !keep(row, now) },
		) {
			continue
		}
		switch {
		case q.steps:
			rows = q.stepRows(rows, row)
		case some && (q.expand || len(tasks) == 1):
			for _, task := range tasks {
				rows = q.partRows(rows, render.JobRow{JobInfo: job, Task: task})
			}
		case some:
			part := proto.CloneOf(job)
			part.ArrayTasks = nil
			for _, task := range tasks {
				part.ArrayTasks = append(part.ArrayTasks, &apiv1.TaskRange{First: task, Last: task, Step: 1})
			}
			rows = q.partRows(rows, render.JobRow{JobInfo: part, Task: -1})
		case q.expand && row.IsArray():
			for _, t := range job.GetArrayTasks() {
				for i := t.GetFirst(); i <= t.GetLast(); i += max(t.GetStep(), 1) {
					rows = q.partRows(rows, render.JobRow{JobInfo: job, Task: i})
				}
			}
		default:
			rows = q.partRows(rows, row)
		}
	}
	return rows
}

// namedTasks are the tasks of an array's record that -j names one by one, which alone are shown.
// Some is false where the whole record is asked for.
func (q *jobQuery) namedTasks(row render.JobRow) (tasks []int64, some bool) {
	asked := q.req.GetFilter().GetJobs()
	if len(asked) == 0 || !row.IsArray() {
		return nil, false
	}
	array := tool.Itoa(row.GetArrayJobId())
	for _, id := range asked {
		task := askedTask([]string{id})
		base, _, _ := strings.Cut(id, "_")
		switch {
		case base == array && task >= 0:
			if hasTask(row.JobInfo, task) && !slices.Contains(tasks, task) {
				tasks = append(tasks, task)
			}
		case base == array || id == tool.Itoa(row.GetJobId()):
			return nil, false
		}
	}
	return tasks, len(tasks) > 0
}

// hasTask tells whether the record of an array stands for a task.
func hasTask(job *apiv1.JobInfo, task int64) bool {
	return slices.ContainsFunc(job.GetArrayTasks(), func(r *apiv1.TaskRange) bool {
		return task >= r.GetFirst() && task <= r.GetLast() && (task-r.GetFirst())%max(r.GetStep(), 1) == 0
	})
}

func (q *jobQuery) partRows(rows []render.JobRow, row render.JobRow) []render.JobRow {
	if !q.parts || !row.Pending() {
		return append(rows, row)
	}
	for _, p := range tool.SplitList(row.GetPartition()) {
		row.Part = p
		rows = append(rows, row)
	}
	return rows
}

// stepRows adds a job's steps. The batch script is a step too; the controller
// knows it as the job itself.
func (q *jobQuery) stepRows(rows []render.JobRow, row render.JobRow) []render.JobRow {
	if !row.State().Active() {
		return rows
	}
	steps := row.GetSteps()
	if !row.GetSpec().GetShell() &&
		!slices.ContainsFunc(
			steps,
			func(s *apiv1.StepInfo) bool { return spec.StepID(s.GetStepId()) == spec.StepBatch },
		) {
		steps = append(
			[]*apiv1.StepInfo{
				{
					StepId: int32(spec.StepBatch),
					Name:   "batch",
					Nodes:  []string{row.GetBatchHost()},
					Tasks:  1,
					Start:  row.GetStart(),
					State:  row.GetState(),
					Tres:   row.GetAllocTres(),
				},
			},
			steps...)
	}
	for _, s := range steps {
		if s.GetEnd() != 0 {
			continue
		}
		name := "." + spec.StepID(s.GetStepId()).String()
		wanted := len(q.stepIDs) == 0
		for _, id := range q.stepIDs {
			job, step, one := strings.Cut(id, ".")
			ofJob := job == tool.Itoa(row.GetJobId()) ||
				strings.HasPrefix(job, tool.Itoa(row.GetArrayJobId())+"_")
			if ofJob && (!one || "."+step == name) {
				wanted = true
			}
		}
		if wanted {
			row.Step = s
			rows = append(rows, row)
		}
	}
	return rows
}

// text lays the rows out.
func (q *jobQuery) text(rows []render.JobRow, view *render.JobView) []byte {
	fields := make([]*jobField, len(q.columns))
	for i, token := range q.columns {
		for k := range q.fields {
			if field := &q.fields[k]; field.name == token.Field || field.letter == token.Field {
				fields[i] = field
				break
			}
		}
	}
	var buffer []byte
	if q.dated && q.header {
		buffer = append(buffer, view.Date()+"\n"...)
	}
	if q.header {
		buffer = append(buffer, q.before...)
		for i, token := range q.columns {
			buffer = token.Append(buffer, fields[i].head)
		}
		buffer = append(buffer, '\n')
	}
	for _, row := range rows {
		buffer = append(buffer, q.before...)
		for i, token := range q.columns {
			token.Whole = isSpan(token.Field)
			buffer = token.Append(buffer, fields[i].text(view, row))
		}
		buffer = append(buffer, '\n')
	}
	return buffer
}

// isSpan tells the letters of time limit, time used and time left: Slurm cuts their heads
// and not their values, of which a part would be another time.
func isSpan(letter string) bool { return letter == "l" || letter == "M" || letter == "L" }
