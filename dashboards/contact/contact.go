// Package contact renders Grafana's own alerting: contact points and
// notification policies, for sites that let Grafana send the notifications
// instead of Alertmanager. It makes the file that Grafana's provisioning reads
// (provisioning/alerting), through the SDK's types.
package contact

import (
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/alerting"
)

// Point is where notifications go.
type Point struct {
	Name, Type string         // of Grafana: slack, pagerduty, email, webhook
	Settings   map[string]any // a secret as $__file{PATH}
}

// Route leads alerts with certain labels to a point.
type Route struct {
	Point    string
	Matchers [][3]string // label, operator, value
	GroupBy  []string
	Repeat   string
	Continue bool
	Hours    string // name of a mute timing: silent then
}

// Policy is the tree of routes.
type Policy struct {
	Default                string
	GroupBy                []string
	Wait, Interval, Repeat string
	Routes                 []Route
}

// Hours is when notices that can wait are sent.
type Hours struct {
	Name, From, To, Zone string
	FirstDay, LastDay    string
}

// JSON renders the provisioning file: Grafana reads JSON as it reads YAML.
func JSON(points []Point, policy Policy, hours Hours) ([]byte, error) {
	type group struct {
		OrgID     int                     `json:"orgId"`
		Name      string                  `json:"name"`
		Receivers []alerting.ContactPoint `json:"receivers"`
	}
	type orgPolicy struct {
		OrgID int `json:"orgId"`
		alerting.NotificationPolicy
	}
	file := struct {
		APIVersion int         `json:"apiVersion"`
		Points     []group     `json:"contactPoints"`
		Policies   []orgPolicy `json:"policies"`
		Timings    []muteTime  `json:"muteTimes"`
	}{APIVersion: 1}
	for _, point := range points {
		cp, err := alerting.NewContactPointBuilder().
			Uid("muster-" + point.Name).
			Type(alerting.ContactPointType(point.Type)).
			Settings(point.Settings).
			DisableResolveMessage(false).
			Build()
		if err != nil {
			return nil, fmt.Errorf("contact point %s: %w", point.Name, err)
		}
		file.Points = append(
			file.Points,
			group{1, "muster-" + point.Name, []alerting.ContactPoint{cp}},
		)
	}
	root, err := policy.build()
	if err != nil {
		return nil, err
	}
	file.Policies = []orgPolicy{{1, root}}
	file.Timings = []muteTime{hours.outside()}
	data, err := json.MarshalIndent(file, "", "  ")
	return append(data, '\n'), err
}

func (p Policy) build() (alerting.NotificationPolicy, error) {
	b := alerting.NewNotificationPolicyBuilder().
		Receiver("muster-" + p.Default).
		GroupBy(p.GroupBy).
		GroupWait(p.Wait).
		GroupInterval(p.Interval).
		RepeatInterval(p.Repeat)
	root, err := b.Build()
	if err != nil {
		return root, fmt.Errorf("notification policy: %w", err)
	}
	for _, r := range p.Routes {
		var m alerting.ObjectMatchers
		for _, t := range r.Matchers {
			m = append(m, alerting.ObjectMatcher{t[0], t[1], t[2]})
		}
		rb := alerting.NewNotificationPolicyBuilder().
			Receiver("muster-" + r.Point).
			ObjectMatchers(m).
			Continue(r.Continue)
		if len(r.GroupBy) > 0 {
			rb.GroupBy(r.GroupBy)
		}
		if r.Repeat != "" {
			rb.RepeatInterval(r.Repeat)
		}
		if r.Hours != "" {
			rb.MuteTimeIntervals([]string{r.Hours})
		}
		route, err := rb.Build()
		if err != nil {
			return root, fmt.Errorf("notification policy of %s: %w", r.Point, err)
		}
		root.Routes = append(root.Routes, route)
	}
	return root, nil
}

// muteTime is a mute timing as the provisioning file has it; the SDK's type of
// that name has other fields.
type muteTime struct {
	OrgID     int        `json:"orgId"`
	Name      string     `json:"name"`
	Intervals []interval `json:"time_intervals"`
}

type interval struct {
	Times    []span   `json:"times,omitempty"`
	Weekdays []string `json:"weekdays,omitempty"`
	Location string   `json:"location"`
}

type span struct {
	Start string `json:"start_time"`
	End   string `json:"end_time"`
}

// outside is the time outside of the hours: Grafana mutes, it has no active
// intervals.
func (h Hours) outside() muteTime {
	days := [...]string{
		"sunday",
		"monday",
		"tuesday",
		"wednesday",
		"thursday",
		"friday",
		"saturday",
	}
	at := func(name string) int {
		for i, d := range days {
			if d == name {
				return i
			}
		}
		return 0
	}
	var off []string
	for i, day := range days {
		inside := at(h.FirstDay) <= i && i <= at(h.LastDay)
		if at(h.FirstDay) > at(h.LastDay) { // over the week's end
			inside = i >= at(h.FirstDay) || i <= at(h.LastDay)
		}
		if !inside {
			off = append(off, day)
		}
	}
	var night []span
	if h.From != "00:00" {
		night = append(night, span{"00:00", h.From})
	}
	if h.To != "24:00" {
		night = append(night, span{h.To, "24:00"})
	}
	mute := muteTime{OrgID: 1, Name: h.Name}
	if len(night) > 0 {
		mute.Intervals = append(mute.Intervals, interval{Times: night, Location: h.Zone})
	}
	if len(off) > 0 {
		mute.Intervals = append(mute.Intervals, interval{Weekdays: off, Location: h.Zone})
	}
	return mute
}
