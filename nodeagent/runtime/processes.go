//go:build linux

package runtime

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/musterhpc/muster/nodeagent/runtime/proc"
)

// Process is a shepherd that runs.
type Process struct {
	PID     int
	Release string
}

// Shepherds finds the processes that Start has made for a state folder, by the
// folder that they were given: whatever their release and program, and whether
// or not they answer on a socket. One that sees another folder at that path,
// in a container of its own, is none of them.
func Shepherds(dir string) []Process {
	want, err := os.Stat(dir)
	if err != nil {
		return nil
	}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var processes []Process
	for _, entry := range procs {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil {
			continue
		}
		its, release := parseArguments(line)
		if its == "" {
			continue
		}
		have, err := os.Stat(filepath.Join("/proc", entry.Name(), "root", its))
		if err == nil && os.SameFile(want, have) {
			processes = append(processes, Process{PID: pid, Release: release})
		}
	}
	// A child that has not executed its program yet looks like its shepherd.
	all := slices.Clone(processes)
	return slices.DeleteFunc(processes, func(process Process) bool {
		st, err := proc.ReadStat(process.PID)
		return err != nil ||
			slices.ContainsFunc(all, func(q Process) bool { return q.PID == st.PPID })
	})
}

// parseArguments reads folder and release out of the command line of a shepherd as
// launchShepherd writes it; of any other process they are empty.
func parseArguments(line []byte) (dir, release string) {
	var args []string
	for _, a := range bytes.Split(line, []byte{0}) {
		args = append(args, string(a))
	}
	if len(args) < 9 ||
		!slices.Equal(
			[]string{args[1], args[3], args[5], args[7]},
			[]string{"--dir", "--node", "--release", "--ready-fd"},
		) {
		return "", ""
	}
	return args[2], args[6]
}
