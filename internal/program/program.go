// Package program runs the programs of the site: prologs, epilogs, checks.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Run runs a program with nothing but its environment and arguments, credential somebody
// else if credential is not nil. It ends, with what it has started, when ctx does. Of what
// it prints the last line is part of the error.
func Run(
	ctx context.Context,
	file string,
	env []string,
	credential *syscall.Credential,
	args ...string,
) error {
	return RunOn(ctx, nil, file, env, credential, args...)
}

// RunOn is Run with what the program reads; nil = nothing.
func RunOn(
	ctx context.Context,
	input io.Reader,
	file string,
	env []string,
	credential *syscall.Credential,
	args ...string,
) error {
	cmd := exec.CommandContext(ctx, file, args...)
	cmd.Stdin = input
	return runPrepared(cmd, env, credential, nil)
}

// runPrepared runs a prepared command. begin, if it is not nil, is called once the process is
// there; its error ends it.
func runPrepared(
	cmd *exec.Cmd, env []string, credential *syscall.Credential, begin func(pid int) error,
) error {
	out := &tail{most: 300}
	cmd.Env = env
	cmd.Dir = "/"
	cmd.Stdout = out
	cmd.Stderr = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: credential}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	err := cmd.Start()
	if err != nil {
		return err
	}
	if begin != nil {
		if beginErr := begin(cmd.Process.Pid); beginErr != nil {
			_ = cmd.Cancel()
			_ = cmd.Wait()
			return beginErr
		}
	}
	err = cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // it left something behind that keeps its output open
	}
	if text := out.line(); err != nil && text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// tail keeps the end of what is written.
type tail struct {
	most int
	b    []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if n := len(t.b) - t.most; n > 0 {
		t.b = t.b[n:]
	}
	return len(p), nil
}

// line is the last line that is not empty.
func (t *tail) line() string {
	text := bytes.TrimSpace(t.b)
	return strings.ToValidUTF8(
		string(bytes.TrimSpace(text[bytes.LastIndexByte(text, '\n')+1:])),
		"?",
	)
}
