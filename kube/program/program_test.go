package program

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestRun: what each command line prints, and its exit code.
func TestRun(t *testing.T) {
	for _, c := range []struct {
		args, out, wrong string
		code             int
		refused, fails   error
		works            bool
	}{
		{args: "--help", out: "Usage of it\n      --name string   its name\n  -h, --help          print this help and exit\n      --version       print the version and exit\n"},
		{args: "--version", out: "it 1.2\n"},
		{args: "--nome y", code: 2, wrong: "it: unknown flag: --nome (see it --help)\n"},
		{args: "y", code: 2, wrong: "it: unexpected argument \"y\" (see it --help)\n"},
		{args: "--name y", code: 2, refused: errors.New("no y"), wrong: "it: no y (see it --help)\n"},
		{args: "--name y", code: 1, fails: errors.New("no room"), wrong: "it: no room\n", works: true},
		{args: "--name y", works: true},
	} {
		worked := false
		p := &Program{Name: "it", Version: "1.2", Usage: "Usage of it\n", Flags: NewFlags("it")}
		p.Flags.String("name", "", "its name")
		p.Check = func() error { return c.refused }
		p.Work = func(context.Context, *slog.Logger) error {
			worked = true
			return c.fails
		}
		var out, wrong bytes.Buffer
		code := p.Run(t.Context(), strings.Fields(c.args), &out, &wrong)
		if code != c.code || out.String() != c.out || wrong.String() != c.wrong || worked != c.works {
			t.Errorf("%q: %d %q %q, worked: %v", c.args, code, out.String(), wrong.String(), worked)
		}
	}
}

// TestServe: probes hear what the program says of itself, and the port is free again
// after it.
func TestServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	log := slog.New(slog.DiscardHandler)
	if _, err := Serve(t.Context(), address, Pages{}, log); err == nil {
		t.Error("a port that is taken was taken again")
	}
	l.Close()
	var notReady error
	ctx, cancel := context.WithCancel(t.Context())
	wait, err := Serve(ctx, address, Pages{Ready: func() (string, error) { return "connected", notReady }}, log)
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string) {
		t.Helper()
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	if code, text := get("/readyz"); code != http.StatusOK || text != "connected\n" {
		t.Error(code, text)
	}
	notReady = errors.New("nothing has been read")
	if code, text := get("/readyz"); code != http.StatusServiceUnavailable || text != "nothing has been read\n" {
		t.Error(code, text)
	}
	if code, text := get("/healthz"); code != http.StatusOK || text != "ok\n" {
		t.Error(code, text)
	}
	cancel()
	wait()
	again, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
