package daemon

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// scriptsAtOnce is how many jobs may be asked for their scripts in one call.
const scriptsAtOnce = 1000

// Scripts gives the scripts or environments of jobs to their owners and to
// administrators. The store has only their hashes; the content is the
// controller's, for as long as it keeps it.
func (s Service) Scripts(
	ctx context.Context,
	request *apiv1.AcctScriptQuery,
) (*apiv1.AcctScriptReply, error) {
	if len(request.GetJobs()) == 0 {
		return nil, spec.Refuse(
			spec.CodeInvalidJobID,
			"name the jobs whose script or environment is asked for",
		)
	}
	scope, behind, err := s.D.openScope(ctx, request.GetMinSeq())
	if err != nil {
		return nil, s.D.storeAway(err)
	}
	ask, err := s.readQuery(
		ctx,
		&apiv1.AcctQuery{Jobs: request.GetJobs(), AllUsers: true, AllocationsOnly: true},
		scope,
	)
	if err != nil {
		return nil, err
	}
	want := wantedParts([]string{"name", "user", "user_id", "array_uid"})
	a := &answer{ask: ask}
	origin := map[uint64]uint64{}
	err = s.eachRun(ctx, scope, ask, want, func(run acctRun) error {
		if len(a.runs) >= scriptsAtOnce {
			return spec.Refuse(
				spec.CodeBadRequest,
				fmt.Sprintf("more than %d jobs: ask for fewer at once", scriptsAtOnce),
			)
		}
		origin[run.key.UID] = run.key.UID
		if run.array != 0 {
			origin[run.key.UID] = run.array
		}
		return a.run(run)
	})
	if err != nil {
		return nil, s.D.storeAway(err)
	}
	reply := &apiv1.AcctScriptReply{Behind: behind}
	who := s.D.callerOf(ctx)
	for _, run := range a.runs {
		if !who.Admin && (who.User == "" || run.row.GetUser() != who.User) {
			return nil, spec.Refuse(
				spec.CodeAccessDenied,
				fmt.Sprintf(
					"job %d belongs to another user: its script and environment are his",
					run.row.GetJobId(),
				),
			)
		}
		script := &apiv1.AcctScript{Row: run.row}
		script.Data, err = s.content(ctx, scope, origin[run.key.UID], request.GetEnvironment())
		if err != nil {
			return nil, s.D.storeAway(err)
		}
		script.Missing = script.Data == nil
		reply.Scripts = append(reply.Scripts, script)
	}
	return reply, nil
}

// content is the script, or the environment, of a submission; nil if nobody
// has it any more.
func (s Service) content(
	ctx context.Context,
	scope query.Scope,
	uid uint64,
	environment bool,
) ([]byte, error) {
	var script, env string
	var owner uint32
	err := s.D.cfg.Store.Query(
		ctx,
		query.Submission(scope, uid),
		func(scan func(...any) error) error { return scan(&owner, &script, &env) },
	)
	if err != nil {
		return nil, err
	}
	if environment {
		script = env
	}
	var hash spec.Hash
	if b, err := hex.DecodeString(script); err != nil || len(b) != len(hash) {
		return nil, nil
	} else {
		copy(hash[:], b)
	}
	if hash.IsZero() || s.D.cfg.Content == nil {
		return nil, nil
	}
	data, err := s.D.cfg.Content(ctx, hash)
	if err != nil {
		return nil, nil // swept: the job is long over
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}
