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
	o := &backupOptions{release: release}
	fs.StringVar(&o.folder, "to", "", "`folder` of backups")
	return backupVerb{fs, o, backupUsage, "--to", makeBackup}.run(args, out, errOut)
}

// RestoreCommand is musterd restore.
func RestoreCommand(args []string, out, errOut io.Writer) int {
	fs := pflag.NewFlagSet("musterd restore", pflag.ContinueOnError)
	o := &backupOptions{}
	fs.StringVar(&o.folder, "from", "", "`folder` of backups")
	fs.StringVar(
		&o.at,
		"at",
		"",
		"`name` of a backup, or a local time: the newest backup that is not younger; the newest of all if not given",
	)
	fs.BoolVar(
		&o.check,
		"check",
		false,
		"fold the backup, read everything that belongs to it, and restore nothing",
	)
	fs.BoolVar(&o.list, "list", false, "list the backups")
	return backupVerb{fs, o, restoreUsage, "--from", restoreBackup}.run(args, out, errOut)
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
	fs, o := v.fs, v.o
	name := fs.Name()
	fs.SetOutput(errOut)
	conffile.AddFlag(fs, &o.config, "muster.yaml `file`")
	fs.BoolVar(&o.json, "json", false, "report as JSON")
	help := fs.BoolP("help", "h", false, "print this help and exit")
	fs.Usage = func() { fmt.Fprint(errOut, v.usage, fs.FlagUsages()) }
	err := fs.Parse(args)
	if errors.Is(err, pflag.ErrHelp) || (err == nil && *help) {
		fmt.Fprint(out, v.usage, fs.FlagUsages())
		return 0
	}
	switch {
	case err != nil:
	case fs.NArg() > 0:
		err = fmt.Errorf("unknown argument %q (see %s --help)", fs.Arg(0), name)
	case o.folder == "":
		err = fmt.Errorf("%s is required (see %s --help)", v.folderFlag, name)
	case o.check && o.list:
		err = errors.New("--check and --list exclude each other")
	default:
		o.folder, err = filepath.Abs(o.folder)
		if err == nil {
			o.config, err = filepath.Abs(o.config)
		}
	}
	if err != nil {
		fmt.Fprintf(errOut, "%s: %v\n", name, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := v.do(ctx, o, out, errOut); err != nil {
		fmt.Fprintf(errOut, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// makeBackup is musterd backup behind its command line.
func makeBackup(ctx context.Context, o *backupOptions, out, errOut io.Writer) (err error) {
	cfg, err := conffile.Load(o.config)
	if err != nil {
		return err
	}
	folder, err := openBackups(o.folder, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.close()) }()
	ledger, err := openLedgerReader(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ledger.close()) }()
	run := &backupRun{
		cfg:     cfg,
		config:  o.config,
		folder:  folder,
		ledger:  ledger,
		tell:    &teller{out: errOut},
		now:     time.Now,
		release: o.release,
	}
	rep, err := run.run(ctx)
	if err != nil {
		return err
	}
	if o.json {
		return writeReport(out, rep)
	}
	fmt.Fprintf(out, "backup %s of cluster %s in %s\n", rep.Backup, rep.Cluster, rep.Folder)
	fmt.Fprintf(
		out,
		"up to event %d of %s; new: %d events, %d scripts and environments, %d of %d files\n",
		rep.Event,
		rep.EventAt.Format(time.RFC3339),
		rep.NewEvents,
		rep.NewContents,
		rep.NewFiles,
		rep.Files,
	)
	fmt.Fprintf(out, "the copy folds to the ledger's state: %s\n", rep.State)
	return writeWarnings(out, rep.Warnings)
}

// restoreBackup is musterd restore behind its command line.
func restoreBackup(ctx context.Context, o *backupOptions, out, errOut io.Writer) (err error) {
	folder, err := openBackups(o.folder, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.close()) }()
	if o.list {
		return listBackups(folder, o.json, out)
	}
	manifest, err := folder.pickBackup(o.at)
	if err != nil {
		return err
	}
	run := &restoreRun{
		folder: folder,
		m:      manifest,
		config: o.config,
		tell:   &teller{out: errOut},
		now:    time.Now,
	}
	if o.check {
		rep, err := run.check()
		if err == nil && o.json {
			return writeReport(out, rep)
		}
		if err == nil {
			fmt.Fprintf(
				out,
				"backup %s of cluster %s is whole: it folds to event %d of %s with the state that was backed up\n",
				rep.Backup,
				rep.Cluster,
				rep.Event,
				rep.EventAt.Format(time.RFC3339),
			)
		}
		return errors.Join(err, writeWarnings(out, rep.Warnings))
	}
	rep, err := run.run(ctx)
	if err != nil {
		return err
	}
	if o.json {
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

func writeReport(out io.Writer, rep any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(rep)
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
	for _, m := range all {
		fmt.Fprintf(
			out,
			"%-20s  %-12s  %10d  %-20s  %s\n",
			m.Name,
			m.Cluster,
			m.Event,
			m.At.Format(time.RFC3339),
			m.History,
		)
	}
	return nil
}
