package decide

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/commit"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/order"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// updateJob changes what scontrol update may change. All changes are checked
// before the first takes effect; unknown keys are refused by name.
func (d jobCommands) updateJob(command UpdateJob) error {
	job, err := d.findTarget(command.Target, false)
	if err != nil {
		return err
	}
	if job.State.Terminal() {
		return spec.Refuse(spec.CodeJobFinished, "")
	}
	jobSpec := commit.CurrentSpec(job)
	var changed []string
	wish := &jobChange{spec: &jobSpec, job: job, admin: command.Admin}
	for _, kv := range command.Changes {
		name, err := d.changeKey(wish, kv)
		if err != nil {
			return err
		}
		changed = append(changed, name)
	}
	if err := mayChangePods(job.Spec, &jobSpec, wish.leave); err != nil {
		return err
	}
	if err := d.submission().checkBounds(&jobSpec); err != nil {
		return err
	}
	assoc, request := job.Assoc, job.Req
	if job.State == spec.Pending {
		assoc, request, err = d.submission().resolveSpec(&jobSpec, job)
		if err != nil {
			return err
		}
		if err := d.stillAllowed(&jobSpec, job, assoc, request); err != nil {
			return err
		}
	}
	job, err = d.findTarget(command.Target, true)
	if err != nil {
		return err
	}
	newDep := !jobSpec.Queue.Dependency.Equal(job.Spec.Queue.Dependency)
	update := &event.JobUpdated{
		UID:      job.UID,
		Spec:     &jobSpec,
		Req:      request,
		Assoc:    assoc,
		Changed:  changed,
		ByScript: command.ByScript,
	}
	if ranks := updatedPriority(job, &jobSpec); job.State.Active() && ranks != job.StartPrio {
		update.Ranks = &ranks
	}
	if err := d.Emit(update); err != nil {
		return err
	}
	if len(wish.leave) > 0 {
		return d.shrinkJob(d.t.Job(job.UID), wish.leave)
	}
	if slices.Contains(changed, commit.ThrottleKey) {
		if err := d.ShareThrottle(d.t.State.Job(job.UID)); err != nil {
			return err
		}
	}
	if job.State == spec.Pending && (newDep || (job.Hold != jobSpec.Queue.Hold)) {
		return d.Emit(
			&event.ReasonsChanged{
				Jobs: []event.JobReason{{UID: job.UID, Reason: updatedReason(&jobSpec)}},
			},
		)
	}
	return nil
}

// updatedPriority is the priority of a job that has started, after an update of one that was
// set, or of the niceness.
func updatedPriority(job *state.Job, updated *spec.JobSpec) uint32 {
	before, after := &job.Spec.Queue, &updated.Queue
	if after.Priority != 0 {
		if after.Priority == before.Priority {
			return job.StartPrio
		}
		return after.Priority
	}
	nicer := int64(after.Nice) - int64(before.Nice)
	return uint32(min(max(int64(job.StartPrio)-nicer, 0), math.MaxUint32))
}

// updatedReason is why a job waits whose hold or dependency was changed,
// until the next pass looks at it.
func updatedReason(jobSpec *spec.JobSpec) spec.Reason {
	switch {
	case jobSpec.Queue.Hold != spec.NotHeld:
		return spec.Reason{Code: state.HoldReason(jobSpec.Queue.Hold)}
	case jobSpec.Queue.Dependency != nil:
		return spec.Reason{Code: spec.ReasonDependency}
	}
	return spec.Reason{Code: spec.ReasonNone}
}

// stillAllowed checks limits as at a submission: all where the job moves to
// another QOS, account or partition, else only what it alone may exceed.
func (d jobCommands) stillAllowed(
	jobSpec *spec.JobSpec,
	job *state.Job,
	assoc uint32,
	request spec.TRES,
) error {
	count := int64(0)
	if jobSpec.QOS != job.Spec.QOS || !slices.Equal(jobSpec.QOSes, job.Spec.QOSes) ||
		assoc != job.Assoc ||
		!slices.Equal(jobSpec.Partitions, job.Spec.Partitions) {
		count = job.Count()
	}
	return d.submission().withinLimits(
		jobSpec, assoc, request, count, limits.Beside(d.t.State, job),
	)
}

// jobChange is an update under way: the new spec, the job as it is, and whether an
// operator asks.
type jobChange struct {
	spec  *spec.JobSpec
	job   *state.Job
	admin bool
	// leave are nodes that a running job gives back.
	leave []string
}

// jobKey is a key of scontrol update job.
type jobKey struct {
	// Names are scontrol's spelling and then the others that it takes.
	names []string
	// Active tells that it can change on a job that has started. ArrayTaskThrottle
	// can because it belongs to the whole array: an update that names the array
	// reaches its running tasks as well as those that wait, and must not fail for
	// the former after it has changed the latter.
	active bool
	set    func(d jobCommands, c *jobChange, value string) error
	// admin tells that only an administrator may change it, as under Slurm.
	admin bool
}

// jobKeys are the keys of scontrol update job. A key can be abbreviated to three
// letters and more; of several that it begins the first here is meant.
//
//muster:table one row for each key
func jobKeys() []jobKey {
	return []jobKey{
		{[]string{"TimeLimit"}, true, jobCommands.changeTimeLimit, false},
		{[]string{"TimeMin", "MinTime"}, false, jobCommands.changeTimeMin, false},
		{[]string{"Dependency"}, false, jobCommands.changeDependency, false},
		{[]string{"Comment"}, true, textKey(func(jobSpec *spec.JobSpec) *string { return &jobSpec.Comment }), false},
		{[]string{"Extra"}, true, textKey(func(jobSpec *spec.JobSpec) *string { return &jobSpec.Extra }), false},
		{[]string{"AdminComment"}, true, adminTextKey("AdminComment", func(jobSpec *spec.JobSpec) *string { return &jobSpec.AdminComment }), false},
		{[]string{"SystemComment"}, true, adminTextKey("SystemComment", func(jobSpec *spec.JobSpec) *string { return &jobSpec.SystemComment }), false},
		{[]string{"JobName", "Name"}, true, textKey(func(jobSpec *spec.JobSpec) *string { return &jobSpec.Name }), false},
		{[]string{"Partition"}, false, jobCommands.changePartitions, false},
		{[]string{"QOS"}, false, jobCommands.changeQOS, false},
		{[]string{"Account"}, false, textKey(func(jobSpec *spec.JobSpec) *string { return &jobSpec.Account }), false},
		{[]string{"WCKey"}, false, textKey(func(jobSpec *spec.JobSpec) *string { return &jobSpec.WCKey }), false},
		{[]string{"Nice"}, true, jobCommands.changeNice, false},
		{[]string{"SiteFactor"}, false, jobCommands.changeSiteFactor, false},
		{[]string{"Priority"}, true, jobCommands.changePriority, false},
		{[]string{commit.ThrottleKey}, true, jobCommands.changeThrottle, false},
		{[]string{"Requeue"}, true, jobCommands.changeRequeue, false},
		{[]string{"StartTime", "EligibleTime"}, false, momentKey(func(jobSpec *spec.JobSpec) *spec.Instant { return &jobSpec.Time.Begin }), false},
		{[]string{"Deadline"}, true, momentKey(func(jobSpec *spec.JobSpec) *spec.Instant { return &jobSpec.Time.Deadline }), true},
		{[]string{"EndTime"}, true, jobCommands.changeEnd, false},
		{[]string{"NumNodes", "ReqNodes"}, true, jobCommands.changeNodes, false},
		{[]string{"NumCPUs", "MinCPUs", "ReqProcs"}, false, jobCommands.changeCPUs, false},
		{[]string{"NumTasks"}, false, countKey(func(jobSpec *spec.JobSpec) *uint32 { return &jobSpec.Size.Tasks }), false},
		{[]string{"CPUsPerTask"}, false, countKey(func(jobSpec *spec.JobSpec) *uint32 { return &jobSpec.Size.CPUsPerTask }), false},
		{[]string{"NtasksPerNode", "TasksPerNode"}, false, countKey(func(jobSpec *spec.JobSpec) *uint32 { return &jobSpec.Size.TasksPerNode }), false},
		{[]string{"MinCPUsNode"}, false, countKey(func(jobSpec *spec.JobSpec) *uint32 { return &jobSpec.Size.MinCPUsPerNode }), false},
		{[]string{"MinMemoryNode"}, false, jobCommands.changeMemoryOfNode, false},
		{[]string{"MinMemoryCPU"}, false, jobCommands.changeMemoryOfCPU, false},
		{[]string{"MinTmpDiskNode"}, false, jobCommands.changeTmpDisk, false},
		{[]string{"ReqSockets"}, false, countKey(func(jobSpec *spec.JobSpec) *uint32 { return &jobSpec.Size.SocketsPerNode }), false},
		{[]string{"ReqCores"}, false, countKey(func(jobSpec *spec.JobSpec) *uint32 { return &jobSpec.Size.CoresPerSocket }), false},
		{[]string{"ReqThreads"}, false, countKey(func(jobSpec *spec.JobSpec) *uint32 { return &jobSpec.Size.ThreadsPerCore }), false},
		{[]string{"CoreSpec"}, false, countKey(func(jobSpec *spec.JobSpec) *uint32 { return &jobSpec.Size.CoreSpec }), false},
		{[]string{"ThreadSpec"}, false, countKey(func(jobSpec *spec.JobSpec) *uint32 { return &jobSpec.Size.ThreadSpec }), false},
		{[]string{"Gres", "TresPerNode"}, false, gresKey(func(jobSpec *spec.JobSpec) *[]spec.Count { return &jobSpec.Size.PerNode }), false},
		{[]string{"TresPerJob"}, false, gresKey(func(jobSpec *spec.JobSpec) *[]spec.Count { return &jobSpec.Size.PerJob }), false},
		{[]string{"TresPerTask"}, false, gresKey(func(jobSpec *spec.JobSpec) *[]spec.Count { return &jobSpec.Size.PerTask }), false},
		{[]string{"Licenses"}, false, jobCommands.changeLicenses, false},
		{[]string{"ReservationName", "Reservation"}, false, textKey(func(jobSpec *spec.JobSpec) *string { return &jobSpec.Place.Reservation }), false},
		{[]string{"Features"}, false, textKey(func(jobSpec *spec.JobSpec) *string { return &jobSpec.Place.Constraint }), false},
		{[]string{"Prefer"}, false, textKey(func(jobSpec *spec.JobSpec) *string { return &jobSpec.Place.Prefer }), false},
		{[]string{"ExcNodeList"}, false, textKey(func(jobSpec *spec.JobSpec) *string { return &jobSpec.Place.Exclude }), false},
		{[]string{"ReqNodeList", "NodeList"}, true, jobCommands.changeNodeList, false},
		{[]string{"Contiguous"}, false, switchKey(func(jobSpec *spec.JobSpec) *bool { return &jobSpec.Place.Contiguous }), true},
		{[]string{"Switches"}, false, jobCommands.changeSwitches, false},
		{[]string{"wait-for-switch"}, false, jobCommands.changeSwitchWait, false},
		{[]string{"OverSubscribe", "Shared"}, false, jobCommands.changeSharing, true},
		{[]string{"Reboot"}, false, switchKey(func(jobSpec *spec.JobSpec) *bool { return &jobSpec.Queue.Reboot }), true},
		{[]string{"MailUser"}, true, textKey(func(jobSpec *spec.JobSpec) *string { return &jobSpec.Queue.MailUser }), false},
		{[]string{"MailType"}, true, jobCommands.changeMailTypes, false},
		{[]string{"StdIn"}, false, textKey(func(jobSpec *spec.JobSpec) *string { return &jobSpec.IO.Stdin }), false},
		{[]string{"StdOut"}, false, textKey(func(jobSpec *spec.JobSpec) *string { return &jobSpec.IO.Stdout }), false},
		{[]string{"StdErr"}, false, textKey(func(jobSpec *spec.JobSpec) *string { return &jobSpec.IO.Stderr }), false},
		{[]string{"WorkDir"}, false, textKey(func(jobSpec *spec.JobSpec) *string { return &jobSpec.IO.WorkDir }), false},
		{[]string{"ResetAccrueTime"}, false, notHere("a job's age is counted from when it became eligible: hold and release it to start it anew"), false},
		{[]string{"BurstBuffer"}, false, notHere("Muster has no burst buffers"), false},
		{[]string{"Clusters"}, false, notHere("Muster has no federation"), false},
		{[]string{"ClusterFeatures"}, false, notHere("Muster has no federation"), false},
		{[]string{"DelayBoot"}, false, notHere("nodes are not rebooted to change their features"), false},
		{[]string{"MCSLabel"}, false, notHere("the label follows from MCSPlugin and cannot be chosen"), false},
		{[]string{"NtasksPerTRES"}, false, notHere("use TresPerTask"), false},
		{[]string{"UserID"}, false, notHere("a job keeps the user who submitted it"), false},
	}
}

// JobKeyNames are the keys of scontrol update job with their other spellings.
func JobKeyNames() []string {
	var out []string
	for _, key := range jobKeys() {
		out = append(out, key.names...)
	}
	return out
}

// JobKey is scontrol's spelling of a key of update job, by a name or the beginning of one; a
// key that is not known stays as it is.
func JobKey(typed string) string {
	if key := findJobKey(typed); key != nil {
		return key.names[0]
	}
	return typed
}

// findJobKey finds a key by a name or the beginning of one.
func findJobKey(typed string) *jobKey {
	var begins *jobKey
	table := jobKeys()
	for i := range table {
		for _, name := range table[i].names {
			switch {
			case strings.EqualFold(name, typed):
				return &table[i]
			case begins == nil && len(typed) >= 3 && len(typed) < len(name) && strings.EqualFold(name[:len(typed)], typed):
				begins = &table[i]
			}
		}
	}
	return begins
}

// changeKey applies one key and returns scontrol's spelling of it.
func (d jobCommands) changeKey(change *jobChange, kv spec.KeyValue) (string, error) {
	key := findJobKey(kv.Key)
	if key == nil {
		return "", spec.RefuseUnknown(spec.Unknown{
			Kind:    "key",
			Word:    kv.Key,
			Of:      "scontrol update job",
			Nearest: spec.Nearest(kv.Key, JobKeyNames()),
		})
	}
	name := key.names[0]
	if key.admin && !change.admin {
		return "", spec.Refuse(spec.CodeAccessDenied, "only an administrator may change "+name)
	}
	if change.job.State.Active() && !key.active {
		return "", spec.Refuse(spec.CodeJobNotPending, name+" cannot change once a job has started")
	}
	return name, key.set(d, change, kv.Value)
}

// none is how scontrol empties a text.
func none(value string) bool { return value == "" || strings.EqualFold(value, "(null)") }

func textKey(field func(*spec.JobSpec) *string) func(jobCommands, *jobChange, string) error {
	return func(_ jobCommands, change *jobChange, value string) error {
		if none(value) {
			value = ""
		}
		*field(change.spec) = value
		return nil
	}
}

func adminTextKey(
	name string,
	field func(*spec.JobSpec) *string,
) func(jobCommands, *jobChange, string) error {
	return func(_ jobCommands, change *jobChange, value string) error {
		if !change.admin {
			return spec.Refuse(spec.CodeAccessDenied, "only an administrator may set "+name)
		}
		*field(change.spec) = value
		return nil
	}
}

func countKey(field func(*spec.JobSpec) *uint32) func(jobCommands, *jobChange, string) error {
	return func(_ jobCommands, change *jobChange, value string) error {
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil || n == 0 {
			return spec.Refuse(spec.CodeTaskCountInvalid, value+": expected a whole number above 0")
		}
		*field(change.spec) = uint32(n)
		return nil
	}
}

func switchKey(field func(*spec.JobSpec) *bool) func(jobCommands, *jobChange, string) error {
	return func(_ jobCommands, change *jobChange, value string) error {
		switch strings.ToLower(value) {
		case "1", "yes", "true":
			*field(change.spec) = true
		case "0", "no", "false":
			*field(change.spec) = false
		default:
			return spec.Refuse(spec.CodeBadRequest, value+": expected yes or no")
		}
		return nil
	}
}

// momentKey reads an instant.
func momentKey(
	field func(*spec.JobSpec) *spec.Instant,
) func(jobCommands, *jobChange, string) error {
	return func(_ jobCommands, change *jobChange, value string) error {
		at, err := parseInstant(value)
		if err != nil {
			return err
		}
		*field(change.spec) = at
		return nil
	}
}

// parseInstant reads an instant in seconds since 1970, as scontrol sends it: the
// user's words are about the clock of the machine where he types them. 32 bits of
// seconds end in 2106, and their nanoseconds do not overflow.
func parseInstant(value string) (spec.Instant, error) {
	seconds, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return 0, spec.Refuse(spec.CodeInvalidTime, value)
	}
	return spec.AtUnix(int64(seconds)), nil
}

func gresKey(field func(*spec.JobSpec) *[]spec.Count) func(jobCommands, *jobChange, string) error {
	return func(_ jobCommands, change *jobChange, value string) error {
		list, err := parseGRES(value)
		if err != nil {
			return err
		}
		*field(change.spec) = list
		return nil
	}
}

func notHere(reason string) func(jobCommands, *jobChange, string) error {
	return func(jobCommands, *jobChange, string) error {
		return spec.Refuse(spec.CodeDisabled, reason)
	}
}

// parseGRES reads generic resources as scontrol writes them: gpu:2, gpu:a100:1,
// gres/gpu:2, gres:gpu=2. An empty list asks for none.
func parseGRES(value string) ([]spec.Count, error) {
	var counts []spec.Count
	if none(value) || strings.EqualFold(value, "none") {
		return nil, nil
	}
	for item := range strings.SplitSeq(value, ",") {
		text := strings.ReplaceAll(item, "=", ":")
		text = strings.TrimPrefix(strings.TrimPrefix(text, "gres/"), "gres:")
		words := strings.Split(text, ":")
		count := spec.Count{Name: words[0], N: 1}
		if len(words) > 1 {
			n, err := format.ParseCount(words[len(words)-1])
			switch {
			case err == nil:
				count.N = n
			case len(words) == 2:
				count.Type = words[1]
			}
			if len(words) > 3 || len(words) == 3 && err != nil {
				return nil, spec.Refuse(spec.CodeInvalidGRES, item)
			}
			if len(words) == 3 {
				count.Type = words[1]
			}
		}
		counts = append(counts, count)
	}
	return counts, nil
}

func (d jobCommands) changeTimeLimit(change *jobChange, value string) error {
	old := d.limitNow(change.spec, change.job)
	limit, err := d.newLimit(old, value)
	if err != nil {
		return err
	}
	if limit > old && !change.admin && !d.mayRaiseLimit(change, limit) {
		return spec.Refuse(spec.CodeAccessDenied, "only an administrator may raise a time limit")
	}
	change.spec.Time.Limit = limit
	return nil
}

// mayRaiseLimit tells whether the owner of a job may raise its limit: while it is pending, up to
// what each of its partitions allows. He could submit it anew with that limit.
func (d jobCommands) mayRaiseLimit(change *jobChange, limit spec.Span) bool {
	if change.job.State != spec.Pending {
		return false
	}
	for _, name := range change.spec.Partitions {
		partition := d.t.Parts.Find(name)
		if partition == nil {
			return false
		}
		if most := partition.Spec.MaxTime; most > 0 && limit > most {
			return false
		}
	}
	return true
}

func (d jobCommands) changeTimeMin(change *jobChange, value string) error {
	span, err := d.newLimit(0, value)
	if err != nil {
		return err
	}
	change.spec.Time.Min = span
	return nil
}

// changeEnd sets the time limit of a running job so that it ends at an instant.
func (d jobCommands) changeEnd(change *jobChange, value string) error {
	at, err := parseInstant(value)
	if err != nil || !change.job.State.Active() {
		return spec.Refuse(spec.CodeInvalidTime, "EndTime is of a job that runs")
	}
	old := d.limitNow(change.spec, change.job)
	end := change.job.Deadline()
	if end == spec.FarFuture {
		end = change.job.Started.Add(365 * spec.Day)
		old = 365 * spec.Day
	}
	limit := old + at.Sub(end)
	switch {
	case limit <= 0:
		return spec.Refuse(spec.CodeInvalidTime, "nothing would be left")
	case limit > old && !change.admin:
		return spec.Refuse(spec.CodeAccessDenied, "only an administrator may raise a time limit")
	}
	change.spec.Time.Limit = limit
	return nil
}

func (d jobCommands) changeDependency(change *jobChange, value string) error {
	dependency, err := spec.ParseDependency(value)
	if err != nil {
		return spec.Refuse(spec.CodeDependencyProblem, err.Error())
	}
	change.spec.Queue.Dependency = dependency
	return nil
}

func (d jobCommands) changePartitions(change *jobChange, value string) error {
	change.spec.Partitions = strings.Split(value, ",")
	return nil
}

func (d jobCommands) changeQOS(change *jobChange, value string) error {
	change.spec.SetQOS(strings.Split(value, ","))
	return nil
}

// changeNice reads an amount, or with + or - a change of what it is.
func (d jobCommands) changeNice(change *jobChange, value string) error {
	n, err := strconv.ParseInt(strings.TrimPrefix(value, "+"), 10, 32)
	if err != nil {
		return spec.Refuse(spec.CodeBadRequest, "Nice="+value+": expected a whole number")
	}
	if n < 0 && !change.admin {
		return spec.Refuse(spec.CodeAccessDenied, "only an operator may set a negative Nice")
	}
	change.spec.Queue.Nice = int32(n)
	return nil
}

func (d jobCommands) changeSiteFactor(change *jobChange, value string) error {
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || !change.admin {
		return spec.Refuse(spec.CodeAccessDenied, "sitefactor="+value+
			": a whole number, set by an administrator")
	}
	change.spec.Queue.SiteFactor = int32(n)
	return nil
}

// changePriority sets the priority; 0 holds a job that waits.
func (d jobCommands) changePriority(change *jobChange, value string) error {
	n, err := strconv.ParseUint(value, 10, 32)
	queue := &change.spec.Queue
	switch {
	case err != nil:
		return spec.Refuse(spec.CodeBadRequest, "Priority="+value+": expected a whole number")
	case n == 0 && change.job.State.Active():
		return spec.Refuse(spec.CodeJobNotPending, "a job that runs cannot be held")
	case n == 0:
		queue.Hold = max(queue.Hold, spec.HeldByUser)
		if change.admin {
			queue.Hold = spec.HeldByAdmin
		}
		return nil
	case queue.Hold != spec.NotHeld:
		return spec.Refuse(spec.CodeJobHeld, "")
	case !change.admin && n >= uint64(d.priorityOf(change.job)):
		return spec.Refuse(
			spec.CodeAccessDenied,
			"only an administrator may raise a priority; a positive Nice lowers it",
		)
	}
	queue.Priority = uint32(n)
	return nil
}

// priorityOf is the priority that a job has now, or with which it runs.
func (d jobCommands) priorityOf(job *state.Job) uint32 {
	if job.State != spec.Pending {
		return order.NewRunning(d.t.State, d.t.Now).Of(job)
	}
	part := d.t.Parts.Find(job.Partition())
	if part == nil {
		return 0
	}
	return order.NewContext(d.t.State, d.t.Now).Of(job, part.Spec).Total
}

func (d jobCommands) changeThrottle(change *jobChange, value string) error {
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return spec.Refuse(spec.CodeBadRequest, commit.ThrottleKey+"="+value+
			": expected a whole number")
	}
	if change.spec.Queue.Array == nil {
		return spec.Refuse(spec.CodeInvalidArray, "the job is not an array")
	}
	change.spec.Queue.Array.Throttle = uint32(n)
	return nil
}

func (d jobCommands) changeRequeue(change *jobChange, value string) error {
	switch value {
	case "0":
		change.spec.Queue.Requeue = spec.No
	case "1":
		change.spec.Queue.Requeue = spec.Yes
	default:
		return spec.Refuse(spec.CodeBadRequest, "requeue="+value+": expected 0 or 1")
	}
	return nil
}

// changeCPUs sets how many CPUs the job has: as many tasks as give them. A range
// counts by its beginning.
func (d jobCommands) changeCPUs(change *jobChange, value string) error {
	least, _, _ := strings.Cut(value, "-")
	n, err := strconv.ParseUint(least, 10, 31)
	if err != nil || n == 0 {
		return spec.Refuse(spec.CodeTaskCountInvalid, "numcpus="+value)
	}
	each := max(uint64(change.spec.Size.CPUsPerTask), 1)
	change.spec.Size.Tasks = uint32((n + each - 1) / each)
	return nil
}

func (d jobCommands) changeMemoryOfNode(change *jobChange, value string) error {
	n, err := format.ParseMemory(value)
	if err != nil {
		return spec.Refuse(spec.CodeMemoryUnavailable, value)
	}
	size := &change.spec.Size
	size.MemPerNode = n
	size.MemPerCPU = 0
	size.MemPerGPU = 0
	size.AllMem = n == 0
	return nil
}

func (d jobCommands) changeMemoryOfCPU(change *jobChange, value string) error {
	n, err := format.ParseMemory(value)
	if err != nil {
		return spec.Refuse(spec.CodeMemoryUnavailable, value)
	}
	size := &change.spec.Size
	size.MemPerNode = 0
	size.MemPerCPU = n
	size.MemPerGPU = 0
	size.AllMem = false
	return nil
}

func (d jobCommands) changeTmpDisk(change *jobChange, value string) error {
	n, err := format.ParseMemory(value)
	if err != nil {
		return spec.Refuse(spec.CodeBadRequest, "mintmpdisknode="+value)
	}
	change.spec.Size.TmpDisk = n
	return nil
}

// changeLicenses reads licences: matlab:2,ansys; a|b means one of them.
func (d jobCommands) changeLicenses(change *jobChange, value string) error {
	list, err := parseGRES(strings.ReplaceAll(value, "|", ","))
	if err != nil {
		return spec.Refuse(spec.CodeInvalidLicense, value)
	}
	change.spec.Licenses = list
	change.spec.AnyLicense = strings.Contains(value, "|")
	return nil
}

// changeSwitches reads the most leaf switches, and how long to wait for them:
// 1@10 is one, for ten minutes.
func (d jobCommands) changeSwitches(change *jobChange, value string) error {
	count, wait, hasWait := strings.Cut(value, "@")
	n, err := strconv.ParseUint(count, 10, 31)
	if err != nil {
		return spec.Refuse(spec.CodeBadRequest, "switches="+value)
	}
	change.spec.Place.Switches = uint32(n)
	if hasWait {
		span, err := d.newLimit(0, wait)
		if err != nil {
			return err
		}
		change.spec.Place.SwitchWait = span
	}
	return nil
}

// changeSwitchWait reads for how many seconds a job waits for the switches that it asked for.
func (d jobCommands) changeSwitchWait(change *jobChange, value string) error {
	seconds, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return spec.Refuse(spec.CodeInvalidTime, "wait-for-switch="+value+": expected seconds")
	}
	change.spec.Place.SwitchWait = spec.Seconds(int64(seconds))
	return nil
}

func (d jobCommands) changeSharing(change *jobChange, value string) error {
	words := map[string]spec.Sharing{
		"yes":       spec.Oversubscribe,
		"1":         spec.Oversubscribe,
		"ok":        spec.ShareDefault,
		"no":        spec.Exclusive,
		"0":         spec.Exclusive,
		"exclusive": spec.Exclusive,
		"user":      spec.ExclusiveUser,
		"mcs":       spec.ExclusiveMCS,
		"topo":      spec.ExclusiveTopo,
	}
	sharing, ok := words[strings.ToLower(value)]
	if !ok {
		return spec.Refuse(spec.CodeBadRequest, "oversubscribe="+value+
			": expected yes, no, user, mcs or topo")
	}
	change.spec.Place.Sharing = sharing
	return nil
}

func (d jobCommands) changeMailTypes(change *jobChange, value string) error {
	change.spec.Queue.MailTypes = nil
	if !none(value) && !strings.EqualFold(value, "none") {
		change.spec.Queue.MailTypes = strings.Split(strings.ToUpper(value), ",")
	}
	return nil
}

// limitNow is the time limit that a change starts from: the one in force, or
// what the partition would give.
func (d jobCommands) limitNow(jobSpec *spec.JobSpec, job *state.Job) spec.Span {
	if partition := d.t.Parts.Find(job.Partition()); jobSpec.Time.Limit == 0 && partition != nil {
		demand := place.Resolve(d.t.Config, partition.Spec, jobSpec)
		return demand.Limit
	}
	return jobSpec.Time.Limit
}

// newLimit reads a time limit that may begin with + or -.
func (d jobCommands) newLimit(old spec.Span, value string) (spec.Span, error) {
	rel := byte(0)
	if value != "" && (value[0] == '+' || value[0] == '-') {
		rel, value = value[0], value[1:]
	}
	seconds, err := format.ParseDuration(value)
	if err != nil {
		return 0, spec.Refuse(spec.CodeInvalidTimeLimit, err.Error())
	}
	span := spec.Infinite
	if seconds != format.Infinite {
		span = spec.Seconds(seconds)
	}
	switch rel {
	case '+':
		if old == spec.Infinite || span == spec.Infinite {
			return spec.Infinite, nil
		}
		span += old
	case '-':
		if span >= old {
			return 0, spec.Refuse(spec.CodeInvalidTimeLimit, "nothing would be left")
		}
		span = old - span
	}
	if span <= 0 {
		return 0, spec.Refuse(spec.CodeInvalidTimeLimit, value)
	}
	return span, nil
}

// changeNodes sets how many nodes a job is to have. A running one can only give
// nodes back: it keeps the first ones.
func (d jobCommands) changeNodes(change *jobChange, value string) error {
	lo, hi, ranged := strings.Cut(value, "-")
	n, err := strconv.ParseUint(lo, 10, 32)
	m := n
	if ranged && err == nil {
		m, err = strconv.ParseUint(hi, 10, 32)
	}
	if err != nil || n == 0 || m < n {
		return spec.Refuse(spec.CodeNodeCountInvalid, value)
	}
	if !change.job.State.Active() {
		change.spec.Size.MinNodes, change.spec.Size.MaxNodes = uint32(n), uint32(m)
		return nil
	}
	kept := nodesKept(change.job)
	if m > uint64(len(kept)) {
		return spec.Refuse(
			spec.CodeNodeCountInvalid,
			fmt.Sprintf(
				"numnodes=%s: the job has %s, and a running job can only give nodes back",
				value,
				format.Plural(len(kept), "node", "nodes"),
			),
		)
	}
	return change.giveBack(kept[m:])
}

// changeNodeList sets the nodes that a job must have. Of a running one it says which
// of its nodes it keeps.
func (d jobCommands) changeNodeList(change *jobChange, value string) error {
	if !change.job.State.Active() {
		return textKey(func(jobSpec *spec.JobSpec) *string { return &jobSpec.Place.Nodes })(d, change, value)
	}
	names, err := hostlist.Expand(value)
	if err != nil || len(names) == 0 {
		return spec.Refuse(spec.CodeInvalidNodeName, value)
	}
	kept := nodesKept(change.job)
	for _, name := range names {
		if !slices.Contains(kept, name) {
			return spec.Refuse(spec.CodeInvalidNodeName, "nodelist="+value+": "+name+
				" is not one of the job's nodes, and a running job can only give nodes back")
		}
	}
	return change.giveBack(
		slices.DeleteFunc(kept, func(name string) bool { return slices.Contains(names, name) }),
	)
}

// nodesKept are the nodes of a running job that it has not been told to give back.
func nodesKept(job *state.Job) []string {
	var kept []string
	for i := range job.Alloc.Nodes {
		if name := job.Alloc.Nodes[i].Name; !job.Done.Has(i) &&
			!slices.Contains(job.Leaving, name) {
			kept = append(kept, name)
		}
	}
	return kept
}

// giveBack notes the nodes that a running job is to lose.
func (c *jobChange) giveBack(nodes []string) error {
	job := c.job
	switch {
	case len(nodes) == 0:
		return nil
	case slices.Contains(nodes, job.Alloc.Nodes[0].Name):
		return spec.Refuse(spec.CodeNodeConfigUnavailable, "the job's first node, "+
			job.Alloc.Nodes[0].Name+
			", cannot be given back: its script or its salloc is there")
	case job.State != spec.Running || job.Ending != nil || job.Configuring() || job.Prepares:
		return spec.Refuse(spec.CodeJobNotRunning, "only a job that runs gives nodes back")
	}
	c.leave = append(c.leave, nodes...)
	return nil
}

// shrinkJob takes nodes from a running job. Steps with a part on them end whole.
func (d jobCommands) shrinkJob(job *state.Job, nodes []string) error {
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	if err := d.Emit(&event.JobShrunk{UID: job.UID, Attempt: job.Attempt, Nodes: nodes}); err != nil {
		return err
	}
	for i := range job.Steps {
		step := &job.Steps[i]
		if !slices.ContainsFunc(nodes, func(name string) bool { return step.Part(name) >= 0 }) {
			continue
		}
		if err := d.RequestStepEnd(job, step, event.EndCancel); err != nil {
			return err
		}
	}
	return nil
}
