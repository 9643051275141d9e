package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/members"
	"github.com/musterhpc/muster/ledger/log"
)

func said(name string, st standing) answered {
	return answered{of: conffile.Controller{Name: name, Address: name + ":6817"}, standing: st}
}

func silent(name string) answered {
	return answered{of: conffile.Controller{Name: name}, err: errors.New("connection refused")}
}

// TestHowToBegin: a controller without a ledger begins a group only if it is the
// first and nobody can have one; else it waits until a leader has taken it in.
func TestHowToBegin(t *testing.T) {
	waits := standing{Waits: true}
	leads := func(members ...log.Member) standing { return standing{Leads: true, Members: members} }
	for name, c := range map[string]struct {
		first         bool
		list          []answered
		begins, joins bool
		why           string
	}{
		"all wait, and this is the first":       {true, []answered{said("b", waits), said("c", waits)}, true, false, ""},
		"all wait, and another is the first":    {false, []answered{said("a", waits), said("c", waits)}, false, false, "begins the group"},
		"one is silent: it may have the ledger": {true, []answered{said("b", waits), silent("c")}, false, false, "silent: c"},
		"the first has lost its disk":           {true, []answered{said("b", standing{}), said("c", waits)}, false, false, "has no leader now"},
		"a leader does not know this one":       {true, []answered{said("b", leads(log.Member{ID: "b"})), silent("c")}, false, false, "has not taken this one in"},
		"a leader still counts its vote":        {false, []answered{said("b", leads(log.Member{ID: "a"}))}, false, false, "has not taken this one in"},
		"a leader has taken it in":              {true, []answered{said("b", leads(log.Member{ID: "a", Joining: true})), silent("c")}, false, true, ""},
	} {
		begins, joins, why := howToBegin("a", c.first, c.list)
		if begins != c.begins || joins != c.joins || !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
			t.Errorf("%s: begins %v, joins %v, waits for %q", name, begins, joins, why)
		}
	}
}

// TestFoundingOn: the ledger of a single controller does not become that of a group
// where another controller has a ledger, and waits for those that do not know yet.
func TestFoundingOn(t *testing.T) {
	waits := said("b", standing{Waits: true})
	reads := answered{of: conffile.Controller{Name: "c"}, err: &members.AnswerError{Address: "c:6817", Text: "it is starting"}}
	for name, c := range map[string]struct {
		list                  []answered
		starting, silent, bad string
	}{
		"the others wait":         {[]answered{waits, said("c", standing{Waits: true})}, "", "", ""},
		"the others are not up":   {[]answered{waits, silent("c")}, "", "connection refused", ""},
		"one reads its ledger":    {[]answered{waits, reads}, "it is starting", "", ""},
		"the others have a group": {[]answered{silent("b"), said("c", standing{Leads: true})}, "", "", "controller c has the ledger"},
		"one stands by":           {[]answered{reads, said("c", standing{Position: 7})}, "", "", "controller c has the ledger"},
	} {
		starting, silent, err := foundingOn(c.list)
		if !strings.Contains(starting, c.starting) || (starting == "") != (c.starting == "") || silent != c.silent {
			t.Errorf("%s: starting %q, silent %q", name, starting, silent)
		}
		if (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNextSteps: a controller that waits is taken in without a vote, gets it when it
// has caught up, and loses it first when it has lost what it acknowledged.
func TestNextSteps(t *testing.T) {
	group := []log.Member{{ID: "a"}, {ID: "lost"}, {ID: "behind", Joining: true}, {ID: "ready", Joining: true}, {ID: "empty", Joining: true}, {ID: "away"}, {ID: "fine"}}
	list := []answered{said("new", standing{Waits: true}), said("lost", standing{Waits: true}), said("behind", standing{Position: 100}),
		said("ready", standing{Position: 9990}), said("empty", standing{Waits: true}), silent("away"), said("fine", standing{Position: 3}), said("removed", standing{Position: 10000})}
	got := map[string]string{}
	for _, s := range nextSteps(group, list, 10000) {
		got[s.who] = s.what
	}
	want := map[string]string{"new": "taken in without a vote", "lost": "it has lost its ledger and its vote", "ready": "it has caught up and votes"}
	if len(got) != len(want) {
		t.Errorf("steps %v, want %v", got, want)
	}
	for who, what := range want {
		if got[who] != what {
			t.Errorf("%s: %q, want %q", who, got[who], what)
		}
	}
}

// TestLackers: the witness's log forgets a batch only when every controller is known
// to have it.
func TestLackers(t *testing.T) {
	for name, c := range map[string]struct {
		list []answered
		want string
	}{
		"nobody was asked yet": {nil, "every controller, as far as is known,"},
		"all have it":          {[]answered{said("a", standing{Position: 7}), said("b", standing{Position: 9})}, ""},
		"one is behind":        {[]answered{said("a", standing{Position: 6}), said("b", standing{Position: 9})}, "a"},
		"one is silent":        {[]answered{said("a", standing{Position: 7}), silent("b")}, "b"},
		"one lost its ledger":  {[]answered{said("a", standing{Waits: true}), silent("b")}, "a, b"},
	} {
		if got := lackers(c.list, 7); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
