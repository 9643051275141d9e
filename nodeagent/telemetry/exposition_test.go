package telemetry_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/nodeagent/telemetry"
)

// point is one series of a scrape.
type point struct {
	name   string
	labels map[string]string
	order  []string
	value  float64
}

// scrape prints the metrics and reads them back strictly.
func scrape(t testing.TB, tel *telemetry.Telemetry) ([]point, []catalogue.Seen) {
	t.Helper()
	var b strings.Builder
	if _, err := tel.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	points, seen, err := parse(b.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	return points, seen
}

// parse is an independent and strict reader of the text format: each family
// once, HELP then TYPE then its series, no series twice.
func parse(text string) ([]point, []catalogue.Seen, error) {
	var points []point
	var seen []catalogue.Seen
	series := map[string]bool{}
	done := map[string]bool{}
	if text != "" && !strings.HasSuffix(text, "\n") {
		return nil, nil, fmt.Errorf("the last line does not end")
	}
	help := ""
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("line %d: %s: %q", n+1, fmt.Sprintf(format, args...), line)
		}
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, text, ok := strings.Cut(rest, " ")
			if !ok || text == "" || done[name] {
				return nil, nil, fail("no help, or the family began before")
			}
			done[name] = true
			seen = append(seen, catalogue.Seen{Name: name, Help: text})
			help = name
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, ok := strings.Cut(rest, " ")
			if !ok || name != help || !slices.Contains([]string{"gauge", "counter", "histogram"}, kind) {
				return nil, nil, fail("TYPE does not follow its HELP")
			}
			seen[len(seen)-1].Type = kind
			help = ""
			continue
		}
		p, err := parsePoint(line)
		if err != nil {
			return nil, nil, fail("%v", err)
		}
		if len(seen) == 0 || help != "" {
			return nil, nil, fail("no TYPE before it")
		}
		f := &seen[len(seen)-1]
		base := p.name
		if f.Type == "histogram" {
			for _, s := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, s)
			}
		}
		if base != f.Name {
			return nil, nil, fail("it is not of family %s", f.Name)
		}
		key := p.name + fmt.Sprint(p.labels)
		if series[key] {
			return nil, nil, fail("series given twice")
		}
		series[key] = true
		for _, l := range p.order {
			if l != "le" && !slices.Contains(f.Labels, l) {
				f.Labels = append(f.Labels, l)
			}
		}
		points = append(points, p)
	}
	return points, seen, nil
}

func parsePoint(line string) (point, error) {
	p := point{labels: map[string]string{}}
	i := strings.IndexAny(line, "{ ")
	if i <= 0 {
		return p, fmt.Errorf("no name")
	}
	p.name = line[:i]
	rest := line[i:]
	if rest[0] == '{' {
		rest = rest[1:]
		for !strings.HasPrefix(rest, "}") {
			name, after, ok := strings.Cut(rest, `="`)
			if !ok {
				return p, fmt.Errorf("bad label at %q", rest)
			}
			end := 0
			for end < len(after) && after[end] != '"' {
				if after[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(after) {
				return p, fmt.Errorf("label %s does not end", name)
			}
			value, err := strconv.Unquote(`"` + after[:end] + `"`)
			if err != nil {
				return p, fmt.Errorf("label %s: %w", name, err)
			}
			if _, twice := p.labels[name]; twice {
				return p, fmt.Errorf("label %s stands twice", name)
			}
			p.labels[name] = value
			p.order = append(p.order, name)
			rest = strings.TrimPrefix(after[end+1:], ",")
		}
		rest = rest[1:]
	}
	v, err := strconv.ParseFloat(strings.TrimPrefix(rest, " "), 64)
	if err != nil {
		return p, err
	}
	p.value = v
	return p, nil
}

// the finds the one series with a name and these labels.
func the(t testing.TB, points []point, name string, labels ...string) point {
	t.Helper()
	found := all(points, name, labels...)
	if len(found) != 1 {
		t.Fatalf("%d series %s%v, want 1", len(found), name, labels)
	}
	return found[0]
}

func all(points []point, name string, labels ...string) []point {
	var found []point
	for _, p := range points {
		match := p.name == name
		for i := 0; i+1 < len(labels); i += 2 {
			match = match && p.labels[labels[i]] == labels[i+1]
		}
		if match {
			found = append(found, p)
		}
	}
	return found
}
