package limit

import (
	"net"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/internal/transport/identity"
)

func user(uid uint32) identity.Identity {
	return identity.Identity{Kind: identity.LocalUser, UID: uid, GID: uid}
}

func from(address string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(address), Port: 4711} }

// TestOneDoesNotTakeTheShareOfAnother: whatever one user does, another is refused
// nothing, and the counters come back to nothing when all is given back.
func TestOneDoesNotTakeTheShareOfAnother(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table := New(Config{UserConnections: 3, UserBytes: 100, AllBytes: 1000}, time.Now)
		hostile := table.PartyOf(user(1000), nil)
		connections, held := 0, []int64{}
		for range rapid.IntRange(0, 50).Draw(rt, "tries") {
			if rapid.Bool().Draw(rt, "connect") {
				if table.Connect(hostile) {
					connections++
				}
				continue
			}
			n := rapid.Int64Range(0, 120).Draw(rt, "bytes")
			if table.Take(hostile, n) {
				held = append(held, n)
			}
		}
		var sum int64
		for _, n := range held {
			sum += n
		}
		if connections > 3 || sum > 100 {
			rt.Fatalf("one user has %d connections and %d bytes", connections, sum)
		}
		neighbour := table.PartyOf(user(1001), nil)
		if !table.Connect(neighbour) || !table.Take(neighbour, 100) {
			rt.Fatal("a neighbour is refused")
		}
		table.Disconnect(neighbour)
		table.Give(neighbour, 100)
		for range connections {
			table.Disconnect(hostile)
		}
		for _, n := range held {
			table.Give(hostile, n)
		}
		if len(table.connections) != 0 || len(table.bytes) != 0 || table.allBytes != 0 {
			rt.Fatalf("left are %v, %v, %d", table.connections, table.bytes, table.allBytes)
		}
	})
}

// TestParties: who shares a count with whom.
func TestParties(t *testing.T) {
	table := New(Config{Self: 900}, time.Now)
	nameless := identity.Nameless()
	if a, b := table.PartyOf(nameless, from("10.0.0.1")), table.PartyOf(nameless, from("10.0.0.2")); a.key == b.key {
		t.Error("all who show nothing share one count, so one of them can shut out enrolment")
	}
	for _, id := range []identity.Identity{user(0), user(900), {Kind: identity.Login, UID: identity.NoID, Node: "l1"}} {
		if p := table.PartyOf(id, nil); p.limited || p.connections != Defaults().MachineConnections {
			t.Errorf("%s is held to the limits of a user: %+v", id, p)
		}
	}
	if p := table.PartyOf(user(1000), nil); !p.limited {
		t.Error("a user's calls are not limited")
	}
}

// TestRate: the bucket empties, fills by periods and never beyond its size.
func TestRate(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	table := New(Config{Rate: func() RateConfig {
		return RateConfig{Enabled: true, Bucket: 3, Refill: 2, Period: time.Second, Users: 2}
	}}, func() time.Time { return now })
	ada, bob, eve := table.PartyOf(user(1), nil), table.PartyOf(user(2), nil), table.PartyOf(user(3), nil)
	calls := func(p Party) (n int) {
		for n < 100 && table.Call(p) {
			n++
		}
		return n
	}
	if n := calls(ada); n != 3 {
		t.Errorf("%d calls from a full bucket, want 3", n)
	}
	if n := calls(bob); n != 3 {
		t.Errorf("a neighbour has %d calls, want 3", n)
	}
	now = now.Add(999 * time.Millisecond)
	if n := calls(ada); n != 0 {
		t.Errorf("%d calls before the period is over", n)
	}
	now = now.Add(time.Millisecond)
	if n := calls(ada); n != 2 {
		t.Errorf("%d calls after a period, want 2", n)
	}
	now = now.Add(1 << 60)
	if n := calls(ada); n != 3 {
		t.Errorf("%d calls after a long time, want 3", n)
	}
	if calls(eve); table.recent.Len() != 2 || len(table.buckets) != 2 {
		t.Errorf("%d buckets are kept, want 2", table.recent.Len())
	}
	if table.Refused()[Rate] == 0 {
		t.Error("refusals are not counted")
	}
	off := New(Config{}, time.Now)
	for range 1000 {
		if !off.Call(off.PartyOf(user(1), nil)) {
			t.Fatal("refused though the rate is not limited")
		}
	}
}
