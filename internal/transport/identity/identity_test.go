package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestFromFailsClosed(t *testing.T) {
	id := From(context.Background())
	if id.Kind != Anonymous || id.UID != NoID || id.GID != NoID || id.IsRoot() || id.IsUser() {
		t.Errorf("no identity reads as %+v", id)
	}
	want := Identity{Kind: LocalUser, UID: 7, GID: 8}
	if got := From(With(context.Background(), want)); got.UID != 7 || got.Kind != LocalUser {
		t.Errorf("%+v", got)
	}
	if (Identity{Kind: Agent}).IsRoot() || !(Identity{Kind: LocalUser}).IsRoot() || (Identity{Kind: AttestedUser}).IsRoot() {
		t.Error("who is root")
	}
}

func TestFromPeerIsTheKernelsWord(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	id, err := FromPeer(t.Context(), server.(*net.UnixConn), resolverFunc(func(uid uint32) (string, error) { return "me", nil }))
	if err != nil {
		t.Fatal(err)
	}
	if id.Kind != LocalUser || id.UID != uint32(os.Getuid()) || id.GID != uint32(os.Getgid()) || int(id.PID) != os.Getpid() || id.User != "me" {
		t.Errorf("%+v", id)
	}
	mine, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	got := make([]int, 0, len(id.Groups))
	for _, g := range id.Groups {
		got = append(got, int(g))
	}
	slices.Sort(mine)
	slices.Sort(got)
	if len(got) != 0 && !slices.Equal(got, mine) {
		t.Errorf("groups %v, want %v", got, mine)
	}
	nameless := resolverFunc(func(uint32) (string, error) { return "", ErrNoUser })
	if id, err := FromPeer(t.Context(), server.(*net.UnixConn), nameless); err != nil || id.User != "" {
		t.Errorf("a uid without a name: %+v, %v", id, err)
	}
}

func TestFromPeerRefusesOtherSockets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if id, err := FromPeer(t.Context(), c.(*net.TCPConn), nil); err == nil || id.Kind != Anonymous {
		t.Errorf("TCP gives %+v, %v", id, err)
	}
}

func TestURI(t *testing.T) {
	for _, n := range []Name{{"prod", Agent, "gpu-01.site"}, {"c_1", Controller, "ctl"}, {"c", Admin, "ada"}, {"c", Login, "l1"}} {
		u, err := n.URI()
		if err != nil {
			t.Fatal(err)
		}
		again, err := url.Parse(u.String())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseURI(again); err != nil || got != n {
			t.Errorf("%s: %+v, %v", u, got, err)
		}
	}
	for _, n := range []Name{{"c", LocalUser, "x"}, {"c", Anonymous, "x"}, {"", Agent, "n"}, {"c", Agent, ""}, {"c", Agent, "a/b"}, {"c/d", Agent, "a"}, {"c", Agent, "ü"}} {
		if u, err := n.URI(); !errors.Is(err, ErrCertificate) {
			t.Errorf("%+v gives %v, %v", n, u, err)
		}
	}
}

func TestParseURIRefuses(t *testing.T) {
	for _, s := range []string{"", "muster:", "muster://c", "muster://c/agent", "muster://c/agent/", "muster://c/agent/n/x", "muster://c/root/n",
		"muster://c/local-user/n", "http://c/agent/n", "muster://c/agent/n?x=1", "muster://c/agent/n#f", "muster://u@c/agent/n",
		"muster://c:1/agent/n", "muster://c/agent/n%2Fx", "MUSTER2://c/agent/n", "muster://c/Agent/n", "muster:c/agent/n", "muster://c//agent/n"} {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := ParseURI(u); !errors.Is(err, ErrCertificate) {
			t.Errorf("%q parses as %+v, %v", s, n, err)
		}
	}
}

func uri(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestFromCertificate(t *testing.T) {
	cert := &x509.Certificate{SerialNumber: big.NewInt(0xabc), URIs: []*url.URL{uri(t, "spiffe://x/y"), uri(t, "muster://c/agent/n1")}}
	id, err := FromCertificate(cert, "c")
	if err != nil || id.Kind != Agent || id.Node != "n1" || id.UID != NoID || id.Serial != "abc" || id.User != "" {
		t.Errorf("%+v, %v", id, err)
	}
	cert.URIs = []*url.URL{uri(t, "muster://c/admin/ada")}
	if id, err := FromCertificate(cert, "c"); err != nil || id.Kind != Admin || id.User != "ada" || id.Node != "" {
		t.Errorf("%+v, %v", id, err)
	}
	for name, uris := range map[string][]*url.URL{
		"none": nil, "two": {uri(t, "muster://c/agent/n1"), uri(t, "muster://c/admin/a")},
		"other cluster": {uri(t, "muster://d/agent/n1")}, "bad": {uri(t, "muster://c/agent")},
	} {
		cert.URIs = uris
		if id, err := FromCertificate(cert, "c"); !errors.Is(err, ErrCertificate) || id.Kind != Anonymous {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
}

func TestAttest(t *testing.T) {
	has42 := func(node string, a Attestation) (uint32, bool) { return 420, node == "n1" && a.UID == 42 }
	login := Identity{Kind: Login, UID: NoID, GID: NoID, Node: "l1", Serial: "5"}
	node := Identity{Kind: Agent, UID: NoID, GID: NoID, Node: "n1"}
	other := Identity{Kind: Agent, UID: NoID, GID: NoID, Node: "n2"}
	cases := []struct {
		name     string
		channel  Identity
		a        Attestation
		uid, gid uint32
		refused  bool
	}{
		{"login host, any user", login, Attestation{1000, 100}, 1000, 100, false},
		{"root there is nobody here", login, Attestation{0, 0}, Nobody, Nobody, false},
		{"root there with a user's gid", login, Attestation{0, 100}, Nobody, Nobody, false},
		{"user with gid 0", login, Attestation{1000, 0}, 1000, Nobody, false},
		{"node, user with a job, who counts with that job's group", node, Attestation{42, 10}, 42, 420, false},
		{"root of a node is nobody here", node, Attestation{0, 0}, Nobody, Nobody, false},
		{"node, user without a job", node, Attestation{43, 43}, 0, 0, true},
		{"another node", other, Attestation{42, 42}, 0, 0, true},
		{"impossible uid", login, Attestation{NoID, 1}, 0, 0, true},
		{"impossible gid", login, Attestation{1, NoID}, 0, 0, true},
		{"local user", Identity{Kind: LocalUser, UID: 0}, Attestation{42, 42}, 0, 0, true},
		{"admin", Identity{Kind: Admin}, Attestation{42, 42}, 0, 0, true},
		{"controller", Identity{Kind: Controller}, Attestation{42, 42}, 0, 0, true},
		{"anonymous", Nameless(), Attestation{42, 42}, 0, 0, true},
		{"attested", Identity{Kind: AttestedUser, Node: "l1"}, Attestation{42, 42}, 0, 0, true},
	}
	for _, c := range cases {
		got, err := c.channel.Attest(c.a, has42)
		if c.refused {
			if !errors.Is(err, ErrMayNotAttest) || got.Kind != Anonymous {
				t.Errorf("%s: %+v, %v", c.name, got, err)
			}
			continue
		}
		if err != nil || got.Kind != AttestedUser || got.UID != c.uid || got.GID != c.gid || got.Node != c.channel.Node || got.Serial != c.channel.Serial || got.IsRoot() {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	if _, err := node.Attest(Attestation{42, 42}, nil); !errors.Is(err, ErrMayNotAttest) {
		t.Errorf("no policy: %v", err)
	}
}

// TestAttestNeverRaises: whatever a machine says, and whatever the policy about jobs answers, nobody becomes root, this machine's
// or a group of root's; who was root there is squashed, and only he; a node vouches for those alone that the policy allows.
func TestAttestNeverRaises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.OneOf(rapid.SampledFrom([]uint32{0, 1, 42, Nobody, NoID}), rapid.Uint32())
		channel := Identity{Kind: Kind(rapid.IntRange(0, 7).Draw(t, "kind")), UID: ids.Draw(t, "channel"), GID: NoID, Node: "h"}
		a := Attestation{ids.Draw(t, "uid"), ids.Draw(t, "gid")}
		group, has := ids.Draw(t, "job's group"), rapid.Bool().Draw(t, "has a job")
		got, err := channel.Attest(a, func(node string, asked Attestation) (uint32, bool) {
			if node != channel.Node || asked != a {
				t.Fatalf("asked about %+v on %s", asked, node)
			}
			return group, has
		})
		if err != nil {
			if got.Kind != Anonymous || got.UID != NoID || got.GID != NoID || got.Squashed {
				t.Fatalf("refused as %+v", got)
			}
			return
		}
		switch {
		case channel.Kind != Login && channel.Kind != Agent, a.UID == NoID, a.GID == NoID:
			t.Fatalf("%+v vouched for %+v", channel, a)
		case got.Kind != AttestedUser || got.By != channel.Kind || got.IsRoot() || got.UID == 0 || got.GID == 0:
			t.Fatalf("%+v became %+v", a, got)
		case got.Squashed != (a.UID == 0) || got.Squashed && got.UID != Nobody:
			t.Fatalf("root's place: %+v became %+v", a, got)
		case channel.Kind == Agent && a.UID != 0 && (!has || got.GID != group && group != 0):
			t.Fatalf("a node vouched for %+v as %+v", a, got)
		}
	})
}

func TestKeysAndStrings(t *testing.T) {
	for _, c := range []struct {
		id       Identity
		key, str string
	}{
		{Nameless(), "anonymous", "anonymous"},
		{Identity{Kind: LocalUser, UID: 5, User: "ada"}, "uid:5", "user ada (uid 5)"},
		{Identity{Kind: AttestedUser, UID: 5, Node: "l1"}, "uid:5@l1", "user 5 (uid 5, attested by l1)"},
		{Identity{Kind: Agent, Node: "n1"}, "agent:n1", "agent n1"},
		{Identity{Kind: Admin, User: "ada"}, "admin:ada", "administrator ada"},
	} {
		if c.id.Key() != c.key || c.id.String() != c.str {
			t.Errorf("%q %q, want %q %q", c.id.Key(), c.id.String(), c.key, c.str)
		}
	}
}
