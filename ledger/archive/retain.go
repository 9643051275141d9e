package archive

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/musterhpc/muster/internal/durable"
)

// Keep says how many snapshots Thin leaves: the first of each of the last so many hours, days
// and months that have one, in UTC. Zero of Months keeps one of every month for ever.
type Keep struct {
	Hours  int
	Days   int
	Months int
}

// Thin removes snapshots that keep does not ask for. The newest always stays. It returns how
// many were removed.
func (a *Archive) Thin(keep Keep) (int, error) {
	all, err := a.Snapshots()
	if err != nil || len(all) == 0 {
		return 0, err
	}
	removed := 0
	for i, stays := range thinSnapshots(all, keep) {
		if stays {
			continue
		}
		if err := os.Remove(all[i].path); err != nil {
			return removed, err
		}
		removed++
	}
	if removed == 0 {
		return 0, nil
	}
	return removed, durable.SyncDir(a.snapDir())
}

// thinSnapshots decides which of the snapshots, oldest first, stay. The first of a span stays
// rather than the last, so that thinning often gives the same as thinning once.
func thinSnapshots(all []SnapshotInfo, keep Keep) []bool {
	stays := make([]bool, len(all))
	stays[len(all)-1] = true
	for _, rule := range []struct {
		layout string
		spans  int
		ever   bool
	}{
		{"2006-01-02T15", keep.Hours, false},
		{"2006-01-02", keep.Days, false},
		{"2006-01", keep.Months, keep.Months == 0},
	} {
		firsts := []int{} // of each span, oldest first
		span := ""
		for i, snapshot := range all {
			if now := snapshot.At.UTC().Format(rule.layout); now != span {
				span = now
				firsts = append(firsts, i)
			}
		}
		if !rule.ever && len(firsts) > rule.spans {
			firsts = firsts[len(firsts)-rule.spans:]
		}
		for _, i := range firsts {
			stays[i] = true
		}
	}
	return stays
}

// Retain drops sealed segments whose events all lie at or before behindSeq (what accounting has
// stored) and that were written before olderThan. It never drops a segment unless a later or
// equal snapshot of the state exists, so that what remains can still be folded from a snapshot
// on. It returns how many segments were dropped.
func (a *Archive) Retain(behindSeq uint64, olderThan time.Time) (int, error) {
	snaps, err := a.Snapshots()
	if err != nil {
		return 0, err
	}
	newest := uint64(0)
	if n := len(snaps); n > 0 {
		newest = snaps[n-1].Pos
	}
	dropped := 0
	for {
		a.mu.Lock()
		if len(a.segs) < 2 {
			a.mu.Unlock()
			break
		}
		s := a.segs[0]
		if !s.sealed || s.lastSeq > behindSeq || s.at >= olderThan.UnixNano() || s.last > newest {
			a.mu.Unlock()
			break
		}
		a.mu.Unlock()
		// Only this function removes segments, so s is still the first.
		linked, err := a.linkDropped(s)
		if err != nil || !linked {
			return dropped, err
		}
		a.mu.Lock()
		// The file goes first: a segment that is listed but missing is noticed, one that is
		// there but not listed is not.
		err = os.Remove(s.path)
		if err == nil {
			a.segs = append([]*segment{}, a.segs[1:]...)
		}
		a.mu.Unlock()
		if err != nil {
			return dropped, err
		}
		dropped++
	}
	if dropped == 0 {
		return 0, nil
	}
	return dropped, durable.SyncDir(a.segDir())
}

// Report is what Verify has read.
type Report struct {
	FirstPos, LastPos uint64
	FirstSeq, LastSeq uint64
	Records           uint64
	Bytes             uint64 // of batches
	Snapshots         int
}

// Verify reads everything that is there now, checking every checksum, and that positions and
// sequence numbers have no gap. fold, if not nil, is called with each record.
func (a *Archive) Verify(fold func(Record) error) (Report, error) {
	var report Report
	first, last := a.Bounds()
	if last > 0 {
		iterator := a.ReadFrom(first)
		for iterator.next <= last {
			record, err := iterator.Next()
			if errors.Is(err, ErrDropped) && report.Records == 0 {
				return a.Verify(fold) // retention was faster
			}
			if err != nil {
				return report, err
			}
			if report.Records == 0 {
				report.FirstPos, report.FirstSeq = record.Pos, record.FirstSeq
			} else if record.FirstSeq != report.LastSeq+1 {
				return report, corruptError(
					a.segDir(),
					0,
					cureSegment,
					"batch %d begins with event %d, the one before ends with %d",
					record.Pos,
					record.FirstSeq,
					report.LastSeq,
				)
			}
			report.Records++
			report.Bytes += uint64(len(record.Batch))
			report.LastPos, report.LastSeq = record.Pos, record.LastSeq
			if fold != nil {
				if err := fold(record); err != nil {
					return report, fmt.Errorf("batch %d: %w", record.Pos, err)
				}
			}
		}
	}
	snaps, err := a.Snapshots()
	if err != nil {
		return report, err
	}
	for _, snapshot := range snaps {
		if err := a.readThrough(snapshot); err != nil {
			return report, err
		}
		report.Snapshots++
	}
	return report, nil
}

func (a *Archive) readThrough(snapshot SnapshotInfo) error {
	r, err := a.OpenSnapshot(snapshot)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}
