package usertoken

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/musterhpc/muster/internal/transport/identity"
)

func open(t *testing.T, path, cluster string, now *time.Time) *Keys {
	t.Helper()
	k, err := Open(path, cluster, func() time.Time { return *now })
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestTokens(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	path := filepath.Join(t.TempDir(), "key")
	k := open(t, path, "lab", &now)
	text, err := k.Issue(Bearer{ID: "t1", User: "ada", UID: 1000, GID: 100, Via: "5f"}, now, now.Add(DefaultLife))
	if err != nil {
		t.Fatal(err)
	}
	want := identity.Identity{Kind: identity.AttestedUser, UID: 1000, GID: 100, User: "ada", Node: "REST", Cluster: "lab"}
	if id, err := k.Verify(text); err != nil || id.Key() != want.Key() || id.User != "ada" || id.GID != 100 || id.Serial != "5f" {
		t.Errorf("%+v, %v", id, err)
	}
	again := open(t, path, "lab", &now)
	if _, err := again.Verify(text); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	root, err := k.Issue(Bearer{ID: "t2", User: "root", UID: 0, GID: 0}, now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if id, err := k.Verify(root); err != nil || id.Kind != identity.Admin || id.UID != identity.NoID || id.Paper.Scope != "" {
		t.Errorf("root's token: %+v, %v", id, err)
	}
	scoped, err := k.Issue(Bearer{ID: "t3", User: "kube", UID: 1001, GID: 100, Scope: identity.ScopePods}, now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if id, err := k.Verify(scoped); err != nil || id.Paper.Scope != "pods" || id.User != "kube" {
		t.Errorf("a token with a scope: %+v, %v", id, err)
	}

	other := open(t, filepath.Join(t.TempDir(), "key"), "lab", &now)
	elsewhere := open(t, path, "other", &now)
	unsigned, err := jwt.NewWithClaims(jwt.SigningMethodNone, Claims{RegisteredClaims: jwt.RegisteredClaims{Issuer: "lab", Subject: "root",
		Audience: jwt.ClaimStrings{audience}, ExpiresAt: jwt.NewNumericDate(now.Add(time.Hour))}, Sun: "root"}).SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	for name, check := range map[string]func() error{
		"another key":     func() error { _, err := other.Verify(text); return err },
		"another cluster": func() error { _, err := elsewhere.Verify(text); return err },
		"no signature":    func() error { _, err := k.Verify(unsigned); return err },
		"rubbish":         func() error { _, err := k.Verify("rubbish"); return err },
		"nothing":         func() error { _, err := k.Verify(""); return err },
		"changed": func() error {
			parts := strings.Split(text, ".")
			_, err := k.Verify(parts[0] + "." + strings.Split(root, ".")[1] + "." + parts[2])
			return err
		},
		"expired": func() error { now = now.Add(DefaultLife + time.Second); _, err := k.Verify(text); return err },
	} {
		if err := check(); !errors.Is(err, ErrToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIssueRefuses(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	k := open(t, filepath.Join(t.TempDir(), "key"), "lab", &now)
	for name, issue := range map[string]func() (string, error){
		"no id": func() (string, error) {
			return k.Issue(Bearer{ID: "", User: "x", UID: 1, GID: 1}, now, now.Add(time.Hour))
		},
		"nobody": func() (string, error) {
			return k.Issue(Bearer{ID: "t3", User: "", UID: 1, GID: 1}, now, now.Add(time.Hour))
		},
		"no uid": func() (string, error) {
			return k.Issue(Bearer{ID: "t3", User: "x", UID: identity.NoID, GID: 1}, now, now.Add(time.Hour))
		},
		"a scope that there is not": func() (string, error) {
			return k.Issue(Bearer{ID: "t3", User: "x", UID: 1, GID: 1, Scope: "all"}, now, now.Add(time.Hour))
		},
		"no life": func() (string, error) { return k.Issue(Bearer{ID: "t3", User: "x", UID: 1, GID: 1}, now, now) },
		"forever": func() (string, error) {
			return k.Issue(Bearer{ID: "t3", User: "x", UID: 1, GID: 1}, now, now.Add(MaxLife+1))
		},
	} {
		if text, err := issue(); err == nil {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestKeyThatOthersCanReadIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, make([]byte, keySize), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, "lab", time.Now); err == nil {
		t.Error("accepted")
	}
	short := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(short, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(short, "lab", time.Now); err == nil {
		t.Error("a key of one byte was accepted")
	}
}

// TestTokenMustNameItsIDs: a token that our key has signed, but that does not
// give the ids or names an extension that must be understood, is nobody's; above
// all it is not root's.
func TestTokenMustNameItsIDs(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	k := open(t, filepath.Join(t.TempDir(), "key"), "lab", &now)
	sign := func(claims jwt.MapClaims, header map[string]any) string {
		for key, value := range map[string]any{"iss": "lab", "sub": "ada", "aud": audience, "exp": now.Add(time.Hour).Unix(), "sun": "ada"} {
			claims[key] = value
		}
		token := jwt.NewWithClaims(jwt.SigningMethodHS256, claims)
		for key, value := range header {
			token.Header[key] = value
		}
		text, err := token.SignedString(k.key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if id, err := k.Verify(sign(jwt.MapClaims{"uid": 1000, "gid": 1000}, nil)); err != nil || id.UID != 1000 {
		t.Fatalf("a whole token: %+v, %v", id, err)
	}
	for name, text := range map[string]string{
		"no ids":     sign(jwt.MapClaims{}, nil),
		"no uid":     sign(jwt.MapClaims{"gid": 1000}, nil),
		"no gid":     sign(jwt.MapClaims{"uid": 1000}, nil),
		"null":       sign(jwt.MapClaims{"uid": nil, "gid": nil}, nil),
		"impossible": sign(jwt.MapClaims{"uid": identity.NoID, "gid": 1000}, nil),
		"crit":       sign(jwt.MapClaims{"uid": 1000, "gid": 1000}, map[string]any{"crit": []string{"b64"}, "b64": false}),
		"crit text":  sign(jwt.MapClaims{"uid": 1000, "gid": 1000}, map[string]any{"crit": "exp"}),
	} {
		if id, err := k.Verify(text); !errors.Is(err, ErrToken) || id.Kind != identity.Anonymous {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
}
