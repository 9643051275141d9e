package tool

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// listenEvery is how often a command that waits looks whether it is over already,
// in milliseconds.
const listenEvery = 500

// WhileRead is a context that ends when nobody reads any more what is written to a
// stream: a command that waits for something to print would else learn of it only
// with the next line. What is not a pipe, socket or terminal is read for ever.
func WhileRead(ctx context.Context, stream io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	f, ok := stream.(*os.File)
	if !ok {
		return ctx, cancel
	}
	go func() {
		// No event is asked for: an error and a hangup are always told.
		fds := []unix.PollFd{{Fd: int32(f.Fd())}}
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
