package plan

// Extern prepares the extern step of a job on a node: what holds processes that the
// job did not start, such as logins of its user and, where the site wants it, the
// prolog. It has what the job has there, and ends with it. A process that only waits
// keeps it: a run lives as long as its first process does. That process is the node's,
// so that the user cannot end it.
func Extern(job *Job, node *Node) RunSpec {
	run := RunSpec{
		Key:         job.Key.StepOf(StepExtern),
		JobID:       job.ID,
		UID:         job.UID,
		GID:         job.GID,
		Groups:      job.Groups,
		WorkDir:     "/",
		Argv:        []string{"sleep", "infinity"},
		Placeholder: true,
		Env:         []string{"PATH=" + defaultPath},
		Stdout:      "/dev/null",
		CPUs:        bindCPUs(job, node),
		Limits:      memoryLimits(job, node),
		JobLimits:   memoryLimits(job, node),
		Space:       spaceOf(job, node),
	}
	run.Limits.Cores = node.Confine.Cores && node.Enforces.Cores && len(run.CPUs) > 0
	if node.fencesDevices() {
		run.FenceDevices = true
		run.Devices = job.Devices
	}
	return run
}
