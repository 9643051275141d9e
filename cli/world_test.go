package cli

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/slurmconf"
)

//go:embed query/testdata/agent-metrics.txt
var agentText string

// seenRequest is a request as the server got it.
type seenRequest struct {
	method string
	req    proto.Message
}

// fake is a server of the real protocol and messages with answers that are set.
type fake struct {
	mu    sync.Mutex
	seen  []seenRequest
	reply map[string]func(req proto.Message) (proto.Message, error)
	watch func(send func(*apiv1.JobInfo) error) error

	jobs     []*apiv1.JobInfo
	nodes    []*apiv1.NodeInfo
	parts    []*apiv1.PartitionInfo
	policy   *apiv1.PolicyReply
	tree     *apiv1.SharesReply
	used     []*apiv1.LimitUsage
	config   *apiv1.GetConfigReply
	acct     []*apiv1.AcctRow
	report   *apiv1.ReportReply
	scripts  *apiv1.AcctScriptReply
	live     *apiv1.StepUsageReply
	diag     *apiv1.DiagReply
	why      *apiv1.WhyReply
	now      int64
	spoil    func(proto.Message) proto.Message // changes each answer; nil: none
	unknown  bool                              // ids that are asked for and not among jobs are unknown
	results  []*apiv1.JobResult
	changed  []string
	reserved []*apiv1.ReservationInfo
	behind   uint64
	nextID   uint32
	messages string
}

// requests makes an empty request for each method.
func requests() map[string]proto.Message {
	return map[string]proto.Message{
		tool.MethodSubmit: &apiv1.SubmitRequest{}, tool.MethodListJobs: &apiv1.ListJobsRequest{}, tool.MethodStreamJobs: &apiv1.ListJobsRequest{}, tool.MethodWatchJob: &apiv1.WatchJobRequest{},
		tool.MethodSetTriggers: &apiv1.SetTriggersRequest{}, tool.MethodListTriggers: &apiv1.ListTriggersRequest{}, tool.MethodClearTriggers: &apiv1.ClearTriggersRequest{}, tool.MethodGetCrontab: &apiv1.GetCrontabRequest{}, tool.MethodPutCrontab: &apiv1.PutCrontabRequest{}, tool.MethodCancel: &apiv1.CancelRequest{}, tool.MethodControlJobs: &apiv1.ControlJobsRequest{}, tool.MethodNoteJobs: &apiv1.NoteJobsRequest{}, tool.MethodWhy: &apiv1.WhyRequest{}, tool.MethodSuppose: &apiv1.SupposeRequest{},
		tool.MethodListNodes: &apiv1.ListNodesRequest{}, tool.MethodUpdateNode: &apiv1.UpdateNodeRequest{}, tool.MethodChangeNodes: &apiv1.NodeChange{}, tool.MethodChangePartition: &apiv1.PartitionChange{}, tool.MethodListPartitions: &apiv1.ListPartitionsRequest{},
		tool.MethodGetConfig: &apiv1.GetConfigRequest{}, tool.MethodReconfigure: &apiv1.ReconfigureRequest{}, tool.MethodChangePolicy: &apiv1.PolicyChangeRequest{},
		tool.MethodGetPolicy: &apiv1.PolicyRequest{}, tool.MethodTransactions: &apiv1.TransactionsRequest{}, tool.MethodShares: &apiv1.SharesRequest{}, tool.MethodLimitUsage: &apiv1.LimitUsageRequest{}, tool.MethodPriorities: &apiv1.PrioritiesRequest{}, tool.MethodDiag: &apiv1.DiagRequest{}, tool.MethodPing: &apiv1.PingRequest{}, tool.MethodListControllers: &apiv1.ControllersRequest{}, tool.MethodChangeControllers: &apiv1.ChangeControllersRequest{},
		tool.MethodCreateToken: &apiv1.CreateTokenRequest{}, tool.MethodListHosts: &apiv1.ListHostsRequest{}, tool.MethodListTokens: &apiv1.ListUserTokensRequest{}, tool.MethodRevokeTokens: &apiv1.RevokeUserTokensRequest{}, tool.MethodRevokeHost: &apiv1.RevokeHostRequest{}, tool.MethodListOrphans: &apiv1.ListOrphansRequest{}, tool.MethodKillOrphans: &apiv1.KillOrphansRequest{}, tool.MethodWatchHolds: &apiv1.WatchHoldsRequest{}, tool.MethodPodsOver: &apiv1.PodsOverRequest{}, tool.MethodUserToken: &apiv1.CreateUserTokenRequest{}, tool.MethodShutdown: &apiv1.ShutdownRequest{}, tool.MethodSetLog: &apiv1.SetLogRequest{}, tool.MethodEvents: &apiv1.EventsRequest{}, tool.MethodAcctRows: &apiv1.AcctQuery{},
		tool.MethodAcctScripts: &apiv1.AcctScriptQuery{}, tool.MethodAcctSQL: &apiv1.SqlQuery{}, tool.MethodAcctMaintain: &apiv1.MaintainRequest{},
		tool.MethodReadOutput: &apiv1.ReadOutputRequest{}, tool.MethodStepUsage: &apiv1.StepUsageRequest{}, tool.MethodRunStep: &apiv1.RunStepRequest{}, tool.MethodEndStep: &apiv1.EndStepRequest{}, tool.MethodAttachStep: &apiv1.AttachStepRequest{}, tool.MethodEndJob: &apiv1.EndJobRequest{},
		tool.MethodReservations: &apiv1.ReservationsRequest{}, tool.MethodReserve: &apiv1.ReservationChange{},
		tool.MethodAcctReport: &apiv1.ReportQuery{}, tool.MethodAcctStatus: &apiv1.AccountingStatusRequest{}, tool.MethodAcctReasons: &apiv1.ReasonsQuery{}, tool.MethodAcctJobReport: &apiv1.JobReportQuery{}, tool.MethodAcctAdvise: &apiv1.AdviceQuery{}, tool.MethodAcctGPUHistory: &apiv1.GpuHistoryQuery{},
	}
}

// podJobs are a job of pods that waits, one that runs and one that is to end.
func podJobs() []*apiv1.PodJob {
	pods := func(owner string, names ...string) *apiv1.PodSet {
		set := &apiv1.PodSet{Space: "train", Owner: owner}
		for _, name := range names {
			set.Pods = append(set.Pods, &apiv1.PodRef{Uid: "u-" + name, Name: name})
		}
		return set
	}
	return []*apiv1.PodJob{
		{Uid: 43, JobId: 43, Attempt: 1, Epoch: 7, Ends: true, Why: "cancelled by alice", Pods: pods("Job/bert", "bert-0", "bert-1"),
			Places: []*apiv1.PodPlace{{Pod: "u-bert-0", Node: "n1"}, {Pod: "u-bert-1", Node: "n2"}}},
		{Uid: 41, JobId: 41, Pending: true, Reason: "Resources", Pods: pods("Deployment/web", "web-0")},
		{Uid: 42, JobId: 42, Attempt: 1, Epoch: 6, Bindable: true, Pods: pods("Job/resnet", "resnet-0", "resnet-1"),
			Places: []*apiv1.PodPlace{{Pod: "u-resnet-0", Node: "n3"}, {Pod: "u-resnet-1", Node: "n3"}}},
	}
}

// answers tells whether a test has an answer of its own to a method.
func (f *fake) answers(method string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reply[method] != nil
}

func (f *fake) handle(_ context.Context, call *serve.Call) error {
	req, ok := requests()[call.Method]
	if call.Method == tool.MethodGetCliFilter && f.answers(call.Method) {
		req, ok = &apiv1.GetCliFilterRequest{}, true // elsewhere the controller is an older one, which has no such method
	}
	if !ok {
		return rpcstatus.New(rpcstatus.Unimplemented, "no method %s", call.Method)
	}
	if err := proto.Unmarshal(call.Payload, req); err != nil {
		return err
	}
	f.mu.Lock()
	if submit, ok := req.(*apiv1.SubmitRequest); ok {
		submit.Request = 0 // chance, and another in each run
	}
	f.seen = append(f.seen, seenRequest{call.Method, req})
	own, watch := f.reply[call.Method], f.watch
	f.mu.Unlock()
	if call.Method == tool.MethodWatchJob && watch != nil {
		return watch(func(j *apiv1.JobInfo) error {
			b, err := proto.Marshal(j)
			if err != nil {
				return err
			}
			return call.Send(b)
		})
	}
	var resp proto.Message
	var err error
	if own != nil {
		resp, err = own(req)
	} else {
		resp, err = f.answer(req)
	}
	if err != nil {
		return err
	}
	if f.spoil != nil {
		resp = f.spoil(resp)
	}
	if call.Method == tool.MethodWatchHolds || call.Method == tool.MethodStreamJobs || call.Method == tool.MethodEvents || call.Method == tool.MethodAcctRows || call.Method == tool.MethodAcctSQL || call.Method == tool.MethodAcctMaintain {
		b, err := proto.Marshal(resp)
		if err != nil {
			return err
		}
		return call.Send(b)
	}
	return call.ReplyWith(func(b []byte) ([]byte, error) { return proto.MarshalOptions{}.MarshalAppend(b, resp) })
}

func (f *fake) answer(req proto.Message) (proto.Message, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch q := req.(type) {
	case *apiv1.SubmitRequest:
		f.nextID++
		return &apiv1.SubmitReply{JobId: f.nextID, Uid: uint64(f.nextID), Message: f.messages}, nil
	case *apiv1.ListJobsRequest:
		return f.listJobs(q.GetFilter()), nil
	case *apiv1.CancelRequest, *apiv1.ControlJobsRequest:
		return &apiv1.JobResults{Results: f.results}, nil
	case *apiv1.ListTriggersRequest:
		return &apiv1.ListTriggersReply{Triggers: []*apiv1.TriggerInfo{{Id: 1, Kind: "down", User: "alice", Program: "/bin/a"}, {Id: 2, Kind: "up", Node: "n1", User: "bob", Program: "/bin/b"}}}, nil
	case *apiv1.SetTriggersRequest:
		return &apiv1.SetTriggersReply{Ids: []uint32{3}}, nil
	case *apiv1.WatchHoldsRequest:
		return &apiv1.WatchHoldsReply{Jobs: podJobs()}, nil
	case *apiv1.WhyRequest:
		return f.why, nil
	case *apiv1.ListNodesRequest:
		out := &apiv1.ListNodesReply{Now: f.now}
		for _, n := range f.nodes {
			if len(q.GetNodes()) == 0 || slices.Contains(q.GetNodes(), n.GetName()) {
				out.Nodes = append(out.Nodes, n)
			}
		}
		for _, name := range q.GetNodes() {
			if !slices.ContainsFunc(f.nodes, func(n *apiv1.NodeInfo) bool { return n.GetName() == name }) {
				out.Unknown = append(out.Unknown, name)
			}
		}
		return out, nil
	case *apiv1.ListPartitionsRequest:
		out := &apiv1.ListPartitionsReply{Now: f.now}
		for _, p := range f.parts {
			if len(q.GetPartitions()) == 0 || slices.Contains(q.GetPartitions(), p.GetName()) {
				out.Partitions = append(out.Partitions, p)
			}
		}
		for _, name := range q.GetPartitions() {
			if !slices.ContainsFunc(f.parts, func(p *apiv1.PartitionInfo) bool { return p.GetName() == name }) {
				out.Unknown = append(out.Unknown, name)
			}
		}
		return out, nil
	case *apiv1.GetConfigRequest:
		return f.config, nil
	case *apiv1.ReconfigureRequest:
		return &apiv1.ReconfigureReply{Warnings: []string{"a warning"}}, nil
	case *apiv1.PolicyChangeRequest:
		return &apiv1.PolicyChangeReply{Changed: f.changed}, nil
	case *apiv1.PolicyRequest:
		return f.policy, nil
	case *apiv1.DiagRequest:
		return f.diag, nil
	case *apiv1.PingRequest:
		return &apiv1.PingReply{Host: "vm", Role: "leader", Version: "test", Now: f.now, Seq: 77, Cluster: "peer"}, nil
	case *apiv1.ControllersRequest:
		return &apiv1.ControllersReply{Controllers: []*apiv1.ControllerInfo{{Name: "vm", Role: "leader", Version: "test", Position: 7, Knows: 2}},
			LedgerVersion: 1, LedgerNewest: 2, RaiseAt: f.now}, nil
	case *apiv1.ChangeControllersRequest:
		return &apiv1.ChangeControllersReply{Leader: "ctl2", LedgerVersion: 2}, nil
	case *apiv1.CreateUserTokenRequest:
		return &apiv1.CreateUserTokenReply{Token: fmt.Sprintf("root.%d", q.GetLifetime()/int64(spec.Second))}, nil
	case *apiv1.ListUserTokensRequest:
		return &apiv1.ListUserTokensReply{Now: f.now, Tokens: f.tokens(q.GetUser())}, nil
	case *apiv1.RevokeUserTokensRequest:
		return &apiv1.RevokeUserTokensReply{Tokens: slices.DeleteFunc(
			f.tokens(q.GetUser()),
			func(t *apiv1.UserTokenInfo) bool { return q.GetUser() == "" && !slices.Contains(q.GetIds(), t.GetId()) },
		)}, nil
	case *apiv1.CreateTokenRequest:
		return &apiv1.CreateTokenReply{Token: "secret", Expires: f.now + int64(spec.Day)}, nil
	case *apiv1.UpdateNodeRequest:
		return &apiv1.UpdateNodeReply{}, nil
	case *apiv1.PartitionChange:
		return f.changePartition(q)
	case *apiv1.NodeChange:
		return f.changeNodes(q)
	case *apiv1.ReservationsRequest:
		return &apiv1.ReservationsReply{Reservations: f.reserved, Now: f.now}, nil
	case *apiv1.ReservationChange:
		return &apiv1.ReservationChangeReply{Name: q.GetName()}, nil
	case *apiv1.AttachStepRequest:
		return &apiv1.StepCreated{JobId: 36, Step: q.GetStep(), Tasks: 3, Nodes: []*apiv1.StepNode{{Name: "n1", Ranks: []uint32{0, 1}}, {Name: "n2", Ranks: []uint32{2}}}}, nil
	case *apiv1.RunStepRequest:
		return nil, spec.Refuse(spec.CodeAlreadyDone, "")
	case *apiv1.EndStepRequest:
		return &apiv1.EndStepReply{}, nil
	case *apiv1.EndJobRequest:
		return &apiv1.EndJobReply{}, nil
	case *apiv1.ShutdownRequest:
		return &apiv1.ShutdownReply{}, nil
	case *apiv1.ListOrphansRequest:
		return &apiv1.ListOrphansReply{LostAt: f.now, Witness: "node n1", Runs: lostRuns()}, nil
	case *apiv1.PodsOverRequest:
		return &apiv1.PodsOverReply{}, nil
	case *apiv1.KillOrphansRequest:
		return &apiv1.KillOrphansReply{Runs: lostRuns()[:len(q.GetRuns())]}, nil
	case *apiv1.AcctQuery:
		rows := slices.DeleteFunc(slices.Clone(f.acct), func(r *apiv1.AcctRow) bool { return q.GetAllocationsOnly() && r.GetStep() != "" })
		return &apiv1.AcctReply{Rows: rows, Cluster: "peer", Now: f.now, Behind: f.behind}, nil
	case *apiv1.AcctScriptQuery:
		return f.scripts, nil
	case *apiv1.MaintainRequest:
		return &apiv1.MaintainReply{Name: "engine", Text: "ClickHouse"}, nil
	case *apiv1.SqlQuery:
		return &apiv1.SqlReply{Data: []byte("user\tn\nalice\t3\nbob\t\\N\n")}, nil
	case *apiv1.ReportQuery:
		return f.report, nil
	case *apiv1.StepUsageRequest:
		return f.live, nil
	case *apiv1.AccountingStatusRequest:
		return &apiv1.AccountingStatusReply{Up: true, Store: "embedded"}, nil
	}
	return nil, fmt.Errorf("no answer to %T", req)
}

// listJobs filters as the controller does, by ids and states.
// tokens are those of alice, one of which she used, and of bob.
func (f *fake) tokens(user string) []*apiv1.UserTokenInfo {
	hour := int64(spec.Hour)
	var out []*apiv1.UserTokenInfo
	for _, token := range []*apiv1.UserTokenInfo{
		{Id: "5f0c2a9e31d7b864", User: "bob", Uid: 1001, Issued: f.now, Expires: f.now + hour, IssuedBy: "root", Scope: "pods"},
		{Id: "00aa", User: "alice", Uid: 1000, Issued: f.now - hour, Expires: f.now + 24*hour,
			IssuedBy: "alice", IssuedOn: "login1", LastUsed: f.now - hour/2},
	} {
		if user == "" || token.GetUser() == user {
			out = append(out, token)
		}
	}
	return out
}

func (f *fake) listJobs(q *apiv1.JobFilter) *apiv1.ListJobsReply {
	out := &apiv1.ListJobsReply{Now: f.now}
	known := map[string]bool{}
	for _, j := range f.jobs {
		state := spec.JobState(j.GetState())
		mine := []string{fmt.Sprint(j.GetJobId())}
		if j.GetArrayJobId() != 0 {
			mine = append(mine, fmt.Sprint(j.GetArrayJobId()), fmt.Sprintf("%d_%d", j.GetArrayJobId(), j.GetArrayTask()))
			for _, r := range j.GetArrayTasks() {
				for i := r.GetFirst(); i <= r.GetLast(); i += r.GetStep() {
					mine = append(mine, fmt.Sprintf("%d_%d", j.GetArrayJobId(), i))
				}
			}
		}
		named := len(q.GetJobs()) == 0
		for _, id := range q.GetJobs() {
			if slices.Contains(mine, id) {
				named, known[id] = true, true
			}
		}
		in := q.GetAllStates() || slices.Contains(q.GetStates(), uint32(state)) || (q.GetCompleting() && j.GetCompleting()) ||
			(len(q.GetStates()) == 0 && !q.GetCompleting() && (!state.Terminal() || j.GetCompleting()))
		users := len(q.GetUsers()) == 0 || slices.Contains(q.GetUsers(), j.GetUser()) || slices.Contains(q.GetUsers(), fmt.Sprint(j.GetUserId()))
		names := len(q.GetNames()) == 0 || slices.Contains(q.GetNames(), j.GetSpec().GetName())
		if named && in && users && names {
			out.Jobs = append(out.Jobs, j)
		}
	}
	for _, id := range q.GetJobs() {
		if !known[id] {
			out.Unknown = append(out.Unknown, id)
		}
	}
	return out
}

// world is a host with a controller on it.
type world struct {
	beside func(ctx context.Context, stdin io.Reader, program string, args ...string) error
	*fake
	t      *testing.T
	env    map[string]string
	dir    string
	socket string
	uid    uint32
	stdin  string
	tty    bool
	at     time.Time
	pauses []time.Duration
}

// result is what a command left behind.
type result struct {
	code        int
	out, errOut string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	at := time.Date(2026, 11, 21, 1, 44, 43, 0, time.UTC)
	w := &world{fake: &fake{reply: map[string]func(proto.Message) (proto.Message, error){}, now: at.UnixNano(), nextID: 3}, t: t, env: map[string]string{}, uid: 1001, at: at}
	// Not t.TempDir: a socket's path must be short.
	dir, err := os.MkdirTemp("", "cli")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w.dir, w.socket = dir, filepath.Join(dir, "s")
	s, err := serve.New(serve.Config{Handler: w.handle, Errors: rpcstatus.Numbers(), Authenticate: func(_ context.Context, c net.Conn) (net.Conn, identity.Identity, error) {
		return c, identity.Identity{}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(l); !errors.Is(err, serve.ErrStopped) {
			t.Errorf("serve: %v", err)
		}
	}()
	t.Cleanup(func() { s.Close(); <-done })
	return w
}

// run runs a command line, its first word being the name it is called by.
func (w *world) run(args ...string) result {
	w.t.Helper()
	var out, errOut bytes.Buffer
	e := w.world(args, &out, &errOut)
	code := Main(e)
	return result{code, out.String(), errOut.String()}
}

// runBeside is the world's programs beside this one: none, unless a test has one.
func (w *world) runBeside(ctx context.Context, stdin io.Reader, program string, args ...string) error {
	if w.beside == nil {
		return fmt.Errorf("%s %s is not here", program, strings.Join(args, " "))
	}
	return w.beside(ctx, stdin, program, args...)
}

func (w *world) world(args []string, out, errOut io.Writer) *tool.Env {
	e := &tool.Env{Beside: w.runBeside, Metrics: func(context.Context, string) (string, error) { return agentText, nil },
		Args: args, Stdin: strings.NewReader(w.stdin), Stdout: out, Stderr: errOut, Dir: "/lab/jobs", Host: "vm", UID: w.uid, Version: "test", Loc: time.UTC,
		Now: func() time.Time { return w.at }, Pause: w.pause,
		// Time does not pass in a pause of this world, so nobody is told at a terminal how long something takes.
		Terminal: func(file any) bool { return w.tty && file != any(errOut) },
		UserName: func(uid uint32) string { return map[uint32]string{0: "root", 1001: "alice", 1002: "bob"}[uid] },
		UserID: func(user string) string {
			return map[string]string{"root": "0", "alice": "1001", "bob": "1002", "carol": "1003"}[user]
		},
		Rlimits: func() []*apiv1.Count {
			return []*apiv1.Count{{Name: "CORE", N: 0}, {Name: "NOFILE", N: 1024}, {Name: "STACK", N: -1}}
		},
		Umask: func() uint32 { return 0o22 },
		CPUs:  func() spec.Bitset { return spec.Bitset{0b11} },
		Exec: func(path string, argv, environ []string) error {
			var gpus []string
			for _, v := range environ {
				if strings.Contains(v, "GPUS=") || strings.Contains(v, "DEVICES=") || strings.Contains(v, "ORDINAL=") || strings.HasPrefix(v, "ZE_") {
					gpus = append(gpus, v)
				}
			}
			slices.Sort(gpus)
			_, err := fmt.Fprintln(out, path, argv, gpus)
			return err
		},
	}
	e.Environ = []string{"MUSTER_SOCKET=" + w.socket}
	for k, v := range w.env {
		e.Environ = append(e.Environ, k+"="+v)
	}
	slices.Sort(e.Environ)
	e.Dial = e.DialController
	return e
}

// shell runs a line, split at blanks outside quotes.
func (w *world) shell(line string) result {
	w.t.Helper()
	words, err := tool.ShellWords(line)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.run(words...)
}

// last is the latest request of a method; it fails without one.
func (w *world) last(method string) proto.Message {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range slices.Backward(w.seen) {
		if q.method == method {
			return q.req
		}
	}
	w.t.Fatalf("%s was not called", method)
	return nil
}

func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = nil
}

// submitted runs a line that submits and gives the request.
func (w *world) submitted(line string) *apiv1.SubmitRequest {
	w.t.Helper()
	w.forget()
	if r := w.shell(line); r.code != 0 {
		w.t.Fatalf("%s: exit code %d: %s", line, r.code, r.errOut)
	}
	return w.last(tool.MethodSubmit).(*apiv1.SubmitRequest)
}

// changePartition answers as the controller does.
func (f *fake) changePartition(q *apiv1.PartitionChange) (proto.Message, error) {
	set := make([]spec.KeyValue, len(q.GetSet()))
	for i, e := range q.GetSet() {
		set[i] = spec.KeyValue{Key: e.GetKey(), Value: e.GetValue()}
	}
	conf := &spec.Config{Nodes: []spec.NodeSpec{{Name: "node1"}, {Name: "node2"}}}
	if q.GetCreate() {
		next, warnings, err := slurmconf.NewPartition(q.GetName(), set, conf)
		if err != nil {
			return nil, spec.Refuse(spec.CodeBadRequest, err.Error())
		}
		f.parts = append(slices.Clip(f.parts), &apiv1.PartitionInfo{Name: next.Name, NodeNames: next.NodeNames, Nodes: next.Nodes, MaxTime: int64(next.MaxTime)})
		return &apiv1.PartitionChangeReply{Warnings: warnings}, nil
	}
	at := slices.IndexFunc(f.parts, func(p *apiv1.PartitionInfo) bool { return p.GetName() == q.GetName() })
	if at < 0 {
		return nil, spec.Refuse(spec.CodeInvalidPartition, q.GetName())
	}
	if q.GetDelete() {
		return nil, spec.Refuse(spec.CodeInvalidPartition, q.GetName()+" is defined in slurm.conf; remove it there and run scontrol reconfigure")
	}
	next, warnings, err := slurmconf.ChangePartition(spec.PartitionSpec{Name: q.GetName()}, set, conf)
	if err != nil {
		return nil, spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	p := proto.Clone(f.parts[at]).(*apiv1.PartitionInfo)
	p.State = uint32(next.State)
	if slurmconf.ChangesNodes(set) {
		p.NodeNames, p.Nodes = next.NodeNames, next.Nodes
	}
	f.parts = slices.Clone(f.parts)
	f.parts[at] = p
	return &apiv1.PartitionChangeReply{Warnings: warnings}, nil
}

func (f *fake) changeNodes(q *apiv1.NodeChange) (proto.Message, error) {
	list, err := slurmconf.ReadNode(q.GetCreate(), &spec.Config{GresTypes: []string{"gpu"}})
	switch {
	case q.GetDelete() == "n1":
		return nil, spec.Refuse(spec.CodeInvalidNodeState, "n1 is defined in slurm.conf; remove it there and run scontrol reconfigure")
	case q.GetDelete() != "":
		return &apiv1.NodeChangeReply{Nodes: []string{q.GetDelete()}}, nil
	case err != nil:
		return nil, spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	return &apiv1.NodeChangeReply{Nodes: []string{list[0].Name}}, nil
}

// pause notes how long a command would have waited.
func (w *world) pause(_ context.Context, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pauses = append(w.pauses, d)
}

// lostRuns are runs that a node has and the ledger does not know.
func lostRuns() []*apiv1.OrphanRun {
	return []*apiv1.OrphanRun{
		{Run: "305.1.batch.9e3779b97f4a7c15", Node: "n1", JobId: 305, User: "alice", UserId: 1000, Started: 1_900_000_000_000_000_000},
		{Run: "306.2.batch.9e3779b97f4a7c15", Node: "n2", JobId: 306, UserId: 1001, Started: 1_900_000_060_000_000_000},
	}
}
