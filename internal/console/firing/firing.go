// Package firing keeps for the console what Alertmanager last said.
package firing

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

// Alerts keeps what Alertmanager last said, so that no page waits for it.
type Alerts struct {
	URL     string
	Cluster string
	Log     *slog.Logger

	mu   sync.Mutex
	last console.Alerts
}

// Latest is what Alertmanager last said; nobody changes its list.
func (f *Alerts) Latest() console.Alerts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// Follow asks Alertmanager again and again until the context ends.
func (f *Alerts) Follow(ctx context.Context) error {
	client := &http.Client{Timeout: alertsWait}
	ticker := time.NewTicker(alertsEvery)
	defer ticker.Stop()
	for {
		f.Ask(ctx, client)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Ask asks once. What does not answer leaves the list as it was, with its age.
func (f *Alerts) Ask(ctx context.Context, client *http.Client) {
	list, err := alerts.ReadFiring(ctx, client, f.URL, f.Cluster)
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		if f.last.Failure == "" {
			f.Log.Warn("the console cannot read alerts", "alertmanager", f.URL, "error", err)
		}
		f.last.Failure = err.Error()
		return
	}
	if f.last.Failure != "" {
		f.Log.Info("the console reads alerts again", "alertmanager", f.URL)
	}
	f.last = console.Alerts{At: time.Now()}
	for _, firing := range list {
		f.last.List = append(f.last.List, console.Alert{
			Name:     firing.Name,
			Severity: string(firing.Severity),
			User:     firing.User,
			Summary:  firing.Summary,
			Detail:   firing.Detail,
			Runbook:  firing.Runbook,
			Board:    firing.Board,
			Since:    firing.Since.UnixNano(),
		})
	}
}
