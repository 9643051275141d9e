package peers

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/ledger/log"
)

func TestLedgersOfOneName(t *testing.T) {
	other := func(ledger string, err error) []Answer {
		return []Answer{{
			Of:       conffile.Controller{Name: "ctl2", Address: "10.0.0.2:6817"},
			Standing: standing{Ledger: ledger}, Err: err,
		}}
	}
	for _, c := range []struct {
		own, theirs string
		err         error
		refused     bool
	}{
		{"muster 1", "muster 1", nil, false},
		{"muster 1", "muster 2", nil, true},
		{"muster 1", "", nil, false}, // an older release does not say it
		{"", "muster 2", nil, false},
		{"muster 1", "muster 2", errors.New("away"), false},
	} {
		err := refuseOtherLedger(c.own, "/state", other(c.theirs, c.err))
		if errors.Is(err, ErrOtherLedger) != c.refused || (err == nil) == c.refused {
			t.Errorf("%q beside %q: %v", c.own, c.theirs, err)
		}
	}
}

func TestClocksThatDiffer(t *testing.T) {
	asked := time.Unix(1_000_000, 0)
	answered := asked.Add(400 * time.Millisecond)
	for _, c := range []struct {
		ahead time.Duration
		said  string
	}{
		{0, ""},
		{time.Second, ""},
		{-900 * time.Millisecond, ""},
		{3 * time.Minute, "ahead=3m0s"},
		{-time.Hour, "ahead=-1h0m0s"},
	} {
		var out bytes.Buffer
		at := asked.Add(c.ahead).UnixNano()
		list := []Answer{{Of: conffile.Controller{Name: "ctl2"}, Standing: standing{Clock: at}}}
		warnOfClocks(slog.New(slog.NewTextHandler(&out, nil)), asked, answered, list)
		if (c.said == "") != (out.Len() == 0) || !strings.Contains(out.String(), c.said) {
			t.Errorf("%v ahead: %q, want %q", c.ahead, out.String(), c.said)
		}
	}
}

func TestARemovedControllerSaysSo(t *testing.T) {
	for member, says := range map[string]bool{"ctl1": false, "ctl3": true} {
		var out bytes.Buffer
		list := []Answer{{Standing: standing{Leads: true, Members: []log.Member{{ID: member}}}}}
		warnOfRemoval(slog.New(slog.NewTextHandler(&out, nil)), "ctl1", list)
		if strings.Contains(out.String(), "muster controllers add ctl1") != says {
			t.Errorf("with %s in the group: %q", member, out.String())
		}
	}
}
