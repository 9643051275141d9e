package acct

import (
	"cmp"
	"errors"
	"fmt"
	"html"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec/format"
)

// What only the drawn form of the report about a job has: its life as a timeline, figures
// over time, its events.

// maxReportEvents bounds the events of a page; a job that was changed by a loop has thousands.
const maxReportEvents = 500

// life is the life of a run as a band, from the submission to the end or to now.
type life struct {
	from, until int64
	clock       render.Clock
	spans       []lifeSpan
	events      []lifeEvent
}

// lifeSpan is a stretch of a band.
type lifeSpan struct {
	from, until int64
	class       string // of the page's style
	label       string
}

// lifeEvent is a mark on a band.
type lifeEvent struct {
	at   int64
	text string
}

// waitClasses is how many colours tell reasons apart; further ones share them.
const waitClasses = 5

// lifeOf makes the band of a run.
func lifeOf(reply *apiv1.JobReportReply, clock render.Clock) *life {
	run := reply.GetRun()
	band := &life{
		from:  run.GetSubmit(),
		until: cmp.Or(run.GetEnd(), reply.GetNow()),
		clock: clock,
	}
	if band.until <= band.from {
		return nil
	}
	classes := map[string]string{}
	for _, period := range reply.GetPeriods() {
		reason := reasonWords(period.GetReason())
		code := period.GetReason().GetCode()
		if classes[code] == "" {
			classes[code] = fmt.Sprintf("w%d", len(classes)%waitClasses)
		}
		band.addSpan(classes[code], "waited: "+reason, period.GetFrom(), cmp.Or(period.GetTo(), band.until))
	}
	if len(reply.GetPeriods()) == 0 {
		band.addSpan("w0", "waited", band.from, cmp.Or(run.GetStart(), band.until))
	}
	if run.GetStart() != 0 {
		label := "ran"
		if run.GetEnd() == 0 {
			label = "runs"
		}
		band.addSpan("ran", label, run.GetStart(), band.until)
	}
	return band
}

// addSpan adds a stretch, or makes the one before it longer if that has the same label.
func (l *life) addSpan(class, label string, from, until int64) {
	until = min(until, l.until)
	if until <= from {
		return
	}
	if last := len(l.spans) - 1; last >= 0 && l.spans[last].label == label {
		l.spans[last].until = until
		return
	}
	l.spans = append(l.spans, lifeSpan{from: from, until: until, class: class, label: label})
}

// mark adds an event. What follows the end of the band, such as what a node reports, has no mark.
func (l *life) mark(at int64, text string) {
	if at >= l.from && at <= l.until {
		l.events = append(l.events, lifeEvent{at: at, text: text})
	}
}

// place is where an instant is on the band, in thousandths of its length.
func (l *life) place(at int64) float64 {
	at = min(max(at, l.from), l.until)
	return 1000 * float64(at-l.from) / float64(l.until-l.from)
}

// describe is how long a stretch took.
func (l *life) describe(span lifeSpan) string {
	return format.Duration((span.until-span.from)/tool.Second) + " from " + l.clock.Time(span.from)
}

// drawJob adds what only the drawn form has. What cannot be read is missing with a reason.
func (r *reporting) drawJob(id string, reply *apiv1.JobReportReply) {
	band := part{
		heading: "Its life", form: drawnForm, life: lifeOf(reply, render.NewClock(r.Call.Env)),
	}
	events := r.jobEvents(id, reply, band.life)
	gpus := part{heading: "Its GPUs over time", form: drawnForm}
	if reply.GetRun().GetStart() != 0 && render.GPUsOf(reply.GetRun().GetAllocTres()) > 0 {
		gpus.list, gpus.charted = r.jobGPUs(id)
	}
	nodes := part{
		heading: "CPU and memory over time", form: drawnForm, charted: render.ChartNodes(reply),
	}
	if more := reply.GetUsageMore(); more > 0 && len(nodes.charted) > 0 {
		nodes.list = []string{fmt.Sprintf("%d more nodes are not drawn.", more)}
	}
	// The head comes first, advice last but for the events.
	head, rest := r.page.parts[0], r.page.parts[1:]
	head.pairs = append(head.pairs, submission(reply.GetRun())...)
	parts := []part{head, band}
	parts = append(parts, rest[:len(rest)-1]...)
	parts = append(parts, gpus, nodes, rest[len(rest)-1], events)
	r.page.parts = parts
}

// submission is how a run was submitted, for somebody who does not know the job.
func submission(run *apiv1.AcctRow) [][2]string {
	var out [][2]string
	for _, pair := range [][2]string{
		{"QOS", run.GetQos()},
		{"Submitted with", run.GetSubmitLine()},
		{"Working folder", run.GetWorkDir()},
		{"Comment", run.GetComment()},
	} {
		if pair[1] != "" {
			out = append(out, pair)
		}
	}
	if n := run.GetRestarts(); n > 0 {
		out = append(out, [2]string{"Restarts", fmt.Sprintf("%d, the last run is shown", n)})
	}
	return out
}

func (r *reporting) jobGPUs(id string) (missing []string, charted []render.Charted) {
	if r.PastCluster() != "" {
		return []string{"Samples of another cluster are not kept here."}, nil
	}
	history := &apiv1.GpuHistoryReply{}
	query := &apiv1.GpuHistoryQuery{Job: id, Points: render.ChartPoints}
	err := fetch.UpToDate(r.Call, tool.MethodAcctGPUHistory, query, history, func(seq uint64) { query.MinSeq = seq })
	if err != nil {
		return []string{"Samples of its GPUs cannot be read: " + refusalText(err)}, nil
	}
	charted, _, _ = render.ChartGPUs(history)
	if more := len(history.GetGpus()) - len(charted); more > 0 {
		missing = append(missing, fmt.Sprintf("%d more GPUs are not drawn: muster gpu %s draws them all.", more, id))
	}
	if !slices.ContainsFunc(charted, hasFigures) {
		return []string{"There are no samples of its GPUs: it ran for too short a time, or none are taken (samples_interval in muster.yaml)."}, nil
	}
	return missing, charted
}

// hasFigures tells whether anything of a device was measured.
func hasFigures(charted render.Charted) bool {
	return slices.ContainsFunc(charted.Charts, func(chart render.Chart) bool { return !chart.None })
}

func refusalText(err error) string {
	refused := tool.ExplainError(err)
	return cmp.Or(refused.Detail, refused.Text)
}

// jobEvents lists the events of a job, and marks them on the band of its life.
func (r *reporting) jobEvents(id string, reply *apiv1.JobReportReply, band *life) part {
	out := part{
		heading: "Events",
		form:    drawnForm,
		folded:  true,
		head:    []string{"Time", "Event", "What", "By"},
		texts:   4,
		wide:    2,
	}
	if r.PastCluster() != "" {
		out.list = []string{"The ledger of another cluster is not read here."}
		return out
	}
	list, more, err := r.readEvents(id, reply)
	if err != nil {
		out.list = []string{"Its events cannot be read: " + refusalText(err)}
		return out
	}
	for _, event := range list {
		at := render.FormatTime(r.Call, event.GetAt())
		by := event.GetActorKind()
		if event.GetActor() != "" {
			by = event.GetActor()
		}
		if band != nil {
			band.mark(event.GetAt(), event.GetKind()+" "+at)
		}
		// The page says whose job it is.
		event.User, event.Account = "", ""
		if event.GetJob() == id {
			event.Job = ""
		}
		facts := strings.TrimSpace(string(render.EventFacts(render.NewClock(r.Call.Env), nil, event)))
		out.rows = append(out.rows, []string{at, event.GetKind(), facts, by})
	}
	switch {
	case more:
		out.list = []string{fmt.Sprintf("There are more events: muster events --jobs %s lists them all.", id)}
	case len(list) == 0:
		out.list = []string{"The ledger and its archive have no events of it any more."}
	}
	return out
}

// readEvents reads the events of a job since its submission.
func (r *reporting) readEvents(id string, rep *apiv1.JobReportReply) (list []*apiv1.EventInfo, more bool, err error) {
	request := &apiv1.EventsRequest{Jobs: []string{id}, Since: max(rep.GetRun().GetSubmit(), 1)}
	if end := rep.GetRun().GetEnd(); end != 0 {
		// Its nodes report what was used soon after the end; what is later is about its archive.
		request.Until = end + 3600*tool.Second
	}
	errEnough := errors.New("enough events")
	err = fetch.Stream(r.Call, tool.MethodEvents, request, func(reply *apiv1.EventsReply) error {
		list = append(list, reply.GetEvents()...)
		if len(list) > maxReportEvents {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	if len(list) > maxReportEvents {
		return list[:maxReportEvents], true, err
	}
	return list, false, err
}

// writeLife writes a band with its legend.
func (l *life) write(b *strings.Builder) {
	e := plainHTML
	from, until := l.clock.Time(l.from), l.clock.Time(l.until)
	fmt.Fprintf(b, `<svg class="life" viewBox="0 0 1000 30" preserveAspectRatio="none" role="img" aria-label="%s">`,
		e("from "+from+" to "+until))
	for _, span := range l.spans {
		begin := l.place(span.from)
		length := l.place(span.until) - begin
		fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="6" width="%.1f" height="18"><title>%s</title></rect>`,
			span.class, begin, max(length, 1), e(span.label+", "+l.describe(span)))
	}
	for _, event := range l.events {
		fmt.Fprintf(
			b,
			`<path class="mark" d="M%.1f 0V30"><title>%s</title></path>`,
			l.place(event.at),
			e(event.text),
		)
	}
	fmt.Fprintf(b, "</svg>\n<p class=\"ends\"><span>%s</span><span>%s</span></p>\n<ul class=\"legend\">", e(from), e(until))
	for _, span := range l.spans {
		if span.until-span.from < tool.Second {
			continue
		}
		fmt.Fprintf(
			b,
			`<li><i class="%s"></i><b>%s</b> %s</li>`,
			span.class,
			e(span.label),
			e(l.describe(span)),
		)
	}
	b.WriteString("</ul>\n")
}

// writeCharted writes figures over time.
func writeCharted(text *strings.Builder, list []render.Charted) {
	e := plainHTML
	for _, charted := range list {
		fmt.Fprintf(
			text,
			"<h3>%s <small>%s</small></h3>\n<div class=\"charts\">",
			e(charted.Name),
			e(charted.UUID),
		)
		for i := range charted.Charts {
			chart := &charted.Charts[i]
			fmt.Fprintf(text, "<figure><figcaption>%s", e(chart.Name))
			if chart.None {
				text.WriteString("</figcaption><p>not measured</p></figure>")
				continue
			}
			fmt.Fprintf(text, "<br><b>%s</b> to %s</figcaption>", e(chart.Mean), e(chart.Most))
			fmt.Fprintf(
				text,
				`<svg viewBox="0 0 %d 100" preserveAspectRatio="none" role="img" aria-label="%s"><path class="area" d="%s"/><path class="curve" d="%s"/></svg></figure>`,
				chart.Width,
				e(chart.Name+" over time: mean "+chart.Mean+", most "+chart.Most),
				chart.Area,
				chart.Line,
			)
		}
		text.WriteString("</div>\n")
	}
}

// plainHTML writes a text so that it stays one: what a user named is neither a tag, nor a
// control character, nor turns the direction of what follows.
func plainHTML(text string) string {
	return html.EscapeString(render.CleanLine(text))
}
