package program

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// IsEnding tells that a process will not run again and still holds its files.
func IsEnding(pid int) bool {
	_, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	isGone := errors.Is(err, fs.ErrNotExist)
	return (isGone || WasKilled(pid)) && HoldsFiles(pid)
}

// HoldsFiles tells that a process has threads left, which hold its files.
func HoldsFiles(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	if tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)); err == nil && len(tasks) > 1 {
		return true // the first thread is a zombie before the others are; they share its files
	}
	return !strings.Contains(string(stat), ") Z ") && !strings.Contains(string(stat), ") X ")
}

// WasKilled tells that a process has been sent SIGKILL and has not noticed yet.
func WasKilled(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		name, mask, _ := strings.Cut(line, ":")
		if name != "SigPnd" && name != "ShdPnd" {
			continue
		}
		if bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64); err == nil &&
			bits&(1<<(syscall.SIGKILL-1)) != 0 {
			return true
		}
	}
	return false
}
