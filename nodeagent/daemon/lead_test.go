package daemon

import (
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// TestAnOutdatedControllerIsRefused: a controller that only believes to lead gives
// no orders to a node that has followed a later one; one that has recorded the
// loss of that history does.
func TestAnOutdatedControllerIsRefused(t *testing.T) {
	b := newBench(t)
	welcome := func(lead uint64, lost bool) string {
		b.core.Welcome(&apiv1.Welcome{ClusterUuid: testCluster[:], Lead: lead, Lost: lost})
		why := b.core.fx.Leave
		b.core.fx = Effects{}
		return why
	}
	if why := welcome(70, false); why != "" {
		t.Fatal(why)
	}
	stream := b.core.stream
	if why := welcome(40, false); !strings.Contains(why, "its orders are refused") || b.core.stream != stream {
		t.Errorf("a controller of an earlier lead is followed: %q", why)
	}
	if why := welcome(70, false); why != "" {
		t.Errorf("the same controller is refused: %q", why)
	}
	if why := welcome(40, true); why != "" {
		t.Errorf("a restored controller is refused: %q", why)
	}
	if why := welcome(50, false); why != "" {
		t.Errorf("the next controller after a restore is refused: %q", why)
	}
}

// TestNothingIsTakenFromARefusedController: what a controller that only believes it leads has sent
// behind its welcome, before it learnt that the agent leaves, is neither carried out nor believed.
func TestNothingIsTakenFromARefusedController(t *testing.T) {
	b := newBench(t)
	b.core.Welcome(&apiv1.Welcome{ClusterUuid: testCluster[:], Lead: 9})
	b.core.Head(&apiv1.LedgerPosition{Epoch: 2, Seq: 90, NextJobUid: 70, NextJobId: 70})
	b.core.Effects()
	b.run(key(1))
	b.exit(key(1))
	if len(b.core.Outgoing()) == 0 {
		t.Fatal("no report is on its way")
	}
	waiting := b.core.Pending()

	b.core.Welcome(&apiv1.Welcome{ClusterUuid: testCluster[:], Lead: 5})
	b.core.Head(&apiv1.LedgerPosition{Epoch: 1, Seq: 10, NextJobUid: 7, NextJobId: 7})
	b.core.Ack(1000)
	b.core.UseKeys([][]byte{[]byte("another key")})
	fx := b.orders(b.order(key(2)), terminateOrder(key(1), ""))
	if fx.Leave == "" || len(fx.Launch) > 0 || len(fx.Prepare) > 0 || len(fx.Terminate) > 0 {
		t.Errorf("effects %+v", fx)
	}
	if b.core.Pending() != waiting || b.core.Seen().GetSeq() != 90 || len(b.creds.keys) > 0 {
		t.Errorf("%d reports wait of %d, seen %v, keys %q", b.core.Pending(), waiting, b.core.Seen(), b.creds.keys)
	}
	// Later, when the effects have been taken, too.
	if fx := b.orders(b.order(key(3))); len(fx.Launch) > 0 {
		t.Errorf("effects %+v", fx)
	}

	b.core.Welcome(&apiv1.Welcome{ClusterUuid: testCluster[:], Lead: 9})
	if fx := b.orders(b.order(key(3))); len(fx.Launch) != 1 {
		t.Errorf("from the controller that leads: %+v", fx)
	}
}
