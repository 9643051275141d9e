package embedded

import "syscall"

// childAttributes makes the child die with the thread that starts it, by SIGKILL: what it acknowledged is safe, and a
// slower end would make its successor wait. In a process group of its own it does not see the terminal's Ctrl-C, which
// is its parent's to handle.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
