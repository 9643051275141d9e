//go:build linux

package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Logins are names and passwords at registries, as docker login and podman login
// write them. No method and no error shows a password.
type Logins struct {
	byRegistry map[string]authn.AuthConfig
}

// ParseLogins reads the JSON of config.json or auth.json. Errors do not quote the
// text, which holds passwords.
func ParseLogins(data []byte) (*Logins, error) {
	var file struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, errors.New("it is not JSON as docker login writes it")
	}
	logins := &Logins{byRegistry: map[string]authn.AuthConfig{}}
	for at, login := range file.Auths {
		if login == (authn.AuthConfig{}) {
			continue // a credential program keeps it, which is not run here
		}
		logins.byRegistry[registryOf(at)] = login
	}
	return logins, nil
}

// registryOf is the registry that a key of the file is about: Docker writes its own
// as https://index.docker.io/v1/.
func registryOf(key string) string {
	_, rest, ok := strings.Cut(key, "://")
	if !ok {
		rest = key
	}
	host, _, _ := strings.Cut(rest, "/")
	if host == "docker.io" || host == "registry-1.docker.io" {
		return "index.docker.io"
	}
	return host
}

// choose gives the login at a registry.
func choose(logins []*Logins, registry string) authn.Authenticator {
	for _, list := range logins {
		if list == nil {
			continue
		}
		if login, ok := list.byRegistry[registry]; ok {
			return authn.FromConfig(login)
		}
	}
	return authn.Anonymous
}

// explain adds what a user can do about a registry that refuses.
func explain(err error, login authn.Authenticator) error {
	var refused *transport.Error
	if !errors.As(err, &refused) {
		return err
	}
	if refused.StatusCode != http.StatusUnauthorized && refused.StatusCode != http.StatusForbidden {
		return err
	}
	if login != authn.Anonymous {
		return fmt.Errorf("%w (the registry refuses the login that was found for it)", err)
	}
	return fmt.Errorf(
		"%w (no login was found: write one with docker login or podman login into ~/.docker/config.json)",
		err,
	)
}
