package care

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/ledger/archive"
)

const chainUsage = `musterd audit verify compares the ledger's archive with its hash chain, while the controller runs
or while it is stopped, and changes nothing.

Usage:
  musterd audit verify [--config FILE | --archive FOLDER | --backup FOLDER] [--expect LINK]...

It names the file and the batches of each place where the past was changed, removed, moved or cut
off after it was written. The last line is the newest link, BATCH:EVENT:SHA256. Whoever can write
the archive can also compute its chain again: keep links elsewhere, and give them with --expect, or
a file of them with --expect-from. Run it as the user of the controller, on its host.

Examples:
  musterd audit verify
  musterd audit verify --backup /backup/muster
  musterd audit verify --expect-from /media/cdrom/links

Options:
`

// errPastChanged is what audit verify ends with when it has found something.
var errPastChanged = errors.New("the archive is not what was written")

// chainOptions are the command line of audit verify.
type chainOptions struct {
	config, archive, backup, file string
	expect                        []string
}

// AuditCommand is musterd audit.
func AuditCommand(args []string, out, errOut io.Writer) int {
	flags := pflag.NewFlagSet("musterd audit", pflag.ContinueOnError)
	flags.SetOutput(errOut)
	var options chainOptions
	conffile.AddFlag(flags, &options.config, "muster.yaml `file`")
	flags.StringVar(
		&options.archive, "archive", "", "`folder` of an archive; ledger.archive_dir by default",
	)
	flags.StringVar(&options.backup, "backup", "", "`folder` of backups: verify all its histories")
	flags.StringArrayVar(&options.expect, "expect", nil, "`link` that was kept elsewhere")
	flags.StringVar(
		&options.file,
		"expect-from",
		"",
		"`file` with a link on each line; - is the standard input",
	)
	help := flags.BoolP("help", "h", false, "print this help and exit")
	flags.Usage = func() { fmt.Fprint(errOut, chainUsage, flags.FlagUsages()) }
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) || (err == nil && *help) {
		fmt.Fprint(out, chainUsage, flags.FlagUsages())
		return 0
	}
	switch {
	case err != nil:
	case flags.NArg() != 1 || flags.Arg(0) != "verify":
		err = errors.New("verify is required and the only word (see musterd audit --help)")
	case options.archive != "" && options.backup != "":
		err = errors.New("--archive and --backup exclude each other")
	}
	if err != nil {
		fmt.Fprintf(errOut, "musterd audit: %v\n", err)
		return 2
	}
	if err := options.verify(out); err != nil {
		fmt.Fprintf(errOut, "musterd audit verify: %v\n", err)
		return 1
	}
	return 0
}

// verify verifies the folders that the options name.
func (o *chainOptions) verify(out io.Writer) error {
	expected, err := o.readExpected()
	if err != nil {
		return err
	}
	dirs, err := o.folders()
	if err != nil {
		return err
	}
	bad := 0
	for _, dir := range dirs {
		n, err := verifyChain(dir, expected, out)
		if err != nil {
			return err
		}
		bad += n
	}
	if bad > 0 {
		return fmt.Errorf("%w (%d places)", errPastChanged, bad)
	}
	return nil
}

// readExpected collects the links that were kept elsewhere.
func (o *chainOptions) readExpected() ([]archive.Link, error) {
	texts := o.expect
	if o.file != "" {
		more, err := readLines(o.file)
		if err != nil {
			return nil, err
		}
		texts = append(texts, more...)
	}
	var links []archive.Link
	var bad []error
	for _, text := range texts {
		link, err := archive.ParseLink(text)
		bad = append(bad, err)
		links = append(links, link)
	}
	return links, errors.Join(bad...)
}

// readLines reads a file, without its empty lines.
func readLines(path string) ([]string, error) {
	in := os.Stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	var lines []string
	scan := bufio.NewScanner(in)
	for scan.Scan() {
		if line := strings.TrimSpace(scan.Text()); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, scan.Err()
}

// folders are the archives to verify.
func (o *chainOptions) folders() ([]string, error) {
	switch {
	case o.archive != "":
		return []string{o.archive}, nil
	case o.backup == "":
		config, err := conffile.Load(o.config)
		if err != nil {
			return nil, err
		}
		return []string{config.Ledger.ArchiveDir}, nil
	}
	dirs, err := filepath.Glob(filepath.Join(o.backup, "history-*"))
	if err == nil && len(dirs) == 0 {
		err = fmt.Errorf("there is no backup in %s", o.backup)
	}
	return dirs, err
}

// verifyChain verifies one archive, prints what it finds, and counts it.
func verifyChain(dir string, expected []archive.Link, out io.Writer) (bad int, err error) {
	report, err := archive.VerifyChain(dir, expected, func(damage error) {
		bad++
		fmt.Fprintf(out, "%v\n", damage)
	})
	if errors.Is(err, archive.ErrNoChain) {
		return bad, fmt.Errorf(
			"%w: a controller makes one when it starts, and a backup when it is made",
			err,
		)
	}
	if err != nil {
		return bad, err
	}
	fmt.Fprintf(
		out,
		"%s: batches %d to %d, events %d to %d, %d snapshots; %d batches are newer than the chain\n",
		dir, report.FirstPos, report.LastPos, report.FirstSeq, report.LastSeq, report.Snapshots,
		report.Behind,
	)
	if report.Dropped.Pos > 0 {
		fmt.Fprintf(out, "ledger.retention has dropped the batches up to %d, events up to %d\n",
			report.Dropped.Pos, report.Dropped.Seq)
	}
	if len(expected) > 0 {
		fmt.Fprintf(out, "%d of %d links that were kept elsewhere were compared\n",
			report.Expected, len(expected))
	}
	fmt.Fprintf(out, "newest link: %s\n", report.Head)
	return bad, nil
}
