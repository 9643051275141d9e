package display

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/x11"
)

func newDisplays(t *testing.T, folder string) *Displays {
	t.Helper()
	d, err := Open(folder, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// connect begins a connection as an X client does that shows a cookie.
func connect(t *testing.T, number int, cookie x11.Cookie) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", x11.Port(number)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	setup, err := x11.ReadSetup(bytes.NewReader([]byte("l\x00\x0b\x00\x00\x00\x00\x00\x00\x00\x00\x00")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(append(setup.WithCookie(cookie), "hello"...)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// shown gives the number and the cookie that a job's programs find.
func shown(t *testing.T, env []string) (int, x11.Cookie, string) {
	t.Helper()
	file, ok := strings.CutPrefix(env[1], "XAUTHORITY=")
	if !ok || !strings.HasPrefix(env[0], "DISPLAY=localhost:") {
		t.Fatalf("%q", env)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	number, cookie, err := x11.ReadAuthority(data)
	if err != nil || env[0] != fmt.Sprintf("DISPLAY=localhost:%d.0", number) {
		t.Fatalf("%q, number %d, %v", env[0], number, err)
	}
	return number, cookie, file
}

// TestDisplay: a client that shows the cookie waits for the command that forwards the
// display, whichever comes first, and its bytes get there; one that does not is refused.
// The display is the same after a restart of the agent, and gone with its job.
func TestDisplay(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "x11")
	d := newDisplays(t, folder)
	key := plan.Key(7, 1, plan.StepExtern)
	env, err := d.Show(key, uint32(os.Getuid()), uint32(os.Getgid()))
	if err != nil {
		t.Fatal(err)
	}
	again, err := d.Show(key, uint32(os.Getuid()), uint32(os.Getgid()))
	if err != nil || strings.Join(again, " ") != strings.Join(env, " ") {
		t.Errorf("asked again it is %q (%v), not %q", again, err, env)
	}
	number, cookie, file := shown(t, env)

	early := connect(t, number, cookie)
	calls := make(chan uint64, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	attach := func() {
		go func() {
			ended <- d.Attach(ctx, key, func(id uint64) error { calls <- id; return nil })
		}()
	}
	attach()
	carry := func(client net.Conn) {
		t.Helper()
		conn, err := d.Claim(key, <-calls)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		setup, err := x11.ReadSetup(conn)
		if err != nil || !setup.Shows(cookie) {
			t.Fatalf("the first message: %v", err)
		}
		rest := make([]byte, 5)
		if _, err := io.ReadFull(conn, rest); err != nil || string(rest) != "hello" {
			t.Fatalf("%q, %v", rest, err)
		}
		if _, err := conn.Write([]byte("well")); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 4)
		if _, err := io.ReadFull(client, answer); err != nil || string(answer) != "well" {
			t.Fatalf("%q, %v", answer, err)
		}
	}
	carry(early)
	carry(connect(t, number, cookie))

	foreign := connect(t, number, x11.Cookie{1})
	answer, err := io.ReadAll(foreign)
	if err != nil || !bytes.Contains(answer, []byte("cookie")) || answer[0] != 0 {
		t.Errorf("a client without the cookie: %q, %v", answer, err)
	}
	_ = foreign.Close()
	if _, err := d.Claim(key, 1); err == nil {
		t.Error("a client is given away twice")
	}

	// Another command takes the place of the first one.
	attach()
	if err := <-ended; !errors.Is(err, ErrReplaced) {
		t.Errorf("the first command: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the second command: %v", err)
	}

	d.Close()
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	d = newDisplays(t, folder)
	env2, err := d.Show(key, uint32(os.Getuid()), uint32(os.Getgid()))
	if err != nil || strings.Join(env2, " ") != strings.Join(env, " ") {
		t.Errorf("after a restart: %q (%v), before: %q", env2, err, env)
	}
	attach()
	carry(connect(t, number, cookie))
	d.Keep([]plan.RunKey{key})
	if !d.Has(key) {
		t.Error("a display that is kept is closed")
	}
	d.Keep(nil)
	if err := <-ended; !errors.Is(err, ErrNone) {
		t.Errorf("the command at the end of the job: %v", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the cookie outlives the job: %v", err)
	}
	if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", x11.Port(number))); err == nil {
		_ = conn.Close()
		t.Error("somebody listens for a job that is over")
	}
}

// TestDisplaysDiffer: two jobs have two displays, and a number that another program has is
// left out.
func TestDisplaysDiffer(t *testing.T) {
	d := newDisplays(t, t.TempDir())
	numbers := map[int]bool{}
	for job := range uint64(2) {
		env, err := d.Show(plan.Key(job+1, 1, plan.StepExtern), uint32(os.Getuid()), uint32(os.Getgid()))
		if err != nil {
			t.Fatal(err)
		}
		number, _, _ := shown(t, env)
		if numbers[number] {
			t.Errorf("display %d is of two jobs", number)
		}
		numbers[number] = true
	}
}
