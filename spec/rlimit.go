package spec

import (
	"fmt"
	"slices"
	"strings"
)

// ResourceLimit is a resource limit of processes.
type ResourceLimit struct {
	Name   string // Slurm's
	Number int32  // Linux's, for getrlimit
}

// ResourceLimits are those that travel from the shell of a submission to the
// processes of a job.
func ResourceLimits() []ResourceLimit {
	return []ResourceLimit{
		{"AS", 9},
		{"CORE", 4},
		{"CPU", 0},
		{"DATA", 2},
		{"FSIZE", 1},
		{"MEMLOCK", 8},
		{"NOFILE", 7},
		{"NPROC", 6},
		{"RSS", 5},
		{"STACK", 3},
	}
}

// LimitNames are the names of ResourceLimits.
func LimitNames() []string {
	var out []string
	for _, limit := range ResourceLimits() {
		out = append(out, limit.Name)
	}
	return out
}

// LimitNameError is a word that names no resource limit.
type LimitNameError struct{ Name string }

func (e *LimitNameError) Error() string {
	return fmt.Sprintf("%q names no resource limit: expected ALL, NONE or a list of %s",
		e.Name, strings.Join(LimitNames(), ", "))
}

// ParseLimitNames reads a list of resource limits as --propagate and
// PropagateResourceLimits have it: ALL, NONE, or names, each with or without
// RLIMIT_ before it. The error is a *LimitNameError.
func ParseLimitNames(text string) ([]string, error) {
	switch strings.ToUpper(text) {
	case "ALL":
		return LimitNames(), nil
	case "NONE":
		return nil, nil
	}
	var out []string
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		name := strings.TrimPrefix(strings.ToUpper(word), "RLIMIT_")
		if !slices.Contains(LimitNames(), name) {
			return nil, &LimitNameError{Name: word}
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out, nil
}
