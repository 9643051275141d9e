package submit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/stepio"
	"github.com/musterhpc/muster/nodeagent/stepclient"
	"github.com/musterhpc/muster/spec"
)

// Times of an srun that waits.
const (
	exitsTogether = 100 * time.Millisecond // exits that come so close are told in one line
	secondPress   = time.Second            // between two Ctrl-C that belong together
	lastOutput    = 5 * time.Second        // for output that is on its way when the step is over
	// killWaitMargin is what a step may take beside KillWait, as srun of Slurm says it.
	killWaitMargin = 2 * time.Second
	lastNews       = 30 * time.Second // for the controller to learn that the step is over
)

// stepRun is a step as its srun sees it.
type stepRun struct {
	c    *tool.Call
	opts *opt.Values   // of the first part
	rest []*opt.Values // of the other parts
	req  *apiv1.RunStepRequest
	// filter is the site's script that hears of the step; nil: there is none.
	filter *siteFilter

	created  *apiv1.StepCreated
	over     *apiv1.StepOver
	client   *stepclient.Client
	out      *stepOutput
	exits    exits
	running  map[uint32]string // ranks that have not ended, with their nodes
	worst    int
	failed   error // of the way to the nodes
	told     bool  // the nodes have told all
	unknown  error // why the controller cannot tell the end
	vague    bool  // a node knew nothing of its part
	killed   bool
	aborted  bool // its job has been ended
	verbose  bool // --verbose
	pressed  time.Time
	presses  int
	deadline <-chan time.Time // of --wait
	patience <-chan time.Time // of --immediate
}

// event is something that the step's own goroutines tell the one that acts.
type stepEvent func(r *stepRun)

// runStep starts a step and shows it until it is over; own tells that this srun
// made the job. A step in several components is one for each.
func runStep(call *tool.Call, asks []stepAsk, filter *siteFilter, own bool) (int, error) {
	opts := asks[0].opts
	request := &apiv1.RunStepRequest{
		Job:    asks[0].job,
		Step:   asks[0].step,
		Ticket: newTicket(),
		Host:   call.Host,
	}
	for _, query := range asks[1:] { // the tasks of all components are one world
		switch first := asks[0].step.GetMpi(); query.step.GetMpi() {
		case "":
			query.step.Mpi = first
		case first:
		default:
			return 0, call.Errorf(
				"--mpi=%s differs from --mpi=%s of the first component: all tasks of a step have one interface",
				query.step.GetMpi(), first,
			)
		}
	}
	for i, query := range asks {
		env, err := stepEnvironment(call, query.step, query.opts, query.vars)
		if err != nil {
			return 0, err
		}
		if i == 0 {
			request.Environment = &apiv1.Blob{Data: env}
		} else {
			request.Rest = append(
				request.Rest,
				&apiv1.StepInComponent{
					Job: query.job, Step: query.step, Environment: &apiv1.Blob{Data: env},
				},
			)
		}
	}
	run := &stepRun{c: call, opts: opts, req: request, filter: filter, running: map[uint32]string{}}
	run.verbose = isVerbose(call, "SLURM_DEBUG")
	for _, query := range asks[1:] {
		run.rest = append(run.rest, query.opts)
	}
	if value, ok := opts.Get("immediate"); ok &&
		!own { // in a job of its own it is the job that must start at once
		request.Immediate = value.Text == ""
		if !request.Immediate {
			var err error
			run.patience, err = immediateTimer(call)
			if err != nil {
				return 0, err
			}
		}
	}
	ctx, cancel := context.WithCancel(call.Ctx)
	defer cancel()
	events := make(chan stepEvent, 64)
	tell := func(event stepEvent) {
		select {
		case events <- event:
		case <-ctx.Done():
		}
	}
	news := make(chan error, 1)
	go func() { news <- run.followNews(ctx, tell) }()
	signals := make(chan os.Signal, 16)
	signal.Notify(
		signals,
		syscall.SIGINT,
		syscall.SIGQUIT,
		syscall.SIGTERM,
		syscall.SIGHUP,
		syscall.SIGUSR1,
		syscall.SIGUSR2,
		syscall.SIGALRM,
		syscall.SIGCONT,
		syscall.SIGWINCH,
	)
	defer signal.Stop(signals)
	signal.Ignore(syscall.SIGTTIN)
	return run.watchStep(ctx, events, news, signals, tell)
}

// watchStep acts on what happens until the step is over.
func (r *stepRun) watchStep(
	ctx context.Context,
	events <-chan stepEvent,
	news <-chan error,
	signals <-chan os.Signal,
	tell func(stepEvent),
) (int, error) {
	var done chan error // the nodes have told all
	var exitsDue, giveUp <-chan time.Time
	restore := func() {}
	defer func() { restore() }()
	for {
		select {
		case event := <-events:
			had := r.created != nil
			event(r)
			if !had && r.created != nil {
				done = make(chan error, 1)
				var err error
				restore, err = r.beginStep(ctx, tell, done)
				if err != nil {
					r.endStep()
					return 0, err
				}
			}
			if len(r.exits.list) > 0 && exitsDue == nil {
				exitsDue = time.After(exitsTogether)
			}
			if r.over != nil && done != nil {
				giveUp = time.After(lastOutput)
			}
		case <-r.patience:
			r.patience = nil
			if r.created == nil {
				return r.reportLost(spec.Refuse(spec.CodeNodesBusy, ""))
			}
		case <-exitsDue:
			exitsDue = nil
			r.sayExits()
		case err := <-done:
			done, giveUp = nil, time.After(lastNews)
			r.failed, r.told = err, err == nil
			if err != nil && r.over == nil {
				r.endStep()
			}
		case err := <-news:
			news = nil // without an error, the end is among the events
			switch {
			case err == nil:
			case r.created == nil || tool.ExplainError(err).Code != spec.CodeAlreadyDone:
				return r.reportLost(err)
			default: // the nodes may still tell
				r.unknown = err
				r.over = &apiv1.StepOver{}
				giveUp = time.After(lastOutput)
			}
		case s := <-signals:
			if r.created == nil && s != syscall.SIGCONT && s != syscall.SIGWINCH {
				return 0, tool.Fail(1, "srun: Cancelled pending job step with signal "+
					fmt.Sprint(int(s.(syscall.Signal))))
			}
			r.handleSignal(s)
		case <-r.deadline:
			r.deadline = nil
			r.printLine("First task exited %ds ago", r.created.GetWait())
			r.sayTasks()
			r.killTasks()
			r.terminateStep()
		case <-giveUp:
			if done != nil && !r.killed &&
				r.out.isBusy(r.c.Now(), lastOutput) { // who reads it takes its time
				giveUp = time.After(lastOutput)
				continue
			}
			return r.finishStep(events)
		}
		if r.over != nil && done == nil && r.created != nil {
			return r.finishStep(events)
		}
	}
}

// reportLost is a step that the controller does not make, or knows nothing of.
func (r *stepRun) reportLost(err error) (int, error) {
	refusal := tool.ExplainError(err)
	code := 1
	if n, ok := r.c.Lookup("SLURM_EXIT_ERROR"); ok {
		if _, serr := fmt.Sscan(n, &code); serr != nil {
			code = 1
		}
	}
	if r.created != nil {
		return 0, tool.Fail(
			code,
			append(
				refusal.Preamble(r.c.Command.Name),
				fmt.Sprintf("srun: error: %s: %s", placeName(r.created), refusal.Text),
			)...)
	}
	if refusal.Code == spec.CodeInvalidJobID {
		name, job := r.c.Command.Name, r.req.GetJob()
		return 0, tool.Fail(
			code,
			fmt.Sprintf(
				"%s: error: Unable to confirm allocation for job %s: %s", name, job, refusal.Text,
			),
			fmt.Sprintf(
				"%s: Check SLURM_JOB_ID environment variable. Expired or invalid job %s", name, job,
			),
		)
	}
	return 0, tool.Fail(
		code,
		append(
			refusal.Preamble(r.c.Command.Name),
			fmt.Sprintf(
				"%s: error: Unable to create step for job %s: %s",
				r.c.Command.Name,
				r.req.GetJob(),
				refusal.Text,
			),
		)...)
}

// finishStep ends with the worst exit of the tasks.
func (r *stepRun) finishStep(events <-chan stepEvent) (int, error) {
	for told := true; told; { // exits that came with the end
		select {
		case e := <-events:
			e(r)
		default:
			told = false
		}
	}
	r.sayExits()
	err := r.out.close()
	if r.unknown != nil && (!r.told || r.vague) && r.worst == 0 {
		return r.reportLost(r.unknown)
	}
	if r.over != nil {
		if spec.JobState(r.over.GetState()) == spec.TimedOut {
			fmt.Fprintf(
				r.c.Stderr,
				"srun: error: %s exceeded its time limit\n",
				placeName(r.created),
			)
		}
		code := int(r.over.GetExitCode())
		if code == 0 && r.over.GetExitSignal() != 0 {
			code = 128 + int(r.over.GetExitSignal())
		}
		if r.over.GetDetail() != "" && r.worst == 0 {
			fmt.Fprintf(
				r.c.Stderr,
				"srun: error: %s: %s\n",
				placeName(r.created),
				r.over.GetDetail(),
			)
			code = max(code, 1)
		}
		r.worst = max(r.worst, code)
	}
	if !r.told && r.worst == 0 && r.over != nil &&
		spec.JobState(r.over.GetState()) == spec.Completed {
		reason := ""
		if r.failed != nil {
			reason = ": " + r.failed.Error()
		}
		fmt.Fprintf(
			r.c.Stderr,
			"srun: error: %s has ended well, but not all of its output has come%s\n",
			placeName(r.created),
			reason,
		)
		return 1, err
	}
	if r.failed != nil && r.worst == 0 &&
		(r.over == nil || spec.JobState(r.over.GetState()) != spec.Completed) {
		return 1, tool.Fail(1, "srun: error: "+r.failed.Error())
	}
	return r.worst, err
}

func (r *stepRun) printLine(format string, args ...any) {
	if !r.opts.On("quiet") {
		fmt.Fprintf(r.c.Stderr, r.c.Command.Name+": "+format+"\n", args...)
	}
}

// followNews follows the step at the controller, over its restarts: the ticket finds
// the same step again, and its number one that has been forgotten since.
func (r *stepRun) followNews(ctx context.Context, tell func(stepEvent)) error {
	wait := firstWait / 10
	request := proto.CloneOf(r.req)
	for {
		over, err := r.followStep(ctx, request, tell)
		switch {
		case over || ctx.Err() != nil:
			return nil
		case err != nil && !fetch.ControllerGone(err):
			return err
		}
		r.c.Pause(ctx, wait)
		wait = min(2*wait, longWait)
	}
}

func (r *stepRun) followStep(
	ctx context.Context,
	request *apiv1.RunStepRequest,
	tell func(stepEvent),
) (over bool, err error) {
	conn, err := r.c.Dial(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	receiver, err := conn.Stream(ctx, tool.MethodRunStep, request)
	if err != nil {
		return false, err
	}
	defer receiver.Close()
	for {
		news := &apiv1.StepNews{}
		if err := receiver.Recv(news); errors.Is(err, io.EOF) {
			return over, rpcstatus.New(rpcstatus.Unavailable, "the controller ended the stream")
		} else if err != nil {
			return over, err
		}
		if made := news.GetCreated(); made != nil {
			request.Attempt, request.Created = made.GetAttempt(), made.GetStep()
			for i, part := range made.GetRest() {
				request.Rest[i].Attempt = part.GetAttempt()
			}
		}
		over = news.GetOver() != nil
		tell(func(r *stepRun) { r.handleNews(news) })
		if over {
			return true, nil
		}
	}
}

// handleNews takes the controller's news.
func (r *stepRun) handleNews(news *apiv1.StepNews) {
	switch {
	case news.GetQueued() != nil:
		r.printLine(
			"Job %d step creation temporarily disabled, retrying (%s)",
			news.GetQueued().GetJobId(),
			news.GetQueued().GetWhy(),
		)
		r.presses = -1 // it is told when it goes on
	case news.GetCreated() != nil && r.created == nil:
		r.created = news.GetCreated()
		r.filter.tellSubmitted(r.created.GetJobId(), uint32(r.created.GetStep()))
		if r.opts.On("x11") && r.created.GetJob().GetSpec().GetX11() == "" {
			r.printLine("warning: --x11: job %d was allocated without --x11, so its programs reach no display", r.created.GetJobId())
		}
		if r.presses < 0 {
			r.printLine("Step created for %s", placeName(r.created))
			r.presses = 0
		}
	case news.GetOver() != nil:
		r.over = news.GetOver()
	}
}

// beginStep connects to the nodes and lets input and output flow.
func (r *stepRun) beginStep(
	ctx context.Context,
	tell func(stepEvent),
	done chan<- error,
) (restore func(), err error) {
	created := r.created
	facts := &plan.FileFacts{
		JobID:     uint64(created.GetJobId()),
		ArrayJob:  uint64(created.GetJob().GetArrayJobId()),
		ArrayTask: spec.NoTask,
		Step:      created.GetStep(),
		User:      created.GetJob().GetUser(),
		JobName:   created.GetJob().GetSpec().GetName(),
	}
	if facts.ArrayJob != 0 {
		facts.ArrayTask = created.GetJob().GetArrayTask()
	}
	if r.verbose {
		r.sayLaunch()
	}
	config, tasks := r.stepNodes()
	r.out = newStepOutput(r.c, r.opts, tasks)
	for i, part := range partsOf(created) {
		opts, own := r.opts, *facts
		if i > 0 {
			opts, own.JobID = r.rest[i-1], uint64(part.GetJobId())
		}
		if err := r.out.addPart(r.c, opts, &own, firstRank(part)); err != nil {
			return func() {}, err
		}
	}
	config.Output = r.out.writeTask
	config.Exit = func(node string, x plan.TaskExit) {
		tell(func(r *stepRun) { r.noteTaskExit(node, x) })
	}
	config.Aborted = func(string) {
		tell(func(run *stepRun) {
			run.sayExits()
			run.terminateStep()
		})
	}
	config.Notice = func(_, text string) { fmt.Fprintln(r.c.Stderr, strings.TrimRight(text, "\n")) }
	config.Ended = func(node string, end plan.FrameEnd, err error) {
		if end.Error != "" {
			fmt.Fprintf(r.c.Stderr, "%s: error: %s: %s\n", r.c.Command.Name, node, end.Error)
		}
		if errors.Is(err, stepclient.ErrOver) {
			tell(func(r *stepRun) { r.vague = true }) // the controller tells how
		}
	}
	r.client = stepclient.New(config)
	go func() { done <- r.client.Run(ctx) }()
	restore = func() {}
	if r.opts.On("pty") {
		restore = rawTerminal(r.c.Stdin)
	}
	r.passInput(ctx, facts)
	return restore, nil
}

// firstRank is the smallest rank of a part.
func firstRank(part *apiv1.StepCreated) uint32 {
	first := uint32(math.MaxUint32)
	for _, node := range part.GetNodes() {
		for _, rank := range node.GetRanks() {
			first = min(first, rank)
		}
	}
	return first
}

// stepNodes are where the step's tasks are, and how many there are.
func (r *stepRun) stepNodes() (config stepclient.Config, tasks uint32) {
	config.Dial = r.dialNode
	for _, part := range partsOf(r.created) {
		tasks += part.GetTasks()
		run := plan.Key(part.GetJobUid(), part.GetAttempt(), part.GetStep())
		for _, node := range part.GetNodes() {
			config.Nodes = append(
				config.Nodes,
				stepclient.Node{
					Name:       node.GetName(),
					Address:    node.GetAddress(),
					Ranks:      node.GetRanks(),
					Run:        run,
					Credential: part.GetCredential(),
				},
			)
			for _, rank := range node.GetRanks() {
				r.running[rank] = node.GetName()
			}
		}
	}
	return config, tasks
}

// dialNode reaches the agent of a node of the step.
func (r *stepRun) dialNode(ctx context.Context, node string) (net.Conn, error) {
	var nodes []*apiv1.StepNode
	for _, part := range partsOf(r.created) {
		nodes = append(nodes, part.GetNodes()...)
	}
	return dialAgent(ctx, r.c, nodes, node)
}

// dialAgent reaches the agent of a node: on this machine by its socket, elsewhere by way of
// an agent that is here. nodes are all those of the job or step.
func dialAgent(ctx context.Context, call *tool.Call, nodes []*apiv1.StepNode, node string) (net.Conn, error) {
	var d net.Dialer
	var relay string
	for _, stepNode := range nodes {
		if info, err := os.Stat(stepNode.GetSocket()); stepNode.GetSocket() == "" || err != nil ||
			info.Mode()&os.ModeSocket == 0 {
			continue
		}
		if stepNode.GetName() == node {
			return d.DialContext(ctx, "unix", stepNode.GetSocket())
		}
		relay = stepNode.GetSocket()
	}
	if relay == "" { // this machine has no part of it
		controller, _, err := call.Sockets()
		if err != nil {
			return nil, err
		}
		relay = controller[:strings.LastIndexByte(controller, '/')+1] + "steps.sock"
	}
	conn, err := d.DialContext(ctx, "unix", relay)
	if err != nil {
		return nil, fmt.Errorf(
			"no agent on this machine passes the input and output of node %s on: start muster-agent, or muster-agent --login, here (%w)",
			node,
			err,
		)
	}
	return conn, nil
}

// passInput passes on what this srun reads.
func (r *stepRun) passInput(ctx context.Context, facts *plan.FileFacts) {
	rank := r.req.GetStep().GetInputTask()
	if rank == spec.InputNone {
		return
	}
	from := r.c.Stdin
	if mode := r.opts.Text("input"); isFile(mode) {
		file, err := os.Open(programPath(r.c, plan.ExpandFile(mode, facts)))
		if err != nil {
			fmt.Fprintf(r.c.Stderr, "srun: error: Could not open stdin file: %v\n", err)
			from = strings.NewReader("")
		} else {
			from = file
		}
	}
	go func() {
		buf := make([]byte, stepio.MaxInput)
		for {
			n, err := from.Read(buf)
			if n > 0 && r.client.Input(ctx, rank, buf[:n]) != nil {
				return
			}
			if err != nil {
				_ = r.client.CloseInput(ctx, rank)
				return
			}
		}
	}()
}

// endOfTask is the exit code of a task as a shell gives it, and what is said of
// one that did not end well.
func endOfTask(exit *plan.TaskExit) (code int, what string) {
	code = int(exit.Code)
	if code != 0 {
		what = fmt.Sprintf("Exited with exit code %d", exit.Code)
	}
	if exit.Signal != 0 {
		code = 128 + int(exit.Signal)
		what = signalText(int(exit.Signal))
		if exit.Error == plan.OutOfMemory {
			what = exit.Error
		}
		if exit.Core {
			what += " (core dumped)"
		}
	}
	return code, what
}

// noteTaskExit takes the end of a task.
func (r *stepRun) noteTaskExit(node string, exit plan.TaskExit) {
	delete(r.running, exit.Rank)
	code, what := endOfTask(&exit)
	r.worst = max(r.worst, code)
	if what == "" && r.verbose {
		what = endedWell
	}
	if what != "" {
		r.exits.list = append(r.exits.list, taskExit{node, exit.Rank, what})
	}
	step := r.created
	switch {
	case code != 0 && step.GetKillOnBadExit() && len(r.running) > 0:
		r.sayExits()
		r.terminateStep()
	case step.GetWait() > 0 && r.deadline == nil && len(r.running) > 0 && !r.killed:
		r.deadline = time.After(time.Duration(step.GetWait()) * time.Second)
	}
}

// signalText names a signal as a shell does when a program dies of it.
func signalText(n int) string {
	switch syscall.Signal(n) {
	case syscall.SIGINT:
		return "Interrupt"
	case syscall.SIGALRM:
		return "Alarm clock"
	}
	text := syscall.Signal(n).String()
	return strings.ToUpper(text[:1]) + text[1:]
}

func (r *stepRun) sayExits() {
	for _, line := range r.exits.describeExits() {
		if strings.HasSuffix(line, ": "+endedWell) {
			r.printLine("%s", line)
			continue
		}
		fmt.Fprintln(r.c.Stderr, r.c.Command.Name+": error: "+line)
	}
}

// sayTasks tells which tasks run and which have exited.
func (r *stepRun) sayTasks() {
	var running, exited []int
	tasks := uint32(0)
	for _, part := range partsOf(r.created) {
		tasks += part.GetTasks()
	}
	for rank := range tasks {
		if _, ok := r.running[rank]; ok {
			running = append(running, int(rank))
		} else {
			exited = append(exited, int(rank))
		}
	}
	if len(running) > 0 {
		r.printLine("%s %s: running", placeName(r.created), tasksText(running))
	}
	if len(exited) > 0 {
		r.printLine("%s %s: exited", placeName(r.created), tasksText(exited))
	}
}

// terminateStep ends the step, once.
func (r *stepRun) terminateStep() {
	if r.killed {
		return
	}
	r.killed = true
	r.printLine("Terminating %s", placeName(r.created))
	r.endStep()
}

// killTasks has the tasks that are left killed, without time to end by themselves: they had that.
func (r *stepRun) killTasks() {
	if !r.killed && r.client != nil {
		r.client.Signal(int32(syscall.SIGKILL))
	}
}

// endStep asks the controller to end the step.
func (r *stepRun) endStep() {
	for _, part := range partsOf(r.created) {
		err := askAgain(
			r.c,
			tool.MethodEndStep,
			&apiv1.EndStepRequest{Job: tool.Itoa(part.GetJobId()), Step: part.GetStep()},
			&apiv1.EndStepReply{},
		)
		if err != nil && tool.ExplainError(err).Code != spec.CodeAlreadyDone && r.client != nil {
			r.client.Signal(int32(syscall.SIGKILL)) // the nodes can still be reached
		}
	}
}

// handleSignal does what a signal to srun asks for.
func (r *stepRun) handleSignal(s os.Signal) {
	switch s {
	case syscall.SIGWINCH:
		if f, ok := r.c.Stdin.(*os.File); ok && r.opts.On("pty") {
			rows, columns := terminalSize(f)
			r.client.Resize(plan.Window{Rows: rows, Columns: columns})
		}
	case syscall.SIGQUIT:
		r.printLine("Quit")
		r.terminateStep()
	case syscall.SIGINT:
		r.handleInterrupt()
	default:
		if (s == syscall.SIGTERM || s == syscall.SIGCONT) && r.jobEnds() {
			return
		}
		r.printLine("forwarding signal %d to %s", int(s.(syscall.Signal)), placeName(r.created))
		r.client.Signal(int32(s.(syscall.Signal)))
	}
}

// jobEnds tells whether the controller has the job ended whose step this is, and says
// how long the step may take. The nodes send the signals of that end to srun, which is
// one of the job's processes, and to the tasks: a task that got them from both would take
// the second SIGTERM for a new one.
func (r *stepRun) jobEnds() bool {
	if r.aborted {
		return true
	}
	id := tool.Itoa(partsOf(r.created)[0].GetJobId())
	filter := &apiv1.JobFilter{Jobs: []string{id}}
	var found apiv1.ListJobsReply
	if err := r.c.RPC(tool.MethodListJobs, &apiv1.ListJobsRequest{Filter: filter}, &found); err != nil {
		return false // the signal may be anybody's
	}
	for _, job := range found.GetJobs() {
		if spec.JobState(job.GetState()).Active() && !job.GetCompleting() {
			return false
		}
	}
	r.aborted = true
	wait := int64(killWaitMargin / time.Second)
	var config apiv1.GetConfigReply
	if err := r.c.RPC(tool.MethodGetConfig, &apiv1.GetConfigRequest{}, &config); err == nil {
		wait += killWaitOf(config.GetEntries())
	}
	r.printLine("Job step aborted: Waiting up to %d seconds for job step to finish.", wait)
	return true
}

// killWaitOf is KillWait of a configuration in seconds.
func killWaitOf(entries []*apiv1.ConfigEntry) int64 {
	seconds := int64(30)
	for _, entry := range entries {
		if strings.EqualFold(entry.GetKey(), "KillWait") {
			if _, err := fmt.Sscan(entry.GetValue(), &seconds); err != nil {
				return seconds
			}
		}
	}
	return seconds
}

// handleInterrupt is Ctrl-C: the first shows what runs, the second is passed on, the
// third ends the step.
func (r *stepRun) handleInterrupt() {
	now := r.c.Now()
	again := now.Sub(r.pressed) <= secondPress
	r.pressed = now
	if !again {
		r.presses = 0
	}
	r.presses++
	if r.opts.On("disable-status") {
		r.presses++
	}
	switch {
	case r.opts.On("quit-on-interrupt") || r.presses > 2:
		r.printLine("forcing job termination")
		r.terminateStep()
	case r.presses == 2:
		r.printLine("sending Ctrl-C to %s", placeName(r.created))
		r.client.Signal(int32(syscall.SIGINT))
	default:
		fmt.Fprintf(r.c.Stderr, "srun: interrupt (one more within 1 sec to abort)\n")
		if len(r.running) > 0 {
			ranks := make([]int, 0, len(r.running))
			for rank := range r.running {
				ranks = append(ranks, int(rank))
			}
			slices.Sort(ranks)
			fmt.Fprintf(
				r.c.Stderr,
				"srun: %s %s: running\n",
				placeName(r.created),
				tasksText(ranks),
			)
		}
	}
}
