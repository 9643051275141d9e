package daemon

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// This file asks the site's job_submit.lua about jobs. It judges a request after the request was
// found to be one that its sender may make, and before it becomes a command: decisions stay a
// function of commands, and a replay asks no script. What a script sets is the site's word, so
// it may set in a submission what a user may not, as a priority; what is impossible is refused
// as from anybody. An update keeps the rights of who asks for it.

// JobScripts runs the script of the configuration.
type JobScripts interface {
	// Submit shows a job to the script, which may change its Spec, Script and Env.
	Submit(ctx context.Context, config *spec.Config, job *ScriptedJob) (ScriptVerdict, error)
	// Modify shows an update of a job, whose Changes the script may change.
	Modify(
		ctx context.Context,
		config *spec.Config,
		job *ScriptedJob,
		change *ScriptedChange,
	) (ScriptVerdict, error)
}

// ScriptedJob is a job for a script.
type ScriptedJob struct {
	Spec           *apiv1.JobSpec
	Script, Env    []byte
	UID, GID       uint32
	User, Group    string
	DefaultAccount string
	DefaultQOS     string
	Component      int // of a heterogeneous job; -1 = of none
	Cron           bool
}

// ScriptedChange is an update of a job for a script.
type ScriptedChange struct {
	By      uint32
	JobID   uint32
	State   string
	Nodes   string
	Changes map[string]string // by scontrol's key
}

// ScriptVerdict is what a script says.
type ScriptVerdict struct {
	Refused bool
	Code    spec.Code // of a refusal, where the script gave one that is known
	User    string    // lines for the user
	Changed []string  // what it changed, NAME: OLD -> NEW
}

// prepared is a submission that is ready to become a command.
type prepared struct {
	spec    *spec.JobSpec
	blobs   []content
	said    string   // by the site's script, for the user
	changed []string // by it
}

// judgeSubmission shows a component of a request to the site's script. The request is not
// changed; what the script made of it is returned.
func (s *submitCalls) judgeSubmission(
	ctx context.Context,
	caller Caller,
	asked *spec.JobSpec,
	req *apiv1.SubmitRequest,
	component int,
	cron bool,
) (*apiv1.SubmitRequest, ScriptVerdict, error) {
	cluster := s.C.View().State
	if cluster.Config.JobSubmit == nil || s.C.deps.JobScripts == nil {
		return req, ScriptVerdict{}, nil
	}
	script, err := s.contentOf(caller, req.GetScript())
	if err != nil {
		return nil, ScriptVerdict{}, err
	}
	env, err := s.contentOf(caller, req.GetEnvironment())
	if err != nil {
		return nil, ScriptVerdict{}, err
	}
	job := scriptedJob(cluster, asked)
	job.Spec, _ = proto.Clone(req.GetSpec()).(*apiv1.JobSpec)
	job.Script, job.Env = script, env
	job.Component, job.Cron = component, cron
	verdict, err := s.C.deps.JobScripts.Submit(ctx, cluster.Config, job)
	if err := s.scriptError(ctx, caller, asked, verdict, err); err != nil {
		return nil, verdict, err
	}
	if len(verdict.Changed) == 0 {
		return req, verdict, nil
	}
	changed := &apiv1.SubmitRequest{
		Spec:        job.Spec,
		Script:      req.GetScript(),
		Environment: req.GetEnvironment(),
	}
	if !slices.Equal(job.Script, script) {
		changed.Script = &apiv1.Blob{Data: job.Script}
	}
	if !slices.Equal(job.Env, env) {
		changed.Environment = &apiv1.Blob{Data: job.Env}
	}
	return changed, verdict, nil
}

// contentOf is a blob whole, also where its sender named it by its hash.
func (s *submitCalls) contentOf(caller Caller, blob *apiv1.Blob) ([]byte, error) {
	if len(blob.GetData()) > 0 || len(blob.GetSha256()) == 0 {
		return blob.GetData(), nil
	}
	hash, err := s.content(caller, blob)
	if err != nil {
		return nil, err
	}
	return s.C.deps.Blobs.Get(hash)
}

// scriptedJob is what a script sees of who a job belongs to.
func scriptedJob(cluster *state.State, asked *spec.JobSpec) *ScriptedJob {
	job := &ScriptedJob{
		UID:       asked.UID,
		GID:       asked.GID,
		User:      asked.User,
		Group:     asked.Group,
		Component: -1,
	}
	if user := cluster.Policy.FindUser(asked.User); user != nil {
		job.DefaultAccount = user.DefaultAccount
	}
	account := asked.Account
	if account == "" {
		account = job.DefaultAccount
	}
	if assoc := cluster.Policy.FindAssoc(account, asked.User, ""); assoc != nil {
		job.DefaultQOS = assoc.DefaultQOS
	}
	return job
}

// setByScript gives a job what only the site may write, and makes a hold of the script one
// that its user cannot end.
func setByScript(job *spec.JobSpec, asked *spec.JobSpec, changed *apiv1.JobSpec) {
	job.AdminComment = changed.GetAdminComment()
	job.SystemComment = changed.GetSystemComment()
	if job.Queue.Hold != spec.NotHeld && asked.Queue.Hold == spec.NotHeld {
		job.Queue.Hold = spec.HeldByAdmin
	}
}

// scriptError is the refusal of a script, or of a job of which a script that failed could not
// say anything: a job passes only when the site's rules have seen it.
func (s *submitCalls) scriptError(
	ctx context.Context,
	caller Caller,
	job *spec.JobSpec,
	verdict ScriptVerdict,
	err error,
) error {
	switch {
	case err != nil:
		s.C.deps.Logger.Error("job_submit.lua failed, and the request was refused",
			"user", caller.User, "job_name", job.Name, "error", err)
		refusal := &spec.Error{
			Kind:   spec.CodeJobScript,
			Prefix: verdict.User,
			Detail: "the site's job_submit.lua failed; tell the administrator: " + err.Error(),
		}
		s.tellRefused(ctx, refusal)
		return refusal
	case !verdict.Refused:
		return nil
	}
	code := verdict.Code
	if code == 0 {
		code = spec.CodeJobScript
	}
	s.C.deps.Logger.Info("job_submit.lua refused a request",
		"user", caller.User, "job_name", job.Name, "code", int(code), "message", verdict.User)
	refusal := spec.Refuse(code, verdict.User)
	s.tellRefused(ctx, refusal)
	return refusal
}

// tellRefused has the audit trail record a refusal of the site's script. A supposed
// request was not made, and leaves no record.
func (s *submitCalls) tellRefused(ctx context.Context, refusal *spec.Error) {
	if s.C.deps.Refused != nil && s.supposed == nil {
		s.C.deps.Refused(ctx, "job_submit.lua", refusal)
	}
}

// allocated are the nodes of an allocation, folded.
func allocated(alloc *spec.Allocation) string {
	names := make([]string, len(alloc.Nodes))
	for i := range alloc.Nodes {
		names[i] = alloc.Nodes[i].Name
	}
	return hostlist.Fold(names)
}

// joinSaid puts lines of the controller and of the script together.
func joinSaid(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "\n")
}

// judgeUpdate shows an update to the site's script and gives it what the script made of it.
func (s *submitCalls) judgeUpdate(
	ctx context.Context,
	caller Caller,
	cluster *state.State,
	job *state.Job,
	update *scheduler.UpdateJob,
) (said string, err error) {
	if cluster.Config.JobSubmit == nil || s.C.deps.JobScripts == nil {
		return "", nil
	}
	change := &ScriptedChange{
		By:      caller.UID,
		JobID:   uint32(job.ID),
		State:   job.State.String(),
		Changes: map[string]string{},
	}
	for _, kv := range update.Changes {
		change.Changes[scheduler.JobKey(kv.Key)] = kv.Value
	}
	if job.Alloc != nil {
		change.Nodes = allocated(job.Alloc)
	}
	scripted := scriptedJob(cluster, job.Spec)
	scripted.Spec = wire.JobSpec(job.Spec)
	verdict, err := s.C.deps.JobScripts.Modify(ctx, cluster.Config, scripted, change)
	if err := s.scriptError(ctx, caller, job.Spec, verdict, err); err != nil {
		return "", err
	}
	if len(verdict.Changed) > 0 {
		update.Changes = update.Changes[:0]
		for key, value := range change.Changes {
			update.Changes = append(update.Changes, spec.KeyValue{Key: strings.ToLower(key), Value: value})
		}
		slices.SortFunc(update.Changes, func(a, b spec.KeyValue) int { return strings.Compare(a.Key, b.Key) })
		update.ByScript = verdict.Changed
	}
	return verdict.User, nil
}
