package main

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// newRebooter is what reboots this node; nil where RebootProgram is not given.
func newRebooter(s *settings, log *slog.Logger) func() {
	program := s.cluster.Config.RebootProgram
	if program == "" {
		return nil
	}
	return func() { startReboot(program, filepath.Join(s.stateDir, "reboot.log"), log) }
}

// startReboot starts RebootProgram in a session of its own: it may well end
// this agent before it ends itself. What it prints is in a file.
func startReboot(program, output string, log *slog.Logger) {
	out, err := os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		log.Error("RebootProgram was not started", "error", err)
		return
	}
	defer out.Close()
	cmd := exec.Command(program)
	cmd.Dir = "/"
	cmd.Stdout = out
	cmd.Stderr = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		log.Error("RebootProgram was not started", "error", err)
		return
	}
	go func() {
		if err := cmd.Wait(); err != nil {
			log.Error("RebootProgram failed", "program", program, "error", err, "output", output)
		}
	}()
}
