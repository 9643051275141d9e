// Package care verifies and rebuilds the ledger in a state folder that no controller uses:
// musterd ledger. It folds an archive and what a log has behind the archive's end, and makes
// a log that begins with a state, for rebuild and for ledger/backup.
package care

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/blob"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// Care verifies and rebuilds the ledger in a state folder that no
// controller uses.
type Care struct {
	State   string // folder
	Archive string // folder
	Out     io.Writer
}

// LogDir is the folder of the log.
func (c *Care) LogDir() string { return filepath.Join(c.State, "ledger") }

// ContentsDir is the folder of scripts and environments.
func (c *Care) ContentsDir() string { return filepath.Join(c.State, "content") }

func (c *Care) printLine(
	format string,
	args ...any,
) {
	fmt.Fprintf(c.Out, format+"\n", args...)
}

// errDamaged is what verify ends with when it has found something.
var errDamaged = errors.New(
	"the ledger is damaged; musterd ledger rebuild makes a new log from the archive, damaged files of the archive and of content are copied back from a backup",
)

// VerifyLedger reads everything and changes nothing.
func (c *Care) VerifyLedger() error {
	bad := 0
	found, err := log.Verify(c.LogDir())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		bad++
		c.printLine("log: %v", err)
	case err != nil:
		return BlameUse(err)
	}
	for _, damage := range found.Damage {
		bad++
		c.printLine("log: %v", damage)
	}
	if err == nil {
		c.printLine(
			"log: %d entries in %d segments, %d snapshots, the newest at batch %d, %d damaged places",
			found.Entries,
			found.Segments,
			found.Snapshots,
			found.Snapshot,
			len(found.Damage),
		)
	}
	n, err := c.verifyArchive()
	if err != nil {
		return err
	}
	bad += n
	n, err = c.verifyContents()
	if err != nil {
		return err
	}
	bad += n
	if bad > 0 {
		return fmt.Errorf("%w (%d places)", errDamaged, bad)
	}
	return nil
}

// BlameUse says what to do where another process has the ledger open.
func BlameUse(err error) error {
	if errors.Is(err, log.ErrLocked) {
		return fmt.Errorf(
			"%w: stop the controller first (systemctl stop musterd, or muster down)",
			err,
		)
	}
	return err
}

// verifyContents hashes scripts and environments again, and counts the damaged places.
func (c *Care) verifyContents() (bad int, err error) {
	report, err := blob.Examine(c.ContentsDir(), func(damage error) {
		bad++
		c.printLine("content: %v", damage)
	})
	if errors.Is(err, fs.ErrNotExist) {
		c.printLine("content: there is none in %s", c.ContentsDir())
		return bad + 1, nil
	}
	if err == nil {
		c.printLine(
			"content: %d scripts and environments with %d bytes in %d files, %d damaged places",
			report.Blobs,
			report.Bytes,
			report.Files,
			bad,
		)
	}
	return bad, err
}

// verifyArchive reads the archive, and counts the damaged places.
func (c *Care) verifyArchive() (bad int, err error) {
	if _, err := os.Stat(c.Archive); errors.Is(err, fs.ErrNotExist) {
		c.printLine("archive: there is none in %s", c.Archive)
		return 1, nil
	}
	return archive.Examine(
		c.Archive,
		func(damage error) { c.printLine("archive: %v", damage) },
		func(report archive.Report) {
			c.printLine(
				"archive: batches %d to %d, events %d to %d, %d snapshots",
				report.FirstPos,
				report.LastPos,
				report.FirstSeq,
				report.LastSeq,
				report.Snapshots,
			)
		},
	)
}

// rebuildLog makes a new log.
func (c *Care) rebuildLog() error {
	codec, err := event.NewCodec()
	if err != nil {
		return err
	}
	tail := &Tail{Codec: codec}
	found, err := log.Read(c.LogDir(), tail.AddBatch)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return BlameUse(err)
	}
	for _, damage := range found.Damage {
		c.printLine("damaged: %v", damage)
	}
	if err := os.MkdirAll(c.LogDir(), 0o700); err != nil {
		return err
	}
	lock, err := log.OS().Lock(filepath.Join(c.LogDir(), "LOCK"))
	if err != nil {
		return BlameUse(err)
	}
	defer lock.Close()
	quiet := slog.New(slog.DiscardHandler)
	arch, err := store.OpenArchive(c.Archive, quiet)
	if err != nil {
		return fmt.Errorf("the archive in %s: %w", c.Archive, err)
	}
	defer arch.Close()
	blobs, err := store.OpenBlobs(c.ContentsDir(), quiet)
	if err != nil {
		return fmt.Errorf("the contents in %s: %w", c.ContentsDir(), err)
	}
	defer blobs.Close()
	machine := daemon.NewMachine(codec, arch, blobs)
	if err := c.FoldArchive(arch.Disk, codec, machine); err != nil {
		return err
	}
	before := machine.Applied().Seq
	if err := tail.keepContents(blobs); err != nil {
		return err
	}
	if err := tail.ReplayOnto(machine, c.ArchiveEnd(arch.Disk)); err != nil {
		return err
	}
	cluster := machine.Applied()
	if cluster.Seq == 0 {
		return errors.New(
			"neither the archive nor the log holds an event that can be read: restore a backup",
		)
	}
	if err := cluster.Check(); err != nil {
		return fmt.Errorf(
			"the state at event %d does not hold together, so the log was left as it is: %w",
			cluster.Seq,
			err,
		)
	}
	if err := errors.Join(c.syncAside(arch, blobs), c.installLog(machine, c.ArchiveEnd(arch.Disk))); err != nil {
		return err
	}
	c.printLine(
		"rebuilt: cluster %s up to event %d of %s (%d events from the archive, %d more from the old log)",
		cluster.ClusterName,
		cluster.Seq,
		time.Unix(0, int64(cluster.At)).UTC().Format(time.RFC3339),
		before,
		cluster.Seq-before,
	)
	if len(found.Damage) > 0 {
		c.printLine(
			"events that were acknowledged after that instant and were neither in the archive nor readable in the log are lost; the archive is written within milliseconds",
		)
	}
	c.sayMissing(cluster, blobs)
	return nil
}

// ArchiveEnd is the last batch of an archive.
func (c *Care) ArchiveEnd(a *archive.Archive) uint64 {
	_, last := a.Bounds()
	return last
}

func (c *Care) syncAside(arch *store.Archive, blobs *store.Blobs) error {
	_, err := arch.Sync()
	return errors.Join(err, blobs.Sync())
}

// FoldArchive brings the machine to the archive's end: from its first batch, or from the
// newest snapshot that can be read where the first ones were dropped.
func (c *Care) FoldArchive(
	a *archive.Archive,
	codec *event.Codec,
	machine *daemon.Machine,
) error {
	first, last := a.Bounds()
	if last == 0 {
		return nil
	}
	next := uint64(1)
	if first > 1 {
		position, err := c.snapshotFor(a, first, machine)
		if err != nil {
			return err
		}
		next = position + 1
	}
	for iterator := a.ReadFrom(next); next <= last; next++ {
		record, err := iterator.Next()
		if err != nil {
			return fmt.Errorf("read the archive at batch %d: %w", next, err)
		}
		if err := machine.Apply(record.Pos, daemon.Batch(record.Batch)); err != nil {
			return fmt.Errorf("fold batch %d of the archive: %w", record.Pos, err)
		}
	}
	return nil
}

// snapshotFor restores the newest snapshot from which the archive goes on.
func (c *Care) snapshotFor(
	a *archive.Archive,
	first uint64,
	machine *daemon.Machine,
) (position uint64, err error) {
	all, err := a.Snapshots()
	if err != nil {
		return 0, err
	}
	for _, snapshot := range slices.Backward(all) {
		if snapshot.Pos+1 < first {
			break
		}
		r, err := a.OpenSnapshot(snapshot)
		if err != nil {
			c.printLine(
				"the snapshot of batch %d in the archive cannot be used: %v",
				snapshot.Pos,
				err,
			)
			continue
		}
		data, err := io.ReadAll(r)
		err = errors.Join(err, r.Close())
		if err == nil {
			err = machine.Restore(bytes.NewReader(data))
		}
		if err == nil {
			return snapshot.Pos, nil
		}
		c.printLine("the snapshot of batch %d in the archive cannot be used: %v", snapshot.Pos, err)
	}
	return 0, fmt.Errorf(
		"the archive begins at batch %d and has no snapshot that can be read from which to go on: restore a backup",
		first,
	)
}

// installLog writes a log that begins with the machine's state, and puts it in the
// place of the old one, which stays beside it.
func (c *Care) installLog(machine *daemon.Machine, position uint64) error {
	fresh := filepath.Join(c.State, "ledger.new")
	if err := WriteLog(fresh, machine, position); err != nil {
		return err
	}
	old := c.LogDir() + ".replaced-" + time.Now().UTC().Format("20060102T150405.000000Z")
	if err := os.Rename(c.LogDir(), old); err != nil {
		return err
	}
	if err := os.Rename(fresh, c.LogDir()); err != nil {
		return fmt.Errorf(
			"the new log stands ready in %s, rename it to %s: %w",
			fresh,
			c.LogDir(),
			err,
		)
	}
	c.printLine("the old log is kept in %s; delete it once the controller runs", old)
	return log.OS().SyncDir(c.State)
}

// WriteLog makes a log that begins with the machine's state.
func WriteLog(fresh string, machine *daemon.Machine, position uint64) error {
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	ctx := context.Background()
	durable, err := log.Open(
		ctx,
		log.Options{
			Dir:     fresh,
			Machine: store.Machine{Fold: machine, Sync: func() error { return nil }},
			StartAt: log.Position(position),
		},
	)
	if err != nil {
		return fmt.Errorf("make a new log in %s: %w", fresh, err)
	}
	err = durable.Snapshot(ctx)
	if err == nil {
		err = durable.DropStart()
	}
	if err := errors.Join(err, durable.Close(ctx)); err != nil {
		return fmt.Errorf("write the state into the new log in %s: %w", fresh, err)
	}
	return nil
}

// sayMissing names scripts and environments that jobs need and that are gone.
func (c *Care) sayMissing(cluster *state.State, blobs *store.Blobs) {
	missing := 0
	cluster.Jobs.Range(func(_ uint64, job *state.Job) bool {
		if job.State.Terminal() || job.Spec == nil {
			return true
		}
		for _, hash := range []spec.Hash{job.Spec.Script, job.Spec.Env} {
			if hash == (spec.Hash{}) {
				continue
			}
			if _, err := blobs.Get(hash); err != nil {
				missing++
				c.printLine(
					"job %d: its script or environment %s is missing: it cannot start again",
					job.ID,
					hash,
				)
			}
		}
		return true
	})
	if missing == 0 {
		c.printLine("scripts and environments of all jobs that are not over are there")
	}
}

// Tail collects the batches of a log that can be read, so that those behind
// the archive's end are not lost.
type Tail struct {
	Codec   *event.Codec
	Batches []TailBatch // without gaps, by event
}

// TailBatch is one batch of a log with the events in it.
type TailBatch struct {
	First, Last uint64
	Data        []byte
}

// AddBatch takes a batch. One that begins where an earlier one did takes its place and
// that of all behind it: those had failed and were decided again.
func (t *Tail) AddBatch(batch []byte) {
	first, last, err := daemon.BatchEvents(t.Codec, batch)
	if err != nil {
		return // one of them cannot be read; those behind it leave a gap
	}
	keep := len(t.Batches)
	for keep > 0 && t.Batches[keep-1].Last >= first {
		keep--
	}
	t.Batches = append(t.Batches[:keep], TailBatch{first, last, bytes.Clone(batch)})
}

// keepContents stores the contents of all batches that can be read. A batch that is in the
// archive may have its contents in the log alone: the archive has none, and a process that
// was killed may not have stored them yet.
func (t *Tail) keepContents(blobs *store.Blobs) error {
	for _, batch := range t.Batches {
		contents, err := daemon.ContentsOf(batch.Data)
		if err != nil {
			return err
		}
		for _, data := range contents {
			if _, err := blobs.Put(data); err != nil {
				return fmt.Errorf("store a content of the old log: %w", err)
			}
		}
	}
	return nil
}

// ReplayOnto applies what follows the machine's state, up to the first gap.
func (t *Tail) ReplayOnto(machine *daemon.Machine, position uint64) error {
	for _, batch := range t.Batches {
		have := machine.Applied().Seq
		if batch.First > have+1 {
			return nil // a gap: what is behind it cannot be used
		}
		if batch.Last <= have {
			continue
		}
		position++
		if err := machine.Apply(position, batch.Data); err != nil {
			return fmt.Errorf(
				"apply events %d to %d of the old log: %w",
				batch.First,
				batch.Last,
				err,
			)
		}
	}
	return nil
}
