package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/program"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/spec/format"
)

// partWait is how long down waits for one shepherd to answer and to end.
const partWait = 5 * time.Second

// endOfRuns is what down does to the runs that a shepherd still has.
type endOfRuns uint8

const (
	keepRuns   endOfRuns = iota // they go on, and their shepherd with them
	forgetRuns                  // the controller has given them up: kill them, and keep no end
	// killRuns kills them, and keeps their ends on disk: the controller is gone and learns
	// what became of its jobs when it and the agent are back.
	killRuns
)

// stopCluster stops what up started: the agents, also of nodes that slurm.conf no
// longer names, accounting, the controller, and the shepherds that have
// nothing left to do.
func (l *local) stopCluster() error {
	ctx, cancel := context.WithTimeout(context.Background(), l.wait)
	defer cancel()
	if l.picked != nil {
		return l.downNodes(ctx)
	}
	runs := keepRuns
	switch {
	case !l.jobs:
	case l.runningPID("musterd", "musterd") != 0:
		if err := l.endJobs(ctx); err != nil {
			return err
		}
		runs = forgetRuns
	default:
		fmt.Fprintln(l.out, "the controller does not run: what runs on the nodes of this machine is killed here; pending jobs stay in the queue until muster up")
		runs = killRuns
	}
	names, err := l.agents()
	if err != nil {
		return err
	}
	for _, name := range append(names, "accounting", "musterd") {
		if err := l.stop(ctx, name); err != nil {
			return err
		}
	}
	return l.endShepherds(ctx, runs)
}

// endShepherds is endShepherdsOf for every node in the state folder.
func (l *local) endShepherds(ctx context.Context, runs endOfRuns) error {
	nodes, err := os.ReadDir(filepath.Dir(l.agentDir("any")))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, n := range nodes {
		if err := l.endShepherdsOf(ctx, n.Name(), runs); err != nil {
			return err
		}
	}
	return nil
}

// downNodes stops the agents of some nodes with all that is theirs, as if the
// machines were powered off: with --jobs also processes that still run.
func (l *local) downNodes(ctx context.Context) error {
	runs := keepRuns
	if l.jobs {
		runs = forgetRuns
	}
	for _, node := range l.picked {
		if err := l.stop(ctx, "agent-"+node); err != nil {
			return err
		}
		if err := l.endShepherdsOf(ctx, node, runs); err != nil {
			return err
		}
	}
	return nil
}

// stop ends a daemon that up has started, if it runs.
func (l *local) stop(ctx context.Context, name string) error {
	if pid := l.runningPID(name, programOf(name)); pid != 0 {
		if err := stop(ctx, pid); err != nil {
			return fmt.Errorf("%s (pid %d): %w", name, pid, err)
		}
		fmt.Fprintf(l.out, "%s stopped\n", name)
	}
	if err := os.Remove(l.pidFile(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// agents names the agents that up has started here, by their pid files, as up
// names daemons.
func (l *local) agents() ([]string, error) {
	entries, err := os.ReadDir(l.cfg.RunDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".pid"); ok &&
			strings.HasPrefix(name, "agent-") {
			out = append(out, name)
		}
	}
	return out, nil
}

// endShepherdsOf ends every shepherd of a node in the state folder that has
// nothing left, of whatever release it is and whichever program it was started
// from.
func (l *local) endShepherdsOf(ctx context.Context, node string, runs endOfRuns) error {
	dir := filepath.Join(l.agentDir(node), "shepherd")
	releases, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	drained := map[string]drainResult{}
	for _, r := range releases {
		drained[r.Name()] = l.drainShepherd(ctx, node, runtime.Socket(dir, r.Name()), runs)
	}
	for _, process := range runtime.Shepherds(dir) {
		if drained[process.Release] != drainStays {
			l.endSilent(ctx, node, process, runs)
		}
	}
	if runs != killRuns {
		return nil
	}
	for _, r := range releases {
		if drained[r.Name()] != drainSilent || !runtime.HasJournal(dir, r.Name()) {
			continue
		}
		if err := l.killOrphans(ctx, node, dir, r.Name()); err != nil {
			return fmt.Errorf("%s: %w", node, err)
		}
	}
	return nil
}

// killOrphans kills the runs of a release whose shepherd is dead or had to be ended without an
// answer: a shepherd that is started for that finds them by its journal.
func (l *local) killOrphans(ctx context.Context, node, dir, release string) error {
	config := l.shepherd
	config.Dir = dir
	config.Node = node
	config.Release = release
	client, err := runtime.Start(ctx, config)
	if err != nil {
		return err
	}
	client.Close()
	l.drainShepherd(ctx, node, runtime.Socket(dir, release), killRuns)
	return nil
}

// drainResult is what became of a shepherd.
type drainResult uint8

const (
	drainSilent drainResult = iota // none answered, or not to the end
	drainEnded
	drainStays
)

// drainShepherd ends the shepherd behind a socket if it has nothing left, and
// waits for its end. With keepRuns a
// shepherd with jobs stays, for them and for what their ends were.
func (l *local) drainShepherd(ctx context.Context, node, socket string, runs endOfRuns) drainResult {
	ctx, cancel := context.WithTimeout(ctx, partWait)
	defer cancel()
	client, err := runtime.Dial(ctx, socket)
	if err != nil {
		return drainSilent
	}
	defer client.Close()
	live, ended, err := runsOf(ctx, client)
	if err != nil {
		return drainSilent
	}
	if runs != keepRuns {
		live, ended, err = l.endRuns(ctx, client, node, live, ended, runs)
		if err != nil {
			return drainSilent
		}
	}
	switch {
	case len(live) == 0 && runs == killRuns && len(ended) > 0:
		// It stays as long as it has an end to tell. The journal has it too.
		err := stop(ctx, int(client.Hello().PID))
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return drainSilent
		}
		return drainEnded
	case len(live) > 0:
		fmt.Fprintf(
			l.out,
			"%s: %s under their shepherd; muster up finds them again\n",
			node,
			format.Plural(len(live), "job goes on", "jobs go on"),
		)
		return drainStays
	case len(ended) > 0:
		fmt.Fprintf(
			l.out,
			"%s: its shepherd keeps the %s until muster up\n",
			node,
			format.Plural(len(ended), "job's end", "jobs' ends"),
		)
		return drainStays
	}
	_, _ = client.Drain(ctx) // it ends; an answer may be cut short by that
	select {
	case <-client.Done():
	case <-ctx.Done():
	}
	return drainEnded
}

// runsOf gives a shepherd's runs: those that live, and those that are over.
func runsOf(ctx context.Context, client *runtime.Client) (live, ended []plan.RunKey, err error) {
	runs, err := client.List(ctx)
	for i := range runs {
		if runs[i].State < plan.Exited {
			live = append(live, runs[i].Key)
		} else {
			ended = append(ended, runs[i].Key)
		}
	}
	return live, ended, err
}

// endRuns kills what lives and waits for its end. With forgetRuns it has all ends forgotten.
func (l *local) endRuns(
	ctx context.Context,
	client *runtime.Client,
	node string,
	live, ended []plan.RunKey,
	runs endOfRuns,
) ([]plan.RunKey, []plan.RunKey, error) {
	if runs == killRuns {
		l.reportKilled(node, live)
	}
	for _, key := range live {
		if err := client.Kill(ctx, key, plan.ScopeRun); err != nil &&
			!errors.Is(err, runtime.ErrNotFound) {
			return nil, nil, err
		}
	}
	for len(live) > 0 {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return live, ended, nil
		}
		var err error
		live, ended, err = runsOf(ctx, client)
		if err != nil {
			return nil, nil, err
		}
	}
	if runs == killRuns {
		return nil, ended, nil
	}
	if len(ended) == 0 {
		return nil, nil, nil
	}
	return nil, nil, client.Ack(ctx, ended)
}

// reportKilled says which jobs are killed without their controller.
func (l *local) reportKilled(node string, live []plan.RunKey) {
	var jobs []string
	for _, key := range live {
		if job := strconv.FormatUint(key.Job, 10); !slices.Contains(jobs, job) {
			jobs = append(jobs, job)
		}
	}
	if len(jobs) == 0 {
		return
	}
	fmt.Fprintf(
		l.out,
		"%s: killed %s %s; the controller learns it at the next muster up\n",
		node,
		format.Plural(len(jobs), "job:", "jobs:"),
		strings.Join(jobs, ", "),
	)
}

// endSilent deals with a shepherd that was not to stay and runs nevertheless:
// one that answers on no socket. It is ended unless its runs are to go on.
func (l *local) endSilent(ctx context.Context, node string, process runtime.Process, runs endOfRuns) {
	gone := func() bool {
		return !slices.Contains(
			runtime.Shepherds(filepath.Join(l.agentDir(node), "shepherd")),
			process,
		)
	}
	ends := func(signal syscall.Signal) bool {
		if signal != 0 && syscall.Kill(process.PID, signal) != nil {
			return gone()
		}
		for began := time.Now(); ; {
			if gone() {
				return true
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return false
			}
			if time.Since(began) > partWait/2 {
				return false
			}
		}
	}
	switch {
	case ends(0): // it had answered, and needed a moment more
	case runs != keepRuns && (ends(syscall.SIGTERM) || ends(syscall.SIGKILL)):
		fmt.Fprintf(
			l.out,
			"%s: its shepherd (pid %d) did not answer and was ended\n",
			node,
			process.PID,
		)
	default:
		fmt.Fprintf(
			l.out,
			"%s: its shepherd (pid %d) does not answer and stays, with its jobs if it has any\n",
			node,
			process.PID,
		)
	}
}

// endJobs cancels everything and waits until no job of this cluster's agents holds a node.
// Pods end when Kubernetes has ended them, so it does not wait for jobs of pods.
func (l *local) endJobs(ctx context.Context) error {
	result := &apiv1.JobResults{}
	if err := l.callSocket(
		ctx, "Cluster/Cancel", &apiv1.CancelRequest{Filter: &apiv1.JobFilter{}}, result,
	); err != nil {
		return err
	}
	for {
		reply := &apiv1.ListJobsReply{}
		if err := l.callSocket(
			ctx, "Cluster/ListJobs", &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{}}, reply,
		); err != nil {
			return err
		}
		left, ofPods := 0, 0
		for _, job := range reply.GetJobs() {
			if job.GetSpec().GetPods() != nil {
				ofPods++
			} else {
				left++
			}
		}
		if left == 0 {
			l.reportPodJobs(ofPods)
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s not ended after %s", format.Plural(left, "job has", "jobs have"), l.wait)
		}
	}
}

// reportPodJobs says that jobs of pods still hold their nodes.
func (l *local) reportPodJobs(count int) {
	if count == 0 {
		return
	}
	fmt.Fprintf(
		l.out,
		"%s until muster-kube reports that the pods have ended (muster pods)\n",
		format.Plural(count, "cancelled job of pods keeps its nodes", "cancelled jobs of pods keep their nodes"),
	)
}

// stop asks a process to end and waits for it.
func stop(ctx context.Context, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	for {
		if !program.HoldsFiles(pid) {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return errors.New("it does not end")
		}
	}
}
