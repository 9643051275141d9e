//go:build linux

package shepherd

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// taskVerb is the argument with which the program is a job's first process, as
// the job's user, in front of the batch script: it runs the site's TaskProlog,
// does what that says, and becomes the script.
//
//	muster-shepherd task PREFIX TASKPROLOG SCRIPT [ARGUMENT...]
const taskVerb = "task"

// taskFailed is the exit code of a job whose TaskProlog failed; cannotExecute
// that of one whose script could not be executed, as shells have it.
const (
	taskFailed    = 1
	cannotExecute = 127
)

// throughProlog is the command line of a process that goes through the site's
// TaskProlog first.
func throughProlog(self, prefix, prolog string, argv []string) []string {
	return append([]string{self, taskVerb, prefix, prolog}, argv...)
}

// task is the program as a job's first process. It returns only if the script
// does not start.
func task(args []string, out, errOut io.Writer) int {
	if len(args) < 3 {
		fmt.Fprintln(errOut, "muster-shepherd: task is for the shepherd itself: PREFIX, TASKPROLOG and SCRIPT are missing")
		return exitUsage
	}
	prefix, prolog, argv := args[0], args[1], args[2:]
	cmd := exec.Command(prolog)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, errOut
	err := cmd.Run()
	env, printed := obey(said.Bytes(), os.Environ())
	if _, werr := out.Write(printed); werr != nil && err == nil {
		err = werr
	}
	if err != nil {
		fmt.Fprintf(errOut, "%sTaskProlog %s: %v\n", prefix, prolog, err)
		return taskFailed
	}
	for try := 0; ; try++ {
		err = syscall.Exec(argv[0], argv, env)
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries {
			break
		}
		//muster:sleep the launch of another job holds the script open until its child has executed
		time.Sleep(time.Millisecond)
	}
	script, _ := os.ReadFile(argv[0]) // the message is shorter without it
	var errno syscall.Errno
	errors.As(err, &errno)
	fmt.Fprintf(errOut, "%s%s\n", prefix, scriptMessage(script, errno))
	return cannotExecute
}

// obey does what a TaskProlog wrote on its standard output: export NAME=value
// and unset NAME change the environment, print TEXT is what the job's output
// begins with. Other lines mean nothing.
func obey(said []byte, env []string) (changed []string, printed []byte) {
	changed = slices.Clone(env)
	for lines := bufio.NewScanner(bytes.NewReader(said)); lines.Scan(); {
		verb, rest, _ := strings.Cut(strings.TrimLeft(lines.Text(), " \t"), " ")
		switch verb {
		case "export":
			if name, value, ok := strings.Cut(strings.TrimLeft(rest, " \t"), "="); ok && name != "" && !strings.ContainsAny(name, " \t") {
				changed = append(without(changed, name), name+"="+value)
			}
		case "unset":
			changed = without(changed, strings.TrimSpace(rest))
		case "print":
			printed = append(append(printed, rest...), '\n')
		}
	}
	return changed, printed
}

// without is an environment less one name.
func without(env []string, name string) []string {
	return slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
}
