package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/musterhpc/muster/internal/slurmrest"
)

// Options of a Source.
type Options struct {
	Interval time.Duration // between two snapshots; 0: 30 s
	Timeout  time.Duration // of one command; 0: 20 s
	MaxBytes int64         // of one command's output; 0: 2 GiB
	Bin      string        // folder of the commands; empty: PATH
	REST     *REST         // instead of the commands
	Log      *slog.Logger
	Now      func() time.Time // nil: the machine's clock
}

// Source keeps the newest snapshot.
type Source struct {
	o        Options
	last     atomic.Pointer[Snapshot]
	sections []section
	commands map[string]*Command
	rest     *client // nil: commands are run
	newNodes bool    // nodes come from scontrol, as in 23.02 and later
	named    bool
}

// section is one thing that is read, and how: by a command, or as a path of
// slurmrestd.
type section struct {
	name string
	args func(s *Source) []string
	read func(snap *Snapshot, r io.Reader) error
}

var (
	errTime = errors.New("took too long")
	errSize = errors.New("printed too much")
)

// New makes a source; it reads nothing yet.
func New(options Options) *Source {
	if options.Interval <= 0 {
		options.Interval = 30 * time.Second
	}
	if options.Timeout <= 0 {
		options.Timeout = 20 * time.Second
	}
	if options.MaxBytes <= 0 {
		options.MaxBytes = 2 << 30
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	source := &Source{o: options, sections: sections(), commands: map[string]*Command{}}
	if options.REST != nil {
		source.rest, source.sections = &client{
			REST: *options.REST,
			ask:  slurmrest.New(options.REST.URL, options.REST.User),
		}, restSections()
	}
	return source
}

// readInto makes the reader of a section: only what was read whole is kept.
func readInto[T any](
	read func(output io.Reader) (T, error),
	put func(snap *Snapshot, values T),
) func(*Snapshot, io.Reader) error {
	return func(snap *Snapshot, output io.Reader) error {
		values, err := read(output)
		if err == nil {
			put(snap, values)
		}
		return err
	}
}

func sections() []section {
	commandLine := func(args ...string) func(*Source) []string { return func(*Source) []string { return args } }
	return []section{
		{
			"jobs",
			commandLine("squeue", "--json"),
			readInto(readJobs, func(s *Snapshot, v []Job) { s.Jobs = v }),
		},
		{"nodes", func(source *Source) []string {
			if source.newNodes {
				return []string{"scontrol", "show", "nodes", "--json"}
			}
			return []string{"sinfo", "--json"}
		}, readInto(readNodes, func(s *Snapshot, v []Node) { s.Nodes = v })},
		{
			"partitions",
			commandLine("scontrol", "-o", "-a", "show", "partition"),
			readInto(readPartitions, func(s *Snapshot, v []string) { s.Partitions = v }),
		},
		{
			"reservations",
			commandLine("scontrol", "-o", "show", "reservation"),
			readInto(readReservations, func(s *Snapshot, v []Reservation) { s.Reservations = v }),
		},
		{
			"licenses",
			commandLine("scontrol", "-o", "show", "license"),
			readInto(readLicenses, func(s *Snapshot, v []License) { s.Licenses = v }),
		},
		{"scheduler", commandLine("sdiag"), readInto(readDiag, func(s *Snapshot, v Sched) { s.Sched = v })},
		{
			"fairshare",
			commandLine("sshare", "-a", "-P", "-n", "-l", "-o", shareColumns),
			readInto(readShares, func(s *Snapshot, v []Share) { s.Shares = v }),
		},
	}
}

// Latest is the newest snapshot; nil before the first.
func (s *Source) Latest() *Snapshot { return s.last.Load() }

// Run takes snapshots until the context ends. A Slurm that is away is tried
// again: what was read last stays, with its age.
func (s *Source) Run(ctx context.Context) error {
	for {
		began := s.o.Now()
		s.Refresh(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(s.o.Interval-s.o.Now().Sub(began), s.o.Interval/10)):
		}
	}
}

// Refresh takes one snapshot. It is not for several goroutines.
func (s *Source) Refresh(ctx context.Context) {
	next := &Snapshot{}
	if old := s.last.Load(); old != nil {
		*next = *old
	}
	var away error // nothing can be read
	if s.rest != nil {
		away = s.prepareRequest(ctx, next)
	} else if !s.named {
		s.nameCluster(ctx, next)
	}
	was := map[string]Section{}
	for _, section := range next.Sections {
		was[section.Name] = section
	}
	next.Sections = nil
	for _, section := range s.sections {
		now, old := Section{Name: section.name}, was[section.name]
		began := s.o.Now()
		now.Err = away
		if away == nil {
			now.Err = s.fetchOutput(
				ctx,
				section.args(s),
				func(output io.Reader) error { return section.read(next, output) },
			)
		}
		now.Took, now.At = s.o.Now().Sub(began), began
		if now.Err != nil {
			now.At = old.At
			if old.Err == nil && ctx.Err() == nil {
				s.o.Log.Warn(
					"Slurm could not be read: the last good values stay",
					"what",
					section.name,
					"error",
					now.Err,
				)
			}
		} else if old.Err != nil {
			s.o.Log.Info("Slurm can be read again", "what", section.name)
		}
		next.Sections = append(next.Sections, now)
	}
	next.Commands = nil
	for _, name := range [...]string{"scontrol", "sdiag", "sinfo", "slurmrestd", "squeue", "sshare"} {
		if command := s.commands[name]; command != nil {
			copied := *command
			copied.Buckets = append([]uint64(nil), command.Buckets...)
			next.Commands = append(next.Commands, copied)
		}
	}
	if !slices.ContainsFunc(next.Sections, func(section Section) bool { return section.Err == nil }) {
		s.named = false // what comes back may be another release
	}
	if ctx.Err() == nil {
		s.last.Store(next)
	}
}

// nameCluster finds out which cluster and release this is.
func (s *Source) nameCluster(ctx context.Context, snap *Snapshot) {
	err := s.run(ctx, []string{"scontrol", "show", "config"}, func(output io.Reader) error {
		text, err := io.ReadAll(output)
		for _, line := range strings.Split(string(text), "\n") {
			key, value, _ := strings.Cut(line, "=")
			switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
			case "ClusterName":
				snap.Cluster = value
			case "SLURM_VERSION":
				snap.Version = value
			}
		}
		return err
	})
	s.named = err == nil && snap.Cluster != ""
	s.newNodes = snap.Version >= "23"
}

// fetchOutput hands over what a command prints, or slurmrestd answers.
func (s *Source) fetchOutput(ctx context.Context, args []string, read func(r io.Reader) error) error {
	if s.rest != nil {
		return s.getPath(ctx, args[0], read)
	}
	return s.run(ctx, args, read)
}

// run runs one command and hands its output over. Everything that the command
// has started ends with it.
func (s *Source) run(ctx context.Context, args []string, read func(r io.Reader) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.o.Timeout, errTime)
	defer cancel()
	name := args[0]
	if s.o.Bin != "" {
		name = filepath.Join(s.o.Bin, name)
	}
	cmd := exec.CommandContext(ctx, name, args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	complaint := &head{}
	cmd.Stderr = complaint
	began := s.o.Now()
	err := s.pipeOutput(cmd, read)
	s.countRequest(args[0], s.o.Now().Sub(began), err)
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errTime):
		return fmt.Errorf("%s %w: more than %s", strings.Join(args, " "), errTime, s.o.Timeout)
	case complaint.kept.Len() > 0:
		return fmt.Errorf(
			"%s: %w: %s",
			strings.Join(args, " "),
			err,
			strings.TrimSpace(complaint.kept.String()),
		)
	}
	return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
}

// pipeOutput lets read have the output while the command runs.
func (s *Source) pipeOutput(cmd *exec.Cmd, read func(r io.Reader) error) error {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	limited := &io.LimitedReader{R: out, N: s.o.MaxBytes}
	readErr := read(limited)
	if limited.N <= 0 {
		readErr = fmt.Errorf("%w: more than %d bytes", errSize, s.o.MaxBytes)
	}
	if readErr != nil {
		_ = cmd.Cancel() // nobody reads the rest
	} else if _, err := io.Copy(io.Discard, limited); err != nil {
		readErr = err
	}
	if err := cmd.Wait(); err != nil && (readErr == nil || errors.Is(readErr, errShape)) {
		return errors.Join(err, readErr)
	}
	return readErr
}

// head keeps the beginning of what is written to it.
type head struct{ kept bytes.Buffer }

// maxComplaint bounds what is kept of an error's text: a command that fails may print its whole
// usage, and the cause comes first.
const maxComplaint = 500

func (h *head) Write(p []byte) (int, error) {
	if room := maxComplaint - h.kept.Len(); room > 0 {
		h.kept.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (s *Source) countRequest(name string, took time.Duration, err error) {
	command := s.commands[name]
	if command == nil {
		command = &Command{Name: name, Buckets: make([]uint64, len(Bounds()))}
		s.commands[name] = command
	}
	command.Runs++
	command.Seconds += took.Seconds()
	if err != nil {
		command.Errors++
	}
	for i, bound := range Bounds() {
		if took.Seconds() <= bound {
			command.Buckets[i]++
		}
	}
}
