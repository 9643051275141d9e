package plan

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// Steps that every job may have besides its numbered ones.
const (
	StepBatch       = int32(spec.StepBatch)
	StepExtern      = int32(spec.StepExtern)
	StepInteractive = int32(spec.StepInteractive)
)

// RunKey names one attempt of one step of one job. It is never used twice.
type RunKey struct {
	_       struct{} `cbor:",toarray"`
	Job     uint64
	Attempt uint32
	Step    int32
}

// Key makes a RunKey.
func Key(job uint64, attempt uint32, step int32) RunKey {
	return RunKey{Job: job, Attempt: attempt, Step: step}
}

// String gives uid.attempt.step, the form used in cgroup names, logs and the
// MUSTER_RUN variable.
func (k RunKey) String() string {
	b := make([]byte, 0, 40)
	b = strconv.AppendUint(b, k.Job, 10)
	b = append(b, '.')
	b = strconv.AppendUint(b, uint64(k.Attempt), 10)
	b = append(b, '.')
	return string(append(b, spec.StepID(k.Step).String()...))
}

// ParseRunKey reads the form that String writes.
func ParseRunKey(s string) (RunKey, error) {
	part := strings.Split(s, ".")
	if len(part) != 3 {
		return RunKey{}, fmt.Errorf("run key %q: want uid.attempt.step", s)
	}
	job, err := strconv.ParseUint(part[0], 10, 64)
	if err != nil {
		return RunKey{}, fmt.Errorf("run key %q: bad job uid", s)
	}
	attempt, err := strconv.ParseUint(part[1], 10, 32)
	if err != nil {
		return RunKey{}, fmt.Errorf("run key %q: bad attempt", s)
	}
	for _, named := range []int32{StepBatch, StepExtern, StepInteractive} {
		if part[2] == spec.StepID(named).String() {
			return Key(job, uint32(attempt), named), nil
		}
	}
	step, err := strconv.ParseInt(part[2], 10, 32)
	if err != nil {
		return RunKey{}, fmt.Errorf("run key %q: bad step", s)
	}
	return Key(job, uint32(attempt), int32(step)), nil
}

// SameAttempt tells that two runs are steps of one attempt of one job.
func (k RunKey) SameAttempt(o RunKey) bool { return k.Job == o.Job && k.Attempt == o.Attempt }

// Compare orders keys by job, attempt and step.
func (k RunKey) Compare(o RunKey) int {
	return cmp.Or(cmp.Compare(k.Job, o.Job), cmp.Compare(k.Attempt, o.Attempt), cmp.Compare(k.Step, o.Step))
}
