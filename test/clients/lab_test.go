package clients

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/test/ports"
)

// lab is the cluster that all clients of the table share, as they do at a site.
type lab struct {
	dir   string
	links string // the folder with Slurm's names, first in PATH
	user  string
}

// startLab brings up two nodes with 8 CPUs and 8 simulated GPUs each, an account
// and the user who runs the test in it.
func startLab(t *testing.T) *lab {
	t.Helper()
	programs, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	muster := filepath.Join(programs, "muster")
	if _, err := os.Stat(muster); err != nil {
		t.Skipf("%v: run `make build` first (`make test-clients` does)", err)
	}
	dir, err := os.MkdirTemp("", "clients") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Logf("%v", err)
		}
	})
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{dir: dir, links: filepath.Join(dir, "names"), user: me.Username}
	port := strconv.Itoa(freePorts(t))
	for _, line := range []string{
		muster + " init --dir " + dir + " --nodes 2 --gpus 8 --port " + port + " --conf KillWait=2",
		// How full this machine is decides nothing here.
		"sed -i 's/^  rules: \\[\"clock_error off\"/&, \"disk_space off\"/' " + dir + "/muster.yaml && grep -q 'disk_space off' " + dir + "/muster.yaml",
		muster + " up --dir " + dir,
		"mkdir " + l.links + " && " + muster + " links " + l.links,
		"sacctmgr -i add account lab",
		"sacctmgr -i add user " + l.user + " account=lab",
		"sacctmgr -i modify user " + l.user + " set defaultaccount=lab",
	} {
		if out, code := l.shell(t, dir, line, ""); code != 0 {
			t.Fatalf("%s: exit code %d\n%s", line, code, out)
		}
	}
	t.Cleanup(func() {
		if out, code := l.shell(t, dir, muster+" down --dir "+dir+" --jobs", ""); code != 0 {
			t.Errorf("muster down: exit code %d\n%s", code, out)
		}
	})
	return l
}

// freePorts finds ports for a lab.
func freePorts(t *testing.T) int {
	t.Helper()
	start, err := new(ports.Finder).Free(ports.Lab)
	if err != nil {
		t.Fatal(err)
	}
	return start
}

// shell runs a line as a program's shell does, and gives its output and exit code.
// What it says to its error output is part of the answer only when it fails.
func (l *lab) shell(t *testing.T, dir, line, stdin string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/bash", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"MUSTER_SOCKET="+filepath.Join(l.dir, "run", "muster.sock"),
		"PATH="+l.links+":"+os.Getenv("PATH"), "USER="+l.user)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errors bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = &errors
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatalf("%s: %v", line, err)
	}
	code := cmd.ProcessState.ExitCode()
	if code != 0 {
		out.Write(errors.Bytes())
	}
	return out.String(), code
}

// life is one client on its way through its steps: what it has learned so far.
type life struct {
	lab   *lab
	dir   string
	names map[string]string
}

var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

// fill puts what the client has learned into a text.
func (f *life) fill(text string, quote func(string) string) string {
	return placeholder.ReplaceAllStringFunc(text, func(name string) string {
		value, ok := f.names[strings.Trim(name, "{}")]
		if !ok {
			return name
		}
		return quote(value)
	})
}

func asItIs(text string) string { return text }

// do makes one step, again and again if it waits for something.
func (f *life) do(t *testing.T, s step) {
	t.Helper()
	line := f.fill(s.line, asItIs)
	pattern := regexp.MustCompile(f.fill(s.reads, regexp.QuoteMeta))
	var problem string
	for range 600 {
		out, code := f.lab.shell(t, f.dir, line, f.fill(s.stdin, asItIs))
		if problem = f.judge(s, pattern, out, code); problem == "" {
			return
		}
		if !s.waits {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s: %s\n%s", s.does, line, problem)
}

// judge reads an answer as the client does, and keeps what it learns from it.
func (f *life) judge(s step, pattern *regexp.Regexp, out string, code int) string {
	if code != s.code {
		return fmt.Sprintf("exit code %d, expected %d\n%s", code, s.code, out)
	}
	if s.holds != "" {
		return lacks(out, f.fill(s.holds, asItIs))
	}
	if s.each {
		for line := range strings.SplitSeq(strings.TrimSuffix(out, "\n"), "\n") {
			if !pattern.MatchString(line) {
				return fmt.Sprintf("%q\ndoes not match %s", line, pattern)
			}
		}
		return ""
	}
	found := pattern.FindStringSubmatch(out)
	if found == nil {
		return fmt.Sprintf("%q\ndoes not match %s", out, pattern)
	}
	for i, name := range pattern.SubexpNames() {
		if name != "" {
			f.names[name] = found[i]
		}
	}
	return ""
}

// TestClients walks every client of the table through its life, side by side.
//
//muster:table one row for each client, one step for each of its command lines
func TestClients(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l := startLab(t)
	for _, c := range clients() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := &life{lab: l, dir: t.TempDir()}
			f.names = map[string]string{
				"dir":   f.dir,
				"lab":   l.dir,
				"user":  l.user,
				"self":  self,
				"today": time.Now().Format("2006-01-02"),
			}
			for name, text := range c.files {
				path := filepath.Join(f.dir, name)
				if err := os.WriteFile(path, []byte(f.fill(text, asItIs)), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range c.steps {
				f.do(t, s)
			}
		})
	}
}
