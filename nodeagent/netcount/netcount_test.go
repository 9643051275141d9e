//go:build linux

package netcount

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// v2 finds a v2 hierarchy of this machine that can be written to.
func v2(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 3 && f[2] == "cgroup2" && strings.HasPrefix(f[3], "rw") {
			return f[1]
		}
	}
	t.Skip("no v2 hierarchy is mounted here")
	return ""
}

// group makes a group, which goes with the test.
func group(t *testing.T, path ...string) string {
	t.Helper()
	dir := filepath.Join(path...)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no group can be made: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	return dir
}

// inside runs a shell in a group, and its programs with it.
func inside(t *testing.T, dir, script string) string {
	t.Helper()
	out, err := exec.Command("sh", "-ec", "echo $$ > "+dir+"/cgroup.procs\n"+script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func number(t *testing.T, dir string) uint64 {
	t.Helper()
	id, err := GroupID(dir)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func read(t *testing.T, c *Counter, dir string) Bytes {
	t.Helper()
	b, err := c.Read(number(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Two network namespaces with a cable between them are a network of the test's own:
// what passes it is counted by family and direction, for the run and for groups that
// it makes itself; loopback is apart, and a neighbour has nothing of it.
func TestBytesOfARun(t *testing.T) {
	root := v2(t)
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip of iproute2")
	}
	tree := group(t, root, fmt.Sprintf("muster-net-%d", os.Getpid()))
	run, other := group(t, tree, "1.1.batch"), group(t, tree, "2.1.batch")
	c, err := Open(tree, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	ns := fmt.Sprintf("muster%d", os.Getpid())
	sh := func(script string) { inside(t, root, script) }
	sh("ip netns add " + ns + "a; ip netns add " + ns + "b")
	t.Cleanup(func() { sh("ip netns del " + ns + "a; ip netns del " + ns + "b") })
	sh(strings.NewReplacer("NS", ns).Replace(`
ip -n NSa link set lo up; ip -n NSb link set lo up
ip -n NSa link add cable type veth peer name cable netns NSb
ip -n NSa addr add 10.9.9.1/24 dev cable; ip -n NSb addr add 10.9.9.2/24 dev cable
ip -n NSa addr add fd09::1/64 dev cable nodad; ip -n NSb addr add fd09::2/64 dev cable nodad
ip -n NSa link set cable up; ip -n NSb link set cable up`))
	// send carries bytes over TCP from one namespace to another: the receiver is outside
	// of the tree, the sender in the group.
	send := func(dir, from, to, address string, size int) {
		t.Helper()
		server := exec.Command("ip", "netns", "exec", ns+to, "python3", "-c", fmt.Sprintf(`
import socket,sys
s=socket.create_server((%q,7007),family=socket.AF_INET6 if ":" in %q else socket.AF_INET)
print("ready",flush=True)
c,_=s.accept(); n=0
while True:
  b=c.recv(65536)
  if not b: break
  n+=len(b)
c.sendall(b"x"*1000); c.close(); print(n)`, address, address))
		out, err := server.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		ready := make([]byte, 6)
		if _, err := out.Read(ready); err != nil {
			t.Fatal(err)
		}
		inside(t, dir, fmt.Sprintf(`exec ip netns exec %s%s python3 -c '
import socket
c=socket.create_connection(("%s",7007)); c.sendall(b"y"*%d); c.shutdown(1)
n=0
while True:
  b=c.recv(65536)
  if not b: break
  n+=len(b)
assert n==1000'`, ns, from, address, size))
		if err := server.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	const size = 3_000_000
	// near allows for headers, and for segments that a busy machine sends again: never less.
	near := func(what string, got uint64, want int) {
		t.Helper()
		if got < uint64(want) || got > uint64(want+want/10+4000) {
			t.Errorf("%s: %d bytes, sent were %d", what, got, want)
		}
	}
	send(run, "a", "b", "10.9.9.2", size)
	got := read(t, c, run)
	near("v4 out", got.Out4, size)
	near("v4 in", got.In4, 1000)
	if got.Out6+got.In6+got.InLoop+got.OutLoop != 0 {
		t.Errorf("other counters: %+v", got)
	}
	send(run, "a", "b", "fd09::2", size)
	near("v6 out", read(t, c, run).Out6, size)
	send(run, "b", "b", "127.0.0.1", size)
	after := read(t, c, run)
	near("loopback", after.OutLoop, size)
	if after.Out4 != got.Out4 {
		t.Errorf("loopback counts as traffic: %d, was %d", after.Out4, got.Out4)
	}
	if b := read(t, c, other); b != (Bytes{}) {
		t.Errorf("a neighbour has %+v", b)
	}
	// A group that the run made, as a container engine does.
	nested := group(t, run, "container")
	send(nested, "a", "b", "10.9.9.2", size)
	near("with a group of its own", read(t, c, run).Out4, 2*size)

	// Another agent goes on with the same counts.
	again, err := Open(tree, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if a, b := read(t, again, run), read(t, c, run); a != b || a.Out4 == 0 {
		t.Errorf("after a restart %+v, before %+v", a, b)
	}
	send(other, "a", "b", "10.9.9.2", size)
	near("a neighbour, after a restart", read(t, again, other).Out4, size)
	if n := len(again.Groups()); n != 2 {
		t.Errorf("%d groups are counted, want 2", n)
	}
	id := number(t, run)
	again.Forget(id)
	if b, err := again.Read(id); err != nil || b != (Bytes{}) {
		t.Errorf("what was forgotten: %+v, %v", b, err)
	}
}

// A group that is made anew under the same name is another one: the counter says so.
func TestTheGroupIsMadeAnew(t *testing.T) {
	root := v2(t)
	tree := group(t, root, fmt.Sprintf("muster-new-%d", os.Getpid()))
	c, err := Open(tree, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if !c.Is(tree) {
		t.Error("it is not current at once")
	}
	if err := os.Remove(tree); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	if c.Is(tree) {
		t.Error("it hangs at a group that is gone")
	}
}

func TestWhereItCannotCount(t *testing.T) {
	if _, err := Open("/no/such/group", 1); err == nil || !strings.Contains(err.Error(), "not counted by job") {
		t.Errorf("%v", err)
	}
	if _, err := Open(t.TempDir(), 1); err == nil || !strings.Contains(err.Error(), "is not a group") {
		t.Errorf("%v", err)
	}
}
