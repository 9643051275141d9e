package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
)

func whyCommand() *command {
	return &command{
		name: "why", mixed: true,
		summary: "explain why a job waits, when it will start and what would help",
		usage:   []string{"[OPTIONS] JOB"},
		about:   `Every line comes from the scheduler's last pass, not from a guess: the limit with its numbers, the jobs in the way, and for each node what is missing. The reasons so far come from accounting, which also remembers jobs that ended long ago.`,
		options: []opt.Option{
			{Long: "json", Help: "print JSON"},
			{Long: "yaml", Help: "print YAML"},
			{Long: "watch", Short: "w", Arg: "<seconds>", Maybe: true, Help: "repeat, every 2 seconds without a number, until the job starts"},
		},
		env:     []variable{{"NO_COLOR", "print no colours on a terminal"}},
		example: []example{{"muster why 22", "explains job 22"}, {"muster why 36_7 --json", "gives a script the same as data"}},
		run:     runWhy,
	}
}

func runWhy(c *call) error {
	if len(c.args) != 1 || !validTarget(c.args[0]) {
		return &opt.UsageError{Command: "muster why", Text: "name one job: 12, 36_7, or 12+1 of a heterogeneous job"}
	}
	every := int64(2)
	if text := c.opts.Text("watch"); text != "" {
		n, ok := positive(text)
		if !ok {
			return c.errorf("--watch=%s: expected a number of seconds", text)
		}
		every = n
	}
	shown := false
	for {
		rep, missing, err := c.askWhy()
		if shown && err != nil && wentAway(err) {
			c.conn, c.past = nil, nil // a restart of the controller ends no watch
			c.Pause(c.ctx, time.Duration(every)*time.Second)
			if c.ctx.Err() != nil {
				return nil
			}
			continue
		}
		if err != nil {
			r := explainError(err)
			return fail(1, append(r.before("muster why"), "muster why: error: "+r.text)...)
		}
		waits := spec.JobState(rep.GetJob().GetState()) == spec.Pending
		if err := c.writeWhy(rep, missing); err != nil || !c.opts.On("watch") || !waits {
			return err
		}
		if err := c.out.Flush(); err != nil {
			return err
		}
		shown = true
		c.Pause(c.ctx, time.Duration(every)*time.Second)
		if c.ctx.Err() != nil {
			return nil
		}
	}
}

// writeWhy prints an explanation; missing says why its history is not whole.
func (c *call) writeWhy(rep *apiv1.WhyReply, missing string) error {
	if c.wantsTree() {
		return c.structured(c.opts.On("json"), append(whyTree(rep), tree.Member{Key: "history_missing", Value: missing}))
	}
	if missing != "" {
		fmt.Fprintf(c.Stderr, "muster why: warning: the reasons so far are not shown: %s\n", missing)
	}
	v := &whyView{jobView: jobView{clock: c.clock(), env: c.Env}, asked: c.args[0], colour: c.Terminal(c.Stdout) && c.Getenv("NO_COLOR") == ""}
	v.now = rep.GetNow()
	text := v.text(rep)
	if c.opts.On("watch") && c.Terminal(c.Stdout) {
		text = "\x1b[H\x1b[2J" + text
	}
	return c.write([]byte(text))
}

func reasonTree(r *apiv1.Reason) tree.Object {
	return tree.Object{{Key: "code", Value: r.GetCode()}, {Key: "tres", Value: r.GetTres()}, {Key: "limit", Value: r.GetLimit()}, {Key: "used", Value: r.GetUsed()},
		{Key: "asked", Value: r.GetAsked()}, {Key: "subject", Value: r.GetSubject()}, {Key: "until", Value: r.GetUntil() / second}, {Key: "detail", Value: r.GetDetail()}}
}

// whyTree is an explanation as data. Times are seconds since 1970, 0 = unknown.
func whyTree(rep *apiv1.WhyReply) tree.Object {
	j := rep.GetJob()
	nodes, blockers, advice, history := tree.List{}, tree.List{}, tree.List{}, tree.List{}
	for _, n := range rep.GetNodes() {
		nodes = append(nodes, tree.Object{{Key: "nodes", Value: n.GetNodes()}, {Key: "count", Value: n.GetCount()}, {Key: "why", Value: n.GetWhy()}, {Key: "free", Value: n.GetFree()}, {Key: "need", Value: n.GetNeed()}})
	}
	for _, b := range rep.GetBlockers() {
		blockers = append(blockers, tree.Object{{Key: "job_id", Value: b.GetJobId()}, {Key: "name", Value: b.GetSpec().GetName()}, {Key: "user", Value: b.GetUser()},
			{Key: "state", Value: spec.JobState(b.GetState()).String()}, {Key: "nodes", Value: b.GetNodes()}, {Key: "tres", Value: tresText(b.GetAllocTres())}, {Key: "end", Value: b.GetEnd() / second}})
	}
	for _, a := range rep.GetAdvice() {
		advice = append(advice, tree.Object{{Key: "change", Value: a.GetChange()}, {Key: "start", Value: a.GetStart() / second}, {Key: "gain_seconds", Value: a.GetGain() / second}})
	}
	for _, h := range rep.GetHistory() {
		history = append(history, tree.Object{{Key: "reason", Value: reasonTree(h.GetReason())}, {Key: "from", Value: h.GetFrom() / second}, {Key: "to", Value: h.GetTo() / second}, {Key: "restarts", Value: int64(h.GetRestarts())}})
	}
	v := &whyView{}
	v.now = rep.GetNow()
	return tree.Object{
		{Key: "job_id", Value: j.GetJobId()}, {Key: "name", Value: j.GetSpec().GetName()}, {Key: "user", Value: j.GetUser()}, {Key: "state", Value: spec.JobState(j.GetState()).String()},
		{Key: "partition", Value: j.GetPartition()}, {Key: "submitted", Value: j.GetSubmit() / second}, {Key: "reason", Value: reasonTree(rep.GetReason())},
		{Key: "explanation", Value: strings.Join(v.because(rep), " ")},
		{Key: "planned_start", Value: rep.GetPlannedStart() / second}, {Key: "planned_nodes", Value: rep.GetPlannedNodes()}, {Key: "planned_is_estimate", Value: rep.GetPlannedEstimate()},
		{Key: "ahead", Value: int64(rep.GetAhead())}, {Key: "blockers", Value: blockers}, {Key: "nodes", Value: nodes}, {Key: "advice", Value: advice}, {Key: "history", Value: history},
		{Key: "guaranteed", Value: tree.Strings(rep.GetGuarantee())},
		{Key: "now", Value: rep.GetNow() / second}, {Key: "seq", Value: rep.GetSeq()},
	}
}

// whyView is how an explanation is written.
type whyView struct {
	jobView
	asked  string
	colour bool
}

// bold marks the words that answer the question.
func (v *whyView) bold(s string) string {
	if !v.colour {
		return s
	}
	return "\x1b[1m" + s + "\x1b[0m"
}

// span writes a length of time for people: 45 s, 12 min, 3 h 20 min, 2 d 4 h.
func span(ns int64) string {
	sec := max(ns, 0) / second
	min := (sec + 30) / 60
	two := func(a int64, unit string, b int64, small string) string {
		if b == 0 {
			return fmt.Sprintf("%d %s", a, unit)
		}
		return fmt.Sprintf("%d %s %d %s", a, unit, b, small)
	}
	switch {
	case sec < 120:
		return fmt.Sprintf("%d s", sec)
	case min < 60:
		return fmt.Sprintf("%d min", min)
	case sec < 2*86400:
		return two(min/60, "h", min%60, "min")
	}
	h := (sec + 1800) / 3600
	return two(h/24, "d", h%24, "h")
}

// when writes a point in time with how far it is away.
func (v *whyView) when(ns int64) string {
	if ns <= v.now {
		return "now"
	}
	return v.time(ns) + ", in " + span(ns-v.now)
}

// text is the explanation for people.
func (v *whyView) text(rep *apiv1.WhyReply) string {
	j := rep.GetJob()
	id := v.id(jobRow{JobInfo: j, task: -1})
	if strings.Contains(v.asked, "_") && !strings.Contains(v.asked, "[") {
		id = v.asked
	}
	head := fmt.Sprintf("Job %s (%s) of %s", id, j.GetSpec().GetName(), or(j.GetUser(), itoa(j.GetUserId())))
	var b strings.Builder
	if spec.JobState(j.GetState()) != spec.Pending {
		b.WriteString(v.notWaiting(head, j))
		if faults := v.faultLines(rep); len(faults) > 0 {
			b.WriteByte('\n')
			v.part(&b, "Its GPUs", faults)
		}
		if past := v.historyLines(rep.GetHistory()); len(past) > 0 {
			b.WriteByte('\n')
			v.part(&b, "It waited", past)
		}
		return b.String()
	}
	fmt.Fprintf(&b, "%s %s in partition %s for %s.\n\n", head, v.bold("waits"), strings.ReplaceAll(j.GetPartition(), ",", " or "), span(v.now-j.GetSubmit()))
	v.part(&b, "Why", append([]string{v.bold(or(rep.GetReason().GetCode(), "None"))}, v.because(rep)...))
	v.part(&b, "Start", v.startLines(rep))
	v.part(&b, "Needs", []string{v.needs(rep)})
	v.part(&b, "Guaranteed", rep.GetGuarantee())
	v.part(&b, "In the way", v.blockerLines(rep))
	v.part(&b, "Nodes", v.nodeLines(rep))
	v.part(&b, "Would help", v.adviceLines(rep))
	if past := v.historyLines(rep.GetHistory()); len(past) > 1 {
		v.part(&b, "So far", past)
	}
	return b.String()
}

const whyMargin = 12

// tableRow begins a line of a table, which stays as it is.
const tableRow = "  "

// part writes a title in the margin and its lines beside it.
func (v *whyView) part(b *strings.Builder, title string, text []string) {
	for i, t := range text {
		lead := ""
		if i == 0 {
			lead = title
		}
		wrapped := lines(t, helpWidth-whyMargin)
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
func (v *whyView) notWaiting(head string, j *apiv1.JobInfo) string {
	s := spec.JobState(j.GetState())
	switch {
	case j.GetCompleting():
		return fmt.Sprintf("%s does not wait: it has ended (%s) and its nodes %s are being cleaned up.\n", head, s, j.GetNodes())
	case j.GetConfiguring():
		text := fmt.Sprintf("%s has its nodes, %s, and waits for %s to boot: it was given them %s ago, and begins when all are up", head, j.GetNodes(), j.GetBooting(),
			span(v.now-j.GetStart()))
		if by := j.GetBootBy(); by != 0 {
			text += fmt.Sprintf(". What is not up by %s (ResumeTimeout) is set aside, and the job is queued again", v.time(by))
		} else {
			text += ". ResumeProgram has not been told yet (ResumeRate)"
		}
		return text + ".\n"
	case s == spec.Suspended:
		return fmt.Sprintf("%s does not wait: it is suspended on %s.\n", head, j.GetNodes())
	case s == spec.Running && j.GetReason().GetCode() == string(spec.ReasonProlog):
		return fmt.Sprintf("%s has its nodes, %s, and waits for the site's PrologSlurmctld to end: since %s.\n", head, j.GetNodes(), span(elapsed(j, v.now)))
	case s == spec.Running:
		text := fmt.Sprintf("%s does not wait: it has run for %s on %s", head, span(elapsed(j, v.now)), j.GetNodes())
		if j.GetTimeLimit() >= 0 {
			text += fmt.Sprintf(", and has %s left", span(left(j, v.now)))
		}
		return text + fmt.Sprintf(". It waited %s.\n", span(j.GetStart()-j.GetSubmit()))
	}
	text := fmt.Sprintf("%s does not wait: it ended %s ago, %s", head, span(v.now-j.GetEnd()), s)
	switch {
	case j.GetExitSignal() != 0:
		text += fmt.Sprintf(" by signal %d", j.GetExitSignal())
	case j.GetExitCode() != 0:
		text += fmt.Sprintf(" with exit code %d", j.GetExitCode())
	}
	if code := j.GetReason().GetCode(); code != "" && code != "None" {
		text += " (" + code + ")"
	}
	if d := j.GetReason().GetDetail(); d != "" {
		text += ": " + d
	}
	return text + ".\n"
}

func (v *whyView) startLines(rep *apiv1.WhyReply) []string {
	at := rep.GetPlannedStart()
	var out []string
	switch {
	case at != 0 && at <= v.now:
		out = append(out, "planned for the next pass on "+or(rep.GetPlannedNodes(), "free nodes"))
	case at != 0:
		text := "planned for " + v.bold(v.when(at)) + " on " + or(rep.GetPlannedNodes(), "nodes not chosen yet")
		if rep.GetPlannedEstimate() {
			text += " (an estimate: jobs that end early or late move it)"
		} else {
			text += ", or earlier if jobs end before their limits"
		}
		out = append(out, text)
	case rep.GetReason().GetUntil() > v.now && len(rep.GetBlockers()) > 0:
		out = append(out, "not planned: enough of the jobs in the way are over by "+v.when(rep.GetReason().GetUntil())+", at their limits")
	case rep.GetReason().GetUntil() > v.now:
		out = append(out, "not before "+v.when(rep.GetReason().GetUntil()))
	default:
		out = append(out, unplanned(rep))
	}
	switch n := rep.GetAhead(); {
	case n == 1:
		out = append(out, "1 waiting job has a higher priority")
	case n > 1:
		out = append(out, fmt.Sprintf("%d waiting jobs have a higher priority", n))
	case at != 0:
		out = append(out, "no waiting job has a higher priority")
	}
	return out
}

// beyond is why a job that is near a start has none planned.
const beyond = "not planned: it is further down the queue than the scheduler looks ahead"

// unplanned says on what the start depends of a job for which none is planned.
func unplanned(rep *apiv1.WhyReply) string {
	r := rep.GetReason()
	switch spec.ReasonCode(r.GetCode()) {
	case "", spec.ReasonNone, spec.ReasonCleaning:
		return "not planned yet"
	case spec.ReasonDependency:
		return "not planned until that is so"
	case spec.ReasonHeldUser, spec.ReasonHeldAdmin, spec.ReasonHoldMaxRequeue:
		return "not until it is released"
	case spec.ReasonDependencyNever, spec.ReasonBadConstraints, spec.ReasonPartitionConfig, spec.ReasonDeadLine:
		return "never, as it is"
	case spec.ReasonResources:
		if r.GetSubject() == "switches" {
			return "not planned until it may use more switches"
		}
		return beyond
	case spec.ReasonPriority:
		return beyond
	}
	if r.GetAsked() > r.GetLimit() && r.GetLimit() > 0 {
		return "never, as it is"
	}
	return "not planned while that is so"
}

// needs is what the job asks for, as one line.
func (v *whyView) needs(rep *apiv1.WhyReply) string {
	j := rep.GetJob()
	asked := toTRES(j.GetReqTres())
	var parts []string
	for _, t := range asked.All() {
		name, typ, _ := strings.Cut(strings.TrimPrefix(t.Name, "gres/"), ":")
		switch {
		case t.Name == "billing" || t.Name == "node":
		case typ == "" && byType(&asked, name) == t.N: // the next ones say it
		default:
			parts = append(parts, quantity(t.Name, t.N))
		}
	}
	if asked.Mem == 0 && slices.ContainsFunc(rep.GetNodes(), func(n *apiv1.NodeVerdict) bool { return n.GetWhy() == "mem" }) {
		parts = append(parts, "all memory of the node (no --mem, and no default here)")
	}
	text, whole := strings.Join(parts, ", "), ""
	if s := spec.Sharing(j.GetSpec().GetSharing()); s == spec.Exclusive {
		whole = "whole "
	}
	switch {
	case j.GetNumNodes() > 1:
		text += fmt.Sprintf(" on %d %snodes", j.GetNumNodes(), whole)
	case whole != "":
		text += " on a whole node"
	}
	if limit := j.GetTimeLimit(); limit < 0 {
		text += ", without a time limit"
	} else {
		text += ", for up to " + span(limit)
	}
	return text + fmt.Sprintf("; priority %d", j.GetPriority())
}

// byType is how much of a GRES is asked for by type.
func byType(t *spec.TRES, name string) (sum int64) {
	for _, o := range t.All() {
		if strings.HasPrefix(o.Name, "gres/"+name+":") {
			sum += o.N
		}
	}
	return sum
}

func (v *whyView) blockerLines(rep *apiv1.WhyReply) []string {
	var table [][]string
	for _, b := range rep.GetBlockers() {
		until := "no time limit"
		state := spec.JobState(b.GetState())
		switch {
		case state == spec.Pending && b.GetPlannedStart() != 0:
			until = "planned for " + v.when(b.GetPlannedStart())
		case state == spec.Pending:
			until = "waits: " + reason(b)
		case b.GetEnd() != 0:
			until = "until " + v.when(b.GetEnd())
		}
		have := b.GetAllocTres()
		if state == spec.Pending {
			have = b.GetReqTres()
		}
		table = append(table, []string{tableRow + v.id(jobRow{JobInfo: b, task: -1}), b.GetSpec().GetName(), b.GetUser(), strings.ToLower(state.String()), short(have), until})
	}
	return splitTable(table)
}

// short is what a job holds, in a few words.
func short(t *apiv1.Tres) string {
	x := toTRES(t)
	parts := []string{quantity("cpu", x.CPU)}
	if n := x.Get("gres/gpu"); n > 0 {
		parts = append(parts, quantity("gres/gpu", n))
	}
	if x.Mem > 0 {
		parts = append(parts, quantity("mem", x.Mem))
	}
	return strings.Join(parts, ", ")
}

func splitTable(table [][]string) []string {
	if len(table) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(aligned(table, func(int) bool { return true }), "\n"), "\n")
}

func (v *whyView) nodeLines(rep *apiv1.WhyReply) []string {
	var table [][]string
	for _, n := range rep.GetNodes() {
		table = append(table, []string{tableRow + n.GetNodes(), nodeVerdict(n)})
	}
	return splitTable(table)
}

// nodeVerdict says why nodes cannot take the job now.
func nodeVerdict(n *apiv1.NodeVerdict) string {
	why := n.GetWhy()
	switch kind, what, _ := strings.Cut(why, ":"); kind {
	case "state", "request", "reservation", "apart":
		return what
	}
	switch why {
	case "fits":
		return "would fit now"
	case "excluded":
		return "excluded by the job"
	case "feature":
		return "lacks a feature that the job asks for"
	case "planned", "reserved":
		return "kept for a job that comes before"
	}
	if n.GetNeed() == 0 {
		return why
	}
	return fmt.Sprintf("%s free, %s needed", quantity(why, n.GetFree()), quantity(why, n.GetNeed()))
}

func (v *whyView) adviceLines(rep *apiv1.WhyReply) []string {
	var table [][]string
	for _, a := range rep.GetAdvice() {
		what := "would start " + v.when(a.GetStart())
		if a.GetGain() > 0 {
			what += " (" + span(a.GetGain()) + " earlier)"
		}
		table = append(table, []string{tableRow + a.GetChange(), what})
	}
	return splitTable(table)
}

// validTarget tells what can name one job, components of heterogeneous jobs
// included: 12, 36_7, 12+1.
func validTarget(id string) bool {
	whole, part, ok := strings.Cut(id, "+")
	if !ok {
		return validJob(id)
	}
	return digitsOf(whole) == len(whole) && validJob(whole) && part != "" && digitsOf(part) == len(part)
}
