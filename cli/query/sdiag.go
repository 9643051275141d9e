package query

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
)

func Sdiag() *tool.Command {
	return &tool.Command{
		Name: "sdiag", Slurm: true, Mixed: true,
		Summary: "show statistics of the controller",
		Usage:   []string{"[OPTIONS]"},
		About: `Labels are those of Slurm where the value means the same. Statistics of what Muster does not have
(threads and queues of agents, pending RPCs) are omitted rather than printed as zero.

Calls are counted by method and by user since the controller started or was asked to --reset. Methods that do what a message
type of Slurm does have its name and number, others their own name and 0. Calls that are answered by a stream are not counted.`,
		Options: []opt.Option{
			{Long: "all", Short: "a", Help: "show everything", Always: "it always is"},
			{
				Long:  "cluster",
				Also:  "clusters",
				Short: "M",
				Arg:   "<string>",
				Env:   "SLURM_CLUSTERS",
				Help:  "cluster to ask",
			},
			{
				Long:  "json",
				Arg:   "<data_parser>",
				Maybe: true,
				Env:   "SLURM_JSON",
				Help:  "print JSON",
			},
			{Long: "no-trunc", Help: "do not truncate names", Always: "none is cut"},
			{Long: "reset", Short: "r", Help: "count from now on (operators)"},
			{Long: "sort-by-id", Short: "i", Help: "sort calls by message type and user id"},
			{Long: "sort-by-time", Short: "t", Help: "sort calls by total time"},
			{Long: "sort-by-time2", Short: "T", Help: "sort calls by mean time"},
			{
				Long:  "yaml",
				Arg:   "<data_parser>",
				Maybe: true,
				Env:   "SLURM_YAML",
				Help:  "print YAML",
			},
		},
		Example: []tool.Example{
			{
				Line: "sdiag | grep 'Mean cycle'",
				What: "prints the mean duration of a scheduling pass in microseconds",
			},
		},
		Run: func(call *tool.Call) error {
			if call.Opts.On("cluster") {
				call.Opts.Put("clusters", call.Opts.Text("cluster"), true, opt.FromCommand)
			}
			return call.OneCluster(showStatistics)
		},
	}
}

func showStatistics(call *tool.Call) error {
	var reply apiv1.DiagReply
	if err := call.RPC(
		tool.MethodDiag, &apiv1.DiagRequest{Anew: call.Opts.On("reset")}, &reply,
	); err != nil {
		refusal := tool.ExplainError(err)
		return tool.Fail(
			1, append(refusal.Preamble("sdiag"), "slurm_get_statistics: "+refusal.Text)...,
		)
	}
	if call.Opts.On("reset") {
		return call.WriteOut([]byte("Reset scheduling statistics\n"))
	}
	methods := methodFigures(reply.GetMethods())
	callers := callerFigures(call, reply.GetCallers())
	sortFigures(call, methods)
	sortFigures(call, callers)
	if render.WantsDocument(call) {
		return render.Answer(
			call,
			"openapi_diag_resp",
			tree.Member{
				Key:   "statistics",
				Value: append(diagTree(&reply), figureTrees(methods, callers)...),
			},
		)
	}
	return call.WriteOut([]byte(diagText(&reply, call.Loc) + figuresText(methods, callers)))
}

func toMicros(ns int64) int64 { return ns / int64(spec.Microsecond) }

func meanOf(total int64, n uint64) int64 {
	if n == 0 {
		return 0
	}
	return total / int64(n)
}

// diagText lays the figures out as sdiag does.
func diagText(diag *apiv1.DiagReply, zone *time.Location) string {
	at := func(ns int64) string {
		return fmt.Sprintf(
			"%s (%d)",
			time.Unix(ns/tool.Second, 0).In(zone).Format("Mon Jan _2 15:04:05 2006"),
			ns/tool.Second,
		)
	}
	var text strings.Builder
	rule := strings.Repeat("*", 55) + "\n"
	fmt.Fprintf(
		&text,
		"%ssdiag output at %s\nData since      %s\n%s",
		rule,
		at(diag.GetNow()),
		at(diag.GetStartedAt()),
		rule,
	)
	fmt.Fprintf(&text, "DBD Agent queue size: %d\n\n", accountingLag(diag))
	fmt.Fprintf(
		&text,
		"Jobs submitted: %d\nJobs started:   %d\nJobs completed: %d\nJobs canceled:  %d\nJobs failed:    %d\n\n",
		diag.GetJobsSubmitted(),
		diag.GetJobsStarted(),
		diag.GetJobsCompleted(),
		diag.GetJobsCancelled(),
		diag.GetJobsFailed(),
	)
	fmt.Fprintf(
		&text,
		"Job states ts:  %s\nJobs pending:   %d\nJobs running:   %d\n\n",
		at(diag.GetNow()),
		diag.GetPending(),
		diag.GetRunning(),
	)
	fmt.Fprintf(
		&text,
		"Main schedule statistics (microseconds):\n\tLast cycle:   %d\n\tMax cycle:    %d\n\tTotal cycles: %d\n",
		toMicros(diag.GetPassLast()),
		toMicros(diag.GetPassMax()),
		diag.GetPasses(),
	)
	fmt.Fprintf(
		&text, "\tMean cycle:   %d\n", toMicros(meanOf(diag.GetPassTotal(), diag.GetPasses())),
	)
	if up := diag.GetNow() - diag.GetStartedAt(); up >= 60*tool.Second {
		fmt.Fprintf(
			&text, "\tCycles per minute: %d\n", int64(diag.GetPasses())/(up/(60*tool.Second)),
		)
	}
	fmt.Fprintf(
		&text,
		"\tLast queue length: %d\n\tQuick cycles: %d\n\nMain scheduler exit:\n\t%s\n\n",
		diag.GetPending(),
		diag.GetQuickPasses(),
		cmp.Or(diag.GetPassExit(), "End of job queue"),
	)
	fmt.Fprintf(
		&text,
		"Backfilling stats\n\tTotal backfilled jobs (since last slurm start): %d\n\tLast depth cycle: %d\n\tLast queue length: %d\n\n",
		diag.GetJobsBackfilled(),
		diag.GetPassDepth(),
		diag.GetPending(),
	)
	fmt.Fprintf(
		&text,
		"Ledger\n\tLast event:         %d\n\tLog position:       %d\n\tLast append (usec): %d\n\tAccounted up to:    %d\n\tAgents connected:   %d\n"+
			"\tStale reports:      %d\n\tDropped proposals:  %d\n",
		diag.GetSeq(),
		diag.GetLogPosition(),
		toMicros(diag.GetAppendLast()),
		diag.GetAccountedSeq(),
		diag.GetAgents(),
		diag.GetStaleReports(),
		diag.GetDroppedProposals(),
	)
	for _, entry := range diag.GetMore() {
		fmt.Fprintf(&text, "\t%s: %s\n", entry.GetKey(), entry.GetValue())
	}
	return text.String()
}

// accountingLag is how many events accounting has not taken in yet.
func accountingLag(diag *apiv1.DiagReply) uint64 {
	if diag.GetAccountedSeq() >= diag.GetSeq() {
		return 0
	}
	return diag.GetSeq() - diag.GetAccountedSeq()
}

func diagTree(diag *apiv1.DiagReply) tree.Object {
	return tree.Object{
		{
			Key:   "parts_packed",
			Value: 1,
		}, {Key: "req_time", Value: render.Instant(diag.GetNow())}, {Key: "req_time_start", Value: render.Instant(diag.GetStartedAt())},
		{Key: "dbd_agent_queue_size", Value: accountingLag(diag)},
		{
			Key:   "schedule_cycle_max",
			Value: toMicros(diag.GetPassMax()),
		}, {Key: "schedule_cycle_last", Value: toMicros(diag.GetPassLast())}, {Key: "schedule_cycle_sum", Value: toMicros(diag.GetPassTotal())},
		{
			Key:   "schedule_cycle_total",
			Value: diag.GetPasses(),
		}, {Key: "schedule_cycle_mean", Value: toMicros(meanOf(diag.GetPassTotal(), diag.GetPasses()))}, {Key: "schedule_queue_length", Value: diag.GetPending()},
		{
			Key:   "jobs_submitted",
			Value: diag.GetJobsSubmitted(),
		}, {Key: "jobs_started", Value: diag.GetJobsStarted()}, {Key: "jobs_completed", Value: diag.GetJobsCompleted()},
		{
			Key:   "jobs_canceled",
			Value: diag.GetJobsCancelled(),
		}, {Key: "jobs_failed", Value: diag.GetJobsFailed()}, {Key: "jobs_pending", Value: diag.GetPending()}, {Key: "jobs_running", Value: diag.GetRunning()},
		{
			Key:   "job_states_ts",
			Value: render.Instant(diag.GetNow()),
		}, {Key: "bf_backfilled_jobs", Value: diag.GetJobsBackfilled()}, {Key: "bf_last_depth", Value: diag.GetPassDepth()},
		{
			Key:   "agents_connected",
			Value: diag.GetAgents(),
		}, {Key: "ledger_seq", Value: diag.GetSeq()}, {Key: "ledger_position", Value: diag.GetLogPosition()}, // Muster's own
	}
}
