// Package program has what the programs beside Kubernetes share: how they read their
// command line, reach the API server, answer probes, and work one at a time by a lease.
package program

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

// Program is one of them.
type Program struct {
	Name    string
	Version string
	Usage   string         // before the flags
	Flags   *pflag.FlagSet // without --help and --version, which Run adds
	// Check finds what of the flags cannot work; nil: nothing can be wrong with them.
	Check func() error
	// Work runs until the context ends.
	Work func(ctx context.Context, log *slog.Logger) error
}

// NewFlags makes an empty set of flags, which --help shows in the order of their definition.
func NewFlags(name string) *pflag.FlagSet {
	fl := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fl.SortFlags = false
	return fl
}

// Main runs a program until SIGINT or SIGTERM, and ends the process with its exit code.
func (p *Program) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := p.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Run is Main without the process. It returns the exit code: 2 is for a command line that
// cannot be followed.
func (p *Program) Run(ctx context.Context, args []string, out, errOut io.Writer) int {
	help := p.Flags.BoolP("help", "h", false, "print this help and exit")
	show := p.Flags.Bool("version", false, "print the version and exit")
	err := p.Flags.Parse(args)
	switch {
	case err != nil:
	case *help:
		fmt.Fprint(out, p.Usage, p.Flags.FlagUsages())
		return 0
	case *show:
		fmt.Fprintln(out, p.Name, p.Version)
		return 0
	case p.Flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", p.Flags.Arg(0))
	case p.Check != nil:
		err = p.Check()
	}
	if err != nil {
		fmt.Fprintf(errOut, "%s: %v (see %s --help)\n", p.Name, err, p.Name)
		return 2
	}
	if err := p.Work(ctx, slog.New(slog.NewTextHandler(errOut, nil))); err != nil {
		fmt.Fprintf(errOut, "%s: %v\n", p.Name, err)
		return 1
	}
	return 0
}
