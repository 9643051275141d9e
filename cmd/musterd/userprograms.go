package main

import (
	"context"
	"os"
	"syscall"

	"github.com/musterhpc/muster/internal/program"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// userPrograms runs programs on this host as the users whose they are.
type userPrograms struct{}

// May implements daemon.UserPrograms: only root can become somebody else.
func (userPrograms) May(uid uint32) bool {
	own := os.Geteuid()
	return own == 0 || uint32(own) == uid
}

// RunAs implements daemon.UserPrograms.
func (userPrograms) RunAs(
	ctx context.Context,
	who daemon.ProgramOwner,
	file string,
	args ...string,
) error {
	var as *syscall.Credential
	if os.Geteuid() == 0 {
		as = &syscall.Credential{Uid: who.UID, Gid: who.GID, Groups: who.Groups}
	}
	env := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"USER=" + who.User,
		"LOGNAME=" + who.User,
		"SLURM_CLUSTER_NAME=" + who.Cluster,
	}
	return program.Run(ctx, file, env, as, args...)
}
