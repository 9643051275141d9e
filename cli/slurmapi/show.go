package slurmapi

import (
	"strings"

	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// plainName refuses a name that a command would take for something else: an option,
// or a key with a value.
func plainName(param, name string) (string, error) {
	if strings.HasPrefix(name, "-") || strings.ContainsAny(name, "= \t\n") {
		return "", spec.Refuse(spec.CodeQueryInvalid, param+": "+name+" is not a name")
	}
	return name, nil
}

// jobID reads the parameter of a path that names one job.
func (q *request) jobID() (string, error) {
	id := q.given["job_id"]
	if !tool.ValidTarget(id) {
		return "", spec.Refuse(spec.CodeInvalidJobID, "job_id: "+id+" is not the number of a job")
	}
	return id, nil
}

func showJob(q *request) ([]string, error) {
	id, err := q.jobID()
	return []string{"scontrol", "show", "job", id}, err
}

func showStates(q *request) ([]string, error) {
	args := []string{"squeue", "--states=all", "--all"}
	if ids := q.queryParam("job_id"); ids != "" {
		args = append(args, "--jobs="+ids)
	}
	return args, nil
}

func showNodes(q *request) ([]string, error) {
	args := []string{"scontrol", "show", "node"}
	if strings.Contains(strings.ToUpper(q.queryParam("flags")), "FUTURE") {
		args = []string{"scontrol", "--future", "show", "node"}
	}
	return args, nil
}

func showShares(q *request) ([]string, error) {
	args := []string{"sshare", "--all"}
	if accounts := q.queryParam("accounts"); accounts != "" {
		args = append(args, "--accounts="+accounts)
	}
	if users := q.queryParam("users"); users != "" {
		args = append(args, "--users="+users)
	}
	return args, nil
}
