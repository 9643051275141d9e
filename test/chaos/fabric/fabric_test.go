package fabric

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inNamespace runs something in a network of its own; the thread that it ran on is not used again.
func inNamespace(t *testing.T, do func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// pair is a connection over the switch, as the two sides have it.
type pair struct{ left, right net.Conn }

// newPair makes two namespaces, a switch between them and a TCP connection through it.
func newPair(t *testing.T) (*Switch, pair) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("SKIPPED: no ip (deploy/deps/install.sh brings it)")
	}
	s := New(1)
	t.Cleanup(s.Close)
	ip := func(args string) error {
		out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
		return nil
	}
	var both pair
	inNamespace(t, func() error {
		hub, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		defer hub.Close()
		var listener net.Listener
		for i, name := range []string{"left", "right"} {
			if err := ip(fmt.Sprintf("link add p-%s type veth peer name eth%d", name, i)); err != nil {
				return err
			}
			if err := ip("link set p-" + name + " up"); err != nil {
				return err
			}
			if err := s.Plug(name, "p-"+name); err != nil {
				return err
			}
			// The other end goes to a namespace of its own, in which this thread continues for a while.
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			there, err := os.Open("/proc/thread-self/ns/net")
			if err != nil {
				return err
			}
			defer there.Close()
			if err := unix.Setns(int(hub.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			move := exec.Command("ip", "link", "set", fmt.Sprintf("eth%d", i), "netns", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), there.Fd()))
			if out, err := move.CombinedOutput(); err != nil {
				return fmt.Errorf("move a device: %w: %s", err, out)
			}
			if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			for _, line := range []string{fmt.Sprintf("addr add 10.98.0.%d/24 dev eth%d", i+1, i), fmt.Sprintf("link set eth%d up", i)} {
				if err := ip(line); err != nil {
					return err
				}
			}
			if i == 0 {
				if listener, err = net.Listen("tcp", "10.98.0.1:0"); err != nil {
					return err
				}
				defer listener.Close()
			} else if both.right, err = net.Dial("tcp", listener.Addr().String()); err != nil {
				return err
			}
			if err := unix.Setns(int(hub.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
		}
		both.left, err = listener.Accept()
		return err
	})
	t.Cleanup(func() {
		both.left.Close()
		both.right.Close()
	})
	return s, both
}

// send has one side send and the other read so much, and tells how long that took.
func send(t *testing.T, from io.Writer, to io.Reader, size int) time.Duration {
	t.Helper()
	began := time.Now()
	go func() { _, _ = from.Write(make([]byte, size)) }()
	if _, err := io.CopyN(io.Discard, to, int64(size)); err != nil {
		t.Fatal(err)
	}
	return time.Since(began)
}

// What TCP carries arrives through a switch that loses, doubles, delays and reorders frames, and
// each of these happened.
func TestTCPPassesABadSwitch(t *testing.T) {
	s, both := newPair(t)
	good := send(t, both.left, both.right, 1<<20)
	if counts := s.Counts(); counts.Lost+counts.Doubled+counts.Overtaken > 0 {
		t.Errorf("a switch without rules: %+v", counts)
	}
	s.SetAll(Rule{Lose: 15, Double: 15, Delay: 2 * time.Millisecond})
	bad := send(t, both.left, both.right, 1<<20)
	counts := s.Counts()
	if counts.Lost == 0 || counts.Doubled == 0 || counts.Overtaken == 0 {
		t.Errorf("a bad switch: %+v", counts)
	}
	t.Logf("1 MiB: %v, over the bad switch %v: %+v", good, bad, counts)
}

// A cut in one direction keeps that direction's segments back and no other's.
func TestCutInOneDirection(t *testing.T) {
	s, both := newPair(t)
	send(t, both.left, both.right, 1000)
	s.Mute("left", Rule{Cut: true})
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		_, _ = io.CopyN(io.Discard, both.left, 5)
	}()
	if _, err := both.right.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	<-heard // left hears right, though its acknowledgement is lost
	if _, err := both.left.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := both.right.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := both.right.Read(make([]byte, 5)); err == nil {
		t.Fatalf("%d bytes came through a cut", n)
	}
	s.Mute("left", Rule{})
	if err := both.right.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, both.right, 5); err != nil {
		t.Fatal(err)
	}
}
