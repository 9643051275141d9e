package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/musterhpc/muster/internal/nss"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime"
)

// ErrNoJob means that a user has no job on this node into whose extern step a login
// could be put.
var ErrNoJob = errors.New(
	"you have no job on this node: a login needs one (and PrologFlags=Contain in slurm.conf)",
)

// AdoptLogin puts the process of a login into the extern step of its user's job on
// this node, of several into that of the one that began last. It is for pam_exec, in
// the account phase; the login's own process is the one that runs pam_exec. Logins of
// root are left alone. folders are the state folders of this machine's agents.
func AdoptLogin(ctx context.Context, folders []string, user string, pid int) error {
	databases := nss.System(accountPatience)
	account, err := databases.ByName(ctx, user)
	if err != nil {
		return fmt.Errorf("login of %q: %w", user, err)
	}
	if account.UID == 0 {
		return nil
	}
	var found []externRun
	var failed error
	answering := false
	for _, folder := range folders {
		list, some, err := externRuns(ctx, filepath.Join(folder, shepherdFolder), account.UID)
		failed = errors.Join(failed, err)
		answering = answering || some
		found = append(found, list...)
	}
	defer func() {
		for i := range found {
			found[i].client.Close()
		}
	}()
	slices.SortFunc(found, func(a, b externRun) int { return cmp.Compare(b.run.Start, a.run.Start) })
	for i := range found {
		err := found[i].client.Adopt(ctx, found[i].run.Key, pid)
		if err == nil {
			return nil
		}
		failed = errors.Join(failed, err) // it may have ended just now
	}
	if !answering && failed == nil {
		return fmt.Errorf(
			"no muster-shepherd runs below %q: name the agent's state folder with --state-dir",
			folders,
		)
	}
	if failed != nil {
		return fmt.Errorf("%w (%w)", ErrNoJob, failed)
	}
	return ErrNoJob
}

// shepherdFolder is where the shepherds of a node are, in the state folder of its agent.
const shepherdFolder = "shepherd"

// externRun is an extern step and the shepherd that has it.
type externRun struct {
	run    plan.Observed
	client *runtime.Client
}

// externRuns asks the shepherds of all releases in a folder for a user's extern steps.
// Each that is returned has a connection of its own. answers tells that a shepherd
// answered at all.
func externRuns(
	ctx context.Context,
	dir string,
	uid uint32,
) (out []externRun, answers bool, failed error) {
	sockets, err := filepath.Glob(filepath.Join(dir, "*", "sock"))
	if err != nil {
		return nil, false, err
	}
	for _, socket := range sockets {
		client, err := runtime.Dial(ctx, socket)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		runs, err := client.List(ctx)
		client.Close()
		answers = answers || err == nil
		failed = errors.Join(failed, err)
		for i := range runs {
			if runs[i].Key.Step != plan.StepExtern || runs[i].UID != uid || runs[i].State != plan.Running {
				continue
			}
			own, err := runtime.Dial(ctx, socket)
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			out = append(out, externRun{runs[i], own})
		}
	}
	return out, answers, failed
}

// AdoptCaller is AdoptLogin with what pam_exec tells its program: the user in its
// environment, and the login's process as its parent.
func AdoptCaller(ctx context.Context, folders []string) error {
	user := os.Getenv("PAM_USER")
	if user == "" {
		return errors.New("PAM_USER is not set: this is for pam_exec, in the account phase")
	}
	if kind := os.Getenv("PAM_TYPE"); kind != "account" {
		return fmt.Errorf("PAM_TYPE is %s: use pam_exec in the account phase", strconv.Quote(kind))
	}
	return AdoptLogin(ctx, folders, user, os.Getppid())
}
