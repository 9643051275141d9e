package main

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/oidc/oidctest"
	"github.com/musterhpc/muster/spec"
)

// providerConfig has people of a provider be users of this host.
func providerConfig(t *testing.T, issuer, redirect string) conffile.OIDC {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return conffile.OIDC{
		Issuer: issuer, Audience: oidctest.ClientID, ClientID: oidctest.ClientID, RedirectURL: redirect, Scopes: []string{"profile"},
		ClientSecretFile: write("secret", oidctest.ClientSecret+"\n"), UserMap: write("users", oidctest.Person+" nobody\n"), Session: spec.Hour,
	}
}

// TestLoginByProvider: somebody logs in to the console at a real provider. What he gets is a token
// that the ledger knows, that is listed with the provider's name and that is revoked at once. Who
// the provider knows and the site does not stays out.
func TestLoginByProvider(t *testing.T) {
	var idp *oidctest.Provider
	c := newConsoleServerWith(t, func(s *server, at string) {
		idp = oidctest.Start(t, at+"/sign-in/return")
		s.cfg.OIDC = providerConfig(t, idp.Issuer, at+"/sign-in/return")
		var err error
		s.provider, err = s.access.SetProvider(s.cfg.OIDC)
		if err != nil {
			t.Fatal(err)
		}
	})
	if _, page := c.anonymous().get("/sign-in?next=/queue"); !strings.Contains(page, `href="/sign-in/provider?next=%2Fqueue"`) {
		t.Errorf("the page for signing in has no way to the provider:\n%s", page)
	}
	visitor := c.anonymous()
	code, page, at := idp.LogIn(visitor.http, c.at+"/sign-in/provider?next=/queue", oidctest.Person, oidctest.Password)
	if code != http.StatusOK || at.Path != "/queue" || !strings.Contains(page, "nobody") {
		t.Fatalf("after the login: %d at %s\n%s", code, at, page)
	}
	tokens := c.s.ctl.View().State.Access.Users
	if len(tokens) != 1 || tokens[0].User != "nobody" || tokens[0].Login != idp.Issuer || time.Duration(tokens[0].Expires-tokens[0].Issued).Round(time.Minute) != time.Hour {
		t.Fatalf("the ledger has %+v", tokens)
	}

	code, page, _ = idp.LogIn(c.anonymous().http, c.at+"/sign-in/provider?next=//evil.example.org/", oidctest.Stranger, oidctest.Password)
	if code != http.StatusForbidden || !strings.Contains(page, "is not in") {
		t.Errorf("a stranger: %d\n%s", code, page)
	}
	for path, want := range map[string]string{
		"/sign-in/return?code=x&state=y": "no login is under way in this browser",
		"/sign-in/return":                "no login is under way in this browser",
	} {
		if code, page := c.anonymous().get(path); code != http.StatusForbidden || !strings.Contains(page, want) {
			t.Errorf("%s: %d\n%s", path, code, page)
		}
	}
	// The cookie of an attempt is signed: nobody gives somebody else one of his own making.
	forged := c.anonymous()
	u, err := url.Parse(c.at)
	if err != nil {
		t.Fatal(err)
	}
	forged.http.Jar.SetCookies(u, []*http.Cookie{{Name: "muster_login", Value: "eyJhIjp7InMiOiJ5In0sInUiOjk5OTk5OTk5OTl9.AAAA", Path: "/sign-in"}})
	if code, page := forged.get("/sign-in/return?code=x&state=y"); code != http.StatusForbidden || !strings.Contains(page, "no login is under way") {
		t.Errorf("a forged attempt: %d\n%s", code, page)
	}
	idp.SetDown(true)
	if code, _ := visitor.get("/queue"); code != http.StatusOK {
		t.Errorf("while the provider is away: %d", code)
	}
	c.revoke(tokens[0].ID)
	if code, page := visitor.get("/queue"); code != http.StatusOK || !strings.Contains(page, "Sign in to") {
		t.Errorf("after the revocation: %d\n%s", code, page)
	}
}

// TestProviderSettings: a start with settings that would let in whom nobody meant fails, and says
// which.
func TestProviderSettings(t *testing.T) {
	s, stop := openServer(t, t.TempDir())
	defer stop()
	good := providerConfig(t, "https://id.example.org", "https://muster.example.org/sign-in/return")
	for want, change := range map[string]func(*conffile.OIDC){
		"":                              func(*conffile.OIDC) {},
		"are of no use without":         func(c *conffile.OIDC) { c.Issuer = "" },
		"whomever it was made for":      func(c *conffile.OIDC) { c.Audience, c.ClientID, c.RedirectURL = "", "", "" },
		"belong together":               func(c *conffile.OIDC) { c.RedirectURL = "" },
		"must end with /sign-in/return": func(c *conffile.OIDC) { c.RedirectURL = "https://muster.example.org/" },
		"must begin with https://":      func(c *conffile.OIDC) { c.Issuer = "http://id.example.org" },
		"exclude each other":            func(c *conffile.OIDC) { c.UserPattern = "(.*)" },
		"has 0 groups":                  func(c *conffile.OIDC) { c.UserMap, c.UserPattern = "", ".*" },
		"oidc.ca_file":                  func(c *conffile.OIDC) { c.CAFile = c.UserMap },
		"oidc.user_map":                 func(c *conffile.OIDC) { c.UserMap = "/nowhere" },
		"oidc.client_secret_file":       func(c *conffile.OIDC) { c.ClientSecretFile = "/nowhere" },
	} {
		cfg := good
		change(&cfg)
		_, err := s.access.SetProvider(cfg)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
