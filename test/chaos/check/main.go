// Command check judges a chaos run after it: it reads the list of what was
// acknowledged, what the jobs themselves appended to a file, and the public
// commands squeue and sacct. It knows nothing else of the cluster. Its last
// line is `acked N lost L double-run D unaccounted U`, and it fails unless the
// last three are zero and nothing is left in the queue.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/musterhpc/muster/test/chaos/acked"
)

// options are the command line.
type options struct {
	ackedPath, marksPath, lossPath, bin string
	wait                                time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.ackedPath, "acked", "", "the `file` of acknowledged jobs")
	flag.StringVar(&o.marksPath, "effects", "", "the `file` that jobs append to")
	flag.StringVar(
		&o.lossPath,
		"losses",
		"",
		"the `file` of restorations of an older state, which need not be there",
	)
	flag.StringVar(&o.bin, "bin", "bin", "`folder` of squeue and sacct")
	flag.DurationVar(&o.wait, "wait", time.Minute, "how long records may take to arrive")
	flag.Parse()
	v, err := o.judge(context.Background())
	if err != nil {
		fmt.Fprintf(os.Stderr, "check: %v\n", err)
		os.Exit(2)
	}
	if !v.print(os.Stdout) {
		os.Exit(1)
	}
}

// judge looks until the verdict is good or the time is over: accounting is
// allowed to lag, not to forget.
func (o *options) judge(ctx context.Context) (verdict, error) {
	for deadline := time.Now().Add(o.wait); ; time.Sleep(time.Second) {
		f, err := o.gather(ctx)
		if err == nil {
			if v := auditFacts(f); v.good() || time.Now().After(deadline) {
				return v, nil
			}
		} else if time.Now().After(deadline) {
			return verdict{}, err
		}
	}
}

func (o *options) gather(ctx context.Context) (facts, error) {
	var f facts
	var err error
	f.acked, err = openList(o.ackedPath)
	if err != nil {
		return f, err
	}
	f.losses, err = o.openLosses()
	if err != nil {
		return f, err
	}
	// The queue first, what the jobs did last: one that ends in between is in
	// all three, and nothing is recorded that is not seen here.
	queue, err := o.ask(ctx, "squeue", "-h", "-r", "-o", "%i|%T")
	if err != nil {
		return f, err
	}
	f.queued, err = readQueue(queue)
	if err != nil {
		return f, err
	}
	since := time.Now()
	if len(f.acked) > 0 {
		since = time.Unix(0, f.acked[0].At)
	}
	rows, err := o.ask(
		ctx,
		"sacct",
		"-a",
		"-X",
		"-D",
		"-n",
		"-P",
		"-S",
		since.Add(-time.Minute).Format("2006-01-02T15:04:05"),
		"-o",
		"JobID,State,ExitCode,Start,End,Restarts",
	)
	if err != nil {
		return f, err
	}
	f.rows, err = readRows(rows)
	if err != nil {
		return f, err
	}
	effects, err := os.Open(o.marksPath)
	if err != nil {
		return f, err
	}
	defer effects.Close()
	f.marks, err = readMarks(effects)
	return f, err
}

func openList(path string) ([]acked.Entry, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return acked.Read(file)
}

// openLosses reads the restorations; most runs have none.
func (o *options) openLosses() (losses, error) {
	file, err := os.Open(o.lossPath)
	if o.lossPath == "" || errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readLosses(file)
}

// ask runs a public command.
func (o *options) ask(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(o.bin, name), args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(errOut.Bytes()))
	}
	return out.String(), nil
}

func (v *verdict) good() bool {
	return len(v.lost)+len(v.doubleRun)+len(v.unaccounted)+len(v.queued) == 0
}

// shown is how many findings of a kind are printed.
const shown = 20

func (v *verdict) print(w io.Writer) bool {
	for _, kind := range [...]struct {
		name string
		list []string
	}{{"lost", v.lost}, {"double-run", v.doubleRun}, {"unaccounted", v.unaccounted}, {"still queued", v.queued}} {
		for _, line := range kind.list[:min(shown, len(kind.list))] {
			fmt.Fprintf(w, "%s: %s\n", kind.name, line)
		}
		if more := len(kind.list) - shown; more > 0 {
			fmt.Fprintf(w, "%s: and %d more\n", kind.name, more)
		}
	}
	for _, s := range slices.Sorted(maps.Keys(v.states)) {
		fmt.Fprintf(w, "%-14s %d\n", s, v.states[s])
	}
	fmt.Fprintf(
		w,
		"attempts that started %d, jobs with more than one %d, ends other than the script's own %d\n",
		v.ran,
		v.again,
		v.unseen,
	)
	if v.takenBack > 0 {
		fmt.Fprintf(
			w,
			"%d jobs were acknowledged in a history that was taken back, and are judged only for double runs\n",
			v.takenBack,
		)
	}
	if len(v.queued) > 0 {
		fmt.Fprintf(w, "%d jobs have not ended: the cluster did not drain\n", len(v.queued))
	}
	fmt.Fprintf(
		w,
		"acked %d lost %d double-run %d unaccounted %d\n",
		v.acked,
		len(v.lost),
		len(v.doubleRun),
		len(v.unaccounted),
	)
	return v.good()
}
