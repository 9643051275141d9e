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
	fs := pflag.NewFlagSet("musterd audit", pflag.ContinueOnError)
	fs.SetOutput(errOut)
	var o chainOptions
	conffile.AddFlag(fs, &o.config, "muster.yaml `file`")
	fs.StringVar(&o.archive, "archive", "", "`folder` of an archive; ledger.archive_dir by default")
	fs.StringVar(&o.backup, "backup", "", "`folder` of backups: verify all its histories")
	fs.StringArrayVar(&o.expect, "expect", nil, "`link` that was kept elsewhere")
	fs.StringVar(&o.file, "expect-from", "", "`file` with a link on each line; - is the standard input")
	help := fs.BoolP("help", "h", false, "print this help and exit")
	fs.Usage = func() { fmt.Fprint(errOut, chainUsage, fs.FlagUsages()) }
	err := fs.Parse(args)
	if errors.Is(err, pflag.ErrHelp) || (err == nil && *help) {
		fmt.Fprint(out, chainUsage, fs.FlagUsages())
		return 0
	}
	switch {
	case err != nil:
	case fs.NArg() != 1 || fs.Arg(0) != "verify":
		err = errors.New("verify is required and the only word (see musterd audit --help)")
	case o.archive != "" && o.backup != "":
		err = errors.New("--archive and --backup exclude each other")
	}
	if err != nil {
		fmt.Fprintf(errOut, "musterd audit: %v\n", err)
		return 2
	}
	if err := o.verify(out); err != nil {
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
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
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
		cfg, err := conffile.Load(o.config)
		if err != nil {
			return nil, err
		}
		return []string{cfg.Ledger.ArchiveDir}, nil
	}
	dirs, err := filepath.Glob(filepath.Join(o.backup, "history-*"))
	if err == nil && len(dirs) == 0 {
		err = fmt.Errorf("there is no backup in %s", o.backup)
	}
	return dirs, err
}

// verifyChain verifies one archive, prints what it finds, and counts it.
func verifyChain(dir string, expected []archive.Link, out io.Writer) (bad int, err error) {
	rep, err := archive.VerifyChain(dir, expected, func(damage error) {
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
		dir, rep.FirstPos, rep.LastPos, rep.FirstSeq, rep.LastSeq, rep.Snapshots, rep.Behind,
	)
	if rep.Dropped.Pos > 0 {
		fmt.Fprintf(out, "ledger.retention has dropped the batches up to %d, events up to %d\n",
			rep.Dropped.Pos, rep.Dropped.Seq)
	}
	if len(expected) > 0 {
		fmt.Fprintf(out, "%d of %d links that were kept elsewhere were compared\n",
			rep.Expected, len(expected))
	}
	fmt.Fprintf(out, "newest link: %s\n", rep.Head)
	return bad, nil
}
