package slo

import (
	"strings"
	"testing"

	"github.com/musterhpc/muster/spec"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		text string
		want Objective
	}{
		{Submit, "99.5% within 100ms", Objective{Kind: Submit, Part: 0.995, Within: 100 * spec.Millisecond}},
		{Goodput, "90% above 60%", Objective{Kind: Goodput, Part: 0.9, Above: 0.6}},
		{Agents, "99.9%", Objective{Kind: Agents, Part: 0.9990000000000001}},
		{Scheduling, "99% within 90m", Objective{Kind: Scheduling, Part: 0.99, Within: 90 * spec.Minute}},
	} {
		got, ok, err := Parse(c.kind, c.text)
		if err != nil || !ok || got.Kind != c.want.Kind || got.Within != c.want.Within || got.Above != c.want.Above || got.Part-c.want.Part > 1e-9 {
			t.Errorf("%s %q: %+v, %v, %v", c.kind, c.text, got, ok, err)
		}
		if got.Text() != c.text {
			t.Errorf("%q is written as %q", c.text, got.Text())
		}
	}
	for _, text := range []string{"", "off"} {
		if _, ok, err := Parse(Submit, text); ok || err != nil {
			t.Errorf("%q: %v, %v", text, ok, err)
		}
	}
	for kind, texts := range map[Kind][]string{
		Submit:  {"99%", "99 within 100ms", "100% within 1s", "0% within 1s", "99% within soon", "NaN% within 1s", "99% within 1us", "99% within 1h30m", "99% within 0s", "99% within -1s", "99% within 9999999999h", "99% above 5%", "99% within 1s please"},
		Agents:  {"99% within 1s", "many"},
		Goodput: {"90%", "90% above 100%", "90% above NaN%", "90% within 1h"},
	} {
		for _, text := range texts {
			if o, _, err := Parse(kind, text); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s takes %q: %+v, %v", kind, text, o, err)
			}
		}
	}
}

func TestParseWaits(t *testing.T) {
	got, err := ParseWaits([]string{"normal 95% within 4h", "* 90% within 24h"})
	if err != nil || len(got) != 2 || got[0].Class != "normal" || got[1].Class != EveryQOS || got[1].Within != spec.Day {
		t.Errorf("%+v, %v", got, err)
	}
	for _, lines := range [][]string{{"normal"}, {"normal off"}, {"a 95% within 4h", "a 90% within 4h"}, {"95% within 4h"}} {
		if _, err := ParseWaits(lines); err == nil {
			t.Errorf("%q was taken", lines)
		}
	}
}
