package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/nodeagent/settings"
)

// maxSocket is what the kernel takes for the path of a unix socket.
const maxSocket = 107

// CheckShepherd finds what would keep the shepherd from starting.
func CheckShepherd(s *settings.Settings, version string) error {
	if p := runtime.Socket(s.ShepherdDir(), ShepherdRelease(version)); len(p) > maxSocket {
		return fmt.Errorf(
			"the path of the shepherd's socket is %d characters long, and the kernel takes %d: choose a shorter --state-dir (%s)",
			len(p),
			maxSocket,
			p,
		)
	}
	if _, err := os.Stat(s.Shepherd); err != nil {
		return fmt.Errorf("the shepherd: %w (name it with --shepherd)", err)
	}
	return nil
}

// ShepherdRelease names the shepherd that belongs to this agent.
func ShepherdRelease(version string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == 0 {
			return '-'
		}
		return r
	}, version)
}

// ShepherdConfig says how the shepherd of a node is started.
func ShepherdConfig(s *settings.Settings, version string) runtime.Config {
	return runtime.Config{
		Binary:      s.Shepherd,
		Dir:         s.ShepherdDir(),
		Node:        s.Node.Name,
		Release:     ShepherdRelease(version),
		Args:        runtime.CgroupArgs(s.Cluster.Cgroup.Plugin),
		Env:         s.ShepherdEnv,
		CallTimeout: time.Duration(s.Cluster.Config.Timing.MessageTimeout),
	}
}

// LockDir keeps a second agent out of a state folder.
func LockDir(dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf(
			"%s is in use by another muster-agent: give each agent its own --state-dir",
			dir,
		)
	}
	return func() { _ = file.Close() }, nil
}
