//go:build linux

package image

import (
	"archive/tar"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/google/go-containerregistry/pkg/authn"
)

const secret = "pass:with:colons"

// expect wants an error that has each of the texts, and never the password.
func expect(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %q", texts)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q lacks %q", err, text)
		}
	}
	word := base64.StdEncoding.EncodeToString([]byte("ann:" + secret))
	if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), word) {
		t.Errorf("%q shows a password", err)
	}
}

// serveLocked is a registry that asks for a name and a password.
func serveLocked(t *testing.T) (host string) {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "ann" || password != secret {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	host = strings.TrimPrefix(server.URL, "http://")
	image, err := mutate.AppendLayers(empty.Image,
		layer(t, tar.Header{Name: "private", Typeflag: tar.TypeReg, Mode: 0o644}))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(host + "/app:1")
	if err != nil {
		t.Fatal(err)
	}
	login := remote.WithAuth(&authn.Basic{Username: "ann", Password: secret})
	if err := remote.Write(ref, image, login); err != nil {
		t.Fatal(err)
	}
	return host
}

func mustParse(t *testing.T, text string) *Logins {
	t.Helper()
	out, err := ParseLogins([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestLogins: the first list that knows the registry counts; who has no login, or
// a wrong one, does not get what is in the cache already.
func TestLogins(t *testing.T) {
	host := serveLocked(t)
	word := base64.StdEncoding.EncodeToString([]byte("ann:" + secret))
	right := mustParse(t, fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, word))
	named := mustParse(t, fmt.Sprintf(`{"auths": {"http://%s/v2/": {"username": "ann", "password": %q}}}`, host, secret))
	wrong := mustParse(t, fmt.Sprintf(`{"auths": {%q: {"username": "ann", "password": "guess"}}}`, host))
	other := mustParse(t, `{"auths": {"elsewhere.example": {"username": "ann", "password": "guess"}}}`)
	kept := mustParse(t, fmt.Sprintf(`{"auths": {%q: {}}, "credsStore": "desktop"}`, host))
	c, err := New(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	get := func(logins ...*Logins) error {
		_, err := c.Fetch(context.Background(),
			Request{Image: "docker://" + host + "/app:1", Holder: "1.1.batch", Logins: logins})
		return err
	}
	expect(t, get(), "401", "no login was found", "docker login")
	for what, logins := range map[string][]*Logins{
		"one word":                  {right},
		"name and password":         {named},
		"the site's":                {nil, other, kept, right},
		"the user's before another": {named, wrong},
	} {
		if err := get(logins...); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	expect(t, get(wrong, right), "refuses the login")
	expect(t, get(other), "no login was found")
}

func TestParseLogins(t *testing.T) {
	for text, want := range map[string]string{
		`{"auths": `: "not JSON",
		`{"auths": {"h": {"auth": "` + secret + `"}}}`: "not JSON as docker login writes it",
		`[]`: "not JSON",
	} {
		_, err := ParseLogins([]byte(text))
		expect(t, err, want)
	}
	for key, want := range map[string]string{
		"https://index.docker.io/v1/": "index.docker.io",
		"docker.io":                   "index.docker.io",
		"https://nvcr.io":             "nvcr.io",
		"nvcr.io/v2/":                 "nvcr.io",
		"127.0.0.1:5000":              "127.0.0.1:5000",
	} {
		if got := registryOf(key); got != want {
			t.Errorf("%s is about %s, not %s", key, got, want)
		}
	}
}
