package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec/format"
)

// AccountingRows asks for rows that hold everything which happened before the
// question, and hands each piece on.
func AccountingRows(
	call *tool.Call,
	request *apiv1.AcctQuery,
	each func(*apiv1.AcctReply) error,
) error {
	var err error
	request.MinSeq, err = LastSeq(call, tool.MethodAcctRows)
	if err != nil {
		return err
	}
	return Stream(call, tool.MethodAcctRows, request, each)
}

// Stream makes a call and hands each message of the answer on.
func Stream[M any, P interface {
	*M
	protoMessage
}](call *tool.Call, method string, request protoMessage, each func(P) error) error {
	conn, err := call.ConnectFor(method)
	if err != nil {
		return err
	}
	// The limit of calls refuses before the first message.
	return call.Patiently(
		call.Ctx,
		func() error { return streamOnce[M, P](call, conn, method, request, each) },
	)
}

func streamOnce[M any, P interface {
	*M
	protoMessage
}](call *tool.Call, conn tool.Conn, method string, request protoMessage, each func(P) error) error {
	ctx, cancel := context.WithCancel(call.Ctx)
	defer cancel()
	receiver, err := conn.Stream(ctx, method, request)
	if err != nil {
		return err
	}
	defer receiver.Close()
	began := call.Now()
	endNote := call.NoteWaiting(method)
	for n := 0; ; n++ {
		m := P(new(M))
		err := receiver.Recv(m)
		endNote() // from the first message on, rows are printed
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if n == 0 {
			call.Trace(method, began, request, m)
		}
		if err := each(m); err != nil {
			return err
		}
	}
}

// UpToDate asks accounting for an answer that holds everything which happened
// before the question.
func UpToDate(
	call *tool.Call, method string, request, reply protoMessage, since func(seq uint64),
) error {
	seq, err := LastSeq(call, method)
	if err != nil {
		return err
	}
	since(seq)
	return call.RPC(method, request, reply)
}

// WarnBehind warns on stderr that an answer of accounting is older than the
// present.
func WarnBehind(call *tool.Call, behind uint64) {
	if behind > 0 && !call.Opts.On("quiet") {
		fmt.Fprintf(
			call.Stderr,
			"%s: warning: the accounting store is %s behind; the newest jobs may be missing\n",
			call.Command.Name,
			format.Plural(behind, "event", "events"),
		)
	}
}

// LastSeq is what has happened so far, for a question to accounting. Where
// that runs in a process of its own it answers also without a controller, and
// while that is away nothing new happens.
func LastSeq(call *tool.Call, method string) (uint64, error) {
	var ping apiv1.PingReply
	if err := call.RPC(tool.MethodPing, &apiv1.PingRequest{}, &ping); err != nil {
		if _, perr := call.ConnectFor(method); perr != nil || call.Past == nil {
			return 0, err
		}
	}
	return ping.GetSeq(), nil
}

// protoMessage is any message of the API.
type protoMessage = proto.Message
