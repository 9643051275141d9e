package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/transport/keyfile"
	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/nodeagent/telemetry/jobmap"
	"github.com/musterhpc/muster/spec"
)

// readCounters reads a site's choice of GPU fields; without a file it is nil,
// the default set.
func readCounters(path string) (*telemetry.Counters, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("telemetry.counters_file: %w", err)
	}
	return telemetry.ParseCounters(path, string(text))
}

// errHeader is wrapped when a line of the headers' file is none.
var errHeader = errors.New("is not a header (Name: value)")

// readHeaders reads the headers of a push. The file may hold a secret, so it
// must not be readable by others.
func readHeaders(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	text, err := keyfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("telemetry.push_headers_file: %w", err)
	}
	var out []string
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, fmt.Errorf("telemetry.push_headers_file: %s:%d: %w", path, n, errHeader)
		}
		out = append(out, name+": "+strings.TrimSpace(value))
	}
	return out, nil
}

// openShipping opens the ways on which figures leave the node other than by a
// scrape.
func (a *assembled) openShipping() (err error) {
	t := &a.s.cfg.Telemetry
	if t.PushHeadersFile != "" && t.PushURL == "" {
		return errors.New("telemetry.push_headers_file is of no use without telemetry.push_url")
	}
	a.headers, err = readHeaders(t.PushHeadersFile)
	if err != nil {
		return err
	}
	if t.JobMappingDir == "" {
		return nil
	}
	a.jobs = &jobFiles{
		t:    a.metrics,
		path: t.JobMappingDir,
		wake: make(chan struct{}, 1),
		log:  a.log,
	}
	a.jobs.dir, err = jobmap.Open(t.JobMappingDir)
	if err != nil {
		a.noteWeakness(fmt.Errorf("telemetry.job_mapping_dir: %w", err))
	}
	return nil
}

// startShipping starts them.
func (a *assembled) startShipping(ctx context.Context, wg *sync.WaitGroup) {
	if a.jobs != nil {
		wg.Go(func() { a.jobs.run(ctx) })
	}
	t := &a.s.cfg.Telemetry
	if t.PushURL == "" {
		return
	}
	push := telemetry.Push{
		URL:      t.PushURL,
		Headers:  a.headers,
		Interval: t.PushInterval,
		First:    spec.Span(rand.Int64N(int64(t.PushInterval))),
		Changed: func(err error) {
			if err != nil {
				a.log.Warn("the metrics cannot be pushed", "url", t.PushURL, "error", err)
				return
			}
			a.log.Info("the metrics are pushed again", "url", t.PushURL)
		},
	}
	wg.Go(func() { a.metrics.PushUntil(ctx, push) })
}

// jobFiles keeps the mapping files up to date beside the agent's loop, which a
// slow file system must not hold up.
type jobFiles struct {
	t    *telemetry.Telemetry
	path string
	dir  *jobmap.Dir // only run uses it; nil while the folder cannot be written
	wake chan struct{}
	log  *slog.Logger
}

// markChanged tells that jobs or devices are others now. On nil it does nothing.
func (f *jobFiles) markChanged() {
	if f == nil {
		return
	}
	select {
	case f.wake <- struct{}{}:
	default: // it will look anyway
	}
}

func (f *jobFiles) run(ctx context.Context) {
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
func (f *jobFiles) writeFiles() (err error) {
	if f.dir == nil {
		f.dir, err = jobmap.Open(f.path)
		if err != nil {
			return err
		}
	}
	return f.dir.Write(f.t.Mappings())
}
