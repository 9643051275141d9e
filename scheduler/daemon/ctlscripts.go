package daemon

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// mostScripts bounds the programs of jobs that run at the same time.
const mostScripts = 64

// ctlScripts runs PrologSlurmctld when a job has got its nodes and
// EpilogSlurmctld when its attempt is over.
//
// That a prolog has ended well is in the ledger, and nothing of the job starts
// before; that an epilog is due is there as well, and that it has run. A
// controller that is stopped ends the prologs that run, and leaves the epilogs
// alone; the next one runs both again, so that either may run twice for one
// attempt, and never not.
type ctlScripts struct {
	c     *Controller
	slots chan struct{}

	mu      sync.Mutex
	ctx     context.Context // nil until the controller serves
	prologs map[scheduler.Run]context.CancelFunc
	epilogs map[scheduler.Run]bool // those under way
	wg      sync.WaitGroup         // of prologs
}

func newCtlScripts(controller *Controller) *ctlScripts {
	return &ctlScripts{
		c:       controller,
		slots:   make(chan struct{}, mostScripts),
		prologs: map[scheduler.Run]context.CancelFunc{},
		epilogs: map[scheduler.Run]bool{},
	}
}

// wantedPrograms gives the site's programs, nil if there are none.
func (p *ctlScripts) wantedPrograms(cluster *state.State) *spec.CtlScripts {
	if p.c.deps.Scripts == nil {
		return nil
	}
	return cluster.Config.Ctl
}

// run serves until the context ends: first what an earlier controller left.
func (p *ctlScripts) run(ctx context.Context) error {
	p.mu.Lock()
	p.ctx = ctx
	p.mu.Unlock()
	p.c.hub.turn.Lock() // no effect comes between the view and its jobs
	cluster := p.c.View().State
	if p.wantedPrograms(cluster) != nil {
		cluster.Active.Range(func(uid uint64, _ struct{}) bool {
			p.noteStarted(cluster, spec.JobUID(uid))
			return true
		})
		cluster.Jobs.Range(func(_ uint64, job *state.Job) bool {
			for i := range job.Epilogs {
				p.startEpilog(cluster, job, &job.Epilogs[i])
			}
			return true
		})
	}
	p.c.hub.turn.Unlock()
	<-ctx.Done()
	p.wg.Wait()
	return nil
}

// noteStarted begins the prolog of a job that has got its nodes.
func (p *ctlScripts) noteStarted(cluster *state.State, uid spec.JobUID) {
	scripts, job := p.wantedPrograms(cluster), cluster.Job(uid)
	if scripts == nil || job == nil || job.Alloc == nil || !job.GoesOn() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	run := scheduler.Run{UID: uid, Attempt: job.Attempt}
	if !job.Prepares || p.prologs[run] != nil || p.ctx == nil || p.ctx.Err() != nil {
		return // run takes it up, or the next controller
	}
	env := jobEnv(cluster, job)
	ctx, stop := context.WithCancel(p.ctx)
	p.prologs[run] = stop
	p.wg.Go(func() { p.runProlog(ctx, scripts, run, env) })
}

func (p *ctlScripts) runProlog(
	ctx context.Context,
	scripts *spec.CtlScripts,
	run scheduler.Run,
	env []string,
) {
	defer p.stopProlog(run)
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return
	}
	over := scheduler.PrologOver{Run: run}
	if err := p.c.deps.Scripts.Run(
		ctx,
		scripts.Prolog,
		scripts.PrologTimeout,
		append(env[:len(env):len(env)], "SLURM_SCRIPT_CONTEXT=prolog_slurmctld"),
	); err != nil {
		over.Failed = "PrologSlurmctld: " + err.Error()
	}
	if ctx.Err() != nil {
		return // it was ended, and says nothing
	}
	if over.Failed != "" {
		p.c.deps.Logger.Error(
			"a job is not started",
			aboutRun(p.c.View().State, run),
			"why",
			over.Failed,
		)
	}
	rep := p.c.writer.commitCommand(
		ctx,
		&request{cmd: over, actor: event.Actor{Kind: event.ActorSystem}},
	)
	if rep.err != nil && ctx.Err() == nil {
		p.c.deps.Logger.Warn(
			"the end of a PrologSlurmctld could not be recorded; the next start of the controller runs it again",
			aboutRun(p.c.View().State, run),
			"error",
			rep.err,
		)
	}
}

// stopProlog ends the prolog of an attempt.
func (p *ctlScripts) stopProlog(run scheduler.Run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if stop := p.prologs[run]; stop != nil {
		stop()
		delete(p.prologs, run)
	}
}

// noteEnded runs the epilog of a job whose attempt is over, if one is due.
func (p *ctlScripts) noteEnded(cluster *state.State, run scheduler.Run) {
	p.stopProlog(run)
	job := cluster.Job(run.UID)
	if job == nil {
		return
	}
	for i := range job.Epilogs {
		if job.Epilogs[i].Attempt == run.Attempt {
			p.startEpilog(cluster, job, &job.Epilogs[i])
		}
	}
}

// startEpilog runs an epilog that is due, unless it is under way.
func (p *ctlScripts) startEpilog(cluster *state.State, job *state.Job, due *state.Epilog) {
	scripts, run := p.wantedPrograms(cluster), scheduler.Run{UID: job.UID, Attempt: due.Attempt}
	if scripts == nil || scripts.Epilog == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.epilogs[run] || p.ctx == nil || p.ctx.Err() != nil {
		return // run takes it up, or the next controller
	}
	p.epilogs[run] = true
	env := epilogEnv(cluster, job, due)
	go p.runEpilog(p.ctx, scripts, run, env)
}

// runEpilog runs the program, which outlives the controller, and records that
// it ran.
func (p *ctlScripts) runEpilog(
	ctx context.Context,
	scripts *spec.CtlScripts,
	run scheduler.Run,
	env []string,
) {
	defer func() {
		p.mu.Lock()
		delete(p.epilogs, run)
		p.mu.Unlock()
	}()
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return // the next controller runs it
	}
	err := p.c.deps.Scripts.Run(
		context.WithoutCancel(ctx), scripts.Epilog, scripts.EpilogTimeout, env,
	)
	<-p.slots
	if err != nil {
		p.c.deps.Logger.Error("EpilogSlurmctld", aboutRun(p.c.View().State, run), "error", err)
	}
	for ctx.Err() == nil {
		rep := p.c.writer.commitCommand(
			ctx,
			&request{
				cmd:   scheduler.EpilogOver{Run: run},
				actor: event.Actor{Kind: event.ActorSystem},
			},
		)
		if rep.err == nil {
			return
		}
		p.c.deps.Logger.Warn(
			"that an EpilogSlurmctld has run could not be recorded yet",
			aboutRun(p.c.View().State, run),
			"error",
			rep.err,
		)
		p.c.sleepFor(ctx, 10*spec.Second)
	}
}

// epilogEnv is what an epilog knows of an attempt: the job may be waiting, or
// running again.
func epilogEnv(cluster *state.State, job *state.Job, due *state.Epilog) []string {
	was := *job
	was.State = spec.Running
	was.Attempt = due.Attempt
	was.Restarts = due.Restarts
	was.Alloc = due.Alloc
	was.Started = due.Started
	was.Ready = 0
	was.Paused = 0
	was.Limit = spec.Infinite
	if due.Until != spec.FarFuture {
		was.Limit = due.Until.Sub(due.Started)
	}
	return append(jobEnv(cluster, &was), "SLURM_SCRIPT_CONTEXT=epilog_slurmctld",
		"SLURM_JOB_EXIT_CODE="+
			waitStatus(due.Exit), "SLURM_JOB_DERIVED_EC="+waitStatus(due.Derived),
		"SLURM_JOB_EXIT_CODE2="+strconv.Itoa(int(due.Exit.Code))+":"+
			strconv.Itoa(int(due.Exit.Signal)))
}

// waitStatus is an exit as wait() gives it.
func waitStatus(status spec.ExitStatus) string {
	return strconv.Itoa(int(status.Code)<<8 | int(status.Signal))
}

// jobEnv is what PrologSlurmctld and EpilogSlurmctld know of a job. There is no
// PATH in it, as there is none in Slurm's.
func jobEnv(cluster *state.State, job *state.Job) []string {
	jobSpec := job.Spec
	names, cpus := make([]string, len(job.Alloc.Nodes)), make([]int64, len(job.Alloc.Nodes))
	for i := range job.Alloc.Nodes {
		names[i], cpus[i] = job.Alloc.Nodes[i].Name, int64(job.Alloc.Nodes[i].CPUs.Count())
	}
	num := func(n uint64) string { return strconv.FormatUint(n, 10) }
	when := func(t spec.Instant) string {
		if t == 0 || t == spec.FarFuture {
			return ""
		}
		return strconv.FormatInt(int64(t)/int64(spec.Second), 10)
	}
	licenses := make([]string, len(job.Alloc.Licenses))
	for i, l := range job.Alloc.Licenses {
		licenses[i] = l.Name + ":" + strconv.FormatInt(l.N, 10)
	}
	vars := [][2]string{
		{
			"SLURM_CLUSTER_NAME",
			cluster.ClusterName,
		}, {"SLURM_JOB_ID", num(uint64(job.ID))}, {"SLURM_JOBID", num(uint64(job.ID))}, {"SLURM_JOB_NAME", jobSpec.Name},
		{
			"SLURM_JOB_USER",
			jobSpec.User,
		}, {"SLURM_JOB_UID", num(uint64(jobSpec.UID))}, {"SLURM_JOB_GROUP", jobSpec.Group}, {"SLURM_JOB_GID", num(uint64(jobSpec.GID))},
		{
			"SLURM_JOB_ACCOUNT",
			jobSpec.Account,
		}, {"SLURM_JOB_PARTITION", job.Alloc.Partition}, {"SLURM_JOB_QOS", job.QOS()}, {"SLURM_JOB_RESERVATION", jobSpec.Place.Reservation},
		{
			"SLURM_JOB_NODELIST",
			hostlist.Fold(names),
		}, {"SLURM_JOB_NUM_NODES", num(uint64(len(names)))}, {"SLURM_JOB_CPUS_PER_NODE", format.PerNode(cpus)},
		{
			"SLURM_JOB_START_TIME",
			when(job.Started),
		}, {"SLURM_JOB_END_TIME", when(job.Deadline())}, {"SLURM_JOB_LICENSES", strings.Join(licenses, ",")},
		{
			"SLURM_JOB_WORK_DIR",
			jobSpec.IO.WorkDir,
		}, {"SLURM_JOB_COMMENT", jobSpec.Comment}, {"SLURM_JOB_CONSTRAINTS", jobSpec.Place.Constraint},
		{"SLURM_WCKEY", jobSpec.WCKey}, {"SLURM_JOB_RESTART_COUNT", num(uint64(job.Restarts))},
	}
	if array := cluster.ArrayOf(job); array != nil {
		vars = append(
			vars,
			[2]string{"SLURM_ARRAY_JOB_ID", num(uint64(array.ID))},
			[2]string{"SLURM_ARRAY_TASK_ID", strconv.FormatInt(job.Task, 10)},
			[2]string{"SLURM_ARRAY_TASK_COUNT", strconv.FormatInt(array.Total, 10)},
		)
	}
	var out []string
	for _, v := range vars {
		if v[1] != "" {
			out = append(out, v[0]+"="+v[1])
		}
	}
	return out
}
