// Package shipping sends the figures of a node to where nobody scrapes them: pushes of its metrics,
// and files that tell other exporters which job has which GPU.
package shipping

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/push"
	"github.com/musterhpc/muster/nodeagent/machine"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/spec"
)

// Shipping is the ways on which figures leave a node other than by a scrape.
type Shipping struct {
	settings *settings.Settings
	metrics  *telemetry.Telemetry
	log      *slog.Logger
	jobs     *machine.JobFiles // nil = no mapping is written
	headers  []string          // of each push
}

// Open opens the ways that muster.yaml asks for. One that is not there and that the node can do
// without is noted as a weakness.
func Open(
	s *settings.Settings,
	metrics *telemetry.Telemetry,
	weak *machine.Weaknesses,
	logger *slog.Logger,
) (*Shipping, error) {
	shipping := &Shipping{settings: s, metrics: metrics, log: logger}
	t := &s.Config.Telemetry
	if t.PushHeadersFile != "" && t.PushURL == "" {
		return nil, errors.New("telemetry.push_headers_file is of no use without telemetry.push_url")
	}
	var err error
	shipping.headers, err = push.ReadHeaders(t.PushHeadersFile)
	if err != nil {
		return nil, err
	}
	if t.JobMappingDir == "" {
		return shipping, nil
	}
	shipping.jobs, err = machine.OpenJobFiles(metrics, t.JobMappingDir, logger)
	if err != nil {
		weak.Note(fmt.Errorf("telemetry.job_mapping_dir: %w", err))
	}
	return shipping, nil
}

// Jobs are the files of the mapping; nil = none are written.
func (s *Shipping) Jobs() *machine.JobFiles { return s.jobs }

// Start starts them, until the context ends. It says why the metrics are not pushed.
func (s *Shipping) Start(ctx context.Context, wg *sync.WaitGroup) error {
	if s.jobs != nil {
		wg.Go(func() { s.jobs.Run(ctx) })
	}
	t := &s.settings.Config.Telemetry
	if !t.PushesFromAgents() {
		return nil
	}
	first := rand.Int64N(int64(t.PushInterval))
	changed := func(err error) {
		if err != nil {
			s.log.Warn("the metrics cannot be pushed", "url", t.PushURL, "error", err)
			return
		}
		s.log.Info("the metrics are pushed again", "url", t.PushURL)
	}
	if t.PushFormat == "import" {
		wg.Go(func() {
			s.metrics.PushUntil(ctx, telemetry.Push{
				URL:      t.PushURL,
				Headers:  s.headers,
				Interval: t.PushInterval,
				First:    spec.Span(first),
				Changed:  changed,
			})
		})
		return nil
	}
	to, err := s.openReceiver()
	if err != nil {
		return fmt.Errorf("the metrics are not pushed: %w", err)
	}
	pusher := push.New(push.Config{
		Gather:   push.FromText(func(w io.Writer) error { _, err := s.metrics.WriteTo(w); return err }),
		To:       to,
		Interval: time.Duration(t.PushInterval),
		First:    time.Duration(first),
		Now:      time.Now,
		Tried:    s.metrics.CountPush,
		Changed:  changed,
	})
	wg.Go(func() { _ = pusher.Run(ctx) }) // it ends with the context
	return nil
}

// openReceiver makes what takes the metrics of this node.
func (s *Shipping) openReceiver() (push.Receiver, error) {
	t := &s.settings.Config.Telemetry
	at, err := t.PushAddress()
	if err != nil {
		return nil, err
	}
	return push.Open(push.Settings{
		Format:  t.PushFormat,
		At:      at,
		CA:      t.PushCA,
		Headers: s.headers,
		// The names that deploy/prometheus gives to what it scrapes.
		Target: push.Target{
			Job:      "dcgm",
			Instance: s.settings.Node.Name,
			Labels:   map[string]string{"cluster": s.settings.Cluster.Config.ClusterName},
		},
		Began:   time.Now(),
		Timeout: time.Duration(t.PushInterval),
	})
}
