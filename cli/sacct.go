package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/opt"
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
func sacctCommand() *command {
	const noFederation = "there is one cluster and no federation"
	return &command{
		name: "sacct", slurm: true, mixed: true,
		summary: "show jobs from the accounting store",
		usage:   []string{"[OPTIONS]"},
		about: `Without -S, jobs since midnight; with -j, of all time; with -s, those that are in the state now. Without -u and -a,
the jobs of this user (of all users for root and with -j). A job that was requeued has one row for each attempt with -D.`,
		more: func() string {
			var names []string
			for _, f := range acctFields() {
				names = append(names, f.name)
			}
			return "Fields of -o, each with %width if its own does not fit: " + strings.Join(names, ", ") + "."
		},
		options: []opt.Option{
			{Long: "accounts", Short: "A", Arg: "<account_list>", Help: "only jobs of these accounts"},
			{Long: "array", Help: "one line for each task of an array that has not started"},
			{Long: "allclusters", Short: "L", Help: "show this cluster; those that were imported are named with -M", Always: noFederation},
			{Long: "allocations", Short: "X", Help: "jobs only, without their steps"},
			{Long: "allusers", Short: "a", Help: "jobs of all users"},
			{Long: "associations", Short: "x", Arg: "<assoc_list>", Help: "only jobs of these associations, by number"},
			{Long: "batch-script", Short: "B", Help: "print the batch script of each job of -j instead"},
			{Long: "brief", Short: "b", Help: "jobid, state and exitcode"},
			{Long: "clusters", Short: "M", Arg: "<cluster_list>", Env: "SLURM_CLUSTERS", Help: "this cluster, those that were imported, or several of them one after the other"},
			{Long: "completion", Short: "c", Help: "read the job completion file: there is none, the accounting store has every job"},
			{Long: "constraints", Short: "C", Arg: "<constraint_list>", Help: "only jobs with one of these constraints"},
			{Long: "delimiter", Arg: "<characters>", Help: "what stands between fields with -p and -P"},
			{Long: "duplicates", Short: "D", Help: "every attempt of a job that was requeued"},
			{Long: "endtime", Short: "E", Arg: "<end_time>", Help: "jobs before this time"},
			{Long: "env-vars", Help: "print the environment of each job of -j instead"},
			{Long: "expand-patterns", Help: "fill in the patterns of file names", Always: "they are stored filled in"},
			{Long: "federation", Env: "SACCT_FEDERATION", Refused: noFederation},
			{Long: "file", Short: "f", Arg: "<file>", Refused: "job completion files are not read"},
			{Long: "flags", Short: "F", Arg: "<flag_list>", Help: "only jobs with one of these flags"},
			{Long: "format", Short: "o", Arg: "<fields>", Env: "SACCT_FORMAT", Help: "fields to show"},
			{Long: "gid", Short: "g", Arg: "<gid_list>", Help: "only jobs of these groups, by number or name"},
			{Long: "group", Arg: "<gid_list>", Help: "the same"},
			{Long: "helpformat", Short: "e", Help: "list the fields of -o"},
			{Long: "jobs", Short: "j", Arg: "<job[.step]>", Help: "only these jobs: 12,36_4,12+1,12.batch"},
			{Long: "json", Arg: "<data_parser>", Maybe: true, Env: "SLURM_JSON", Help: "print JSON"},
			{Long: "local", Env: "SACCT_LOCAL", Help: "show this cluster", Always: noFederation},
			{Long: "long", Short: "l", Help: "many fields"},
			{Long: "name", Arg: "<jobname_list>", Help: "only jobs of these names"},
			{Long: "ncpus", Short: "I", Arg: "<min[-max]>", Help: "only jobs of so many CPUs"},
			{Long: "nnodes", Short: "i", Arg: "<min[-max]>", Help: "only jobs of so many nodes"},
			{Long: "noconvert", Help: "leave amounts in the unit they are kept in"},
			{Long: "nodelist", Short: "N", Arg: "<node_list>", Help: "only jobs on these nodes"},
			{Long: "noheader", Short: "n", Help: "print no header"},
			{Long: "parsable", Short: "p", Help: "| behind every field"},
			{Long: "parsable2", Short: "P", Help: "| between fields"},
			{Long: "partition", Short: "r", Arg: "<part_list>", Help: "only jobs of these partitions"},
			{Long: "qos", Short: "q", Arg: "<qos_list>", Help: "only jobs of these QOS"},
			{Long: "reason", Short: "R", Arg: "<reason_list>", Help: "only jobs with one of these reasons"},
			{Long: "starttime", Short: "S", Arg: "<start_time>", Help: "jobs after this time"},
			{Long: "state", Short: "s", Arg: "<state_list>", Help: "only jobs in these states in the time asked for"},
			{Long: "timelimit-max", Short: "K", Arg: "<time>", Help: "with -k: only jobs with at most this limit"},
			{Long: "timelimit-min", Short: "k", Arg: "<time>", Help: "only jobs with this limit, or with -K at least this"},
			{Long: "truncate", Short: "T", Help: "cut starts and ends to the time asked for"},
			{Long: "uid", Short: "u", Arg: "<user_list>", Help: "only jobs of these users"},
			{Long: "user", Arg: "<user_list>", Help: "the same"},
			{Long: "units", Arg: "[KMGTP]", Help: "print amounts in this unit"},
			{Long: "use-local-uid", Help: "show this host's user numbers", Always: "jobs carry the number they ran with"},
			{Long: "wckeys", Short: "W", Arg: "<wckey_list>", Help: "only jobs with one of these keys"},
			{Long: "whole-hetjob", Arg: "yes|no", Maybe: true, Help: "with -j, all components of a heterogeneous job, or only those named; without it all for the number of the first, the leader"},
			{Long: "yaml", Arg: "<data_parser>", Maybe: true, Env: "SLURM_YAML", Help: "print YAML"},
		},
		env: []variable{{"SLURM_TIME_FORMAT", "how points in time are written: standard, relative or a strftime format"}},
		example: []example{
			{"sacct -X -S now-7days -s F,TO,OOM", "shows what failed in the last week"},
			{"sacct -j 12 -P -o jobid,state,exitcode,elapsed,maxrss", "prints one job for a script"},
		},
		run: runSacct,
	}
}

// acctAsk is what sacct asks and how it filters the answer.
type acctAsk struct {
	req  *apiv1.AcctQuery
	keep []func(r *apiv1.AcctRow) bool
	lo   int64 // with -T: starts and ends are cut to these
	hi   int64
}

func runSacct(c *call) error {
	if len(c.args) > 0 {
		return c.errorf("Unrecognized option: %s", c.args[0])
	}
	if c.opts.On("helpformat") {
		return c.write(fieldHelp(acctFields(), func(f acctField) string { return f.name }))
	}
	if c.opts.On("completion") {
		return fail(1, "Slurm job completion is disabled")
	}
	fields, err := c.acctColumns()
	if err != nil {
		return err
	}
	ask, err := c.acctQuery()
	if err != nil {
		return err
	}
	if c.opts.On("batch-script") || c.opts.On("env-vars") {
		if err := c.checkClusters(); err != nil { // what was imported has no scripts
			return err
		}
		return c.acctScripts(ask.req.GetJobs())
	}
	if !c.wantsTree() && len(ask.keep) == 0 {
		ask.req.Fields = acctNeeds(fields)
	}
	return c.acctPrint(ask, fields)
}

// acctPrint prints the answer as it comes: text piece by piece, a document at
// the end.
func (c *call) acctPrint(ask *acctAsk, fields []acctColumn) error {
	view := &acctView{clock: c.clock(), convert: format.Convert{Exact: true, Keep: c.opts.On("noconvert")}}
	if u := c.opts.Text("units"); u != "" {
		view.convert = format.Convert{To: strings.ToUpper(u)[0]}
	}
	style := c.tableStyle()
	var kept []*apiv1.AcctRow
	var buf []byte
	first, behind := true, uint64(0)
	clusters := c.opts.List("clusters")
	if len(clusters) < 2 {
		clusters = []string{c.pastCluster()}
	} else if c.wantsTree() {
		return c.errorf("--json and --yaml are about one cluster: ask for %s one by one", strings.Join(clusters, ", "))
	}
	if !c.wantsTree() && slices.ContainsFunc(fields, func(f acctColumn) bool { return f.name == "QOSRAW" || f.name == "WCKeyID" }) && c.opts.Text("clusters") == "" {
		view.policy = &apiv1.PolicyReply{}
		if err := c.askAll(question{methodGetPolicy, &apiv1.PolicyRequest{}, view.policy}); err != nil {
			return err
		}
	}
	each := func(rep *apiv1.AcctReply) error {
		view.cluster, behind = rep.GetCluster(), rep.GetBehind()
		rows := ask.rows(rep.GetRows(), c.opts.On("array"))
		if c.wantsTree() {
			kept = append(kept, rows...)
			return nil
		}
		buf = acctText(buf[:0], style, fields, rows, view, first)
		first = false
		return c.write(buf)
	}
	for _, ask.req.Cluster = range clusters {
		if err := c.acctStream(ask.req, each); err != nil {
			return err
		}
	}
	c.warnBehind(behind)
	if c.wantsTree() {
		return c.structured(c.opts.On("json"), acctTree(c, view, kept))
	}
	return nil
}

// acctStream asks for rows that hold everything which happened before the
// question, and hands each piece on.
func (c *call) acctStream(req *apiv1.AcctQuery, each func(*apiv1.AcctReply) error) error {
	var err error
	if req.MinSeq, err = c.lastSeq(methodAcctRows); err != nil {
		return err
	}
	return stream(c, methodAcctRows, req, each)
}

// stream makes a call and hands each message of the answer on.
func stream[M any, P interface {
	*M
	protoMessage
}](c *call, method string, req protoMessage, each func(P) error) error {
	conn, err := c.connectFor(method)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	s, err := conn.Stream(ctx, method, req)
	if err != nil {
		return err
	}
	defer s.Close()
	began := c.Now()
	for n := 0; ; n++ {
		m := P(new(M))
		switch err := s.Recv(m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if n == 0 {
			c.traced(method, began, req, m)
		}
		if err := each(m); err != nil {
			return err
		}
	}
}

// acctScripts prints the scripts, or environments, of jobs.
func (c *call) acctScripts(jobs []string) error {
	env := c.opts.On("env-vars")
	if len(jobs) == 0 {
		return c.errorf("name the jobs with -j")
	}
	if env && c.opts.On("batch-script") {
		return c.errorf("--batch-script and --env-vars exclude each other")
	}
	req := &apiv1.AcctScriptQuery{Jobs: jobs, Environment: env}
	var rep apiv1.AcctScriptReply
	if err := c.askFresh(methodAcctScripts, req, &rep, func(seq uint64) { req.MinSeq = seq }); err != nil {
		return err
	}
	c.warnBehind(rep.GetBehind())
	var b []byte
	for _, s := range rep.GetScripts() {
		title, text := "Batch Script for %d\n", string(s.GetData())
		if env {
			title, text = "Environment used for %d (must be batch to display)\n", strings.ReplaceAll(strings.TrimSuffix(text, "\x00"), "\x00", "\n")
		}
		if s.GetMissing() {
			text = "NONE"
		}
		b = fmt.Appendf(b, title+reportRule+"%s\n\n", s.GetRow().GetJobId(), strings.TrimSuffix(text, "\n"))
	}
	return c.write(b)
}

// askFresh asks accounting for an answer that holds everything which happened
// before the question.
func (c *call) askFresh(method string, req, rep protoMessage, since func(seq uint64)) error {
	seq, err := c.lastSeq(method)
	if err != nil {
		return err
	}
	since(seq)
	return c.ask(method, req, rep)
}

func (c *call) warnBehind(behind uint64) {
	if behind > 0 && !c.opts.On("quiet") {
		fmt.Fprintf(c.Stderr, "%s: warning: the accounting store is %d events behind; the newest jobs may be missing\n", c.cmd.name, behind)
	}
}

// tableStyle is the style of -p, -P, -n and --delimiter.
func (c *call) tableStyle() column.Style {
	return column.Style{Parsable: c.opts.On("parsable") || c.opts.On("parsable2"), Trailing: c.opts.On("parsable") && !c.opts.On("parsable2"),
		Delim: c.opts.Text("delimiter"), NoHeader: c.opts.On("noheader")}
}

// acctText appends rows, under the header if they are the first.
func acctText(b []byte, style column.Style, fields []acctColumn, rows []*apiv1.AcctRow, view *acctView, first bool) []byte {
	heads := make([]column.Field, len(fields))
	for i, f := range fields {
		heads[i] = column.Field{Name: f.name, Width: f.width}
	}
	if first {
		b = style.Header(b, heads)
	}
	texts := make([]string, len(fields))
	for _, r := range rows {
		for i, f := range fields {
			texts[i] = f.text(view, r)
		}
		b = style.Row(b, heads, texts)
	}
	return b
}

// acctColumn is a field with the width in which it is shown.
type acctColumn struct {
	acctField
}

// acctColumns reads -o; a name may be shortened as in Slurm, where the first
// field that begins so is meant.
func (c *call) acctColumns() ([]acctColumn, error) {
	text := sacctFormat
	given, ok := c.opts.Get("format")
	switch {
	case ok && (given.From == opt.FromCommand || (!c.opts.On("brief") && !c.opts.On("long"))):
		text = given.Text
	case c.opts.On("brief"):
		text = sacctBrief
	case c.opts.On("long"):
		text = sacctLong
	}
	fields := acctFields()
	var out []acctColumn
	for _, part := range splitList(text) {
		name, width, sized, err := column.Sized(strings.TrimSpace(part))
		if err != nil {
			return nil, c.errorf("%v", err)
		}
		if strings.EqualFold(name, "all") {
			for _, f := range fields {
				out = append(out, acctColumn{f})
			}
			continue
		}
		i := slices.IndexFunc(fields, func(f acctField) bool { return strings.EqualFold(f.name, name) })
		if i < 0 && name != "" {
			i = slices.IndexFunc(fields, func(f acctField) bool { return len(f.name) > len(name) && strings.EqualFold(f.name[:len(name)], name) })
		}
		if i < 0 {
			return nil, c.errorf("Invalid field requested: %q", name)
		}
		f := fields[i]
		if sized {
			f.width = width
		}
		out = append(out, acctColumn{f})
	}
	if u := c.opts.Text("units"); c.opts.On("units") && (len(u) != 1 || !strings.Contains("KMGTP", strings.ToUpper(u))) {
		return nil, c.errorf("Invalid option --units=%s: expected one of K, M, G, T, P", u)
	}
	return out, nil
}

// fieldHelp is --helpformat: the names in four columns.
func fieldHelp[F any](fields []F, name func(F) string) []byte {
	var b []byte
	for i, f := range fields {
		switch {
		case i > 0 && i%4 == 0:
			b = append(b, '\n')
		case i > 0:
			b = append(b, ' ')
		}
		b = append(b, fmt.Sprintf("%-19s", name(f))...)
	}
	return append(b, '\n')
}

func (c *call) acctQuery() (*acctAsk, error) {
	o := c.opts
	q := &apiv1.AcctQuery{
		Accounts: o.List("accounts"), Partitions: o.List("partition"), Qos: o.List("qos"), Names: o.List("name"),
		AllocationsOnly: o.On("allocations"), Duplicates: o.On("duplicates"), Zone: zoneName(c.Env),
	}
	a := &acctAsk{req: q}
	for _, id := range splitJobs(o.Text("jobs")) {
		refs, ok := jobRefs(id)
		if !ok {
			return nil, fail(1, c.cmd.name+": error: Invalid job id: "+id)
		}
		q.Jobs = append(q.Jobs, refs...)
	}
	if o.On("nodelist") {
		names, err := hostlist.Expand(o.Text("nodelist"))
		if err != nil {
			return nil, c.errorf("%v", err)
		}
		q.Nodes = names
	}
	for _, id := range o.List("associations") {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, c.errorf("--associations=%s: expected numbers, as in the field AssocID", id)
		}
		q.Associations = append(q.Associations, uint32(n))
	}
	var err error
	if q.HetWhole, err = c.wholeHet(); err != nil {
		return nil, err
	}
	q.Users = append(o.List("uid"), o.List("user")...)
	// Nobody named: the service shows the caller's own jobs.
	q.AllUsers = len(q.Users) == 0 && (o.On("allusers") || len(q.Jobs) > 0 || c.UID == 0)
	if err := c.acctStates(a); err != nil {
		return nil, err
	}
	if err := c.acctWindow(a); err != nil {
		return nil, err
	}
	return a, c.acctFilters(a)
}

// wholeHet reads --whole-hetjob.
func (c *call) wholeHet() (apiv1.HetWhole, error) {
	if !c.opts.On("whole-hetjob") {
		return apiv1.HetWhole_HET_WHOLE_LEADERS, nil
	}
	switch text := c.opts.Text("whole-hetjob"); strings.ToLower(text) {
	case "", "yes":
		return apiv1.HetWhole_HET_WHOLE_ALL, nil
	case "no":
		return apiv1.HetWhole_HET_WHOLE_NONE, nil
	default:
		return 0, c.errorf("Invalid option --whole-hetjob=%s: expected yes or no", text)
	}
}

// jobRefs reads 12, 36_4, 12+1, 12.batch; 36_[1-3] is written out, which the service
// does not read.
func jobRefs(id string) ([]string, bool) {
	job, step, stepped := strings.Cut(id, ".")
	if whole, part, ok := strings.Cut(job, "+"); ok && validJob(whole) && digitsOf(whole) == len(whole) && part != "" && digitsOf(part) == len(part) && (!stepped || step != "") {
		return []string{id}, true
	}
	if !validJob(job) || (stepped && step == "") {
		return nil, false
	}
	base, tasks, isTask := strings.Cut(job, "_")
	if !isTask || !strings.HasPrefix(tasks, "[") {
		return []string{strings.TrimSuffix(id, "_*")}, true
	}
	set, err := format.ParseArray(tasks)
	if err != nil || set.Count() > 10000 {
		return nil, false
	}
	var out []string
	for i := range set.All() {
		ref := base + "_" + itoa(i)
		if stepped {
			ref += "." + step
		}
		out = append(out, ref)
	}
	return out, true
}

// zoneName is the IANA name of the zone in which days begin.
func zoneName(e *Env) string {
	if tz := strings.TrimPrefix(e.Getenv("TZ"), ":"); tz != "" && !strings.HasPrefix(tz, "/") {
		return tz
	}
	if name := e.Loc.String(); name != "Local" {
		return name
	}
	return localZone()
}

// stateRequeued is how the service numbers the end of an attempt that was
// requeued, which is no state of a job.
const stateRequeued = 100

func (c *call) acctStates(a *acctAsk) error {
	never := false
	for _, word := range c.opts.List("state") {
		switch strings.ToUpper(word) {
		case "REQUEUED", "RQ":
			a.req.States = append(a.req.States, stateRequeued)
			continue
		case "RESIZING", "RS", "REVOKED", "RV":
			never = true // no job of this release is ever in it
			continue
		}
		s, ok := spec.ParseJobState(word)
		if !ok {
			return fail(1, fmt.Sprintf("%s: fatal: unrecognized job state value '%s'", c.cmd.name, word))
		}
		a.req.States = append(a.req.States, uint32(s))
	}
	if never && len(a.req.States) == 0 {
		a.keep = append(a.keep, func(*apiv1.AcctRow) bool { return false })
	}
	return nil
}

// acctWindow chooses the time asked for, by sacct's rules.
func (c *call) acctWindow(a *acctAsk) error {
	now := c.Now()
	at := func(name string) (int64, error) {
		sec, err := format.ParseTime(c.opts.Text(name), format.Moment{Now: now.Unix(), Loc: c.Loc, Past: true})
		if err != nil {
			return 0, fail(1, badTime(c.opts.Text(name)))
		}
		return max(sec*second, 1), nil // 0 would ask for the default
	}
	var err error
	switch {
	case c.opts.On("starttime"):
		if a.req.Start, err = at("starttime"); err != nil {
			return err
		}
	case len(a.req.GetJobs()) > 0:
		a.req.Start = 1
	case c.opts.On("state"):
		a.req.Start = now.UnixNano()
	default:
		local := now.In(c.Loc)
		a.req.Start = time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, c.Loc).UnixNano()
	}
	if c.opts.On("endtime") {
		if a.req.End, err = at("endtime"); err != nil {
			return err
		}
	}
	end := cmp.Or(a.req.GetEnd(), now.UnixNano())
	if a.req.GetStart()/second > end/second {
		since := ""
		if !c.opts.On("starttime") {
			since = " Without -S it is " + defaultStart(c.opts.On("state")) + ": say with -S since when."
		}
		return c.errorf("Start time (%s) requested is after end time (%s).%s", c.time(a.req.GetStart()), c.time(end), since)
	}
	a.req.Start = min(a.req.GetStart(), end) // what is typed has no part of a second
	if c.opts.On("truncate") {
		a.lo, a.hi = a.req.Start, a.req.End
		if a.hi == 0 {
			a.hi = now.UnixNano()
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
func (c *call) acctFilters(a *acctAsk) error {
	o := c.opts
	for _, f := range [...]struct {
		name string
		get  func(r *apiv1.AcctRow) int64
	}{{"ncpus", allocCPUs}, {"nnodes", allocNodes}} {
		if o.On(f.name) {
			lo, hi, ok := amountRange(o.Text(f.name))
			if !ok {
				return c.errorf("--%s=%s: expected min or min-max", f.name, o.Text(f.name))
			}
			a.keep = append(a.keep, func(r *apiv1.AcctRow) bool { return f.get(r) >= lo && f.get(r) <= hi })
		}
	}
	among := func(name string, get func(r *apiv1.AcctRow) []string) {
		if list := o.List(name); len(list) > 0 {
			a.keep = append(a.keep, func(r *apiv1.AcctRow) bool {
				return slices.ContainsFunc(get(r), func(s string) bool {
					return slices.ContainsFunc(list, func(l string) bool { return strings.EqualFold(l, s) })
				})
			})
		}
	}
	group := func(r *apiv1.AcctRow) []string { return []string{r.GetGroup(), itoa(r.GetGroupId())} }
	among("gid", group)
	among("group", group)
	among("reason", func(r *apiv1.AcctRow) []string { return []string{r.GetReason()} })
	among("wckeys", func(r *apiv1.AcctRow) []string { return []string{r.GetWckey()} })
	among("constraints", func(r *apiv1.AcctRow) []string { return []string{r.GetConstraint()} })
	among("flags", func(r *apiv1.AcctRow) []string { return splitList(r.GetFlags()) })
	return c.limitFilter(a)
}

// limitFilter is -k and -K.
func (c *call) limitFilter(a *acctAsk) error {
	o := c.opts
	if !o.On("timelimit-min") {
		if o.On("timelimit-max") {
			return c.errorf("--timelimit-max needs --timelimit-min")
		}
		return nil
	}
	lo, err := format.ParseDuration(o.Text("timelimit-min"))
	hi := lo
	if err == nil && o.On("timelimit-max") {
		hi, err = format.ParseDuration(o.Text("timelimit-max"))
	}
	if err != nil {
		return c.errorf("%v", err)
	}
	a.keep = append(a.keep, func(r *apiv1.AcctRow) bool {
		n := r.GetTimeLimit() / second
		if r.GetTimeLimit() < 0 {
			n = format.Infinite
		}
		return n >= lo && n <= hi
	})
	return nil
}

// rows filters the answer: jobs by the filters, with them their steps.
func (a *acctAsk) rows(list []*apiv1.AcctRow, expand bool) []*apiv1.AcctRow {
	type attempt struct {
		uid uint64
		n   uint32
		re  uint32
	}
	gone := map[attempt]bool{}
	var out []*apiv1.AcctRow
	for _, r := range list {
		id := attempt{r.GetUid(), r.GetAttempt(), r.GetRestarts()}
		if !isStep(r) && slices.ContainsFunc(a.keep, func(keep func(*apiv1.AcctRow) bool) bool { return !keep(r) }) {
			gone[id] = true
		}
		if gone[id] {
			continue
		}
		a.truncate(r)
		if expand && r.GetArrayTasks() != "" {
			out = append(out, expandRow(r)...)
			continue
		}
		out = append(out, r)
	}
	return out
}

func (a *acctAsk) truncate(r *apiv1.AcctRow) {
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
	var out []*apiv1.AcctRow
	for i := range set.All() {
		task := cloneRow(r)
		task.ArrayTasks, task.ArrayTask = "", int64(i)
		out = append(out, task)
	}
	return out
}

// lastSeq is what has happened so far, for a question to accounting. Where
// that runs in a process of its own it answers also without a controller, and
// while that is away nothing new happens.
func (c *call) lastSeq(method string) (uint64, error) {
	var ping apiv1.PingReply
	if err := c.ask(methodPing, &apiv1.PingRequest{}, &ping); err != nil {
		if _, perr := c.connectFor(method); perr != nil || c.past == nil {
			return 0, err
		}
	}
	return ping.GetSeq(), nil
}
