package doors_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/controller/doors"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/listen"
)

var pages = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") })

// freePort is an address at which nobody listens, and taken one at which somebody does.
func freePort(t *testing.T) (free string, taken net.Listener) {
	t.Helper()
	var all [2]net.Listener
	for i := range all {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		all[i] = l
	}
	t.Cleanup(func() { all[1].Close() })
	all[0].Close()
	return all[0].Addr().String(), all[1]
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// readPage asks for a page over HTTP.
func readPage(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get("http://" + address + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestMetrics: pages are served until the group ends; an address that is off opens nothing.
func TestMetrics(t *testing.T) {
	free, _ := freePort(t)
	g := parts.New(t.Context())
	metrics := doors.Metrics{
		Address: doors.Address{Key: "listen.metrics", At: conffile.Addr(free)},
		Pages:   pages,
		Log:     quiet(),
	}
	if err := metrics.Serve(g); err != nil {
		t.Fatal(err)
	}
	if got := readPage(t, free); got != "here" {
		t.Errorf("the page is %q", got)
	}
	g.Stop()
	if c, err := net.Dial("tcp", free); err == nil {
		c.Close()
		t.Error("the port is open after the end")
	}
	metrics.Address.At = ""
	if err := metrics.Serve(parts.New(t.Context())); err != nil {
		t.Errorf("an address that is off: %v", err)
	}
}

// TestAllOrNone: where one port is taken, the error names the key of muster.yaml, and what was
// opened before is closed again.
func TestAllOrNone(t *testing.T) {
	free, taken := freePort(t)
	socket := filepath.Join(t.TempDir(), "s")
	g := parts.New(t.Context())
	defer g.Stop()
	d := doors.Doors{
		Socket: socket,
		API:    doors.Address{Key: "listen.grpc", At: conffile.Addr(free)},
		REST: &doors.REST{
			Address: doors.Address{
				Key: "listen.rest",
				At:  conffile.Addr(taken.Addr().String()),
			},
			Gateway: pages,
		},
	}
	err := d.ServeAll(g, nil)
	if err == nil || !strings.Contains(err.Error(), "listen.rest") {
		t.Fatalf("a taken port gives %v", err)
	}
	again, err := net.Listen("tcp", free)
	if err != nil {
		t.Fatalf("the API's port is still open: %v", err)
	}
	again.Close()
	local, err := listen.Unix(socket, 0o600)
	if err != nil {
		t.Fatalf("the socket is still open: %v", err)
	}
	local.Close()
}

// TestUnreadableCredential: a process whose metrics ask for a token that cannot be read does not
// start.
func TestUnreadableCredential(t *testing.T) {
	metrics := doors.Metrics{Log: quiet()}
	metrics.Readers.TokenFile = filepath.Join(t.TempDir(), "missing")
	if err := metrics.Serve(parts.New(t.Context())); err == nil {
		t.Error("it starts")
	}
	if err := (doors.Doors{Metrics: metrics}).ServeAll(parts.New(t.Context()), nil); err == nil {
		t.Error("it starts")
	}
}

// TestRESTBothOrNone: where the socket of REST is taken, its port is closed again.
func TestRESTBothOrNone(t *testing.T) {
	free, _ := freePort(t)
	socket := filepath.Join(t.TempDir(), "s")
	taken, err := listen.Unix(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	g := parts.New(t.Context())
	defer g.Stop()
	d := doors.Doors{REST: &doors.REST{
		Address: doors.Address{Key: "listen.rest", At: conffile.Addr(free)},
		Socket:  socket,
		Gateway: pages,
	}}
	if err := d.ServeBeside(g); !errors.Is(err, listen.ErrBusy) {
		t.Fatalf("a taken socket gives %v", err)
	}
	again, err := net.Listen("tcp", free)
	if err != nil {
		t.Fatalf("the port is still open: %v", err)
	}
	again.Close()
}

// TestConsole: a console that only this host reaches speaks plain HTTP, and its parts run beside it.
func TestConsole(t *testing.T) {
	free, _ := freePort(t)
	endpoint, err := grpcx.NewEndpoint(grpcx.EndpointConfig{Channel: &channel.Server{}, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	g := parts.New(t.Context())
	defer g.Stop()
	ran := make(chan bool)
	d := doors.Doors{
		Socket: filepath.Join(t.TempDir(), "s"),
		Console: &doors.Console{
			Address: doors.Address{Key: "listen.web", At: conffile.Addr(free)},
			Pages:   pages,
			Beside: map[string]func(context.Context) error{
				"live": func(context.Context) error { close(ran); return nil },
			},
		},
	}
	if err := d.ServeAll(g, endpoint); err != nil {
		t.Fatal(err)
	}
	if got := readPage(t, free); got != "here" {
		t.Errorf("the page is %q", got)
	}
	<-ran
}

// TestTakenLast: the API and the socket of a group are taken only when every port is open.
func TestTakenLast(t *testing.T) {
	_, taken := freePort(t)
	take := func() net.Listener {
		t.Error("taken although a port is not free")
		return nil
	}
	g := parts.New(t.Context())
	defer g.Stop()
	err := doors.Doors{
		Metrics: doors.Metrics{
			Address: doors.Address{Key: "listen.metrics", At: conffile.Addr(taken.Addr().String())},
		},
		TakeAPI:   take,
		TakeLocal: take,
	}.ServeAll(g, nil)
	if err == nil {
		t.Error("the taken port of the metrics is no error")
	}
}

// TestAllConflicts: every door that cannot be opened is named at once, and the others are closed
// again.
func TestAllConflicts(t *testing.T) {
	free, _ := freePort(t)
	_, takenREST := freePort(t)
	_, takenWeb := freePort(t)
	socket := filepath.Join(t.TempDir(), "s")
	takenSocket, err := listen.Unix(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer takenSocket.Close()
	g := parts.New(t.Context())
	defer g.Stop()
	err = doors.Doors{
		Metrics: doors.Metrics{
			Address: doors.Address{Key: "listen.metrics", At: conffile.Addr(free)},
			Pages:   pages,
			Log:     quiet(),
		},
		REST: &doors.REST{
			Address: doors.Address{Key: "listen.rest", At: conffile.Addr(takenREST.Addr().String())},
			Socket:  socket,
			Gateway: pages,
		},
		Console: &doors.Console{
			Address: doors.Address{Key: "listen.web", At: conffile.Addr(takenWeb.Addr().String())},
			Pages:   pages,
		},
	}.ServeBeside(g)
	for _, want := range []string{"listen.rest", "listen.web", socket} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is taken, and the error is: %v", want, err)
		}
	}
	again, err := net.Listen("tcp", free)
	if err != nil {
		t.Fatalf("the port of the metrics is still open: %v", err)
	}
	again.Close()
}
