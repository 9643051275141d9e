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
//
// Epoch is the random number that the controller wrote into the ledger when it
// began to lead, before it started the attempt. Job numbers alone do not name a
// run: a ledger that was restored from a backup hands the numbers of its lost
// tail out again. Epoch 0 is a run that an older release started.
type RunKey struct {
	Job     uint64
	Attempt uint32
	Step    int32
	Epoch   uint64
}

// Key makes the key of a run of an older release, and of one whose epoch is
// filled in later.
func Key(job uint64, attempt uint32, step int32) RunKey {
	return RunKey{Job: job, Attempt: attempt, Step: step}
}

// StepOf gives the key of another step of the same attempt.
func (k RunKey) StepOf(step int32) RunKey {
	k.Step = step
	return k
}

// String gives uid.attempt.step, and .epoch in hexadecimal digits behind it
// where the key has one: the form used in cgroup names, logs and the MUSTER_RUN
// variable.
func (k RunKey) String() string {
	buffer := make([]byte, 0, 56)
	buffer = strconv.AppendUint(buffer, k.Job, 10)
	buffer = append(buffer, '.')
	buffer = strconv.AppendUint(buffer, uint64(k.Attempt), 10)
	buffer = append(buffer, '.')
	buffer = append(buffer, spec.StepID(k.Step).String()...)
	if k.Epoch != 0 {
		buffer = append(buffer, '.')
		buffer = strconv.AppendUint(buffer, k.Epoch, 16)
	}
	return string(buffer)
}

// Fields are what a line of a log that is about a run has: its key, the number of its job
// that people see, its attempt and its step, and whose it is. What is not known is left
// out.
func (k RunKey) Fields(job uint64, user string) []any {
	var out []any
	if job != 0 {
		out = append(out, "job", job)
	}
	out = append(out, "attempt", k.Attempt, "step", spec.StepID(k.Step).String())
	if user != "" {
		out = append(out, "user", user)
	}
	return append(out, "run", k.String())
}

// ParseRunKey reads the form that String writes.
func ParseRunKey(text string) (RunKey, error) {
	part := strings.Split(text, ".")
	if len(part) != keyParts && len(part) != keyPartsEpoch {
		return RunKey{}, fmt.Errorf(
			"run key %q: expected uid.attempt.step or uid.attempt.step.epoch",
			text,
		)
	}
	job, err := strconv.ParseUint(part[0], 10, 64)
	if err != nil {
		return RunKey{}, fmt.Errorf("run key %q: bad job uid", text)
	}
	attempt, err := strconv.ParseUint(part[1], 10, 32)
	if err != nil {
		return RunKey{}, fmt.Errorf("run key %q: bad attempt", text)
	}
	key := RunKey{Job: job, Attempt: uint32(attempt)}
	if len(part) == keyPartsEpoch {
		key.Epoch, err = strconv.ParseUint(part[3], 16, 64)
		if err != nil || key.Epoch == 0 {
			return RunKey{}, fmt.Errorf("run key %q: bad epoch", text)
		}
	}
	for _, named := range []int32{StepBatch, StepExtern, StepInteractive} {
		if part[2] == spec.StepID(named).String() {
			return key.StepOf(named), nil
		}
	}
	step, err := strconv.ParseInt(part[2], 10, 32)
	if err != nil {
		return RunKey{}, fmt.Errorf("run key %q: bad step", text)
	}
	return key.StepOf(int32(step)), nil
}

// SameAttempt tells that two runs are steps of one attempt of one job.
func (k RunKey) SameAttempt(o RunKey) bool { return k.StepOf(0) == o.StepOf(0) }

// Compare orders keys by job, attempt, step and epoch.
func (k RunKey) Compare(o RunKey) int {
	return cmp.Or(
		cmp.Compare(k.Job, o.Job),
		cmp.Compare(k.Attempt, o.Attempt),
		cmp.Compare(k.Step, o.Step),
		cmp.Compare(k.Epoch, o.Epoch),
	)
}

// ConflictError tells of two launches under one key: what is known of one must
// not be said of the other.
type ConflictError struct {
	Key           RunKey
	Here, Ordered spec.Hash
}

// Error names both launches.
func (e *ConflictError) Error() string {
	return fmt.Sprintf(
		"run %s: another launch has this key: here is %s, ordered is %s",
		e.Key,
		e.Here,
		e.Ordered,
	)
}
