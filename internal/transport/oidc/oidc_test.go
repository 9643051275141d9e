package oidc_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/oauth2"

	"github.com/musterhpc/muster/internal/transport/oidc"
	"github.com/musterhpc/muster/internal/transport/oidc/oidctest"
	"github.com/musterhpc/muster/internal/transport/usertoken"
)

const returnPath = "http://127.0.0.1:9/sign-in/return"

// clock is a clock that a test sets ahead.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// site is a cluster that trusts a provider.
type site struct {
	idp   *oidctest.Provider
	p     *oidc.Provider
	keys  *usertoken.Keys
	clock clock
}

func newSite(t *testing.T, users oidc.Users, audience string) *site {
	t.Helper()
	s := &site{idp: oidctest.Start(t, returnPath)}
	var err error
	s.p, err = oidc.New(oidc.Config{Issuer: s.idp.Issuer, ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret,
		RedirectURL: returnPath, Scopes: []string{"profile", "email"}, Users: users, Now: s.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	s.keys, err = usertoken.Open(filepath.Join(t.TempDir(), "key"), "lab", s.clock.now)
	if err != nil {
		t.Fatal(err)
	}
	s.keys.Trust(s.p.Issuer(audience, func(name string) (uint32, uint32, bool) {
		switch name {
		case "ann":
			return 1000, 100, true
		case "root":
			return 0, 0, true
		}
		return 0, 0, false
	}))
	return s
}

// comeBack logs in at the provider, and returns the answer that the browser brings back.
func (s *site) comeBack(t *testing.T, address, person string) url.Values {
	t.Helper()
	browser := oidctest.Browser(t)
	back := errors.New("back")
	var answer url.Values
	browser.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), returnPath) {
			answer = r.URL.Query()
			return http.ErrUseLastResponse
		}
		return nil
	}
	if _, body, at := s.idp.LogIn(browser, address, person, oidctest.Password); answer == nil {
		t.Fatalf("the browser stays at %s (%v)\n%s", at, back, body)
	}
	return answer
}

// accessToken is a token for REST, got by the flow of any client of the provider.
func (s *site) accessToken(t *testing.T) string {
	t.Helper()
	config := oauth2.Config{ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret, RedirectURL: returnPath,
		Scopes: []string{"openid", "profile"}, Endpoint: oauth2.Endpoint{AuthURL: s.idp.Issuer + "/auth", TokenURL: s.idp.Issuer + "/oauth/token"}}
	verifier := oauth2.GenerateVerifier()
	answer := s.comeBack(t, config.AuthCodeURL("x", oauth2.S256ChallengeOption(verifier)), oidctest.Person)
	token, err := config.Exchange(t.Context(), answer.Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	return token.AccessToken
}

func pattern(t *testing.T) oidc.Users {
	t.Helper()
	re, err := oidc.ParsePattern(`(.+)@example\.org`)
	if err != nil {
		t.Fatal(err)
	}
	return oidc.Users{Pattern: re}
}

// TestBearer: a token of the provider is accepted for its audience, by the keys that the provider
// has now, also when it rotates them, and without asking it for each token.
func TestBearer(t *testing.T) {
	s := newSite(t, pattern(t), oidctest.ClientID)
	first := s.accessToken(t)
	for range 3 {
		id, err := s.keys.Verify(first)
		if err != nil || id.User != "ann" || id.UID != 1000 || id.GID != 100 {
			t.Fatalf("%v is accepted as %v", err, id)
		}
	}
	asked := s.idp.Asked()
	if _, err := s.keys.Verify(first); err != nil || s.idp.Asked() != asked {
		t.Errorf("the provider was asked again for a key that is known (%v)", err)
	}

	s.idp.Rotate()
	second := s.accessToken(t)
	s.clock.ahead.Store(int64(11 * time.Second)) // the provider is left alone for ten
	if id, err := s.keys.Verify(second); err != nil || id.User != "ann" {
		t.Errorf("after a rotation: %v", err)
	}
	if _, err := s.keys.Verify(first); !errors.Is(err, usertoken.ErrToken) || !strings.Contains(err.Error(), "is not among those of") {
		t.Errorf("signed with a key that is gone: %v", err)
	}
	asked = s.idp.Asked()
	for range 50 {
		if _, err := s.keys.Verify(first); err == nil {
			t.Fatal("accepted")
		}
	}
	if s.idp.Asked() != asked {
		t.Errorf("tokens with a wrong key had the provider asked %d times", s.idp.Asked()-asked)
	}

	// A provider that is away ends nobody's work; the token's own end does.
	s.idp.SetDown(true)
	if _, err := s.keys.Verify(second); err != nil {
		t.Errorf("while the provider is away: %v", err)
	}
	head, body, _ := strings.Cut(second, ".")
	payload, sum, _ := strings.Cut(body, ".")
	for name, text := range map[string]string{
		"changed":       head + "." + payload[:len(payload)-2] + "AA." + sum,
		"no signature":  head + "." + payload + ".",
		"our algorithm": hs256(t, s.idp.Issuer),
	} {
		if _, err := s.keys.Verify(text); !errors.Is(err, usertoken.ErrToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.clock.ahead.Store(int64(48 * time.Hour))
	if _, err := s.keys.Verify(second); !errors.Is(err, jwt.ErrTokenExpired) {
		t.Errorf("after its end: %v", err)
	}
}

// hs256 is a token that somebody made with a secret of his own.
func hs256(t *testing.T, issuer string) string {
	t.Helper()
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": issuer, "aud": oidctest.ClientID,
		"exp": time.Now().Add(time.Hour).Unix(), "preferred_username": oidctest.Person}).SignedString([]byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestOtherAudience: a token that the provider made for another program is refused.
func TestOtherAudience(t *testing.T) {
	s := newSite(t, pattern(t), "muster-rest")
	if _, err := s.keys.Verify(s.accessToken(t)); !errors.Is(err, jwt.ErrTokenInvalidAudience) {
		t.Errorf("a token for %s: %v", oidctest.ClientID, err)
	}
}

// TestLogin goes through the flow: who logs in is known by a claim that only userinfo has, and an
// answer that is not of this attempt is refused.
func TestLogin(t *testing.T) {
	s := newSite(t, pattern(t), "")
	begin := func() (string, oidc.Attempt) {
		t.Helper()
		address, attempt, err := s.p.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return address, attempt
	}
	address, attempt := begin()
	if u, err := url.Parse(address); err != nil || u.Query().Get("code_challenge_method") != "S256" || strings.Contains(address, attempt.Verifier) {
		t.Errorf("%s tells the verifier or has no challenge", address)
	}
	answer := s.comeBack(t, address, oidctest.Person)
	user, err := s.p.Finish(t.Context(), attempt, answer)
	if err != nil || user.Name != "ann" || user.Issuer != s.idp.Issuer {
		t.Fatalf("logged in as %+v (%v)", user, err)
	}
	if _, err := s.p.Finish(t.Context(), attempt, answer); err == nil {
		t.Error("a code serves twice")
	}
	refused := func(name, want string, change func(*oidc.Attempt, url.Values)) {
		t.Helper()
		address, attempt := begin()
		answer := s.comeBack(t, address, oidctest.Person)
		change(&attempt, answer)
		if user, err := s.p.Finish(t.Context(), attempt, answer); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", name, user, err)
		}
	}
	refused("another browser", "not of a login that began in this browser", func(a *oidc.Attempt, _ url.Values) { a.State = "other" })
	refused("no attempt", "not of a login that began in this browser", func(a *oidc.Attempt, v url.Values) { a.State = ""; v.Del("state") })
	refused("a stolen code", "gave no token", func(a *oidc.Attempt, _ url.Values) { a.Verifier = oauth2.GenerateVerifier() })
	refused("another nonce", "made for another login", func(a *oidc.Attempt, _ url.Values) { a.Nonce = "other" })
	refused("the provider refuses", "access_denied not today", func(_ *oidc.Attempt, v url.Values) {
		v.Set("error", "access_denied")
		v.Set("error_description", "not today")
	})
}

// TestUsers: a claim is a user only by the site's word.
func TestUsers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	write := func(text string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write("00u1ann ann # a comment\n\n00u3bob bob\n", time.Now())
	mapped, err := oidc.OpenMap(file)
	if err != nil {
		t.Fatal(err)
	}
	byPattern := pattern(t).Pattern
	for name, c := range map[string]struct {
		users  oidc.Users
		claims string
		want   string
		bad    string
	}{
		"the claim itself":      {oidc.Users{}, `{"preferred_username": "ann"}`, "ann", ""},
		"another claim":         {oidc.Users{Claim: "uid"}, `{"uid": "ann"}`, "ann", ""},
		"no claim":              {oidc.Users{}, `{"sub": "1"}`, "", "no claim preferred_username"},
		"a number":              {oidc.Users{Claim: "uid"}, `{"uid": 0}`, "", "no claim uid"},
		"a pattern":             {oidc.Users{Pattern: byPattern}, `{"preferred_username": "ann@example.org"}`, "ann", ""},
		"another domain":        {oidc.Users{Pattern: byPattern}, `{"preferred_username": "ann@example.org.evil.net"}`, "", "does not match"},
		"a line before":         {oidc.Users{Pattern: byPattern}, `{"preferred_username": "x\nann@example.org"}`, "", "does not match"},
		"an address":            {oidc.Users{Claim: "email", Pattern: byPattern}, `{"email": "ann@example.org", "email_verified": true}`, "ann", ""},
		"an unverified address": {oidc.Users{Claim: "email", Pattern: byPattern}, `{"email": "ann@example.org", "email_verified": false}`, "", "not verified"},
		"verified by a text":    {oidc.Users{Claim: "email", Pattern: byPattern}, `{"email": "ann@example.org", "email_verified": "true"}`, "", "not verified"},
		"a map":                 {oidc.Users{Claim: "sub", Map: mapped}, `{"sub": "00u1ann"}`, "ann", ""},
		"not in the map":        {oidc.Users{Claim: "sub", Map: mapped}, `{"sub": "ann"}`, "", "is not in"},
	} {
		claims := map[string]any{}
		if err := json.Unmarshal([]byte(c.claims), &claims); err != nil {
			t.Fatal(err)
		}
		got, err := c.users.Name(claims)
		if got != c.want || (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	users := oidc.Users{Claim: "sub", Map: mapped}
	write("00u3bob bob\n", time.Now().Add(time.Second))
	if got, err := users.Name(map[string]any{"sub": "00u1ann"}); !errors.Is(err, oidc.ErrNoUser) {
		t.Errorf("taken out of the file, it is %q (%v)", got, err)
	}
	write("00u3bob\n", time.Now().Add(2*time.Second))
	if got, err := users.Name(map[string]any{"sub": "00u3bob"}); got != "bob" {
		t.Errorf("a broken file: %q, %v", got, err)
	}
	for _, text := range []string{`(a)(b)`, `abc`, `(`} {
		if _, err := oidc.ParsePattern(text); err == nil {
			t.Errorf("pattern %q is accepted", text)
		}
	}
}

// TestRootStaysOut: nobody becomes root by the provider's word.
func TestRootStaysOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(file, []byte(oidctest.Person+" root\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mapped, err := oidc.OpenMap(file)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, oidc.Users{Map: mapped}, oidctest.ClientID)
	if _, err := s.keys.Verify(s.accessToken(t)); err == nil || !strings.Contains(err.Error(), "a token of another issuer cannot name root") {
		t.Errorf("root by a token: %v", err)
	}
}

// TestWrongProvider: what calls itself otherwise, or wants secrets over open lines, is refused.
func TestWrongProvider(t *testing.T) {
	var document atomic.Value
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(document.Load().(string))) //nolint:errcheck // a test's connection
	}))
	defer served.Close()
	for text, want := range map[string]string{
		`{"issuer": "https://other.example.org"}`: "must be the same to the letter",
		`{"issuer": "` + served.URL + `", "jwks_uri": "http://id.example.org/keys", "authorization_endpoint": "https://a/", "token_endpoint": "https://a/"}`: "must begin with https://",
		`<html>`: "is not JSON",
	} {
		document.Store(text)
		p, err := oidc.New(oidc.Config{Issuer: served.URL, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Key("k"); !errors.Is(err, oidc.ErrProvider) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, address := range []string{"http://id.example.org", "id.example.org", "ftp://a", "https://a/#b", "http://127.0.0.1.example.org"} {
		if _, err := oidc.New(oidc.Config{Issuer: address}); err == nil {
			t.Errorf("%s is accepted", address)
		}
	}
}

// TestProviderThatHangs: a provider that takes connections and never answers delays those who log
// in by its patience once, all together, and tokens with unknown keys likewise.
func TestProviderThatHangs(t *testing.T) {
	var asked atomic.Int32
	hang := make(chan struct{})
	served := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		<-hang
	}))
	defer served.Close()
	defer close(hang)
	p, err := oidc.New(oidc.Config{Issuer: served.URL, Now: time.Now, Patience: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, _, err := p.Begin(t.Context()); !errors.Is(err, oidc.ErrProvider) {
				t.Errorf("a login: %v", err)
			}
			if _, err := p.Key("k"); !errors.Is(err, oidc.ErrProvider) {
				t.Errorf("a key: %v", err)
			}
		})
	}
	all.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("the provider was asked %d times, want once", n)
	}
}
