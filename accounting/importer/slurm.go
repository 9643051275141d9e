package importer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhpc/muster/spec"
)

// Slurm reads a live Slurm's accounting through its own sacct.
type Slurm struct {
	Bin     string // the folder of sacct; empty = where the shell finds it
	Cluster string // as Slurm calls it
	REST    *REST  // where it is asked instead of sacct; nil = sacct
	// Step is how much of the past one sacct is asked for: 7 days without it.
	Step time.Duration
	// Overlap is what is read again: records reach slurmdbd late. 10 minutes
	// without it.
	Overlap time.Duration
}

// command makes a call of sacct.
func (s *Slurm) command(ctx context.Context, args ...string) *exec.Cmd {
	return s.commandFor(ctx, "sacct", args...)
}

// commandFor makes a call of one of Slurm's commands. Times are asked for in
// seconds, so that no zone and no hour that comes twice can be misread.
func (s *Slurm) commandFor(ctx context.Context, path string, args ...string) *exec.Cmd {
	if s.Bin != "" {
		path = filepath.Join(s.Bin, path)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "SACCT_") || strings.HasPrefix(e, "SLURM_TIME_FORMAT=")
	}), "SLURM_TIME_FORMAT=%s")
	return cmd
}

// errText is what a command said when it failed.
func errText(cmd *exec.Cmd, err error, said []byte) error {
	name := filepath.Base(cmd.Path)
	if text := strings.TrimSpace(string(said)); text != "" {
		return fmt.Errorf("ask Slurm's %s: %w: %s", name, err, text)
	}
	return fmt.Errorf("ask Slurm's %s: %w", name, err)
}

// knownColumns are those of Columns that this release of Slurm has.
func (s *Slurm) knownColumns(ctx context.Context) ([]string, error) {
	out, err := s.runForOutput(s.command(ctx, "--helpformat"))
	if err != nil {
		return nil, err
	}
	have := strings.Fields(strings.ToLower(string(out)))
	// Before WorkDir and JobName, which may have anything in them.
	all := Columns()
	all = slices.Insert(
		all,
		len(all)-2,
		"FailedNode",
		"SegmentSize",
	) // younger than others: sacct of an older release refuses their names
	list := slices.DeleteFunc(
		all,
		func(c string) bool { return !slices.Contains(have, strings.ToLower(c)) },
	)
	if len(list) < 10 {
		return nil, fmt.Errorf(
			"sacct --helpformat names %d of the fields that are needed: is it Slurm's?",
			len(list),
		)
	}
	return list, nil
}

// Pull imports what was recorded between since and until, a stretch at a time,
// and tells of each. A run that began in one stretch and ended in another is
// stored once.
func (s *Slurm) Pull(
	ctx context.Context,
	config Config,
	since, until time.Time,
	each func(*Result),
) error {
	var list []string
	if s.REST == nil {
		var err error
		list, err = s.knownColumns(ctx)
		if err != nil {
			return err
		}
	}
	step := s.Step
	if step <= 0 {
		step = 7 * 24 * time.Hour
	}
	config.Cluster = s.Cluster
	config.Columns = nil
	config.Delimiter = "|"
	config.Zone = time.UTC
	config.Present = max(config.Now, spec.Instant(until.UnixNano()))
	for from := since; from.Before(until); from = from.Add(step) {
		to := from.Add(step)
		if to.After(until) {
			to = until
		}
		// The position says up to when everything was read.
		config.Now = spec.Instant(to.UnixNano())
		config.From = config.Writer.Position().At
		if config.From == 0 {
			config.From = spec.Instant(from.UnixNano())
		}
		result, err := s.stretch(ctx, config, list, from, to)
		if err != nil {
			return err
		}
		each(result)
	}
	return nil
}

// Since is where a next pull begins: a little before the end of the last.
func (s *Slurm) Since(last spec.Instant) time.Time {
	overlap := s.Overlap
	if overlap <= 0 {
		overlap = 10 * time.Minute
	}
	return time.Unix(0, int64(last)).Add(-overlap)
}

func (s *Slurm) stretch(
	ctx context.Context,
	config Config,
	columns []string,
	from, to time.Time,
) (*Result, error) {
	if s.REST != nil {
		in, out := io.Pipe()
		go func() { out.CloseWithError(s.REST.writeLines(ctx, s.Cluster, from, to, out)) }()
		defer in.Close()
		return Import(ctx, config, in)
	}
	at := func(t time.Time) string { return t.In(time.Local).Format("2006-01-02T15:04:05") }
	args := []string{"--allusers", "--parsable2", "--duplicates", "--format=" +
		strings.Join(columns, ","), "--starttime=" + at(from), "--endtime=" + at(to)}
	if s.Cluster != "" {
		args = append(args, "--clusters="+s.Cluster)
	}
	cmd := s.command(ctx, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, errText(cmd, err, nil)
	}
	if err := cmd.Start(); err != nil {
		return nil, errText(cmd, err, nil)
	}
	end := sync.OnceValue(func() error {
		_, drained := io.Copy(io.Discard, out) // so that it can end
		if err := cmd.Wait(); err != nil {
			return errText(cmd, err, said.Bytes())
		}
		return drained
	})
	result, err := Import(ctx, config, &untilEnd{out, end})
	if werr := end(); werr != nil && !errors.Is(err, werr) {
		err = errors.Join(err, werr)
	}
	return result, err
}

// untilEnd reads what a command prints. It ends only where the command ended
// well: what stops in the middle is not all there was.
type untilEnd struct {
	from io.Reader
	end  func() error
}

func (u *untilEnd) Read(data []byte) (int, error) {
	n, err := u.from.Read(data)
	if errors.Is(err, io.EOF) {
		if bad := u.end(); bad != nil {
			return n, bad
		}
	}
	return n, err
}

// Said is what Slurm's own arithmetic says of a stretch of time.
type Said struct {
	Runs       uint64
	CPUSeconds int64
}

// Ended adds up what sacct says of the runs that started and ended within
// [from, to), with Slurm's figures for how long they ran.
func (s *Slurm) Ended(ctx context.Context, from, to time.Time) (Said, error) {
	if s.REST != nil {
		return s.REST.sumEnded(ctx, s.Cluster, from, to)
	}
	at := func(t time.Time) string { return t.In(time.Local).Format("2006-01-02T15:04:05") }
	args := []string{
		"--allusers",
		"--allocations",
		"--parsable2",
		"--noheader",
		"--duplicates",
		"--format=State,Start,End,ElapsedRaw,AllocCPUS,NodeList",
		"--starttime=" + at(from),
		"--endtime=" + at(to),
	}
	if s.Cluster != "" {
		args = append(args, "--clusters="+s.Cluster)
	}
	out, err := s.runForOutput(s.command(ctx, args...))
	if err != nil {
		return Said{}, err
	}
	var sum Said
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		if len(fields) != 6 {
			return Said{}, fmt.Errorf("sacct: %q has %d columns", line, len(fields))
		}
		state, _, _ := strings.Cut(fields[0], " ")
		if over, _ := stateKnown(state); !over || isBlank(fields[1]) || isBlank(fields[2]) ||
			isBlank(fields[5]) {
			continue
		}
		var n [3]int64
		for i, text := range fields[2:5] {
			n[i], err = parseNumber(text)
			if err != nil {
				return Said{}, fmt.Errorf("sacct: %q %w", line, err)
			}
		}
		if end := time.Unix(n[0], 0); end.Before(from) || !end.Before(to) {
			continue
		}
		sum.Runs++
		sum.CPUSeconds += n[1] * n[2]
	}
	return sum, nil
}

// Allocated is what sreport says was allocated, in CPU-seconds. It lags: Slurm
// rolls up once an hour, and corrects what it rolled up later.
func (s *Slurm) Allocated(ctx context.Context, from, to time.Time) (int64, error) {
	at := func(t time.Time) string { return t.In(time.Local).Format("2006-01-02T15:04:05") }
	out, err := s.runForOutput(
		s.commandFor(
			ctx,
			"sreport",
			"-nP",
			"-t",
			"Seconds",
			"-T",
			"cpu",
			"cluster",
			"Utilization",
			"start="+
				at(from),
			"end="+at(to),
			"format=Cluster,Allocated",
		),
	)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(out)) {
		if name, n, ok := strings.Cut(strings.TrimSpace(line), "|"); ok &&
			(s.Cluster == "" || name == s.Cluster) {
			return parseNumber(n)
		}
	}
	return 0, nil // it has rolled up nothing
}

// runForOutput runs a command; what it says on standard error is the error's.
func (s *Slurm) runForOutput(cmd *exec.Cmd) ([]byte, error) {
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, errText(cmd, err, said.Bytes())
	}
	return out, nil
}
