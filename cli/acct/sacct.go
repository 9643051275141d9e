package acct

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Formats of sacct's listings.
const (
	sacctFormat = "jobid,jobname,partition,account,alloccpus,state,exitcode"
	sacctBrief  = "jobid,state,exitcode"
	sacctLong   = "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,averss,maxpages,maxpagesnode," +
		"maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,elapsed,state,exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov," +
		"reqmem,consumedenergy,maxdiskread,maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,reqtres,alloctres," +
		"tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,tresusageinmin,tresusageinminnode,tresusageinmintask,tresusageintot,tresusageoutmax," +
		"tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutave,tresusageouttot"
)

//muster:table the options of sacct
func Sacct() *tool.Command {
	const noFederation = tool.NoFederation
	return &tool.Command{
		Name: "sacct", Slurm: true, Mixed: true,
		Summary: "show jobs from the accounting store",
		Usage:   []string{"[OPTIONS]"},
		About: `The window defaults to jobs since midnight; with -j, to all time; with -s, to jobs in the state
now. Without -u and -a, the jobs of this user are shown (for root and with -j, of all users). With -D, a
requeued job has one row per attempt.

While the accounting store does not answer, sacct says so within some seconds and shows what the controller knows by itself:
jobs that wait or run, and those that ended a short while ago. It then ends with 0 only if all jobs named with -j were found.`,
		More: func() string {
			var names []string
			for _, field := range acctFields() {
				names = append(names, field.name)
			}
			return "Fields of -o, each with %width if its own does not fit: " + strings.Join(names, ", ") + "."
		},
		Options: []opt.Option{
			{Long: "accounts", Short: "A", Arg: "<account_list>", Help: "only jobs of these accounts"},
			{Long: "array", Help: "show each pending array task on its own line"},
			{Long: "allclusters", Short: "L", Help: "show this cluster and all that it knows (sacctmgr list cluster)"},
			{Long: "allocations", Short: "X", Help: "show jobs without their steps"},
			{Long: "allusers", Short: "a", Help: "show jobs of all users"},
			{Long: "associations", Short: "x", Arg: "<assoc_list>", Help: "only jobs of these associations, by number"},
			{Long: "batch-script", Short: "B", Help: "print the batch script of each job of -j"},
			{Long: "brief", Short: "b", Help: "show JobID, State and ExitCode only"},
			{Long: "clusters", Short: "M", Arg: "<cluster_list>", Env: "SLURM_CLUSTERS", Help: "clusters to show, one after the other: this one, those that it knows (all), and imported ones"},
			{Long: "completion", Short: "c", Help: "ignored: there is no job completion file, the accounting store has every job"},
			{Long: "constraints", Short: "C", Arg: "<constraint_list>", Help: "only jobs with one of these constraints"},
			{Long: "delimiter", Arg: "<characters>", Help: "field separator for -p and -P"},
			{Long: "duplicates", Short: "D", Help: "show every attempt of requeued jobs"},
			{Long: "endtime", Short: "E", Arg: "<end_time>", Help: "jobs before this time"},
			{Long: "env-vars", Help: "print the environment of each job of -j"},
			{Long: "expand-patterns", Help: "expand the patterns in file names", Always: "they are stored filled in"},
			{Long: "federation", Env: "SACCT_FEDERATION", Help: "include the other clusters of the federation", Always: noFederation},
			{Long: "file", Short: "f", Arg: "<file>", Refused: "Muster does not read job completion files"},
			{Long: "flags", Short: "F", Arg: "<flag_list>", Help: "only jobs with one of these flags"},
			{Long: "format", Also: "fields", Short: "o", Arg: "<fields>", Env: "SACCT_FORMAT", Help: "fields to show"},
			{Long: "gid", Short: "g", Arg: "<gid_list>", Help: "only jobs of these groups, by number or name"},
			{Long: "group", Arg: "<gid_list>", Help: "same as above"},
			{Long: "helpformat", Short: "e", Help: "list the fields that -o accepts"},
			{Long: "helpreason", Help: "list the reasons why jobs wait"},
			{Long: "helpstate", Help: "list the states of jobs"},
			{Long: "jobs", Short: "j", Arg: "<job[.step]>", Help: "only these jobs: 12,36_4,12+1,12.batch"},
			{Long: "json", Arg: "<data_parser>", Maybe: true, Env: "SLURM_JSON", Help: "print JSON"},
			{Long: "local", Env: "SACCT_LOCAL", Help: "show this cluster", Always: noFederation},
			{Long: "long", Short: "l", Help: "show many fields"},
			{Long: "name", Arg: "<jobname_list>", Help: "only jobs of these names"},
			{Long: "ncpus", Short: "I", Arg: "<min[-max]>", Help: "jobs with this number of CPUs"},
			{Long: "nnodes", Short: "i", Arg: "<min[-max]>", Help: "jobs with this number of nodes"},
			{Long: "noconvert", Help: "print amounts in the unit in which they are stored"},
			{Long: "nodelist", Short: "N", Arg: "<node_list>", Help: "only jobs on these nodes"},
			{Long: "noheader", Short: "n", Help: "omit the header"},
			{Long: "parsable", Short: "p", Help: "end every field with |"},
			{Long: "parsable2", Short: "P", Help: "separate fields with |"},
			{Long: "partition", Short: "r", Arg: "<part_list>", Help: "only jobs of these partitions"},
			{Long: "qos", Short: "q", Arg: "<qos_list>", Help: "only jobs of these QOS"},
			{Long: "reason", Short: "R", Arg: "<reason_list>", Help: "only jobs with one of these reasons"},
			{Long: "starttime", Short: "S", Arg: "<start_time>", Help: "jobs after this time"},
			{Long: "state", Short: "s", Arg: "<state_list>", Help: "jobs in these states within the requested time"},
			{Long: "timelimit-max", Short: "K", Arg: "<time>", Help: "with -k: jobs whose time limit is at most this"},
			{Long: "timelimit-min", Short: "k", Arg: "<time>", Help: "jobs with this time limit, or with -K at least this"},
			{Long: "truncate", Short: "T", Help: "truncate start and end to the requested time"},
			{Long: "uid", Short: "u", Arg: "<user_list>", Help: "only jobs of these users"},
			{Long: "user", Arg: "<user_list>", Help: "same as above"},
			{Long: "units", Arg: "[KMGTP]", Help: "print amounts in this unit"},
			{Long: "use-local-uid", Help: "show this host's user numbers", Always: "jobs carry the number they ran with"},
			{Long: "wckeys", Short: "W", Arg: "<wckey_list>", Help: "only jobs with one of these keys"},
			{Long: "whole-hetjob", Arg: "yes|no", Maybe: true, Help: "with -j, whether to show all components of a heterogeneous job or only those named (default: all, if the first is named)"},
			{Long: "yaml", Arg: "<data_parser>", Maybe: true, Env: "SLURM_YAML", Help: "print YAML"},
		},
		Env: []tool.Variable{{Name: "SLURM_TIME_FORMAT", Help: "format of timestamps: standard, relative or a strftime format"}},
		Example: []tool.Example{
			{Line: "sacct -X -S now-7days -s F,TO,OOM", What: "shows what failed in the last week"},
			{Line: "sacct -j 12 -P -o jobid,state,exitcode,elapsed,maxrss", What: "prints one job for a script"},
		},
		Fields: func() []string {
			var out []string
			for _, field := range acctFields() {
				out = append(out, field.name)
			}
			return out
		},
		Run: runSacct,
	}
}

// acctAsk is what sacct asks and how it filters the answer.
type acctAsk struct {
	req  *apiv1.AcctQuery
	keep []func(r *apiv1.AcctRow) bool
	lo   int64 // with -T: starts and ends are cut to these
	hi   int64
}

func runSacct(call *tool.Call) error {
	if len(call.Operands) > 0 {
		lines := []string{"sacct: error: Unknown arguments:"}
		for _, word := range call.Operands {
			lines = append(lines, "sacct: error:  "+word)
		}
		return tool.Fail(1, lines...)
	}
	if call.Opts.On("helpformat") {
		return call.WriteOut(
			render.FieldHelp(acctFields(), func(f acctField) string { return f.name }),
		)
	}
	switch {
	case call.Opts.On("helpstate"):
		return call.WriteOut([]byte(render.JobStateList()))
	case call.Opts.On("helpreason"):
		return call.WriteOut([]byte(render.ReasonList()))
	}
	if call.Opts.On("completion") {
		return tool.Fail(1, "Slurm job completion is disabled")
	}
	fields, err := acctColumns(call)
	if err != nil {
		return err
	}
	query, err := acctQuery(call)
	if err != nil {
		return err
	}
	if err := checkQOSNames(call, query.req.GetQos()); err != nil {
		return err
	}
	if call.Opts.On("batch-script") || call.Opts.On("env-vars") {
		return call.EachCluster(func(call *tool.Call) error { // what was imported has no scripts
			return acctScripts(call, query.req.GetJobs())
		})
	}
	if !render.WantsDocument(call) && len(query.keep) == 0 {
		query.req.Fields = acctNeeds(fields)
	}
	return acctPrint(call, query, fields)
}

// checkQOSNames refuses a QOS that this cluster does not have. What other clusters have is not
// known here, and while the controller is away nothing is.
func checkQOSNames(call *tool.Call, names []string) error {
	if len(names) == 0 || call.Opts.On("clusters") || call.Opts.On("allclusters") {
		return nil
	}
	var policy apiv1.PolicyReply
	if err := call.RPC(tool.MethodGetPolicy, &apiv1.PolicyRequest{}, &policy); err != nil {
		return nil
	}
	var known []string
	for _, qos := range policy.GetQos() {
		known = append(known, qos.GetName())
	}
	for _, name := range names {
		if !slices.Contains(known, strings.ToLower(name)) {
			return tool.Fail(1,
				fmt.Sprintf("sacct: error: You gave a bad qos '%s'. Valid QOS's are %s",
					name, strings.Join(known, ",")),
				"sacct: fatal: problem processing qos list")
		}
	}
	return nil
}

// acctPrint prints the answer as it comes: text piece by piece, a document at
// the end.
func acctPrint(call *tool.Call, query *acctAsk, fields []acctField) error {
	view := &acctView{
		Clock:   render.NewClock(call.Env),
		convert: format.Convert{Exact: true, Keep: call.Opts.On("noconvert")},
	}
	if u := call.Opts.Text("units"); u != "" {
		view.convert = format.Convert{To: strings.ToUpper(u)[0]}
	}
	style := render.TableStyle(call)
	var kept []*apiv1.AcctRow
	var buf []byte
	first := true
	answered := false // by the cluster that is asked
	unknown := call.UnknownUser(query.req.GetUsers())
	behind := uint64(0)
	if call.Opts.On("allclusters") {
		call.Opts.Put("clusters", "all", true, opt.FromCommand)
	}
	sources, err := call.PastClusters()
	if err != nil {
		return err
	}
	if !render.WantsDocument(call) &&
		slices.ContainsFunc(
			fields,
			func(f acctField) bool { return f.name == "QOSRAW" || f.name == "WCKeyID" },
		) &&
		call.Opts.Text("clusters") == "" {
		view.policy = &apiv1.PolicyReply{}
		if err := call.RPCAll(tool.Request{Method: tool.MethodGetPolicy, Req: &apiv1.PolicyRequest{}, Resp: view.policy}); err != nil {
			return err
		}
	}
	each := func(reply *apiv1.AcctReply) error {
		answered = true
		view.cluster, behind = reply.GetCluster(), reply.GetBehind()
		rows := query.filterRows(reply.GetRows(), call.Opts.On("array"))
		if len(rows) == 0 && unknown != "" {
			return nil
		}
		if render.WantsDocument(call) {
			kept = append(kept, rows...)
			return nil
		}
		buf = acctText(buf[:0], style, fields, rows, view, first)
		first = false
		return call.WriteOut(buf)
	}
	jobs := tree.List{}
	code := 0
	for _, source := range sources {
		query.req.Cluster = source.PastCluster()
		answered = false
		behind = 0
		kept = nil
		err := fetch.AccountingRows(source, query.req, each)
		if err != nil && storeIsAway(err) && !answered && query.ledgerCanTell() {
			err = ledgerRows(source, query, err, each)
		}
		if err == nil {
			fetch.WarnBehind(source, behind)
		}
		jobs = append(jobs, acctTree(view, kept)...)
		if source != call {
			err = errors.Join(err, call.EndCluster(source))
		}
		if err != nil && len(sources) == 1 {
			return err
		}
		if err != nil {
			code = call.ReportCluster(source, err)
		}
	}
	if code == 0 && first && len(jobs) == 0 {
		// Accounting may have jobs of a user whom this host does not know, so that this comes last.
		if unknown != "" {
			return call.Errorf("Invalid user id: %s", unknown)
		}
	}
	if render.WantsDocument(call) {
		err := render.Answer(
			call,
			"openapi_slurmdbd_jobs_resp",
			tree.Member{Key: "jobs", Value: jobs},
		)
		if err != nil {
			return err
		}
	}
	if code != 0 {
		return tool.ExitCode(code)
	}
	return nil
}

// acctScripts prints the scripts, or environments, of jobs.
func acctScripts(call *tool.Call, jobs []string) error {
	env := call.Opts.On("env-vars")
	if len(jobs) == 0 {
		return call.Errorf("name the jobs with -j")
	}
	if env && call.Opts.On("batch-script") {
		return call.Errorf("--batch-script and --env-vars exclude each other")
	}
	request := &apiv1.AcctScriptQuery{Jobs: jobs, Environment: env}
	var reply apiv1.AcctScriptReply
	if err := fetch.UpToDate(call, tool.MethodAcctScripts, request, &reply, func(seq uint64) {
		request.MinSeq = seq
	}); err != nil {
		return err
	}
	fetch.WarnBehind(call, reply.GetBehind())
	var buffer []byte
	for _, script := range reply.GetScripts() {
		title, text := "Batch Script for %d\n", string(script.GetData())
		if env {
			title, text = "Environment used for %d (must be batch to display)\n", strings.ReplaceAll(
				strings.TrimSuffix(text, "\x00"),
				"\x00",
				"\n",
			)
		}
		if script.GetMissing() {
			text = "NONE"
		}
		buffer = fmt.Appendf(
			buffer,
			title+reportRule+"%s\n\n",
			script.GetRow().GetJobId(),
			strings.TrimSuffix(text, "\n"),
		)
	}
	return call.WriteOut(buffer)
}

// acctText appends rows, under the header if they are the first.
func acctText(
	data []byte,
	style column.Style,
	fields []acctField,
	rows []*apiv1.AcctRow,
	view *acctView,
	first bool,
) []byte {
	heads := make([]column.Field, len(fields))
	for i, field := range fields {
		heads[i] = column.Field{Name: field.name, Width: field.width}
	}
	if first {
		data = style.Header(data, heads)
	}
	texts := make([]string, len(fields))
	for _, r := range rows {
		for i, field := range fields {
			texts[i] = field.text(view, r)
		}
		data = style.Row(data, heads, texts)
	}
	return data
}

// acctColumns reads -o; a name may be shortened as in Slurm, where the first
// field that begins so is meant.
func acctColumns(call *tool.Call) ([]acctField, error) {
	text := sacctFormat
	given, ok := call.Opts.Get("format")
	switch {
	case ok && (given.From == opt.FromCommand || (!call.Opts.On("brief") && !call.Opts.On("long"))):
		text = given.Text
	case call.Opts.On("brief"):
		text = sacctBrief
	case call.Opts.On("long"):
		text = sacctLong
	}
	fields := acctFields()
	var out []acctField
	for _, part := range tool.SplitList(text) {
		name, width, sized, err := column.Sized(strings.TrimSpace(part))
		if err != nil {
			return nil, call.Errorf("%v", err)
		}
		if strings.EqualFold(name, "all") {
			out = append(out, fields...)
			continue
		}
		i := slices.IndexFunc(
			fields,
			func(f acctField) bool { return strings.EqualFold(f.name, name) },
		)
		if i < 0 && name != "" {
			i = slices.IndexFunc(
				fields,
				func(f acctField) bool { return len(f.name) > len(name) && strings.EqualFold(f.name[:len(name)], name) },
			)
		}
		if i < 0 && strings.EqualFold(name, "allocgres") {
			return nil, tool.Fail(1, "sacct: fatal: AllocGRES has been removed, please use AllocTRES")
		}
		if i < 0 {
			return nil, call.Errorf("Invalid field requested: %q", name)
		}
		field := fields[i]
		if sized {
			field.width = width
		}
		out = append(out, field)
	}
	if u := call.Opts.Text("units"); call.Opts.On("units") &&
		(len(u) != 1 || !strings.Contains("KMGTP", strings.ToUpper(u))) {
		return nil, tool.Fail(1,
			"sacct: error: Invalid unit type '"+u+"'. Possible options are 'KMGTP'",
			"sacct: fatal: Invalid unit type")
	}
	return out, nil
}

func acctQuery(call *tool.Call) (*acctAsk, error) {
	values := call.Opts
	query := &apiv1.AcctQuery{
		Accounts: values.List(
			"accounts",
		), Partitions: values.List("partition"), Qos: values.List("qos"),
		Names: values.List("name"),
		AllocationsOnly: values.On(
			"allocations",
		), Duplicates: values.On("duplicates"), Zone: tool.ZoneName(call.Env),
	}
	request := &acctAsk{req: query}
	for _, id := range tool.SplitJobs(values.Text("jobs")) {
		refs, ok := jobRefs(id)
		if !ok {
			return nil, tool.Fail(1, "sacct: fatal: Bad job/step specified: "+id)
		}
		query.Jobs = append(query.Jobs, refs...)
	}
	if values.On("nodelist") {
		names, err := hostlist.Expand(values.Text("nodelist"))
		if err != nil {
			return nil, call.Errorf("%v", err)
		}
		query.Nodes = names
	}
	for _, id := range values.List("associations") {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, call.Errorf(
				"--associations=%s: expected numbers, as in the field AssocID",
				id,
			)
		}
		query.Associations = append(query.Associations, uint32(n))
	}
	var err error
	query.HetWhole, err = wholeHet(call)
	if err != nil {
		return nil, err
	}
	query.Users = append(values.List("uid"), values.List("user")...)
	// Nobody named: the service shows the caller's own jobs.
	query.AllUsers = len(query.Users) == 0 &&
		(values.On("allusers") || len(query.Jobs) > 0 || call.UID == 0)
	if err := acctStates(call, request); err != nil {
		return nil, err
	}
	if err := acctWindow(call, request); err != nil {
		return nil, err
	}
	return request, acctFilters(call, request)
}

// wholeHet reads --whole-hetjob.
func wholeHet(call *tool.Call) (apiv1.HetWhole, error) {
	if !call.Opts.On("whole-hetjob") {
		return apiv1.HetWhole_HET_WHOLE_LEADERS, nil
	}
	switch text := call.Opts.Text("whole-hetjob"); strings.ToLower(text) {
	case "", "yes":
		return apiv1.HetWhole_HET_WHOLE_ALL, nil
	case "no":
		return apiv1.HetWhole_HET_WHOLE_NONE, nil
	default:
		return 0, call.Errorf("Invalid option --whole-hetjob=%s: expected yes or no", text)
	}
}

// stateRequeued is how the service numbers the end of an attempt that was
// requeued, which is no state of a job.
const stateRequeued = 100

func acctStates(call *tool.Call, query *acctAsk) error {
	never := false
	for _, word := range call.Opts.List("state") {
		switch strings.ToUpper(word) {
		case "REQUEUED", "RQ":
			query.req.States = append(query.req.States, stateRequeued)
			continue
		case "RESIZING", "RS", "REVOKED", "RV":
			never = true // no job of this release is ever in it
			continue
		}
		state, ok := spec.ParseJobState(word)
		if !ok {
			return tool.Fail(
				1,
				fmt.Sprintf(
					"%s: fatal: unrecognized job state value '%s'",
					call.Command.Name,
					word,
				),
			)
		}
		query.req.States = append(query.req.States, uint32(state))
	}
	if never && len(query.req.States) == 0 {
		query.keep = append(query.keep, func(*apiv1.AcctRow) bool { return false })
	}
	return nil
}

// acctWindow chooses the time asked for, by sacct's rules.
func acctWindow(call *tool.Call, query *acctAsk) error {
	now := call.Now()
	at := func(name string) (int64, error) {
		seconds, err := format.ParseTime(
			call.Opts.Text(name),
			format.Moment{Now: now.Unix(), Loc: call.Loc, Past: true},
		)
		if err != nil {
			return 0, tool.Fail(1, tool.BadTimeText(call.Opts.Text(name)))
		}
		return max(seconds*tool.Second, 1), nil // 0 would ask for the default
	}
	var err error
	switch {
	case call.Opts.On("starttime"):
		query.req.Start, err = at("starttime")
		if err != nil {
			return err
		}
	case len(query.req.GetJobs()) > 0:
		query.req.Start = 1
	case call.Opts.On("state"):
		query.req.Start = now.UnixNano()
	default:
		local := now.In(call.Loc)
		query.req.Start = time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, call.Loc).
			UnixNano()
	}
	if call.Opts.On("endtime") {
		query.req.End, err = at("endtime")
		if err != nil {
			return err
		}
	}
	end := cmp.Or(query.req.GetEnd(), now.UnixNano())
	if query.req.GetStart()/tool.Second > end/tool.Second {
		since := ""
		if !call.Opts.On("starttime") {
			since = " Without -S it is " + defaultStart(call.Opts.On("state")) +
				": say with -S since when."
		}
		return call.Errorf(
			"Start time (%s) requested is after end time (%s).%s",
			render.FormatTime(call, query.req.GetStart()),
			render.FormatTime(call, end),
			since,
		)
	}
	query.req.Start = min(query.req.GetStart(), end) // what is typed has no part of a second
	if call.Opts.On("truncate") {
		query.lo, query.hi = query.req.Start, query.req.End
		if query.hi == 0 {
			query.hi = now.UnixNano()
		}
	}
	return nil
}

// defaultStart names the beginning of the window where none is given.
func defaultStart(states bool) string {
	if states {
		return "now (with -s)"
	}
	return "the last midnight"
}

// between reads min[-max].
func amountRange(text string) (lo, hi int64, ok bool) {
	a, b, ranged := strings.Cut(text, "-")
	lo, err := strconv.ParseInt(a, 10, 63)
	hi = lo
	if err == nil && ranged {
		hi, err = strconv.ParseInt(b, 10, 63)
	}
	return lo, hi, err == nil && lo >= 0 && hi >= lo
}

// acctFilters are the filters that the service does not have.
func acctFilters(call *tool.Call, query *acctAsk) error {
	values := call.Opts
	for _, f := range [...]struct {
		name string
		get  func(r *apiv1.AcctRow) int64
	}{{"ncpus", allocCPUs}, {"nnodes", allocNodes}} {
		if values.On(f.name) {
			lo, hi, ok := amountRange(values.Text(f.name))
			if !ok {
				return call.Errorf("--%s=%s: expected min or min-max", f.name, values.Text(f.name))
			}
			query.keep = append(
				query.keep,
				func(r *apiv1.AcctRow) bool { return f.get(r) >= lo && f.get(r) <= hi },
			)
		}
	}
	among := func(name string, get func(r *apiv1.AcctRow) []string) {
		if list := values.List(name); len(list) > 0 {
			query.keep = append(query.keep, func(r *apiv1.AcctRow) bool {
				return slices.ContainsFunc(get(r), func(s string) bool {
					return slices.ContainsFunc(
						list,
						func(l string) bool { return strings.EqualFold(l, s) },
					)
				})
			})
		}
	}
	group := func(r *apiv1.AcctRow) []string { return []string{r.GetGroup(), tool.Itoa(r.GetGroupId())} }
	among("gid", group)
	among("group", group)
	among("reason", func(r *apiv1.AcctRow) []string { return []string{r.GetReason()} })
	among("wckeys", func(r *apiv1.AcctRow) []string { return []string{r.GetWckey()} })
	among("constraints", func(r *apiv1.AcctRow) []string { return []string{r.GetConstraint()} })
	among("flags", func(r *apiv1.AcctRow) []string { return tool.SplitList(r.GetFlags()) })
	return limitFilter(call, query)
}

// limitFilter is -k and -K.
func limitFilter(call *tool.Call, query *acctAsk) error {
	values := call.Opts
	if !values.On("timelimit-min") {
		if values.On("timelimit-max") {
			return call.Errorf("--timelimit-max needs --timelimit-min")
		}
		return nil
	}
	lo, err := format.ParseDuration(values.Text("timelimit-min"))
	hi := lo
	if err == nil && values.On("timelimit-max") {
		hi, err = format.ParseDuration(values.Text("timelimit-max"))
	}
	if err != nil {
		return call.Errorf("%v", err)
	}
	query.keep = append(query.keep, func(r *apiv1.AcctRow) bool {
		n := r.GetTimeLimit() / tool.Second
		if r.GetTimeLimit() < 0 {
			n = format.Infinite
		}
		return n >= lo && n <= hi
	})
	return nil
}

// filterRows filters the answer: jobs by the filters, with them their steps.
func (a *acctAsk) filterRows(list []*apiv1.AcctRow, expand bool) []*apiv1.AcctRow {
	type attempt struct {
		uid uint64
		n   uint32
		re  uint32
	}
	gone := map[attempt]bool{}
	var rows []*apiv1.AcctRow
	for _, r := range list {
		id := attempt{r.GetUid(), r.GetAttempt(), r.GetRestarts()}
		if !isStep(r) &&
			slices.ContainsFunc(
				a.keep,
				func(keep func(*apiv1.AcctRow) bool) bool { return !keep(r) },
			) {
			gone[id] = true
		}
		if gone[id] {
			continue
		}
		a.truncateTimes(r)
		if expand && r.GetArrayTasks() != "" {
			rows = append(rows, expandRow(r)...)
			continue
		}
		rows = append(rows, r)
	}
	return rows
}

func (a *acctAsk) truncateTimes(r *apiv1.AcctRow) {
	if a.hi == 0 || r.GetStart() == 0 {
		return
	}
	r.Start = max(r.GetStart(), a.lo)
	if r.GetEnd() != 0 {
		r.End = min(r.GetEnd(), a.hi)
		r.Elapsed = max(0, r.GetEnd()-r.GetStart())
	}
}

// expandRow makes a row for each task of an array that never started.
func expandRow(r *apiv1.AcctRow) []*apiv1.AcctRow {
	set, err := format.ParseArray(strings.Trim(r.GetArrayTasks(), "[]"))
	if err != nil {
		return []*apiv1.AcctRow{r}
	}
	var rows []*apiv1.AcctRow
	for i := range set.All() {
		task := cloneRow(r)
		task.ArrayTasks, task.ArrayTask = "", int64(i)
		rows = append(rows, task)
	}
	return rows
}
