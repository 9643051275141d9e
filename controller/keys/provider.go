package keys

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/musterhpc/muster/controller/host"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/internal/transport/oidc"
)

// SetProvider accepts the tokens of the site's identity provider, and returns it; nil where
// muster.yaml names none.
func (a *Access) SetProvider(cfg conffile.OIDC) (*oidc.Provider, error) {
	if cfg.Issuer == "" {
		if cfg.ClientID != "" || cfg.Audience != "" {
			return nil, errors.New("oidc.client_id and oidc.audience are of no use without oidc.issuer")
		}
		return nil, nil
	}
	settings := oidc.Config{
		Issuer:      cfg.Issuer,
		ClientID:    cfg.ClientID,
		RedirectURL: cfg.RedirectURL,
		Scopes:      cfg.Scopes,
		Users:       oidc.Users{Claim: cfg.UserClaim},
		Now:         time.Now,
	}
	err := errors.Join(
		readRoots(cfg.CAFile, &settings),
		readSecret(cfg.ClientSecretFile, &settings),
		readUsers(cfg, &settings.Users),
	)
	switch {
	case err != nil:
		return nil, err
	case cfg.Audience == "" && cfg.ClientID == "":
		return nil, errors.New(
			"oidc.issuer needs oidc.audience, for tokens over REST, or oidc.client_id, for the console: without them every token of the provider would be accepted, whomever it was made for",
		)
	case (cfg.ClientID == "") != (cfg.RedirectURL == ""):
		return nil, errors.New(
			"oidc.client_id and oidc.redirect_url belong together: the provider sends people back to the console there",
		)
	}
	if cfg.RedirectURL != "" {
		if err := oidc.CheckAddress(cfg.RedirectURL); err != nil {
			return nil, fmt.Errorf("oidc.redirect_url: %w", err)
		}
		if !strings.HasSuffix(cfg.RedirectURL, ReturnPath) {
			return nil, fmt.Errorf("oidc.redirect_url must end with %s, where the console expects them", ReturnPath)
		}
	}
	provider, err := oidc.New(settings)
	if err != nil {
		return nil, fmt.Errorf("oidc: %w", err)
	}
	if cfg.Audience != "" {
		a.User.Trust(provider.Issuer(cfg.Audience, host.FindUser))
	}
	return provider, nil
}

// ReturnPath is where the console takes people who come back from the provider.
const ReturnPath = "/sign-in/return"

func readRoots(path string, settings *oidc.Config) error {
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("oidc.ca_file: %w", err)
	}
	settings.Roots = x509.NewCertPool()
	if !settings.Roots.AppendCertsFromPEM(data) {
		return fmt.Errorf("oidc.ca_file, %s: it holds no certificate (PEM)", path)
	}
	return nil
}

// readSecret reads a secret that only its owner may read.
func readSecret(path string, settings *oidc.Config) error {
	if path == "" {
		return nil
	}
	data, err := durable.ReadPrivate(path)
	if err != nil {
		return fmt.Errorf("oidc.client_secret_file: %w", err)
	}
	settings.ClientSecret = strings.TrimSpace(string(data))
	if settings.ClientSecret == "" {
		return fmt.Errorf("oidc.client_secret_file, %s, is empty", path)
	}
	return nil
}

func readUsers(cfg conffile.OIDC, users *oidc.Users) (err error) {
	if cfg.UserPattern != "" && cfg.UserMap != "" {
		return errors.New("oidc.user_pattern and oidc.user_map exclude each other")
	}
	if cfg.UserPattern != "" {
		users.Pattern, err = oidc.ParsePattern(cfg.UserPattern)
		if err != nil {
			return fmt.Errorf("oidc.user_pattern: %w", err)
		}
	}
	if cfg.UserMap != "" {
		users.Map, err = oidc.OpenMap(cfg.UserMap)
	}
	return err
}
