package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/client"
	"github.com/musterhpc/muster/internal/transport/status"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/spec"
)

// Conn is a connection to the controller.
type Conn interface {
	// Call makes one call; errors of the server and of the way there are *status.Error.
	Call(ctx context.Context, method string, req, resp proto.Message) error
	// Start sends a request without waiting, so that several can be on their way.
	Start(ctx context.Context, method string, req proto.Message) (Pending, error)
	// Stream makes a call that is answered by several messages.
	Stream(ctx context.Context, method string, req proto.Message) (Receiver, error)
	Close() error
}

// Pending is a call whose answer has not been read.
type Pending interface {
	Wait(resp proto.Message) error
}

// Receiver gives the messages of one stream; io.EOF is its end.
type Receiver interface {
	Recv(resp proto.Message) error
	Close()
}

// The methods, by the services' full names.
const (
	methodSubmit          = "/muster.v1.Cluster/Submit"
	methodListJobs        = "/muster.v1.Cluster/ListJobs"
	methodStreamJobs      = "/muster.v1.Cluster/StreamJobs"
	methodWatchJob        = "/muster.v1.Cluster/WatchJob"
	methodCancel          = "/muster.v1.Cluster/Cancel"
	methodControlJobs     = "/muster.v1.Cluster/ControlJobs"
	methodWhy             = "/muster.v1.Cluster/Why"
	methodListNodes       = "/muster.v1.Cluster/ListNodes"
	methodUpdateNode      = "/muster.v1.Cluster/UpdateNode"
	methodChangeNodes     = "/muster.v1.Cluster/ChangeNodes"
	methodChangePartition = "/muster.v1.Cluster/ChangePartition"
	methodListPartitions  = "/muster.v1.Cluster/ListPartitions"
	methodGetConfig       = "/muster.v1.Cluster/GetConfig"
	methodReconfigure     = "/muster.v1.Cluster/Reconfigure"
	methodChangePolicy    = "/muster.v1.Cluster/ChangePolicy"
	methodGetPolicy       = "/muster.v1.Cluster/GetPolicy"
	methodTransactions    = "/muster.v1.Cluster/Transactions"
	methodShares          = "/muster.v1.Cluster/Shares"
	methodLimitUsage      = "/muster.v1.Cluster/LimitUsage"
	methodPriorities      = "/muster.v1.Cluster/Priorities"
	methodDiag            = "/muster.v1.Cluster/Diag"
	methodPing            = "/muster.v1.Cluster/Ping"
	methodUserToken       = "/muster.v1.Cluster/CreateUserToken"
	methodCreateToken     = "/muster.v1.Cluster/CreateToken"
	methodListHosts       = "/muster.v1.Cluster/ListHosts"
	methodRevokeHost      = "/muster.v1.Cluster/RevokeHost"
	methodStepUsage       = "/muster.v1.Cluster/StepUsage"
	methodReservations    = "/muster.v1.Cluster/ListReservations"
	methodReserve         = "/muster.v1.Cluster/ChangeReservation"
	methodRunStep         = "/muster.v1.Cluster/RunStep"
	methodEndStep         = "/muster.v1.Cluster/EndStep"
	methodAttachStep      = "/muster.v1.Cluster/AttachStep"
	methodEndJob          = "/muster.v1.Cluster/EndJob"
	methodShutdown        = "/muster.v1.Cluster/Shutdown"
	methodAcctRows        = "/muster.v1.Accounting/JobRows"
	methodAcctScripts     = "/muster.v1.Accounting/Scripts"
	methodAcctSQL         = "/muster.v1.Accounting/Sql"
	methodAcctMaintain    = "/muster.v1.Accounting/Maintain"
	methodAcctReport      = "/muster.v1.Accounting/Report"
	methodAcctReasons     = "/muster.v1.Accounting/Reasons"
	methodAcctJobReport   = "/muster.v1.Accounting/JobReport"
	methodAcctGPUHistory  = "/muster.v1.Accounting/GpuHistory"
	methodAcctAdvise      = "/muster.v1.Accounting/Advise"
	methodAcctStatus      = "/muster.v1.Accounting/Status"
)

// accountingPrefix begins the methods that are about the past.
const accountingPrefix = "/muster.v1.Accounting/"

const (
	defaultSocket = "/run/muster/muster.sock"
	defaultPast   = "/run/muster/accounting.sock"
	defaultConfig = "/etc/muster/muster.yaml"

	dialPatience = 10 * time.Second
	callPatience = 60 * time.Second
)

// framedConn is the framed protocol's client as a Conn.
type framedConn struct{ *client.Client }

// Call makes one call. Submissions do without the protobuf runtime, whose
// start would be a sixth of an sbatch.
func (c framedConn) Call(ctx context.Context, method string, req, resp proto.Message) error {
	q, ok := req.(*apiv1.SubmitRequest)
	rep, ok2 := resp.(*apiv1.SubmitReply)
	if !ok || !ok2 {
		return c.Client.Call(ctx, method, req, resp)
	}
	return c.Client.CallBytes(ctx, method, func(b []byte) ([]byte, error) { return wire.AppendSubmitRequest(b, q) },
		func(b []byte) error { return wire.ParseSubmitReply(b, rep) })
}

func (c framedConn) Start(ctx context.Context, method string, req proto.Message) (Pending, error) {
	return c.Client.Start(ctx, method, req)
}

func (c framedConn) Stream(ctx context.Context, method string, req proto.Message) (Receiver, error) {
	return c.Client.Stream(ctx, method, req)
}

// dial connects to the controller of this host.
func (e *Env) dial(ctx context.Context) (Conn, error) {
	if server := e.Getenv("MUSTER_SERVER"); server != "" {
		return nil, fmt.Errorf("MUSTER_SERVER=%s is set, but commands reach the controller through the socket of this host: unset it and run muster-agent --login here, or name a socket in MUSTER_SOCKET", server)
	}
	path, _, err := e.sockets()
	if err != nil {
		return nil, err
	}
	return dialSocket(ctx, path)
}

// dialPast connects to accounting, if that has a socket of its own.
func (e *Env) dialPast(ctx context.Context) (Conn, error) {
	_, path, err := e.sockets()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, nil //nolint:nilerr // no socket: it is part of the controller
	}
	return dialSocket(ctx, path)
}

func dialSocket(ctx context.Context, path string) (Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	c, err := client.Dial(ctx, client.Unix(path))
	if err != nil {
		return nil, &unreachable{socket: path, err: err}
	}
	return framedConn{c}, nil
}

// unreachable tells that no controller answers.
type unreachable struct {
	socket string
	err    error
}

// Error is one line with the cure.
func (u *unreachable) Error() string {
	why := "nothing listens on it"
	switch {
	case errors.Is(u.err, context.DeadlineExceeded):
		why = "nobody answers on it"
	case denied(u.socket):
		why = "this user may not open it"
	}
	return fmt.Sprintf("%s: %s at %s; start the controller (muster up, or its service), on another machine its agent (muster-agent --login), or name the socket in MUSTER_SOCKET",
		spec.CodeUnreachable, why, u.socket)
}

func (u *unreachable) Unwrap() error { return u.err }

func denied(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return errors.Is(err, os.ErrPermission)
	}
	return info.Mode()&os.ModeSocket != 0 && info.Mode().Perm()&0o002 == 0 && os.Geteuid() != 0
}

// sockets are where the controller and, if it runs apart, accounting listen:
// $MUSTER_SOCKET and accounting.sock beside it, else what muster.yaml says,
// else the defaults.
func (e *Env) sockets() (controller, past string, err error) {
	if s := e.Getenv("MUSTER_SOCKET"); s != "" {
		return s, s[:strings.LastIndexByte(s, '/')+1] + "accounting.sock", nil
	}
	path := e.Getenv("MUSTER_CONFIG")
	named := path != ""
	if !named {
		path = defaultConfig
	}
	data, err := os.ReadFile(path)
	switch {
	case err != nil && named:
		return "", "", fmt.Errorf("MUSTER_CONFIG: %w", err)
	case err != nil:
		return defaultSocket, defaultPast, nil
	}
	return socketsIn(string(data), path)
}

// socketsIn finds the sockets in muster.yaml. The file is checked by the
// daemons that own it; a tool that lives for milliseconds reads only the lines
// that it needs, plain values at the left margin.
func socketsIn(yaml, path string) (controller, past string, err error) {
	found := map[string]string{}
	for line := range strings.Lines(yaml) {
		key, val, ok := strings.Cut(line, ":")
		if !ok || (key != "socket" && key != "run_dir" && key != "accounting_socket") {
			continue
		}
		val = strings.TrimSpace(val)
		if at := strings.Index(val, " #"); at >= 0 {
			val = strings.TrimSpace(val[:at])
		}
		if n := len(val); n >= 2 && (val[0] == '"' || val[0] == '\'') && val[n-1] == val[0] {
			val = val[1 : n-1]
		}
		if strings.ContainsAny(val, "\"'\\&*|>{[") {
			return "", "", fmt.Errorf("%s: %s: only a plain value is understood by the tools: write it without YAML's marks, or set MUSTER_SOCKET", path, key)
		}
		found[key] = val
	}
	at := func(p string) string {
		if !strings.HasPrefix(p, "/") {
			p = path[:strings.LastIndexByte(path, '/')+1] + p
		}
		return p
	}
	controller, past = defaultSocket, defaultPast
	if dir := found["run_dir"]; dir != "" {
		dir = strings.TrimSuffix(at(dir), "/")
		controller, past = dir+"/muster.sock", dir+"/accounting.sock"
	}
	if s := found["socket"]; s != "" {
		controller = at(s)
	}
	if s := found["accounting_socket"]; s != "" {
		past = at(s)
	}
	return controller, past, nil
}

// remote is an error of the controller, taken apart for printing.
type remote struct {
	code   spec.Code
	text   string // the line that Slurm's tools print
	prefix string // a line before it
	detail string // what a person needs beyond the text
	lost   bool   // the connection broke after the request was sent
}

// explainError takes an error of a call apart.
func explainError(err error) remote {
	var (
		gone *unreachable
		st   *status.Error
		own  *spec.Error
	)
	switch {
	case errors.As(err, &gone):
		return remote{code: spec.CodeUnreachable, text: gone.Error()}
	case errors.As(err, &st):
		if r := st.Refusal(); r != nil {
			return refusal(r)
		}
		out := remote{text: st.Message}
		outcome, _ := st.Detail(framed.DetailOutcome)
		out.lost = outcome == framed.OutcomeUnknown
		switch st.Wire {
		case status.DeadlineExceeded:
			out.code, out.text = spec.CodeSocketTimeout, spec.CodeSocketTimeout.String()
		case status.Unavailable:
			out.code, out.text = spec.CodeUnreachable, spec.CodeUnreachable.String()+": "+st.Message
		}
		return out
	case errors.As(err, &own):
		return refusal(own)
	}
	return remote{text: err.Error()}
}

func refusal(r *spec.Error) remote {
	return remote{code: r.Kind, text: r.Kind.String(), prefix: r.Prefix, detail: r.Detail}
}
