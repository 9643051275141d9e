package fetch

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// slowRows is a connection whose stream has one message, after two pauses of the client.
type slowRows struct {
	tool.Conn
	pauses chan struct{}
}

func (c slowRows) Stream(context.Context, string, proto.Message) (tool.Receiver, error) {
	return &slowStream{pauses: c.pauses}, nil
}

type slowStream struct {
	pauses chan struct{}
	read   bool
}

func (s *slowStream) Recv(proto.Message) error {
	if s.read {
		return io.EOF
	}
	s.read = true
	<-s.pauses
	<-s.pauses
	return nil
}

func (s *slowStream) Close() {}

// TestSlowRows: rows of accounting that are long in coming are announced at a terminal, and the
// line is gone before the first of them is printed.
func TestSlowRows(t *testing.T) {
	var errOut bytes.Buffer
	pauses := make(chan struct{})
	call := &tool.Call{
		Ctx:     t.Context(),
		Command: &tool.Command{Name: "sacct"},
		Conn:    slowRows{pauses: pauses},
		Env: &tool.Env{
			Stderr:   &errOut,
			Terminal: func(any) bool { return true },
			Now:      func() time.Time { return time.Unix(1_800_000_000, 0) },
			Pause: func(ctx context.Context, _ time.Duration) {
				select {
				case <-ctx.Done():
				case pauses <- struct{}{}:
				}
			},
		},
	}
	err := Stream(call, tool.MethodAcctRows, &apiv1.AcctQuery{}, func(*apiv1.AcctReply) error {
		text := errOut.String()
		if strings.Count(text, "accounting has been reading") == 0 || !strings.HasSuffix(text, "\r\x1b[K") {
			t.Errorf("before the first row: %q", text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
