//go:build linux

package shepherd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"

	"github.com/musterhpc/muster/nodeagent/runtime/cgroup"
	"github.com/musterhpc/muster/nodeagent/runtime/login"
	"github.com/musterhpc/muster/nodeagent/runtime/minder"
	"github.com/musterhpc/muster/nodeagent/runtime/receive"
	"golang.org/x/sys/unix"
)

// Exit codes of Main.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitRunning = 3
)

// Main is the program: it reads the flags, serves until SIGTERM or the end of
// a drain, and gives the exit code. Job processes outlive it.
func Main(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case minder.TaskVerb:
			return runTask(args[1:], false, stdout, stderr)
		case minder.ContainedTaskVerb:
			return runTask(args[1:], true, stdout, stderr)
		case login.Verb:
			return login.Main(args[1:], stderr)
		case login.PrintVerb:
			return login.Print(stdout)
		case receive.Verb:
			return receive.Main(args[1:], os.Stdin, stderr)
		case GuardVerb:
			return guardMain(args[1:], stderr)
		case minder.Verb:
			return minder.Main(args[1:], stderr)
		}
	}
	flags := flag.NewFlagSet("muster-shepherd", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var config Config
	var mode, level string
	var ready int
	flags.StringVar(&config.Dir, "dir", "", "state folder of the node agent's shepherds (required)")
	flags.StringVar(&config.Node, "node", "", "node name (required)")
	flags.StringVar(
		&config.Release, "release", Release(), "release, which names the socket's folder",
	)
	flags.StringVar(
		&config.Spool,
		"spool",
		"",
		"folder for batch scripts, of this shepherd alone (default DIR/RELEASE/spool)",
	)
	flags.StringVar(
		&config.Prefix,
		"prefix",
		"",
		"start of each line written into job output (default \"slurmstepd-NODE: error: \")",
	)
	flags.StringVar(
		&config.Cgroup.Under,
		"cgroup-under",
		"",
		"control group to make the jobs' groups in (default: the shepherd's own)",
	)
	flags.StringVar(
		&mode, "cgroup-mode", "", "v2, hybrid, v1 or none (default: the best that works)",
	)
	flags.IntVar(
		&config.Launchers,
		"launchers",
		0,
		"processes started at the same time (default: by CPUs)",
	)
	flags.DurationVar(
		&config.DrainWait,
		"drain-wait",
		0,
		"how long an older release's shepherd may take to answer (default 10s)",
	)
	flags.IntVar(
		&ready, "ready-fd", -1, "file descriptor that gets one byte when the socket is ready",
	)
	flags.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	var lv slog.Level
	if err := lv.UnmarshalText([]byte(level)); err != nil || flags.NArg() > 0 || config.Dir == "" ||
		config.Node == "" {
		fmt.Fprintln(
			stderr,
			"muster-shepherd: --dir and --node are required, --log-level is debug, info, warn or error, and there are no arguments",
		)
		return exitUsage
	}
	config.Cgroup.Force = cgroup.Mode(mode)
	config.Log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: lv}))
	return serve(config, ready)
}

func serve(config Config, ready int) int {
	// Files that whoever started us forgot to close must not reach jobs.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	// Taking these over also undoes an inherited "ignore", which jobs would inherit.
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, unix.SIGHUP, unix.SIGPIPE)
	shepherd, err := Open(config)
	if err != nil {
		config.Log.Error("cannot start", "err", err)
		if errors.Is(err, ErrRunning) {
			return exitRunning
		}
		return exitFailed
	}
	if ready >= 0 {
		_, _ = unix.Write(ready, []byte("r"))
		_ = unix.Close(ready)
	}
	if err := shepherd.Run(ctx); err != nil {
		config.Log.Error("stopped", "err", err)
		return exitFailed
	}
	return exitOK
}

// Release names this build: the module's version, or the revision it was
// built from.
func Release() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	if value := info.Main.Version; value != "" && value != "(devel)" {
		return value
	}
	for _, kv := range info.Settings {
		if kv.Key == "vcs.revision" && len(kv.Value) >= 12 {
			return "dev-" + kv.Value[:12]
		}
	}
	return "dev"
}
