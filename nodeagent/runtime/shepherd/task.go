//go:build linux

package shepherd

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/musterhpc/muster/nodeagent/runtime/minder"
	"github.com/musterhpc/muster/nodeagent/runtime/spawn"
	"github.com/musterhpc/muster/nodeagent/runtime/stdfile"
)

// taskFailed is the exit code of a job whose TaskProlog failed; cannotExecute
// that of one whose script could not be executed, as shells have it.
const (
	taskFailed    = 1
	cannotExecute = 127
)

// runTask is the program as a job's first process, or a task's, as the job's user:
// it runs the TaskProlog, does what that says, and becomes the script or the
// command. It returns only if that does not start.
//
//	muster-shepherd task PREFIX TASKPROLOG COMMAND [ARGUMENT...]
//
// An empty TASKPROLOG stands for a job that has only its login environment before it.
// In a container the image may lack the interpreter of the TaskProlog, or a mount
// of the user's may hide it: the task runs without it then, and its user is told.
func runTask(args []string, contained bool, out, errOut io.Writer) int {
	if len(args) < 3 {
		fmt.Fprintln(
			errOut,
			"muster-shepherd: task is for the shepherd itself: PREFIX, TASKPROLOG and SCRIPT are missing",
		)
		return exitUsage
	}
	prefix := args[0]
	prolog := args[1]
	argv := args[2:]
	var said bytes.Buffer
	var err error
	if prolog != "" {
		cmd := exec.Command(prolog)
		cmd.Stdout, cmd.Stderr = &said, errOut
		err = cmd.Run()
	}
	if contained && errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(errOut, "%sTaskProlog %s is left out: %s\n", prefix, prolog, minder.NotInImage)
		err = nil
	}
	env, printed := obeyProlog(said.Bytes(), os.Environ())
	if _, werr := out.Write(printed); werr != nil && err == nil {
		err = werr
	}
	if err != nil {
		fmt.Fprintf(errOut, "%sTaskProlog %s: %v\n", prefix, prolog, err)
		return taskFailed
	}
	errno := becomeCommand(argv, env)
	if filepath.Base(argv[0]) != scriptName {
		fmt.Fprintf(errOut, "%sexecve(): %s: %v\n", prefix, argv[0], stdfile.Describe(errno))
		return int(errno)
	}
	script, _ := os.ReadFile(argv[0]) // the message is shorter without it
	fmt.Fprintf(errOut, "%s%s\n", prefix, scriptMessage(script, errno))
	return cannotExecute
}

// becomeCommand executes a command in this process; it returns only the reason why
// that is not possible.
func becomeCommand(argv, env []string) syscall.Errno {
	var why syscall.Errno
	for _, path := range spawn.SearchPath(argv[0], env) {
		for try := 0; ; try++ {
			var errno syscall.Errno
			errors.As(syscall.Exec(path, argv, env), &errno)
			if errno == syscall.ETXTBSY && try < busyTries {
				//muster:sleep the launch of another job holds the script open until its child has executed
				time.Sleep(time.Millisecond)
				continue
			}
			if why == 0 || errno == syscall.EACCES {
				why = errno
			}
			break
		}
	}
	return why
}

// obeyProlog does what a TaskProlog wrote on its standard output: export NAME=value
// and unset NAME change the environment, print TEXT is what the job's output
// begins with. Other lines mean nothing.
func obeyProlog(said []byte, env []string) (changed []string, printed []byte) {
	changed = slices.Clone(env)
	for lines := bufio.NewScanner(bytes.NewReader(said)); lines.Scan(); {
		verb, rest, _ := strings.Cut(strings.TrimLeft(lines.Text(), " \t"), " ")
		switch verb {
		case "export":
			if name, value, ok := strings.Cut(strings.TrimLeft(rest, " \t"), "="); ok &&
				name != "" &&
				!strings.ContainsAny(name, " \t") {
				changed = append(withoutVariable(changed, name), name+"="+value)
			}
		case "unset":
			changed = withoutVariable(changed, strings.TrimSpace(rest))
		case "print":
			printed = append(append(printed, rest...), '\n')
		}
	}
	return changed, printed
}

// withoutVariable is an environment less one name.
func withoutVariable(env []string, name string) []string {
	return slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
}
