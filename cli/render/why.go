package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/plain"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// WhyView is how an explanation is written.
type WhyView struct {
	JobView
	Asked  string
	Colour bool
}

// markBold marks the words that answer the question.
func (v *WhyView) markBold(text string) string {
	if !v.Colour {
		return text
	}
	return string(boldOn) + text + string(boldOff)
}

// Where bold text begins and ends, before the text is made plain. The characters
// are of the area for private use: whoever writes them into a name gets bold text.
const (
	boldOn  = '\ue000'
	boldOff = '\ue001'
)

// Screen is the text for a terminal or a file: what others have written acts on
// neither.
func (v *WhyView) Screen(reply *apiv1.WhyReply) string {
	text := plain.Text(v.Text(reply))
	if !v.Colour {
		return text
	}
	return strings.NewReplacer(string(boldOn), "\x1b[1m", string(boldOff), "\x1b[0m").Replace(text)
}

// formatWhen writes a point in time with how far it is away.
func (v *WhyView) formatWhen(ns int64) string {
	if ns <= v.Now {
		return "now"
	}
	return v.Time(ns) + ", in " + Span(ns-v.Now)
}

// Text is the explanation for people.
func (v *WhyView) Text(reply *apiv1.WhyReply) string {
	job := reply.GetJob()
	id := v.ID(JobRow{JobInfo: job, Task: -1})
	if strings.Contains(v.Asked, "_") && !strings.Contains(v.Asked, "[") {
		id = v.Asked
	}
	head := fmt.Sprintf(
		"Job %s (%s) of %s",
		id,
		job.GetSpec().GetName(),
		cmp.Or(job.GetUser(), tool.Itoa(job.GetUserId())),
	)
	var text strings.Builder
	if spec.JobState(job.GetState()) != spec.Pending {
		text.WriteString(v.notWaiting(head, job))
		if faults := v.faultLines(reply); len(faults) > 0 {
			text.WriteByte('\n')
			v.writePart(&text, "Its GPUs", faults)
		}
		if past := v.historyLines(reply.GetHistory()); len(past) > 0 {
			text.WriteByte('\n')
			v.writePart(&text, "It waited", past)
		}
		return text.String()
	}
	fmt.Fprintf(
		&text,
		"%s %s in partition %s for %s.\n\n",
		head,
		v.markBold("waits"),
		strings.ReplaceAll(job.GetPartition(), ",", " or "),
		Span(v.Now-job.GetSubmit()),
	)
	for _, part := range v.Parts(reply) {
		v.writePart(&text, part.Title, part.Lines)
	}
	return text.String()
}

// WhyPart is one answer of an explanation: what it is about, and its sentences.
// A sentence that begins with two spaces is a row of a table.
type WhyPart struct {
	Title string
	Lines []string
}

// Parts are the answers about a job that waits; those without a sentence are
// left out.
func (v *WhyView) Parts(reply *apiv1.WhyReply) []WhyPart {
	parts := []WhyPart{
		{
			"Why",
			append(
				[]string{v.markBold(cmp.Or(reply.GetReason().GetCode(), "None"))},
				v.Because(reply)...,
			),
		},
		{"Start", v.startLines(reply)},
		{"Needs", []string{v.listNeeds(reply)}},
		{"Expected", v.expectedLines(reply)},
		{"Guaranteed", reply.GetGuarantee()},
		{"In the way", v.blockerLines(reply)},
		{"Nodes", v.nodeLines(reply)},
		{"Would help", v.adviceLines(reply)},
	}
	if past := v.historyLines(reply.GetHistory()); len(past) > 1 {
		parts = append(parts, WhyPart{"So far", past})
	}
	return slices.DeleteFunc(parts, func(p WhyPart) bool { return len(p.Lines) == 0 })
}

const whyMargin = 12

// tableRow begins a line of a table, which stays as it is.
const tableRow = "  "

// writePart writes a title in the margin and its lines beside it.
func (v *WhyView) writePart(b *strings.Builder, title string, text []string) {
	for i, t := range text {
		lead := ""
		if i == 0 {
			lead = title
		}
		wrapped := tool.Lines(t, tool.HelpWidth-whyMargin)
		if row, ok := strings.CutPrefix(t, tableRow); ok {
			wrapped = []string{row}
		}
		for _, line := range wrapped {
			fmt.Fprintf(b, "%-*s%s\n", whyMargin, lead, line)
			lead = ""
		}
	}
}

// notWaiting tells what became of a job that does not wait.
func (v *WhyView) notWaiting(head string, job *apiv1.JobInfo) string {
	state := spec.JobState(job.GetState())
	switch {
	case job.GetCompleting():
		return fmt.Sprintf(
			"%s does not wait: it has ended (%s) and its nodes %s are being cleaned up.\n",
			head,
			state,
			job.GetNodes(),
		)
	case job.GetConfiguring():
		text := fmt.Sprintf(
			"%s has its nodes, %s, and waits for %s to boot: it was given them %s ago, and begins when all are up",
			head,
			job.GetNodes(),
			job.GetBooting(),
			Span(v.Now-job.GetStart()),
		)
		if by := job.GetBootBy(); by != 0 {
			text += fmt.Sprintf(
				". What is not up by %s (ResumeTimeout) is set aside, and the job is queued again",
				v.Time(by),
			)
		} else {
			text += ". ResumeProgram has not been told yet (ResumeRate)"
		}
		return text + ".\n"
	case state == spec.Suspended:
		return fmt.Sprintf("%s does not wait: it is suspended on %s.\n", head, job.GetNodes())
	case state == spec.Running && job.GetReason().GetCode() == string(spec.ReasonProlog):
		return fmt.Sprintf(
			"%s has its nodes, %s, and waits for the site's PrologSlurmctld to end: since %s.\n",
			head,
			job.GetNodes(),
			Span(Elapsed(job, v.Now)),
		)
	case state == spec.Running:
		text := fmt.Sprintf(
			"%s does not wait: it has run for %s on %s",
			head,
			Span(Elapsed(job, v.Now)),
			job.GetNodes(),
		)
		if job.GetTimeLimit() >= 0 {
			text += fmt.Sprintf(", and has %s left", Span(Left(job, v.Now)))
		}
		return text + fmt.Sprintf(". It waited %s.\n", Span(job.GetStart()-job.GetSubmit()))
	}
	text := fmt.Sprintf(
		"%s does not wait: it ended %s ago, %s",
		head,
		Span(v.Now-job.GetEnd()),
		state,
	)
	switch {
	case job.GetExitSignal() != 0:
		text += fmt.Sprintf(" by signal %d", job.GetExitSignal())
	case job.GetExitCode() != 0:
		text += fmt.Sprintf(" with exit code %d", job.GetExitCode())
	}
	if code := job.GetReason().GetCode(); code != "" && code != "None" {
		text += " (" + code + ")"
	}
	if d := cmp.Or(job.GetReason().GetDetail(), job.GetFailure()); d != "" {
		text += ": " + d
	}
	return text + ".\n"
}

// expectedLines says how long the job will probably run, and from which runs that
// is known.
func (v *WhyView) expectedLines(reply *apiv1.WhyReply) []string {
	prediction := reply.GetPrediction()
	if prediction == nil {
		return nil
	}
	took := Span(prediction.GetShortest())
	if longest := Span(prediction.GetLongest()); longest != took {
		took += " to " + longest
	}
	text := fmt.Sprintf("to run %s: the last %d %s took %s", Span(prediction.GetLength()),
		prediction.GetRuns(), prediction.GetSimilar(), took)
	if limit := reply.GetJob().GetTimeLimit(); limit > prediction.GetLength() {
		text += "; the time limit is " + Span(limit)
	}
	return []string{text}
}

func (v *WhyView) startLines(reply *apiv1.WhyReply) []string {
	at := reply.GetPlannedStart()
	var out []string
	switch {
	case at != 0 && at <= v.Now:
		out = append(out, "planned for the next pass on "+
			cmp.Or(reply.GetPlannedNodes(), "free nodes"))
	case at != 0:
		text := "planned for " + v.markBold(v.formatWhen(at)) + " on " +
			cmp.Or(reply.GetPlannedNodes(), "nodes not chosen yet")
		if reply.GetPlannedEstimate() {
			text += " (an estimate: jobs that end early or late move it)"
		} else {
			text += ", or earlier if jobs end before their limits"
		}
		out = append(out, text)
	case reply.GetReason().GetUntil() > v.Now && len(reply.GetBlockers()) > 0:
		out = append(out, "not planned: enough of the jobs in the way are over by "+
			v.formatWhen(reply.GetReason().GetUntil())+", at their limits")
	case reply.GetReason().GetUntil() > v.Now:
		out = append(out, "not before "+v.formatWhen(reply.GetReason().GetUntil()))
	default:
		out = append(out, explainUnplanned(reply))
	}
	if early := reply.GetEarlyStart(); early != 0 && early < at {
		text := "as early as " + v.formatWhen(early) + ", if the running jobs end as similar runs of their users did"
		if early <= v.Now {
			text = "now, if the running jobs ended as similar runs of their users did"
		}
		out = append(out, text)
	}
	if line := promisesLine(reply.GetPromises()); line != "" && at > v.Now {
		out = append(out, line)
	}
	if line := v.promiseLine(reply); line != "" {
		out = append(out, line)
	}
	switch n := reply.GetAhead(); {
	case n == 1:
		out = append(out, "1 waiting job has a higher priority")
	case n > 1:
		out = append(out, fmt.Sprintf("%d waiting jobs have a higher priority", n))
	case at != 0:
		out = append(out, "no waiting job has a higher priority")
	}
	return out
}

// promiseLine says whether a job keeps its first promise, where it does not simply do so. The
// planned start counts with the limits of the running jobs, and a promise may count with how similar
// runs ended: a plan that is later than the promise alone does not break it.
func (v *WhyView) promiseLine(reply *apiv1.WhyReply) string {
	planned := reply.GetPlannedStart()
	promised := reply.GetPromisedStart()
	if promised == 0 || planned-promised < tool.Second {
		return ""
	}
	expected := planned
	if early := reply.GetEarlyStart(); early != 0 {
		expected = min(early, planned)
	}
	text := "first promised for " + v.Time(promised)
	switch {
	case v.Now-promised >= tool.Second:
		return text + ", which it has missed by " + Span(v.Now-promised) + " so far"
	case expected-promised >= tool.Second:
		return text + ", which it will miss by " + Span(expected-promised) + " as planned now"
	}
	return text + ", which it keeps if the running jobs end as similar runs did"
}

// promisesLine says how far the plans of a partition could be relied on so far.
func promisesLine(promises *apiv1.PromisesKept) string {
	all := promises.GetKept() + promises.GetBroken()
	if all == 0 {
		return ""
	}
	text := fmt.Sprintf("%d of %d promised starts in partition %s were kept",
		promises.GetKept(), all, promises.GetPartition())
	if promises.GetBroken() > 0 {
		text += "; the mean delay was " + Span(promises.GetLate()/int64(all))
	}
	return text
}

// beyond is why a job that is near a start has none planned.
const beyond = "not planned: it is further down the queue than the scheduler looks ahead"

// explainUnplanned says on what the start depends of a job for which none is planned.
func explainUnplanned(reply *apiv1.WhyReply) string {
	reason := reply.GetReason()
	switch spec.ReasonCode(reason.GetCode()) {
	case "", spec.ReasonNone, spec.ReasonCleaning:
		return "not planned yet"
	case spec.ReasonDependency:
		return "not planned until that is so"
	case spec.ReasonHeldUser, spec.ReasonHeldAdmin, spec.ReasonHoldMaxRequeue:
		return "not until it is released"
	case spec.ReasonDependencyNever,
		spec.ReasonBadConstraints,
		spec.ReasonPartitionConfig,
		spec.ReasonDeadLine:
		return "never, as it is"
	case spec.ReasonResources:
		if reason.GetSubject() == "switches" {
			return "not planned until it may use more switches"
		}
		return beyond
	case spec.ReasonPriority:
		return beyond
	}
	if reason.GetAsked() > reason.GetLimit() && reason.GetLimit() > 0 {
		return "never, as it is"
	}
	return "not planned while that is so"
}

// listNeeds is what the job asks for, as one line.
func (v *WhyView) listNeeds(reply *apiv1.WhyReply) string {
	job := reply.GetJob()
	asked := ToTRES(job.GetReqTres())
	var parts []string
	for _, tres := range asked.All() {
		name, typ, _ := strings.Cut(strings.TrimPrefix(tres.Name, "gres/"), ":")
		switch {
		case tres.Name == "billing" || tres.Name == "node":
		case typ == "" && byType(&asked, name) == tres.N: // the next ones say it
		default:
			parts = append(parts, formatQuantity(tres.Name, tres.N))
		}
	}
	if asked.Mem == 0 &&
		slices.ContainsFunc(
			reply.GetNodes(),
			func(n *apiv1.NodeVerdict) bool { return n.GetWhy() == "mem" },
		) {
		parts = append(parts, "all memory of the node (no --mem, and no default here)")
	}
	text, whole := strings.Join(parts, ", "), ""
	if s := spec.Sharing(job.GetSpec().GetSharing()); s == spec.Exclusive {
		whole = "whole "
	}
	switch {
	case job.GetNumNodes() > 1:
		text += fmt.Sprintf(" on %d %snodes", job.GetNumNodes(), whole)
	case whole != "":
		text += " on a whole node"
	}
	if limit := job.GetTimeLimit(); limit < 0 {
		text += ", without a time limit"
	} else {
		text += ", for up to " + Span(limit)
	}
	return text + fmt.Sprintf("; priority %d", job.GetPriority())
}

// byType is how much of a GRES is asked for by type.
func byType(tres *spec.TRES, name string) (sum int64) {
	for _, o := range tres.All() {
		if strings.HasPrefix(o.Name, "gres/"+name+":") {
			sum += o.N
		}
	}
	return sum
}

func (v *WhyView) blockerLines(reply *apiv1.WhyReply) []string {
	var table [][]string
	for _, b := range reply.GetBlockers() {
		until := "no time limit"
		state := spec.JobState(b.GetState())
		switch {
		case state == spec.Pending && b.GetPlannedStart() != 0:
			until = "planned for " + v.formatWhen(b.GetPlannedStart())
		case state == spec.Pending:
			until = "waits: " + Reason(b)
		case b.GetCompleting() && b.GetPreemptedAt() != 0:
			until = "preempted, ends within its grace time"
		case b.GetCompleting():
			until = "is ending"
		case b.GetEnd() != 0:
			until = "until " + v.formatWhen(b.GetEnd())
		}
		have := b.GetAllocTres()
		if state == spec.Pending {
			have = b.GetReqTres()
		}
		table = append(
			table,
			[]string{
				tableRow + v.ID(JobRow{JobInfo: b, Task: -1}),
				b.GetSpec().GetName(),
				b.GetUser(),
				strings.ToLower(state.String()),
				shortTRES(have),
				until,
			},
		)
	}
	for _, hold := range reply.GetHolds() {
		table = append(
			table,
			[]string{
				tableRow + "pod",
				hold.GetName(),
				"on " + hold.GetNode(),
				"held",
				holdText(hold.GetMilliCpu(), hold.GetMem(), int64(hold.GetGpus())),
				"since " +
					v.formatWhen(hold.GetSince()),
			},
		)
	}
	return splitTable(table)
}

// shortTRES is what a job holds, in a few words.
func shortTRES(tres *apiv1.Tres) string {
	x := ToTRES(tres)
	parts := []string{formatQuantity("cpu", x.CPU)}
	if n := x.Get("gres/gpu"); n > 0 {
		parts = append(parts, formatQuantity("gres/gpu", n))
	}
	if x.Mem > 0 {
		parts = append(parts, formatQuantity("mem", x.Mem))
	}
	return strings.Join(parts, ", ")
}

func splitTable(table [][]string) []string {
	if len(table) == 0 {
		return nil
	}
	return strings.Split(
		strings.TrimSuffix(AlignedTexts(table), "\n"),
		"\n",
	)
}

func (v *WhyView) nodeLines(reply *apiv1.WhyReply) []string {
	var table [][]string
	for _, n := range reply.GetNodes() {
		verdict := nodeVerdict(n)
		if n.GetWhy() == nodeFits && isTooLargeTogether(reply) {
			verdict = "has room for a part of it"
		}
		table = append(table, []string{tableRow + n.GetNodes(), verdict})
	}
	return splitTable(table)
}

// nodeFits is the verdict about a node that may take part in the job now.
const nodeFits = "fits"

// isTooLargeTogether tells whether a job can never start because the nodes together are not
// enough for it. Whether a node by itself may take part says nothing then.
func isTooLargeTogether(reply *apiv1.WhyReply) bool {
	switch spec.ReasonCode(reply.GetReason().GetCode()) {
	case spec.ReasonPartitionConfig, spec.ReasonPartitionNodeLimit:
		return true
	}
	return false
}

// isShortOfGPUs tells whether nodes lack GPUs that the configuration names.
func isShortOfGPUs(node *apiv1.NodeVerdict) bool {
	return strings.HasPrefix(node.GetWhy(), spec.ShortOfGPUs)
}

// nodeVerdict says why nodes cannot take the job now.
func nodeVerdict(node *apiv1.NodeVerdict) string {
	reason := node.GetWhy()
	switch kind, what, _ := strings.Cut(reason, ":"); kind {
	case "state", "request", "reservation", "apart":
		return what
	}
	switch reason {
	case nodeFits:
		return "would fit now"
	case "excluded":
		return "excluded by the job"
	case "feature":
		return "lacks a feature that the job asks for"
	case "planned", "reserved":
		return "kept for a job that comes before"
	}
	if node.GetNeed() == 0 {
		return reason
	}
	return fmt.Sprintf(
		"%s free, %s needed",
		formatQuantity(reason, node.GetFree()),
		formatQuantity(reason, node.GetNeed()),
	)
}

func (v *WhyView) adviceLines(reply *apiv1.WhyReply) []string {
	var table [][]string
	for _, advice := range reply.GetAdvice() {
		what := "would start " + v.formatWhen(advice.GetStart())
		if advice.GetGain() > 0 {
			what += " (" + Span(advice.GetGain()) + " earlier)"
		}
		table = append(table, []string{tableRow + advice.GetChange(), what})
	}
	return splitTable(table)
}

// historyMost is how many spans are printed for people; --json has them all.
const historyMost = 20

// nameOwner writes whose limit it is: qos/gpucap, assoc/ml/alice, partition/gpu.
func nameOwner(subject string) string {
	parts := strings.Split(subject, "/")
	switch {
	case len(parts) == 2 && parts[0] == "qos":
		return "QOS " + parts[1]
	case len(parts) == 2 && parts[0] == "partition":
		return "partition " + parts[1]
	case parts[0] == "assoc" && len(parts) >= 3 && parts[2] != "":
		return parts[2] + " in account " + parts[1]
	case parts[0] == "assoc" && len(parts) >= 2:
		return "account " + parts[1]
	case subject == "":
		return "the site"
	}
	return subject
}

// Because says in plain words what the reason means, with its numbers.
//
//muster:table one case for each reason
func (v *WhyView) Because(reply *apiv1.WhyReply) []string {
	reason, job := reply.GetReason(), reply.GetJob()
	blocker := ""
	for _, b := range reply.GetBlockers() {
		if b.GetUid() == reason.GetBlocker() && reason.GetBlocker() != 0 {
			blocker = "job " + v.ID(JobRow{JobInfo: b, Task: -1}) + " (" + b.GetSpec().GetName() + " of " + b.GetUser() + ")"
		}
	}
	switch spec.ReasonCode(reason.GetCode()) {
	case "", spec.ReasonNone:
		return []string{"No pass has looked at it yet; the next one will within moments."}
	case spec.ReasonPriority:
		if blocker != "" {
			return []string{"It would have to overtake " + blocker + ", which comes before it and waits too; it may start earlier only where that delays nobody."}
		}
		return []string{"Jobs that come before it wait too; it may start earlier only where that delays none of them."}
	case "ReservationDeleted":
		return []string{"The reservation that it asks for is gone: change it with scontrol update jobid=" + tool.Itoa(job.GetJobId()) + " reservationname=."}
	case "ReservationInvalid":
		return []string{"It does not fit into its reservation: too many nodes, or a longer time limit than is left of it."}
	case spec.ReasonReservation:
		return []string{"Its reservation begins " + v.formatWhen(reply.GetReason().GetUntil()) +
			"."}
	case spec.ReasonResources:
		if reply.GetReason().GetSubject() == "switches" {
			return []string{"No choice of so few switches has what it needs; from " +
				v.formatWhen(reply.GetReason().GetUntil()) + " on any nodes will do."}
		}
		out := []string{"It is its turn, but what it needs is in use now (below, node by node)."}
		if blocker != "" {
			out = append(out, "What it is planned to get is held by "+blocker+".")
		}
		if job.GetHetSize() > 1 {
			other := (job.GetHetOffset() + 1) % job.GetHetSize()
			out = append(out, fmt.Sprintf("Its %d components start together; muster why %d+%d shows the nodes as the next of them sees them.", job.GetHetSize(), job.GetHetJobId(), other))
		}
		return out
	case spec.ReasonDependency:
		return dependencyText(cmp.Or(job.GetDependency(), job.GetSpec().GetDependency()))
	case spec.ReasonDependencyNever:
		return []string{"What it waits for can never come true any more: " + cmp.Or(job.GetDependency(), job.GetSpec().GetDependency()) + ".",
			"Cancel it (scancel " + tool.Itoa(job.GetJobId()) + ") and submit it without that dependency."}
	case spec.ReasonBeginTime:
		return []string{"It was asked not to begin before " + v.formatWhen(firstOf(reason.GetUntil(), job.GetSpec().GetBegin(), job.GetStart())) + "."}
	case spec.ReasonHeldUser:
		return []string{"It is held by its owner. Release it: scontrol release " + tool.Itoa(job.GetJobId()) + "."}
	case spec.ReasonHeldAdmin:
		return []string{"It is held by an operator, who alone can release it."}
	case spec.ReasonHoldMaxRequeue:
		return []string{fmt.Sprintf("It was requeued %d times, as often as the site allows, and is held. Find out why it fails to start, then release it.", job.GetRestarts())}
	case spec.ReasonArrayTaskLimit:
		return []string{fmt.Sprintf("Its array runs at most %s at a time (the %% of --array), and so many run now.", format.Plural(job.GetArrayThrottle(), "task", "tasks")),
			fmt.Sprintf("scontrol update jobid=%d arraytaskthrottle=N changes that.", firstOf(job.GetArrayJobId(), job.GetJobId()))}
	case spec.ReasonLicenses:
		return []string{fmt.Sprintf("It asks for %s; %s of %d are in use.", formatQuantity(cmp.Or(reason.GetTres(), "license/"), reason.GetAsked()), formatQuantity(cmp.Or(reason.GetTres(), "license/"), reason.GetUsed()), reason.GetLimit())}
	case spec.ReasonReqNodeNotAvail:
		if strings.Contains(reason.GetDetail(), "eserved") {
			return []string{"Nodes that it could start on are reserved: scontrol show reservation says for whom, and until when."}
		}
		trouble := "out of service"
		if slices.ContainsFunc(reply.GetNodes(), isShortOfGPUs) {
			trouble += " or found fewer GPUs than are configured"
		}
		return []string{"Nodes that it needs are " + trouble + ": " + strings.TrimPrefix(cmp.Or(reason.GetDetail(), reason.GetSubject()), "UnavailableNodes:") + ". sinfo -R says why."}
	case spec.ReasonPartitionDown, spec.ReasonPartitionInactive:
		name := strings.TrimPrefix(cmp.Or(reason.GetSubject(), "partition/"+job.GetPartition()), "partition/")
		return []string{"Its partition, " + name + ", starts no jobs now (scontrol show partition " + name + ").",
			"It starts again when an operator says so: scontrol update partitionname=" + name + " state=up."}
	}
	return v.BecauseLimit(reply)
}

// firstOf is the first number that is not zero.
func firstOf[T int64 | uint32](list ...T) T {
	for _, n := range list {
		if n != 0 {
			return n
		}
	}
	return 0
}

// dependencyText says in plain words what a job waits for: of
// afterok:4(unfulfilled),singleton the conditions that do not hold yet.
func dependencyText(list string) []string {
	begin, sep := "It waits until all of this is true:", ","
	if strings.Contains(list, "?") {
		begin, sep = "It waits until any of this is true:", "?"
	}
	var open []string
	for one := range strings.SplitSeq(list, sep) {
		if kind, rest, named := strings.Cut(one, ":"); named {
			for job := range strings.SplitSeq(rest, ":") {
				id, state, _ := strings.Cut(strings.TrimSuffix(job, ")"), "(")
				if state != "fulfilled" {
					open = append(open, conditionText(kind, id))
				}
			}
		} else if one, _, _ = strings.Cut(one, "("); one == "singleton" {
			open = append(open, "no other job of its name and its user runs or comes before it")
		} else if one != "" {
			open = append(open, one)
		}
	}
	switch len(open) {
	case 0:
		return []string{"It waits for other jobs; the next pass looks at them again."}
	case 1:
		return []string{"It waits until " + open[0] + "."}
	}
	return append([]string{begin}, open...)
}

// conditionText is one condition of a dependency.
func conditionText(kind, id string) string {
	id, minutes, delayed := strings.Cut(id, "+")
	job := "job " + id
	if array, all := strings.CutSuffix(id, "_*"); all {
		job = "every task of array " + array
	}
	text := ""
	switch kind {
	case "after":
		text = job + " has started or was cancelled"
	case "afterany":
		text = job + " has ended"
	case "afterok":
		text = job + " has ended with success"
	case "afternotok":
		text = job + " has failed"
	case "aftercorr":
		text = "the task of the same index of job " + strings.TrimSuffix(id, "_*") +
			" has ended with success"
	default:
		return kind + ":" + id
	}
	if delayed {
		text += " " + minutes + " minutes ago"
	}
	return text
}

// BecauseLimit explains what a partition, an account or a QOS does not allow.
//
//muster:table one case for each reason
func (v *WhyView) BecauseLimit(reply *apiv1.WhyReply) []string {
	reason, job := reply.GetReason(), reply.GetJob()
	code := reason.GetCode()
	subject := nameOwner(reason.GetSubject())
	switch spec.ReasonCode(code) {
	case spec.ReasonPartitionNodeLimit:
		return []string{fmt.Sprintf("It asks for %s; %s gives a job at most %s. Waiting does not help: ask for fewer, or for another partition.",
			formatQuantity("node", reason.GetAsked()), subject, formatQuantity("node", reason.GetLimit()))}
	case spec.ReasonPartitionTimeLimit:
		return []string{fmt.Sprintf("It asks for %s; %s gives a job at most %s. Waiting does not help: scontrol update jobid=%d timelimit=%s.",
			Span(reason.GetAsked()*tool.Second), subject, Span(reason.GetLimit()*tool.Second), job.GetJobId(), format.Duration(reason.GetLimit()))}
	case spec.ReasonPartitionConfig:
		if reason.GetDetail() != "" {
			return []string{"It can never start as it is" + detailOf(reason) + ". Waiting does not help: ask for less, or for other nodes or partitions."}
		}
		return []string{"No set of nodes of " + subject + " can give what it asks for, even when all of them are free. Waiting does not help: ask for less on each node, or for another partition."}
	case spec.ReasonBadConstraints:
		return []string{"No node can ever meet what it asks for" + detailOf(reason) + ". Waiting does not help."}
	case spec.ReasonInvalidAccount, spec.ReasonAccountNotAllowed:
		return []string{"Account " + cmp.Or(job.GetSpec().GetAccount(), "(none)") + " may not be used here (" + subject + "). Ask an operator, or choose another with scontrol update account=."}
	case spec.ReasonInvalidQOS, spec.ReasonQOSNotAllowed:
		return []string{"QOS " + cmp.Or(QOSOf(job), "(none)") + " may not be used here (" + subject + "). Ask an operator, or choose another with scontrol update qos=."}
	case spec.ReasonFencingWait:
		return v.fencingText(reason)
	case spec.ReasonCleaning:
		return []string{"Its earlier run is still being cleaned up on its nodes."}
	case spec.ReasonDeadLine:
		return []string{"It cannot end by its deadline, " + v.Time(job.GetSpec().GetDeadline()) + ", any more."}
	}
	if text := v.limitText(reason, job); text != nil {
		return text
	}
	return []string{strings.TrimSpace("The scheduler says " + code + detailOf(reason) + ".")}
}

func detailOf(reason *apiv1.Reason) string {
	if reason.GetDetail() == "" {
		return ""
	}
	return ": " + reason.GetDetail()
}

// fencingText says what a job waits for whose earlier run may still live.
func (v *WhyView) fencingText(reason *apiv1.Reason) []string {
	where := reason.GetDetail()
	first := "Its earlier run may still live on " + where +
		", which does not answer. It starts again once that run is certainly gone"
	if until := reason.GetUntil(); until != 0 {
		first += ", at the latest " + v.formatWhen(until) + " when its lease is over"
	}
	text := []string{first + "."}
	if program := reason.GetSubject(); program != "" {
		text = append(text, "The controller asks "+program+" to switch "+where+
			" off; scontrol show node "+where+" shows what it says.")
	}
	return append(text,
		"That is when "+where+
			" answers or has rebooted, or when an operator who knows that it is off says so: scontrol update nodename="+
			where+" state=fenced.")
}

// limitText explains the families of limits: per job, user, account, group.
func (v *WhyView) limitText(reason *apiv1.Reason, job *apiv1.JobInfo) []string {
	code, subject := reason.GetCode(), nameOwner(reason.GetSubject())
	has := func(s string) bool { return strings.Contains(code, s) }
	asked := formatQuantity(reason.GetTres(), reason.GetAsked())
	limit := formatQuantity(reason.GetTres(), reason.GetLimit())
	used := formatQuantity(reason.GetTres(), reason.GetUsed())
	switch {
	case has("JobsLimit") || has("JobsPer") || has("SubmitJob"):
		return []string{
			fmt.Sprintf(
				"%s allows %s at once, and %s towards that now. It starts when one of them ends.",
				subject,
				format.Plural(reason.GetLimit(), "job", "jobs"),
				format.Plural(reason.GetUsed(), "counts", "count"),
			),
		}
	case has("Wall"):
		return []string{
			fmt.Sprintf(
				"It asks for %s; %s allows %s. Waiting does not help: scontrol update jobid=%d timelimit=%s.",
				Span(
					reason.GetAsked()*tool.Second,
				),
				subject,
				Span(reason.GetLimit()*tool.Second),
				job.GetJobId(),
				format.Duration(reason.GetLimit()),
			),
		}
	case reason.GetTres() == "":
		return nil
	case strings.HasPrefix(reason.GetSubject(), "budget/"):
		account, tres := strings.TrimPrefix(
			reason.GetSubject(),
			"budget/",
		), strings.TrimSuffix(
			reason.GetTres(),
			" minutes",
		)
		if reason.GetLimit() == 0 {
			return []string{"The budget of account " + account +
				" is spent. muster report budget -A " + account +
				" shows it; it starts when there is money again."}
		}
		return []string{
			fmt.Sprintf(
				"The rest of the budget of account %s, less what running jobs may still use, pays for %d minutes of %s at most; this job needs up to %d. muster report budget -A %s shows it. A shorter time limit may fit.",
				account,
				max(reason.GetLimit()-reason.GetUsed(), 0),
				formatQuantity(tres, 1),
				reason.GetAsked(),
				account,
			),
		}
	case has("RunMinutes") || has("RunMins"), has("Minutes"):
		return []string{
			fmt.Sprintf(
				"%s has a budget of %d %s-minutes; %d are used, and this job needs up to %d.",
				subject,
				reason.GetLimit(),
				strings.TrimSuffix(reason.GetTres(), " minutes"),
				reason.GetUsed(),
				reason.GetAsked(),
			),
		}
	case has("PerJob"), has("PerNode"), has("Min"):
		word, per := "at most", "a job"
		if has("PerNode") {
			per = "a job on each node"
		}
		if strings.HasPrefix(code, "QOSMin") {
			word = "at least"
		}
		return []string{
			fmt.Sprintf(
				"It asks for %s; %s allows %s %s %s. Waiting does not help: ask for another amount, or another QOS.",
				asked,
				subject,
				per,
				word,
				limit,
			),
		}
	}
	whose := "all its jobs together"
	switch {
	case has("PerUser"):
		whose = cmp.Or(job.GetUser(), "the user") + "'s jobs together"
	case has("PerAccount"):
		whose = "the jobs of account " + job.GetSpec().GetAccount() + " together"
	}
	out := []string{
		fmt.Sprintf(
			"%s allows %s %s; they hold %s now, and this job asks for %s.",
			subject,
			whose,
			limit,
			used,
			asked,
		),
	}
	if reason.GetAsked() > reason.GetLimit() {
		return append(
			out,
			"The job alone is over the limit, so waiting does not help: ask for at most "+
				limit+", or for another QOS.",
		)
	}
	return append(
		out,
		fmt.Sprintf(
			"It starts when %s of those end.",
			formatQuantity(reason.GetTres(), reason.GetUsed()+reason.GetAsked()-reason.GetLimit()),
		),
	)
}
