package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// mungeHost is a munged with its folder.
type mungeHost struct {
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	socket string
}

// newMungeHost makes the folder of a munged with a key of its own.
func newMungeHost(t *testing.T) *mungeHost {
	t.Helper()
	if _, err := os.Stat("/usr/sbin/munged"); err != nil || os.Getuid() != 0 {
		t.Skip("this test needs root and munged (Debian's package munge)")
	}
	m := &mungeHost{t: t, dir: shortDir(t)}
	m.socket = filepath.Join(m.dir, "socket")
	if err := os.Chmod(m.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m.rotate()
	t.Cleanup(m.stop)
	return m
}

// rotate gives it another key, which it reads when it starts.
func (m *mungeHost) rotate() {
	m.t.Helper()
	key := []byte(strings.Repeat(fmt.Sprintf("%032d", time.Now().UnixNano()), 32))
	if err := os.WriteFile(filepath.Join(m.dir, "key"), key, 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mungeHost) file(name string) string { return filepath.Join(m.dir, name) }

// start starts it and waits until it answers; the error is what it says where it does not start.
func (m *mungeHost) start() error {
	m.t.Helper()
	var said strings.Builder
	m.cmd = exec.Command("/usr/sbin/munged", "--foreground", "--num-threads=2", "--key-file="+m.file("key"), "--socket="+m.socket,
		"--pid-file="+m.file("pid"), "--log-file="+m.file("log"), "--seed-file="+m.file("seed"))
	m.cmd.Stdout, m.cmd.Stderr = &said, &said
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func(cmd *exec.Cmd) { ended <- cmd.Wait() }(m.cmd)
	for {
		if exec.Command("munge", "--socket="+m.socket, "--no-input").Run() == nil {
			return nil
		}
		select {
		case err := <-ended:
			m.cmd = nil
			return fmt.Errorf("munged ended: %w: %s", err, said.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (m *mungeHost) stop() {
	if m.cmd == nil {
		return
	}
	m.cmd.Process.Kill() //nolint:errcheck // it may have ended
	m.cmd = nil
	os.Remove(m.socket)
}

// TestMunge has commands of a host without an agent come to the controller with a credential of a
// real munged: as who runs them, and never with rights over others.
func TestMunge(t *testing.T) {
	need(t)
	m := newMungeHost(t)
	if err := m.start(); err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, dir: shortDir(t), port: freePorts(t)}
	c.must("init", "--dir", c.dir, "--nodes", "1", "--port", fmt.Sprint(c.port), "--conf", "AuthType=auth/munge", "--conf", "AuthInfo=socket="+m.socket)
	if err := os.Chmod(c.dir, 0o755); err != nil { // jobs of users reach their scripts
		t.Fatal(err)
	}
	c.must("up", "--dir", c.dir)
	t.Cleanup(func() { c.run("down", "--dir", c.dir, "--jobs") })
	// The folder of the host without an agent: slurm.conf, the authority, and the programs.
	host := shortDir(t)
	for _, dir := range []string{host, filepath.Join(host, "jobs")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	place := func(from, to string, mode os.FileMode) {
		t.Helper()
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(host, to), data, mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	place(filepath.Join(c.dir, "slurm.conf"), "slurm.conf", 0o644)
	place(filepath.Join(c.dir, "state", "tls", "ca.crt"), "ca.crt", 0o644)
	place(bin("muster"), "muster", 0o755)
	place(bin("muster-munge"), "muster-munge", 0o755)
	as := func(uid string, args ...string) (string, error) {
		t.Helper()
		cmd := exec.Command("setpriv", append([]string{"--reuid=" + uid, "--regid=" + uid, "--clear-groups", filepath.Join(host, "muster")}, args...)...)
		cmd.Dir = filepath.Join(host, "jobs")
		cmd.Env = []string{"PATH=/usr/bin:/bin", "SLURM_CONF=" + filepath.Join(host, "slurm.conf"), "MUSTER_CA=" + filepath.Join(host, "ca.crt"),
			"MUSTER_CONFIG=" + filepath.Join(host, "muster.yaml"), fmt.Sprintf("MUSTER_SERVER=127.0.0.1:%d", c.port)}
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	place(filepath.Join(c.dir, "slurm.conf"), "muster.yaml", 0o644) // no key of it is one of muster.yaml: the default socket, which is not there
	const user = "65534"
	id, err := as(user, "sbatch", "--parsable", "-o", filepath.Join(host, "jobs", "out"), "--wrap", "id -u")
	if err != nil {
		t.Fatalf("sbatch: %v\n%s", err, id)
	}
	c.until("COMPLETED", "squeue", "-h", "-t", "all", "-j", id, "-o", "%T")
	if out, err := os.ReadFile(filepath.Join(host, "jobs", "out")); err != nil || strings.TrimSpace(string(out)) != user {
		t.Errorf("the job ran as %q (%v)", out, err)
	}
	held := strings.TrimSpace(c.must("sbatch", "--parsable", "--hold", "--wrap", "true"))
	for what, try := range map[string][]string{
		"another's job":    {"scancel", held},
		"a node":           {"scontrol", "update", "nodename=node1", "state=drain", "reason=x"},
		"a token":          {"scontrol", "token"},
		"the controllers":  {"muster", "controllers", "handover"},
		"a job as root":    {"sbatch", "--wrap", "true"},
		"a change as root": {"scontrol", "update", "nodename=node1", "state=drain", "reason=x"},
	} {
		uid := user
		if strings.HasSuffix(what, "as root") {
			uid = "0"
		}
		if try[0] == "muster" {
			try = try[1:]
		}
		if out, err := as(uid, try...); err == nil {
			t.Errorf("%s: allowed: %s", what, out)
		}
	}
	if out := strings.TrimSpace(c.must("squeue", "-h", "-j", held, "-o", "%t")); out != "PD" {
		t.Errorf("the held job is %s", out)
	}

	// The key rotates without a restart of the controller; one that others may read is refused
	// by munged, and the command says where to look.
	m.stop()
	if out, err := as(user, "squeue"); err == nil || !strings.Contains(out, "munged does not answer at "+m.socket) {
		t.Errorf("without munged: %v\n%s", err, out)
	}
	m.rotate()
	if err := os.Chmod(m.file("key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := m.start(); err == nil {
		t.Error("munged took a key that others may read")
	}
	if out, err := as(user, "squeue"); err == nil || !strings.Contains(out, "it refuses a munge.key that others may read") {
		t.Errorf("with an open key: %v\n%s", err, out)
	}
	if err := os.Chmod(m.file("key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.start(); err != nil {
		t.Fatal(err)
	}
	if out, err := as(user, "squeue", "-h"); err != nil {
		t.Errorf("after the rotation: %v\n%s", err, out)
	}

	// A host whose munged has another key, or that has another cluster's authority.
	other := newMungeHost(t)
	if err := other.start(); err != nil {
		t.Fatal(err)
	}
	conf, err := os.ReadFile(filepath.Join(c.dir, "slurm.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(host, "slurm.conf"), []byte(strings.ReplaceAll(string(conf), m.socket, other.socket)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := as(user, "squeue"); err == nil || !strings.Contains(out, "munge.key of the two hosts is not the same") {
		t.Errorf("with another key: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(host, "slurm.conf"), conf, 0o644); err != nil {
		t.Fatal(err)
	}
	stranger := shortDir(t)
	c.must("init", "--dir", stranger, "--nodes", "1", "--port", fmt.Sprint(freePorts(t)))
	place(filepath.Join(stranger, "state", "tls", "ca.crt"), "ca.crt", 0o644)
	if out, err := as(user, "squeue"); err == nil || !strings.Contains(out, "not a controller of the cluster") {
		t.Errorf("with another authority: %v\n%s", err, out)
	}
	if err := os.Remove(filepath.Join(host, "muster-munge")); err != nil {
		t.Fatal(err)
	}
	if out, err := as(user, "squeue"); err == nil || !strings.Contains(out, "muster-munge") {
		t.Errorf("without the program: %v\n%s", err, out)
	}
}
