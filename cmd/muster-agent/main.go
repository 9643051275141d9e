// Command muster-agent is the daemon of a node: it registers the node with the
// controller, has its jobs run by the node's shepherd, reports what became of
// them, and serves the node's metrics.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/program"
	"github.com/musterhpc/muster/nodeagent/machine"
	"github.com/musterhpc/muster/nodeagent/settings"
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

func command(args []string, out, errOut io.Writer) int {
	var o settings.Options
	fs := pflag.NewFlagSet("muster-agent", pflag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.SortFlags = false
	conffile.AddFlag(fs, &o.ConfigFile, "muster.yaml `file`; without one, the defaults hold")
	fs.StringVarP(&o.Conf, "conf", "f", "", "slurm.conf `file` (default: slurm_conf of muster.yaml)")
	fs.StringVarP(&o.Node, "node", "N", "", "`name` of the node in slurm.conf (default: the one whose NodeHostname is this host)")
	fs.BoolVarP(&o.Dynamic, "dynamic", "Z", false, "the node is in no slurm.conf: add it to the cluster, as this machine is (needs MaxNodeCount)")
	fs.StringVar(&o.About, "describe", "", "with -Z: `keys` of a NodeName record that say more or other than the machine: 'Feature=a100 Gres=gpu:4'")
	fs.BoolVar(&o.Login, "login", false, "this is a login host: pass its users' commands on to the controller, and run no jobs")
	fs.BoolVar(&o.Enrol, "enrol", false, "get this host's certificate with --token-file, remember the controller, and end")
	fs.StringVar(&o.Controller, "controller", "", "`host:port`, or several with commas between them, or path of a unix socket (default: SlurmctldHost, else where this host has enrolled)")
	fs.StringVar(&o.Accounting, "accounting", "", "with --login: `host:port` of an accounting that runs apart (musterd --role accounting); it is remembered")
	fs.StringVar(&o.TokenFile, "token-file", "", "`file` with an enrolment token, - for standard input; needed once")
	fs.StringVar(&o.Metrics, "metrics", "", "`address` of /metrics, or off (default: listen.agent_metrics of muster.yaml)")
	fs.StringVar(&o.StateDir, "state-dir", "", "`folder` of this node's state (default: agent/NAME in state_dir of muster.yaml)")
	fs.StringVar(&o.Shepherd, "shepherd", "", "`path` of muster-shepherd (default: beside this program)")
	adopt := fs.Bool("adopt", false, "put the calling login into the job of its user on this node, or refuse it: for pam_exec, in the account phase; ignores "+conffile.PathVariable)
	namespace := fs.Bool("namespace", false, "with --adopt: print the mount namespace of the job's private folders, if it has any, for pam_muster to enter")
	detect := fs.BoolP("print-config", "C", false, "print this machine as a NodeName line of slurm.conf and exit")
	show := fs.BoolP("version", "V", false, "print the version and exit")
	help := fs.BoolP("help", "h", false, "print this help and exit")
	fs.Usage = func() { fmt.Fprint(errOut, usage, fs.FlagUsages()) }
	err := fs.Parse(args)
	switch {
	case fs.Changed("config"):
		o.ConfigGiven = true
	case *adopt:
		// Users choose variables of their logins (~/.pam_environment), and this runs as root.
		o.ConfigFile = conffile.DefaultPath
	default:
		o.ConfigGiven = os.Getenv(conffile.PathVariable) != ""
	}
	switch {
	case errors.Is(err, pflag.ErrHelp) || err == nil && *help:
		fmt.Fprint(out, usage, fs.FlagUsages())
		return exitOK
	case err != nil:
		fmt.Fprintf(errOut, "muster-agent: %v (see muster-agent --help)\n", err)
		return exitUsage
	case fs.NArg() > 0:
		fmt.Fprintf(errOut, "muster-agent: unknown argument %q (see muster-agent --help)\n", fs.Arg(0))
		return exitUsage
	case o.About != "" && !o.Dynamic:
		fmt.Fprintln(errOut, "muster-agent: --describe says something of a node that is added with -Z (see muster-agent --help)")
		return exitUsage
	case *show:
		fmt.Fprintf(out, "muster %s\n", version)
		return exitOK
	case *adopt && fs.NFlag() > countFlags(fs, "adopt", "namespace", "config", "state-dir"):
		fmt.Fprintln(errOut, "muster-agent: --adopt takes --namespace, --config and --state-dir only (see muster-agent --help)")
		return exitUsage
	case *namespace && !*adopt:
		fmt.Fprintln(errOut, "muster-agent: --namespace is of --adopt (see muster-agent --help)")
		return exitUsage
	case *adopt:
		err = adoptLogin(o, *namespace, out)
	case *detect:
		err = printNode(out)
	case o.Enrol && o.TokenFile == "":
		fmt.Fprintln(errOut, "muster-agent: --enrol needs --token-file: make a token on the controller's host with muster token (see muster-agent --help)")
		return exitUsage
	case o.Accounting != "" && !o.Login:
		fmt.Fprintln(errOut, "muster-agent: --accounting is of login hosts: it does not know who has a job where (see muster-agent --help)")
		return exitUsage
	case o.Login && (o.Dynamic || o.Metrics != "" || o.Shepherd != ""):
		fmt.Fprintln(errOut, "muster-agent: --login runs no jobs: --dynamic, --metrics and --shepherd are of nodes (see muster-agent --help)")
		return exitUsage
	default:
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		switch {
		case o.Login:
			err = serveLogin(ctx, o, out, errOut)
		case o.Enrol:
			err = enrolNode(ctx, o, out)
		default:
			err = serveAgent(ctx, o, errOut)
		}
	}
	if err != nil {
		fmt.Fprintf(errOut, "muster-agent: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// countFlags is how many of some options were given.
func countFlags(fs *pflag.FlagSet, names ...string) int {
	given := 0
	for _, name := range names {
		if fs.Changed(name) {
			given++
		}
	}
	return given
}

// adoptLogin is muster-agent --adopt. Of several agents on the machine each is asked. With
// tell it says where the job's private folders are to be entered.
func adoptLogin(o settings.Options, tell bool, out io.Writer) error {
	folders, err := o.StateFolders()
	if err != nil {
		return err
	}
	namespace, err := machine.AdoptCaller(context.Background(), folders)
	if err == nil && tell && namespace != "" {
		fmt.Fprintf(out, "namespace %s\n", namespace)
	}
	return err
}

// newLogger writes in the configured form.
func newLogger(c conffile.Log, to io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(strings.ToUpper(c.Level))); err != nil {
		level = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(to, opts))
	}
	return slog.New(slog.NewTextHandler(to, opts))
}
