package muster

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/transport/authz"
)

// TestLeastPrivilege: a token of scope=pods opens what this client calls, and nothing else.
// A method that is no longer called, or a new one, fails it.
func TestLeastPrivilege(t *testing.T) {
	calls := map[string]bool{}
	c := controllers(t, func(w http.ResponseWriter, r *http.Request) {
		calls[strings.TrimPrefix(r.URL.Path, "/v1/")] = true
		fmt.Fprint(w, "{}")
	})
	client := reflect.TypeFor[*Client]()
	ctx := reflect.ValueOf(t.Context())
	for i := range client.NumMethod() {
		method := client.Method(i)
		if method.Type.NumIn() != 3 || method.Type.In(1) != reflect.TypeFor[context.Context]() {
			continue // it calls nothing
		}
		// Its answer does not matter: an empty one is none of a watch.
		method.Func.Call([]reflect.Value{reflect.ValueOf(c), ctx, argument(method.Type.In(2))})
	}
	granted := map[string]bool{}
	for _, m := range authz.Methods() {
		switch m.Grant(authz.Connector) {
		case authz.None:
		case authz.Full:
			granted[m.Service+"/"+m.Name] = true
		default:
			t.Errorf("%s: %s of a method", m.FullName(), m.Grant(authz.Connector))
		}
	}
	if !maps.Equal(calls, granted) || len(calls) < 6 {
		t.Errorf("calls %v, granted %v", slices.Sorted(maps.Keys(calls)), slices.Sorted(maps.Keys(granted)))
	}
}

// argument is an empty request, or a function that does nothing.
func argument(of reflect.Type) reflect.Value {
	if of.Kind() == reflect.Pointer {
		return reflect.New(of.Elem())
	}
	return reflect.MakeFunc(of, func([]reflect.Value) []reflect.Value { return nil })
}

// TestConfig: all that is wrong with a configuration is told at once.
func TestConfig(t *testing.T) {
	_, err := New(Config{Addresses: []string{"http://a:1", "https://b:6820", "unix://"}, CAFile: filepath.Join(t.TempDir(), "none")})
	for _, want := range []string{`"http://a:1"`, "https://b:6820 needs a token", `"unix://"`, "certificate authority"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("no address is no error")
	}
}

// controllers are servers that answer as they are told, and a client of them.
func controllers(t *testing.T, answers ...http.HandlerFunc) *Client {
	t.Helper()
	dir := t.TempDir()
	cfg := Config{TokenFile: filepath.Join(dir, "token"), CAFile: filepath.Join(dir, "ca")}
	var ca []byte
	for _, answer := range answers {
		s := httptest.NewTLSServer(answer)
		t.Cleanup(s.Close)
		cfg.Addresses = append(cfg.Addresses, s.URL)
		ca = append(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})...)
	}
	for file, text := range map[string][]byte{cfg.TokenFile: []byte("secret\n"), cfg.CAFile: ca} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func refuse(status int, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"code":"X","message":%q}}`, message)
	}
}

// TestLead: a controller that does not lead is passed over, and the one that answered
// is asked first from then on; a refusal is no reason to ask another.
func TestLead(t *testing.T) {
	asked := 0
	follower := func(w http.ResponseWriter, r *http.Request) {
		asked++
		refuse(http.StatusServiceUnavailable, "does not lead")(w, r)
	}
	c := controllers(t, follower, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			refuse(http.StatusUnauthorized, "no token")(w, r)
			return
		}
		fmt.Fprint(w, `{"seq":"7","of_a_later_release":1}`)
	})
	for range 2 {
		if rep, err := c.Hold(t.Context(), &apiv1.HoldNodeRequest{Node: "n1"}); err != nil || rep.GetSeq() != 7 {
			t.Fatalf("%v %v", rep, err)
		}
	}
	if asked != 1 {
		t.Errorf("who does not lead was asked %d times", asked)
	}

	other := 0
	c = controllers(t, refuse(http.StatusConflict, "n1 has no room"), func(http.ResponseWriter, *http.Request) { other++ })
	_, err := c.Hold(t.Context(), &apiv1.HoldNodeRequest{Node: "n1"})
	var refused *Refusal
	if !errors.As(err, &refused) || refused.Error() != "n1 has no room" || refused.Denied() || other != 0 {
		t.Errorf("%v, another was asked %d times", err, other)
	}
}

// TestWatch: what a controller tells is handed on until the stream ends, with an
// error in it or without.
func TestWatch(t *testing.T) {
	for tail, want := range map[string]string{"": "the watch has ended", `{"error":{"code":"Unavailable","message":"stopping"}}`: "stopping"} {
		c := controllers(t, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "{\"seq\":\"1\",\"nodes\":[{\"name\":\"n1\"}]}\n{\"seq\":\"2\"}\n%s", tail)
		})
		var seqs []uint64
		err := c.Watch(context.Background(), func(news *apiv1.WatchHoldsReply) { seqs = append(seqs, news.GetSeq()) })
		if !errors.Is(err, ErrAway) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if len(seqs) < 2 || seqs[0] != 1 || seqs[1] != 2 {
			t.Errorf("%v", seqs)
		}
	}
	if err := controllers(t, refuse(http.StatusForbidden, "only operators")).Watch(t.Context(), nil); errors.Is(err, ErrAway) {
		t.Errorf("a refusal is no absence: %v", err)
	}
}
