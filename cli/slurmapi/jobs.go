package slurmapi

import (
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/schema"
	"github.com/musterhpc/muster/cli/submit"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// place is a record of the body and its path.
type place struct {
	values schema.Values
	path   string
}

// submitJob is POST job/submit: one job, or the components of a heterogeneous one.
func submitJob(q *request) (tree.Object, error) {
	script := q.body.Text("script")
	req, err := q.makeSubmission("job", "jobs", func(at place) {
		if own := at.values.Text("script"); own != "" && script == "" {
			script = own
		}
	})
	if err != nil {
		return nil, err
	}
	if script == "" {
		return nil, spec.Refuse(spec.CodeNoScript, "#/script is empty")
	}
	if err := submit.CheckScript([]byte(script)); err != nil {
		return nil, problems{
			{Path: "#/script", Text: strings.TrimPrefix(err.Error(), "sbatch: error: ")},
		}
	}
	req.Script = &apiv1.Blob{Data: []byte(script)}
	var reply apiv1.SubmitReply
	if err := q.callRPC(tool.MethodSubmit, req, &reply); err != nil {
		return nil, err
	}
	return tree.Object{
		{Key: "job_id", Value: reply.GetJobId()},
		{Key: "step_id", Value: "batch"},
		{Key: "job_submit_user_msg", Value: reply.GetMessage()},
	}, nil
}

// allocateJob is POST job/allocate: an allocation without a script, which lasts
// until it is cancelled or its time is over.
func allocateJob(q *request) (tree.Object, error) {
	req, err := q.makeSubmission("job", "hetjob", func(place) {})
	if err != nil {
		return nil, err
	}
	for _, jobSpec := range append([]*apiv1.JobSpec{req.GetSpec()}, req.GetRest()...) {
		jobSpec.Shell = true
		jobSpec.Stdin = ""
		jobSpec.Stdout = ""
		jobSpec.Stderr = ""
	}
	var reply apiv1.SubmitReply
	if err := q.callRPC(tool.MethodSubmit, req, &reply); err != nil {
		return nil, err
	}
	return tree.Object{
		{Key: "job_id", Value: reply.GetJobId()},
		{Key: "job_submit_user_msg", Value: reply.GetMessage()},
	}, nil
}

// makeSubmission makes a submission of the description in a field of the body, or of the
// list of them in another. each sees every description first.
func (q *request) makeSubmission(
	one, several string,
	each func(place),
) (*apiv1.SubmitRequest, error) {
	var places []place
	if values := q.body.Record(one); values != nil {
		places = append(places, place{values, "#/" + one})
	}
	for i, values := range q.body.Records(several) {
		places = append(places, place{values, "#/" + several + "/" + strconv.Itoa(i)})
	}
	switch {
	case len(places) == 0:
		return nil, problems{{Path: "#/" + one, Text: "the job is not described"}}
	case len(places) > 1 && q.body.Record(one) != nil:
		return nil, problems{{Path: "#/" + several, Text: one +
			" is given too: give one of the two"}}
	}
	env := q.commandEnv([]string{"REST"})
	shape := schema.Of(q.version).Type("job_desc_msg")
	req := &apiv1.SubmitRequest{}
	var wrong problems
	for i, at := range places {
		each(at)
		d := &description{
			env:    env,
			values: at.values,
			path:   at.path,
			spec: &apiv1.JobSpec{SubmitHost: q.source, SubmitLine: q.path.Method +
				" " + q.path.Path, Umask: env.Umask()},
		}
		d.applyValues(shape)
		if i == 0 {
			variables, bad := submit.EnvironmentOf(at.values.Texts("environment"))
			req.Environment = &apiv1.Blob{Data: variables}
			for _, text := range bad {
				d.failField("environment", strconv.Quote(text)+" is not NAME=value")
			}
			if d.spec.GetWorkDir() == "" {
				d.failField(
					"current_working_directory",
					"the field is required: the job's working directory on its nodes",
				)
			}
			req.Spec = d.spec
		} else {
			if d.spec.GetWorkDir() == "" {
				d.spec.WorkDir = req.GetSpec().GetWorkDir()
			}
			req.Rest = append(req.Rest, d.spec)
		}
		wrong = append(wrong, d.wrong...)
		q.warnings = append(q.warnings, d.warned...)
	}
	if wrong != nil {
		return nil, wrong
	}
	return req, nil
}

// updateJob is POST job/{job_id}: the same keys as scontrol update.
func updateJob(q *request) (tree.Object, error) {
	id, err := q.jobID()
	if err != nil {
		return nil, err
	}
	changes := map[string]string{}
	verb := apiv1.ControlJobsRequest_VERB_UNSPECIFIED
	var wrong problems
	table := descriptionAspects()
	for _, field := range schema.Of(q.version).Type("job_desc_msg").Fields {
		value, given := q.body[field.Name]
		a := table[field.Name]
		switch {
		case !given:
		case field.Name == "hold":
			verb = apiv1.ControlJobsRequest_RELEASE
			if value == true {
				verb = apiv1.ControlJobsRequest_HOLD
			}
		case field.Name == "minimum_nodes":
			changes["numnodes"] = plainValue(value)
			if most, ok := q.body["maximum_nodes"].(int64); ok && most > 0 {
				changes["numnodes"] += "-" + plainValue(most)
			}
		case field.Name == "maximum_nodes" && q.body["minimum_nodes"] != nil: // read with it
		case field.Name == "job_id" && plainValue(value) == id:
		case field.Name == "mail_type":
			changes["mailtype"] = strings.Join(mailTypes(q.body.Texts(field.Name)), ",")
		case a.update != "" && (value == true || value == false):
			changes[a.update] = map[bool]string{true: "1", false: "0"}[value == true]
		case a.update != "":
			changes[a.update] = plainValue(value)
		case asksNothing(value):
		case a.ignored != "":
			q.addWarning("#/"+field.Name, a.ignored)
		default:
			wrong = append(
				wrong,
				schema.Problem{
					Path: "#/" + field.Name,
					Text: "it cannot be changed once the job was submitted",
				},
			)
		}
	}
	switch {
	case wrong != nil:
		return nil, wrong
	case len(changes) == 0 && verb == apiv1.ControlJobsRequest_VERB_UNSPECIFIED:
		return nil, spec.Refuse(spec.CodeQueryInvalid, "the body changes nothing")
	}
	results := tree.List{}
	if len(changes) > 0 {
		results, err = q.controlJobs(
			&apiv1.ControlJobsRequest{
				Verb:    apiv1.ControlJobsRequest_UPDATE,
				Jobs:    []string{id},
				Changes: changes,
			},
		)
		if err != nil {
			return nil, err
		}
	}
	if verb != apiv1.ControlJobsRequest_VERB_UNSPECIFIED {
		more, err := q.controlJobs(&apiv1.ControlJobsRequest{Verb: verb, Jobs: []string{id}})
		if err != nil {
			return nil, err
		}
		results = append(results, more...)
	}
	return tree.Object{{Key: "results", Value: results}}, nil
}

// controlJobs changes jobs. The error of a request about one job is the answer's.
func (q *request) controlJobs(req *apiv1.ControlJobsRequest) (tree.List, error) {
	var reply apiv1.JobResults
	if err := q.callRPC(tool.MethodControlJobs, req, &reply); err != nil {
		return nil, err
	}
	results := tree.List{}
	for _, result := range reply.GetResults() {
		e := result.GetError()
		if e != nil && len(req.GetJobs()) == 1 {
			return nil, jobRefusal(e)
		}
		results = append(
			results,
			tree.Object{
				{Key: "job_id", Value: result.GetJobId()},
				{Key: "step_id", Value: result.GetJob()},
				{
					Key:   "error",
					Value: e.GetText(),
				},
				{Key: "error_code", Value: e.GetCode()},
				{Key: "why", Value: e.GetDetail()},
			},
		)
	}
	return results, nil
}

// jobRefusal is the error of one job in an answer about several.
func jobRefusal(e *apiv1.Error) error {
	return &spec.Error{Kind: spec.Code(e.GetCode()), Prefix: e.GetPrefix(), Detail: e.GetDetail()}
}

// cancelOne is DELETE job/{job_id}.
func cancelOne(q *request) (tree.Object, error) {
	id, err := q.jobID()
	if err != nil {
		return nil, err
	}
	return q.cancelJobs(
		&apiv1.JobFilter{Jobs: []string{id}},
		q.queryParam("signal"),
		strings.Split(strings.ToUpper(q.queryParam("flags")), ","),
	)
}

// cancelSeveral is DELETE jobs: what a filter chooses.
func cancelSeveral(q *request) (tree.Object, error) {
	filter := &apiv1.JobFilter{Jobs: q.body.Texts("jobs")}
	for _, one := range [...]struct {
		field string
		to    *[]string
	}{{"account", &filter.Accounts}, {"job_name", &filter.Names}, {"partition", &filter.Partitions}, {"qos", &filter.Qos}, {"reservation", &filter.Reservations}, {"user_name", &filter.Users}, {"user_id", &filter.Users}} {
		if text := q.body.Text(one.field); text != "" {
			*one.to = append(*one.to, text)
		}
	}
	if q.body.Text("wckey") != "" {
		return nil, problems{
			{Path: "#/wckey", Text: "jobs are not chosen by their wckey: name them in jobs"},
		}
	}
	for _, list := range q.body.Texts("nodes") {
		names, err := hostlist.Expand(list)
		if err != nil {
			return nil, problems{{Path: "#/nodes", Text: err.Error()}}
		}
		filter.Nodes = append(filter.Nodes, names...)
	}
	for _, word := range q.body.Texts("job_state") {
		state, ok := spec.ParseJobState(word)
		if !ok || state.Terminal() {
			return nil, problems{{Path: "#/job_state", Text: word +
				": only jobs that have not ended can be chosen by state"}}
		}
		filter.States = append(filter.States, uint32(state))
	}
	for _, id := range filter.GetJobs() {
		if !tool.ValidTarget(id) {
			return nil, problems{{Path: "#/jobs", Text: id + " is not the number of a job"}}
		}
	}
	if countChoosing(filter) == 0 {
		return nil, spec.Refuse(
			spec.CodeQueryInvalid,
			"the body chooses no jobs: name jobs, a user, an account, a partition, a QOS, a reservation, a name, a state or nodes",
		)
	}
	return q.cancelJobs(filter, q.body.Text("signal"), q.body.Texts("flags"))
}

// countChoosing counts what a filter chooses by.
func countChoosing(filter *apiv1.JobFilter) int {
	return len(filter.GetJobs()) + len(filter.GetUsers()) + len(filter.GetAccounts()) +
		len(filter.GetPartitions()) + len(filter.GetStates()) + len(filter.GetNames()) +
		len(filter.GetQos()) + len(filter.GetNodes()) + len(filter.GetReservations())
}

func (q *request) cancelJobs(
	filter *apiv1.JobFilter,
	signal string,
	flags []string,
) (tree.Object, error) {
	req := &apiv1.CancelRequest{Filter: filter}
	for _, flag := range flags {
		switch flag {
		case "", "VERBOSE":
		case "BATCH_JOB":
			req.Batch = true
		case "FULL_JOB":
			req.Full = true
		case "HURRY":
			req.Hurry = true
		case "ARRAY_TASK":
			// A job's number names all its tasks, NUMBER_TASK one of them.
		default:
			q.addWarning("flags", flag+": Muster has no such thing; ignored")
		}
	}
	if signal != "" {
		n, err := format.ParseSignal(signal)
		if err != nil {
			return nil, problems{{Path: "signal", Text: err.Error()}}
		}
		req.Signal = int32(n)
	}
	var reply apiv1.JobResults
	if err := q.callRPC(tool.MethodCancel, req, &reply); err != nil {
		return nil, err
	}
	status := tree.List{}
	for _, result := range reply.GetResults() {
		e := result.GetError()
		if e != nil && len(filter.GetJobs()) == 1 && len(reply.GetResults()) == 1 {
			return nil, jobRefusal(e)
		}
		status = append(
			status,
			tree.Object{
				{
					Key: "error",
					Value: tree.Object{
						{Key: "string", Value: e.GetText()},
						{Key: "code", Value: e.GetCode()},
						{Key: "message", Value: e.GetDetail()},
					},
				},
				{
					Key:   "step_id",
					Value: result.GetJob(),
				},
				{Key: "job_id", Value: tree.Number{N: int64(result.GetJobId()), Set: true}},
			},
		)
	}
	return tree.Object{{Key: "status", Value: status}}, nil
}

// requeueOne is GET job/{job_id}/requeue.
func requeueOne(q *request) (tree.Object, error) {
	id, err := q.jobID()
	if err != nil {
		return nil, err
	}
	results, err := q.controlJobs(
		requeueOf(id, q.hasFlag("Hold"), q.hasFlag("SpecialExit"), q.hasFlag("Incomplete")),
	)
	return tree.Object{{Key: "status", Value: results}}, err
}

// requeueSeveral is POST jobs/requeue.
func requeueSeveral(q *request) (tree.Object, error) {
	flags := q.body.Texts("flags")
	status := tree.List{}
	for _, id := range q.body.Texts("jobs") {
		if !tool.ValidTarget(id) {
			return nil, problems{{Path: "#/jobs", Text: id + " is not the number of a job"}}
		}
	}
	for _, id := range q.body.Texts("jobs") {
		results, err := q.controlJobs(
			requeueOf(
				id,
				slices.Contains(flags, "Hold"),
				slices.Contains(flags, "SpecialExit"),
				slices.Contains(flags, "Incomplete"),
			),
		)
		if err != nil {
			return nil, err
		}
		status = append(status, results)
	}
	return tree.Object{{Key: "status", Value: status}}, nil
}

// requeueOf is the request of scontrol requeue, or of requeuehold.
func requeueOf(id string, held, special, incomplete bool) *apiv1.ControlJobsRequest {
	req := &apiv1.ControlJobsRequest{
		Verb:       apiv1.ControlJobsRequest_REQUEUE,
		Jobs:       []string{id},
		Incomplete: incomplete,
	}
	if held || special {
		req.Verb = apiv1.ControlJobsRequest_REQUEUE_HOLD
		req.SpecialExit = special
	}
	return req
}
