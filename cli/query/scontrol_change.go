package query

import (
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// changeJobs is hold, release and their kin.
func changeJobs(call *tool.Call, verb apiv1.ControlJobsRequest_Verb, args []string) error {
	if len(args) == 0 {
		return tool.Fail(1, "too few arguments for keyword:"+call.Operands[0])
	}
	var rest []string
	for _, arg := range args {
		key, name, given := strings.Cut(arg, "=")
		if !given || !isJobName(key) {
			rest = append(rest, arg)
			continue
		}
		named, err := jobsNamed(call, &apiv1.JobFilter{Names: []string{name}}, name)
		if err != nil {
			return err
		}
		rest = append(rest, named...)
	}
	jobs, err := verbJobs(call, rest)
	if err != nil {
		return err
	}
	return controlJobs(call, &apiv1.ControlJobsRequest{Verb: verb, Jobs: jobs})
}

// isJobName tells whether a key names jobs by their name.
func isJobName(key string) bool {
	key = strings.ToLower(key)
	return key == "name" || key == "jobname"
}

// jobsNamed finds the jobs of a name. Without a user in the filter they are those of the caller,
// or of everybody for root.
func jobsNamed(call *tool.Call, filter *apiv1.JobFilter, name string) ([]string, error) {
	if len(filter.GetUsers()) == 0 && call.UID != 0 {
		filter.Users = []string{tool.Itoa(call.UID)}
	}
	var found apiv1.ListJobsReply
	if err := fetch.Jobs(call, &apiv1.ListJobsRequest{Filter: filter}, &found); err != nil {
		return nil, fetch.JobsError(err)
	}
	view := &render.JobView{Clock: render.NewClock(call.Env), Env: call.Env}
	var ids []string
	for _, job := range found.GetJobs() {
		ids = append(ids, view.ID(render.JobRow{JobInfo: job, Task: -1}))
	}
	if len(ids) == 0 {
		whose := "there is no job"
		if users := filter.GetUsers(); len(users) > 0 {
			whose = "user " + users[0] + " has no job"
		}
		return nil, tool.Fail(1, "scontrol: error: "+whose+" with the name "+name)
	}
	return ids, nil
}

func isSpecialExit(state string) bool {
	return state == "specialexit" || state == "special_exit" || state == "se"
}

// requeueJobs queues jobs again. Options stand before the ids: incomplete leaves jobs
// alone that have ended well, state=specialexit holds them in that state.
func requeueJobs(call *tool.Call, verb apiv1.ControlJobsRequest_Verb, args []string) error {
	request := &apiv1.ControlJobsRequest{Verb: verb}
	var rest []string
	for _, word := range args {
		key, value, _ := strings.Cut(strings.ToLower(word), "=")
		switch {
		case len(word) >= 3 && strings.HasPrefix("incomplete", strings.ToLower(word)):
			request.Incomplete = true
		case key == "state" && isSpecialExit(value) && verb == apiv1.ControlJobsRequest_REQUEUE_HOLD:
			request.SpecialExit = true
		case key == "state":
			return tool.Fail(1, "invalid state specified: "+word+
				" (requeuehold takes State=SpecialExit)")
		default:
			rest = append(rest, word)
		}
	}
	jobs, err := verbJobs(call, rest)
	if err != nil {
		return err
	}
	request.Jobs = jobs
	if own := call.Getenv("SLURM_JOB_ID"); own != "" && slices.Contains(jobs, own) {
		// The job that is requeued is this one: its processes get SIGTERM, and a script
		// that checks the exit code must learn that the request was accepted.
		signal.Ignore(syscall.SIGTERM)
	}
	return controlJobs(call, request)
}

// errNoJob says that no job is named, which the verb words with its name.
var errNoJob = errors.New("no job is named")

// verbJobs reads the ids of a verb.
func verbJobs(call *tool.Call, args []string) ([]string, error) {
	jobs, err := jobArgs(args)
	if errors.Is(err, errNoJob) {
		return nil, tool.Fail(1, "too few arguments for keyword:"+call.Operands[0])
	}
	return jobs, err
}

// jobArgs reads ids: 12 13,14 jobid=15.
func jobArgs(args []string) ([]string, error) {
	var jobs []string
	for _, a := range args {
		if key, value, ok := strings.Cut(a, "="); ok {
			if k := strings.ToLower(key); k != "jobid" && k != "job" {
				return nil, tool.Fail(1, "invalid argument: "+a+" (expected job ids)")
			}
			a = value
		}
		for _, id := range tool.SplitJobs(a) {
			if !tool.ValidTarget(id) {
				return nil, tool.Fail(1, "Invalid job id specified for job "+id)
			}
			jobs = append(jobs, id)
		}
	}
	if len(jobs) == 0 {
		return nil, errNoJob
	}
	return jobs, nil
}

// endsWithSuspendError tells the verbs whose errors Slurm ends with a line of slurm_suspend: these
// are hold and release, and not suspend and resume.
func endsWithSuspendError(verb apiv1.ControlJobsRequest_Verb) bool {
	switch verb {
	case apiv1.ControlJobsRequest_HOLD,
		apiv1.ControlJobsRequest_USER_HOLD,
		apiv1.ControlJobsRequest_RELEASE:
		return true
	}
	return false
}

// controlJobs makes a change of jobs, and says of each job that refuses it why.
func controlJobs(call *tool.Call, request *apiv1.ControlJobsRequest) error {
	var reply apiv1.JobResults
	if err := call.RPC(tool.MethodControlJobs, request, &reply); err != nil {
		refusal := tool.ExplainError(err)
		return tool.Fail(1, append(refusal.Preamble("scontrol"), refusal.Text)...)
	}
	var lines []string
	add := func(line string) {
		if !slices.Contains(lines, line) { // an array's records fail alike
			lines = append(lines, line)
		}
	}
	for _, result := range reply.GetResults() {
		for line := range strings.Lines(result.GetMessage()) {
			fmt.Fprintf(call.Stderr, "scontrol: %s\n", strings.TrimRight(line, "\n"))
		}
		e := result.GetError()
		if e == nil {
			continue
		}
		if unknown := unknownKeyLines(request, e.GetDetail()); unknown != nil {
			return tool.Fail(1, unknown...)
		}
		for _, text := range [...]string{e.GetPrefix(), e.GetDetail()} {
			for line := range strings.Lines(text) {
				add("scontrol: error: " + strings.TrimRight(line, "\n"))
			}
		}
		add(e.GetText() + " for job " + result.GetJob())
		if endsWithSuspendError(request.GetVerb()) {
			add("slurm_suspend error: " + e.GetText())
		}
	}
	if lines != nil {
		return tool.Fail(1, lines...)
	}
	return nil
}

// unknownKeyLines words the refusal of a key that does not exist, which is none of a job. What was
// probably meant stands above Slurm's lines. It returns nil if the detail is about something else.
func unknownKeyLines(request *apiv1.ControlJobsRequest, detail string) []string {
	for key, value := range request.GetChanges() {
		unknown := spec.Unknown{Kind: "key", Word: key, Of: "scontrol update job"}
		if !strings.HasPrefix(detail, unknown.String()) {
			continue
		}
		lines := []string{
			"Update of this parameter is not supported: " + key + "=" + value, "Request aborted",
		}
		if detail != unknown.String() {
			lines = append([]string{"scontrol: error: " + detail}, lines...)
		}
		return lines
	}
	return nil
}

// setting is a key of update with its value, as it was typed.
type setting struct{ key, value string }

// readSettings reads KEY=VALUE, and KEY VALUE as scontrol also takes it: words
// without = alternate, a key and its value. KEY+=VALUE and KEY-=VALUE keep their sign.
func readSettings(args []string) ([]setting, error) {
	var settings []setting
	for i := 0; i < len(args); i++ {
		key, value, ok := strings.Cut(args[i], "=")
		if !ok && strings.EqualFold(key, "resetaccruetime") {
			ok = true // the one key without a value
		}
		if !ok {
			i++
			if i == len(args) {
				return nil, tool.Fail(1, "Invalid input: "+key, "Request aborted")
			}
			value = args[i]
		}
		if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		settings = append(settings, setting{key, value})
	}
	return settings, nil
}

// updateEntities are the keys that name what update changes; each can be
// abbreviated to three letters.
//
// The order decides: jobid=1 partitionname=p is about the job.
var updateEntities = []string{
	"jobid",
	"stepid",
	"reservationname",
	"nodename",
	"partitionname",
	"frontendname",
	"jobname",
}

// entityOf finds what update changes: a key of updateEntities, or another name of one.
func entityOf(list []setting) (entity, name string, rest []setting) {
	aliases := map[string]string{
		"job":         "jobid",
		"node":        "nodename",
		"partition":   "partitionname",
		"reservation": "reservationname",
		"step":        "stepid",
	}
	for _, wanted := range updateEntities {
		for i, s := range list {
			key := strings.ToLower(s.key)
			if alias, ok := aliases[key]; ok {
				key = alias
			} else if len(key) >= 3 {
				key = pickWord([]string{wanted}, key)
			}
			if key == wanted {
				return wanted, s.value, slices.Delete(slices.Clone(list), i, i+1)
			}
		}
	}
	return "", "", list
}

// updateEntity changes jobs, a step, nodes, a partition or a reservation.
func updateEntity(call *tool.Call, args []string) error {
	if len(args) == 0 {
		return tool.Fail(1, "too few arguments for update keyword")
	}
	list, err := readSettings(args)
	if err != nil {
		return err
	}
	entity, name, rest := entityOf(list)
	joined := make([]string, len(list))
	for i, s := range list {
		joined[i] = s.key + "=" + s.value
	}
	switch entity {
	case "jobid":
		return updateJob(call, name, rest)
	case "nodename":
		return updateNodes(call, name, rest)
	case "partitionname":
		return updatePartition(call, name, rest)
	case "reservationname":
		return changeReservation(call, apiv1.ReservationChange_UPDATE, joined)
	case "stepid":
		return updateStep(call, name, rest)
	case "frontendname":
		return call.Errorf("Muster has no front-end nodes")
	case "jobname":
		return updateJobsNamed(call, name, rest)
	}
	return tool.Fail(
		1,
		"No valid entity in update command",
		"Input line must include \"NodeName\", \"PartitionName\", \"ReservationName\" or \"JobId\"",
	)
}

// updateJobsNamed changes the jobs of a name: those of the caller, or with UserID= of another user.
func updateJobsNamed(call *tool.Call, name string, rest []setting) error {
	user := tool.Itoa(call.UID)
	for i, s := range rest {
		if len(s.key) >= 4 && pickWord([]string{"userid"}, strings.ToLower(s.key)) != "" {
			user = s.value
			rest = slices.Delete(slices.Clone(rest), i, i+1)
			break
		}
	}
	filter := &apiv1.JobFilter{Names: []string{name}, Users: []string{user}}
	ids, err := jobsNamed(call, filter, name)
	if err != nil {
		return err
	}
	return updateJob(call, strings.Join(ids, ","), rest)
}

// jobMoments are the keys of a job whose values are instants. They are sent in
// seconds since 1970, because words such as 16:00 are about the user's own clock.
var jobMoments = []string{"starttime", "eligibletime", "deadline", "endtime"}

func updateJob(call *tool.Call, jobs string, rest []setting) error {
	list, err := jobArgs([]string{jobs})
	if errors.Is(err, errNoJob) {
		return tool.Fail(1, "scontrol: error: Could not load state information for job : "+
			spec.CodeInvalidJobID.String())
	}
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return tool.Fail(1, "No changes specified")
	}
	changes := map[string]string{}
	for _, s := range rest {
		key, value := strings.ToLower(s.key), s.value
		if moment := pickWord(jobMoments, key); moment != "" {
			seconds, err := format.ParseTime(
				value,
				format.Moment{Now: call.Now().Unix(), Loc: call.Loc},
			)
			if err != nil {
				return tool.Fail(1, tool.BadTimeText(value), "Invalid time specified for "+s.key)
			}
			value = strconv.FormatInt(seconds, 10)
		}
		changes[key] = value
	}
	if err := controlJobs(call, &apiv1.ControlJobsRequest{Verb: apiv1.ControlJobsRequest_UPDATE, Jobs: list, Changes: changes}); err != nil {
		return err
	}
	inside := call.Getenv("SLURM_JOB_ID") != "" // elsewhere no shell has variables of the job
	if inside && slices.ContainsFunc(rest, func(s setting) bool { return isResize(s.key) }) {
		return resizeScripts(call, list)
	}
	return nil
}

// nodeSettings are what scontrol update sets of a node beside its state.
func nodeSettings() []string {
	return []string{
		"reason",
		"weight",
		"features",
		"availablefeatures",
		"activefeatures",
		"comment",
		"extra",
		"gres",
		"resumeafter",
	}
}

// nodeStates are the states that update sets.
func nodeStates() []string {
	return []string{
		"down",
		"drain",
		"fail",
		"resume",
		"undrain",
		"idle",
		"fenced",
		"power_down",
		"power_down_asap",
		"power_down_force",
		"power_up",
		"cancel_reboot",
	}
}

// readNodeState reads a state, or three letters or more that it begins with.
func readNodeState(typed string) (string, error) {
	word := strings.ToLower(typed)
	if strings.HasPrefix(word, "reboot") {
		return word, nil // it has an answer of its own
	}
	if state := pickWord(nodeStates(), word); state != "" {
		return state, nil
	}
	return "", tool.Fail(
		1,
		"Invalid input: state="+typed,
		"Request aborted",
		"Valid states are: "+strings.ToUpper(strings.Join(nodeStates(), " ")),
		"Not all states are valid given a node's prior state",
	)
}

func updateNodes(call *tool.Call, names string, rest []setting) error {
	if !strings.EqualFold(names, "all") {
		if n, err := hostlist.Count(names); err != nil {
			return call.Errorf("%v", err)
		} else if n == 0 {
			return tool.Fail(1, "slurm_update error: Invalid node name specified")
		}
	}
	request := &apiv1.UpdateNodeRequest{Nodes: names}
	for _, s := range rest {
		switch key := pickWord(append(nodeSettings(), "state"), strings.ToLower(s.key)); key {
		case "state":
			state, err := readNodeState(s.value)
			if err != nil {
				return err
			}
			request.State = state
		case "reason":
			request.Reason = s.value
		case "":
			if near := spec.Nearest(s.key, append(nodeSettings(), "state")); near != "" {
				return call.Errorf("%s", (&spec.Unknown{
					Kind:    "key",
					Word:    s.key,
					Of:      "scontrol update node",
					Nearest: near,
				}).String())
			}
			return call.Errorf(
				"%s of a node cannot be updated in this release (state and %s can): change the configuration and reconfigure",
				s.key,
				strings.Join(nodeSettings(), ", "),
			)
		default:
			request.Set = append(request.Set, &apiv1.ConfigEntry{Key: key, Value: s.value})
		}
	}
	switch {
	case request.GetState() == "" && request.GetReason() != "":
		request.Set = append(
			request.Set, &apiv1.ConfigEntry{Key: "reason", Value: request.GetReason()},
		)
		request.Reason = ""
	case request.GetState() == "" && len(request.Set) == 0:
		return tool.Fail(1, "No changes specified")
	case slices.Contains([]string{"drain", "down", "fail"}, request.GetState()) &&
		request.GetReason() == "":
		return tool.Fail(
			1,
			"You must specify a reason when DOWNING or DRAINING a node. Request denied",
		)
	case strings.HasPrefix(request.GetState(), "reboot"):
		return call.Errorf(
			"state=%s is not set with update: use scontrol reboot", request.GetState(),
		)
	}
	return sendNodes(call, request)
}

// updatePartition sends the keys as they were typed: the controller reads them
// as it reads slurm.conf.
func updatePartition(call *tool.Call, name string, rest []setting) error {
	request := &apiv1.PartitionChange{Name: name}
	for _, s := range rest {
		request.Set = append(request.Set, &apiv1.ConfigEntry{Key: s.key, Value: s.value})
	}
	return changePartition(call, request)
}

// createPartition reads the settings of a new partition, one of which names it.
func createPartition(call *tool.Call, args []string) error {
	list, err := readSettings(args)
	if err != nil {
		return err
	}
	_, name, rest := entityOf(list)
	request := &apiv1.PartitionChange{Name: name, Create: true}
	for _, s := range rest {
		request.Set = append(request.Set, &apiv1.ConfigEntry{Key: s.key, Value: s.value})
	}
	return changePartition(call, request)
}

func changePartition(call *tool.Call, request *apiv1.PartitionChange) error {
	if len(request.GetSet()) == 0 && !request.GetCreate() && !request.GetDelete() {
		return tool.Fail(1, "No changes specified")
	}
	var reply apiv1.PartitionChangeReply
	if err := call.RPC(tool.MethodChangePartition, request, &reply); err != nil {
		return nodeStateLine(err)
	}
	warnOfChange(call, reply.GetWarnings())
	return nil
}

func sendNodes(call *tool.Call, request *apiv1.UpdateNodeRequest) error {
	var reply apiv1.UpdateNodeReply
	if err := call.RPC(tool.MethodUpdateNode, request, &reply); err != nil {
		return nodeStateLine(err)
	}
	if len(reply.GetUnknown()) > 0 {
		return tool.Fail(1, "slurm_update error: "+spec.CodeInvalidNodeName.String()+" ("+
			strings.Join(reply.GetUnknown(), ",")+")")
	}
	return nil
}
