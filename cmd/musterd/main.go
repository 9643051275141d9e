// Command musterd is the server of a Muster cluster: the controller (ledger,
// scheduler, API, exporter) and the accounting service, in one process or
// apart. `musterd embedded-clickhouse` is the child in which the embedded
// ClickHouse engine runs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/accounting/embedded"
	"github.com/musterhpc/muster/cli/acct/importing"
	"github.com/musterhpc/muster/cli/local/cluster"
	"github.com/musterhpc/muster/cli/local/monitoring"
	"github.com/musterhpc/muster/cli/local/whatif"
	"github.com/musterhpc/muster/controller/host"
	"github.com/musterhpc/muster/controller/sitescripts"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/luascript"
	"github.com/musterhpc/muster/ledger/backup"
	"github.com/musterhpc/muster/ledger/care"
	"github.com/musterhpc/muster/scheduler/daemon"
)

var version = "dev"

// witnessRole is musterd's role as the third vote of two controllers.
const witnessRole = "witness"

const usage = `musterd is the server of a Muster cluster.

Usage:
  musterd [--config FILE] [--role ROLE[,ROLE]]
  musterd embedded-clickhouse --help
  musterd init|up|down --help
  musterd ledger verify|rebuild --help
  musterd audit verify --help
  musterd backup|restore --help

Roles:
  controller   ledger, scheduler, API for tools and agents, /metrics
  accounting   ledger into ClickHouse, sacct and sreport, KPIs
  observer     /metrics of an existing Slurm, read through its commands; with accounting
               also its history in ClickHouse, sacct, sreport, reports and KPIs of it
  witness      the third vote of two controllers: keeps the ledger's log and no state, alone
               in its process (controller.witness of muster.yaml)
  Controller and accounting run in one process by default. Apart, each may die without the other:
  accounting takes the ledger from the controller, and the tools find its
  socket through muster.yaml.

Examples:
  musterd                                # /etc/muster/muster.yaml
  musterd --config lab/muster.yaml
  musterd --role accounting              # and musterd --role controller
  musterd --check --config lab/muster.yaml

Options:
`

func main() {
	if len(os.Args) > 1 && os.Args[1] == embedded.Subcommand {
		os.Exit(embedded.Command(context.Background(), os.Args[2:], os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == luascript.Subcommand {
		os.Exit(luascript.Serve(os.Stdin, os.Stdout, os.Stderr, os.Exit))
	}
	if len(os.Args) > 1 && os.Args[1] == "mail" {
		os.Exit(monitoring.Mail(os.Args[2:], os.Stdin, os.Stderr))
	}
	if len(os.Args) > 1 {
		if run, ok := verbs[os.Args[1]]; ok {
			os.Exit(run(os.Args[2:], os.Stdout, os.Stderr))
		}
	}
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// verbs are the commands of musterd that are no daemon and read no input.
var verbs = map[string]func(args []string, out, errOut io.Writer) int{
	"init":       cluster.Init,
	"dashboards": monitoring.Dashboards,
	"import":     importing.Run,
	"alerts":     monitoring.Alerts,
	"whatif":     whatif.Run,
	"tune":       whatif.Tune,
	"ledger":     care.Command,
	"audit":      care.AuditCommand,
	"backup": func(args []string, out, errOut io.Writer) int {
		return backup.Command(version, args, out, errOut)
	},
	"restore": backup.RestoreCommand,
	"up": func(args []string, out, errOut io.Writer) int {
		return cluster.UpOrDown("up", args, out, errOut)
	},
	"down": func(args []string, out, errOut io.Writer) int {
		return cluster.UpOrDown("down", args, out, errOut)
	},
}

// options are the command line.
type options struct {
	config string
	roles  []string
	check  bool
	anew   bool // found a cluster though there are traces of an older one
	// newGroup begins a group of controllers though some of them do not answer.
	newGroup bool
}

func command(args []string, out, errOut io.Writer) int {
	var o options
	flags := pflag.NewFlagSet("musterd", pflag.ContinueOnError)
	flags.SetOutput(errOut)
	conffile.AddFlag(flags, &o.config, "muster.yaml `file`")
	flags.StringSliceVar(
		&o.roles,
		"role",
		[]string{"controller", "accounting"},
		"what to run: `controller,accounting`, or observer, alone or with accounting; or witness",
	)
	flags.BoolVar(
		&o.check,
		"check",
		false,
		"read the configuration and look at the files that it names, print what is wrong, and exit",
	)
	flags.BoolVar(
		&o.anew,
		"new-cluster",
		false,
		"create a new cluster although the state folder had one whose ledger is gone",
	)
	flags.BoolVar(
		&o.newGroup,
		"new-group",
		false,
		"begin a group of controllers with this state folder although some of them do not answer; "+
			"if one of those has the group's ledger, there are two clusters of one name",
	)
	show := flags.BoolP("version", "V", false, "print the version and exit")
	help := flags.BoolP("help", "h", false, "print this help and exit")
	flags.Usage = func() { fmt.Fprint(errOut, usage, flags.FlagUsages()) }
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp) || (err == nil && *help):
		fmt.Fprint(out, usage, flags.FlagUsages())
		return 0
	case err != nil:
		fmt.Fprintf(errOut, "musterd: %v\n", err)
		return 2
	case *show:
		fmt.Fprintf(out, "muster %s\n", version)
		return 0
	case flags.NArg() > 0:
		fmt.Fprintf(errOut, "musterd: unknown argument %q (see musterd --help)\n", flags.Arg(0))
		return 2
	}
	if err := checkRoles(o.roles); err != nil {
		fmt.Fprintf(errOut, "musterd: %v\n", err)
		return 2
	}
	if o.newGroup && !slices.Contains(o.roles, "controller") {
		fmt.Fprintln(errOut, "musterd: --new-group: only a controller begins a group")
		return 2
	}
	host.MakeRoomForGarbage()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := runRoles(ctx, o, out); err != nil {
		fmt.Fprintf(errOut, "musterd: %v\n", err)
		return 1
	}
	return 0
}

// checkRoles refuses what is no role, and an observer beside other roles.
func checkRoles(roles []string) error {
	for _, r := range roles {
		switch {
		case r == "observer" && slices.Contains(roles, "controller"):
			return errors.New(
				"an observer stands beside a Slurm: no controller runs in its process, only accounting may",
			)
		case r == witnessRole && len(roles) > 1:
			return errors.New(
				"a witness is the third vote beside two controllers: no other role runs in its process",
			)
		case r != "controller" && r != "accounting" && r != "observer" && r != witnessRole:
			return fmt.Errorf(
				"unknown role %q: controller, accounting, observer and witness are the roles",
				r,
			)
		}
	}
	return nil
}

// runRoles reads the configuration and runs the roles until the context ends.
func runRoles(ctx context.Context, o options, out io.Writer) error {
	config, err := conffile.Load(o.config)
	if err != nil {
		return err
	}
	if slices.Contains(o.roles, "observer") {
		return runObserver(
			ctx,
			config,
			o.config,
			slices.Contains(o.roles, "accounting"),
			config.Log.NewLogger(os.Stderr, new(slog.LevelVar)),
		)
	}
	cluster, warnings, err := sitescripts.ReadCluster(config)
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	logger := config.Log.NewLogger(os.Stderr, level)
	for _, w := range warnings {
		logger.Warn("configuration", "problem", w)
	}
	if o.check {
		doubts, err := config.Examine(o.config)
		for _, w := range doubts {
			logger.Warn("configuration", "problem", w)
		}
		if err != nil {
			return err
		}
		warnings = append(warnings, doubts...)
		fmt.Fprintf(
			out,
			"%s: cluster %s, %d nodes, %d partitions: no errors, %d warnings\n",
			config.SlurmConf,
			cluster.ClusterName,
			len(cluster.Nodes),
			len(cluster.Partitions),
			len(warnings),
		)
		return nil
	}
	s := &server{
		cfg:      config,
		config:   o.config,
		cluster:  cluster,
		log:      logger,
		roles:    o.roles,
		anew:     o.anew,
		newGroup: o.newGroup,

		verbosity: daemon.NewVerbosity(logger, level),
	}
	return s.run(ctx)
}
