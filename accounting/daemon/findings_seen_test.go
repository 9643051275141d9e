package daemon

import (
	"fmt"
	"testing"

	"github.com/musterhpc/muster/spec"
)

// TestSeenWindows: one caller reads a window, others take what it read while that is fresh and has
// the events that they have seen.
func TestSeenWindows(t *testing.T) {
	var s seenWindows
	first, mine := s.join("week", 0, 5)
	if !mine {
		t.Fatal("nobody reads the window")
	}
	if _, mine := s.join("week", 0, 9); mine {
		t.Error("a window that is being read is read twice")
	}
	if _, mine := s.join("week", spec.Instant(10*seenFor), 9); mine {
		t.Error("a window that takes long to read is read twice")
	}
	first.seq = 7
	last := spec.Instant(11 * seenFor)
	s.keep(first, last)
	close(first.done)
	if w, mine := s.join("week", last, 7); mine || w != first {
		t.Error("what was read is not taken")
	}
	if _, mine := s.join("month", last, 7); !mine {
		t.Error("one window is taken for another")
	}
	if _, mine := s.join("week", last+1, 7); !mine {
		t.Error("what was read is kept too long")
	}
	s.drop("week", first)
	second, mine := s.join("week", last+1, 7)
	if mine {
		t.Error("a reader has dropped the window of another")
	}
	second.seq = 7
	close(second.done)
	if _, mine := s.join("week", last+1, 8); !mine {
		t.Error("what was read lacks an event")
	}
	for i := range 3 * maxSeen {
		s.join(fmt.Sprint(i), last+1, 0)
	}
	if len(s.list) > maxSeen {
		t.Errorf("%d windows are kept", len(s.list))
	}
}
