package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// notice is a notification as a receiver got it.
type notice struct {
	Receiver string // slack or pagerduty
	Alert    string
	Resolved bool
	Channel  string // of Slack
	Text     string
}

// receivers stands for Slack's and PagerDuty's HTTP interfaces: it takes what
// they take, as they document it, and nothing else.
type receivers struct {
	t      *testing.T
	server *httptest.Server
	mu     sync.Mutex
	got    []notice
	open   map[string]bool // PagerDuty's incidents by dedup_key
}

const (
	hookPath   = "/services/T0000/B0000/XXXXXXXXXXXXXXXXXXXXXXXX"
	routingKey = "0123456789abcdef0123456789abcdef"
)

func newReceivers(t *testing.T) *receivers {
	r := &receivers{t: t, open: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+hookPath, r.take(r.slack))
	mux.HandleFunc("POST /v2/enqueue", r.take(r.pagerDuty))
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		t.Errorf("a notification went to %s %s", req.Method, req.URL)
		w.WriteHeader(http.StatusNotFound)
	})
	r.server = httptest.NewServer(mux)
	t.Cleanup(r.server.Close)
	return r
}

// take checks what is common and keeps the notice.
func (r *receivers) take(read func(body []byte) (notice, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err == nil && !strings.HasPrefix(req.Header.Get("Content-Type"), "application/json") {
			err = fmt.Errorf("content type %q", req.Header.Get("Content-Type"))
		}
		var n notice
		if err == nil {
			n, err = read(body)
		}
		if err == nil && strings.Contains(string(body), "<no value>") {
			err = fmt.Errorf("a template found no value")
		}
		if err != nil {
			r.t.Errorf("%s refuses: %v\n%s", req.URL.Path, err, body)
			http.Error(w, "invalid_payload", http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		r.got = append(r.got, n)
		r.mu.Unlock()
		if n.Receiver == "pagerduty" {
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, `{"status":"success","message":"Event processed","dedup_key":"x"}`)
			return
		}
		fmt.Fprint(w, "ok")
	}
}

// strictly decodes JSON without unknown fields.
func strictly(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// slack reads an incoming webhook's message with legacy attachments.
func (r *receivers) slack(body []byte) (notice, error) {
	var m struct {
		Channel, Username string
		Attachments       []struct {
			Title, Text, Fallback, Color, Footer, Pretext, Callback string
			TitleLink                                               string   `json:"title_link"`
			CallbackID                                              string   `json:"callback_id"`
			ImageURL                                                string   `json:"image_url"`
			ThumbURL                                                string   `json:"thumb_url"`
			MrkdwnIn                                                []string `json:"mrkdwn_in"`
			Actions                                                 []struct{ Type, Text, URL, Style, Name, Value string }
		}
	}
	if err := strictly(body, &m); err != nil {
		return notice{}, err
	}
	if len(m.Attachments) != 1 || !strings.HasPrefix(m.Channel, "#") {
		return notice{}, fmt.Errorf("%d attachments for the channel %q", len(m.Attachments), m.Channel)
	}
	a := m.Attachments[0]
	switch {
	case a.Title == "" || a.Fallback == "" || a.Text == "":
		return notice{}, fmt.Errorf("title, fallback or text is missing")
	case len(a.Actions) != 2 || a.Actions[0].Type != "button" || !strings.Contains(a.Actions[0].URL, "/d/muster-") || !strings.HasSuffix(a.Actions[1].URL, ".md"):
		return notice{}, fmt.Errorf("the buttons are not a dashboard and a runbook: %+v", a.Actions)
	case a.Color != "good" && a.Color != "warning" && a.Color != "danger" && !strings.HasPrefix(a.Color, "#"):
		return notice{}, fmt.Errorf("Slack has no colour %q", a.Color)
	}
	resolved := strings.HasPrefix(a.Title, "RESOLVED")
	if resolved != (a.Color == "good") {
		return notice{}, fmt.Errorf("%q is %s", a.Title, a.Color)
	}
	return notice{"slack", strings.TrimSuffix(path.Base(a.Actions[1].URL), ".md"), resolved, m.Channel, a.Title + "\n" + a.Text}, nil
}

// pagerDuty reads an event of the Events API v2.
func (r *receivers) pagerDuty(body []byte) (notice, error) {
	var e struct {
		RoutingKey  string `json:"routing_key"`
		DedupKey    string `json:"dedup_key"`
		EventAction string `json:"event_action"`
		Client      string
		ClientURL   string `json:"client_url"`
		Payload     *struct {
			Summary, Source, Severity, Timestamp, Class, Component, Group string
			CustomDetails                                                 map[string]string `json:"custom_details"`
		}
		Links  []struct{ Href, Text string }
		Images []struct{ Src, Alt, Href string }
	}
	if err := strictly(body, &e); err != nil {
		return notice{}, err
	}
	switch {
	case e.RoutingKey != routingKey:
		return notice{}, fmt.Errorf("routing key %q", e.RoutingKey)
	case e.EventAction != "trigger" && e.EventAction != "resolve":
		return notice{}, fmt.Errorf("event action %q", e.EventAction)
	case e.DedupKey == "" || len(e.DedupKey) > 255:
		return notice{}, fmt.Errorf("dedup key %q", e.DedupKey)
	case e.Payload == nil || e.Payload.Summary == "" || len(e.Payload.Summary) > 1024 || e.Payload.Source == "":
		return notice{}, fmt.Errorf("summary or source is missing or too long")
	case !slices.Contains([]string{"critical", "error", "warning", "info"}, e.Payload.Severity):
		return notice{}, fmt.Errorf("severity %q", e.Payload.Severity)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	resolve := e.EventAction == "resolve"
	if resolve && !r.open[e.DedupKey] {
		return notice{}, fmt.Errorf("resolves %s, which was not triggered", e.DedupKey)
	}
	r.open[e.DedupKey] = !resolve
	return notice{"pagerduty", e.Payload.Class, resolve, "", e.Payload.Summary}, nil
}

// has tells whether such a notice came.
func (r *receivers) has(want notice) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.got, func(n notice) bool {
		return n.Receiver == want.Receiver && n.Alert == want.Alert && n.Resolved == want.Resolved && (want.Channel == "" || n.Channel == want.Channel)
	})
}

// await waits for notices; each may take its time, all together a minute.
func (r *receivers) await(want ...notice) {
	r.t.Helper()
	began := time.Now()
	for _, w := range want {
		for !r.has(w) {
			if time.Since(began) > time.Minute {
				r.mu.Lock()
				defer r.mu.Unlock()
				var came []string
				for _, n := range r.got {
					came = append(came, fmt.Sprintf("%s to %s, resolved %v", n.Alert, n.Receiver, n.Resolved))
				}
				r.t.Fatalf("did not come within a minute: %s to %s, resolved %v\ncame: %s", w.Alert, w.Receiver, w.Resolved, strings.Join(came, "\n"))
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// alerts counts the different alerts that were notified.
func (r *receivers) alerts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, n := range r.got {
		out = append(out, n.Alert)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
