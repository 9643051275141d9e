package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/musterhpc/muster/nodeagent/telemetry/host"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// TestNodeThatCannotHavePrivateFolders: all that is wrong is said at once, by
// name, and a node that is in order says nothing.
func TestNodeThatCannotHavePrivateFolders(t *testing.T) {
	if os.Geteuid() != 0 {
		if why := privateSettings(t, "BasePath=/var").checkSpace(); !strings.Contains(why, "is not root") {
			t.Errorf("an ordinary user's node: %q", why)
		}
		return
	}
	base, err := os.MkdirTemp("/var/tmp", "base")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(base) }()
	open := filepath.Join(base, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, line, state string
		said              []string
	}{
		{"in order", "BasePath=" + base + " InitScript=/bin/true", "/var/lib/muster", nil},
		{"made when it is needed", "BasePath=" + base + "/new AutoBasePath=yes", "/var/lib/muster", nil},
		{"missing", "BasePath=" + base + "/new", "/var/lib/muster", []string{"no such file"}},
		{"open to all", "BasePath=" + open, "/var/lib/muster", []string{"can be written by others"}},
		{"all of it", "BasePath=" + open + " Dirs=/tmp,/nowhere InitScript=/etc/passwd", "/tmp/state",
			[]string{"the agent's state folder /tmp/state lies in /tmp", "/nowhere of Dirs", "can be written by others", "/etc/passwd is not a program"}},
	} {
		s := privateSettings(t, c.line)
		s.StateDir = c.state
		why := s.checkSpace()
		if (why == "") != (len(c.said) == 0) {
			t.Errorf("%s: %q", c.name, why)
		}
		for _, text := range c.said {
			if !strings.Contains(why, text) {
				t.Errorf("%s: %q lacks %q", c.name, why, text)
			}
		}
	}
}

// privateSettings are those of a node with one line in job_container.conf.
func privateSettings(t *testing.T, line string) *Settings {
	t.Helper()
	fsys := fstest.MapFS{"job_container.conf": {Data: []byte(line + "\n"), Mode: 0o644}}
	conf, ps := slurmconf.ReadJobContainer(fsys, "job_container.conf")
	if err := ps.Err(); err != nil {
		t.Fatal(err)
	}
	s := &Settings{Cluster: &slurmconf.Cluster{Containers: conf}, Node: &spec.NodeSpec{Name: "n1"}, Host: host.Inventory{Hostname: "h1"}}
	s.Shepherd = "/usr/sbin/muster-shepherd"
	return s
}
