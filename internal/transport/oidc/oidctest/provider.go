// Package oidctest runs a real OpenID provider in a test, on a loopback address, and logs in
// there as a person with a browser does.
package oidctest

import (
	"context"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/op"
	"golang.org/x/text/language"
)

// What the provider knows.
const (
	ClientID     = "muster-console"
	ClientSecret = "not a secret"
	// Person logs in by Password. Its number at the provider is Subject.
	Person   = "ann@example.org"
	Subject  = "00u1ann"
	Password = "very secure"
	// Stranger has an address that nobody verified.
	Stranger = "eve@example.org"
)

// Provider is a provider that runs.
type Provider struct {
	Issuer string

	t        testing.TB
	redirect string
	handler  atomic.Pointer[http.Handler]
	// Asked counts requests by path.
	asked atomic.Int64
	down  atomic.Bool
	// jwt has it give access tokens that are JSON Web Tokens.
	jwt bool
}

// Start starts a provider that sends people back to redirect.
func Start(t testing.TB, redirect string) *Provider {
	t.Helper()
	provider := &Provider{t: t, redirect: redirect, jwt: true}
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		provider.asked.Add(1)
		if provider.down.Load() {
			http.Error(w, "out of service", http.StatusServiceUnavailable)
			return
		}
		(*provider.handler.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(served.Close)
	provider.Issuer = served.URL
	provider.Rotate()
	return provider
}

// Rotate gives the provider another key. Logins under way and people who are logged in are
// forgotten.
func (p *Provider) Rotate() {
	storage.RegisterClients(storage.WebClient(ClientID, ClientSecret, p.redirect))
	handler := http.Handler(exampleop.SetupServer(p.Issuer, clients{storage.NewStorage(people{}), p}, nil, false))
	p.handler.Store(&handler)
}

// SetDown has the provider answer nothing, or answer again.
func (p *Provider) SetDown(down bool) { p.down.Store(down) }

// Asked is how often the provider was asked for anything.
func (p *Provider) Asked() int64 { return p.asked.Load() }

// Browser is a browser that follows links and keeps cookies.
func Browser(t testing.TB) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

var requestID = regexp.MustCompile(`name="id" value="([^"]*)"`)

// LogIn opens an address in a browser, which leads to the provider's form, fills that in, and
// returns what the browser shows at last, and where.
func (p *Provider) LogIn(browser *http.Client, address, person, password string) (code int, body string, at *url.URL) {
	p.t.Helper()
	form, page := p.read(browser.Get(address))
	id := requestID.FindStringSubmatch(page)
	if id == nil || !strings.HasPrefix(form.Request.URL.String(), p.Issuer) {
		p.t.Fatalf("%s leads to %s, which is no form: %s\n%s", address, form.Request.URL, form.Status, page)
	}
	values := url.Values{"id": {html.UnescapeString(id[1])}, "username": {person}, "password": {password}}
	answer, page := p.read(browser.PostForm(p.Issuer+"/login/username", values))
	return answer.StatusCode, page, answer.Request.URL
}

func (p *Provider) read(answer *http.Response, err error) (*http.Response, string) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer, string(data)
}

// people are the provider's users.
type people struct{}

func (people) all() []*storage.User {
	return []*storage.User{
		{ID: Subject, Username: Person, Password: Password, Email: Person, EmailVerified: true, PreferredLanguage: language.English},
		{ID: "00u2eve", Username: Stranger, Password: Password, Email: Stranger, PreferredLanguage: language.English},
	}
}

// GetUserByID implements storage.UserStore.
func (p people) GetUserByID(id string) *storage.User {
	for _, user := range p.all() {
		if user.ID == id {
			return user
		}
	}
	return nil
}

// GetUserByUsername implements storage.UserStore.
func (p people) GetUserByUsername(name string) *storage.User {
	for _, user := range p.all() {
		if user.Username == name {
			return user
		}
	}
	return nil
}

// ExampleClientID implements storage.UserStore.
func (people) ExampleClientID() string { return storage.ServiceUserID }

// clients gives clients access tokens that say who somebody is, as providers of sites are set
// up for APIs.
type clients struct {
	*storage.Storage
	p *Provider
}

// GetClientByClientID implements op.Storage.
func (c clients) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	found, err := c.Storage.GetClientByClientID(ctx, id)
	if err != nil || !c.p.jwt {
		return found, err
	}
	return jwtClient{found}, nil
}

// GetPrivateClaimsFromScopes implements op.Storage: what access tokens say of somebody.
func (c clients) GetPrivateClaimsFromScopes(ctx context.Context, user, client string, scopes []string) (map[string]any, error) {
	claims, err := c.Storage.GetPrivateClaimsFromScopes(ctx, user, client, scopes)
	if found := (people{}).GetUserByID(user); err == nil && found != nil {
		if claims == nil {
			claims = map[string]any{}
		}
		claims["preferred_username"] = found.Username
	}
	return claims, err
}

type jwtClient struct{ op.Client }

// AccessTokenType implements op.Client.
func (jwtClient) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }
