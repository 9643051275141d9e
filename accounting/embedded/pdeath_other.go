//go:build !linux

package embedded

import "syscall"

// childAttributes: without a parent-death signal, the end of standard input is what stops the child.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
