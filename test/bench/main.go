// Command muster-bench measures a Muster cluster from outside, through the
// same API as everything else: how fast jobs are accepted, how fast they run
// end to end, how soon a controller answers after a start, and what a large
// array costs. `muster bench` runs it; it is a program of its own so that the
// tools link no gRPC.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/accounting/embedded"
)

var version = "dev"

const usage = `muster-bench measures a Muster cluster.

Usage:
  muster-bench submit  [options]   how fast jobs are accepted
  muster-bench run     [options]   no-op jobs end to end, counted when their rows are in ClickHouse
  muster-bench restart [options]   how soon the controller answers after a start
  muster-bench agents  [options]   how soon agents are back after the loss of the leader
  muster-bench array   [options]   what accepting a large array costs
  muster-bench scheduler [options] how long a scheduling pass takes, on a cluster made in memory
  muster-bench passes  [options]   what submitting takes while the scheduler plans a deep queue
  muster-bench accounting [options] what sacct, sreport and kpi take on a store of many jobs
  muster-bench boards [options]    what the panels of the dashboards take that ask the accounting store
  muster-bench gpu [options]       what samples of GPUs take on the disk, and to ask
  muster-bench command [options] -- COMMAND   how often a command can be run

Each has its own --help. Figures go to standard output (--json for one JSON
object), progress to standard error. They depend on what else the machine does:
the load average is part of every result.

Examples:
  muster bench submit --clients 64 --jobs 100000 --stream
  muster bench run --jobs 20000 --json
  muster bench array --tasks 1000000
  muster bench scheduler --nodes 5000 --pending 50000
  muster bench passes --nodes 5000 --pending 50000
  muster bench restart --config lab/muster.yaml --jobs 100000 --events 1000000 --tail 100000
`

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // it could not be measured, or jobs were refused or lost
	exitUsage  = 2
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == embedded.Subcommand {
		os.Exit(embedded.Command(context.Background(), os.Args[2:], os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// measurement is one subcommand: it takes its flags and then measures.
type measurement interface {
	flags(flags *pflag.FlagSet)
	check() error
	run(ctx context.Context, p *progress) (result, error)
}

// result is what a measurement found: encoded as JSON, or as lines for people.
type result interface{ text(w io.Writer) }

// errUsage marks mistakes of the command line.
var errUsage = errors.New("wrong usage")

func command(ctx context.Context, args []string, out, errOut io.Writer) int {
	if len(args) == 0 || args[0] == "--help" || args[0] == "-h" || args[0] == "help" {
		fmt.Fprint(out, usage)
		return exitOK
	}
	if args[0] == "--version" || args[0] == "-V" {
		fmt.Fprintf(out, "muster %s\n", version)
		return exitOK
	}
	measurements := map[string]measurement{
		"submit":     &submitBench{},
		"run":        &runBench{},
		"restart":    &restartBench{},
		"agents":     &agentsBench{},
		"array":      &arrayBench{},
		"command":    &commandBench{},
		"scheduler":  &schedulerBench{},
		"passes":     &passesBench{},
		"accounting": &accountingBench{},
		"boards":     &boardsBench{},
		"gpu":        &gpuBench{},
	}
	m, ok := measurements[args[0]]
	if !ok {
		fmt.Fprintf(
			errOut,
			"muster-bench: unknown measurement %q: submit, run, restart, agents, array, scheduler, passes, accounting, boards, gpu and command are there (muster-bench --help)\n",
			args[0],
		)
		return exitUsage
	}
	code, err := measure(ctx, m, args, out, errOut)
	if err != nil {
		fmt.Fprintf(errOut, "muster-bench %s: %v\n", args[0], err)
	}
	return code
}

// measure parses the flags of m (args[0] is its name), runs it and prints the
// result. A result is printed even when the error says that it is not good.
func measure(
	ctx context.Context,
	m measurement,
	args []string,
	out, errOut io.Writer,
) (int, error) {
	flags := pflag.NewFlagSet("muster-bench "+args[0], pflag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.SortFlags = false
	asJSON := flags.Bool("json", false, "print one JSON object")
	quiet := flags.BoolP("quiet", "q", false, "no progress on standard error")
	help := flags.BoolP("help", "h", false, "print this help and exit")
	m.flags(flags)
	flags.Usage = func() {}
	if err := flags.Parse(args[1:]); err != nil {
		return exitUsage, fmt.Errorf("%w (see --help)", err)
	}
	if *help {
		fmt.Fprintf(
			out, "%s\nOptions:\n%s", m.(interface{ help() string }).help(), flags.FlagUsages(),
		)
		return exitOK, nil
	}
	if t, ok := m.(interface{ take(args []string) }); ok {
		t.take(flags.Args())
	} else if flags.NArg() > 0 {
		return exitUsage, fmt.Errorf("unknown argument %q (see --help)", flags.Arg(0))
	}
	if err := m.check(); err != nil {
		return exitUsage, fmt.Errorf("%w (see --help)", err)
	}
	res, err := m.run(ctx, &progress{w: errOut, quiet: *quiet})
	if res != nil {
		if perr := show(out, res, *asJSON); perr != nil {
			err = errors.Join(err, perr)
		}
	}
	switch {
	case errors.Is(err, errUsage):
		return exitUsage, err
	case err != nil:
		return exitFailed, err
	}
	return exitOK, nil
}

func show(out io.Writer, res result, asJSON bool) error {
	if !asJSON {
		res.text(out)
		return nil
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(res)
}

// checkPositive checks counts that must be at least one.
func checkPositive(values map[string]int) error {
	var bad []string
	for name, v := range values {
		if v < 1 {
			bad = append(bad, "--"+name)
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf(
			"%w: %s must be at least 1",
			errUsage,
			strings.Join(sortedCopy(bad), ", "),
		)
	}
	return nil
}
