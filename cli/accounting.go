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
		usage: []string{"[OPTIONS] verify|doctor", "[OPTIONS] backup|restore NAME"},
		about: `For administrators. verify counts the whole ledger again and compares every total with the store. doctor looks at the engine, the
schema, the disk and how far the ingest is. backup copies the store into the engine's folder of backups, the position first, so that it can
be made while jobs run; restore replaces the store by the copy, and what happened since is counted again from the ledger.
The exit code is 3 where something is wrong.`,
		verbs: []verb{
			{"accounting", "verify", "count the ledger again and compare with the store"},
			{"accounting", "doctor", "look for what is wrong"},
			{"accounting", "backup", "copy the store under a name"},
			{"accounting", "restore", "replace the store by a backup"},
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
		verb = pickPrefix([]string{"verify", "doctor", "backup", "restore"}, c.args[0])
	}
	named := verb == "backup" || verb == "restore"
	if verb == "" || len(c.args) > 2 || named != (len(c.args) == 2) {
		return &opt.UsageError{Command: "muster accounting", Text: "one of verify, doctor, backup NAME and restore NAME is to be named"}
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
