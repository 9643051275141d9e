package munge

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/internal/transport/identity"
)

// startDaemon starts a real munged with a key and a socket of its own.
func startDaemon(t *testing.T, key string) (socket string) {
	t.Helper()
	program, err := exec.LookPath("munged")
	if err != nil {
		program = "/usr/sbin/munged"
		if _, err := os.Stat(program); err != nil {
			t.Skip("no munged on this machine (Debian's package munge)")
		}
	}
	dir, err := os.MkdirTemp("", "munge") // a short name: sockets need that
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "key"), []byte(strings.Repeat(key, 32)), 0o600)); err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "socket")
	cmd := exec.Command(program, "--foreground", "--num-threads=2", "--key-file="+filepath.Join(dir, "key"), "--socket="+socket,
		"--pid-file="+filepath.Join(dir, "pid"), "--log-file="+filepath.Join(dir, "log"), "--seed-file="+filepath.Join(dir, "seed"))
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-ended
	})
	for {
		if _, err := os.Stat(socket); err == nil {
			return socket
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("munged ended: %v\n%s", err, said.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func open(t *testing.T, socket string) *Library {
	t.Helper()
	l, err := Open(socket)
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestDoor lets the user of this process in by a real munged: on the connection for which he made
// his credential, as often as he asks there, and on no other.
func TestDoor(t *testing.T) {
	l := open(t, startDaemon(t, "a key of a cluster, 32 characters"))
	credential, err := l.Encode(Payload("b1"))
	if err != nil {
		t.Fatal(err)
	}
	door := NewDoor(l)
	for range 3 {
		id, err := door.Admit(credential, "b1")
		if err != nil || id.Kind != identity.AttestedUser || id.By != identity.Agent || id.Node != Node {
			t.Fatalf("let in as %+v (%v)", id, err)
		}
		if root := os.Getuid() == 0; id.Squashed != root || id.UID == 0 || !root && id.UID != uint32(os.Getuid()) {
			t.Errorf("uid %d is let in as %+v", os.Getuid(), id)
		}
	}
	if _, err := door.Admit(credential, "b2"); !errors.Is(err, ErrCredential) || !strings.Contains(err.Error(), "Replayed") {
		t.Errorf("passed on: %v", err)
	}
	other, err := l.Encode(Payload("b1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := door.Admit(other, "b2"); !errors.Is(err, ErrCredential) || !strings.Contains(err.Error(), "another connection") {
		t.Errorf("made for another connection: %v", err)
	}
	// A controller that starts anew has forgotten what it decoded; MUNGE has not.
	if _, err := NewDoor(l).Admit(credential, "b1"); !errors.Is(err, ErrCredential) || !strings.Contains(err.Error(), "Replayed") {
		t.Errorf("replayed: %v", err)
	}
	for _, text := range []string{"", "MUNGE:", "MUNGE:AwQDAAA=:", "x\x00y", strings.Repeat("A", 10_000)} {
		if id, err := door.Admit(text, "b1"); !errors.Is(err, ErrCredential) || id.Kind != identity.Anonymous {
			t.Errorf("%.20q is let in as %+v (%v)", text, id, err)
		}
	}
	if _, err := door.Admit(credential, ""); !errors.Is(err, ErrCredential) {
		t.Errorf("on a connection with a certificate: %v", err)
	}
}

// TestALivingConnectionStaysKnown: MUNGE decodes a credential once, so that a connection that still
// asks must not be forgotten for those that came after it.
func TestALivingConnectionStaysKnown(t *testing.T) {
	l := open(t, startDaemon(t, "a key of a cluster, 32 characters"))
	door := NewDoor(l)
	door.most = 4
	admit := func(credential, binding string) {
		t.Helper()
		if _, err := door.Admit(credential, binding); err != nil {
			t.Fatalf("on %s: %v", binding, err)
		}
	}
	encode := func(binding string) string {
		t.Helper()
		credential, err := l.Encode(Payload(binding))
		if err != nil {
			t.Fatal(err)
		}
		return credential
	}
	lasting := encode("lasting")
	admit(lasting, "lasting")
	var first string
	for i := range 24 {
		binding := fmt.Sprintf("brief %d", i)
		brief := encode(binding)
		admit(brief, binding)
		admit(lasting, "lasting")
		if i == 0 {
			first = brief
		}
	}
	if known := len(door.recent) + len(door.older); known > 2*door.most {
		t.Errorf("%d connections are remembered", known)
	}
	if _, err := door.Admit(first, "brief 0"); !errors.Is(err, ErrCredential) {
		t.Errorf("a connection that asked nothing for long is still known (%v)", err)
	}
}

// stalled is a Library whose munged does not answer until it may.
type stalled struct {
	*Library
	asked, may chan struct{}
}

func (s stalled) Decode(credential string) (string, uint32, uint32, error) {
	s.asked <- struct{}{}
	<-s.may
	return s.Library.Decode(credential)
}

// TestKnownConnectionsDoNotWait: while munged is asked about a new connection, the others go on.
func TestKnownConnectionsDoNotWait(t *testing.T) {
	l := open(t, startDaemon(t, "a key of a cluster, 32 characters"))
	known, err := l.Encode(Payload("b1"))
	if err != nil {
		t.Fatal(err)
	}
	slow, err := l.Encode(Payload("b2"))
	if err != nil {
		t.Fatal(err)
	}
	s := stalled{Library: l, asked: make(chan struct{}, 2), may: make(chan struct{}, 2)}
	door := NewDoor(s)
	s.may <- struct{}{}
	if _, err := door.Admit(known, "b1"); err != nil {
		t.Fatal(err)
	}
	<-s.asked
	over := make(chan error, 2)
	for range 2 { // both requests of the connection get in by one question
		go func() {
			_, err := door.Admit(slow, "b2")
			over <- err
		}()
	}
	<-s.asked
	if _, err := door.Admit(known, "b1"); err != nil {
		t.Error(err)
	}
	s.may <- struct{}{}
	for range 2 {
		if err := <-over; err != nil {
			t.Error(err)
		}
	}
}

// TestOtherKey: the munged of a host with another key makes nothing that counts here.
func TestOtherKey(t *testing.T) {
	here := open(t, startDaemon(t, "a key of a cluster, 32 characters"))
	there := open(t, startDaemon(t, "the key of some other place......"))
	credential, err := there.Encode(Payload("b1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewDoor(here).Admit(credential, "b1"); !errors.Is(err, ErrCredential) || !strings.Contains(err.Error(), "munge.key of the two hosts is not the same") {
		t.Errorf("of another key: %v", err)
	}
	if _, err := open(t, "/nowhere/munge.socket").Encode("x"); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "munged does not answer at /nowhere/munge.socket") {
		t.Errorf("without munged: %v", err)
	}
}

// TestExpired: a credential that was on its way for too long is refused.
func TestExpired(t *testing.T) {
	l := open(t, startDaemon(t, "a key of a cluster, 32 characters"))
	brief, err := l.encodeFor(1, Payload("b1"))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2500 * time.Millisecond) //muster:sleep munged reads the clock of the machine, in whole seconds
	if _, err := NewDoor(l).Admit(brief, "b1"); !errors.Is(err, ErrCredential) || !strings.Contains(strings.ToLower(err.Error()), "expired") {
		t.Errorf("after its end: %v", err)
	}
}
