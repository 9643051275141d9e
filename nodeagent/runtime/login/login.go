//go:build linux

// Package login reads the login environment of a job's user on its node, which
// is what sbatch --get-user-env and --export=NONE ask for. It runs as a process
// of the job: as its user, in its control group, and with its limits. Login
// files that hang therefore delay the job they belong to and no other.
package login

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Verb is the argument with which the shepherd's program reads the login
// environment, and then executes a command in it:
//
//	muster-shepherd login PREFIX SHELL COMMAND [ARGUMENT...]
//
// SHELL is a [Shell] as JSON. COMMAND is an absolute path.
const Verb = "login"

// PrintVerb is the argument with which it prints its environment, for Verb to
// read: the login shell ends as this program.
const PrintVerb = "print-environment"

// Exit codes of the two.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// Shell is whose login environment is read, and how.
type Shell struct {
	User, Home string
	Path       string        // of the shell; empty: /bin/sh
	Plain      bool          // without the login files, as su without a dash
	Timeout    time.Duration // 0: the shell is not run, only Cache counts
	// Cache is a file with NAME=value lines that an administrator keeps. It is
	// read when the shell does not tell its environment in time; "" = no file.
	Cache string
}

// DefaultPath is the PATH with which a login shell begins.
const DefaultPath = "/usr/local/bin:/usr/bin:/bin"

// between is what the environment is found by in the shell's output: login files
// print before it, and what they leave behind may print after it.
var between = []byte("\x00muster-login-environment\x00")

// ErrNotTold means that the shell ended without telling its environment: a login
// file ended it, or it is no shell.
var ErrNotTold = errors.New("the shell ended before it could be asked for its environment")

// Args are the arguments that Main reads: the command runs in the environment.
func (s *Shell) Args(program, prefix string, command []string) ([]string, error) {
	told, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return append([]string{program, Verb, prefix, string(told)}, command...), nil
}

// Main is the program behind Verb. Variables that it was started with take
// precedence over those of the login environment. It returns only if the command
// cannot be executed.
func Main(args []string, errOut io.Writer) int {
	if len(args) < 3 {
		fmt.Fprintln(errOut, "muster-shepherd: login is for the shepherd itself: PREFIX, SHELL and COMMAND are missing")
		return exitUsage
	}
	prefix := args[0]
	command := args[2:]
	var shell Shell
	if err := json.Unmarshal([]byte(args[1]), &shell); err != nil {
		fmt.Fprintf(errOut, "%slogin: %v\n", prefix, err)
		return exitUsage
	}
	env, err := shell.Environment(context.Background())
	if err != nil {
		fmt.Fprintf(errOut,
			"%sUnable to get user's local environment, running only with passed environment: %v\n", prefix, err)
	}
	err = syscall.Exec(command[0], command, merge(shell.base(), env, os.Environ()))
	fmt.Fprintf(errOut, "%slogin: %s: %v\n", prefix, command[0], err)
	return exitFailed
}

// Print is the program behind PrintVerb.
func Print(out io.Writer) int {
	var text bytes.Buffer
	text.Write(between)
	for _, variable := range os.Environ() {
		text.WriteString(variable)
		text.WriteByte(0)
	}
	text.Write(between)
	if _, err := out.Write(text.Bytes()); err != nil {
		return exitFailed
	}
	return exitOK
}

// Environment asks the shell, and where it does not tell in time, the cache file.
// The error says why neither could.
func (s *Shell) Environment(ctx context.Context) ([]string, error) {
	why := errors.New("the site reads it from a file only (GetEnvTimeout=0)")
	if s.Timeout > 0 {
		var env []string
		env, why = s.ask(ctx)
		if why == nil {
			return env, nil
		}
	}
	if s.Cache == "" {
		return nil, why
	}
	env, err := readCache(s.Cache)
	if err != nil {
		return nil, fmt.Errorf("%w; %w", why, err)
	}
	return env, nil
}

// base is what a login begins with.
func (s *Shell) base() []string {
	return []string{
		"HOME=" + s.Home, "USER=" + s.User, "LOGNAME=" + s.User, "SHELL=" + s.program(), "PATH=" + DefaultPath,
	}
}

func (s *Shell) program() string {
	if s.Path == "" {
		return "/bin/sh"
	}
	return s.Path
}

// errTooLong is why a shell was ended.
var errTooLong = errors.New("time is up")

// leftOver is how long what the login files left running may hold the output open.
const leftOver = 100 * time.Millisecond

// ask runs the shell, which ends as this program and tells its environment.
func (s *Shell) ask(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, errTooLong)
	defer cancel()
	// The program is named by this process, because the folders above it may be
	// closed to the user.
	print := fmt.Sprintf("exec /proc/%d/exe %s", os.Getpid(), PrintVerb)
	cmd := exec.CommandContext(ctx, s.program(), "-c", print)
	if !s.Plain {
		cmd.Args[0] = "-" + filepath.Base(s.program())
	}
	cmd.Env = s.base()
	cmd.Dir = s.directory(ctx)
	var out bytes.Buffer
	cmd.Stdout = &out
	// A session of its own has no terminal: a login file that asks gets no answer.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = leftOver
	// A process that a home's file server holds cannot be killed. It is left behind
	// in the job's control group.
	ended := make(chan error, 1)
	go func() { ended <- cmd.Run() }()
	var err error
	select {
	case err = <-ended:
	case <-afterwards(ctx):
		return nil, s.tooLong()
	}
	if env, told := find(out.Bytes()); told {
		return env, nil
	}
	if errors.Is(context.Cause(ctx), errTooLong) {
		return nil, s.tooLong()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.program(), errors.Join(ErrNotTold, err))
	}
	return nil, fmt.Errorf("%s: %w", s.program(), ErrNotTold)
}

func (s *Shell) tooLong() error {
	return fmt.Errorf("%s did not tell it within %v", s.program(), s.Timeout)
}

// unkillable is how long a shell that was killed may take to end.
const unkillable = time.Second

// afterwards is closed when a killed process should long have ended.
func afterwards(ctx context.Context) <-chan struct{} {
	over := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(unkillable, func() { close(over) }) })
	return over
}

// directory is where the shell begins: the home if it answers in time. A home
// that hangs is left to the shell, which is ended by its time limit.
func (s *Shell) directory(ctx context.Context) string {
	there := make(chan bool, 1)
	go func() {
		info, err := os.Stat(s.Home)
		there <- err == nil && info.IsDir()
	}()
	select {
	case ok := <-there:
		if ok {
			return s.Home
		}
	case <-ctx.Done():
	}
	return "/"
}

// find finds the environment in a shell's output.
func find(out []byte) (env []string, told bool) {
	parts := bytes.Split(out, between)
	if len(parts) < 3 {
		return nil, false
	}
	for variable := range bytes.SplitSeq(parts[len(parts)-2], []byte{0}) {
		if keeps(string(variable)) {
			env = append(env, string(variable))
		}
	}
	return env, true
}

// readCache reads a file of NAME=value lines. A line without a name belongs to the
// value before it, as env prints values of several lines.
func readCache(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cached environment: %w", err)
	}
	var env []string
	for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n"), "\n") {
		name, _, assigns := strings.Cut(line, "=")
		switch {
		case assigns && isName(name):
			env = append(env, line)
		case len(env) > 0:
			env[len(env)-1] += "\n" + line
		}
	}
	return slices.DeleteFunc(env, func(variable string) bool { return !keeps(variable) }), nil
}

// isName tells a name that a shell could set.
func isName(text string) bool {
	for i := range len(text) {
		c := text[i]
		switch {
		case c == '_', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case i > 0 && c >= '0' && c <= '9':
		default:
			return false
		}
	}
	return text != ""
}

// keeps tells what a shell says of its user, and not of itself.
func keeps(variable string) bool {
	name, _, assigns := strings.Cut(variable, "=")
	switch name {
	case "_", "SHLVL", "PWD", "OLDPWD":
		return false
	}
	return assigns && name != ""
}

// merge makes one environment of several; the later ones take precedence.
func merge(environments ...[]string) []string {
	var out []string
	at := map[string]int{}
	for _, env := range environments {
		for _, variable := range env {
			name, _, _ := strings.Cut(variable, "=")
			if i, known := at[name]; known {
				out[i] = variable
				continue
			}
			at[name] = len(out)
			out = append(out, variable)
		}
	}
	return out
}
