package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sshLogins is a real sshd whose account phase asks for a job of the user.
type sshLogins struct {
	c    *cluster
	dir  string
	port int
}

// startSSHD starts Debian's sshd with a line of PAM. Its rules, and a shell for the user
// nobody, are in a mount namespace of its own, so that the machine's stay.
func startSSHD(t *testing.T, c *cluster, account string) *sshLogins {
	t.Helper()
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &sshLogins{c: c, dir: dir, port: freePorts(t)}
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, key := range []string{"host", "user"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)).CombinedOutput()
		if err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
	}
	users, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(users)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) == 7 && (fields[0] == "nobody" || fields[0] == "games") {
			fields[5] = "/tmp"
			fields[6] = "/bin/sh"
		}
		lines = append(lines, strings.Join(fields, ":"))
	}
	passwd := write("passwd", strings.Join(lines, "\n")+"\n", 0o644)
	rules := write("pam", account+"\nsession required pam_permit.so\nauth required pam_deny.so\n", 0o644)
	config := write("config", fmt.Sprintf(`Port %d
ListenAddress 127.0.0.1
HostKey %s/host
AuthorizedKeysFile %s/user.pub
StrictModes no
UsePAM yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
LogLevel VERBOSE
`, s.port, dir, dir), 0o644)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	server := exec.Command("unshare", "-m", "sh", "-c",
		"mount --bind "+rules+" /etc/pam.d/sshd && mount --bind "+passwd+" /etc/passwd && mount -t tmpfs tmpfs /run && "+
			"mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -f "+config)
	server.Stderr = log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("sshd says:\n%s", text)
		}
	})
	c.untilShell("grep -q 'Server listening' " + log.Name())
	return s
}

// command is an ssh of a user that runs a command.
func (s *sshLogins) command(user, line string) *exec.Cmd {
	return exec.Command("ssh", "-F", "none", "-i", filepath.Join(s.dir, "user"), "-p", fmt.Sprint(s.port),
		"-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=INFO",
		user+"@127.0.0.1", line)
}

func (s *sshLogins) run(user, line string) (string, error) {
	out, err := s.command(user, line).CombinedOutput()
	return string(out), err
}

// TestLoginsBySSH: a real sshd lets in who has a job on the node, puts the session into the
// job's extern step, counts what it uses there and ends it with the job. Who has none is
// refused with the reason. Both forms of the rule are tried.
func TestLoginsBySSH(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("sshd and control groups need root")
	}
	needPrograms(t, "/usr/sbin/sshd", "ssh", "ssh-keygen")
	if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("mount namespaces are not possible here: %v: %s", err, out)
	}
	module := bin("pam_muster.so")
	for _, form := range []struct{ name, line string }{
		{"pam_exec", "account required pam_exec.so stdout quiet " + bin("muster-agent") + " --adopt --state-dir STATE"},
		{"pam_muster", "account required " + module + " program=" + bin("muster-agent") + " state-dir=STATE"},
	} {
		t.Run(form.name, func(t *testing.T) {
			if _, err := os.Stat(module); err != nil && form.name == "pam_muster" {
				t.Skipf("%v: `make build` leaves it out without libpam0g-dev (deploy/deps/install.sh test installs it)", err)
			}
			c := start(t, "PrologFlags=Contain")
			if err := os.Chmod(c.dir, 0o755); err != nil {
				t.Fatal(err)
			}
			state := filepath.Join(c.dir, "state", "agents", "node1")
			s := startSSHD(t, c, strings.ReplaceAll(form.line, "STATE", state))
			tryLogins(t, c, s)
		})
	}
}

func tryLogins(t *testing.T, c *cluster, s *sshLogins) {
	t.Helper()
	if out, err := s.run("games", "echo inside"); err == nil || strings.Contains(out, "inside") ||
		!strings.Contains(out, "you have no job on this node") {
		t.Errorf("a login without a job: %v: %s", err, out)
	}
	submit := func() string {
		out, errs, code := c.runAs(65534, nil, "sbatch", "--parsable", "-w", "node1", "-o", "/dev/null", "-D", "/tmp", "--wrap", "sleep 1000")
		if code != 0 {
			t.Fatalf("%d %s %s", code, out, errs)
		}
		return strings.TrimSpace(out)
	}
	// A login that begins as soon as the job has its nodes finds its extern step, however
	// long the way of the order is.
	for range 5 {
		id := submit()
		c.until("RUNNING", "squeue", "-h", "-j", id, "-o", "%T")
		out, err := s.run("nobody", "cat /proc/self/cgroup")
		if err != nil || !strings.Contains(out, ".extern") {
			t.Errorf("a login right after the grant: %v: %s", err, out)
		}
		c.must("scancel", id)
		c.until("", "squeue", "-h", "-j", id)
	}
	id := submit()
	c.until("RUNNING", "squeue", "-h", "-j", id, "-o", "%T")
	// It computes for some seconds, then waits, with a child that has left its session.
	begun := filepath.Join(s.dir, "begun")
	if err := os.WriteFile(begun, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(begun, 0o666); err != nil {
		t.Fatal(err)
	}
	session := s.command("nobody", "setsid sleep 4321 & timeout 3 sh -c 'while :; do :; done'; cat /proc/self/cgroup >"+begun+"; sleep 1000")
	if err := session.Start(); err != nil {
		t.Fatal(err)
	}
	c.untilShell("test -s " + begun)
	groups, err := os.ReadFile(begun)
	if err != nil {
		t.Fatal(err)
	}
	if inside := externProcesses(t, string(groups)); len(inside) < 3 {
		t.Errorf("%d processes are in the extern step, expected its own and those of the login", len(inside))
	}
	c.must("scancel", id)
	if err := session.Wait(); err == nil {
		t.Error("the session ended by itself")
	}
	c.untilShell("! pgrep -f '[s]leep 4321'")
	c.untilShell("test -n \"$(" + bin("muster") + " sacct -n -P -j " + id + ".extern -o TotalCPU)\"")
	used := c.must("sacct", "-n", "-P", "-j", id+".extern", "-o", "TotalCPU")
	// A busy machine gives it less than the 3 s for which it computes.
	if used == "" || strings.HasPrefix(used, "00:00.0") || used == "00:00:00" {
		t.Errorf("the extern step has used %q of CPU, and its login computed", used)
	}
	if out, err := s.run("nobody", "echo inside"); err == nil || strings.Contains(out, "inside") {
		t.Errorf("a login after the job: %v: %s", err, out)
	}
}
