package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
)

// pastCommands are the commands that can be asked about a moment of the past.
func pastCommands() []func() *tool.Command {
	return []func() *tool.Command{Squeue, Sinfo, Sprio, Scontrol, Why}
}

func At() *tool.Command {
	return &tool.Command{
		Name:    "at",
		Summary: "show what a command would have printed at a moment of the past",
		Usage: []string{
			"TIME squeue|sinfo|sprio|why [ARGUMENTS]",
			"TIME scontrol show job|node|partition|reservation|step [ARGUMENTS]",
			"#EVENT COMMAND [ARGUMENTS]",
		},
		About: `The controller folds the events of the ledger up to that moment and answers from the state which that gives, so the
output is what the command printed then. TIME is read as sacct reads it and means the beginning of that second; #EVENT is
the state right after an event, by its number in muster events. Who may see what is decided by the rules of now.

Load, free memory and heartbeats of nodes and the time of the last scheduling pass are not in the ledger and are
shown as unknown. Planned starts are calculated again from the state of that moment.`,
		Example: []tool.Example{
			{
				Line: "muster at 09:30 squeue -u alice",
				What: "shows alice's jobs as they were at half past nine",
			},
			{
				Line: "muster at now-1hour sinfo -N -l",
				What: "shows the nodes as they were an hour ago",
			},
			{
				Line: "muster at '#1234' scontrol show job 12",
				What: "shows job 12 as it was right after event 1234",
			},
		},
		Run: runAt,
	}
}

func runAt(call *tool.Call) error {
	if len(call.Operands) < 2 {
		return &opt.UsageError{Command: "muster at", Text: "name a time or #event, and a command"}
	}
	moment, err := parseMoment(call, call.Operands[0])
	if err != nil {
		return err
	}
	var names []string
	for _, make := range pastCommands() {
		cmd := make()
		names = append(names, cmd.Name)
		if cmd.Name != call.Operands[1] {
			continue
		}
		env := pastEnv(call.Env, moment)
		env.Args = append(
			env.Args[:1:1],
			call.Operands[1:]...) // documents say how they were asked for
		if code := tool.Report(env, tool.Execute(call.Ctx, env, cmd, call.Operands[2:]), cmd.Called(), 1); code != 0 {
			return tool.ExitCode(code)
		}
		return nil
	}
	return &opt.UsageError{
		Command: "muster at",
		Text: fmt.Sprintf(
			"%s cannot be asked about the past: expected one of %s",
			call.Operands[1],
			strings.Join(names, ", "),
		),
	}
}

// parseMoment reads the operand TIME or #EVENT.
func parseMoment(call *tool.Call, text string) (*apiv1.Moment, error) {
	moment, err := call.ParseMoment(text)
	switch {
	case err == nil:
		return moment, nil
	case strings.HasPrefix(text, "#"):
		return nil, call.Errorf("%v", err)
	}
	return nil, tool.Fail(1, err.Error())
}

// pastEnv is the world as a command sees it at a moment: its requests are about that
// moment, and its clock runs from there.
func pastEnv(env *tool.Env, moment *apiv1.Moment) *tool.Env {
	out, now := *env, int64(0)
	out.Outward = false
	out.Dial = func(ctx context.Context) (tool.Conn, error) {
		conn, err := env.Dial(ctx)
		if err != nil {
			return nil, err
		}
		return &pastConn{Conn: conn, moment: moment, now: &now}, nil
	}
	if env.DialPast != nil {
		out.DialPast = func(ctx context.Context) (tool.Conn, error) {
			conn, err := env.DialPast(ctx)
			if err != nil || conn == nil {
				return nil, err
			}
			return &pastConn{Conn: conn, moment: moment, now: &now}, nil
		}
	}
	if moment.GetSeq() == 0 {
		began := env.Now()
		out.Now = func() time.Time { return time.Unix(0, moment.GetAt()).Add(env.Now().Sub(began)) }
	}
	return &out
}

// pastConn makes every request about a moment, and refuses one that cannot be.
type pastConn struct {
	tool.Conn
	moment *apiv1.Moment
	// now is the instant for which an explanation was given; 0 = none was.
	now *int64
}

// place puts the moment into a request.
func (p *pastConn) place(method string, request proto.Message) error {
	if method == tool.MethodPing {
		return nil
	}
	message := request.ProtoReflect()
	field := message.Descriptor().Fields().ByName("moment")
	if field == nil {
		name := method[strings.LastIndexByte(method, '/')+1:]
		return fmt.Errorf("muster at: %s is not known for a moment of the past", name)
	}
	message.Set(field, protoreflect.ValueOfMessage(p.moment.ProtoReflect()))
	return nil
}

// Call implements tool.Conn.
func (p *pastConn) Call(ctx context.Context, method string, request, resp proto.Message) error {
	if past, ok := resp.(*apiv1.ReasonsReply); ok {
		return p.askReasons(ctx, method, request, past)
	}
	if err := p.place(method, request); err != nil {
		return err
	}
	err := p.Conn.Call(ctx, method, request, resp)
	if reply, ok := resp.(*apiv1.WhyReply); ok && err == nil {
		*p.now = reply.GetNow()
	}
	return err
}

// askReasons asks accounting why a job waited, and leaves out what came later. A job
// that was not there at the moment has no reasons.
func (p *pastConn) askReasons(
	ctx context.Context,
	method string,
	request proto.Message,
	reply *apiv1.ReasonsReply,
) error {
	if *p.now == 0 {
		return errors.New("the job was not there at that moment")
	}
	if err := p.Conn.Call(ctx, method, request, reply); err != nil {
		return err
	}
	reply.Run = nil
	reply.Periods = slices.DeleteFunc(
		reply.GetPeriods(),
		func(r *apiv1.ReasonPeriod) bool { return r.GetFrom() > *p.now },
	)
	for _, period := range reply.GetPeriods() {
		if period.GetTo() > *p.now {
			period.To = 0 // it went on
		}
	}
	return nil
}

// Start implements tool.Conn.
func (p *pastConn) Start(
	ctx context.Context,
	method string,
	request proto.Message,
) (tool.Pending, error) {
	if err := p.place(method, request); err != nil {
		return nil, err
	}
	return p.Conn.Start(ctx, method, request)
}

// Stream implements tool.Conn.
func (p *pastConn) Stream(
	ctx context.Context,
	method string,
	request proto.Message,
) (tool.Receiver, error) {
	if err := p.place(method, request); err != nil {
		return nil, err
	}
	return p.Conn.Stream(ctx, method, request)
}
