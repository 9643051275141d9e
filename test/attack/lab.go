package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/musterhpc/muster/test/attack/hostile"
	"github.com/musterhpc/muster/test/ports"
)

// The users. No user of a machine has these numbers.
const (
	victim = 400000011 + iota
	attacker
	neighbour
)

// maxJobs is MaxJobCount of the cluster: low, so that one user can try to fill it.
const maxJobs = 1000

// firstJob is a number that nothing else in an answer looks like.
const firstJob = 3_141_001

// untilLimit is how long a state is waited for.
const untilLimit = time.Minute

// commandLimit is how long one command may take before it is ended.
const commandLimit = 40 * time.Second

// secret stands in names and contents of the victim and of root. Whoever else
// reads it has broken in.
const secret = "kept-from-others-7f3a"

// lab is a cluster of its own, with what the attacks need of it.
type lab struct {
	o        *options
	dir      string
	port     int
	home     map[int]string // working directories of the users
	rootFile string         // of root, readable by root only
	keep     bool           // leave the folder for a look
}

func newLab(ctx context.Context, o *options) (*lab, error) {
	if os.Getuid() != 0 {
		return nil, errors.New(
			"the attacks are made as several users: run it as root, or with `unshare --map-auto --map-root-user make attack`",
		)
	}
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return nil, err
	}
	o.bin = bin
	raiseFileLimit()
	dir, err := os.MkdirTemp("", "muster-attack.")
	if err != nil {
		return nil, err
	}
	l := &lab{o: o, dir: dir, home: map[int]string{}}
	if err := l.up(ctx); err != nil {
		l.stopLab()
		return nil, err
	}
	return l, nil
}

// up makes the cluster and what is in it.
func (l *lab) up(ctx context.Context) error {
	// Other users reach the sockets only through folders that are open to them.
	if err := os.Chmod(l.dir, 0o755); err != nil {
		return err
	}
	for _, uid := range []int{victim, attacker, neighbour} {
		home := filepath.Join(l.dir, "home", strconv.Itoa(uid))
		if err := errors.Join(os.MkdirAll(home, 0o755), os.Chown(home, uid, uid)); err != nil {
			return err
		}
		l.home[uid] = home
	}
	l.rootFile = filepath.Join(l.dir, "of-root")
	if err := os.WriteFile(l.rootFile, []byte("#!/bin/sh\n# "+secret+"\n"), 0o600); err != nil {
		return err
	}
	var err error
	l.port, err = new(ports.Finder).Free(ports.Lab)
	if err != nil {
		return err
	}
	// A program of root that runs beside every job, for attacks by its environment.
	prolog := filepath.Join(l.dir, "prolog.sh")
	if err := os.WriteFile(prolog, []byte("#!/bin/bash\ntrue\n"), 0o755); err != nil {
		return err
	}
	init := []string{
		"init",
		"--dir",
		l.dir,
		"--cluster",
		"attacked",
		"--nodes",
		"1",
		"--cpus",
		"8",
		"--gpus",
		"1",
		"--port",
		strconv.Itoa(l.port),
	}
	for _, line := range []string{"PrivateData=jobs,nodes,reservations,usage", fmt.Sprintf("MaxJobCount=%d", maxJobs), "KillWait=2", "MinJobAge=2", fmt.Sprintf("FirstJobId=%d", firstJob), "Prolog=" +
		prolog} {
		init = append(init, "--conf", line)
	}
	for _, args := range [][]string{init, {"up", "--dir", l.dir}} {
		if out := l.runAs(ctx, 0, args...); out.code != 0 {
			return fmt.Errorf("muster %s: %s", args[0], out.allText())
		}
	}
	return nil
}

func (l *lab) stopLab() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out := l.runAs(ctx, 0, "down", "--dir", l.dir, "--jobs")
	if out.code != 0 {
		fmt.Fprintf(os.Stderr, "attack: muster down: %s\n", out.allText())
	}
	if l.keep {
		return
	}
	if err := os.RemoveAll(l.dir); err != nil {
		fmt.Fprintf(os.Stderr, "attack: %v\n", err)
	}
}

// checkAlive asks the controller, as root.
func (l *lab) checkAlive(ctx context.Context) error {
	if out := l.runAs(ctx, 0, "squeue", "-h"); out.code != 0 {
		return errors.New(out.allText())
	}
	return nil
}

func (l *lab) socketPath() string { return filepath.Join(l.dir, "run", "muster.sock") }
func (l *lab) restSocket() string { return filepath.Join(l.dir, "run", "rest.sock") }
func (l *lab) stepSocket() string { return filepath.Join(l.dir, "run", "steps.sock") }

// portAddress of one of the ports that muster init gives.
func (l *lab) portAddress(offset int) string { return fmt.Sprintf("127.0.0.1:%d", l.port+offset) }

// Offsets of the ports from the first one.
const (
	portAPI          = 0
	portAgent        = 1
	portREST         = 3
	portMetrics      = 4
	portAgentMetrics = 10
)

// dialAs connects to a local socket as a user.
func (l *lab) dialAs(ctx context.Context, path string, uid int) (net.Conn, error) {
	return hostile.DialUnix(ctx, path, uid)
}

// output is what a command did.
type output struct {
	out, err string
	code     int
	took     time.Duration
	expired  bool // it had to be ended
}

func (o output) allText() string { return o.out + o.err }

// runAs runs a command of muster as a user.
func (l *lab) runAs(ctx context.Context, uid int, args ...string) output {
	return l.runProgram(ctx, uid, "", filepath.Join(l.o.bin, "muster"), args...)
}

// runProgram runs a program as a user, with a text on its standard input.
func (l *lab) runProgram(ctx context.Context, uid int, stdin, name string, args ...string) output {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+l.socketPath(), "MUSTER_CONFIG="+
		filepath.Join(l.dir, "muster.yaml"))
	if uid != 0 {
		cmd.Dir = l.home[uid]
		cmd.Env = append(cmd.Env, "HOME="+l.home[uid], "USER="+strconv.Itoa(uid))
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)},
		}
	}
	var out, errs bytes.Buffer
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stdout = &out
	cmd.Stderr = &errs
	cmd.WaitDelay = time.Second
	began := time.Now()
	err := cmd.Run()
	o := output{
		out:     out.String(),
		err:     errs.String(),
		took:    time.Since(began),
		expired: ctx.Err() != nil,
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		o.code = exit.ExitCode()
	case err != nil:
		o.code = -1
		o.err += err.Error()
	}
	return o
}

// submitJob submits a job as a user and gives its number.
func (l *lab) submitJob(ctx context.Context, uid int, args ...string) (string, error) {
	out := l.runAs(ctx, uid, append([]string{"sbatch", "--parsable"}, args...)...)
	if out.code != 0 {
		return "", fmt.Errorf("sbatch %v as %d: %s", args, uid, out.allText())
	}
	return strings.TrimSpace(out.out), nil
}

// awaitAnswer asks a command of root until it gives the wanted answer.
func (l *lab) awaitAnswer(ctx context.Context, want string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, untilLimit)
	defer cancel()
	for {
		out := l.runAs(ctx, 0, args...)
		if strings.TrimSpace(out.out) == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf(
				"muster %v says %q, and not %q within %s",
				args,
				out.allText(),
				want,
				untilLimit,
			)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// controllerPID is the process of the controller.
func (l *lab) controllerPID() (int, error) {
	data, err := os.ReadFile(filepath.Join(l.dir, "run", "musterd.pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}

// residentMemory is what a process has resident, and the most that it ever had, in bytes.
func residentMemory(pid int) (now, peak int64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(data)) {
		for _, field := range []struct {
			name string
			to   *int64
		}{{"VmRSS:", &now}, {"VmHWM:", &peak}} {
			if rest, ok := strings.CutPrefix(line, field.name); ok {
				kib, err := strconv.ParseInt(
					strings.TrimSuffix(strings.TrimSpace(rest), " kB"),
					10,
					64,
				)
				if err != nil {
					return 0, 0, err
				}
				*field.to = kib << 10
			}
		}
	}
	return now, peak, nil
}

// raiseFileLimit lets this process open as many files as it may: attacks hold
// thousands of connections.
func raiseFileLimit() {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		limit.Cur = limit.Max
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) // fewer connections are tried without
	}
}

// discardAll reads what a connection says until it ends.
func discardAll(conn net.Conn) {
	_, err := io.Copy(io.Discard, conn)
	_ = err // it ends in either case
}
