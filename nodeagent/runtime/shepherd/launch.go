//go:build linux

package shepherd

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/cgroup"
	"github.com/musterhpc/muster/nodeagent/runtime/journal"
	"github.com/musterhpc/muster/nodeagent/runtime/minder"
	"github.com/musterhpc/muster/nodeagent/runtime/proc"
	"github.com/musterhpc/muster/nodeagent/runtime/space"
	"github.com/musterhpc/muster/nodeagent/runtime/spawn"
	"github.com/musterhpc/muster/nodeagent/runtime/stdfile"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// launchRuns records new runs. The second result finishes the work outside of the
// reader's goroutine: it waits for the disk and starts the accepted runs.
func (s *Shepherd) launchRuns(specs []plan.RunSpec) ([]plan.LaunchResult, func()) {
	results := make([]plan.LaunchResult, len(specs))
	var fresh []*run
	var index []int
	var payloads [][]byte
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range specs {
		result, r := s.admitSpec(&specs[i])
		results[i] = result
		if r == nil {
			continue
		}
		data, err := (&record{Launch: &r.launchRecord}).encodeRecord()
		if err != nil {
			results[i] = refused(r.Key, plan.RefusedSpec, err.Error())
			s.forgetRun(r)
			continue
		}
		fresh, index, payloads = append(fresh, r), append(index, i), append(payloads, data)
	}
	if len(fresh) == 0 {
		return results, func() {}
	}
	seq, err := s.jr.Append(payloads...)
	if err != nil {
		for n, r := range fresh {
			s.forgetRun(r)
			results[index[n]] = refused(r.Key, plan.RefusedDisk, diskReason(err))
		}
		return results, func() {}
	}
	return results, func() {
		if err := s.jr.Sync(seq); err != nil {
			s.mu.Lock()
			for n, r := range fresh {
				s.forgetRun(r)
				results[index[n]] = refused(r.Key, plan.RefusedDisk, diskReason(err))
			}
			s.mu.Unlock()
			return
		}
		for _, r := range fresh {
			s.queue <- r
		}
	}
}

func diskReason(err error) string {
	if errors.Is(err, journal.ErrFull) {
		return "the disk of the node agent's state folder is full; launches resume when there is room: " +
			err.Error()
	}
	return err.Error()
}

func refused(key plan.RunKey, code plan.RefusalCode, reason string) plan.LaunchResult {
	return plan.LaunchResult{Key: key, Status: plan.Refused, Code: code, Reason: reason}
}

// admitSpec decides about one spec; it gives a run only if it is new and possible.
func (s *Shepherd) admitSpec(runSpec *plan.RunSpec) (plan.LaunchResult, *run) {
	key := runSpec.Key
	if r := s.runs[key]; r != nil {
		return sameLaunch(runSpec, r.Launch, plan.Known), nil
	}
	if launch, over := s.ended.findLaunch(key); over {
		return sameLaunch(runSpec, launch, plan.Ended), nil
	}
	switch {
	case s.foreign[key] != "":
		return plan.LaunchResult{
			Key:    key,
			Status: plan.Known,
			Reason: "kept by the shepherd of release " +
				s.foreign[key],
		}, nil
	case s.draining:
		return refused(
			key,
			plan.RefusedDraining,
			"this shepherd is being replaced by a newer one",
		), nil
	case !s.root && runSpec.UID != uint32(unix.Geteuid()):
		return refused(
			key,
			plan.RefusedPrivilege,
			fmt.Sprintf("the node agent is not root and cannot run jobs of user %d", runSpec.UID),
		), nil
	case runSpec.Tasks != nil && badTasks(runSpec.Tasks) != "":
		return refused(key, plan.RefusedSpec, badTasks(runSpec.Tasks)), nil
	case len(runSpec.Script) == 0 && len(runSpec.Argv) == 0 && runSpec.Tasks == nil:
		return refused(key, plan.RefusedSpec, "neither a script nor a command is given"), nil
	case hasZero(runSpec):
		return refused(key, plan.RefusedSpec, "a path, argument or variable holds a zero byte"), nil
	case runSpec.Tasks == nil && !filepath.IsAbs(runSpec.WorkDir):
		return refused(
			key,
			plan.RefusedSpec,
			fmt.Sprintf("the work directory %q is not absolute", runSpec.WorkDir),
		), nil
	case runSpec.Placeholder && badPlaceholder(runSpec):
		return refused(
			key,
			plan.RefusedSpec,
			"a placeholder is a plain command: it has no script, tasks, container or programs around it",
		), nil
	case s.vacating[space.Attempt(key)]:
		return refused(
			key,
			plan.RefusedSpec,
			"the job's private folders are being removed: it is over",
		), nil
	}
	r := &run{
		launchRecord: launchRecord{
			Key:    key,
			JobID:  runSpec.JobID,
			UID:    runSpec.UID,
			GID:    runSpec.GID,
			Groups: runSpec.Groups,
			Launch: runSpec.Launch,
			Seq:    runSpec.Seq,
			Order:  runSpec.Order,
			Lease:  runSpec.Lease,

			Placeholder: runSpec.Placeholder,
		},
		spec:  runSpec,
		state: plan.Starting,
		pidfd: -1,
	}
	r.Stderr = runSpec.Stderr
	if r.Stderr == "" {
		r.Stderr = runSpec.Stdout
	}
	if r.Stderr != "" && !filepath.IsAbs(r.Stderr) {
		r.Stderr = filepath.Join(runSpec.WorkDir, r.Stderr)
	}
	r.Spaced = runSpec.Space != nil
	if runSpec.TaskEpilog != "" {
		r.TaskEpilog, r.WorkDir = runSpec.TaskEpilog, runSpec.WorkDir
	}
	if runSpec.Tasks != nil {
		r.Minded, r.Spool = true, filepath.Join(s.cfg.Spool, stepFolder+key.String())
		if pmIx := runSpec.Tasks.PMIx; pmIx != nil && !r.Spaced {
			r.PMIxFolder = pmIx.Folder
		}
		s.spools[r.Spool] = true
	}
	if len(runSpec.Script) > 0 {
		r.Spool = filepath.Join(s.cfg.Spool, fmt.Sprintf("job%05d", runSpec.JobID))
		if s.spools[r.Spool] {
			r.Spool += "." + key.String()
		}
		s.spools[r.Spool] = true
	}
	s.runs[key] = r
	return plan.LaunchResult{Key: key, Status: plan.Accepted}, r
}

// sameLaunch answers about a run that is here, or was, if it is the one that is
// asked for: another launch under the same key is refused, because what became
// of one says nothing about the other.
func sameLaunch(runSpec *plan.RunSpec, here spec.Hash, status plan.LaunchStatus) plan.LaunchResult {
	if here.IsZero() || runSpec.Launch.IsZero() || here == runSpec.Launch {
		return plan.LaunchResult{Key: runSpec.Key, Status: status}
	}
	conflict := &plan.ConflictError{Key: runSpec.Key, Here: here, Ordered: runSpec.Launch}
	return refused(runSpec.Key, plan.RefusedConflict, conflict.Error())
}

// hasZero finds what no process can be given.
func hasZero(runSpec *plan.RunSpec) bool {
	bad := func(s string) bool { return strings.IndexByte(s, 0) >= 0 }
	return slices.ContainsFunc(runSpec.Env, bad) || slices.ContainsFunc(runSpec.Argv, bad) ||
		slices.ContainsFunc(
			[]string{runSpec.WorkDir, runSpec.Stdin, runSpec.Stdout, runSpec.Stderr}, bad,
		)
}

// forgetRun removes a run that never happened. mu is held.
func (s *Shepherd) forgetRun(r *run) {
	delete(s.runs, r.Key)
	delete(s.spools, r.Spool)
}

// addLauncher starts one more goroutine that starts processes.
func (s *Shepherd) addLauncher() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launchers++
	go s.runLauncher(s.launchers)
}

// maxLaunchers bounds the threads that can hang in file servers.
const maxLaunchers = 64

// relieveLaunchers adds a launcher when work waits and all have been at theirs for
// long: a file server that does not answer must not stop the whole node.
func (s *Shepherd) relieveLaunchers() {
	const long = 2 * time.Second
	if len(s.queue) == 0 {
		return
	}
	s.mu.Lock()
	hung, total := 0, s.launchers
	for _, since := range s.busy {
		if time.Since(since) > long {
			hung++
		}
	}
	s.mu.Unlock()
	if hung >= total && total < maxLaunchers {
		s.log.Warn(
			"all launchers hang, most likely in a file server; adding one",
			"launchers",
			total,
		)
		s.addLauncher()
	}
}

// runLauncher starts runs on a thread of its own. A thread that cannot take back
// its own identity dies with its goroutine, and another takes its place.
func (s *Shepherd) runLauncher(n int) {
	thread, err := spawn.NewThread()
	for r := range s.queue {
		s.mu.Lock()
		s.busy[n] = time.Now()
		s.mu.Unlock()
		if err != nil {
			s.endUnstarted(r, plan.FailSpawn, err)
		} else if startErr := s.startRun(thread, r); startErr != nil {
			s.log.Error("launch thread given up", "err", startErr)
			go s.runLauncher(n)
			return
		}
		s.mu.Lock()
		delete(s.busy, n)
		s.mu.Unlock()
	}
}

// startRun carries one run from Starting to Running, or to its exit. It returns
// an error only if the thread must not be used again.
func (s *Shepherd) startRun(thread *spawn.Thread, r *run) error {
	s.mu.Lock()
	canceled := r.term != nil
	s.mu.Unlock()
	if canceled {
		s.endUnstarted(r, plan.FailCanceled, errors.New("terminated before it started"))
		return nil
	}
	if !r.furnished {
		if failure, err := s.furnishRun(r); err != nil {
			s.endUnstarted(r, failure, err)
			return nil
		}
		r.furnished = true
	}
	var files *stdio
	var err error
	if r.Minded {
		unix.Umask(0o077)
		files, err = openMinder(r)
	} else {
		err = thread.As(r.credentialOf(s.root), int(r.spec.Umask&0o777), func() (err error) {
			files, err = openFiles(r.spec, s.cfg.Prefix)
			return err
		})
	}
	switch {
	case err == nil:
		err = s.spawnRun(thread, r, files)
	case s.openLater(r, err):
	default:
		s.endUnstarted(r, fileFailure(err), err)
	}
	files.close()
	_ = unix.Chdir("/") // hold no mount
	unix.Umask(0o022)
	if errors.Is(err, spawn.ErrTainted) {
		return err
	}
	return nil
}

// How long a run waits for the folder of a file of its own, and how often it looks.
// Clients make that folder just after sbatch has returned, and a file server may show
// it to this node a moment later still.
const (
	folderWait  = 3 * time.Second
	folderTries = 30
)

// openLater queues a run again whose file cannot be opened because its folder is not
// there yet. It is false when the folder has been awaited long enough.
func (s *Shepherd) openLater(r *run, err error) bool {
	var file *stdfile.Error
	missing := errors.As(err, &file) && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESTALE))
	if !missing || r.fileTries >= folderTries {
		return false
	}
	r.fileTries++
	time.AfterFunc(folderWait/folderTries, func() { s.queue <- r })
	return true
}

// furnishRun makes what belongs to the node: the fence, the spooled script and
// the control group.
func (s *Shepherd) furnishRun(r *run) (plan.Failure, error) {
	runSpec := r.spec
	if runSpec.FenceDevices && !s.hello.Enforces.Devices {
		return plan.FailFence, errors.New(
			"this node cannot fence GPU devices, which the job's allocation requires",
		)
	}
	if runSpec.Container != nil && !s.root {
		return plan.FailContainer, fmt.Errorf(
			"container image %s: the agent of this node is not root and cannot mount it",
			runSpec.Container.Image,
		)
	}
	if runSpec.Space != nil {
		if err := s.makeSpace(r); err != nil {
			return plan.FailSpace, err
		}
	}
	if r.Spool != "" && !r.Minded {
		if err := s.spoolScript(r); err != nil {
			return plan.FailSpool, err
		}
	}
	group, err := s.host.Create(
		r.Key.String(),
		cgroup.Settings{
			Limits:  runSpec.Limits,
			Job:     runSpec.JobLimits,
			CPUs:    runSpec.CPUs,
			Devices: runSpec.Devices,
			Fence:   runSpec.FenceDevices,
		},
	)
	if err != nil {
		return plan.FailCgroup, err
	}
	r.group = group
	if r.Minded {
		if err := s.spoolStep(r); err != nil {
			return plan.FailSpool, err
		}
	}
	return plan.None, nil
}

// busyTries bounds the waiting for other launches to let go of a script that
// was being written while they forked.
const busyTries = 200

// spawnRun makes the process and registers it. Errors end in the run's exit.
func (s *Shepherd) spawnRun(thread *spawn.Thread, r *run, files *stdio) error {
	request, err := s.spawnRequest(r, files)
	if err != nil {
		s.endUnstarted(r, plan.FailSpawn, err)
		return nil
	}
	entry, err := r.group.Enter()
	if err != nil {
		s.endUnstarted(r, plan.FailCgroup, err)
		return nil
	}
	defer entry.Close()
	request.CgroupFD, request.JoinFDs = entry.CgroupFD, entry.Joins
	s.mu.Lock()
	s.spawning++
	r.begun = true
	err = s.saveRecord(record{Begun: &r.Key})
	s.mu.Unlock()
	if err != nil {
		s.failedStart(r, files, err)
		return nil
	}
	if err := s.takeLease(r); err != nil {
		s.mu.Lock()
		s.endSpawning()
		s.mu.Unlock()
		s.refuseLate(r, err)
		return nil
	}
	child := spawn.Child{PIDFD: -1}
	var bootNow int64
	serve, closeServer := func() error { return nil }, func() {}
	if r.Minded && r.spec.Tasks.PMIx != nil {
		serve, closeServer = s.servePMIx(r, files, request)
	}
	defer closeServer()
	err, tainted := s.inSpace(thread, r, files, serve, func() (err error) {
		for try := 0; ; try++ {
			bootNow = proc.BootClock()
			child, err = spawn.Start(request)
			if !errors.Is(err, unix.ETXTBSY) || try == busyTries {
				return err
			}
			closeFD(child.PIDFD)
			putToken(s.born)
			//muster:sleep another launch holds the script open until its child has executed
			time.Sleep(time.Millisecond)
		}
	})
	if err != nil {
		closeFD(child.PIDFD)
		s.failedStart(r, files, err)
		return tainted
	}
	if r.Placeholder {
		s.protectPlaceholder(r, child.PID)
	}
	st, _ := proc.ReadStat(child.PID)
	s.noteStarted(
		r,
		child,
		startedRecord{
			RunKey:    r.Key,
			PID:       child.PID,
			Ticks:     st.StartTicks,
			Start:     wallClock(),
			StartBoot: bootNow,
		},
	)
	return tainted
}

// spawnRequest builds the process from the spec.
func (s *Shepherd) spawnRequest(r *run, files *stdio) (*spawn.Request, error) {
	runSpec := r.spec
	env := make([]string, 0, len(runSpec.Env)+2)
	env = append(append(env, runSpec.Env...), markName+"="+s.runMark(r.Key))
	request := &spawn.Request{
		Env:    env,
		PIDVar: "SLURM_TASK_PID",
		Stdin:  files.in,
		Stdout: files.out,
		Stderr: files.err,
		Cred: r.credentialOf(
			s.root,
		),
		Nice:       s.niceOf(runSpec),
		CPUs:       runSpec.CPUs,
		NoNewPrivs: runSpec.Container != nil,
	}
	if runSpec.Placeholder {
		request.Cred = nil
	}
	if r.Minded {
		request.Paths, request.Argv = minderCommand(r)
		return request, nil // the limits are those of its tasks
	}
	if r.Spool != "" {
		script := filepath.Join(r.Spool, scriptName)
		request.Paths, request.Argv = []string{script}, append([]string{script}, runSpec.Argv...)
	} else {
		request.Paths, request.Argv = spawn.SearchPath(runSpec.Argv[0], runSpec.Env), runSpec.Argv
	}
	if runSpec.TaskProlog != "" {
		if r.Spool == "" {
			return nil, errors.New("TaskProlog stands in front of batch scripts only")
		}
		verb := minder.TaskVerb
		if runSpec.Container != nil {
			verb = minder.ContainedTaskVerb
		}
		request.Argv = minder.ThroughProlog(verb, s.cfg.Prefix, runSpec.TaskProlog, request.Argv)
		request.Paths = []string{minder.SelfExe}
	}
	if runSpec.Login != nil {
		if err := s.throughLogin(r, request); err != nil {
			return nil, err
		}
	}
	var warnings []string
	request.Rlimits, warnings = s.limits.applyLimits(runSpec.Rlimits)
	for _, w := range slices.Concat(runSpec.Notices, warnings) {
		files.warnUser(s.cfg.Prefix + w)
	}
	return request, nil
}

// noteStarted registers a running process and tells everyone.
func (s *Shepherd) noteStarted(r *run, child spawn.Child, rec startedRecord) {
	s.mu.Lock()
	r.startedRecord = rec
	if r.TaskEpilog != "" {
		r.env = r.spec.Env
	}
	r.state = plan.Running
	r.pidfd = child.PIDFD
	r.spec = nil
	s.pids[child.PID] = r
	end, over := s.early[child.PID]
	if over {
		delete(s.pids, child.PID)
	}
	s.endSpawning()
	pending := r.pending
	term := r.term
	killed := r.killed
	r.pending = nil
	observed := r.asObserved()
	s.publishEvent(plan.Event{Started: &observed})
	s.mu.Unlock()
	putToken(s.born)
	_ = s.saveRecord(record{Started: &rec})
	if r.Lease.Length > 0 && child.PID != 0 {
		if err := s.writeLeases(); err != nil { // the mark in its environment names it too
			s.log.Error(
				"the guard of leases does not know the process of a run",
				aboutRun(r),
				"err",
				err,
			)
		}
	}
	for _, sig := range pending {
		s.deliverSignal(r, sig.sig, sig.scope)
	}
	if killed {
		s.killRun(r)
	} else if term != nil {
		s.strikeRun(r, *term)
	}
	if over {
		s.leaderEnded(r, end)
	}
}

// endSpawning ends one start. mu is held.
func (s *Shepherd) endSpawning() {
	s.spawning--
	if s.spawning == 0 {
		clear(s.early)
	}
}

// failedStart ends a run whose process could not be made what it should be.
func (s *Shepherd) failedStart(r *run, files *stdio, err error) {
	putToken(s.born)
	s.mu.Lock()
	s.endSpawning()
	s.mu.Unlock()
	var se *spawn.Error
	if errors.As(err, &se) && se.Stage == spawn.StageExec {
		text := execMessage(r, se.Errno)
		files.warnUser(s.cfg.Prefix + text)
		s.concludeRun(
			r,
			&plan.Exit{Key: r.Key, Code: int32(se.Errno), Failure: plan.FailExec, Message: text},
		)
		return
	}
	var place *placeError
	if errors.As(err, &place) {
		s.endUnstarted(r, place.failure, place.err)
		return
	}
	s.endUnstarted(r, plan.FailSpawn, err)
}

// endUnstarted ends a run that never had a process.
func (s *Shepherd) endUnstarted(r *run, failure plan.Failure, err error) {
	exit := &plan.Exit{Key: r.Key, Failure: failure, Message: err.Error()}
	switch failure {
	case plan.FailInput, plan.FailOutput:
		exit.Signal = plan.IOErrorSignal
	case plan.FailCanceled:
		exit.Signal = int32(unix.SIGTERM)
		if s.wasKilled(r) {
			exit.Signal = int32(unix.SIGKILL)
		}
	default:
		exit.Code = 1
	}
	if failure.NodeFault() {
		s.log.Error("run not started", aboutRun(r), "why", failure.String(), "err", err)
	}
	s.concludeRun(r, exit)
}

func (s *Shepherd) wasKilled(r *run) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.killed
}

func wallClock() spec.Instant { return spec.Instant(time.Now().UnixNano()) }

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}
