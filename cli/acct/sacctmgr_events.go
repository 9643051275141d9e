package acct

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// showEvents lists when nodes were not up, since the midnight before the last
// where nothing else is said.
func showEvents(call *tool.Call, words render.PolicyWords) error {
	now := call.Now().In(call.Loc)
	query := &apiv1.ReportQuery{
		Report: "node events",
		Zone:   tool.ZoneName(call.Env),
		End:    now.UnixNano(),
		Start:  time.Date(now.Year(), now.Month(), now.Day()-1, 0, 0, 0, 0, call.Loc).UnixNano(),
	}
	if slices.Contains(words.Bare, "all_time") {
		query.Start = 1
	}
	for key, to := range map[string]*int64{"start": &query.Start, "end": &query.End} {
		if text, ok := render.PolicyWord(words.Where, key); ok {
			seconds, err := format.ParseTime(
				text,
				format.Moment{Now: now.Unix(), Loc: call.Loc, Past: true},
			)
			if err != nil {
				return tool.Fail(1, tool.BadTimeText(text))
			}
			*to = max(seconds*tool.Second, 1)
		}
	}
	if text, ok := render.PolicyWord(words.Where, "node", "nodes"); ok {
		names, err := hostlist.Expand(text)
		if err != nil {
			return call.Errorf("%v", err)
		}
		query.Nodes = names
	}
	var reply apiv1.ReportReply
	if err := fetch.UpToDate(call, tool.MethodAcctReport, query, &reply, func(seq uint64) {
		query.MinSeq = seq
	}); err != nil {
		return err
	}
	fetch.WarnBehind(call, reply.GetBehind())
	if render.WantsDocument(call) {
		return render.Print(
			call, tree.Member{Key: "events", Value: eventTrees(&reply, now.UnixNano())},
		)
	}
	var rows []*render.PolicyRow
	for _, reportRow := range reply.GetRows() {
		var texts []string
		for i, column := range reply.GetColumns() {
			cell := reportRow.GetCells()[i]
			if column.GetUnit() == "time" {
				texts = append(texts, render.FormatTime(call, cell.GetInt()))
			} else {
				texts = append(texts, cell.GetText())
			}
		}
		rows = append(
			rows,
			&render.PolicyRow{More: append(texts, eventLength(&reply, reportRow, now.UnixNano()))},
		)
	}
	all := render.WithAliases(
		render.TextFields(
			"Cluster",
			10,
			"NodeName",
			15,
			"TimeStart",
			19,
			"TimeEnd",
			19,
			"State",
			6,
			"Reason",
			30,
			"User",
			15,
			"Duration",
			13,
		),
		[]string{
			"TimeStart",
			"start",
		},
		[]string{"TimeEnd", "end"},
		[]string{"NodeName", "node", "event"},
	)
	shown, err := policyColumns(call, all[:7], all[7:], words)
	if err != nil {
		return err
	}
	view := render.PolicyView{}
	return call.WriteOut(view.Text(render.TableStyle(call), shown, rows))
}

// eventTrees are the events of a report as objects: a key for each column, a time as a number.
func eventTrees(reply *apiv1.ReportReply, now int64) tree.List {
	out := make(tree.List, len(reply.GetRows()))
	for i, row := range reply.GetRows() {
		event := tree.Object{}
		for k, column := range reply.GetColumns() {
			cell := row.GetCells()[k]
			member := tree.Member{Key: eventKey(column.GetName()), Value: cell.GetText()}
			if column.GetUnit() == "time" {
				at := cell.GetInt()
				member.Value = render.Number(at/tool.Second, at != 0, false)
			}
			event = append(event, member)
		}
		var duration any
		if seconds, known := eventSeconds(reply, row, now); known {
			duration = seconds
		}
		out[i] = append(event, tree.Member{Key: "duration", Value: duration})
	}
	return out
}

// eventKey is the name of a column as a key: NodeName is node_name.
func eventKey(column string) string {
	var text strings.Builder
	for i, r := range column {
		if i > 0 && unicode.IsUpper(r) {
			text.WriteByte('_')
		}
		text.WriteRune(unicode.ToLower(r))
	}
	return text.String()
}

// runawayTree is a job that accounting takes for open and the controller does not know.
func runawayTree(row *apiv1.AcctRow, cluster string) tree.Object {
	return tree.Object{
		{Key: "cluster", Value: cluster},
		{Key: "job_id", Value: row.GetJobId()},
		{Key: "id", Value: acctID(row)},
		{Key: "name", Value: row.GetName()},
		{Key: "partition", Value: row.GetPartition()},
		{Key: "state", Value: row.GetState()},
		{
			Key: "time",
			Value: tree.Object{
				{Key: "submission", Value: render.Number(row.GetSubmit()/tool.Second, row.GetSubmit() != 0, false)},
				{Key: "start", Value: render.Number(row.GetStart()/tool.Second, row.GetStart() != 0, false)},
				{Key: "end", Value: render.Number(row.GetEnd()/tool.Second, row.GetEnd() != 0, false)},
			},
		},
	}
}

// eventLength is how long an event took, or takes until now; empty where that is not known.
func eventLength(reply *apiv1.ReportReply, reportRow *apiv1.ReportRow, now int64) string {
	seconds, known := eventSeconds(reply, reportRow, now)
	if !known {
		return ""
	}
	return format.Duration(seconds)
}

// eventSeconds is how long an event took, or takes until now. It is not known where the
// controller, of another release, does not send one time of begin and one of end.
func eventSeconds(
	reply *apiv1.ReportReply, reportRow *apiv1.ReportRow, now int64,
) (seconds int64, known bool) {
	var times []int64
	for i, column := range reply.GetColumns() {
		if column.GetUnit() == "time" {
			times = append(times, reportRow.GetCells()[i].GetInt())
		}
	}
	if len(times) != 2 {
		return 0, false
	}
	if times[1] == 0 {
		times[1] = now
	}
	return (times[1] - times[0]) / tool.Second, true
}

// showRunaway lists jobs that accounting takes for open and the controller
// does not know, or knows to be over. Accounting is a projection of the
// ledger, so that there should be none.
func showRunaway(call *tool.Call) error {
	var jobs apiv1.ListJobsReply
	if err := call.RPC(tool.MethodListJobs, &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{AllStates: true}}, &jobs); err != nil {
		return err
	}
	known := map[uint64]bool{}
	for _, job := range jobs.GetJobs() {
		known[job.GetUid()] = !spec.JobState(job.GetState()).Terminal() || job.GetCompleting()
	}
	cluster, behind := "", uint64(0)
	var lost []*apiv1.AcctRow
	request := &apiv1.AcctQuery{
		AllUsers:        true,
		AllocationsOnly: true,
		States: []uint32{
			uint32(spec.Pending),
			uint32(spec.Running),
			uint32(spec.Suspended),
		},
		Start: call.Now().UnixNano(),
	}
	err := fetch.AccountingRows(call, request, func(reply *apiv1.AcctReply) error {
		cluster, behind = reply.GetCluster(), reply.GetBehind()
		for _, r := range reply.GetRows() {
			if r.GetEnd() == 0 && !known[r.GetUid()] && r.GetSubmit() < jobs.GetNow() {
				lost = append(lost, r)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	fetch.WarnBehind(call, behind)
	if render.WantsDocument(call) {
		list := make(tree.List, len(lost))
		for i, row := range lost {
			list[i] = runawayTree(row, cluster)
		}
		return render.Print(call, tree.Member{Key: "runaway_jobs", Value: list})
	}
	if len(lost) == 0 {
		return call.WriteOut([]byte("Runaway Jobs: No runaway jobs found on cluster " + cluster +
			"\n"))
	}
	var rows []*render.PolicyRow
	for _, r := range lost {
		rows = append(
			rows,
			&render.PolicyRow{
				More: []string{
					acctID(r),
					r.GetName(),
					r.GetPartition(),
					cluster,
					r.GetState(),
					render.FormatTime(call, r.GetSubmit()),
					render.FormatTime(call, r.GetStart()),
					render.FormatTime(call, r.GetEnd()),
				},
			},
		)
	}
	shown, err := policyColumns(
		call,
		render.TextFields(
			"ID",
			12,
			"Name",
			10,
			"Partition",
			10,
			"Cluster",
			10,
			"State",
			10,
			"TimeSubmit",
			19,
			"TimeStart",
			19,
			"TimeEnd",
			19,
		),
		nil,
		render.PolicyWords{},
	)
	if err != nil {
		return err
	}
	view := render.PolicyView{}
	data := view.Text(render.TableStyle(call), shown, rows)
	return call.WriteOut(
		fmt.Appendf(
			nil,
			"NOTE: Runaway jobs are jobs that don't exist in the controller but are considered pending, running or suspended in accounting\n%s",
			data,
		),
	)
}
