package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// waitFor polls until ok holds; the test's own deadline ends a wait that never ends.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		if t.Context().Err() != nil {
			t.Fatalf("gave up waiting for %s", what)
		}
		time.Sleep(5 * time.Millisecond) //muster:sleep another process is watched
	}
}

// gone reports whether process pid has ended (a zombie counts as ended).
func gone(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return true
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	return len(fields) > 0 && (fields[0] == "Z" || fields[0] == "X")
}

func TestSecondProcessOnOnePath(t *testing.T) {
	data := shortDir(t)
	first := startEngine(t, Options{Data: data})
	for name, socket := range map[string]string{"same socket": "", "own socket": data + "-other.sock"} {
		o := Options{Data: data, Socket: socket}
		cmd := exec.Command("/proc/self/exe", append([]string{Subcommand}, o.Args()...)...)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != ExitInUse {
			t.Errorf("%s: ended with %v, want exit status %d", name, err, ExitInUse)
		}
		want := fmt.Sprintf("the data path is in use: process %d has %s open", first.PID(), data)
		if !strings.Contains(string(out), want) {
			t.Errorf("%s: said %q, want %q", name, out, want)
		}
	}
	if err := first.Ping(t.Context()); err != nil {
		t.Errorf("the first engine was disturbed: %v", err)
	}
}

// TestTakeOver starts a supervisor on a path that is in use: it gives up with the holder's name, or starts once the
// holder has gone.
func TestTakeOver(t *testing.T) {
	data := shortDir(t)
	first := startEngine(t, Options{Data: data})
	wait := defaultTiming()
	wait.inUse = 200 * time.Millisecond
	log, logger := newTestLog(t)
	_, err := start(t.Context(), Options{Data: data, Log: logger}, wait)
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("process %d has", first.PID())) {
		t.Errorf("error %v, want one that names process %d", err, first.PID())
	}
	waits := strings.Count(log.String(), "waiting for the data path")
	if waits != 1 {
		t.Errorf("%d lines about the wait, want 1:\n%s", waits, log)
	}
	type result struct {
		s   *Supervisor
		err error
	}
	second := make(chan result, 1)
	go func() {
		s, err := Start(t.Context(), Options{Data: data, Log: logger})
		second <- result{s, err}
	}()
	waitFor(t, "the second one's wait", func() bool { return strings.Count(log.String(), "waiting for the data path") == 2 })
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	r := <-second
	if r.err != nil {
		t.Fatal(r.err)
	}
	defer r.s.Close()
	if err := r.s.Ping(t.Context()); err != nil || r.s.Restarts() != 0 {
		t.Errorf("ping %v, %d restarts", err, r.s.Restarts())
	}
}

func TestStartErrors(t *testing.T) {
	needLibrary(t)
	data := shortDir(t)
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(data, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	open, empty := write("open", "secret\n", 0o644), write("empty", "\n", 0o600)
	notLib := write("lib.so", "not a library", 0o644)
	_, log := newTestLog(t)
	for want, o := range map[string]Options{
		"--data is required":                           {},
		"needs a login with a password":                {Data: data, TCP: "127.0.0.1:0"},
		"go together":                                  {Data: data, TLSCert: "x"},
		"longer than the 107 bytes":                    {Data: data, Socket: "/tmp/" + strings.Repeat("s", 120)},
		"can be read by everyone":                      {Data: data, Logins: []Login{{Name: "g", PasswordFile: open, ReadOnly: true}}},
		"the first line of " + empty + " is empty":     {Data: data, Logins: []Login{{Name: "g", PasswordFile: empty}}},
		"load the ClickHouse engine library " + notLib: {Data: data, Library: notLib},
		"is there and is no socket":                    {Data: data, Socket: open},
		"make the data path":                           {Data: open + "/d", Socket: filepath.Join(data, "x.sock")},
	} {
		o.Log = log
		s, err := Start(t.Context(), o)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestRestart kills the engine and expects another one, on the same data, behind the same socket.
func TestRestart(t *testing.T) {
	log, logger := newTestLog(t)
	s := startEngine(t, Options{Log: logger})
	c := open(t, clientOptions(s.Socket()))
	mustExec(t, c, "CREATE TABLE kept (a UInt64) ENGINE = MergeTree ORDER BY a SETTINGS fsync_after_insert = 1, fsync_part_directory = 1")
	for round := range 3 {
		mustExec(t, c, "INSERT INTO kept VALUES ("+strconv.Itoa(round)+")")
		pid := s.PID()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "another engine", func() bool { return s.PID() != pid && s.Ready() })
		if got := one[uint64](t, c, "SELECT count() FROM kept"); got != uint64(round+1) {
			t.Fatalf("round %d: %d rows", round, got)
		}
	}
	if s.Restarts() != 3 {
		t.Errorf("%d restarts counted, want 3", s.Restarts())
	}
	if !strings.Contains(log.String(), "died and is started again") {
		t.Errorf("the log does not tell of the death:\n%s", log)
	}
}

// TestHungEngine stops the engine with SIGSTOP; it must be killed and replaced.
func TestHungEngine(t *testing.T) {
	needLibrary(t)
	_, log := newTestLog(t)
	wait := defaultTiming()
	wait.pingEvery, wait.pingWait = 100*time.Millisecond, time.Second
	s, err := start(t.Context(), Options{Data: shortDir(t), Log: log}, wait)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pid := s.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "another engine", func() bool { return s.PID() != pid && s.Ready() })
}

// TestDiesWithParent kills the engine's parent and expects the engine to end too, and its successor to start on the
// same path and socket.
func TestDiesWithParent(t *testing.T) {
	needLibrary(t)
	data := shortDir(t)
	parent := exec.Command("/proc/self/exe", "-test.run=^TestParentHelper$", "-test.v")
	parent.Env = append(os.Environ(), "MUSTER_TEST_PARENT_DATA="+data)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	child := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "engine "); ok {
			child, _ = strconv.Atoi(text)
			break
		}
	}
	if child == 0 {
		t.Fatal("the parent did not start an engine")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	waitFor(t, "the engine's end", func() bool { return gone(child) })
	// The end of its standard input may have let the engine take its socket away
	// before the signal came: then there is no stale one to replace.
	if _, err := os.Lstat(filepath.Join(data, "engine.sock")); err != nil {
		t.Logf("no stale socket is left: %v", err)
	}
	startEngine(t, Options{Data: data})
}

// TestParentHelper is the parent that TestDiesWithParent kills.
func TestParentHelper(t *testing.T) {
	data := os.Getenv("MUSTER_TEST_PARENT_DATA")
	if data == "" {
		return
	}
	s, err := Start(t.Context(), Options{Data: data})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\nengine %d\n", s.PID())
	<-s.Done() // until we are killed
}

func TestSocketIsPrivate(t *testing.T) {
	s := startEngine(t, Options{})
	for path, mode := range map[string]os.FileMode{s.Socket(): os.ModeSocket | 0o600, filepath.Dir(s.Socket()): os.ModeDir | 0o700} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), mode)
		}
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(s.Socket()), ".s*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestClose stops an engine in the middle of an answer that nobody reads.
func TestClose(t *testing.T) {
	needLibrary(t)
	_, log := newTestLog(t)
	s, err := Start(t.Context(), Options{Data: shortDir(t), Log: log, Grace: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	pid := s.PID()
	conn, err := net.Dial("unix", s.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /?query=SELECT+number+FROM+numbers(100000000000) HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if !gone(pid) {
		t.Error("the engine still runs")
	}
	if _, err := os.Lstat(s.Socket()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
	if err := s.Ping(context.Background()); err == nil {
		t.Error("something still answers")
	}
}

func TestArgs(t *testing.T) {
	want := Options{Data: "/d", Library: "/l", Socket: "/s", TCP: "localhost:8123", TLSCert: "/c", TLSKey: "/k",
		Logins:  []Login{{"grafana", "/g", true}, {"admin", "/a=b", false}},
		Writers: 3, Readers: 4, Memory: 512, UntilEOF: true, Grace: 3 * time.Second,
		Settings: map[string]string{"max_threads": "2", "log_comment": "a=b"}, Reading: DefaultReading()}
	got, err := ParseArgs(want.Args(), os.Stderr)
	if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v, error %v; want %+v", got, err, want)
	}
	for _, bad := range [][]string{{"--reader=x"}, {"--setting=x"}, {"left"}, {"--nosuch"}} {
		if _, err := ParseArgs(bad, &strings.Builder{}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
