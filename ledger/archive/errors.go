package archive

import (
	"errors"
	"fmt"

	"github.com/musterhpc/muster/internal/durable"
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

const (
	cureSegment  = "copy the file from another controller or from a backup; jobs are not affected, the history of this span is"
	cureChain    = "compare with another controller and with a backup before anything is repaired: keep the files as they are"
	cureSnapshot = "delete the file; an earlier snapshot and the segments hold the same state"
)

func corruptError(file string, off int64, cure, format string, args ...any) error {
	return &durable.CorruptError{
		Store:  ErrCorrupt,
		File:   file,
		Offset: off,
		What:   fmt.Sprintf(format, args...),
		Cure:   cure,
	}
}

func newerError(file string, found uint32) error {
	return &durable.VersionError{
		Store: ErrNewerVersion,
		Where: file,
		Found: int(found),
		Known: formatVersion,
		Cure:  "install the newer release",
	}
}
