package query

import (
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// TestCompleteReservation: a reservation has a start, an end, something to reserve and
// somebody for whom; an update need not name them.
func TestCompleteReservation(t *testing.T) {
	const create, update = apiv1.ReservationChange_CREATE, apiv1.ReservationChange_UPDATE
	for _, tc := range []struct {
		verb apiv1.ReservationChange_Verb
		line string
		want string
	}{
		{create, "starttime duration nodes users", ""},
		{create, "starttime endtime licenses accounts", ""},
		{create, "starttime duration partitionname groups", ""},
		{create, "duration nodes users", "A start time"},
		{create, "starttime nodes users", "An end time or duration"},
		{create, "starttime duration users", "Nodes, NodeCnt"},
		{create, "starttime duration nodes", "Either Users/Groups and/or Accounts"},
		{update, "duration", ""},
	} {
		req := &apiv1.ReservationChange{Verb: tc.verb}
		for _, key := range strings.Fields(tc.line) {
			req.Set = append(req.Set, &apiv1.ConfigEntry{Key: key, Value: "x"})
		}
		got := completeReservation(req)
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.line, got, tc.want)
		}
		takesAll := slices.ContainsFunc(req.GetSet(), func(entry *apiv1.ConfigEntry) bool {
			return entry.GetKey() == "nodes" && entry.GetValue() == "ALL"
		})
		if onlyPartition := strings.Contains(tc.line, "partitionname"); takesAll != onlyPartition {
			t.Errorf("with %q all nodes are taken: %t", tc.line, takesAll)
		}
	}
}
