package tool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/client"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// Conn is a connection to the controller.
type Conn interface {
	// Call makes one call; errors of the server and of the way there are *rpcstatus.Error.
	Call(ctx context.Context, method string, request, resp proto.Message) error
	// Start sends a request without waiting, so that several can be on their way.
	Start(ctx context.Context, method string, request proto.Message) (Pending, error)
	// Stream makes a call that is answered by several messages.
	Stream(ctx context.Context, method string, request proto.Message) (Receiver, error)
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
	MethodSubmit          = "/muster.v1.Cluster/Submit"
	MethodListJobs        = "/muster.v1.Cluster/ListJobs"
	MethodStreamJobs      = "/muster.v1.Cluster/StreamJobs"
	MethodWatchJob        = "/muster.v1.Cluster/WatchJob"
	MethodPutCrontab      = "/muster.v1.Cluster/PutCrontab"
	MethodGetCliFilter    = "/muster.v1.Cluster/GetCliFilter"
	MethodGetCrontab      = "/muster.v1.Cluster/GetCrontab"
	MethodSetTriggers     = "/muster.v1.Cluster/SetTriggers"
	MethodListTriggers    = "/muster.v1.Cluster/ListTriggers"
	MethodClearTriggers   = "/muster.v1.Cluster/ClearTriggers"
	MethodCancel          = "/muster.v1.Cluster/Cancel"
	MethodControlJobs     = "/muster.v1.Cluster/ControlJobs"
	MethodNoteJobs        = "/muster.v1.Cluster/NoteJobs"
	MethodWhy             = "/muster.v1.Cluster/Why"
	MethodSuppose         = "/muster.v1.Cluster/Suppose"
	MethodListNodes       = "/muster.v1.Cluster/ListNodes"
	MethodUpdateNode      = "/muster.v1.Cluster/UpdateNode"
	MethodChangeNodes     = "/muster.v1.Cluster/ChangeNodes"
	MethodChangePartition = "/muster.v1.Cluster/ChangePartition"
	MethodListPartitions  = "/muster.v1.Cluster/ListPartitions"
	MethodGetConfig       = "/muster.v1.Cluster/GetConfig"
	MethodReconfigure     = "/muster.v1.Cluster/Reconfigure"
	MethodSetLog          = "/muster.v1.Cluster/SetLog"
	MethodChangePolicy    = "/muster.v1.Cluster/ChangePolicy"
	MethodGetPolicy       = "/muster.v1.Cluster/GetPolicy"
	MethodTransactions    = "/muster.v1.Cluster/Transactions"
	MethodShares          = "/muster.v1.Cluster/Shares"
	MethodLimitUsage      = "/muster.v1.Cluster/LimitUsage"
	MethodPriorities      = "/muster.v1.Cluster/Priorities"
	MethodDiag            = "/muster.v1.Cluster/Diag"
	MethodPing            = "/muster.v1.Cluster/Ping"
	MethodUserToken       = "/muster.v1.Cluster/CreateUserToken"
	MethodListTokens      = "/muster.v1.Cluster/ListUserTokens"
	MethodRevokeTokens    = "/muster.v1.Cluster/RevokeUserTokens"
	MethodCreateToken     = "/muster.v1.Cluster/CreateToken"
	MethodListHosts       = "/muster.v1.Cluster/ListHosts"
	MethodRevokeHost      = "/muster.v1.Cluster/RevokeHost"
	MethodListOrphans     = "/muster.v1.Cluster/ListOrphans"
	MethodKillOrphans     = "/muster.v1.Cluster/KillOrphans"
	MethodAdoptOrphans    = "/muster.v1.Cluster/AdoptOrphans"
	MethodWatchHolds      = "/muster.v1.Cluster/WatchHolds"
	MethodPodsOver        = "/muster.v1.Cluster/PodsOver"
	MethodStepUsage       = "/muster.v1.Cluster/StepUsage"
	MethodReservations    = "/muster.v1.Cluster/ListReservations"
	MethodReserve         = "/muster.v1.Cluster/ChangeReservation"
	MethodRunStep         = "/muster.v1.Cluster/RunStep"
	MethodEndStep         = "/muster.v1.Cluster/EndStep"
	MethodReadOutput      = "/muster.v1.Cluster/ReadOutput"
	MethodAttachStep      = "/muster.v1.Cluster/AttachStep"
	MethodEndJob          = "/muster.v1.Cluster/EndJob"
	MethodListControllers = "/muster.v1.Cluster/ListControllers"
	// MethodChangeControllers adds, removes or hands over.
	MethodChangeControllers = "/muster.v1.Cluster/ChangeControllers"
	MethodShutdown          = "/muster.v1.Cluster/Shutdown"
	MethodEvents            = "/muster.v1.Cluster/Events"
	MethodAcctRows          = "/muster.v1.Accounting/JobRows"
	MethodAcctScripts       = "/muster.v1.Accounting/Scripts"
	MethodAcctSQL           = "/muster.v1.Accounting/Sql"
	MethodAcctMaintain      = "/muster.v1.Accounting/Maintain"
	MethodAcctReport        = "/muster.v1.Accounting/Report"
	MethodAcctReasons       = "/muster.v1.Accounting/Reasons"
	MethodAcctJobReport     = "/muster.v1.Accounting/JobReport"
	MethodAcctGPUHistory    = "/muster.v1.Accounting/GpuHistory"
	MethodAcctAdvise        = "/muster.v1.Accounting/Advise"
	MethodAcctStatus        = "/muster.v1.Accounting/Status"
)

// TokenVariable holds the token that a command shows instead of the user whom the kernel names.
const TokenVariable = "SLURM_JWT"

// accountingPrefix begins the methods that are about the past.
const accountingPrefix = "/muster.v1.Accounting/"

const (
	DefaultSocket = "/run/muster/muster.sock"
	DefaultPast   = "/run/muster/accounting.sock"
	DefaultConfig = "/etc/muster/muster.yaml"

	dialPatience = 10 * time.Second
	callPatience = 60 * time.Second

	// Accounting that is stopped is given up within five seconds, since the controller may know
	// what is asked for. Working, it answers a ping at once, however long a question takes.
	accountingQuiet = 1500 * time.Millisecond
	accountingPing  = 2500 * time.Millisecond
)

// framedConn is the framed protocol's client as a Conn.
type framedConn struct{ *client.Client }

func (c framedConn) Start(
	ctx context.Context, method string, request proto.Message,
) (Pending, error) {
	return c.Client.Start(ctx, method, request)
}

func (c framedConn) Stream(
	ctx context.Context,
	method string,
	request proto.Message,
) (Receiver, error) {
	return c.Client.Stream(ctx, method, request)
}

// DialController connects to the controller of this host.
func (e *Env) DialController(ctx context.Context) (Conn, error) {
	server := e.Getenv("MUSTER_SERVER")
	path, _, err := e.Sockets()
	if err != nil {
		return nil, err
	}
	_, missing := os.Stat(path)
	if server != "" || missing != nil && e.Getenv("MUSTER_SOCKET") == "" {
		if site := e.mungeSite(); site.on && len(site.controllers) > 0 {
			ctx, cancel := context.WithTimeout(ctx, dialPatience)
			defer cancel()
			return e.dialMunge(ctx, site)
		}
	}
	if server != "" {
		return nil, fmt.Errorf(
			"MUSTER_SERVER=%s is set, but commands reach the controller through the socket of this host: unset it and run muster-agent --login here, or name a socket in MUSTER_SOCKET; where slurm.conf says AuthType=auth/munge, they go there with a credential of MUNGE",
			server,
		)
	}
	conn, err := e.dialSocket(ctx, path)
	if err != nil {
		return nil, err
	}
	return framedConn{conn}, nil
}

// DialAccounting connects to accounting, if that has a socket of its own.
func (e *Env) DialAccounting(ctx context.Context) (Conn, error) {
	_, path, err := e.Sockets()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, nil //nolint:nilerr // no socket: it is part of the controller
	}
	conn, err := e.dialSocket(ctx, path)
	if err != nil {
		return nil, err
	}
	return framedConn{conn.Watched(client.Watch{
		Quiet:  accountingQuiet,
		Ping:   accountingPing,
		Silent: silentAccounting,
	})}, nil
}

// silentAccounting says that accounting is away, as accounting says it of its store.
func silentAccounting(after time.Duration) error {
	return spec.Refuse(
		spec.CodeDatabaseUnreachable,
		fmt.Sprintf(
			"accounting accepts connections but has not answered for %s: its process may be stopped",
			after,
		),
	)
}

// dialSocket connects to a socket of this host, and shows the token of SLURM_JWT there.
func (e *Env) dialSocket(ctx context.Context, path string) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	c, err := client.Dial(ctx, client.Unix(path))
	if err != nil {
		return nil, &Unreachable{socket: path, err: err}
	}
	if token := e.Getenv(TokenVariable); token != "" {
		c = c.With(framed.Pair{Key: framed.HeaderToken, Value: token})
	}
	return c, nil
}

// requestNumber is a random number other than 0, which means none.
func requestNumber() uint64 { return max(rand.Uint64(), 1) }

// RequestNumber is the number of a submission that begins now; 0 = none.
func (e *Env) RequestNumber() uint64 {
	if e.Number == nil {
		return 0
	}
	return e.Number()
}

// Unreachable tells that no controller answers.
type Unreachable struct {
	socket  string
	cluster string // that -M named; empty = this one
	err     error
}

// Error is one line with the cure.
func (u *Unreachable) Error() string {
	reason := "nothing listens on it"
	switch {
	case errors.Is(u.err, context.DeadlineExceeded):
		reason = "no daemon answers on it"
	case denied(u.socket):
		reason = "this user may not open it"
	}
	if u.cluster != "" {
		return fmt.Sprintf(
			"cluster %s: %s: %s at %s; start its controller or, on a host without one, its login agent (muster-agent --login), or correct the path with sacctmgr modify cluster %s set socket=PATH",
			u.cluster, spec.CodeUnreachable, reason, u.socket, u.cluster,
		)
	}
	return fmt.Sprintf(
		"%s: %s at %s; start the controller (muster up, or its service), on another machine its agent (muster-agent --login), or name the socket in MUSTER_SOCKET",
		spec.CodeUnreachable,
		reason,
		u.socket,
	)
}

func (u *Unreachable) Unwrap() error { return u.err }

func denied(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return errors.Is(err, os.ErrPermission)
	}
	return info.Mode()&os.ModeSocket != 0 && info.Mode().Perm()&0o002 == 0 && os.Geteuid() != 0
}

// Sockets are where the controller and, if it runs apart, accounting listen:
// $MUSTER_SOCKET and accounting.sock beside it, else what muster.yaml says,
// else the defaults.
func (e *Env) Sockets() (controller, past string, err error) {
	if text := e.Getenv("MUSTER_SOCKET"); text != "" {
		return text, text[:strings.LastIndexByte(text, '/')+1] + "accounting.sock", nil
	}
	path := e.Getenv("MUSTER_CONFIG")
	named := path != ""
	if !named {
		path = DefaultConfig
	}
	data, err := os.ReadFile(path)
	switch {
	case err != nil && named:
		return "", "", fmt.Errorf("MUSTER_CONFIG: %w", err)
	case err != nil:
		return DefaultSocket, DefaultPast, nil
	}
	return socketsIn(string(data), path)
}

// socketsIn finds the sockets in muster.yaml. The file is checked by the
// daemons that own it; a tool that lives for milliseconds reads only the lines
// that it needs, plain values at the left margin.
func socketsIn(yaml, path string) (controller, past string, err error) {
	found := map[string]string{}
	for line := range strings.Lines(yaml) {
		key, value, ok := strings.Cut(line, ":")
		if !ok || (key != "socket" && key != "run_dir" && key != "accounting_socket") {
			continue
		}
		value = strings.TrimSpace(value)
		if at := strings.Index(value, " #"); at >= 0 {
			value = strings.TrimSpace(value[:at])
		}
		if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') &&
			value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		if strings.ContainsAny(value, "\"'\\&*|>{[") {
			return "", "", fmt.Errorf(
				"%s: %s: only a plain value is understood by the tools: write it without YAML's marks, or set MUSTER_SOCKET",
				path,
				key,
			)
		}
		found[key] = value
	}
	at := func(p string) string {
		if !strings.HasPrefix(p, "/") {
			p = path[:strings.LastIndexByte(path, '/')+1] + p
		}
		return p
	}
	controller, past = DefaultSocket, DefaultPast
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

// Refusal is an error of the controller, taken apart for printing.
type Refusal struct {
	Code   spec.Code
	Text   string // the line that Slurm's tools print
	prefix string // a line before it
	Detail string // what a person needs beyond the text
	// Unknown is the word that is not known, where one was refused.
	Unknown *spec.Unknown
	Lost    bool // the connection broke after the request was sent
}

// ExplainError takes an error of a call apart.
func ExplainError(err error) Refusal {
	var (
		gone *Unreachable
		st   *rpcstatus.Error
		own  *spec.Error
	)
	switch {
	case errors.As(err, &gone):
		return Refusal{Code: spec.CodeUnreachable, Text: gone.Error()}
	case errors.As(err, &st):
		if r := st.Refusal(); r != nil {
			return refusalOf(r)
		}
		refusal := Refusal{Text: st.Message}
		outcome, _ := st.Detail(framed.DetailOutcome)
		refusal.Lost = outcome == framed.OutcomeUnknown
		switch st.Wire {
		case rpcstatus.DeadlineExceeded:
			refusal.Code, refusal.Text = spec.CodeSocketTimeout, spec.CodeSocketTimeout.String()
		case rpcstatus.Unavailable:
			refusal.Code, refusal.Text = spec.CodeUnreachable,
				spec.CodeUnreachable.String()+": "+st.Message
		}
		return refusal
	case errors.As(err, &own):
		return refusalOf(own)
	}
	return Refusal{Text: err.Error()}
}

func refusalOf(r *spec.Error) Refusal {
	return Refusal{
		Code:    r.Kind,
		Text:    r.Kind.String(),
		prefix:  r.Prefix,
		Detail:  r.Detail,
		Unknown: r.Unknown,
	}
}
