package cli

import (
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// control is hold, release and their kin. suspends tells the verbs whose
// errors Slurm ends with a line of slurm_suspend.
func (c *call) control(verb apiv1.ControlJobsRequest_Verb, args []string, suspends bool) error {
	jobs, err := jobArgs(args)
	if err != nil {
		return err
	}
	return c.controlJobs(&apiv1.ControlJobsRequest{Verb: verb, Jobs: jobs}, suspends)
}

// jobArgs reads ids: 12 13,14 jobid=15.
func jobArgs(args []string) ([]string, error) {
	var jobs []string
	for _, a := range args {
		if key, val, ok := strings.Cut(a, "="); ok {
			if k := strings.ToLower(key); k != "jobid" && k != "job" {
				return nil, fail(1, "invalid argument: "+a+" (expected job ids)")
			}
			a = val
		}
		for _, id := range splitJobs(a) {
			if !validTarget(id) {
				return nil, fail(1, "Invalid job id specified for job "+id)
			}
			jobs = append(jobs, id)
		}
	}
	if len(jobs) == 0 {
		return nil, fail(1, "too few arguments: a job id is missing")
	}
	return jobs, nil
}

func (c *call) controlJobs(req *apiv1.ControlJobsRequest, suspends bool) error {
	var rep apiv1.JobResults
	if err := c.ask(methodControlJobs, req, &rep); err != nil {
		r := explainError(err)
		return fail(1, append(r.before("scontrol"), r.text)...)
	}
	var lines []string
	add := func(line string) {
		if !slices.Contains(lines, line) { // an array's records fail alike
			lines = append(lines, line)
		}
	}
	for _, r := range rep.GetResults() {
		e := r.GetError()
		if e == nil {
			continue
		}
		for _, text := range [...]string{e.GetPrefix(), e.GetDetail()} {
			if text != "" {
				add("scontrol: error: " + text)
			}
		}
		add(e.GetText() + " for job " + r.GetJob())
		if suspends {
			add("slurm_suspend error: " + e.GetText())
		}
	}
	if lines != nil {
		return fail(1, lines...)
	}
	return nil
}

// update changes a job or nodes.
func (c *call) update(args []string) error {
	values := map[string]string{}
	var keys []string
	for _, a := range args {
		key, val, ok := strings.Cut(a, "=")
		if !ok {
			return fail(1, "Invalid input: "+a, "Request aborted")
		}
		key = strings.ToLower(key)
		if _, twice := values[key]; !twice {
			keys = append(keys, key)
		}
		values[key] = val
	}
	first := func(names ...string) (string, bool) {
		for _, n := range names {
			if v, ok := values[n]; ok {
				delete(values, n)
				return v, true
			}
		}
		return "", false
	}
	for _, later := range [...]struct{ key, what string }{{"stepid", "job steps"}, {"frontendname", "front ends"}} {
		_, job := values["jobid"]
		if _, ok := values[later.key]; ok && !job {
			return c.errorf("%s are not changed with update in this release; change the configuration and reconfigure", later.what)
		}
	}
	if _, job := values["jobid"]; !job && (values["reservationname"] != "" || values["reservation"] != "") {
		return c.changeReservation(apiv1.ReservationChange_UPDATE, args)
	}
	if names, ok := first("nodename", "node"); ok {
		return c.updateNodes(names, values, keys)
	}
	if _, job := values["jobid"]; !job && (values["partitionname"] != "" || values["partition"] != "") {
		return c.updatePartition(args)
	}
	if jobs, ok := first("jobid", "job"); ok {
		list, err := jobArgs([]string{jobs})
		if err != nil {
			return err
		}
		if len(values) == 0 {
			return fail(1, "No changes specified")
		}
		return c.controlJobs(&apiv1.ControlJobsRequest{Verb: apiv1.ControlJobsRequest_UPDATE, Jobs: list, Changes: values}, false)
	}
	return fail(1, "No valid entity in update command", "Input line must include \"NodeName\", \"PartitionName\", \"ReservationName\" or \"JobId\"")
}

func (c *call) updateNodes(names string, values map[string]string, keys []string) error {
	if n, err := hostlist.Count(names); err != nil {
		return c.errorf("%v", err)
	} else if n == 0 {
		return fail(1, "slurm_update error: Invalid node name specified")
	}
	state, reason := strings.ToLower(values["state"]), strings.Trim(values["reason"], "\"")
	req := &apiv1.UpdateNodeRequest{Nodes: names, State: state, Reason: reason}
	for _, k := range keys {
		val, ok := values[k]
		switch {
		case !ok || k == "state" || k == "reason" && state != "":
		case slices.Contains(nodeSettings(), k):
			req.Set = append(req.Set, &apiv1.ConfigEntry{Key: k, Value: strings.Trim(val, `"`)})
		default:
			return c.errorf("%s of a node cannot be updated in this release (state and %s can): change the configuration and reconfigure", k, strings.Join(nodeSettings(), ", "))
		}
	}
	if state == "" && len(req.GetSet()) == 0 {
		return fail(1, "No changes specified")
	}
	if state == "" {
		return c.changeNodes(req)
	}
	if slices.Contains([]string{"drain", "down", "fail"}, state) && reason == "" {
		return fail(1, "You must specify a reason when DOWNING or DRAINING a node. Request denied")
	}
	if strings.HasPrefix(state, "reboot") {
		return c.errorf("state=%s is not set with update: use scontrol reboot", state)
	}
	return c.changeNodes(req)
}

// nodeSettings are what scontrol update sets of a node beside its state.
func nodeSettings() []string {
	return []string{"reason", "weight", "features", "availablefeatures", "activefeatures", "comment", "extra"}
}

// updatePartition sends the keys as they were typed: the controller reads them
// as it reads slurm.conf.
func (c *call) updatePartition(args []string) error {
	return c.changePartition(&apiv1.PartitionChange{}, args)
}

func (c *call) changePartition(req *apiv1.PartitionChange, args []string) error {
	for _, a := range args {
		key, val, _ := strings.Cut(a, "=")
		val = strings.Trim(val, `"`)
		if strings.EqualFold(key, "partitionname") || strings.EqualFold(key, "partition") {
			req.Name = val
			continue
		}
		req.Set = append(req.Set, &apiv1.ConfigEntry{Key: key, Value: val})
	}
	if len(req.GetSet()) == 0 && !req.GetCreate() && !req.GetDelete() {
		return fail(1, "No changes specified")
	}
	var rep apiv1.PartitionChangeReply
	if err := c.ask(methodChangePartition, req, &rep); err != nil {
		return nodeStateLine(err)
	}
	c.warn(rep.GetWarnings())
	return nil
}

func (c *call) changeNodes(req *apiv1.UpdateNodeRequest) error {
	var rep apiv1.UpdateNodeReply
	if err := c.ask(methodUpdateNode, req, &rep); err != nil {
		return nodeStateLine(err)
	}
	if len(rep.GetUnknown()) > 0 {
		return fail(1, "slurm_update error: "+spec.CodeInvalidNodeName.String()+" ("+strings.Join(rep.GetUnknown(), ",")+")")
	}
	return nil
}
