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
	"time"

	"github.com/musterhpc/muster/spec"
)

// Slurm reads a live Slurm's accounting through its own sacct.
type Slurm struct {
	Bin     string // the folder of sacct; empty = where the shell finds it
	Cluster string // as Slurm calls it
	// Step is how much of the past one sacct is asked for: 7 days without it.
	Step time.Duration
	// Overlap is what is read again: records reach slurmdbd late. 10 minutes
	// without it.
	Overlap time.Duration
}

// command makes a call of sacct. Times are asked for in seconds, so that no
// zone and no hour that comes twice can be misread.
func (s *Slurm) command(ctx context.Context, args ...string) *exec.Cmd {
	path := "sacct"
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
func errText(err error, said []byte) error {
	if text := strings.TrimSpace(string(said)); text != "" {
		return fmt.Errorf("sacct: %w: %s", err, text)
	}
	return fmt.Errorf("sacct: %w", err)
}

// columns are those of Columns that this release of Slurm has.
func (s *Slurm) columns(ctx context.Context) ([]string, error) {
	cmd := s.command(ctx, "--helpformat")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, errText(err, said.Bytes())
	}
	have := strings.Fields(strings.ToLower(string(out)))
	list := slices.DeleteFunc(Columns(), func(c string) bool { return !slices.Contains(have, strings.ToLower(c)) })
	if len(list) < 10 {
		return nil, fmt.Errorf("sacct --helpformat names %d of the fields that are needed: is it Slurm's?", len(list))
	}
	return list, nil
}

// Pull imports what was recorded between since and until, a stretch at a time,
// and tells of each. A run that began in one stretch and ended in another is
// stored once.
func (s *Slurm) Pull(ctx context.Context, c Config, since, until time.Time, each func(*Result)) error {
	list, err := s.columns(ctx)
	if err != nil {
		return err
	}
	step := s.Step
	if step <= 0 {
		step = 7 * 24 * time.Hour
	}
	c.Cluster, c.Columns, c.Delimiter, c.Zone = s.Cluster, nil, "|", time.UTC
	for from := since; from.Before(until); from = from.Add(step) {
		to := from.Add(step)
		if to.After(until) {
			to = until
		}
		// The position says up to when everything was read.
		c.Now = spec.Instant(to.UnixNano())
		res, err := s.stretch(ctx, c, list, from, to)
		if err != nil {
			return err
		}
		each(res)
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

func (s *Slurm) stretch(ctx context.Context, c Config, columns []string, from, to time.Time) (*Result, error) {
	at := func(t time.Time) string { return t.In(time.Local).Format("2006-01-02T15:04:05") }
	args := []string{"--allusers", "--parsable2", "--duplicates", "--format=" + strings.Join(columns, ","), "--starttime=" + at(from), "--endtime=" + at(to)}
	if s.Cluster != "" {
		args = append(args, "--clusters="+s.Cluster)
	}
	cmd := s.command(ctx, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, errText(err, nil)
	}
	if err := cmd.Start(); err != nil {
		return nil, errText(err, nil)
	}
	res, err := Import(ctx, c, out)
	_, drained := io.Copy(io.Discard, out) // so that it can end
	if werr := cmd.Wait(); werr != nil {
		return res, errors.Join(errText(werr, said.Bytes()), err)
	}
	return res, errors.Join(err, drained)
}
