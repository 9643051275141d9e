package catalogue

import (
	"slices"
	"strings"
)

// Seen is one metric family as a live endpoint served it.
type Seen struct {
	Name string
	Type string // as after # TYPE
	Help string
	// Labels is the union over its series, without le.
	Labels []string
}

// Conform holds what an endpoint served against the catalogue: no family that
// is not listed, no other type, help or label, and (if all is true) nothing
// listed that was not served. The error is Problems.
func (c *Catalogue) Conform(endpoint string, seen []Seen, all bool) error {
	var problems Problems
	add := func(name, text string) { problems = append(problems, Problem{name, endpoint, text}) }
	want := c.Served(endpoint)
	served := make([]string, 0, len(seen))
	for _, s := range seen {
		served = append(served, s.Name)
		i := slices.IndexFunc(want, func(m Metric) bool { return m.Name == s.Name })
		if i < 0 {
			add(s.Name, "is served but not in the catalogue")
			continue
		}
		metric := want[i]
		if s.Type != metric.Type.String() {
			add(s.Name, "is served as "+s.Type+", the catalogue says "+metric.Type.String())
		}
		if s.Help != metric.Help {
			add(s.Name, "is served with another help text than the catalogue's")
		}
		if len(s.Labels) > 0 && !sameSet(s.Labels, metric.Labels) {
			add(s.Name, "is served with labels "+strings.Join(s.Labels, ",")+
				", the catalogue says "+strings.Join(metric.Labels, ","))
		}
	}
	for _, metric := range want {
		if all && !slices.Contains(served, metric.Name) {
			add(metric.Name, "is in the catalogue but was not served")
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return problems
}
