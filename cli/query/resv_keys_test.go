package query

import (
	"testing"
)

// Keys of reservations may be shortened as far as they mean one only.
func TestReservationKeys(t *testing.T) {
	for typed, want := range map[string]string{"start": "starttime", "Dur": "duration", "StartTime": "StartTime", "user+": "users+", "acc-": "accounts-", "tres": "tres",
		"node": "node", "nodec": "nodecnt", "nodecount": "nodecount", "f": "f", "fl": "flags", "x": "x", "": "", "Reservation": "reservationname"} {
		if got := resvKey(typed); got != want {
			t.Errorf("%s is taken for %s, not %s", typed, got, want)
		}
	}
}
