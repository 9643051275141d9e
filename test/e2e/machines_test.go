package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/client"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/test/chaos/fabric"
)

// The user of these tests, whom every Debian has.
const (
	userName = "games"
	userID   = "5"
	groupID  = "60"
)

// machine is a machine of its own as far as a cluster can tell: its network, its
// name, its /etc, /run and /var/lib. Only the rest of the file system is shared,
// as homes are.
type machine struct {
	t    *testing.T
	site *site
	name string
	ip   string
	pid  int    // of what holds the namespaces
	port string // its end at the switch
}

// site is some machines on one switch.
type site struct {
	t    *testing.T
	dir  string
	hub  *machine
	last int
	// fabric is the switch where it is to lose and delay what goes through it; nil = a bridge.
	fabric *fabric.Switch
}

// newSite makes the switch, or skips where this is not possible.
func newSite(t *testing.T) *site {
	t.Helper()
	s := newHub(t)
	if out, err := s.hub.command("ip", "link", "add", "hub", "type", "bridge").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: this kernel or container has no bridge: %v %s", err, out)
	}
	s.hub.must("ip", "link", "set", "hub", "up")
	return s
}

// newBadSite is newSite with a switch that can lose and delay what goes through it.
func newBadSite(t *testing.T, seed uint64) *site {
	t.Helper()
	s := newHub(t)
	s.fabric = fabric.New(seed)
	t.Cleanup(s.fabric.Close)
	return s
}

// newHub makes the namespace in which the switch is, or skips where this is not possible.
func newHub(t *testing.T) *site {
	t.Helper()
	need(t)
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: several machines need network namespaces, which only root makes")
	}
	for _, tool := range []string{"ip", "unshare", "nsenter", "setpriv"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: several machines need %s: %v (deploy/deps/install.sh brings it)", tool, err)
		}
	}
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: dir}
	if s.hub = s.hold("hub"); s.hub == nil {
		t.Skip("SKIPPED: this kernel or container lets nobody make network namespaces")
	}
	return s
}

// hold makes namespaces and a process that keeps them; nil where that is not
// allowed.
func (s *site) hold(name string) *machine {
	s.t.Helper()
	script := "hostname " + name + " && mount -t tmpfs none /run && mount -t tmpfs none /var/lib && cp -a /etc /run/etc && rm -rf /run/etc/slurm /run/etc/muster && " +
		"mkdir /run/etc/slurm && mount --bind /run/etc /etc && ip link set lo up && echo ready && exec sleep 600"
	cmd := exec.Command("unshare", "--net", "--uts", "--mount", "--propagation", "private", "sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		clearNetwork(cmd.Process.Pid)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	word := make([]byte, 6)
	if n, _ := out.Read(word); string(word[:n]) != "ready\n" {
		return nil
	}
	return &machine{t: s.t, site: s, name: name, pid: cmd.Process.Pid}
}

// clearNetwork ends what is left in the network of a process: shepherds and
// jobs outlive the agents.
func clearNetwork(pid int) {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return
	}
	all, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, path := range all {
		other, err := strconv.Atoi(strings.Split(path, "/")[2])
		if link, lerr := os.Readlink(path); err == nil && lerr == nil && link == own && other != pid {
			_ = syscall.Kill(other, syscall.SIGKILL)
		}
	}
}

// bins is the folder of the commands' own names.
func (s *site) bins() string { return filepath.Join(s.dir, "bin") }

// home is the folder that all machines share.
func (s *site) home() string { return filepath.Join(s.dir, "home") }

// machine adds a machine to the switch.
func (s *site) machine(name string) *machine {
	s.t.Helper()
	m := s.hold(name)
	if m == nil {
		s.t.Fatalf("no namespaces for %s", name)
	}
	s.last++
	m.ip, m.port = fmt.Sprintf("10.99.0.%d", s.last), "p-"+name
	s.hub.must("ip", "link", "add", m.port, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(m.pid))
	if s.fabric == nil {
		s.hub.must("ip", "link", "set", m.port, "master", "hub", "up")
	} else {
		s.hub.must("ip", "link", "set", m.port, "up")
		if err := s.hub.within(func() error { return s.fabric.Plug(name, m.port) }); err != nil {
			s.t.Fatal(err)
		}
	}
	m.must("ip", "addr", "add", m.ip+"/24", "dev", "eth0")
	m.must("ip", "link", "set", "eth0", "up")
	return m
}

// command is a command on the machine, as root.
func (m *machine) command(args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(m.pid), "-n", "-u", "-m"}, args...)...)
	cmd.Env = []string{"PATH=" + m.site.bins() + ":" + os.Getenv("PATH"), "LANG=C", "TZ=UTC", "HOME=" + os.Getenv("HOME")}
	return cmd
}

func (m *machine) must(args ...string) string {
	m.t.Helper()
	out, err := m.command(args...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s: %s: %v\n%s", m.name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// daemon starts a program that lasts, and tells how to kill it.
func (s *site) daemon(m *machine, args ...string) (kill func()) {
	s.t.Helper()
	log := filepath.Join(s.dir, m.name+".log")
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	cmd := m.command(args...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	dead := false
	kill = func() {
		if !dead {
			dead = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	s.t.Cleanup(func() {
		kill()
		if s.t.Failed() {
			data, _ := os.ReadFile(log)
			s.t.Logf("%s:\n%s", log, data[max(0, len(data)-4000):])
		}
	})
	return kill
}

// within does something in the network of a machine.
func (m *machine) within(do func() error) error {
	m.t.Helper()
	runtime.LockOSThread() // the network belongs to the thread
	defer runtime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		m.t.Fatal(err)
	}
	defer home.Close()
	there, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", m.pid))
	if err != nil {
		m.t.Fatal(err)
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		m.t.Fatal(err)
	}
	err = do()
	if serr := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); serr != nil {
		m.t.Fatal(serr)
	}
	return err
}

// shell is a command in the shared home, as the user or as root.
func (m *machine) shell(root bool, args ...string) *exec.Cmd {
	line := []string{"env", "-C", m.site.home()}
	if !root {
		line = append(line, "setpriv", "--reuid", userID, "--regid", groupID, "--clear-groups", "--")
	}
	return m.command(append(line, args...)...)
}

// muster is a command on the machine, as the user or as root.
func (m *machine) muster(root bool, args ...string) (stdout, stderr string, code int) {
	m.t.Helper()
	cmd := m.shell(root, append([]string{bin("muster")}, args...)...)
	stop := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		m.t.Errorf("%s: muster %v: %v", m.name, args, err)
		return "", "", -1
	}
	return strings.TrimSpace(out.String()), errs.String(), cmd.ProcessState.ExitCode()
}

// user is a command that has to work, as the user.
func (m *machine) user(args ...string) string {
	m.t.Helper()
	out, errs, code := m.muster(false, args...)
	if code != 0 {
		m.t.Fatalf("on %s: muster %s: exit %d\n%s\n%s", m.name, strings.Join(args, " "), code, out, errs)
	}
	return out
}

// until asks again until the answer is the wanted one.
func (m *machine) until(want string, args ...string) {
	m.t.Helper()
	var got, errs string
	for range 600 {
		if got, errs, _ = m.muster(false, args...); got == want {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	m.t.Fatalf("on %s: muster %s\nsays  %q %s\nnot   %q", m.name, strings.Join(args, " "), got, errs, want)
}

// refused is a command that has to fail with a text.
func (m *machine) refused(root bool, text string, args ...string) {
	m.t.Helper()
	out, errs, code := m.muster(root, args...)
	if code == 0 || !strings.Contains(errs, text) || strings.Count(errs, "\n") > 2 {
		m.t.Errorf("on %s: muster %s: exit %d, %q %q; expected a line with %q", m.name, strings.Join(args, " "), code, out, errs, text)
	}
}

// begin starts a command of the user's and gives its output and exit code when
// it has ended.
func (m *machine) begin(args ...string) (ended func() (string, int)) {
	type result struct {
		out  string
		code int
	}
	done := make(chan result, 1)
	go func() {
		out, errs, code := m.muster(false, args...)
		done <- result{out + errs, code}
	}()
	return func() (string, int) {
		r := <-done
		return r.out, r.code
	}
}

// far is a controller's host, a login host and two compute hosts.
type far struct {
	*site
	ctl, login, c1, c2 *machine
	killController     func()
	killLogin          func()
	revoked            pageStep // the command of the page that sends the login host away
	words              map[string]string
}

func newFar(t *testing.T) *far {
	t.Helper()
	f := &far{site: newSite(t)}
	f.ctl, f.login, f.c1, f.c2 = f.machine("ctl"), f.machine("login"), f.machine("c1"), f.machine("c2")
	if err := os.Mkdir(f.home(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(f.home(), 0o777); err != nil {
		t.Fatal(err)
	}
	f.tools()
	f.page()
	return f
}

// tools are the commands' own names, and an ssh that knows these machines.
func (f *far) tools() {
	f.t.Helper()
	if err := os.Mkdir(f.bins(), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if out, err := exec.Command(bin("muster"), "links", f.bins()).CombinedOutput(); err != nil {
		f.t.Fatalf("muster links: %v %s", err, out)
	}
	ssh := "#!/bin/sh\ncase $1 in\n"
	for _, m := range f.machines() {
		ssh += fmt.Sprintf("%s) pid=%d ;;\n", m.name, m.pid)
	}
	ssh += "esac\nshift\nexec nsenter -t $pid -n -u -m \"$@\"\n"
	if err := os.WriteFile(filepath.Join(f.bins(), "ssh"), []byte(ssh), 0o755); err != nil {
		f.t.Fatal(err)
	}
	for _, name := range []string{"muster", "muster-agent"} {
		if err := os.Symlink(bin(name), filepath.Join(f.bins(), name)); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *far) machines() []*machine { return []*machine{f.ctl, f.login, f.c1, f.c2} }

// unit starts what a systemd unit of deploy/systemd starts.
func (f *far) unit(m *machine, name string) (kill func()) {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "systemd", name+".service"))
	if err != nil {
		f.t.Fatal(err)
	}
	_, line, found := strings.Cut(string(data), "\nExecStart=/usr/bin/")
	line, _, _ = strings.Cut(line, "\n")
	words := strings.Fields(line)
	if !found || len(words) == 0 {
		f.t.Fatalf("%s.service starts nothing of /usr/bin", name)
	}
	words[0] = bin(words[0])
	return f.daemon(m, words...)
}

// machinesPage is executed here, as the way in which this cluster is made.
const machinesPage = "several-machines.md"

// page makes the cluster as docs/operations says, up to where a machine is sent
// away: that is the last part of the test.
func (f *far) page() {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations", machinesPage))
	if err != nil {
		f.t.Fatal(err)
	}
	_, conf, _ := strings.Cut(string(data), "```conf\n")
	conf, _, _ = strings.Cut(conf, "```")
	if err := os.WriteFile(filepath.Join(f.dir, "slurm.conf"), []byte(conf), 0o644); err != nil {
		f.t.Fatal(err)
	}
	f.ctl.must("cp", filepath.Join(f.dir, "slurm.conf"), "/etc/slurm/slurm.conf")
	words := map[string]string{}
	for _, s := range f.steps(string(data)) {
		if strings.Contains(s.command, "revoke") {
			f.revoked = s
			f.words = words
			return
		}
		f.step(f.t, s, words)
	}
	f.t.Fatal("the page sends no machine away")
}

// pageStep is one command of the page.
type pageStep struct {
	step
	on   *machine
	root bool
}

var prompt = regexp.MustCompile(`^([a-z0-9]+)([#$]) (.*)$`)

// steps reads the ```machines blocks of a page.
func (f *far) steps(text string) []pageStep {
	var out []pageStep
	inside := false
	for i, line := range strings.Split(text, "\n") {
		m := prompt.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```machines"
		case inside && m != nil:
			at := slices.IndexFunc(f.machines(), func(x *machine) bool { return x.name == m[1] })
			if at < 0 {
				f.t.Fatalf("%s:%d: there is no machine %s", machinesPage, i+1, m[1])
			}
			out = append(out, pageStep{step: step{line: i + 1, command: m[3]}, on: f.machines()[at], root: m[2] == "#"})
		case inside && len(out) > 0:
			out[len(out)-1].want = append(out[len(out)-1].want, line)
		}
	}
	return out
}

// step executes a command of the page until it says what the page says.
func (f *far) step(t *testing.T, s pageStep, words map[string]string) {
	t.Helper()
	if unit, is := strings.CutPrefix(s.command, "systemctl enable --now "); is {
		kill := f.unit(s.on, unit)
		switch s.on {
		case f.ctl:
			f.killController = kill
		case f.login:
			f.killLogin = kill
		}
		return
	}
	want, names := pattern(s.want, words)
	var got string
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(100 * time.Millisecond) {
		command := s.command
		for name, word := range words {
			command = strings.ReplaceAll(command, "{"+name+"}", word)
		}
		out, _ := s.on.shell(s.root, "sh", "-c", command).CombinedOutput() // a refusal is part of the page
		got = plain(string(out))
		if m := want.FindStringSubmatch(got); m != nil {
			for i, name := range names {
				words[name] = m[i+1]
			}
			return
		}
		if !slices.Contains([]string{"squeue", "sinfo", "sacct", "sort", "scontrol"}, strings.Fields(command)[0]) {
			break // it would be done twice
		}
	}
	t.Fatalf("%s:%d\n%s: %s\n%s\nexpected\n%s", machinesPage, s.line, s.on.name, s.command, got, strings.Join(s.want, "\n"))
}

// answers waits until a machine's commands reach the controller.
func (m *machine) answers() {
	m.t.Helper()
	for range 300 {
		if _, _, code := m.muster(false, "scontrol", "ping"); code == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	m.t.Fatalf("machine %s does not answer", m.name)
}

// startApart starts controller and accounting in a process each.
func (f *far) startApart() {
	f.t.Helper()
	f.daemon(f.ctl, bin("musterd"), "--role", "controller")
	f.daemon(f.ctl, bin("musterd"), "--role", "accounting")
	f.ctl.answers()
}

// startLogin starts the agent of the login host, which has no file but its
// certificate.
func (f *far) startLogin() {
	f.t.Helper()
	f.killLogin = f.unit(f.login, "muster-login")
	f.login.answers()
}

// as calls the controller from a machine with a certificate of its own, and says
// what it likes about who calls.
func (f *far) as(m *machine, certificates string, claim []framed.Pair, call func(*client.Client) error) error {
	f.t.Helper()
	var plain net.Conn
	err := m.within(func() (err error) {
		var d net.Dialer
		plain, err = d.DialContext(f.t.Context(), "tcp", net.JoinHostPort(f.ctl.ip, "6817"))
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	source, err := pki.LoadSource(pki.Dir(certificates))
	if err != nil {
		f.t.Fatal(err)
	}
	secure, err := source.Secure(f.ctl.ip, identity.Controller, framed.ALPN)(f.t.Context(), plain)
	if err != nil {
		return err
	}
	c := client.New(secure)
	defer c.Close()
	return call(c.With(claim...))
}

// TestMachines: every command from a login host and from inside jobs, on
// machines that share neither a socket nor a process.
func TestMachines(t *testing.T) {
	t.Parallel() // it waits more than it works
	f := newFar(t)
	for _, part := range []struct {
		name string
		test func(t *testing.T)
	}{{"commands", f.commands}, {"whom a machine may speak for", f.trust}, {"the login agent is killed", f.loginKilled},
		{"the network is parted", f.parted}, {"the controller restarts", f.controllerRestarts}, {"a machine is sent away", f.sentAway}} {
		ok := t.Run(part.name, func(t *testing.T) {
			for _, m := range append(f.machines(), f.hub) {
				m.t = t
			}
			part.test(t)
		})
		if !ok {
			return // the next would begin with what this one has left
		}
	}
}

func (f *far) script(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(f.home(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\nPATH="+filepath.Dir(bin("muster"))+":$PATH\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// written is what a file has once it ends with a text.
func (f *far) written(t *testing.T, name, end string) string {
	t.Helper()
	var data []byte
	for range 400 {
		data, _ = os.ReadFile(filepath.Join(f.home(), name))
		if strings.HasSuffix(string(data), end) {
			return string(data)
		}
		time.Sleep(50 * time.Millisecond)
	}
	jobs, _, _ := f.login.muster(false, "scontrol", "show", "job")
	t.Fatalf("%s has %q, which does not end with %q; jobs:\n%s", name, data, end, jobs)
	return string(data)
}

func (f *far) commands(t *testing.T) {
	l := f.login
	script := f.script(t, "both.sh", "muster srun -l hostname | sort\nmuster srun -N1 -n1 -w c2 sh -c 'cat; exit 3' <<EOF\nto the other\nEOF\n"+
		"echo left $?\nmuster squeue -h -o '%u %T'\nmuster sbatch --parsable --wrap true >next\nmuster scontrol token 2>&1\necho over\n")
	id := l.user("sbatch", "--parsable", "-N2", "-o", "both.out", script)
	out := f.written(t, "both.out", "over\n")
	for _, want := range []string{"0: c1\n1: c2\n", "to the other\n", "left 3\n", userName + " RUNNING\n", "ask for it on a login host"} {
		if !strings.Contains(out, want) {
			t.Errorf("a script on both nodes wrote %q, without %q", out, want)
		}
	}
	l.until(id+"|"+userName+"|COMPLETED|c[1-2]", "sacct", "-n", "-X", "-P", "-j", id, "-o", "JobID,User,State,NodeList")
	next := strings.TrimSpace(f.written(t, "next", "\n"))
	l.until(next, "sacct", "-n", "-X", "-P", "-j", next, "-o", "JobID")
	if out := l.user("srun", "-N2", "-l", "hostname"); !strings.Contains(out, "0: c1") || !strings.Contains(out, "1: c2") {
		t.Errorf("srun from the login host: %q", out)
	}
	if out := l.user("salloc", "-Q", "-N1", "-w", "c2", bin("muster"), "srun", "hostname"); out != "c2" {
		t.Errorf("salloc from the login host: %q", out)
	}
	if out, _, code := l.muster(false, "srun", "-N1", "sh", "-c", "exit 9"); code != 9 {
		t.Errorf("srun ended with %d, %q", code, out)
	}
	held := l.user("sbatch", "--parsable", "--hold", "--wrap", "sleep 60")
	if out := l.user("scontrol", "show", "job", held); !strings.Contains(out, "UserId="+userName) {
		t.Errorf("scontrol show job: %s", out)
	}
	l.user("scontrol", "update", "jobid="+held, "name=far")
	l.user("scontrol", "release", held)
	l.until("far R", "squeue", "-h", "-j", held, "-o", "%j %t")
	l.user("scancel", held)
	l.until("CANCELLED by "+userID, "sacct", "-n", "-X", "-P", "-j", held, "-o", "State")
	for _, line := range [][]string{{"sinfo"}, {"squeue", "--start"}, {"sreport", "cluster", "utilization"}, {"sprio"}, {"sshare"}, {"why", id}, {"scontrol", "show", "config"}, {"kpi"}, {"hosts"}} {
		l.user(line...)
	}
	out, errs, _ := f.ctl.muster(true, "sql", "SELECT groupUniqArray(host) AS h FROM events WHERE kind = 'JobSubmitted' AND actor = '"+userName+"'")
	if !strings.Contains(out, "login") || !strings.Contains(out, "c1") {
		t.Errorf("the events do not name the hosts that vouched: %q %s", out, errs)
	}
}

func (f *far) trust(t *testing.T) {
	list := func(c *client.Client) error {
		return c.Call(t.Context(), "/muster.v1.Cluster/ListJobs", &apiv1.ListJobsRequest{}, &apiv1.ListJobsReply{})
	}
	drain := func(c *client.Client) error {
		return c.Call(t.Context(), "/muster.v1.Cluster/UpdateNode", &apiv1.UpdateNodeRequest{Nodes: "c2", State: "DRAIN", Reason: "forged"}, &apiv1.UpdateNodeReply{})
	}
	node, login := filepath.Join(f.dir, "node-tls"), filepath.Join(f.dir, "login-tls")
	f.c1.must("cp", "-r", "/var/lib/muster/agent/c1/tls", node)
	f.login.must("cp", "-r", "/var/lib/muster/login/tls", login)
	for _, c := range []struct {
		what         string
		certificates string
		claim        []framed.Pair
		call         func(*client.Client) error
		why          string
	}{
		{"a node for a user without a job there", node, []framed.Pair{framed.Attest(5, 60)}, list, "has no job on that node"},
		{"a node for root", node, []framed.Pair{framed.Attest(0, 0)}, drain, "no privileges here"},
		{"a node for itself", node, nil, list, "may not call"},
		{"a login host for root", login, []framed.Pair{framed.Attest(0, 0)}, drain, "no privileges here"},
		{"a login host for a user who is no operator", login, []framed.Pair{framed.Attest(5, 60)}, drain, "denied"},
		{"a login host for itself", login, nil, list, "may not call"},
		{"a login host with nonsense", login, []framed.Pair{{Key: framed.HeaderAttest, Value: "root"}}, list, "want UID:GID"},
	} {
		if err := f.as(f.c1, c.certificates, c.claim, c.call); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v; expected %q", c.what, err, c.why)
		}
	}
	if err := f.as(f.c1, login, []framed.Pair{framed.Attest(5, 60)}, list); err != nil {
		t.Errorf("a login host for its user: %v", err)
	}
	if _, errs, code := f.login.muster(true, "squeue"); code != 0 {
		t.Errorf("root of the login host looks: %s", errs)
	}
	f.login.refused(true, "root on login has no privileges here", "sbatch", "--wrap", "true")
	f.login.refused(true, "root on login has no privileges here", "scontrol", "update", "nodename=c1", "state=drain", "reason=x")
	f.c1.refused(false, "has no job on that node", "squeue")
	f.login.refused(false, "denied", "token", "c1")
}

func (f *far) loginKilled(t *testing.T) {
	ended := f.login.begin("srun", "-N1", "sh", "-c", "echo began; sleep 3; echo went on; exit 4")
	f.login.until("R", "squeue", "-h", "-o", "%t")
	f.killLogin()
	f.login.refused(false, "nable to contact", "squeue")
	f.startLogin()
	if out, code := ended(); code != 4 || !strings.Contains(out, "began\nwent on") {
		t.Errorf("srun, whose agent was killed: exit %d, %q", code, out)
	}
}

func (f *far) parted(t *testing.T) {
	ended := f.login.begin("srun", "-N2", "sh", "-c", "sleep 4; echo $SLURM_PROCID went on; exit 5")
	f.login.until("R", "squeue", "-h", "-o", "%t")
	f.hub.must("ip", "link", "set", f.login.port, "down")
	began := time.Now()
	f.login.refused(false, "nable to contact", "squeue")
	t.Logf("squeue gave up after %v", time.Since(began).Round(time.Second))
	f.hub.must("ip", "link", "set", f.login.port, "up")
	if out, code := ended(); code != 5 || !strings.Contains(out, "0 went on") || !strings.Contains(out, "1 went on") {
		t.Errorf("srun over a partition: exit %d, %q", code, out)
	}
}

func (f *far) controllerRestarts(t *testing.T) {
	id := f.login.user("sbatch", "--parsable", "--wrap", "sleep 2")
	f.killController()
	f.login.refused(false, "nable to contact", "squeue")
	if _, errs, code := f.login.muster(false, "sbatch", "--wrap", "true"); code != 1 || !strings.Contains(errs, "nable to contact") {
		t.Errorf("sbatch without a controller: exit %d, %q", code, errs)
	}
	f.startApart()
	f.login.until("COMPLETED", "squeue", "-h", "-t", "all", "-j", id, "-o", "%T")
	f.login.refused(false, "accounting runs in a process of its own", "sacct")
}

func (f *far) sentAway(t *testing.T) {
	watching := f.login.begin("srun", "-N1", "sleep", "60")
	f.login.until("R", "squeue", "-h", "-o", "%t")
	f.step(t, f.revoked, f.words)
	f.login.refused(false, "is revoked", "squeue")
	f.login.refused(false, "is revoked", "sbatch", "--wrap", "true")
	if out, code := watching(); code == 0 {
		t.Errorf("srun over a revoked host: exit %d, %q", code, out)
	}
	f.killLogin()
	f.ctl.must("sh", "-c", "muster token --login login | ssh login muster-agent --login --enrol --controller "+f.ctl.ip+" --accounting "+f.ctl.ip+":6819 --token-file -")
	f.startLogin()
	f.login.user("squeue")
	f.login.until(userName, "sacct", "-n", "-X", "-P", "-j", "1", "-o", "User")
}
