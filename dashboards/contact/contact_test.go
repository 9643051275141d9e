package contact_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/alerting"

	"github.com/musterhpc/muster/dashboards/contact"
)

// TestJSON renders a site and reads the parts back as strictly as the SDK can.
func TestJSON(t *testing.T) {
	data, err := contact.JSON(
		[]contact.Point{{Name: "slack", Type: "slack", Settings: map[string]any{"url": "$__file{/s/hook}"}}, {Name: "pagerduty", Type: "pagerduty", Settings: map[string]any{"integrationKey": "$__file{/s/key}"}}},
		contact.Policy{Default: "slack", GroupBy: []string{"cluster"}, Wait: "30s", Interval: "5m", Repeat: "4h", Routes: []contact.Route{
			{Point: "pagerduty", Matchers: [][3]string{{"severity", "=", "critical"}}, Continue: true}, {Point: "slack", Matchers: [][3]string{{"severity", "=", "info"}}, Hours: "off"}}},
		contact.Hours{Name: "off", From: "08:00", To: "18:00", Zone: "Europe/Berlin", FirstDay: "monday", LastDay: "friday"})
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		ContactPoints []struct {
			Name      string
			Receivers []json.RawMessage
		}
		Policies  []map[string]json.RawMessage
		MuteTimes []struct {
			Name      string
			Intervals []struct {
				Weekdays []string
				Times    []map[string]string
			} `json:"time_intervals"`
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, c := range file.ContactPoints {
		var p alerting.ContactPoint
		if err := p.UnmarshalJSONStrict(c.Receivers[0]); err != nil || p.Validate() != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	delete(file.Policies[0], "orgId")
	raw, err := json.Marshal(file.Policies[0])
	if err != nil {
		t.Fatal(err)
	}
	var p alerting.NotificationPolicy
	if err := p.UnmarshalJSONStrict(raw); err != nil || len(p.Routes) != 2 || *p.Routes[0].Receiver != "muster-pagerduty" || p.Routes[1].MuteTimeIntervals[0] != "off" {
		t.Errorf("%v %s", err, raw)
	}
	m := file.MuteTimes[0].Intervals
	if len(m) != 2 || m[0].Times[0]["end_time"] != "08:00" || m[0].Times[1]["start_time"] != "18:00" || strings.Join(m[1].Weekdays, " ") != "sunday saturday" {
		t.Errorf("%+v", m)
	}
}
