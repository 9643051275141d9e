package submit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// soon is within which an allocation that is granted is not told to wait.
const soon = 700 * time.Millisecond

// allocation is a job that a live command made: it is attended until it ends.
type allocation struct {
	c    *tool.Call
	uid  uint64
	id   uint32
	news chan *apiv1.JobInfo // nil = it is not known any more
	stop context.CancelFunc
	job  *apiv1.JobInfo   // as it was granted
	all  []*apiv1.JobInfo // the components of a heterogeneous job; of another job, itself
}

// allocateJob asks for a job, of one or several components, and waits until it runs.
func allocateJob(call *tool.Call, specs []*apiv1.JobSpec) (*allocation, error) {
	var reply apiv1.SubmitReply
	if err := call.RPC(
		tool.MethodSubmit,
		&apiv1.SubmitRequest{Spec: specs[0], Rest: specs[1:], Request: call.RequestNumber()},
		&reply,
	); err != nil {
		return nil, allocationFailed(call, err)
	}
	for line := range strings.Lines(reply.GetMessage()) {
		fmt.Fprintf(call.Stderr, "%s: %s\n", call.Command.Name, strings.TrimRight(line, "\n"))
	}
	a := &allocation{
		c:    call,
		uid:  reply.GetUid(),
		id:   reply.GetJobId(),
		news: make(chan *apiv1.JobInfo, 16),
	}
	var ctx context.Context
	ctx, a.stop = context.WithCancel(call.Ctx)
	go a.attendJob(ctx, specs[0].GetAttended())
	if err := a.awaitNodes(); err != nil {
		return a, err
	}
	a.all = []*apiv1.JobInfo{a.job}
	if len(specs) > 1 {
		return a, a.findOthers(len(specs))
	}
	return a, nil
}

// findOthers finds the components of a heterogeneous job, which run since the first
// does.
func (a *allocation) findOthers(size int) error {
	var reply apiv1.ListJobsReply
	err := askAgain(
		a.c,
		tool.MethodListJobs,
		&apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Jobs: []string{tool.Itoa(a.id)}}},
		&reply,
	)
	a.all = reply.GetJobs()
	slices.SortFunc(
		a.all,
		func(x, y *apiv1.JobInfo) int { return cmp.Compare(x.GetHetOffset(), y.GetHetOffset()) },
	)
	if err == nil &&
		(len(a.all) != size || slices.ContainsFunc(a.all, func(j *apiv1.JobInfo) bool { return spec.JobState(j.GetState()) != spec.Running })) {
		err = tool.Fail(
			1,
			fmt.Sprintf("%s: error: not all components of job %d run", a.c.Command.Name, a.id),
		)
	}
	if err != nil {
		a.endAllocation(1, 0)
	}
	return err
}

// allocationFailed words a refusal.
func allocationFailed(call *tool.Call, err error) error {
	refusal := tool.ExplainError(err)
	code := 1
	if n, nerr := strconv.Atoi(call.Getenv("SLURM_EXIT_ERROR")); nerr == nil {
		code = n
	}
	return tool.Fail(
		code,
		append(
			refusal.Preamble(call.Command.Name),
			fmt.Sprintf("%s: error: %s: %s", call.Command.Name, whyUnable(call), refusal.Text),
		)...)
}

func whyUnable(call *tool.Call) string {
	if call.Command.Name == "salloc" {
		return "Job submit/allocate failed"
	}
	return "Unable to allocate resources"
}

// attendJob follows the job, over restarts of the controller, which ends it when
// nobody does.
func (a *allocation) attendJob(ctx context.Context, attended bool) {
	defer close(a.news)
	wait := firstWait / 10
	for ctx.Err() == nil {
		err := a.followJob(ctx, attended)
		if err == nil || ctx.Err() != nil || !fetch.ControllerGone(err) {
			return
		}
		a.c.Pause(ctx, wait)
		wait = min(2*wait, longWait)
	}
}

// followJob passes the job's records on until it is over; nil tells that it is.
func (a *allocation) followJob(ctx context.Context, attended bool) error {
	conn, err := a.c.Dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	receiver, err := conn.Stream(
		ctx,
		tool.MethodWatchJob,
		&apiv1.WatchJobRequest{Uid: a.uid, Attend: attended},
	)
	if err != nil {
		return err
	}
	defer receiver.Close()
	for ctx.Err() == nil {
		job := &apiv1.JobInfo{}
		if err := receiver.Recv(job); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			var st *rpcstatus.Error
			if errors.As(err, &st) && fetch.ControllerGone(err) {
				return rpcstatus.New(rpcstatus.Unavailable, "the controller is being restarted")
			}
			return err
		}
		if line := job.GetNotice(); line != "" {
			fmt.Fprintf(a.c.Stderr, "%s: %s\n", a.c.Command.Name, render.Clean(line))
			continue
		}
		select {
		case a.news <- job:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// awaitNodes returns when the job runs on nodes that are ready.
func (a *allocation) awaitNodes() error {
	call := a.c
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	told, late := false, time.After(soon)
	limit, err := immediateTimer(call)
	if err != nil {
		a.endAllocation(1, 0)
		return err
	}
	for {
		select {
		case job, ok := <-a.news:
			switch {
			case !ok || spec.JobState(job.GetState()).Terminal():
				a.stop()
				return tool.Fail(
					1,
					fmt.Sprintf(
						"%s: error: Job allocation %d has been revoked",
						call.Command.Name,
						a.id,
					),
				)
			case spec.JobState(job.GetState()) == spec.Running && !job.GetConfiguring():
				a.job = job
				if told {
					printLine(call, "job %d has been allocated resources", a.id)
				}
				return nil
			case !told && cannotStart(job):
				told, late = true, nil
				printLine(call, "%s", spec.CodePartitionConfigUnavailable)
				for _, line := range (&render.WhyView{}).BecauseLimit(&apiv1.WhyReply{Job: job, Reason: job.GetReason()}) {
					printLine(call, "%s", line)
				}
				a.sayQueued()
			}
		case <-late:
			told, late = true, nil
			a.sayQueued()
		case <-limit:
			a.endAllocation(1, 0)
			return tool.Fail(
				1,
				fmt.Sprintf(
					"%s: error: Unable to allocate resources: %s",
					call.Command.Name,
					spec.CodeCannotStartNow,
				),
			)
		case s := <-signals:
			a.endAllocation(1, int32(s.(syscall.Signal)))
			return tool.Fail(
				1,
				fmt.Sprintf("%s: Job allocation %d has been revoked.", call.Command.Name, a.id),
			)
		}
	}
}

func (a *allocation) sayQueued() {
	if a.c.Command.Name == "salloc" {
		printLine(a.c, "Pending job allocation %d", a.id)
	}
	printLine(a.c, "job %d queued and waiting for resources", a.id)
}

// cannotStart tells that a job cannot start as it is, however long it waits.
func cannotStart(job *apiv1.JobInfo) bool {
	return slices.Contains(
		[]spec.ReasonCode{
			spec.ReasonPartitionNodeLimit,
			spec.ReasonPartitionTimeLimit,
			spec.ReasonPartitionConfig,
			spec.ReasonBadConstraints,
			spec.ReasonAccountNotAllowed,
			spec.ReasonQOSNotAllowed,
		},
		spec.ReasonCode(job.GetReason().GetCode()),
	)
}

// immediateTimer is --immediate: how long to wait; nil is for ever.
func immediateTimer(call *tool.Call) (<-chan time.Time, error) {
	value, ok := call.Opts.Get("immediate")
	if !ok {
		return nil, nil
	}
	n := uint64(1)
	if value.Text != "" {
		var err error
		n, err = strconv.ParseUint(value.Text, 10, 30)
		if err != nil {
			return nil, call.Errorf("Invalid numeric value %q for --immediate.", value.Text)
		}
	}
	return time.After(time.Duration(max(n, 1)) * time.Second), nil
}

func printLine(call *tool.Call, format string, args ...any) {
	if !call.Opts.On("quiet") {
		fmt.Fprintf(call.Stderr, call.Command.Name+": "+format+"\n", args...)
	}
}

// askAgain is ask for what may be asked twice: it outlasts a restart of the
// controller.
func askAgain(call *tool.Call, method string, request, resp proto.Message) error {
	var err error
	for wait, began := firstWait/10, call.Now(); ; wait = min(2*wait, longWait) {
		err = call.RPC(method, request, resp)
		if err == nil || !fetch.ControllerGone(err) || call.Now().Sub(began) > lastNews {
			return err
		}
		if call.Conn != nil {
			_ = call.Conn.Close()
			call.Conn = nil
		}
		call.Pause(call.Ctx, wait)
	}
}

// endAllocation gives the allocation back, with the exit of what ran in it.
func (a *allocation) endAllocation(code, sig int32) {
	err := askAgain(
		a.c,
		tool.MethodEndJob,
		&apiv1.EndJobRequest{Job: tool.Itoa(a.id), ExitCode: code, ExitSignal: sig},
		&apiv1.EndJobReply{},
	)
	a.stop()
	if err != nil && tool.ExplainError(err).Code != spec.CodeInvalidJobID {
		fmt.Fprintf(
			a.c.Stderr,
			"%s: error: job %d: %s\n",
			a.c.Command.Name,
			a.id,
			tool.ExplainError(err).Text,
		)
	}
}

// hostVariables are what a job tells the programs of the host where it was asked
// for, one list for each component, and what all of them are told.
func (a *allocation) hostVariables() (of [][]string, shared []string) {
	var config apiv1.GetConfigReply
	cluster := ""
	if a.c.RPC(tool.MethodGetConfig, &apiv1.GetConfigRequest{}, &config) == nil {
		cluster = config.GetCluster()
	}
	for _, job := range a.all {
		of = append(of, a.variablesOf(job, cluster))
	}
	return of, hetVariables(of)
}

func (a *allocation) variablesOf(job *apiv1.JobInfo, cluster string) []string {
	call, jobSpec := a.c, job.GetSpec()
	var out []string
	put := func(value string, names ...string) {
		for _, n := range names {
			if value != "" && value != "0" {
				out = append(out, n+"="+value)
			}
		}
	}
	cpus, tasks := make([]int64, len(job.GetAllocation())), make([]int64, len(job.GetAllocation()))
	for i, n := range job.GetAllocation() {
		cpus[i], tasks[i] = int64(spec.Bitset(n.GetCpus()).Count()), int64(max(n.GetTasks(), 1))
	}
	put(tool.Itoa(job.GetJobId()), "SLURM_JOB_ID", "SLURM_JOBID")
	put(job.GetNodes(), "SLURM_JOB_NODELIST", "SLURM_NODELIST")
	put(tool.Itoa(job.GetNumNodes()), "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
	put(format.PerNode(cpus), "SLURM_JOB_CPUS_PER_NODE")
	put(format.PerNode(tasks), "SLURM_TASKS_PER_NODE")
	put(job.GetPartition(), "SLURM_JOB_PARTITION")
	put(jobSpec.GetAccount(), "SLURM_JOB_ACCOUNT")
	put(job.GetQos(), "SLURM_JOB_QOS")
	put(jobSpec.GetName(), "SLURM_JOB_NAME")
	put(job.GetUser(), "SLURM_JOB_USER")
	out = append(out, "SLURM_JOB_UID="+tool.Itoa(job.GetUserId()), "SLURM_JOB_GID="+
		tool.Itoa(job.GetGroupId()))
	put(job.GetGroup(), "SLURM_JOB_GROUP")
	put(jobSpec.GetReservation(), "SLURM_JOB_RESERVATION")
	put(tool.Itoa(uint32(job.GetStart()/int64(spec.Second))), "SLURM_JOB_START_TIME")
	put(tool.Itoa(uint32(max(job.GetEnd(), 0)/int64(spec.Second))), "SLURM_JOB_END_TIME")
	if jobSpec.GetTasks() > 0 || jobSpec.GetTasksPerNode() > 0 {
		put(tool.Itoa(job.GetNumTasks()), "SLURM_NTASKS", "SLURM_NPROCS")
	}
	put(tool.Itoa(jobSpec.GetTasksPerNode()), "SLURM_NTASKS_PER_NODE")
	put(tool.Itoa(jobSpec.GetCpusPerTask()), "SLURM_CPUS_PER_TASK")
	out = append(out, requestVariables(jobSpec)...)
	put(strconv.FormatInt(jobSpec.GetMemPerNode(), 10), "SLURM_MEM_PER_NODE")
	put(strconv.FormatInt(jobSpec.GetMemPerCpu(), 10), "SLURM_MEM_PER_CPU")
	if jobSpec.GetOvercommit() {
		put("1", "SLURM_OVERCOMMIT")
	}
	put(call.Dir, "SLURM_SUBMIT_DIR")
	put(call.Host, "SLURM_SUBMIT_HOST")
	put(cluster, "SLURM_CLUSTER_NAME")
	return out
}
