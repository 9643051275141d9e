package archive

import (
	"errors"
	"fmt"
)

// Sentinels for errors.Is.
var (
	ErrCorrupt      = errors.New("the ledger's archive is damaged")
	ErrNewerVersion = errors.New("the ledger's archive was written by a newer release")
	ErrGap          = errors.New("the ledger's archive would have a gap")
	ErrDiffers      = errors.New("the ledger's archive holds another batch at this position")
	ErrDropped      = errors.New(
		"this part of the history has been dropped by the retention setting",
	)
	ErrClosed = errors.New("the ledger's archive is closed")
)

// CorruptError names the damaged place and what to do. errors.Is(err, ErrCorrupt) holds.
type CorruptError struct {
	File   string
	Offset int64
	What   string
	Cure   string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%v: %s at offset %d: %s; %s", ErrCorrupt, e.File, e.Offset, e.What, e.Cure)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

const (
	cureSegment  = "copy the file from another controller or from a backup; jobs are not affected, the history of this span is"
	cureChain    = "compare with another controller and with a backup before anything is repaired: keep the files as they are"
	cureSnapshot = "delete the file; an earlier snapshot and the segments hold the same state"
)

func corruptError(file string, off int64, cure, format string, args ...any) error {
	return &CorruptError{File: file, Offset: off, What: fmt.Sprintf(format, args...), Cure: cure}
}

func newerError(file string, found uint32) error {
	return fmt.Errorf(
		"%w: %s has format %d, this release reads up to %d; install the newer release",
		ErrNewerVersion,
		file,
		found,
		formatVersion,
	)
}
