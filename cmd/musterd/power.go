package main

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// programs start the site's programs that power nodes down and up, each in a
// session of its own, so that they outlive this process. What they print is in
// power.log of the run folder.
type programs struct {
	dir, user string // SlurmUser; empty or one's own: as this process
	log       *slog.Logger
}

// Start implements daemon.Programs.
func (p *programs) Start(program, nodes string, resume []byte) {
	if err := p.start(program, nodes, resume); err != nil {
		p.log.Error("a program for the power of nodes was not started", "program", program, "nodes", nodes, "error", err)
	}
}

func (p *programs) start(program, nodes string, resume []byte) error {
	out, err := os.OpenFile(filepath.Join(p.dir, "power.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(program, nodes)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", out, out
	as, err := slurmUser(p.user)
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: as}
	file := ""
	if resume != nil {
		if file, err = p.keep(resume, as); err != nil {
			return err
		}
		cmd.Env = append(cmd.Environ(), "SLURM_RESUME_FILE="+file)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.log.Info("nodes are powered", "program", program, "nodes", nodes)
	go func() {
		if err := cmd.Wait(); err != nil {
			p.log.Error("a program for the power of nodes failed", "program", program, "nodes", nodes, "error", err, "output", out.Name())
		}
		if file != "" {
			if err := os.Remove(file); err != nil {
				p.log.Warn("SLURM_RESUME_FILE stays", "error", err)
			}
		}
	}()
	return nil
}

// keep writes SLURM_RESUME_FILE.
func (p *programs) keep(resume []byte, as *syscall.Credential) (string, error) {
	f, err := os.CreateTemp(p.dir, "resume-*.json")
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := f.Write(resume); err != nil {
		return "", err
	}
	if as == nil {
		return f.Name(), nil
	}
	return f.Name(), f.Chown(int(as.Uid), int(as.Gid))
}
