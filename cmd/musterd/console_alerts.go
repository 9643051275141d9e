package main

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/musterhpc/muster/alerts"
	"github.com/musterhpc/muster/internal/console"
)

const (
	alertsEvery = 15 * time.Second // between two questions to Alertmanager
	alertsWait  = 5 * time.Second  // for its answer
)

// firingAlerts keeps what Alertmanager last said, so that no page waits for it.
type firingAlerts struct {
	url     string
	cluster string
	log     *slog.Logger

	mu   sync.Mutex
	last console.Alerts
}

// latest is what Alertmanager last said; nobody changes its list.
func (f *firingAlerts) latest() console.Alerts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// follow asks Alertmanager again and again until the context ends.
func (f *firingAlerts) follow(ctx context.Context) error {
	client := &http.Client{Timeout: alertsWait}
	ticker := time.NewTicker(alertsEvery)
	defer ticker.Stop()
	for {
		f.ask(ctx, client)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// ask asks once. What does not answer leaves the list as it was, with its age.
func (f *firingAlerts) ask(ctx context.Context, client *http.Client) {
	list, err := alerts.ReadFiring(ctx, client, f.url, f.cluster)
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		if f.last.Failure == "" {
			f.log.Warn("the console cannot read alerts", "alertmanager", f.url, "error", err)
		}
		f.last.Failure = err.Error()
		return
	}
	if f.last.Failure != "" {
		f.log.Info("the console reads alerts again", "alertmanager", f.url)
	}
	f.last = console.Alerts{At: time.Now()}
	for _, one := range list {
		f.last.List = append(f.last.List, console.Alert{
			Name:     one.Name,
			Severity: string(one.Severity),
			User:     one.User,
			Summary:  one.Summary,
			Detail:   one.Detail,
			Runbook:  one.Runbook,
			Board:    one.Board,
			Since:    one.Since.UnixNano(),
		})
	}
}
