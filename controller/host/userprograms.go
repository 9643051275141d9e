package host

import (
	"context"
	"os"
	"syscall"

	"github.com/musterhpc/muster/internal/program"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// UserPrograms runs programs on this host as the users whose they are.
type UserPrograms struct{}

// May implements daemon.UserPrograms: only root can become somebody else.
func (UserPrograms) May(uid uint32) bool {
	own := os.Geteuid()
	return own == 0 || uint32(own) == uid
}

// RunAs implements daemon.UserPrograms.
func (UserPrograms) RunAs(
	ctx context.Context,
	who daemon.ProgramOwner,
	file string,
	args ...string,
) error {
	var credential *syscall.Credential
	if os.Geteuid() == 0 {
		credential = &syscall.Credential{Uid: who.UID, Gid: who.GID, Groups: who.Groups}
	}
	env := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"USER=" + who.User,
		"LOGNAME=" + who.User,
		"SLURM_CLUSTER_NAME=" + who.Cluster,
	}
	return program.Run(ctx, file, env, credential, args...)
}
