package wire_test

import (
	"testing"

	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/spec"
)

// TestWaitText: a pod says why it waits and when it is planned to start, and one time once.
func TestWaitText(t *testing.T) {
	at := spec.Instant(1_750_000_000 * int64(spec.Second))
	resources := spec.Reason{Code: "Resources", Until: at}
	for _, c := range []struct {
		reason  spec.Reason
		planned spec.Instant
		want    string
	}{
		{spec.Reason{Code: "Priority"}, 0, "job 7 of Muster waits (Priority)"},
		{resources, at, "job 7 of Muster waits (Resources): planned start 2025-06-15T15:06:40Z"},
		{resources, at.Add(spec.Minute), "job 7 of Muster waits (Resources): until 2025-06-15T15:06:40Z; planned start 2025-06-15T15:07:40Z"},
		{spec.Reason{Code: "QOSMaxCpuPerUserLimit", TRES: "cpu", Limit: 8, Used: 6, Asked: 4}, 0,
			"job 7 of Muster waits (QOSMaxCpuPerUserLimit): cpu: limit 8, in use 6, requested 4"},
	} {
		if got := wire.WaitText(7, c.reason, c.planned); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
