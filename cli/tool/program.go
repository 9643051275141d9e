package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// handOver replaces this process by a program that lies beside it.
func handOver(env *Env, program, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return Fail(1, "muster: error: "+err.Error())
	}
	path := filepath.Join(filepath.Dir(self), program[0])
	argv := append(append([]string{path}, program[1:]...), args...)
	err = syscall.Exec(path, argv, env.Environ)
	if errors.Is(err, fs.ErrNotExist) {
		return Fail(
			1,
			fmt.Sprintf(
				"muster: error: %s is not installed beside muster (%s)",
				program[0],
				path,
			),
		)
	}
	return Fail(1, fmt.Sprintf("muster: error: %s: %v", path, err))
}

// Beside runs a program that lies beside this one; its error is what it said.
func Beside(ctx context.Context, stdin io.Reader, program string, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(self), program), args...)
	cmd.Stdin = stdin
	out, err := cmd.CombinedOutput()
	if text := strings.TrimSpace(string(out)); err != nil && text != "" {
		return fmt.Errorf("%s: %w", text, err)
	}
	return err
}
