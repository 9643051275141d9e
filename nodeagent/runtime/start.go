//go:build linux

package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
)

// Config says which shepherd an agent keeps.
type Config struct {
	Binary  string // the muster-shepherd program
	Dir     string // state folder, shared by all releases; users must be able to pass through it
	Node    string
	Release string   // of the shepherd to start; names its socket's folder
	Args    []string // more flags for it
	Env     []string // its environment; nil inherits the agent's
	// CallTimeout bounds each call to the shepherd; 0 is DefaultCallTimeout.
	CallTimeout time.Duration
}

func (c *Config) callTimeout() time.Duration {
	if c.CallTimeout > 0 {
		return c.CallTimeout
	}
	return DefaultCallTimeout
}

// Socket gives the path of a release's socket.
func Socket(dir, release string) string { return filepath.Join(dir, release, "sock") }

// HasJournal tells whether the shepherd of a release, running or not, has written down runs.
func HasJournal(dir, release string) bool {
	_, err := os.Stat(filepath.Join(dir, release, protocol.JournalName))
	return err == nil
}

// CgroupArgs gives the Args of a Config for CgroupPlugin of cgroup.conf.
func CgroupArgs(plugin string) []string {
	switch plugin {
	case "cgroup/v1":
		return []string{"--cgroup-mode", "v1"}
	case "cgroup/v2":
		return []string{"--cgroup-mode", "v2"}
	case "disabled":
		return []string{"--cgroup-mode", "none"}
	}
	return nil
}

// logName is the file that a started shepherd logs to, in its own folder.
const logName = "log"

// exitRunning is the shepherd's exit code when another already serves.
const exitRunning = 3

// Start connects to the shepherd of the configured release and starts it if
// none answers. A shepherd that it starts is in its own session, logs to
// DIR/RELEASE/log, and outlives the caller. (A service manager that kills a
// whole control group at a restart would kill it nevertheless: give it a unit
// of its own, or set KillMode=process.)
func Start(ctx context.Context, config Config) (*Client, error) {
	socket := Socket(config.Dir, config.Release)
	client, err := dialWithin(ctx, socket, config.callTimeout())
	switch {
	case errors.Is(err, ErrNoAnswer):
		// A second shepherd must not start beside one that is only stopped: both
		// would own the same runs once it goes on.
		return nil, fmt.Errorf(
			"the shepherd at %s is running but does not answer; continue or kill its process: %w",
			socket,
			err,
		)
	case err != nil:
	case !client.Hello().Draining:
		return client, nil
	default:
		// It was drained, by a `muster down` or by a newer release that has been
		// taken back: it is wanted again. One that refuses is about to be gone.
		err = client.Resume(ctx)
		if err == nil {
			return client, nil
		}
		client.Close()
	}
	if err := launchShepherd(ctx, config); err != nil {
		return nil, err
	}
	// A new shepherd answers once it knows what those of older releases have, and
	// waits for each that is stopped.
	return dialWithin(ctx, socket, 3*config.callTimeout())
}

func launchShepherd(ctx context.Context, config Config) error {
	folder := filepath.Join(config.Dir, config.Release)
	if err := os.MkdirAll(folder, 0o711); err != nil {
		return fmt.Errorf("start shepherd: %w", err)
	}
	logPath := filepath.Join(folder, logName)
	logFile, err := os.OpenFile(logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start shepherd: %w", err)
	}
	defer func() { _ = logFile.Close() }()
	began, err := logFile.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("start shepherd: %w", err)
	}
	ready, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start shepherd: %w", err)
	}
	defer func() { _ = ready.Close() }()
	args := append(
		[]string{
			"--dir",
			config.Dir,
			"--node",
			config.Node,
			"--release",
			config.Release,
			"--ready-fd",
			"3",
		},
		config.Args...)
	cmd := exec.Command(config.Binary, args...)
	cmd.Stderr = logFile
	cmd.Stdout = logFile
	cmd.Env = config.Env
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{write}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		return fmt.Errorf("start shepherd: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the shepherd
	got := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(ready, make([]byte, 1))
		got <- err
	}()
	select {
	case err := <-got:
		if err == nil {
			return nil
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	err = <-ended
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitRunning {
		return nil // another was quicker
	}
	return fmt.Errorf(
		"the shepherd did not start (%w); it said: %s",
		err,
		readLogSince(logPath, began),
	)
}

// readLogSince reads what the shepherd has logged since the offset.
func readLogSince(path string, from int64) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = file.Close() }()
	b := make([]byte, 2000)
	n, _ := file.ReadAt(b, from)
	return string(b[:n])
}
