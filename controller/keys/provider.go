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
func (a *Access) SetProvider(config conffile.OIDC) (*oidc.Provider, error) {
	if config.Issuer == "" {
		if config.ClientID != "" || config.Audience != "" {
			return nil, errors.New("oidc.client_id and oidc.audience are of no use without oidc.issuer")
		}
		return nil, nil
	}
	settings := oidc.Config{
		Issuer:      config.Issuer,
		ClientID:    config.ClientID,
		RedirectURL: config.RedirectURL,
		Scopes:      config.Scopes,
		Users:       oidc.Users{Claim: config.UserClaim},
		Now:         time.Now,
	}
	err := errors.Join(
		readRoots(config.CAFile, &settings),
		readSecret(config.ClientSecretFile, &settings),
		readUsers(config, &settings.Users),
	)
	switch {
	case err != nil:
		return nil, err
	case config.Audience == "" && config.ClientID == "":
		return nil, errors.New(
			"oidc.issuer needs oidc.audience, for tokens over REST, or oidc.client_id, for the console: without them every token of the provider would be accepted, whomever it was made for",
		)
	case (config.ClientID == "") != (config.RedirectURL == ""):
		return nil, errors.New(
			"oidc.client_id and oidc.redirect_url belong together: the provider sends people back to the console there",
		)
	}
	if config.RedirectURL != "" {
		if err := oidc.CheckAddress(config.RedirectURL); err != nil {
			return nil, fmt.Errorf("oidc.redirect_url: %w", err)
		}
		if !strings.HasSuffix(config.RedirectURL, ReturnPath) {
			return nil, fmt.Errorf("oidc.redirect_url must end with %s, where the console expects them", ReturnPath)
		}
	}
	provider, err := oidc.New(settings)
	if err != nil {
		return nil, fmt.Errorf("oidc: %w", err)
	}
	if config.Audience != "" {
		a.User.Trust(provider.Issuer(config.Audience, host.FindUser))
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

func readUsers(config conffile.OIDC, users *oidc.Users) (err error) {
	if config.UserPattern != "" && config.UserMap != "" {
		return errors.New("oidc.user_pattern and oidc.user_map exclude each other")
	}
	if config.UserPattern != "" {
		users.Pattern, err = oidc.ParsePattern(config.UserPattern)
		if err != nil {
			return fmt.Errorf("oidc.user_pattern: %w", err)
		}
	}
	if config.UserMap != "" {
		users.Map, err = oidc.OpenMap(config.UserMap)
	}
	return err
}
