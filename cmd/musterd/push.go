package main

import (
	"os"
	"time"

	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/internal/push"
)

// startPush sends this controller's metrics where nobody can scrape them, while it leads.
// What is wrong with the settings is told and costs nothing else: jobs go on.
func (s *server) startPush(g *group, gather collector.Gather) {
	t := &s.cfg.Telemetry
	pusher, err := s.openPush(gather)
	if err != nil {
		s.log.Error("the metrics are not pushed", "url", t.PushURL, "error", err)
		return
	}
	s.pusher.Store(pusher)
	g.spawnPart("push metrics", pusher.Run)
}

func (s *server) openPush(gather collector.Gather) (*push.Pusher, error) {
	t := &s.cfg.Telemetry
	headers, err := push.ReadHeaders(t.PushHeadersFile)
	if err != nil {
		return nil, err
	}
	at, err := t.PushAddress()
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	to, err := push.Open(push.Settings{
		Format:  t.PushFormat,
		At:      at,
		CA:      t.PushCA,
		Headers: headers,
		// The names that deploy/prometheus gives to what it scrapes.
		Target:  push.Target{Job: "slurm", Instance: host, Labels: map[string]string{"cluster": s.cluster.ClusterName}},
		Began:   time.Now(),
		Timeout: time.Duration(t.PushInterval),
	})
	if err != nil {
		return nil, err
	}
	return push.New(push.Config{
		Gather:   push.Gatherer(gather),
		To:       to,
		Interval: time.Duration(t.PushInterval),
		Now:      time.Now,
		Changed: func(err error) {
			if err != nil {
				s.log.Warn("the metrics cannot be pushed; those of some minutes are kept", "url", t.PushURL, "error", err)
				return
			}
			s.log.Info("the metrics are pushed again", "url", t.PushURL)
		},
	}), nil
}

// pushed is how pushes went, as metrics show it.
func (s *server) pushed() (collector.Pushed, bool) {
	pusher := s.pusher.Load()
	if pusher == nil {
		return collector.Pushed{}, false
	}
	return collector.Pushed(pusher.Status()), true
}
