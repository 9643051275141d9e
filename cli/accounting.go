package cli

import (
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tree"
)

func accountingCommand() *command {
	return &command{
		name: "accounting", mixed: true, summary: "take care of the accounting store",
		usage: []string{"[OPTIONS] verify|doctor", "[OPTIONS] backup|restore NAME", "[OPTIONS] archive|purge|discard|unarchive MONTH"},
		about: `For administrators. verify counts the whole ledger again and compares every total with the store. doctor looks at the engine, the
schema, the disk and how far the ingest is. backup copies the store into the engine's folder of backups, the position first, so that it can
be made while jobs run; restore replaces the store by the copy, and what happened since is counted again from the ledger.
archive writes a month (2026-03, in UTC) of runs, steps, their nodes and devices, reasons and events to Parquet files below
accounting.archive. purge deletes a month that is archived as it is now; discard deletes it without an archive. A record of what went, with
its sums, stays, so that verify still compares everything, and reports over whole days stay the same. unarchive reads a month back.
The exit code is 3 where something is wrong.`,
		verbs: []verb{
			{"accounting", "verify", "count the ledger again and compare with the store"},
			{"accounting", "doctor", "look for what is wrong"},
			{"accounting", "backup", "copy the store under a name"},
			{"accounting", "restore", "replace the store by a backup"},
			{"accounting", "archive", "write a month to Parquet files"},
			{"accounting", "purge", "delete a month that is archived"},
			{"accounting", "discard", "delete a month"},
			{"accounting", "unarchive", "read an archived month back"},
		},
		options: []opt.Option{
			{Long: "json", Help: "print JSON"},
			{Long: "quiet", Short: "q", Help: "print only what is wrong"},
		},
		example: []example{{"muster accounting verify", "proves that the store has what the ledger says"}, {"muster accounting backup monday", "copies the store"}},
		run:     runAccounting,
	}
}

// exitBad is the exit code where a check found something.
const exitBad = 3

func runAccounting(c *call) error {
	req := &apiv1.MaintainRequest{}
	verb := ""
	if len(c.args) > 0 {
		verb = pickPrefix([]string{"verify", "doctor", "backup", "restore", "archive", "purge", "discard", "unarchive"}, c.args[0])
	}
	named := verb != "verify" && verb != "doctor"
	if verb == "" || len(c.args) > 2 || named != (len(c.args) == 2) {
		return &opt.UsageError{Command: "muster accounting", Text: "one of verify, doctor, backup NAME, restore NAME, archive MONTH, purge MONTH, discard MONTH and unarchive MONTH is to be named"}
	}
	req.Verb = verb
	if named {
		req.Name = c.args[1]
	}
	rows, bad := tree.List{}, 0
	var b []byte
	err := stream(c, methodAcctMaintain, req, func(r *apiv1.MaintainReply) error {
		if r.GetOf() > 0 {
			if c.Terminal(c.Stderr) {
				fmt.Fprintf(c.Stderr, "\r%d of %d events", r.GetDone(), r.GetOf())
			}
			return nil
		}
		mark := "ok "
		if r.GetBad() {
			mark, bad = "BAD", bad+1
		}
		rows = append(rows, tree.Object{{Key: "name", Value: r.GetName()}, {Key: "bad", Value: r.GetBad()}, {Key: "text", Value: r.GetText()}})
		if r.GetBad() || !c.opts.On("quiet") {
			b = fmt.Appendf(b, "%s %-18s %s\n", mark, r.GetName(), r.GetText())
		}
		return nil
	})
	if err != nil {
		return err
	}
	if c.opts.On("json") {
		err = c.structured(true, c.document(tree.Member{Key: "findings", Value: rows}))
	} else {
		err = c.write(b)
	}
	if err == nil && bad > 0 {
		err = exit(exitBad)
	}
	return err
}
