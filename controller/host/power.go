// Package host is what the controller does on its own host: it runs the site's programs (power and
// fence programs, PrologSlurmctld, MailProg) as SlurmUser and those of users as their users,
// looks users and groups up, names callers as the daemon knows them, and gives the heap room.
package host

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/musterhpc/muster/internal/program"
)

// PowerPrograms start the site's programs that power nodes down and up, each in a
// session of its own, so that they outlive this process. What they print is in
// power.log of the run folder.
type PowerPrograms struct {
	Dir, User string // SlurmUser; empty or one's own: as this process
	Log       *slog.Logger
}

// Start implements daemon.Programs.
func (p *PowerPrograms) Start(file, nodes string, resume []byte) {
	if err := p.startProgram(file, nodes, resume); err != nil {
		p.Log.Error(
			"a program for the power of nodes was not started",
			"program",
			file,
			"nodes",
			nodes,
			"error",
			err,
		)
	}
}

func (p *PowerPrograms) startProgram(file, nodes string, resume []byte) error {
	out, err := os.OpenFile(
		filepath.Join(p.Dir, "power.log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o640,
	)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(file, nodes)
	cmd.Dir = "/"
	cmd.Stdout = out
	cmd.Stderr = out
	credential, err := slurmUser(p.User)
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: credential}
	resumeFile := ""
	if resume != nil {
		resumeFile, err = p.writeResumeFile(resume, credential)
		if err != nil {
			return err
		}
		cmd.Env = append(cmd.Environ(), "SLURM_RESUME_FILE="+resumeFile)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.Log.Info("nodes are powered", "program", file, "nodes", nodes)
	go func() {
		if err := cmd.Wait(); err != nil {
			p.Log.Error(
				"a program for the power of nodes failed",
				"program",
				file,
				"nodes",
				nodes,
				"error",
				err,
				"output",
				out.Name(),
			)
		}
		if resumeFile != "" {
			if err := os.Remove(resumeFile); err != nil {
				p.Log.Warn("SLURM_RESUME_FILE stays", "error", err)
			}
		}
	}()
	return nil
}

// maxFenceTime bounds the fence program. Power distribution units answer in
// seconds; a program that hangs must not keep jobs waiting for ever.
const maxFenceTime = 2 * time.Minute

// Fence implements daemon.Programs.
func (p *PowerPrograms) Fence(ctx context.Context, file, node, reason string) error {
	credential, err := slurmUser(p.User)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, maxFenceTime)
	defer cancel()
	args := []string{node}
	if reason != "" {
		args = append(args, reason)
	}
	env := []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"MUSTER_NODE=" + node,
		"MUSTER_REASON=" + reason,
	}
	err = program.Run(within, file, env, credential, args...)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("it did not end within %s and was killed: %w", maxFenceTime, err)
	}
	return err
}

// writeResumeFile writes SLURM_RESUME_FILE.
func (p *PowerPrograms) writeResumeFile(
	resume []byte, credential *syscall.Credential,
) (string, error) {
	file, err := os.CreateTemp(p.Dir, "resume-*.json")
	if err != nil {
		return "", err
	}
	defer file.Close()
	if _, err := file.Write(resume); err != nil {
		return "", err
	}
	if credential == nil {
		return file.Name(), nil
	}
	return file.Name(), file.Chown(int(credential.Uid), int(credential.Gid))
}
