package care

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/internal/conffile"
)

const ledgerUsage = `musterd ledger looks after the ledger of a controller that is stopped.

Usage:
  musterd ledger verify [--config FILE]
  musterd ledger rebuild [--config FILE]

verify   reads the log, its snapshots, the archive and the contents (scripts and environments)
         to their ends, changes nothing, and names file and offset of each damage
rebuild  makes a new log from the archive, and from what the old log has behind the archive's
         end; the old one is kept beside it

Examples:
  musterd ledger verify
  musterd ledger rebuild --config lab/muster.yaml

Options:
`

// Command is musterd ledger.
func Command(args []string, out, errOut io.Writer) int {
	flags := pflag.NewFlagSet("musterd ledger", pflag.ContinueOnError)
	flags.SetOutput(errOut)
	var config string
	conffile.AddFlag(flags, &config, "muster.yaml `file`")
	help := flags.BoolP("help", "h", false, "print this help and exit")
	flags.Usage = func() { fmt.Fprint(errOut, ledgerUsage, flags.FlagUsages()) }
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) || (err == nil && *help) {
		fmt.Fprint(out, ledgerUsage, flags.FlagUsages())
		return 0
	}
	if err == nil && flags.NArg() != 1 {
		err = errors.New("one of verify and rebuild is required (see musterd ledger --help)")
	}
	if err != nil {
		fmt.Fprintf(errOut, "musterd ledger: %v\n", err)
		return 2
	}
	cfg, err := conffile.Load(config)
	if err != nil {
		fmt.Fprintf(errOut, "musterd ledger: %v\n", err)
		return 1
	}
	care := &Care{State: cfg.StateDir, Archive: cfg.Ledger.ArchiveDir, Out: out}
	switch verb := flags.Arg(0); verb {
	case "verify":
		err = care.VerifyLedger()
	case "rebuild":
		err = care.rebuildLog()
	default:
		fmt.Fprintf(errOut, "musterd ledger: unknown word %q: verify and rebuild are known\n", verb)
		return 2
	}
	if err != nil {
		fmt.Fprintf(errOut, "musterd ledger %s: %v\n", flags.Arg(0), err)
		return 1
	}
	return 0
}
