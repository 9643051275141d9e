package oidc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// What the provider may take and send.
const (
	askPatience = 5 * time.Second
	maxDocument = 1 << 20
)

// How old what the provider said may be.
const (
	// maxAge is after how long endpoints and keys are asked for again: a key that the provider
	// took away is accepted for that long.
	maxAge = time.Hour
	// minInterval is how long the provider is left alone after a question, so that tokens
	// with invented keys are not passed on as load.
	minInterval = 10 * time.Second
)

// ErrProvider is wrapped by what the provider did wrong, or did not answer.
var ErrProvider = errors.New("the identity provider")

// Config says who the provider is, and who this cluster is there.
type Config struct {
	Issuer string // address, exactly as in its tokens
	// Roots verify its certificate; nil = those of the system.
	Roots *x509.CertPool

	// ClientID is this cluster's name at the provider; empty = nobody logs in there.
	ClientID     string
	ClientSecret string // empty: a public client, which proves itself by PKCE alone
	RedirectURL  string
	Scopes       []string // beside openid

	Users Users
	Now   func() time.Time
	// Patience is how long the provider may take to answer a question; 0 is 5 s.
	Patience time.Duration
}

// endpoints is the part of the discovery document that is used.
type endpoints struct {
	Issuer    string `json:"issuer"`
	Authorize string `json:"authorization_endpoint"`
	Token     string `json:"token_endpoint"`
	UserInfo  string `json:"userinfo_endpoint"`
	Keys      string `json:"jwks_uri"`
}

// Provider is a site's identity provider. It is safe for several goroutines.
type Provider struct {
	cfg    Config
	client *http.Client

	mu    sync.Mutex
	found endpoints
	at    time.Time // when it was found
	asked time.Time // when the provider was asked last, whatever came of it
	err   error     // of that question

	keys keySet
}

// New makes a provider; nothing is asked yet.
func New(config Config) (*Provider, error) {
	if err := CheckAddress(config.Issuer); err != nil {
		return nil, fmt.Errorf("the issuer: %w", err)
	}
	if config.Patience <= 0 {
		config.Patience = askPatience
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     &tls.Config{RootCAs: config.Roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: config.Patience,
		MaxIdleConns:        4,
		IdleConnTimeout:     time.Minute,
	}
	return &Provider{cfg: config, client: &http.Client{
		Transport: transport,
		Timeout:   config.Patience,
		// A provider that sends its keys from elsewhere says so in its document.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// CheckAddress refuses an address at which anybody on the way could answer.
func CheckAddress(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not an address: %w", address, err)
	case u.Host == "" || u.Fragment != "":
		return fmt.Errorf("%q is not an address such as https://id.example.org", address)
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && isLoopback(u.Hostname()):
		return nil
	}
	return fmt.Errorf("%q must begin with https://: without it, anyone on the network path can log in as any user", address)
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// discoverEndpoints is what the provider says of itself, not older than maxAge unless it does not answer.
// Whoever waited while the provider was asked for another gets what came of that, so that a
// provider that hangs delays everybody once and not one after the other.
func (p *Provider) discoverEndpoints(ctx context.Context) (endpoints, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	switch {
	case p.found.Issuer != "" && now.Sub(p.at) < maxAge:
		return p.found, nil
	case p.err == nil || now.Sub(p.asked) >= minInterval:
	case p.found.Issuer == "":
		return endpoints{}, p.err
	default:
		return p.found, nil
	}
	var found endpoints
	address := strings.TrimSuffix(p.cfg.Issuer, "/") + "/.well-known/openid-configuration"
	err := p.getJSON(ctx, address, "", &found)
	if err == nil {
		err = p.judge(found)
	}
	if ctx.Err() == nil { // who asked has not gone away
		p.asked = p.cfg.Now()
		p.err = err
	}
	switch {
	case err == nil:
		p.found = found
		p.at = p.cfg.Now()
	case p.found.Issuer == "":
		return endpoints{}, err
	}
	return p.found, nil
}

// judge refuses a document that is another provider's, or that sends secrets over open lines.
func (p *Provider) judge(found endpoints) error {
	if found.Issuer != p.cfg.Issuer {
		return fmt.Errorf("%w calls itself %q, and oidc.issuer is %q: they must be the same to the letter",
			ErrProvider, found.Issuer, p.cfg.Issuer)
	}
	for name, address := range map[string]string{
		"jwks_uri": found.Keys, "authorization_endpoint": found.Authorize, "token_endpoint": found.Token,
	} {
		if err := CheckAddress(address); err != nil {
			return fmt.Errorf("%w: its %s: %w", ErrProvider, name, err)
		}
	}
	if found.UserInfo != "" {
		if err := CheckAddress(found.UserInfo); err != nil {
			return fmt.Errorf("%w: its userinfo_endpoint: %w", ErrProvider, err)
		}
	}
	return nil
}

// getJSON gets a document; bearer is the token with which, empty = none.
func (p *Provider) getJSON(ctx context.Context, address, bearer string, into any) error {
	data, err := p.getDocument(ctx, address, bearer)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %s is not JSON: %w", ErrProvider, address, err)
	}
	return nil
}

func (p *Provider) getDocument(ctx context.Context, address, bearer string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := p.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w does not answer: %w", ErrProvider, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrProvider, address, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: %s answers %s", ErrProvider, address, resp.Status)
	}
	return data, nil
}
