package console

import (
	"net/http"
	"net/url"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/spec"
)

// action is a change that a page offers, with the command line that does the
// same.
type action struct {
	Verb, Name string
	To         string // where its form goes
	Command    string
	Ask        string // a question to confirm; empty = it needs none
	Reason     bool   // it takes a reason
	Danger     bool
	WhatIf     string // link to the page that says what it would do to the queue; empty = none
}

// jobActions are the changes that make sense for a job in its state, to a
// visitor who may make them.
func (v *visit) jobActions(job *apiv1.JobInfo, id string) []action {
	if v.past != nil || !v.mayChange(job) {
		return nil
	}
	var actions []action
	add := func(a action) {
		a.To = "/job/" + id + "/" + a.Verb
		actions = append(actions, a)
	}
	state := spec.JobState(job.GetState())
	pending, active := state == spec.Pending, state == spec.Running || state == spec.Suspended
	switch {
	case pending && job.GetHold() != 0:
		add(action{Verb: "release", Name: "Release", Command: "scontrol release " + id})
	case pending:
		add(action{Verb: "hold", Name: "Hold", Command: "scontrol hold " + id})
	}
	if active {
		add(
			action{
				Verb:    "requeue",
				Name:    "Requeue",
				Command: "scontrol requeue " + id,
				Ask:     "The job's processes are ended, and it waits again from the start.",
				Danger:  true,
			},
		)
	}
	if (pending || active) && !job.GetCompleting() {
		add(
			action{
				Verb:    "cancel",
				Name:    "Cancel",
				Command: "scancel " + id,
				Ask:     "This ends the job for good.",
				Danger:  true,
				WhatIf:  supposeLink("scancel " + id),
			},
		)
	}
	return actions
}

// changeJob does what a form of the page of a job asks for. What is refused is
// said in the service's words.
func (c *Console) changeJob(v *visit) (answer, error) {
	id, verb := v.PathValue("id"), v.PathValue("verb")
	if !tool.ValidTarget(id) {
		return answer{}, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	var results *apiv1.JobResults
	var err error
	verbs := map[string]apiv1.ControlJobsRequest_Verb{
		"hold":    apiv1.ControlJobsRequest_HOLD,
		"release": apiv1.ControlJobsRequest_RELEASE,
		"requeue": apiv1.ControlJobsRequest_REQUEUE,
	}
	switch control, known := verbs[verb]; {
	case verb == "cancel":
		results, err = callAPI[*apiv1.JobResults](
			v,
			tool.MethodCancel,
			&apiv1.CancelRequest{Filter: &apiv1.JobFilter{Jobs: []string{id}}},
		)
	case known:
		results, err = callAPI[*apiv1.JobResults](
			v,
			tool.MethodControlJobs,
			&apiv1.ControlJobsRequest{Verb: control, Jobs: []string{id}},
		)
	default:
		return answer{
			page:  "problem",
			title: "Not found",
			data: problem{Text: "there is no action " +
				verb},
			status: http.StatusNotFound,
		}, nil
	}
	if err != nil {
		return answer{}, err
	}
	for _, result := range results.GetResults() {
		if e := result.GetError(); e != nil {
			return answer{}, &spec.Error{Kind: spec.Code(e.GetCode()), Detail: e.GetDetail()}
		}
	}
	return answer{to: "/job/" + id + "?" + url.Values{"did": {verb}}.Encode()}, nil
}

// doneText says what has been done, by the word in the address of the page that
// follows.
func doneText(verb string) string {
	return map[string]string{"cancel": "The job is being cancelled.", "hold": "The job is held.", "release": "The job is released.", "requeue": "The job is being requeued.",
		"drain": "The node is being drained: it takes no new jobs.", "resume": "The node takes jobs again."}[verb]
}

// nodeActions are the changes of a node that the visitor may make.
func (v *visit) nodeActions(node *apiv1.NodeInfo) []action {
	if v.past != nil || v.console.cfg.Door.Admit(v.id, tool.MethodUpdateNode) != nil {
		return nil
	}
	name := node.GetName()
	command := "scontrol update nodename=" + name + " state="
	if strings.Contains(node.GetState(), "DRAIN") || strings.HasPrefix(node.GetState(), "DOWN") {
		return []action{
			{Verb: "resume", Name: "Resume", To: "/node/" + name + "/resume", Command: command +
				"resume"},
		}
	}
	return []action{
		{Verb: "drain", Name: "Drain", To: "/node/" + name + "/drain", Command: command +
			"drain reason='…'", Reason: true,
			Ask:    "Jobs on it go on; new ones go elsewhere.",
			WhatIf: supposeLink(command + "drain reason=drain")},
	}
}

// maxReason bounds the reason for a drain.
const maxReason = 1000

// changeNode drains or resumes a node.
func (c *Console) changeNode(v *visit) (answer, error) {
	name, verb := v.PathValue("name"), v.PathValue("verb")
	reason := strings.TrimSpace(v.PostFormValue("reason"))
	switch {
	case verb != "drain" && verb != "resume":
		return answer{
			page:  "problem",
			title: "Not found",
			data: problem{Text: "there is no action " +
				verb},
			status: http.StatusNotFound,
		}, nil
	case verb == "drain" && reason == "":
		return answer{}, spec.Refuse(
			spec.CodeBadRequest,
			"say why the node is drained: whoever finds it so will ask",
		)
	case len(reason) > maxReason:
		return answer{}, spec.Refuse(spec.CodeBadRequest, "the reason is too long")
	}
	if _, err := callAPI[*apiv1.UpdateNodeReply](v, tool.MethodUpdateNode, &apiv1.UpdateNodeRequest{Nodes: name, State: verb, Reason: reason}); err != nil {
		return answer{}, err
	}
	return answer{
		to: "/node/" + url.PathEscape(name) + "?" + url.Values{"did": {verb}}.Encode(),
	}, nil
}

// isAdministrator tells a visitor who administers the cluster.
func (v *visit) isAdministrator() bool {
	role := v.console.cfg.Door.Role(v.id)
	return role == authz.Administrator || role == authz.Root
}

// isOperator tells a visitor who takes care of the whole cluster.
func (v *visit) isOperator() bool {
	role := v.console.cfg.Door.Role(v.id)
	return role == authz.Operator || role == authz.Administrator || role == authz.Root
}
