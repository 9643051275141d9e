package suppose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec/format"
)

// maxRows is how many jobs are listed without --all.
const maxRows = 40

// Suppose is muster suppose.
func Suppose() *tool.Command {
	return &tool.Command{
		Name:    "suppose",
		Summary: "show what changes would do to the queue, without making them",
		Usage:   []string{"[--all|--json|--yaml] 'COMMAND'..."},
		About: `Each argument is one command in quotes, as you would type it: scontrol, sacctmgr, scancel or sbatch with anything that
changes the queue, or "add COUNT nodes like NODE". The controller makes the changes one after the other on a copy of the
cluster, plans the queue with and without them, and lists the jobs whose start differs. Nothing of the cluster changes.

Both plans are those of the next scheduling pass, so they end where a pass ends (bf_max_job_test), and count with the same
run times. Jobs that a change cancels or requeues are taken to have ended at once, and new nodes to be there. You may
suppose what you may do; adding nodes is for operators.`,
		Options: []opt.Option{
			{Long: "all", Short: "a", Help: "list every job, also when there are many"},
			{Long: "json", Help: "print JSON"},
			{Long: "yaml", Help: "print YAML"},
		},
		Example: []tool.Example{
			{
				Line: "muster suppose 'scontrol update nodename=n[1-4] state=drain reason=service'",
				What: "shows who would wait longer if four nodes were drained",
			},
			{
				Line: "muster suppose 'add 8 nodes like n1'",
				What: "shows what eight more nodes would change",
			},
			{
				Line: "muster suppose 'sacctmgr modify qos normal set maxtrespu=gres/gpu=16' 'scancel 1234'",
				What: "shows what a limit and the end of a job would do together",
			},
		},
		Mixed: true,
		Run:   runSuppose,
	}
}

func runSuppose(call *tool.Call) error {
	if len(call.Operands) == 0 {
		return &opt.UsageError{
			Command: "muster suppose",
			Text:    "name at least one command, in quotes",
		}
	}
	request := &apiv1.SupposeRequest{}
	for _, line := range call.Operands {
		changes, err := Collect(call.Ctx, call.Env, line)
		if err != nil {
			return call.Errorf("%s: %v", line, err)
		}
		request.Changes = append(request.Changes, changes...)
	}
	var reply apiv1.SupposeReply
	if err := call.RPC(tool.MethodSuppose, request, &reply); err != nil {
		return refusal(call, err)
	}
	Sort(reply.GetJobs())
	if call.Opts.On("json") || call.Opts.On("yaml") {
		return render.Print(call, document(&reply)...)
	}
	return call.WriteOut([]byte(text(call, &reply)))
}

// refusal says which change was refused, and why, in one line.
func refusal(call *tool.Call, err error) error {
	explained := tool.ExplainError(err)
	if explained.Code == 0 || explained.Detail == "" {
		return err
	}
	return call.Errorf("%s: %s", explained.Detail, explained.Text)
}

// Sort puts those jobs first who are worst off, and among equals the largest
// difference.
func Sort(jobs []*apiv1.SupposedJob) { slices.SortStableFunc(jobs, compareJobs) }

// hasStart tells whether a start is known and not past.
func hasStart(outlook *apiv1.Outlook) bool {
	return outlook.GetStanding() == apiv1.Outlook_STARTING ||
		outlook.GetStanding() == apiv1.Outlook_PLANNED
}

// Delay is by how many nanoseconds a job starts later; false where a start is not
// known on both sides.
func Delay(job *apiv1.SupposedJob) (int64, bool) {
	if !hasStart(job.GetBefore()) || !hasStart(job.GetAfter()) {
		return 0, false
	}
	return job.GetAfter().GetStart() - job.GetBefore().GetStart(), true
}

// concern orders jobs by who is worst off: those that lose their nodes or their start,
// those that start later, those that start earlier, and those that are new or gain a
// start.
func concern(job *apiv1.SupposedJob) int {
	delay, known := Delay(job)
	running := job.GetBefore().GetStanding() == apiv1.Outlook_RUNNING
	switch {
	case running:
		return 0
	case hasStart(job.GetBefore()) && !hasStart(job.GetAfter()):
		return 1
	case known && delay > 0:
		return 2
	case known:
		return 3
	}
	return 4
}

// compareJobs is the order of Sort.
func compareJobs(a, b *apiv1.SupposedJob) int {
	delayA, _ := Delay(a)
	delayB, _ := Delay(b)
	return cmp.Or(
		cmp.Compare(concern(a), concern(b)),
		cmp.Compare(max(delayB, -delayB), max(delayA, -delayA)),
	)
}

// Standing says in words what becomes of a job.
func Standing(clock render.Clock, outlook *apiv1.Outlook) string {
	switch outlook.GetStanding() {
	case apiv1.Outlook_RUNNING:
		return "runs"
	case apiv1.Outlook_EVICTED:
		return "is preempted"
	case apiv1.Outlook_STARTING:
		return "starts now"
	case apiv1.Outlook_PLANNED:
		return clock.Time(outlook.GetStart())
	case apiv1.Outlook_WAITING:
		return "waits (" + cmp.Or(outlook.GetReason().GetCode(), "no start planned") + ")"
	}
	return "-"
}

// Difference says in words what changes for a job.
func Difference(job *apiv1.SupposedJob) string {
	delay, known := Delay(job)
	before, after := job.GetBefore().GetStanding(), job.GetAfter().GetStanding()
	switch {
	case known && delay > 0:
		return render.ShortSpan(delay) + " later"
	case known && delay < 0:
		return render.ShortSpan(-delay) + " earlier"
	case known:
		return "starts now"
	case before == apiv1.Outlook_ABSENT:
		return "new"
	case after == apiv1.Outlook_ABSENT:
		return "ends"
	case before == apiv1.Outlook_RUNNING && after == apiv1.Outlook_EVICTED:
		return "is preempted"
	case before == apiv1.Outlook_RUNNING:
		return "waits again"
	case hasStart(job.GetBefore()):
		return "no start known"
	case hasStart(job.GetAfter()):
		return "gets a start"
	}
	return "waits otherwise"
}

// text is the answer for people.
func text(call *tool.Call, reply *apiv1.SupposeReply) string {
	var out strings.Builder
	for _, note := range reply.GetNotes() {
		fmt.Fprintf(&out, "Supposed: %s\n", render.Clean(note))
	}
	jobs := reply.GetJobs()
	if len(jobs) == 0 {
		waiting := format.Plural(int(reply.GetSame()), "job waits", "jobs wait")
		fmt.Fprintf(&out, "No start would move: %s as before.\n", waiting)
		return out.String()
	}
	shown := jobs
	if !call.Opts.On("all") {
		shown = jobs[:min(len(jobs), maxRows)]
	}
	clock := render.NewClock(call.Env)
	rows := [][]string{{"JOBID", "NAME", "USER", "PARTITION", "NOW", "THEN", "CHANGE", "NODES"}}
	for _, job := range shown {
		rows = append(rows, []string{
			job.GetJob(),
			render.Clean(job.GetName()),
			render.Clean(job.GetUser()),
			render.Clean(job.GetPartition()),
			Standing(clock, job.GetBefore()),
			Standing(clock, job.GetAfter()),
			Difference(job),
			job.GetAfter().GetNodes(),
		})
	}
	out.WriteString(render.AlignedTexts(rows))
	if hidden := len(jobs) - len(shown); hidden > 0 {
		fmt.Fprintf(&out, "... and %d more: --all lists them\n", hidden)
	}
	fmt.Fprintf(&out, "\n%s\n", Summary(reply))
	return out.String()
}

// Summary says in sentences how many jobs are concerned.
func Summary(reply *apiv1.SupposeReply) string {
	var earlier, later, gained int
	for _, job := range reply.GetJobs() {
		switch delay, known := Delay(job); {
		case known && delay > 0:
			later++
		case known && delay < 0:
			earlier++
		case !known && job.GetBefore().GetStanding() == apiv1.Outlook_WAITING && hasStart(job.GetAfter()):
			gained++
		}
	}
	said := fmt.Sprintf(
		"%s earlier, %s later, %d waiting as before. Starting at once: %d now, %d then.",
		format.Plural(earlier, "job", "jobs"),
		format.Plural(later, "job", "jobs"),
		reply.GetSame(),
		reply.GetStartedBefore(),
		reply.GetStartedAfter(),
	)
	if gained > 0 {
		said += fmt.Sprintf("\n%s a start that had none.", format.Plural(gained, "job gets", "jobs get"))
	}
	if both := reply.GetBoth(); both > 0 && reply.GetDelay() != 0 {
		mean := reply.GetDelay() / both
		word := "later"
		if mean < 0 {
			mean, word = -mean, "earlier"
		}
		said += fmt.Sprintf(
			"\nOn average over the %s with a start on both sides: %s %s.",
			format.Plural(int(both), "job", "jobs"),
			render.ShortSpan(mean),
			word,
		)
	}
	if reply.GetTruncated() {
		said += "\nThe plans end at bf_max_job_test: jobs behind it are not in them."
	}
	return said
}

// document is the answer for programs. Times are seconds since 1970, spans seconds.
func document(reply *apiv1.SupposeReply) tree.Object {
	jobs := tree.List{}
	for _, job := range reply.GetJobs() {
		row := tree.Object{
			{Key: "job", Value: job.GetJob()},
			{Key: "job_id", Value: job.GetJobId()},
			{Key: "name", Value: job.GetName()},
			{Key: "user", Value: job.GetUser()},
			{Key: "account", Value: job.GetAccount()},
			{Key: "partition", Value: job.GetPartition()},
			{Key: "before", Value: outlookTree(job.GetBefore())},
			{Key: "after", Value: outlookTree(job.GetAfter())},
		}
		if delay, known := Delay(job); known {
			row = append(row, tree.Member{Key: "delay", Value: delay / tool.Second})
		}
		jobs = append(jobs, row)
	}
	notes := tree.List{}
	for _, note := range reply.GetNotes() {
		notes = append(notes, note)
	}
	return tree.Object{
		{Key: "time", Value: reply.GetNow() / tool.Second},
		{Key: "event", Value: reply.GetSeq()},
		{Key: "notes", Value: notes},
		{Key: "jobs", Value: jobs},
		{Key: "unchanged", Value: reply.GetSame()},
		{Key: "starting_before", Value: reply.GetStartedBefore()},
		{Key: "starting_after", Value: reply.GetStartedAfter()},
		{Key: "starts_on_both_sides", Value: reply.GetBoth()},
		{Key: "delay_in_sum", Value: reply.GetDelay() / tool.Second},
		{Key: "truncated", Value: reply.GetTruncated()},
	}
}

func outlookTree(outlook *apiv1.Outlook) tree.Object {
	object := tree.Object{{Key: "standing", Value: strings.ToLower(outlook.GetStanding().String())}}
	if hasStart(outlook) {
		object = append(object, tree.Member{Key: "start", Value: outlook.GetStart() / tool.Second})
	}
	if outlook.GetNodes() != "" {
		object = append(object, tree.Member{Key: "nodes", Value: outlook.GetNodes()})
	}
	if code := outlook.GetReason().GetCode(); code != "" {
		object = append(object, tree.Member{Key: "reason", Value: code})
	}
	return object
}
