// Package spawn starts one process: into its control group, with its
// credentials, limits, CPU set and files, in a single vfork and exec.
//
// The standard library's fork cannot set resource limits, niceness or CPU
// affinity in the child, and a helper program between fork and exec would
// cost more than a short job. So this package forks by itself, with the three
// hooks that the runtime keeps stable for such use (syscall.runtime_BeforeFork
// and its two companions) and one assembly stub for each architecture.
//
// Between clone and exec the child shares the parent's memory, runs on the
// parent's stack and may not allocate, grow the stack or take a lock. Nothing
// in there may block for long, because the calling thread, and with it a
// processor of the Go scheduler, waits for the exec: whoever calls opens the
// files and enters the work directory before (see ThreadAs).
package spawn
