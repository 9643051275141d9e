package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/musterhpc/muster/internal/nss"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/spec"
)

// ErrNoJob means that a user has no job on this node into whose extern step a login
// could be put.
var ErrNoJob = errors.New(
	"you have no job on this node: a login needs one (and PrologFlags=Contain in slurm.conf)",
)

// loginPatience is how long a login may wait in all. sshd gives up after two minutes.
const loginPatience = time.Minute

// AdoptLogin puts the process of a login into the extern step of its user's job on
// this node, of several into that of the one that began last. It is for pam_exec, in
// the account phase; the login's own process is the one that runs pam_exec. Logins of
// root are left alone. folders are the state folders of this machine's agents. The
// result is the file of the mount namespace that has the job's private folders, empty
// where it has none; the login can enter it.
func AdoptLogin(ctx context.Context, folders []string, user string, pid int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, loginPatience)
	defer cancel()
	databases := nss.System(accountPatience)
	account, err := databases.ByName(ctx, user)
	if err != nil {
		return "", fmt.Errorf("login of %q: %w", user, err)
	}
	if account.UID == 0 {
		return "", nil
	}
	sockets, err := shepherdSockets(folders)
	if err != nil {
		return "", err
	}
	if len(sockets) == 0 {
		return "", fmt.Errorf(
			"no muster-shepherd runs below %q: name the agent's state folder with --state-dir",
			folders,
		)
	}
	var found []externRun
	var failed error
	for _, socket := range sockets {
		client, err := runtime.Dial(ctx, socket)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		defer client.Close()
		list, err := externRuns(ctx, client, account.UID)
		failed = errors.Join(failed, err)
		found = append(found, list...)
	}
	slices.SortFunc(found, func(a, b externRun) int { return cmp.Compare(b.start, a.start) })
	for _, run := range found {
		err := run.client.Adopt(ctx, run.key, pid)
		if err == nil {
			return run.namespace, nil
		}
		failed = errors.Join(failed, err) // it may have ended just now
	}
	switch {
	case len(found) > 0:
		return "", fmt.Errorf("the login cannot be put into your job on this node: %w", failed)
	case failed != nil:
		return "", fmt.Errorf("%w (%w)", ErrNoJob, failed)
	}
	return "", ErrNoJob
}

// shepherdSockets are those of the shepherds of all releases, below the state folders of agents.
func shepherdSockets(folders []string) ([]string, error) {
	var out []string
	for _, folder := range folders {
		list, err := filepath.Glob(runtime.Socket(settings.ShepherdDir(folder), "*"))
		if err != nil {
			return nil, fmt.Errorf("--state-dir %q: %w", folder, err)
		}
		out = append(out, list...)
	}
	return out, nil
}

// externRun is an extern step and the shepherd that has it.
type externRun struct {
	key    plan.RunKey
	start  spec.Instant
	client *runtime.Client
	// namespace is the file of its mount namespace; empty where it has no private folders.
	namespace string
}

// externRuns asks a shepherd for a user's extern steps.
func externRuns(ctx context.Context, client *runtime.Client, uid uint32) ([]externRun, error) {
	runs, err := client.List(ctx)
	if err != nil {
		return nil, err
	}
	var out []externRun
	for i := range runs {
		run := &runs[i]
		if run.Key.Step == plan.StepExtern && run.UID == uid && run.State == plan.Running {
			out = append(out, externRun{run.Key, run.Start, client, reachable(run.Namespace, client)})
		}
	}
	return out, nil
}

// reachable names a file of the shepherd's mount namespace so that it is found from
// another: files of mount namespaces are not copied where that of a service is its own.
func reachable(namespace string, client *runtime.Client) string {
	if namespace == "" {
		return ""
	}
	return fmt.Sprintf("/proc/%d/root%s", client.Hello().PID, namespace)
}

// AdoptCaller is AdoptLogin with what pam_exec tells its program: the user in its
// environment, and the login's process as its parent.
func AdoptCaller(ctx context.Context, folders []string) (namespace string, err error) {
	user := os.Getenv("PAM_USER")
	if user == "" {
		return "", errors.New("PAM_USER is not set: this is for pam_exec, in the account phase")
	}
	if kind := os.Getenv("PAM_TYPE"); kind != "account" {
		return "", fmt.Errorf("PAM_TYPE is %q: use pam_exec in the account phase", kind)
	}
	return AdoptLogin(ctx, folders, user, os.Getppid())
}
