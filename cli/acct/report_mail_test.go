package acct

import (
	"strings"
	"testing"
	"time"
)

// TestMailHeaders: messages of one instant have ids of their own, and a header
// cannot be made to hold another.
func TestMailHeaders(t *testing.T) {
	if other := messageID("muster@example.org", []string{"bob@example.org"}, "s", "t", time.Unix(1, 0)); other == messageID("muster@example.org", []string{"eve@example.org"}, "s", "t", time.Unix(1, 0)) {
		t.Errorf("two messages of an instant are both %s", other)
	}
	if s := oneLine("a\r\nBcc: x"); strings.ContainsAny(s, "\r\n") {
		t.Errorf("%q", s)
	}
}
