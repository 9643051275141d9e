// Command muster-agent is the daemon of a node: it registers the node with the
// controller, has its jobs run by the node's shepherd, reports what became of
// them, and serves the node's metrics.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/program"
	"github.com/musterhpc/muster/nodeagent/assembly"
	"github.com/musterhpc/muster/nodeagent/machine"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/nodeagent/telemetry/host"
)

var version = "dev"

const usage = `muster-agent is the daemon of a node.

Usage:
  muster-agent [options]
  muster-agent -C

Examples:
  muster-agent                                        # the node that slurm.conf names for this host
  muster-agent --enrol --controller ctl --token-file -   # the first time: a node without any file gets all it needs
  muster-agent --token-file ./token                   # the same for a node with its own slurm.conf, and goes on
  muster-agent --node n2 --state-dir /tmp/n2 --metrics :9401 \
      --controller /run/muster/muster.sock            # a second node on one machine, for a lab
  muster-agent -Z --describe 'Feature=spot Gres=gpu:4' # a node that no slurm.conf names
  muster-agent -C >> slurm.conf                       # a NodeName line for this machine
  muster-agent --login --enrol --controller ctl --token-file -   # a login host, the first time
  muster-agent --login                                # the agent of a login host
  account required pam_exec.so stdout /usr/sbin/muster-agent --adopt   # in /etc/pam.d/sshd

Options:
`

func main() {
	if len(os.Args) > 1 && os.Args[1] == program.GateVerb {
		os.Exit(program.Gate(os.Args[2:], os.Stderr))
	}
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// Exit codes of command.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// defineFlags defines the flags whose values are settings of the agent, in the order of the help.
func defineFlags(flags *pflag.FlagSet, options *settings.Options) {
	conffile.AddFlag(
		flags, &options.ConfigFile, "muster.yaml `file`; without one, the defaults hold",
	)
	flags.StringVarP(
		&options.Conf, "conf", "f", "", "slurm.conf `file` (default: slurm_conf of muster.yaml)",
	)
	flags.StringVarP(
		&options.Node,
		"node",
		"N",
		"",
		"`name` of the node in slurm.conf (default: the one whose NodeHostname is this host)",
	)
	flags.BoolVarP(
		&options.Dynamic,
		"dynamic",
		"Z",
		false,
		"the node is in no slurm.conf: add it to the cluster, as this machine is (needs MaxNodeCount)",
	)
	flags.StringVar(
		&options.About,
		"describe",
		"",
		"with -Z: `keys` of a NodeName record that say more or other than the machine: 'Feature=a100 Gres=gpu:4'",
	)
	flags.BoolVar(
		&options.Login,
		"login",
		false,
		"this is a login host: pass its users' commands on to the controller, and run no jobs",
	)
	flags.BoolVar(
		&options.Enrol,
		"enrol",
		false,
		"get this host's certificate with --token-file, remember the controller, and end",
	)
	flags.StringVar(
		&options.Controller,
		"controller",
		"",
		"`host:port`, or several with commas between them, or path of a unix socket (default: SlurmctldHost, else where this host has enrolled)",
	)
	flags.StringVar(
		&options.Accounting,
		"accounting",
		"",
		"with --login: `host:port` of an accounting that runs apart (musterd --role accounting); it is remembered",
	)
	flags.StringVar(
		&options.TokenFile,
		"token-file",
		"",
		"`file` with an enrolment token, - for standard input; needed once",
	)
	flags.StringVar(
		&options.Metrics,
		"metrics",
		"",
		"`address` of /metrics, or off (default: listen.agent_metrics of muster.yaml)",
	)
	flags.StringVar(
		&options.StateDir,
		"state-dir",
		"",
		"`folder` of this node's state (default: agent/NAME in state_dir of muster.yaml)",
	)
	flags.StringVar(
		&options.Shepherd,
		"shepherd",
		"",
		"`path` of muster-shepherd (default: beside this program)",
	)
}

func command(args []string, out, errOut io.Writer) int {
	var options settings.Options
	flags := pflag.NewFlagSet("muster-agent", pflag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.SortFlags = false
	defineFlags(flags, &options)
	adopt := flags.Bool(
		"adopt",
		false,
		"put the calling login into the job of its user on this node, or refuse it: for pam_exec, in the account phase; ignores "+conffile.PathVariable,
	)
	namespace := flags.Bool(
		"namespace",
		false,
		"with --adopt: print the mount namespace of the job's private folders, if it has any, for pam_muster to enter",
	)
	detect := flags.BoolP(
		"print-config", "C", false, "print this machine as a NodeName line of slurm.conf and exit",
	)
	show := flags.BoolP("version", "V", false, "print the version and exit")
	help := flags.BoolP("help", "h", false, "print this help and exit")
	flags.Usage = func() { fmt.Fprint(errOut, usage, flags.FlagUsages()) }
	err := flags.Parse(args)
	switch {
	case flags.Changed("config"):
		options.ConfigGiven = true
	case *adopt:
		// Users choose variables of their logins (~/.pam_environment), and this runs as root.
		options.ConfigFile = conffile.DefaultPath
	default:
		options.ConfigGiven = os.Getenv(conffile.PathVariable) != ""
	}
	switch {
	case errors.Is(err, pflag.ErrHelp) || err == nil && *help:
		fmt.Fprint(out, usage, flags.FlagUsages())
		return exitOK
	case err != nil:
		fmt.Fprintf(errOut, "muster-agent: %v (see muster-agent --help)\n", err)
		return exitUsage
	case flags.NArg() > 0:
		fmt.Fprintf(
			errOut, "muster-agent: unknown argument %q (see muster-agent --help)\n", flags.Arg(0),
		)
		return exitUsage
	case options.About != "" && !options.Dynamic:
		fmt.Fprintln(errOut, "muster-agent: --describe says something of a node that is added with -Z (see muster-agent --help)")
		return exitUsage
	case *show:
		fmt.Fprintf(out, "muster %s\n", version)
		return exitOK
	case *adopt && flags.NFlag() > countFlags(flags, "adopt", "namespace", "config", "state-dir"):
		fmt.Fprintln(errOut, "muster-agent: --adopt takes --namespace, --config and --state-dir only (see muster-agent --help)")
		return exitUsage
	case *namespace && !*adopt:
		fmt.Fprintln(errOut, "muster-agent: --namespace is of --adopt (see muster-agent --help)")
		return exitUsage
	case *adopt:
		err = adoptLogin(options, *namespace, out)
	case *detect:
		err = printNode(out)
	case options.Enrol && options.TokenFile == "":
		fmt.Fprintln(errOut, "muster-agent: --enrol needs --token-file: make a token on the controller's host with muster token (see muster-agent --help)")
		return exitUsage
	case options.Accounting != "" && !options.Login:
		fmt.Fprintln(errOut, "muster-agent: --accounting is of login hosts: it does not know who has a job where (see muster-agent --help)")
		return exitUsage
	case options.Login && (options.Dynamic || options.Metrics != "" || options.Shepherd != ""):
		fmt.Fprintln(errOut, "muster-agent: --login runs no jobs: --dynamic, --metrics and --shepherd are of nodes (see muster-agent --help)")
		return exitUsage
	default:
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		switch {
		case options.Login:
			err = assembly.ServeLogin(ctx, options, out, errOut)
		case options.Enrol:
			err = assembly.Enrol(ctx, options, out)
		default:
			err = assembly.Serve(ctx, options, version, errOut)
		}
	}
	if err != nil {
		fmt.Fprintf(errOut, "muster-agent: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// countFlags is how many of some options were given.
func countFlags(flags *pflag.FlagSet, names ...string) int {
	given := 0
	for _, name := range names {
		if flags.Changed(name) {
			given++
		}
	}
	return given
}

// adoptLogin is muster-agent --adopt. Of several agents on the machine each is asked. With
// tell it says where the job's private folders are to be entered.
func adoptLogin(options settings.Options, tell bool, out io.Writer) error {
	folders, err := options.StateFolders()
	if err != nil {
		return err
	}
	namespace, err := machine.AdoptCaller(context.Background(), folders)
	if err == nil && tell && namespace != "" {
		fmt.Fprintf(out, "namespace %s\n", namespace)
	}
	return err
}

// printNode prints this machine as slurmd -C does.
func printNode(out io.Writer) error {
	inventory, err := host.Read(host.This("/tmp"))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, inventory.String())
	return err
}
