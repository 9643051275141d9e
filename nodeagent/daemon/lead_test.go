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
