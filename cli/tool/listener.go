package tool

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/musterhpc/muster/cli/opt"
)

// listenEvery is how often a command that waits looks whether it is over already,
// in milliseconds.
const listenEvery = 500

// WhileRead is a context that ends when nobody reads any more what is written to a
// stream: a command that waits for something to print would else learn of it only
// with the next line. What is not a pipe, socket or terminal is read for ever.
func WhileRead(ctx context.Context, stream io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	file, ok := stream.(*os.File)
	if !ok {
		return ctx, cancel
	}
	go func() {
		// No event is asked for: an error and a hangup are always told.
		fds := []unix.PollFd{{Fd: int32(file.Fd())}}
		for ctx.Err() == nil {
			n, err := unix.Poll(fds, listenEvery)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
			if err == nil && n > 0 {
				cancel()
			}
		}
	}()
	return ctx, cancel
}

// EndWhenUnread lets the call's context end when the command is interrupted, or when
// nobody reads its output any more. The result gives up both watches.
func (c *Call) EndWhenUnread() (stop func()) {
	interrupted, forget := signal.NotifyContext(c.Ctx, syscall.SIGINT, syscall.SIGTERM)
	ctx, unread := WhileRead(interrupted, c.Stdout)
	c.Ctx = ctx
	return func() {
		unread()
		forget()
	}
}

// RefuseOperands is the error of a command that takes options only; nil without operands.
func (c *Call) RefuseOperands() error {
	if len(c.Operands) == 0 {
		return nil
	}
	return &opt.UsageError{
		Command: "muster " + c.Command.Name,
		Text:    "unexpected argument " + strconv.Quote(c.Operands[0]),
	}
}
