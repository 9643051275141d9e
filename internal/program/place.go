package program

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// GateVerb is the argument with which this program waits for a byte on its standard
// input and then executes another: its process can be put somewhere before the other
// program begins, and all that this starts is there too.
//
//	PROGRAM run-when-placed FILE
const GateVerb = "run-when-placed"

// Exit codes of Gate, as a shell has them.
const (
	exitNotPlaced = 126
	exitNotFound  = 127
)

// Gate is the program behind GateVerb. It returns only if it cannot execute the file.
func Gate(args []string, errOut io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintf(errOut, "%s is for the program itself: FILE is missing\n", GateVerb)
		return exitNotPlaced
	}
	word := make([]byte, 1)
	if _, err := io.ReadFull(os.Stdin, word); err != nil {
		return exitNotPlaced // who was to place it is gone
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		err = syscall.Dup3(int(null.Fd()), 0, 0)
	}
	if err == nil {
		err = syscall.Exec(args[0], args, os.Environ())
	}
	fmt.Fprintln(errOut, err)
	return exitNotFound
}

// RunPlaced runs a program of the site as Run does. place, if it is not nil, is
// called with its process before the program begins; the program is not run if it
// fails. The calling program must know GateVerb.
func RunPlaced(
	ctx context.Context,
	file string,
	env []string,
	place func(pid int) error,
) error {
	if place == nil {
		return Run(ctx, file, env, nil)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer write.Close()
	defer read.Close()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", GateVerb, file)
	cmd.Stdin = read
	return runPrepared(cmd, env, nil, func(pid int) error {
		if err := place(pid); err != nil {
			return err
		}
		_, err := write.Write([]byte{'\n'})
		return err
	})
}
