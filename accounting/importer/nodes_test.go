package importer

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/accounting/tally"
)

// However often nodes are read, and whenever: the rows say for every instant
// what slurmdbd's events say, there is one at each midnight, and reading again
// at the same time adds nothing.
func TestNodeHistory(t *testing.T) {
	const minute, day = 60_000_000, 86_400_000_000
	rapid.Check(t, func(t *rapid.T) {
		const begin = 20_000*day + 7*3600*1_000_000
		end := int64(begin)
		var events []outage
		for range rapid.IntRange(0, 5).Draw(t, "events") {
			from := end + minute*rapid.Int64Range(1, 3000).Draw(t, "up")
			end = from + minute*rapid.Int64Range(0, 3000).Draw(t, "down")
			events = append(events, outage{from: from, to: end, state: rapid.SampledFrom([]string{"DOWN", "DRAIN"}).Draw(t, "state")})
		}
		up := tally.NodeStateRow{Node: "n", State: "UP", Class: tally.ClassUp, CPUs: 8}
		var all []tally.NodeStateRow
		var prev tally.NodeStateRow
		at, from := int64(begin), int64(begin)
		for n := range rapid.IntRange(1, 6).Draw(t, "reads") {
			at += minute * rapid.Int64Range(0, 4000).Draw(t, "pause")
			var told []outage // what is recorded by then
			like := up
			for _, e := range events {
				if e.from > at {
					continue
				}
				if e.to > at {
					e.to = 0
					like.State, like.Class = e.state, tally.ClassDown
				}
				told = append(told, e)
			}
			rows := nodeHistory(like, told, prev, n > 0, from, at)
			all = append(all, rows...)
			if len(rows) > 0 {
				prev = rows[len(rows)-1]
			}
			from = prev.At
			if again := nodeHistory(like, told, prev, true, from, at); len(again) != 0 {
				t.Fatalf("reading again adds %+v", again)
			}
		}
		midnights := 0
		for i, r := range all {
			if i > 0 && r.At < all[i-1].At {
				t.Fatalf("row %d goes back", i)
			}
			if r.Restated {
				midnights++
			}
		}
		if want := int(at/day - begin/day); midnights != want {
			t.Fatalf("%d midnights, there were %d", midnights, want)
		}
		for x := int64(begin); x <= at; x += 7 * minute {
			want, got := "UP", ""
			for _, e := range events {
				if e.from <= x && x < e.to {
					want = e.state
				}
			}
			for _, r := range all {
				if r.At <= x {
					got = r.State
				}
			}
			if got != want {
				t.Fatalf("at %d min: %q, the events say %q", (x-begin)/minute, got, want)
			}
		}
	})
}

func TestOutOfService(t *testing.T) {
	for text, want := range map[string]string{"idle": "", "IDLE+CLOUD+POWERED_DOWN": "", "mixed": "", "maint": "", "reserved": "", "down*": "DOWN", "DOWN*+DRAIN": "DOWN", "drained": "DRAIN", "drng": "DRAIN",
		"draining@": "DRAIN", "fail": "FAIL", "idle*": "NOT_RESPONDING", "unknown": "UNKNOWN", "unknown*": "UNKNOWN", "UNKNOWN+NOT_RESPONDING": "NOT_RESPONDING", "": ""} {
		if got := outOfService(text); got != want {
			t.Errorf("%q is %q, not %q", text, got, want)
		}
	}
}
