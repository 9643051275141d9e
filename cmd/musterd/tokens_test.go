package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/controller/keys"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/usertoken"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// The site bounds how long tokens live, or that any are made, and a start without the
// issuer's keys fails.
func TestTokenSettings(t *testing.T) {
	dir := t.TempDir()
	issuerKeys, err := usertoken.Open(filepath.Join(dir, "key"), "c", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "jwks.json")
	if err := os.WriteFile(empty, []byte(`{"keys":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	now := spec.Instant(time.Now().UnixNano())
	for _, x := range []struct {
		cfg  conffile.Tokens
		life spec.Span
		want string // in the error; empty: a token
	}{
		{conffile.Tokens{MaxLifespan: spec.Infinite}, 20 * spec.Day, ""},
		{conffile.Tokens{MaxLifespan: spec.Hour}, spec.Hour, ""},
		{conffile.Tokens{MaxLifespan: spec.Hour}, spec.Hour + spec.Second, "lifespan=3600"},
		{conffile.Tokens{MaxLifespan: spec.Infinite, DisableCreation: true}, spec.Minute, "tokens.disable_creation"},
		{conffile.Tokens{MaxLifespan: spec.Infinite, JWKS: filepath.Join(dir, "none")}, spec.Minute, "tokens.jwks"},
		{conffile.Tokens{MaxLifespan: spec.Infinite, Audience: "muster"}, spec.Minute, "of no use without tokens.jwks"},
		{conffile.Tokens{MaxLifespan: spec.Infinite, JWKS: empty}, spec.Minute, "no RSA or EC key"},
	} {
		a := &keys.Access{User: issuerKeys}
		err := a.SetTokens(x.cfg)
		if err == nil {
			_, err = a.UserToken(t.Context(), daemon.TokenAsk{User: "ada", UID: 1000, GID: 1000, From: now, Until: now.Add(x.life)})
		}
		if (err == nil) != (x.want == "") || (err != nil && !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%+v for %d s: %v, want %q", x.cfg, x.life/spec.Second, err, x.want)
		}
	}
}
