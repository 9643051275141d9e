package alerts

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// maxFiring bounds the answer that is read from Alertmanager, in bytes.
const maxFiring = 4 << 20

// Firing is an alert of ours that Alertmanager holds as active.
type Firing struct {
	Name     string
	Severity Severity
	Audience Audience
	User     string // whom it is about; empty = nobody in particular
	Summary  string
	Detail   string
	Runbook  string // URL; empty if it is not one of HTTP
	Board    string // the same, of the dashboard
	Since    time.Time
}

// ReadFiring asks the Alertmanager at a URL which alerts of these rules are active
// for a cluster, and neither silenced nor inhibited: the critical ones first, then
// the newest. What other rules say, and alerts of other clusters, are left out.
func ReadFiring(
	ctx context.Context,
	client *http.Client,
	alertmanager, cluster string,
) ([]Firing, error) {
	address := strings.TrimRight(alertmanager, "/") +
		"/api/v2/alerts?active=true&silenced=false&inhibited=false&unprocessed=false"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("alertmanager_url %q: %w", alertmanager, err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("Alertmanager at %s answers %s", alertmanager, answer.Status) //nolint:staticcheck // a name
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxFiring+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxFiring {
		return nil, fmt.Errorf("Alertmanager at %s answers with more than %d bytes", alertmanager, maxFiring) //nolint:staticcheck // a name
	}
	var list []struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
		StartsAt    time.Time         `json:"startsAt"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("Alertmanager at %s answers with something else: %w", alertmanager, err) //nolint:staticcheck // a name
	}
	ours := map[string]bool{}
	for _, rule := range All() {
		ours[rule.Name] = true
	}
	var firings []Firing
	for _, one := range list {
		of := one.Labels["cluster"]
		if !ours[one.Labels["alertname"]] || of != "" && of != cluster {
			continue
		}
		firings = append(firings, Firing{
			Name:     one.Labels["alertname"],
			Severity: Severity(one.Labels["severity"]),
			Audience: Audience(cmp.Or(one.Labels["audience"], string(Operators))),
			User:     one.Labels["user"],
			Summary:  one.Annotations["summary"],
			Detail:   one.Annotations["description"],
			Runbook:  webLink(one.Annotations["runbook_url"]),
			Board:    webLink(one.Annotations["dashboard"]),
			Since:    one.StartsAt,
		})
	}
	slices.SortStableFunc(firings, func(a, b Firing) int {
		return cmp.Or(cmp.Compare(a.Severity.rank(), b.Severity.rank()),
			b.Since.Compare(a.Since), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Summary, b.Summary))
	})
	return firings, nil
}

// rank orders severities, the most urgent first.
func (s Severity) rank() int {
	return slices.Index([]Severity{Critical, Warning, Info}, s) & 3 // an unknown one is last
}

// webLink is a link that leads to a web page, or nothing.
func webLink(text string) string {
	link, err := url.Parse(text)
	if err != nil || link.Host == "" || link.Scheme != "http" && link.Scheme != "https" {
		return ""
	}
	return text
}
