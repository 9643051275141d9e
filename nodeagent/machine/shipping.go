package machine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/nodeagent/telemetry/jobmap"
)

// ReadCounters reads a site's choice of GPU fields; without a file it is nil,
// the default set.
func ReadCounters(path string) (*telemetry.Counters, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("telemetry.counters_file: %w", err)
	}
	return telemetry.ParseCounters(path, string(text))
}

// JobFiles keeps the mapping files up to date beside the agent's loop, which a
// slow file system must not hold up.
type JobFiles struct {
	t    *telemetry.Telemetry
	path string
	dir  *jobmap.Dir // only run uses it; nil while the folder cannot be written
	wake chan struct{}
	log  *slog.Logger
}

// OpenJobFiles opens the folder. Where it cannot be written the files are kept all the same,
// and written once it can be.
func OpenJobFiles(t *telemetry.Telemetry, path string, logger *slog.Logger) (*JobFiles, error) {
	dir, err := jobmap.Open(path)
	return &JobFiles{t: t, path: path, dir: dir, wake: make(chan struct{}, 1), log: logger}, err
}

// markChanged tells that jobs or devices are others now. On nil it does nothing.
func (f *JobFiles) markChanged() {
	if f == nil {
		return
	}
	select {
	case f.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// Run writes the files whenever jobs or devices have changed, until the context ends.
func (f *JobFiles) Run(ctx context.Context) {
	const again = 10 * time.Second
	failing := f.dir == nil
	retry := time.NewTimer(again)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-retry.C:
			retry.Reset(again)
			if !failing {
				continue
			}
		case <-f.wake:
		}
		err := f.writeFiles()
		if failed := err != nil; failed != failing {
			failing = failed
			if failed {
				f.log.Warn("the job mapping cannot be written", "error", err)
			} else {
				f.log.Info("the job mapping is written again")
			}
		}
	}
}

// writeFiles brings the files up to date, in a folder that is opened when it can be.
func (f *JobFiles) writeFiles() (err error) {
	if f.dir == nil {
		f.dir, err = jobmap.Open(f.path)
		if err != nil {
			return err
		}
	}
	return f.dir.Write(f.t.Mappings())
}
