package slo_test

import (
	"testing"

	"github.com/musterhpc/muster/internal/slo"
)

// FuzzParse: an objective that is accepted leaves something to aim at and something to budget.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"99% within 100ms", "99.9%", "90% above 60%", "* 90% within 24h", "off", "1e1% within 1d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, kind := range []slo.Kind{slo.Submit, slo.Scheduling, slo.Wait, slo.Accounting, slo.Goodput, slo.Durability, slo.Agents} {
			o, ok, err := slo.Parse(kind, text)
			if err != nil || !ok {
				continue
			}
			between := func(part float64) bool { return part > 0 && part < 1 }
			if !between(o.Part) || o.Within < 0 || o.Above != 0 && !between(o.Above) {
				t.Fatalf("%q is accepted as %+v", text, o)
			}
		}
		if _, err := slo.ParseWaits([]string{text}); err != nil && err.Error() == "" {
			t.Fatalf("%q is refused without a word", text)
		}
	})
}
