package log

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/musterhpc/muster/internal/durable"
)

// Sentinels for errors.Is. Most arrive wrapped with the detail a person needs.
var (
	// ErrNoVoter tells that a member cannot lead because it has no vote.
	ErrNoVoter      = errors.New("is not a controller that votes")
	ErrCorrupt      = errors.New("the ledger's log is damaged")
	ErrDiskFull     = errors.New("the ledger's disk is full")
	ErrNotLeader    = errors.New("this controller does not lead the ledger")
	ErrClosed       = errors.New("the ledger's log is closed")
	ErrNewerVersion = errors.New("the ledger was written by a newer release")
	ErrBusy         = errors.New("too many batches wait for the ledger's disk")
	ErrTooLarge     = errors.New("batch is larger than the ledger accepts")
	ErrLocked       = errors.New("another process has the ledger open")
	ErrStopped      = errors.New("the ledger's log has stopped")

	errStale = errors.New("frame belongs to a run of the writer that has failed")
)

// newerError says which file or frame a newer release wrote. errors.Is(err, ErrNewerVersion) holds.
func newerError(where string, found, known int) error {
	return &durable.VersionError{
		Store: ErrNewerVersion,
		Where: where,
		Found: found,
		Known: known,
		Cure:  "install the newer release, or restore a backup made before the upgrade",
	}
}

// NotLeaderError carries where to go instead. errors.Is(err, ErrNotLeader) holds.
type NotLeaderError struct {
	Leader Leadership
	// Unknown is true when a batch was under way as leadership ended: it may still be applied.
	Unknown bool
}

func (e *NotLeaderError) Error() string {
	message := ErrNotLeader.Error()
	if e.Leader.Known && !e.Leader.Self {
		message += fmt.Sprintf("; %s at %s does", e.Leader.ID, e.Leader.Address)
	}
	if e.Unknown {
		message += "; the batch under way may still take effect"
	}
	return message
}

// Is makes errors.Is(err, ErrNotLeader) true.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }

const cureSegment = "run `musterd ledger rebuild`, which makes a new log from the archive and from what can be read of this one, or restore a backup"

func corruptError(file string, offset int64, cure, format string, args ...any) error {
	return &durable.CorruptError{
		Store:  ErrCorrupt,
		File:   file,
		Offset: offset,
		What:   fmt.Sprintf(format, args...),
		Cure:   cure,
	}
}

// isFull reports whether err means that the filesystem or the quota has no room.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		errors.Is(err, ErrDiskFull)
}

// diskFull wraps a no-room error so that errors.Is(err, ErrDiskFull) holds.
func diskFull(err error) error {
	if err == nil || errors.Is(err, ErrDiskFull) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDiskFull, err)
}
