package machine

import (
	"log/slog"
	"os"
	"os/exec"
	"syscall"
)

// NewRebooter is what reboots this node by RebootProgram; nil where none is given.
func NewRebooter(program, output string, logger *slog.Logger) func() {
	if program == "" {
		return nil
	}
	return func() { startReboot(program, output, logger) }
}

// startReboot starts RebootProgram in a session of its own: it may well end
// this agent before it ends itself. What it prints is in a file.
func startReboot(program, output string, logger *slog.Logger) {
	out, err := os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		logger.Error("RebootProgram was not started", "error", err)
		return
	}
	defer out.Close()
	cmd := exec.Command(program)
	cmd.Dir = "/"
	cmd.Stdout = out
	cmd.Stderr = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		logger.Error("RebootProgram was not started", "error", err)
		return
	}
	go func() {
		if err := cmd.Wait(); err != nil {
			logger.Error("RebootProgram failed", "program", program, "error", err, "output", output)
		}
	}()
}
