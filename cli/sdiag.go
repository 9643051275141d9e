package cli

import (
	"fmt"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
)

func sdiagCommand() *command {
	return &command{
		name: "sdiag", slurm: true, mixed: true,
		summary: "show the controller's own figures",
		usage:   []string{"[OPTIONS]"},
		about: `Labels are Slurm's where the figure means the same. Figures of things that Muster does not have (agent threads, RPC
statistics) are left out rather than printed as zero.`,
		options: []opt.Option{
			{Long: "all", Short: "a", Help: "show everything", Always: "it always is"},
			{Long: "cluster", Short: "M", Arg: "<string>", Env: "SLURM_CLUSTERS", Help: "check that this is the cluster's name"},
			{Long: "json", Arg: "<data_parser>", Maybe: true, Env: "SLURM_JSON", Help: "print JSON"},
			{Long: "no-trunc", Help: "cut no names", Always: "none is cut"},
			{Long: "reset", Short: "r", Refused: "the figures come from the ledger and are never reset"},
			{Long: "sort-by-id", Short: "i", Refused: "there are no statistics by message"},
			{Long: "sort-by-time", Short: "t", Refused: "there are no statistics by message"},
			{Long: "sort-by-time2", Short: "T", Refused: "there are no statistics by message"},
			{Long: "yaml", Arg: "<data_parser>", Maybe: true, Env: "SLURM_YAML", Help: "print YAML"},
		},
		example: []example{{"sdiag | grep 'Mean cycle'", "says how long a scheduling pass takes, in microseconds"}},
		run: func(c *call) error {
			if c.opts.On("cluster") {
				c.opts.Put("clusters", c.opts.Text("cluster"), true, opt.FromCommand)
			}
			if err := c.checkClusters(); err != nil {
				return err
			}
			var rep apiv1.DiagReply
			if err := c.ask(methodDiag, &apiv1.DiagRequest{}, &rep); err != nil {
				r := explainError(err)
				return fail(1, append(r.before("sdiag"), "slurm_get_statistics: "+r.text)...)
			}
			if c.wantsTree() {
				return c.structured(c.opts.On("json"), c.document(tree.Member{Key: "statistics", Value: diagTree(&rep)}))
			}
			return c.write([]byte(diagText(&rep, c.Loc)))
		},
	}
}

func micros(ns int64) int64 { return ns / int64(spec.Microsecond) }

func mean(total int64, n uint64) int64 {
	if n == 0 {
		return 0
	}
	return total / int64(n)
}

// diagText lays the figures out as sdiag does.
func diagText(d *apiv1.DiagReply, loc *time.Location) string {
	at := func(ns int64) string {
		return fmt.Sprintf("%s (%d)", time.Unix(ns/second, 0).In(loc).Format("Mon Jan _2 15:04:05 2006"), ns/second)
	}
	var b strings.Builder
	rule := strings.Repeat("*", 55) + "\n"
	fmt.Fprintf(&b, "%ssdiag output at %s\nData since      %s\n%s", rule, at(d.GetNow()), at(d.GetStartedAt()), rule)
	fmt.Fprintf(&b, "DBD Agent queue size: %d\n\n", lag(d))
	fmt.Fprintf(&b, "Jobs submitted: %d\nJobs started:   %d\nJobs completed: %d\nJobs canceled:  %d\nJobs failed:    %d\n\n",
		d.GetJobsSubmitted(), d.GetJobsStarted(), d.GetJobsCompleted(), d.GetJobsCancelled(), d.GetJobsFailed())
	fmt.Fprintf(&b, "Job states ts:  %s\nJobs pending:   %d\nJobs running:   %d\n\n", at(d.GetNow()), d.GetPending(), d.GetRunning())
	fmt.Fprintf(&b, "Main schedule statistics (microseconds):\n\tLast cycle:   %d\n\tMax cycle:    %d\n\tTotal cycles: %d\n",
		micros(d.GetPassLast()), micros(d.GetPassMax()), d.GetPasses())
	fmt.Fprintf(&b, "\tMean cycle:   %d\n", micros(mean(d.GetPassTotal(), d.GetPasses())))
	if up := d.GetNow() - d.GetStartedAt(); up >= 60*second {
		fmt.Fprintf(&b, "\tCycles per minute: %d\n", int64(d.GetPasses())/(up/(60*second)))
	}
	fmt.Fprintf(&b, "\tLast queue length: %d\n\nMain scheduler exit:\n\t%s\n\n", d.GetPending(), or(d.GetPassExit(), "End of job queue"))
	fmt.Fprintf(&b, "Backfilling stats\n\tTotal backfilled jobs (since last slurm start): %d\n\tLast depth cycle: %d\n\tLast queue length: %d\n\n",
		d.GetJobsBackfilled(), d.GetPassDepth(), d.GetPending())
	fmt.Fprintf(&b, "Ledger\n\tLast event:         %d\n\tLog position:       %d\n\tLast append (usec): %d\n\tAccounted up to:    %d\n\tAgents connected:   %d\n"+
		"\tStale reports:      %d\n\tDropped proposals:  %d\n", d.GetSeq(), d.GetLogPosition(), micros(d.GetAppendLast()), d.GetAccountedSeq(), d.GetAgents(),
		d.GetStaleReports(), d.GetDroppedProposals())
	for _, e := range d.GetMore() {
		fmt.Fprintf(&b, "\t%s: %s\n", e.GetKey(), e.GetValue())
	}
	return b.String()
}

// lag is how many events accounting has not taken in yet.
func lag(d *apiv1.DiagReply) uint64 {
	if d.GetAccountedSeq() >= d.GetSeq() {
		return 0
	}
	return d.GetSeq() - d.GetAccountedSeq()
}

func diagTree(d *apiv1.DiagReply) tree.Object {
	return tree.Object{
		{Key: "parts_packed", Value: 1}, {Key: "req_time", Value: moment(d.GetNow())}, {Key: "req_time_start", Value: moment(d.GetStartedAt())},
		{Key: "dbd_agent_queue_size", Value: lag(d)},
		{Key: "schedule_cycle_max", Value: micros(d.GetPassMax())}, {Key: "schedule_cycle_last", Value: micros(d.GetPassLast())}, {Key: "schedule_cycle_sum", Value: micros(d.GetPassTotal())},
		{Key: "schedule_cycle_total", Value: d.GetPasses()}, {Key: "schedule_cycle_mean", Value: micros(mean(d.GetPassTotal(), d.GetPasses()))}, {Key: "schedule_queue_length", Value: d.GetPending()},
		{Key: "jobs_submitted", Value: d.GetJobsSubmitted()}, {Key: "jobs_started", Value: d.GetJobsStarted()}, {Key: "jobs_completed", Value: d.GetJobsCompleted()},
		{Key: "jobs_canceled", Value: d.GetJobsCancelled()}, {Key: "jobs_failed", Value: d.GetJobsFailed()}, {Key: "jobs_pending", Value: d.GetPending()}, {Key: "jobs_running", Value: d.GetRunning()},
		{Key: "job_states_ts", Value: moment(d.GetNow())}, {Key: "bf_backfilled_jobs", Value: d.GetJobsBackfilled()}, {Key: "bf_last_depth", Value: d.GetPassDepth()},
		{Key: "agents_connected", Value: d.GetAgents()}, {Key: "ledger_seq", Value: d.GetSeq()}, {Key: "ledger_position", Value: d.GetLogPosition()}, // Muster's own
	}
}
