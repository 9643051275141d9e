package slurmrest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
)

// TestGet: over TCP and over a socket the same page, user and token arrive.
func TestGet(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.URL, " ", r.Header.Get("Accept"), " ", r.Header["X-Slurm-User-Name"], r.Header["X-Slurm-User-Token"])
	})
	tcp := httptest.NewServer(answer)
	defer tcp.Close()
	path := filepath.Join(t.TempDir(), "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	socket := &httptest.Server{Listener: l, Config: &http.Server{Handler: answer}}
	socket.Start()
	defer socket.Close()
	for _, address := range []string{tcp.URL, tcp.URL + "/", "unix:" + path} {
		for _, c := range []struct{ user, token, want string }{
			{"", "", "/a?b=c application/json [] []"},
			{"eve", "SLURM_JWT=t.o.k\n", "/a?b=c application/json [eve] [t.o.k]"},
			{"", "t.o.k", "/a?b=c application/json [] [t.o.k]"},
		} {
			resp, err := New(address, c.user).Get(t.Context(), "/a?b=c", c.token)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(got) != c.want || err != nil {
				t.Errorf("%s as %q with %q: %q, %v, want %q", address, c.user, c.token, got, err, c.want)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if resp, err := New(tcp.URL, "").Get(ctx, "/a", ""); err == nil {
		resp.Body.Close()
		t.Error("a request that was cancelled was answered")
	}
}

// A token is for the slurmrestd that was named: where it sends one elsewhere,
// the answer is that, and nobody else is asked.
func TestNoRedirect(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("somebody else was asked") }))
	defer other.Close()
	named := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer named.Close()
	resp, err := New(named.URL, "eve").Get(t.Context(), "/a", "t.o.k")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusFound {
		t.Error(resp.Status)
	}
}
