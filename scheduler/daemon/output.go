package daemon

import (
	"cmp"
	"context"
	"path/filepath"
	"sync"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// Bounds of what reading the output of jobs may cost.
const (
	outputPatience = 6 * spec.Second // for the node; its own patience is shorter
	maxOutput      = 64 << 10        // bytes of one answer
	maxReads       = 64              // questions that wait for one agent
	maxUserReads   = 8               // questions of one user at a time
)

// reads are the questions about files whose answers are still to come.
type reads struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]openRead
	of   map[uint32]int // by user
}

type openRead struct {
	node string
	out  chan<- *apiv1.FileRead // with room for the answer
}

// beginRead notes a question of a user, or refuses it.
func (r *reads) beginRead(node string, user uint32, out chan<- *apiv1.FileRead) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = map[uint64]openRead{}
		r.of = map[uint32]int{}
	}
	if r.of[user] >= maxUserReads {
		return 0, false
	}
	r.of[user]++
	r.last++
	r.open[r.last] = openRead{node, out}
	return r.last, true
}

func (r *reads) endRead(query uint64, user uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, query)
	r.of[user]--
	if r.of[user] == 0 {
		delete(r.of, user)
	}
}

// take hands an answer on; one that comes too late, twice, or from a node that was
// not asked is nobody's.
func (r *reads) take(node string, read *apiv1.FileRead) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one, ok := r.open[read.GetAsk()]; ok && one.node == node {
		delete(r.open, read.GetAsk())
		one.out <- read
	}
}

// queueRead queues a question; false when the agent has too many unread.
func (a *agentConn) queueRead(query *apiv1.ReadFile) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.reads) >= maxReads {
		return false
	}
	a.reads = append(a.reads, query)
	a.wakeSender()
	return true
}

// readFile asks a node for a part of a file, for a user.
func (h *hub) readFile(
	ctx context.Context,
	node string,
	user uint32,
	query *apiv1.ReadFile,
) (*apiv1.FileRead, error) {
	conn := h.connOf(node)
	switch {
	case conn == nil:
		return nil, spec.Refuse(spec.CodeUnreachable,
			"the agent of "+node+" is not connected; the output is on that node")
	case !conn.outputs:
		return nil, spec.Refuse(spec.CodeDisabled,
			"the agent of "+node+" is of a release that cannot read output for others")
	}
	back := make(chan *apiv1.FileRead, 1)
	number, ok := h.reads.beginRead(node, user, back)
	if !ok {
		return nil, spec.Refuse(spec.CodeBackoff, "you read the output of too many jobs at a time; try again")
	}
	defer h.reads.endRead(number, user)
	query.Ask = number
	if !conn.queueRead(query) {
		return nil, spec.Refuse(spec.CodeBackoff, "too many files of "+node+" are being read; try again")
	}
	late, stop := h.c.deps.Clock.After(outputPatience)
	defer stop()
	select {
	case read := <-back:
		return read, nil
	case <-late:
		return nil, spec.Refuse(spec.CodeUnreachable, "the agent of "+node+" did not answer in time; try again")
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-h.c.stopping:
		return nil, spec.Refuse(spec.CodeStopping, "")
	}
}

// ReadOutput reads what the batch script of a job has written. The job's node reads
// it, with the rights of the job's user and only if the file is his; so it is read
// for him, and for root, who may be him anyway.
func (s *jobCalls) ReadOutput(
	ctx context.Context,
	req *apiv1.ReadOutputRequest,
) (*apiv1.ReadOutputReply, error) {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	view := s.C.View()
	job, err := stepJob(view.State, req.GetJob(), s.visibleTo(caller))
	switch {
	case err != nil:
		return nil, err
	case job.Spec.UID != caller.UID && (caller.UID != 0 || !s.isOperator(caller)):
		return nil, spec.Refuse(spec.CodeAccessDenied, "only its user and root read what a job writes")
	case job.Spec.Shell:
		return nil, spec.Refuse(spec.CodeNoScript,
			"the job has no batch script: what its steps write goes to srun")
	case job.State == spec.Pending:
		return nil, spec.Refuse(spec.CodeJobPending, "the job has written nothing: it has not started")
	case job.Alloc == nil:
		return nil, spec.Refuse(spec.CodeNothingFound, "the job ended before it started, and has written nothing")
	}
	most := req.GetMost()
	if most <= 0 || most > maxOutput {
		most = maxOutput
	}
	out := &apiv1.ReadOutputReply{
		Node: job.Alloc.Nodes[0].Name,
		Path: outputPath(view.State, job, req.GetErr()),
		// Until the node has given the job back, its last lines may be on their way.
		Over: job.State.Terminal() && job.Done.Has(0),
	}
	read, err := s.C.hub.readFile(ctx, out.Node, caller.UID, &apiv1.ReadFile{
		Path:    out.Path,
		UserId:  job.Spec.UID,
		GroupId: job.Spec.GID,
		Groups:  job.Spec.Groups,
		From:    req.GetFrom(),
		Most:    most,
	})
	if err != nil {
		return nil, err
	}
	if problem := read.GetProblem(); problem != "" {
		return nil, spec.Refuse(spec.CodeNothingFound, out.Path+" on "+out.Node+": "+problem)
	}
	out.Data = read.GetData()[:min(int64(len(read.GetData())), most)]
	out.From, out.Size = read.GetFrom(), read.GetSize()
	return out, nil
}

// outputPath is the file that a job's batch script writes, as its node names it.
func outputPath(cluster *state.State, job *state.Job, wantErr bool) string {
	of := &plan.Job{
		ID:       uint64(job.ID),
		Task:     spec.NoTask,
		Spec:     job.Spec,
		User:     job.Spec.User,
		Restarts: job.Restarts,
	}
	if array := cluster.Job(job.Array); array != nil {
		of.ArrayID = uint64(array.ID)
		of.Task = job.Task
	}
	host := job.Alloc.Nodes[0].Name
	if node := cluster.Node(host); node != nil && node.Inv != nil {
		host = cmp.Or(node.Inv.Hostname, host)
	}
	_, stdout, stderr := plan.Files(of, &plan.Node{Host: host})
	path := stdout
	if wantErr && stderr != "" {
		path = stderr
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(cmp.Or(job.Spec.IO.WorkDir, "/tmp"), path)
}
