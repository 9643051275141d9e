package exporting

import (
	"os"
	"time"

	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/push"
)

// startPush sends this controller's metrics where nobody can scrape them, while it leads.
// What is wrong with the settings is logged and costs nothing else: jobs go on.
func (e *Exporter) startPush(group *parts.Group, gather collector.Gather) {
	pusher, err := e.openPush(gather)
	if err != nil {
		e.of.Log.Error("the metrics are not pushed", "url", e.of.Config.Telemetry.PushURL, "error", err)
		return
	}
	e.pusher.Store(pusher)
	group.Spawn("push metrics", pusher.Run)
}

func (e *Exporter) openPush(gather collector.Gather) (*push.Pusher, error) {
	telemetry := &e.of.Config.Telemetry
	headers, err := push.ReadHeaders(telemetry.PushHeadersFile)
	if err != nil {
		return nil, err
	}
	at, err := telemetry.PushAddress()
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	to, err := push.Open(push.Settings{
		Format:  telemetry.PushFormat,
		At:      at,
		CA:      telemetry.PushCA,
		Headers: headers,
		// The names that deploy/prometheus gives to what it scrapes.
		Target: push.Target{
			Job:      "slurm",
			Instance: host,
			Labels:   map[string]string{"cluster": e.of.Cluster},
		},
		Began:   time.Now(),
		Timeout: time.Duration(telemetry.PushInterval),
	})
	if err != nil {
		return nil, err
	}
	logger := e.of.Log
	return push.New(push.Config{
		Gather:   push.Gatherer(gather),
		To:       to,
		Interval: time.Duration(telemetry.PushInterval),
		Now:      time.Now,
		Changed: func(err error) {
			if err != nil {
				logger.Warn(
					"the metrics cannot be pushed; those of some minutes are kept",
					"url", telemetry.PushURL,
					"error", err,
				)
				return
			}
			logger.Info("the metrics are pushed again", "url", telemetry.PushURL)
		},
	}), nil
}

// readPushed is how pushes went, and whether there are any.
func (e *Exporter) readPushed() (collector.Pushed, bool) {
	pusher := e.pusher.Load()
	if pusher == nil {
		return collector.Pushed{}, false
	}
	return collector.Pushed(pusher.Status()), true
}
