package format

import "testing"

func TestPlural(t *testing.T) {
	for n, want := range map[int64]string{0: "0 jobs run", 1: "1 job runs", 2: "2 jobs run", -1: "-1 jobs run"} {
		if got := Plural(n, "job runs", "jobs run"); got != want {
			t.Errorf("%d: %q, not %q", n, got, want)
		}
	}
}
