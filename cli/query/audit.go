package query

import (
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/audit/ecs"
)

// Audit is muster audit.
func Audit() *tool.Command {
	return &tool.Command{
		Name:    "audit",
		Summary: "show who changed what, from the ledger (for operators)",
		Usage: []string{
			"[OPTIONS]",
			"verify [--config FILE | --archive FOLDER | --backup FOLDER] [--expect LINK]... [--expect-from FILE]",
		},
		ProgramVerbs: map[string][]string{"verify": {"musterd", "audit"}},
		About: `Prints the changes of the audit trail: when, who, on which host, what, about what. Without a time these are the
changes since midnight, with --jobs all that are known. --json prints the records that the exporter writes to a file or
to syslog (audit in muster.yaml), with the same identifiers. Refused calls change nothing and are not in the ledger: the
exporter writes them, and they are found where it writes to.

verify compares the ledger's archive, or a backup's, with its hash chain and names file and batches of each place where
the past was changed, removed, moved or cut off after it was written. It runs on the controller's host, as its user.

For operators and administrators; tokens and certificates of machines are shown to administrators.`,
		Options: []opt.Option{
			{
				Long:  "actors",
				Also:  "actor",
				Short: "a",
				Arg:   "<name_list>",
				Help:  "only what these users or nodes did; system is the controller itself",
			},
			{Long: "all", Help: "every event of the ledger, also the bookkeeping of the scheduler"},
			{
				Long:  "jobs",
				Also:  "job",
				Short: "j",
				Arg:   "<job_id_list>",
				Help:  "only changes of these jobs: 12, 36 with its tasks, 36_7",
			},
			{Long: "json", Help: "print the records as JSON lines in the names of ECS"},
			{
				Long:  "nodelist",
				Also:  "nodes",
				Short: "w",
				Arg:   "<hostlist>",
				Help:  "only changes that name one of these nodes",
			},
			{
				Long:  "since",
				Also:  "starttime",
				Short: "S",
				Arg:   "<time>",
				Help:  "only changes at or after this time, as sacct -S reads it",
			},
			{
				Long:  "until",
				Also:  "endtime",
				Short: "E",
				Arg:   "<time>",
				Help:  "only changes before this time, as sacct -E reads it",
			},
			{
				Long:  "what",
				Short: "k",
				Arg:   "<kind_list>",
				Help:  "only these kinds of events, by name or its beginning: JobUpdated,Node",
			},
		},
		Env: []tool.Variable{
			{
				Name: "SLURM_TIME_FORMAT",
				Help: "format of timestamps: standard, relative or a strftime format",
			},
		},
		Example: []tool.Example{
			{
				Line: "muster audit -a alice -S 2026-11-01",
				What: "shows what alice has changed this month",
			},
			{
				Line: "muster audit -k NodeStateSet -w node7 -S now-7days",
				What: "shows who drained and resumed a node",
			},
			{
				Line: "muster audit -k Account,User,Association,QOS --json",
				What: "prints today's changes of accounts and limits for a program",
			},
			{
				Line: "muster audit verify --backup /backup/muster",
				What: "looks for changes of the past in a folder of backups",
			},
		},
		Run: runAudit,
	}
}

func runAudit(call *tool.Call) error {
	if err := call.RefuseOperands(); err != nil {
		return err
	}
	request, err := eventsRequest(call)
	if err != nil {
		return err
	}
	request.Audit = true
	request.Actors = call.Opts.List("actors")
	request.Kinds = call.Opts.List("what")
	which := ecs.Changes
	if call.Opts.On("all") || len(request.Kinds) > 0 {
		which = ecs.All
	}
	_, err = eventsOnce(call, request, func(call *tool.Call, event *apiv1.EventInfo) error {
		switch {
		case !which.Wants(event):
			return nil
		case call.Opts.On("json"):
			line, err := (ecs.Origin{Cluster: call.Cluster()}).FromEvent(event).Line()
			if err != nil {
				return err
			}
			return call.WriteOut([]byte(line + "\n"))
		}
		return auditText(call, event)
	})
	return err
}

// auditText prints a change on one line.
func auditText(call *tool.Call, event *apiv1.EventInfo) error {
	who := event.GetActor()
	if who == "" {
		who = event.GetActorKind()
	}
	if event.GetHost() != "" {
		who += "@" + event.GetHost()
	}
	data := fmt.Appendf(
		nil,
		"%d %s %s %s",
		event.GetSeq(),
		render.FormatTime(call, event.GetAt()),
		who,
		event.GetKind(),
	)
	return call.WriteOut(append(render.EventFacts(render.NewClock(call.Env), data, event), '\n'))
}
