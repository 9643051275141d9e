package peers

import (
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhpc/muster/controller/peers/members"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/log"
)

func said(name string, st standing) Answer {
	return Answer{Of: conffile.Controller{Name: name, Address: name + ":6817"}, Standing: st}
}

func silent(name string) Answer {
	err := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	return Answer{Of: conffile.Controller{Name: name, Address: name + ":6817"}, Err: err}
}

// TestHowToBegin: a controller without a ledger begins a group only if it is the
// first and nobody can have one, or if the administrator says so and nobody that
// answers has one; else it waits until a leader has taken it in.
func TestHowToBegin(t *testing.T) {
	waits := standing{Waits: true}
	leads := func(members ...log.Member) standing { return standing{Leads: true, Members: members} }
	reads := Answer{Of: conffile.Controller{Name: "c"}, Err: &members.AnswerError{Text: "it is starting"}}
	for name, c := range map[string]struct {
		first, told bool
		list        []Answer
		want        start // why is a part of the text
	}{
		"all wait, and this is the first":        {true, false, []Answer{said("b", waits), said("c", waits)}, start{begins: true}},
		"all wait, and another is the first":     {false, false, []Answer{said("a", waits), said("c", waits)}, start{why: "begins the group"}},
		"one is silent: it may have the ledger":  {true, false, []Answer{said("b", waits), silent("c")}, start{why: "Not reached: c (c:6817: connection refused)"}},
		"one is silent, and the word is given":   {true, true, []Answer{said("b", waits), silent("c")}, start{begins: true}},
		"the word is given to the second":        {false, true, []Answer{silent("a"), silent("c")}, start{begins: true}},
		"the word stands not against a holder":   {true, true, []Answer{silent("b"), said("c", standing{})}, start{why: "has no leader now"}},
		"the word stands not against a leader":   {true, true, []Answer{silent("b"), said("c", leads())}, start{why: "has not taken this one in"}},
		"the word waits for one that is reading": {true, true, []Answer{silent("b"), reads}, start{why: "are starting: c"}},
		"the first has lost its disk":            {true, false, []Answer{said("b", standing{}), said("c", waits)}, start{why: "has no leader now"}},
		"a leader does not know this one":        {true, false, []Answer{said("b", leads(log.Member{ID: "b"})), silent("c")}, start{why: "has not taken this one in"}},
		"a leader still counts its vote":         {false, false, []Answer{said("b", leads(log.Member{ID: "a"}))}, start{why: "has not taken this one in"}},
		"a leader has taken it in":               {true, false, []Answer{said("b", leads(log.Member{ID: "a", Joining: true})), silent("c")}, start{joins: true}},
	} {
		got := howToBegin("a", c.first, c.told, c.list)
		if got.begins != c.want.begins || got.joins != c.want.joins || !strings.Contains(got.why, c.want.why) || (got.why == "") != (c.want.why == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestFoundingOn: the ledger of a single controller does not become that of a group
// where another controller has a ledger, or may have one, unless the administrator
// says that those which are silent have none.
func TestFoundingOn(t *testing.T) {
	waits := said("b", standing{Waits: true})
	reads := Answer{Of: conffile.Controller{Name: "c"}, Err: &members.AnswerError{Address: "c:6817", Text: "it is starting"}}
	for name, c := range map[string]struct {
		told     bool
		list     []Answer
		why, bad string
	}{
		"the others wait":               {false, []Answer{waits, said("c", standing{Waits: true})}, "", ""},
		"the others are not up":         {false, []Answer{waits, silent("c")}, "start this controller once with musterd --new-group", ""},
		"the word is given":             {true, []Answer{waits, silent("c")}, "", ""},
		"one reads its ledger":          {true, []Answer{waits, reads}, "are starting: c", ""},
		"the others have a group":       {false, []Answer{silent("b"), said("c", standing{Leads: true})}, "", "controller c has the ledger"},
		"the word is not believed then": {true, []Answer{silent("b"), said("c", standing{Leads: true})}, "", "controller c has the ledger"},
		"one stands by, and one starts": {false, []Answer{reads, said("c", standing{Position: 7})}, "", "controller c has the ledger"},
	} {
		why, err := foundingOn(c.told, c.list)
		if !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
			t.Errorf("%s: waits for %q", name, why)
		}
		if (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDescribeNoLeader: a command without an answer says who is reached, who is not,
// and what to do.
func TestDescribeNoLeader(t *testing.T) {
	for name, c := range map[string]struct {
		list []Answer
		want []string
	}{
		"two are down": {[]Answer{silent("b"), silent("c")}, []string{"1 of 3 votes are there, and 2 are needed", "Reached: a (this host).",
			"Not reached: b (b:6817: connection refused), c (c:6817: connection refused)", "Start musterd there"}},
		"one lost its ledger, one is down": {[]Answer{said("b", standing{Waits: true}), silent("c")}, []string{"1 of 3", "b (waits without a ledger)", "Not reached: c"}},
		"both lost theirs":                 {[]Answer{said("b", standing{Waits: true}), said("c", standing{Waits: true})}, []string{"1 of 3", "Lose a majority"}},
		"an election":                      {[]Answer{said("b", standing{}), silent("c")}, []string{"2 of 3", "They elect one"}},
		"it is over":                       {[]Answer{said("b", standing{Leads: true}), silent("c")}, []string{"controller b leads", "repeat"}},
	} {
		got := describeNoLeader("a", 3, c.list)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q does not say %q", name, got, want)
			}
		}
	}
}

// TestNextSteps: a controller that waits is taken in without a vote, gets it when it
// has caught up, and loses it first when it has lost what it acknowledged.
func TestNextSteps(t *testing.T) {
	group := []log.Member{{ID: "a"}, {ID: "lost"}, {ID: "behind", Joining: true}, {ID: "ready", Joining: true}, {ID: "empty", Joining: true}, {ID: "away"}, {ID: "fine"}, {ID: "fetching", Joining: true}}
	list := []Answer{said("new", standing{Waits: true}), said("lost", standing{Waits: true}), said("behind", standing{Position: 100}),
		said("ready", standing{Position: 9990}), said("empty", standing{Waits: true}), silent("away"), said("fine", standing{Position: 3}), said("removed", standing{Position: 10000})}
	got := map[string]string{}
	for _, s := range nextSteps(group, list, 10000, 1) {
		got[s.who] = s.what
	}
	for _, s := range nextSteps(group, []Answer{said("fetching", standing{})}, 20, 1) {
		t.Errorf("a member that is still fetching: %s", s.what)
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

// TestAgreedVersion: nothing newer is written while a member does not read it, or may not.
func TestAgreedVersion(t *testing.T) {
	newest := event.Version
	group := []log.Member{{ID: "a"}, {ID: "b"}, {ID: "c", Joining: true}}
	for name, c := range map[string]struct {
		now   uint32
		group []log.Member
		list  []Answer
		want  uint32
		bad   string
	}{
		"all know it":                {newest - 1, group, []Answer{said("b", standing{Knows: newest}), said("c", standing{Knows: newest})}, newest, ""},
		"another knows even more":    {newest - 1, group, []Answer{said("b", standing{Knows: newest + 3}), said("c", standing{Knows: newest})}, newest, ""},
		"alone":                      {newest - 1, group[:1], nil, newest, ""},
		"one says nothing of it":     {1, group, []Answer{said("b", standing{Version: "v1"}), said("c", standing{Knows: newest})}, 0, "upgrade b (release v1 knows version 1)"},
		"one that joins is old":      {1, group, []Answer{said("b", standing{Knows: newest}), said("c", standing{Version: "v1"})}, 0, "upgrade c (release v1 knows version 1)"},
		"one is silent":              {newest - 1, group, []Answer{said("b", standing{Knows: newest}), silent("c")}, 0, "c (c:6817: connection refused) does not answer"},
		"one is not in slurm.conf":   {newest - 1, group, []Answer{said("b", standing{Knows: newest})}, 0, "muster controllers remove c"},
		"it is in force":             {newest, group, []Answer{said("b", standing{Knows: newest}), said("c", standing{Knows: newest})}, newest, ""},
		"one outside does not count": {newest - 1, group[:2], []Answer{said("b", standing{Knows: newest}), said("c", standing{})}, newest, ""},
	} {
		got, err := agreedVersion("a", c.now, c.group, c.list)
		if (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%s: %v, want %q", name, err, c.bad)
		}
		if err == nil && got != c.want {
			t.Errorf("%s: version %d, want %d", name, got, c.want)
		}
	}
}

// TestOlderReleasesStayOut: a controller that cannot read the ledger is not taken in, and gets no
// vote; one that has a vote keeps it.
func TestOlderReleasesStayOut(t *testing.T) {
	group := []log.Member{{ID: "a"}, {ID: "joins", Joining: true}, {ID: "votes"}}
	list := []Answer{said("new", standing{Waits: true}), said("joins", standing{Position: 10}), said("votes", standing{Position: 10})}
	for version, want := range map[uint32]string{
		1: "new: taken in without a vote, joins: it has caught up and votes",
		2: "new: it is not taken in, joins: it is not taken in",
	} {
		var got []string
		for _, s := range nextSteps(group, list, 10, version) {
			what, _, _ := strings.Cut(s.what, ": its")
			got = append(got, s.who+": "+what)
			if (s.do == nil) != (version == 2) {
				t.Errorf("version %d, %s: acts on %q", version, s.who, s.what)
			}
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("version %d: %s, want %s", version, text, want)
		}
	}
}

// TestLackers: the witness's log forgets a batch only when every controller is known
// to have it.
func TestLackers(t *testing.T) {
	for name, c := range map[string]struct {
		list []Answer
		want string
	}{
		"nobody was asked yet": {nil, "every controller, as far as is known,"},
		"all have it":          {[]Answer{said("a", standing{Position: 7}), said("b", standing{Position: 9})}, ""},
		"one is behind":        {[]Answer{said("a", standing{Position: 6}), said("b", standing{Position: 9})}, "a"},
		"one is silent":        {[]Answer{said("a", standing{Position: 7}), silent("b")}, "b"},
		"one lost its ledger":  {[]Answer{said("a", standing{Waits: true}), silent("b")}, "a, b"},
	} {
		if got := Lackers(c.list, 7); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
