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

// grantPatience is how long a login waits that finds no job of its user: the order of one
// that was granted just now may be on its way to the node. A job whose extern step begins
// is waited for as long as a login may wait in all.
const (
	grantPatience = 3 * time.Second
	grantPause    = 50 * time.Millisecond
)

// errBegins means that the extern step of a job of the user has no process yet.
var errBegins = errors.New("your job on this node is only beginning")

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
	giveUp := time.Now().Add(grantPatience)
	for {
		namespace, err := adoptNow(ctx, folders, account.UID, pid)
		waits := errors.Is(err, errBegins) || errors.Is(err, ErrNoJob) && time.Now().Before(giveUp)
		if !waits {
			return namespace, err
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(grantPause):
		}
	}
}

// adoptNow is AdoptLogin with what is on the node now.
func adoptNow(ctx context.Context, folders []string, uid uint32, pid int) (string, error) {
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
	begins := false
	for _, socket := range sockets {
		client, err := runtime.Dial(ctx, socket)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		defer client.Close()
		list, starting, err := externRuns(ctx, client, uid)
		failed = errors.Join(failed, err)
		begins = begins || starting
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
	case begins:
		return "", errBegins
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

// externRuns asks a shepherd for a user's extern steps; starting tells that one has no
// process yet.
func externRuns(ctx context.Context, client *runtime.Client, uid uint32) (out []externRun, starting bool, err error) {
	runs, err := client.List(ctx)
	if err != nil {
		return nil, false, err
	}
	for i := range runs {
		run := &runs[i]
		if run.Key.Step != plan.StepExtern || run.UID != uid {
			continue
		}
		starting = starting || run.State == plan.Starting
		if run.State == plan.Running {
			out = append(out, externRun{run.Key, run.Start, client, reachable(run.Namespace, client)})
		}
	}
	return out, starting, nil
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
