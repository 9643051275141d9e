package acct

import (
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
)

func Accounting() *tool.Command {
	return &tool.Command{
		Name: "accounting", Mixed: true, Summary: "verify, back up and archive the accounting store",
		Usage: []string{
			"[OPTIONS] verify|doctor",
			"[OPTIONS] backup|restore NAME",
			"[OPTIONS] archive|purge|discard|unarchive MONTH",
		},
		About: `For administrators. verify recounts the whole ledger and compares every total with the store.
doctor checks the engine, the schema, the disk and the progress of the ingest. backup copies the store into the engine's folder of backups, the position first, so that it can
be made while jobs run; restore replaces the store by the copy, and what happened since is counted again from the ledger.
archive writes a month (2026-03, in UTC) of runs, steps, their nodes and devices, reasons and events to Parquet files below
accounting.archive. purge deletes a month that is archived as it is now; discard deletes it without an archive. A record of what went, with
its sums, stays, so that verify still compares everything, and reports over whole days stay the same. unarchive reads a month back.
The exit code is 3 where something is wrong.`,
		Verbs: []tool.Verb{
			{
				Name: "accounting",
				Args: "verify",
				Help: "recount the ledger and compare it with the store",
			},
			{Name: "accounting", Args: "doctor", Help: "check the store for problems"},
			{Name: "accounting", Args: "backup", Help: "copy the store under a name"},
			{Name: "accounting", Args: "restore", Help: "replace the store by a backup"},
			{Name: "accounting", Args: "archive", Help: "write a month to Parquet files"},
			{Name: "accounting", Args: "purge", Help: "delete a month that is archived"},
			{Name: "accounting", Args: "discard", Help: "delete a month"},
			{Name: "accounting", Args: "unarchive", Help: "read an archived month back"},
		},
		Options: []opt.Option{
			{Long: "json", Help: "print JSON"},
			{Long: "quiet", Short: "q", Help: "print failed checks only"},
		},
		Example: []tool.Example{
			{Line: "muster accounting verify", What: "verifies that the store matches the ledger"},
			{Line: "muster accounting backup monday", What: "copies the store"},
		},
		Run: runAccounting,
	}
}

// exitBad is the exit code where a check found something.
const exitBad = 3

func runAccounting(call *tool.Call) error {
	request := &apiv1.MaintainRequest{}
	verb := ""
	if len(call.Operands) > 0 {
		verb = render.MatchPrefix(
			[]string{
				"verify",
				"doctor",
				"backup",
				"restore",
				"archive",
				"purge",
				"discard",
				"unarchive",
			},
			call.Operands[0],
		)
	}
	named := verb != "verify" && verb != "doctor"
	if verb == "" || len(call.Operands) > 2 || named != (len(call.Operands) == 2) {
		return &opt.UsageError{
			Command: "muster accounting",
			Text:    "one of verify, doctor, backup NAME, restore NAME, archive MONTH, purge MONTH, discard MONTH and unarchive MONTH is to be named",
		}
	}
	request.Verb = verb
	if named {
		request.Name = call.Operands[1]
	}
	rows, bad := tree.List{}, 0
	var buffer []byte
	err := fetch.Stream(call, tool.MethodAcctMaintain, request,
		func(reply *apiv1.MaintainReply) error {
			if reply.GetOf() > 0 {
				if call.Terminal(call.Stderr) {
					fmt.Fprintf(call.Stderr, "\r%d of %d events", reply.GetDone(), reply.GetOf())
				}
				return nil
			}
			mark := "ok "
			if reply.GetBad() {
				mark, bad = "BAD", bad+1
			}
			rows = append(
				rows,
				tree.Object{
					{Key: "name", Value: reply.GetName()},
					{Key: "bad", Value: reply.GetBad()},
					{Key: "text", Value: reply.GetText()},
				},
			)
			if reply.GetBad() || !call.Opts.On("quiet") {
				buffer = fmt.Appendf(
					buffer, "%s %-18s %s\n", mark, reply.GetName(), reply.GetText(),
				)
			}
			return nil
		})
	if err != nil {
		return err
	}
	if call.Opts.On("json") {
		err = render.Print(call, tree.Member{Key: "findings", Value: rows})
	} else {
		err = call.WriteOut(buffer)
	}
	if err == nil && bad > 0 {
		err = tool.ExitCode(exitBad)
	}
	return err
}
