package e2e

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestCallStatistics counts calls by message type and user, and from zero after a reset.
func TestCallStatistics(t *testing.T) {
	t.Parallel()
	c := start(t)
	for range 3 {
		c.must("sinfo")
	}
	nodes := regexp.MustCompile(`(?m)^\tREQUEST_NODE_INFO {23}\( 2007\) count:(\d+) +ave_time:\d+ +total_time:\d+$`)
	found := nodes.FindStringSubmatch(c.must("sdiag"))
	count := 0
	if found != nil {
		count, _ = strconv.Atoi(found[1])
	}
	if count < 3 {
		t.Fatalf("three calls of sinfo are not counted:\n%s", c.must("sdiag"))
	}
	if root := regexp.MustCompile(`(?m)^\troot {12}\( {7}0\) count:\d+ `); !root.MatchString(c.must("sdiag")) {
		t.Errorf("no calls of root:\n%s", c.must("sdiag"))
	}
	if got := c.must("sdiag", "-r"); got != "Reset scheduling statistics" {
		t.Errorf("sdiag -r: %q", got)
	}
	c.must("sinfo")
	found = nodes.FindStringSubmatch(c.must("sdiag", "--sort-by-time"))
	if found == nil || found[1] != "1" {
		t.Errorf("after a reset and one sinfo: %v in\n%s", found, c.must("sdiag"))
	}
	if got := c.must("sdiag", "--json"); !strings.Contains(got, `"message_type": "REQUEST_NODE_INFO"`) {
		t.Errorf("sdiag --json has no table of calls: %s", got)
	}
}
