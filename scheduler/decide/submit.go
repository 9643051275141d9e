package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// submission checks a request against everything that is known now and fills in its
// defaults: for a new job, for a component of a heterogeneous one, and for an update.
type submission struct{ *decision }

// submitJob checks a job against everything that is known now, fills its
// defaults in and accepts it. The given spec is not changed. byScript is what the site's
// script changed before.
func (d submission) submitJob(asked *spec.JobSpec, request uint64, byScript []string) error {
	jobSpec := *asked
	assoc, req, err := d.resolveSpec(&jobSpec, nil)
	if err != nil {
		return err
	}
	count := countOf(&jobSpec)
	if err := d.requireRoom(jobSpec.UID); err != nil {
		return err
	}
	if err := d.withinLimits(&jobSpec, assoc, req, count, spec.TRES{}); err != nil {
		return err
	}
	ev := &event.JobSubmitted{
		UID:      d.t.NextUID,
		ID:       d.NextJobID(),
		Spec:     &jobSpec,
		Req:      req,
		Assoc:    assoc,
		Reason:   spec.Reason{Code: spec.ReasonNone},
		Request:  request,
		ByScript: byScript,
	}
	d.firstReason(ev)
	if err := d.Emit(ev); err != nil {
		return err
	}
	d.res.UID, d.res.ID = ev.UID, ev.ID
	return nil
}

// findEarlier finds the job that an earlier sending of the same submission made, and
// answers with it. It looks at every job, because only a submission that is
// repeated asks: an index would cost all the others more.
func (d submission) findEarlier(command Submit) bool {
	if command.Request == 0 {
		return false
	}
	d.t.Jobs.Range(func(_ uint64, job *state.Job) bool {
		if job.Request == command.Request && job.Spec.UID == command.Spec.UID {
			d.res.UID, d.res.ID = job.UID, job.ID
		}
		return d.res.UID == 0
	})
	return d.res.UID != 0
}

// firstReason sets why a job waits from its first moment, and whether it is
// eligible at once.
func (d submission) firstReason(ev *event.JobSubmitted) {
	switch {
	case ev.Spec.Queue.Hold != spec.NotHeld:
		ev.Reason.Code = state.HoldReason(ev.Spec.Queue.Hold)
	case ev.Spec.Time.Begin > d.t.Now:
		ev.Reason = spec.Reason{Code: spec.ReasonBeginTime, Until: ev.Spec.Time.Begin}
	case ev.Spec.Queue.Dependency != nil:
		ev.Reason.Code = spec.ReasonDependency
	default:
		ev.Eligible = d.t.Now
		ev.NoAccrue = !d.usage().mayAccrue(ev.Spec, ev.Assoc, countOf(ev.Spec))
	}
}

// defaultUserShare is max_user_share where the site sets none, in percent.
const defaultUserShare = 90

// requireRoom refuses jobs of a user beyond MaxJobCount, and beyond his share of what
// others leave of it, so that nobody with many jobs takes the last records. The tasks of an
// array count once: they are one record until they start.
func (d submission) requireRoom(uid uint32) error {
	most := int(d.t.Config.Limits.MaxJobCount)
	if most == 0 {
		most = 10000
	}
	if d.t.Jobs.Len() >= most {
		return spec.Refuse(spec.CodeTooManyJobs, fmt.Sprintf("%d of %d", d.t.Jobs.Len(), most))
	}
	share := int(d.t.Config.Limits.UserShare)
	if share == 0 {
		share = defaultUserShare
	}
	own, free := d.t.JobsOf(uid), most-d.t.Jobs.Len()
	if uid != 0 && own*(100-share) >= share*free {
		return spec.Refuse(
			spec.CodeTooManyJobs,
			fmt.Sprintf(
				"%s of this user; one user may have %d %% of the %d that others leave of MaxJobCount (SchedulerParameters=max_user_share)",
				format.Plural(own, "job", "jobs"),
				share,
				own+free,
			),
		)
	}
	return nil
}

// resolveSpec validates a spec and fills in account, QOS, partitions and time
// limit. old is the job being updated, nil for a new one.
func (d submission) resolveSpec(
	jobSpec *spec.JobSpec,
	old *state.Job,
) (assoc uint32, request spec.TRES, err error) {
	for _, check := range [...]func(*spec.JobSpec) error{d.checkBounds, d.refuseUnsupported} {
		if err := check(jobSpec); err != nil {
			return 0, request, err
		}
	}
	if err := d.resolvePartitions(jobSpec); err != nil {
		return 0, request, err
	}
	assoc, err = d.resolveAccount(jobSpec)
	if err != nil {
		return 0, request, err
	}
	if err := d.resolveQOS(jobSpec, assoc); err != nil {
		return 0, request, err
	}
	if err := d.resolveWCKey(jobSpec); err != nil {
		return 0, request, err
	}
	for _, check := range [...]func(*spec.JobSpec) error{d.checkArray, d.checkSize, d.checkTime, d.checkReservation, d.checkSegment, d.checkSharing} {
		if err := check(jobSpec); err != nil {
			return 0, request, err
		}
	}
	if err := d.resolveDependency(jobSpec, old); err != nil {
		return 0, request, err
	}
	request, err = d.checkFit(jobSpec, assoc)
	if err != nil {
		return 0, request, err
	}
	return assoc, request, nil
}

// refuseUnsupported names what this release cannot do: an option is
// implemented or refused, never accepted and ignored.
func (d submission) refuseUnsupported(jobSpec *spec.JobSpec) error {
	if (jobSpec.Size.ThreadsPerCore != 0 || jobSpec.Size.TasksPerCore != 0) &&
		!d.t.Config.Sched.Cores {
		return spec.Refuse(
			spec.CodeDisabled,
			"--threads-per-core and --ntasks-per-core need whole cores: SelectTypeParameters=CR_Core or CR_Core_Memory",
		)
	}
	if jobSpec.Queue.Reboot && d.t.Config.RebootProgram == "" {
		return spec.Refuse(spec.CodeDisabled, "--reboot needs RebootProgram in the configuration")
	}
	if jobSpec.X11 != spec.X11None && !d.t.Config.ForwardX11 {
		return spec.Refuse(spec.CodeDisabled, "--x11 needs PrologFlags=X11 in the configuration")
	}
	for _, o := range [...]struct {
		used bool
		name string
	}{
		{jobSpec.Queue.ImmediateOnly, "--immediate"},
	} {
		if o.used {
			return spec.Refuse(spec.CodeDisabled, o.name+" is not implemented in this release")
		}
	}
	return nil
}

// checkReservation refuses reservations that are unknown or closed to a job.
func (d submission) checkReservation(jobSpec *spec.JobSpec) error {
	if jobSpec.Place.Reservation == "" {
		return nil
	}
	for _, name := range strings.Split(jobSpec.Place.Reservation, ",") {
		reservation := d.t.Reservation(name)
		if reservation == nil {
			return spec.Refuse(spec.CodeInvalidReservation, "")
		}
		if !slices.ContainsFunc(
			eligible.QOSChoices(jobSpec),
			func(qos string) bool { return timeline.Admits(d.t.State, reservation, jobSpec.InQOS(qos)) },
		) {
			return spec.Refuse(spec.CodeReservationDenied, "")
		}
	}
	return nil
}

func (d submission) resolvePartitions(jobSpec *spec.JobSpec) error {
	if len(jobSpec.Partitions) == 0 {
		partition := d.t.Parts.Default()
		if partition == nil {
			return spec.Refuse(spec.CodeNoPartition, "")
		}
		jobSpec.Partitions = []string{partition.Spec.Name}
	}
	for _, name := range jobSpec.Partitions {
		partition := d.t.Parts.Find(name)
		if partition == nil {
			return &spec.Error{
				Kind: spec.CodeInvalidPartition,
				Prefix: "invalid partition specified: " +
					name,
			}
		}
		switch partition.Spec.State {
		case spec.PartitionInactive, spec.PartitionDrain:
			return spec.Refuse(spec.CodePartitionUnavailable, "")
		}
	}
	return nil
}

// resolveAccount finds the account and its association. Without enforcement
// an unknown user may submit, under the account asked for or "default".
func (d submission) resolveAccount(jobSpec *spec.JobSpec) (uint32, error) {
	policy := d.t.Policy
	user := policy.FindUser(jobSpec.User)
	if jobSpec.Account == "" && user != nil {
		jobSpec.Account = user.DefaultAccount
	}
	enforce := d.t.Config.Enforce.Associations
	if jobSpec.Account == "" && !enforce {
		jobSpec.Account = "default"
	}
	assoc := policy.FindAssoc(jobSpec.Account, jobSpec.User, jobSpec.Partitions[0])
	if assoc == nil && !enforce {
		if own := policy.FindAssoc(jobSpec.Account, "", ""); own != nil {
			return own.ID, nil
		}
		return 0, nil
	}
	if assoc == nil {
		return 0, spec.Refuse(spec.CodeInvalidAccount, "")
	}
	return assoc.ID, nil
}

// resolveWCKey fills in the user's default key, marked with a star as one that
// nobody asked for, and where keys are enforced refuses one that is not the
// user's.
func (d submission) resolveWCKey(jobSpec *spec.JobSpec) error {
	config, policy := d.t.Config, d.t.Policy
	if user := policy.FindUser(jobSpec.User); jobSpec.WCKey == "" && config.TrackWCKey &&
		user != nil &&
		user.DefaultWCKey != "" {
		jobSpec.WCKey = "*" + user.DefaultWCKey
	}
	if name := strings.TrimPrefix(jobSpec.WCKey, "*"); config.Enforce.WCKeys &&
		policy.FindWCKey(name, jobSpec.User) == nil {
		return spec.Refuse(spec.CodeInvalidWCKey, "")
	}
	return nil
}

func (d submission) checkArray(jobSpec *spec.JobSpec) error {
	query := jobSpec.Queue.Array
	if query == nil {
		return nil
	}
	most := int64(d.t.Config.Limits.MaxArraySize)
	if most == 0 {
		most = 1001
	}
	if len(query.Tasks) == 0 || query.Tasks.Min() < 0 || query.Tasks.Max() >= most {
		return spec.Refuse(spec.CodeInvalidArray, "")
	}
	return nil
}

// checkSize refuses counts that no cluster could give.
func (d submission) checkSize(jobSpec *spec.JobSpec) error {
	if len(jobSpec.Size.PerSocket) > 0 && jobSpec.Size.SocketsPerNode == 0 {
		return spec.Refuse(spec.CodeInvalidGRES, "--gpus-per-socket option requires --sockets-per-node specification")
	}
	for _, list := range [...][]spec.Count{jobSpec.Size.PerNode, jobSpec.Size.PerTask, jobSpec.Size.PerJob, jobSpec.Size.PerSocket} {
		for _, count := range list {
			if count.N == 0 {
				continue // of none there is no need to know the name
			}
			if !slices.Contains(d.t.Config.GresTypes, count.Name) || count.N < 0 {
				return spec.Refuse(spec.CodeInvalidGRES, "")
			}
		}
	}
	if err := checkShares(jobSpec); err != nil {
		return err
	}
	if reason := contradictingGPUs(&jobSpec.Size); reason != "" {
		return spec.Refuse(spec.CodeInvalidGRES, reason)
	}
	for _, l := range jobSpec.Licenses {
		if l.N <= 0 || l.N > d.t.LicenseTotal(l.Name) {
			return spec.Refuse(spec.CodeInvalidLicense, "")
		}
	}
	if most := d.t.Config.Limits.MaxTasksPerNode; most > 0 && jobSpec.Size.TasksPerNode > most {
		return spec.Refuse(
			spec.CodeTaskCountInvalid,
			fmt.Sprintf(
				"%d tasks on a node; MaxTasksPerNode is %d",
				jobSpec.Size.TasksPerNode,
				most,
			),
		)
	}
	if jobSpec.Place.Constraint != "" && jobSpec.Size.MaxNodes > 0 {
		if constraint, err := eligible.ParseConstraint(jobSpec.Place.Constraint); err == nil &&
			int64(jobSpec.Size.MaxNodes) < constraint.Nodes() {
			return spec.Refuse(
				spec.CodeNodeCountInvalid,
				fmt.Sprintf("the constraint counts %d nodes", constraint.Nodes()),
			)
		}
	}
	if jobSpec.Size.MaxNodes > 0 && jobSpec.Size.MaxNodes < jobSpec.Size.MinNodes {
		return spec.Refuse(spec.CodeNodeCountInvalid, "")
	}
	return nil
}

// contradictingGPUs says why no number of nodes and tasks satisfies all that is
// said about GPUs; empty if one does.
func contradictingGPUs(size *spec.Size) string {
	all := gpusOf(size.PerJob)
	node := gpusOf(size.PerNode)
	task := gpusOf(size.PerTask)
	most := greatestNodes(size)
	switch {
	case size.TasksPerGPU > 0 && task > 0:
		return "--gpus-per-task and --ntasks-per-gpu exclude each other"
	case size.TasksPerGPU > 0 && gpusOf(size.PerSocket) > 0:
		return "--gpus-per-socket and --ntasks-per-gpu exclude each other"
	case size.TasksPerGPU > 0 && size.TasksPerNode > 0:
		return "--ntasks-per-node and --ntasks-per-gpu exclude each other"
	case task > 0 && all+node == 0 && size.Tasks+size.TasksPerNode+size.MinNodes == 0:
		return "--gpus-per-task needs --ntasks, --ntasks-per-node, --gpus or --gpus-per-node, which say how many tasks there are"
	case size.TasksPerGPU > 0 && all+node == 0 && size.Tasks+size.MinNodes == 0:
		return "--ntasks-per-gpu needs --gpus, or a number of tasks or nodes, which say how many GPUs there are"
	case size.CPUsPerGPU > 0 && size.CPUsPerTask > 0:
		return "--cpus-per-gpu and --cpus-per-task exclude each other"
	case size.MemPerGPU > 0 && !asksGPU(size):
		return "--mem-per-gpu needs a request for GPUs"
	case all > 0 && all < int64(size.MinNodes):
		return fmt.Sprintf(
			"--gpus=%d is fewer than the %d nodes of the job, each of which needs one",
			all,
			size.MinNodes,
		)
	case all > 0 && node > 0 && otherTypes(size.PerJob, size.PerNode):
		return "--gpus and --gpus-per-node do not name the same types"
	case all > 0 && task > 0 && otherTypes(size.PerJob, size.PerTask):
		return "--gpus and --gpus-per-task do not name the same types"
	case node > 0 && task > 0 && otherTypes(size.PerNode, size.PerTask):
		return "--gpus-per-node and --gpus-per-task do not name the same types"
	case all > 0 && node > 0 && all%node != 0:
		return fmt.Sprintf("--gpus=%d is no multiple of --gpus-per-node=%d", all, node)
	case all > 0 && node > 0 && !isWithin(all/node, int64(size.MinNodes), most):
		return fmt.Sprintf(
			"--gpus=%d with --gpus-per-node=%d is %s, and other numbers are asked for",
			all,
			node,
			format.Plural(all/node, "node", "nodes"),
		)
	case all > 0 && task > 0 && all%task != 0:
		return fmt.Sprintf("--gpus=%d is no multiple of --gpus-per-task=%d", all, task)
	case all > 0 && task > 0 && size.Tasks > 0 && int64(size.Tasks) != all/task:
		return fmt.Sprintf(
			"--gpus=%d with --gpus-per-task=%d is %s, and %d are asked for",
			all,
			task,
			format.Plural(all/task, "task", "tasks"),
			size.Tasks,
		)
	case node > 0 && task > 0 && node%task != 0:
		return fmt.Sprintf("--gpus-per-node=%d is no multiple of --gpus-per-task=%d", node, task)
	case node > 0 && task > 0 && size.Tasks > 0 && !wholeNodes(size, node/task):
		return fmt.Sprintf(
			"--gpus-per-node=%d with --gpus-per-task=%d is %s on each node, and %d tasks in all are asked for",
			node,
			task,
			format.Plural(node/task, "task", "tasks"),
			size.Tasks,
		)
	case node > 0 && task > 0 && size.TasksPerNode > 0 && int64(size.TasksPerNode) != node/task:
		return fmt.Sprintf(
			"--gpus-per-node=%d with --gpus-per-task=%d is %s on each node, and %d are asked for",
			node,
			task,
			format.Plural(node/task, "task", "tasks"),
			size.TasksPerNode,
		)
	}
	return ""
}

// asksGPU tells that a size asks for whole GPUs in some way.
func asksGPU(size *spec.Size) bool {
	return gpusOf(size.PerJob)+gpusOf(size.PerNode)+gpusOf(size.PerTask)+gpusOf(size.PerSocket) > 0 ||
		size.TasksPerGPU > 0
}

// otherTypes tells whether the types of GPUs that two lists name are others, or
// more than one is to hold for GPUs without one.
func otherTypes(a, b []spec.Count) bool {
	x, y := typesOf(a), typesOf(b)
	if len(x) == 0 || len(y) == 0 {
		return len(x)+len(y) > 1
	}
	return !slices.Equal(x, y)
}

// typesOf are the types of GPUs that a list names, sorted.
func typesOf(list []spec.Count) []string {
	var out []string
	for _, count := range list {
		if count.Name == "gpu" && count.Type != "" && count.N > 0 {
			out = append(out, count.Type)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// wholeNodes tells whether the tasks that are asked for fill so many nodes as may
// be, with so many on each.
func wholeNodes(size *spec.Size, each int64) bool {
	nodes, most := int64(size.Tasks)/each, greatestNodes(size)
	return int64(size.Tasks)%each == 0 && nodes >= int64(size.MinNodes) &&
		(most == 0 || nodes <= most)
}

// greatestNodes is the greatest number of nodes that is asked for; 0 = any. A single
// number of nodes is the least and the greatest.
func greatestNodes(size *spec.Size) int64 {
	if size.MaxNodes == 0 {
		return int64(size.MinNodes)
	}
	return int64(size.MaxNodes)
}

func gpusOf(list []spec.Count) int64 { return eligible.Amount(list, "gpu") }

// checkShares refuses requests for parts of GPUs that mean nothing: a job has
// GPUs or parts of them, of one kind, and a part is of one GPU of each node.
func checkShares(jobSpec *spec.JobSpec) error {
	name := ""
	for i, list := range [...][]spec.Count{jobSpec.Size.PerNode, jobSpec.Size.PerTask, jobSpec.Size.PerJob, jobSpec.Size.PerSocket} {
		for _, count := range list {
			switch {
			case !spec.Shares(count.Name) || count.N == 0:
				continue
			case i > 1:
				return spec.Refuse(spec.CodeInvalidGRES, count.Name+
					" is a part of one GPU of each node: ask for it with --gres")
			case name != "":
				return spec.Refuse(spec.CodeInvalidGRES, name+" and "+count.Name+
					" in one request: it is for a part of one GPU of each node")
			}
			name = count.Name
		}
	}
	if name != "" && jobSpec.GPUFreq != "" {
		return spec.Refuse(spec.CodeInvalidGRES, "a part of a GPU ("+name+
			") has no clocks of its own: --gpu-freq is for whole GPUs")
	}
	demand := place.Demand{
		PerNode: jobSpec.Size.PerNode,
		PerTask: jobSpec.Size.PerTask,
		PerJob:  jobSpec.Size.PerJob,
	}
	if name != "" && (demand.WantsGPU() || sizesByGPU(&jobSpec.Size)) {
		return spec.Refuse(spec.CodeInvalidGRES, "a job has whole GPUs or a part of one ("+name+
			"), not both")
	}
	return nil
}

// checkTime refuses a deadline that cannot be met even by an immediate start.
func (d submission) checkTime(jobSpec *spec.JobSpec) error {
	if jobSpec.Time.Min < 0 || (jobSpec.Time.Limit > 0 && jobSpec.Time.Min > jobSpec.Time.Limit) {
		return spec.Refuse(spec.CodeInvalidTimeLimit, "--time-min is more than the time limit")
	}
	if by := jobSpec.Time.Deadline; by != 0 &&
		(by <= d.t.Now || d.t.Now.Add(jobSpec.Time.Limit) > by) {
		return spec.Refuse(spec.CodeInvalidTime, "the job cannot end before its deadline")
	}
	if by := jobSpec.Time.Deadline; by != 0 && jobSpec.Time.Begin > by {
		return spec.Refuse(
			spec.CodeInvalidTime,
			"Incompatible begin and deadline time specification",
		)
	}
	return nil
}

// checkFit refuses what no configured node of the partitions could ever give,
// and what bars the job from its partitions, as EnforcePartLimits says: ALL
// refuses if any partition does not take the job, ANY if none does, NO only
// what will never change. It computes what the job counts as.
func (d submission) checkFit(jobSpec *spec.JobSpec, assoc uint32) (spec.TRES, error) {
	var request spec.TRES
	var bars, fits []error
	enforce := d.t.Config.Limits.EnforcePart
	for i, name := range jobSpec.Partitions {
		partition := d.t.Parts.Find(name)
		bound := limits.Find(
			d.t.State,
			limits.Subject{Job: jobSpec, Part: partition.Spec, Assoc: assoc, Now: d.t.Now},
		)
		demand := eligible.ResolveDemand(d.t.State, partition, jobSpec, &bound)
		if i == 0 {
			request = eligible.MinimumTRES(&demand, partition.Spec, jobSpec)
		}
		if rejection := d.barredInAll(partition, jobSpec, &demand); rejection != nil &&
			(rejection.Always || enforce == "ALL" || enforce == "ANY") {
			bars = append(bars, &spec.Error{Kind: rejection.Code, Reason: &rejection.Reason})
			continue
		}
		if err := d.partitionFit(jobSpec, partition, &demand); err != nil {
			fits = append(fits, err)
		}
	}
	bad := append(bars, fits...)
	if len(bad) == len(jobSpec.Partitions) || (enforce == "ALL" && len(bad) > 0) {
		return request, bad[0]
	}
	return request, nil
}

// partitionFit refuses a job that the nodes of a partition could not take if all of them
// were idle: because none can take even one task of it, or because those that it may use are too
// few for all of it. A job that is larger than its whole partition waits with the partition's
// reason instead, as under Slurm, because a partition may grow.
func (d submission) partitionFit(
	jobSpec *spec.JobSpec,
	partition *state.Partition,
	demand *place.Demand,
) error {
	allowed, err := eligible.AllowedNodes(d.t.State, partition, jobSpec)
	if err != nil {
		return err
	}
	shapes := place.Shapes{Caps: place.Caps(d.t.State)}
	var worst place.Lack
	var cands []place.Candidate
	fits := false
	options := allowed.Options(d.t.Config, partition.Spec, jobSpec, nil)
	plain := isPlain(demand, options)
	var nodes, together int64 // tasks that so many nodes can take
	onlyMem := true
	onlyCPU := true
	nextTry := firstTry(demand) // with how many candidates to lay the job out
	early := earlyCandidates(demand, options, allowed.Set)
	consider := func(id int) (taken bool) {
		node := d.t.NodeByID(spec.NodeID(id))
		if node == nil {
			return false
		}
		shape := shapes.Configured(node)
		free := shape.Whole()
		cands = append(cands, place.Candidate{Node: node, Shape: shape, Free: free})
		tasks, lack := demand.Fits(shape, &free)
		if tasks > 0 {
			nodes++
			together += tasks
			enough := plain && nodes >= demand.MinNodes && nodes <= demand.MaxNodes &&
				together >= demand.Tasks
			fits = true
			return enough || demand.FitsOneNode(tasks)
		}
		if lack.What != worst.What || lack.Free > worst.Free {
			worst = lack
		}
		onlyMem = onlyMem && lack.What == "mem"
		onlyCPU = onlyCPU && lack.What == "cpu"
		return false
	}
	for _, set := range [...]spec.Bitset{early, allowed.Set.AndNot(early)} {
		for id := set.Next(0); id >= 0; id = set.Next(id + 1) {
			if consider(id) {
				return nil
			}
			if !plain && fits && len(cands) >= nextTry {
				nextTry = growTry * len(cands)
				if place.Pick(demand, cands, options) != nil {
					return nil
				}
			}
		}
	}
	if fits {
		return d.togetherFit(jobSpec, partition, demand, cands, options)
	}
	e := spec.Refuse(spec.CodeNodeConfigUnavailable, "")
	e.Reason = &spec.Reason{
		Code:  spec.ReasonBadConstraints,
		TRES:  worst.What,
		Limit: worst.Free,
		Asked: worst.Need,
		Subject: "partition/" +
			partition.Spec.Name,
	}
	if name, ok := strings.CutPrefix(worst.What, "gres/"); ok {
		e.Prefix = explainLackingGRES(name, worst, partition)
	}
	if worst.What == "tmp" {
		e.Prefix = "Temporary disk specification can not be satisfied"
	}
	if worst.What == "threads" || (worst.What == "" && namesGeometry(jobSpec)) {
		e.Prefix = "Socket, core and/or thread specification can not be satisfied"
	}
	if onlyMem && worst.What != "" {
		e.Prefix = "Memory specification can not be satisfied"
	}
	if onlyCPU && worst.What != "" {
		e.Prefix = "CPU count per node can not be satisfied"
	}
	return e
}

// explainLackingGRES says what of a generic resource a node would need for one task of a job, and
// what the best node has, or the best GPU where it is a part of one.
func explainLackingGRES(name string, worst place.Lack, partition *state.Partition) string {
	where := "node of partition " + partition.Spec.Name
	if spec.Shares(name) {
		where = "GPU"
	}
	if worst.Free == 0 {
		return name + " is asked for, and no " + where + " has any"
	}
	return fmt.Sprintf(
		"%s of %s are asked for, and no %s has more than %s",
		format.Count(worst.Need),
		name,
		where,
		format.Count(worst.Free),
	)
}

// namesGeometry tells that a job asks for nodes with certain sockets and cores.
func namesGeometry(jobSpec *spec.JobSpec) bool {
	size := &jobSpec.Size
	return size.SocketsPerNode > 0 || size.CoresPerSocket > 0
}

// isPlain tells that any nodes do that can take the tasks together. So it is for most jobs, and
// the first few nodes of thousands say that they fit.
func isPlain(demand *place.Demand, options place.Options) bool {
	namesNodes := !options.Must.Empty() || len(options.OneOf) > 0 || len(options.Quotas) > 0
	areNear := options.Contiguous || options.Segment > 0
	return len(demand.PerJob) == 0 && !namesNodes && !areNear
}

// A job that not any nodes do is laid out on the first few candidates, then on more and more,
// before it is laid out on all: what some idle nodes take, all of them do, and mostly the first
// of thousands are enough. All tries that fail cost together less than the one on all.
const (
	minTry  = 16
	growTry = 8
)

// firstTry is on how many candidates a job is laid out first.
func firstTry(demand *place.Demand) int { return int(max(minTry, 2*demand.MinNodes)) }

// earlyCandidates are the nodes to look at first: those that have to be part of the job, the
// first few of each set that it takes some nodes from, and the first few of one of the sets that
// all its nodes are from.
func earlyCandidates(demand *place.Demand, options place.Options, allowed spec.Bitset) spec.Bitset {
	early := options.Must.And(allowed)
	addFirst := func(set spec.Bitset) {
		usable := set.And(allowed)
		left := firstTry(demand)
		for id := usable.Next(0); id >= 0 && left > 0; id = usable.Next(id + 1) {
			early = early.Set(id)
			left--
		}
	}
	for _, quota := range options.Quotas {
		addFirst(quota.Nodes)
	}
	for _, set := range options.OneOf {
		if options.Must.AndNot(set).Empty() {
			addFirst(set)
			break
		}
	}
	return early
}

// togetherFit refuses a job that its candidates, all idle, cannot take together.
func (d submission) togetherFit(
	jobSpec *spec.JobSpec,
	partition *state.Partition,
	demand *place.Demand,
	cands []place.Candidate,
	options place.Options,
) error {
	if d.exceedsPartition(partition, demand) {
		return nil
	}
	slices.SortFunc(cands, func(a, b place.Candidate) int { return cmp.Compare(a.Node.ID, b.Node.ID) })
	if place.Pick(demand, cands, options) != nil {
		return nil
	}
	e := spec.Refuse(
		spec.CodeNodeConfigUnavailable,
		"the nodes of partition "+partition.Spec.Name+
			" that the job may use cannot take it together, even when all of them are idle",
	)
	e.Reason = &spec.Reason{
		Code:    spec.ReasonBadConstraints,
		Subject: "partition/" + partition.Spec.Name,
	}
	return e
}

// exceedsPartition tells whether a job requests more nodes or CPUs than a partition has, or is
// bounded by its MaxNodes, which an administrator may raise.
func (d submission) exceedsPartition(partition *state.Partition, demand *place.Demand) bool {
	if most := int64(partition.Spec.MaxNodes); most > 0 && demand.MaxNodes >= most {
		return true
	}
	var nodes, cpus int64
	for id := partition.Nodes.Next(0); id >= 0; id = partition.Nodes.Next(id + 1) {
		node := d.t.NodeByID(spec.NodeID(id))
		if node == nil {
			continue
		}
		nodes++
		cpus += int64(node.Spec.CPUs)
	}
	return demand.MinNodes > nodes || demand.Least(partition.Spec.BillingWeights).CPU > cpus
}

// isWithin tells whether n is at least the minimum and, unless the maximum is 0, at most that.
func isWithin(n, minimum, maximum int64) bool {
	return n >= minimum && (maximum == 0 || n <= maximum)
}

// sizesByGPU tells whether a job asks for something for each of its GPUs.
func sizesByGPU(size *spec.Size) bool {
	return size.CPUsPerGPU > 0 || size.MemPerGPU > 0 || size.TasksPerGPU > 0
}
