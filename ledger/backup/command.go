package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/internal/conffile"
)

const backupUsage = `musterd backup copies a controller's ledger, scripts and environments, keys, certificates and
configuration into a folder, while the controller runs or while it is stopped.

Usage:
  musterd backup --to FOLDER [--config FILE] [--json]

The first backup makes the folder (mode 0700: it holds the cluster's keys). Each further one
copies what is new. A backup counts only once it folds to the same state as the controller's
ledger, by hash; one that is interrupted leaves the earlier ones as they are.
Run it as the user of the controller, on its host.

Examples:
  musterd backup --to /backup/muster
  musterd backup --to /backup/muster --json

Options:
`

const restoreUsage = `musterd restore puts a backup back into a state folder that has no ledger.

Usage:
  musterd restore --from FOLDER [--at NAME|TIME] [--config FILE] [--json]
  musterd restore --from FOLDER --check [--at NAME|TIME] [--json]
  musterd restore --from FOLDER --list [--json]

What is restored is prepared beside its place, folded, and compared with the state that was
backed up, before anything is moved. muster.yaml, where it is there, says which the folders are;
where it is not, the backup's is restored to --config. Files that are there are kept, and named
if they differ. An interrupted restore is ended by the same command; until then no controller
starts. Run it as the user of the controller, or as root, on its host.

Examples:
  musterd restore --from /backup/muster
  musterd restore --from /backup/muster --at 2026-11-20T04:00
  musterd restore --from /backup/muster --check

Options:
`

// backupOptions are what both commands understand.
type backupOptions struct {
	folder, config, at string
	release            string // of this program
	json, check, list  bool
}

// Command is musterd backup of a release.
func Command(release string, args []string, out, errOut io.Writer) int {
	fs := pflag.NewFlagSet("musterd backup", pflag.ContinueOnError)
	options := &backupOptions{release: release}
	fs.StringVar(&options.folder, "to", "", "`folder` of backups")
	return backupVerb{fs, options, backupUsage, "--to", makeBackup}.run(args, out, errOut)
}

// RestoreCommand is musterd restore.
func RestoreCommand(args []string, out, errOut io.Writer) int {
	flags := pflag.NewFlagSet("musterd restore", pflag.ContinueOnError)
	options := &backupOptions{}
	flags.StringVar(&options.folder, "from", "", "`folder` of backups")
	flags.StringVar(
		&options.at,
		"at",
		"",
		"`name` of a backup, or a local time: the newest backup that is not younger; the newest of all if not given",
	)
	flags.BoolVar(
		&options.check,
		"check",
		false,
		"fold the backup, read everything that belongs to it, and restore nothing",
	)
	flags.BoolVar(&options.list, "list", false, "list the backups")
	return backupVerb{flags, options, restoreUsage, "--from", restoreBackup}.run(args, out, errOut)
}

// backupVerb is one of the commands.
type backupVerb struct {
	fs         *pflag.FlagSet
	o          *backupOptions
	usage      string
	folderFlag string
	do         func(ctx context.Context, o *backupOptions, out, errOut io.Writer) error
}

// run reads the command line and runs the command.
func (v backupVerb) run(args []string, out, errOut io.Writer) int {
	flags, options := v.fs, v.o
	name := flags.Name()
	flags.SetOutput(errOut)
	conffile.AddFlag(flags, &options.config, "muster.yaml `file`")
	flags.BoolVar(&options.json, "json", false, "report as JSON")
	help := flags.BoolP("help", "h", false, "print this help and exit")
	flags.Usage = func() { fmt.Fprint(errOut, v.usage, flags.FlagUsages()) }
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) || (err == nil && *help) {
		fmt.Fprint(out, v.usage, flags.FlagUsages())
		return 0
	}
	switch {
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("unknown argument %q (see %s --help)", flags.Arg(0), name)
	case options.folder == "":
		err = fmt.Errorf("%s is required (see %s --help)", v.folderFlag, name)
	case options.check && options.list:
		err = errors.New("--check and --list exclude each other")
	default:
		options.folder, err = filepath.Abs(options.folder)
		if err == nil {
			options.config, err = filepath.Abs(options.config)
		}
	}
	if err != nil {
		fmt.Fprintf(errOut, "%s: %v\n", name, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := v.do(ctx, options, out, errOut); err != nil {
		fmt.Fprintf(errOut, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// makeBackup is musterd backup behind its command line.
func makeBackup(ctx context.Context, options *backupOptions, out, errOut io.Writer) (err error) {
	config, err := conffile.Load(options.config)
	if err != nil {
		return err
	}
	folder, err := openBackups(options.folder, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.close()) }()
	ledger, err := openLedgerReader(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ledger.close()) }()
	run := &backupRun{
		cfg:     config,
		config:  options.config,
		folder:  folder,
		ledger:  ledger,
		tell:    &teller{out: errOut},
		now:     time.Now,
		release: options.release,
	}
	report, err := run.run(ctx)
	if err != nil {
		return err
	}
	if options.json {
		return writeReport(out, report)
	}
	fmt.Fprintf(
		out, "backup %s of cluster %s in %s\n", report.Backup, report.Cluster, report.Folder,
	)
	fmt.Fprintf(
		out,
		"up to event %d of %s; new: %d events, %d scripts and environments, %d of %d files\n",
		report.Event,
		report.EventAt.Format(time.RFC3339),
		report.NewEvents,
		report.NewContents,
		report.NewFiles,
		report.Files,
	)
	fmt.Fprintf(out, "the copy folds to the ledger's state: %s\n", report.State)
	return writeWarnings(out, report.Warnings)
}

// restoreBackup is musterd restore behind its command line.
func restoreBackup(ctx context.Context, options *backupOptions, out, errOut io.Writer) (err error) {
	folder, err := openBackups(options.folder, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.close()) }()
	if options.list {
		return listBackups(folder, options.json, out)
	}
	manifest, err := folder.pickBackup(options.at)
	if err != nil {
		return err
	}
	run := &restoreRun{
		folder: folder,
		m:      manifest,
		config: options.config,
		tell:   &teller{out: errOut},
		now:    time.Now,
	}
	if options.check {
		report, err := run.check()
		if err == nil && options.json {
			return writeReport(out, report)
		}
		if err == nil {
			fmt.Fprintf(
				out,
				"backup %s of cluster %s is whole: it folds to event %d of %s with the state that was backed up\n",
				report.Backup,
				report.Cluster,
				report.Event,
				report.EventAt.Format(time.RFC3339),
			)
		}
		return errors.Join(err, writeWarnings(out, report.Warnings))
	}
	rep, err := run.run(ctx)
	if err != nil {
		return err
	}
	if options.json {
		return writeReport(out, rep)
	}
	fmt.Fprintf(
		out,
		"restored: cluster %s up to event %d of %s, from backup %s, to %s\n",
		rep.Cluster,
		rep.Event,
		rep.EventAt.Format(time.RFC3339),
		rep.Backup,
		rep.StateDir,
	)
	fmt.Fprintf(out, "it folds to the state that was backed up: %s\n", rep.State)
	for _, f := range rep.Restored {
		fmt.Fprintf(out, "restored: %s\n", f)
	}
	for _, f := range rep.Kept {
		fmt.Fprintf(out, "kept, and differs from the backup's: %s\n", f)
	}
	fmt.Fprintln(
		out,
		"start the controller: nodes and accounting tell it what happened behind that event, and nothing of it is given away (muster runs)",
	)
	return writeWarnings(out, rep.Warnings)
}

func writeWarnings(out io.Writer, all []string) error {
	for _, w := range all {
		if _, err := fmt.Fprintf(out, "warning: %s\n", strings.ReplaceAll(w, "\n", "\n  ")); err != nil {
			return err
		}
	}
	return nil
}

func writeReport(out io.Writer, reply any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(reply)
}

// listBackups is musterd restore --list.
func listBackups(folder *backupFolder, asJSON bool, out io.Writer) error {
	all, err := folder.listBackups()
	if err != nil {
		return err
	}
	if asJSON {
		if all == nil {
			all = []*backupManifest{}
		}
		return writeReport(out, all)
	}
	fmt.Fprintf(
		out,
		"%-20s  %-12s  %10s  %-20s  %s\n",
		"NAME",
		"CLUSTER",
		"EVENT",
		"EVENT_AT",
		"HISTORY",
	)
	for _, manifest := range all {
		fmt.Fprintf(
			out,
			"%-20s  %-12s  %10d  %-20s  %s\n",
			manifest.Name,
			manifest.Cluster,
			manifest.Event,
			manifest.At.Format(time.RFC3339),
			manifest.History,
		)
	}
	return nil
}
