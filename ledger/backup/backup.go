// Package backup copies a ledger with configuration and keys to a folder of backups, and
// puts a backup back: muster backup and muster restore. docs/operations/backup.md says how
// they are used.
//
// A backup (backup.go) copies what is new since the last one into a history (folder.go), from
// a controller that runs or from a state folder (source.go), and is listed only if the copy
// folds to the state that the ledger has. A restore (restore.go) is prepared beside its place,
// checked, and then moved by a plan that can be repeated after an interruption.
package backup

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// errBackupDiffers tells a copy that does not fold to what the controller has.
var errBackupDiffers = errors.New("the backup does not fold to the controller's state")

// backupRun makes one backup.
type backupRun struct {
	cfg    *conffile.Config
	config string // path of muster.yaml
	folder *backupFolder
	ledger ledgerReader
	tell   *teller
	now    func() time.Time
	// release of this program, which the backup names.
	release string

	codec *event.Codec
	blobs *store.Blobs
	rep   backupReport
}

// backupReport is what a backup did.
type backupReport struct {
	Backup      string    `json:"backup"`
	Folder      string    `json:"folder"`
	Cluster     string    `json:"cluster"`
	Event       uint64    `json:"event"`
	EventAt     time.Time `json:"event_at"`
	State       string    `json:"state_sha256"`
	History     string    `json:"history"`
	NewEvents   uint64    `json:"new_events"`
	NewContents int       `json:"new_contents"`
	Files       int       `json:"files"`
	NewFiles    int       `json:"new_files"`
	Warnings    []string  `json:"warnings"`
	Seconds     float64   `json:"seconds"`
}

func (b *backupRun) warnUser(format string, args ...any) {
	b.rep.Warnings = append(b.rep.Warnings, fmt.Sprintf(format, args...))
}

// backupHistory is the archive of backups with its fold.
type backupHistory struct {
	name    string
	arch    *store.Archive
	machine *daemon.Machine
}

// run copies what is new since the last backup, checks that the copy folds to the state
// that the ledger has, and only then lists the backup.
func (b *backupRun) run(ctx context.Context) (_ backupReport, err error) {
	began := b.now()
	b.rep.Warnings = []string{}
	b.codec, err = event.NewCodec()
	if err != nil {
		return b.rep, err
	}
	head, err := b.ledger.headline(ctx)
	if err != nil {
		return b.rep, err
	}
	last, err := b.lastOf(head)
	if err != nil {
		return b.rep, err
	}
	b.blobs, err = store.OpenBlobs(b.folder.contentsDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		return b.rep, fmt.Errorf("the contents in %s: %w", b.folder.contentsDir(), err)
	}
	defer func() { err = errors.Join(err, b.blobs.Close()) }()
	history, err := b.openHistory(last, head)
	if err != nil {
		return b.rep, err
	}
	defer func() { err = errors.Join(err, history.arch.Close()) }()
	head, err = b.copyBatches(ctx, history, head)
	if err != nil {
		return b.rep, err
	}
	if err := b.checkFold(history, head); err != nil {
		return b.rep, err
	}
	from := uint64(1)
	if last != nil && last.History == history.name {
		from = last.Event + 1
	}
	if err := b.copyContents(ctx, history, from); err != nil {
		return b.rep, err
	}
	if err := b.settleOnDisk(history, head); err != nil {
		return b.rep, err
	}
	manifest, err := b.makeManifest(history, head, began)
	if err != nil {
		return b.rep, err
	}
	if err := b.folder.writeManifest(manifest); err != nil {
		return b.rep, err
	}
	b.rep.Backup = manifest.Name
	b.rep.Folder = b.folder.dir
	b.rep.Cluster = manifest.Cluster
	b.rep.Event = manifest.Event
	b.rep.EventAt = manifest.At
	b.rep.State = manifest.State
	b.rep.History = manifest.History
	b.rep.Files = len(manifest.Files)
	b.rep.Seconds = b.now().Sub(began).Seconds()
	return b.rep, nil
}

// lastOf is the newest backup in the folder, which must be of the same cluster.
func (b *backupRun) lastOf(head ledgerHeadline) (*backupManifest, error) {
	all, err := b.folder.listBackups()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	last := all[len(all)-1]
	if id := uuid.UUID(head.uuid).String(); last.UUID != id {
		return nil, fmt.Errorf(
			"%w: %s holds cluster %s (%s), this is cluster %s (%s): choose another folder",
			errBackupOther,
			b.folder.dir,
			last.Cluster,
			last.UUID,
			head.cluster,
			id,
		)
	}
	return last, nil
}

// openHistory opens the history that goes on: the newest one, unless the ledger does
// not hold its end, because an older copy was restored, or no longer has what follows
// it, because the retention dropped that. Then a new one begins.
func (b *backupRun) openHistory(last *backupManifest, head ledgerHeadline) (*backupHistory, error) {
	number := 1
	if last != nil {
		if _, err := fmt.Sscanf(last.History, "history-%d", &number); err != nil {
			return nil, fmt.Errorf(
				"%w: %s names the history %q",
				errBackupBroken,
				last.Name,
				last.History,
			)
		}
	}
	for ; ; number++ {
		history, err := b.loadHistory(fmt.Sprintf("history-%d", number))
		if err != nil {
			return nil, err
		}
		cluster := history.machine.Applied()
		reason := ""
		switch {
		case cluster.Seq == 0:
			return history, nil
		case !head.holdsPosition(cluster.Position()):
			reason = fmt.Sprintf(
				"the ledger no longer holds event %d of the last backup (an older copy was restored)",
				cluster.Seq,
			)
		case head.firstSeq > cluster.Seq+1:
			reason = fmt.Sprintf(
				"the ledger's archive begins at event %d, behind event %d of the last backup (ledger.retention)",
				head.firstSeq,
				cluster.Seq,
			)
		default:
			return history, nil
		}
		b.warnUser(
			"%s: everything is copied into a new history; the earlier backups stay as they are",
			reason,
		)
		if err := history.arch.Close(); err != nil {
			return nil, err
		}
	}
}

// loadHistory opens a history and folds it to its end.
func (b *backupRun) loadHistory(name string) (*backupHistory, error) {
	arch, err := store.OpenArchive(b.folder.historyPath(name), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBackupBroken, err)
	}
	history := &backupHistory{
		name:    name,
		arch:    arch,
		machine: daemon.NewMachine(b.codec, arch, b.blobs),
	}
	if err := b.foldHistory(history); err != nil {
		return nil, errors.Join(
			fmt.Errorf(
				"%w: %s: %w; move the folder %s away and begin another",
				errBackupBroken,
				b.folder.historyPath(name),
				err,
				b.folder.dir,
			),
			arch.Close(),
		)
	}
	return history, nil
}

// foldHistory folds from the newest snapshot that can be read.
func (b *backupRun) foldHistory(history *backupHistory) error {
	first, last := history.arch.Disk.Bounds()
	position, err := newestSnapshot(history.arch.Disk, history.machine, 1<<63)
	if err != nil {
		return err
	}
	if position == 0 && first > 1 {
		return fmt.Errorf("it begins at batch %d and has no snapshot that can be read", first)
	}
	if position >= last {
		return nil
	}
	return foldBatches(history.arch.Disk, history.machine, position, last, b.tell)
}

// newestSnapshot restores the newest snapshot up to a position that can be read; 0 =
// there is none.
func newestSnapshot(
	a *archive.Archive,
	machine *daemon.Machine,
	upTo uint64,
) (position uint64, err error) {
	all, err := a.Snapshots()
	if err != nil {
		return 0, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Pos > upTo {
			continue
		}
		r, err := a.OpenSnapshot(all[i])
		if err != nil {
			continue // an older one, or the first batch, does as well
		}
		data, err := io.ReadAll(r)
		if errors.Join(err, r.Close()) != nil {
			continue
		}
		if machine.Restore(bytes.NewReader(data)) == nil {
			return all[i].Pos, nil
		}
	}
	return 0, nil
}

// foldBatches applies the batches behind one position up to another.
func foldBatches(
	a *archive.Archive,
	machine *daemon.Machine,
	behind, last uint64,
	tell *teller,
) error {
	for iterator := a.ReadFrom(behind + 1); ; {
		record, err := iterator.Next()
		if errors.Is(err, io.EOF) || err == nil && record.Pos > last {
			return nil
		}
		if err != nil {
			return err
		}
		if err := machine.Apply(record.Pos, daemon.Batch(record.Batch)); err != nil {
			return fmt.Errorf("fold batch %d: %w", record.Pos, err)
		}
		tell.tellProgress("folding", record.Pos-behind, last-behind, "batches")
	}
}

// copyBatches brings the history to the ledger's head, and folds it on the way. Where
// the ledger's own archive has lost its beginning, the state at the head goes first,
// and what the archive has is kept for those who ask about the past.
func (b *backupRun) copyBatches(
	ctx context.Context,
	history *backupHistory,
	head ledgerHeadline,
) (ledgerHeadline, error) {
	stats := history.arch.Disk.Stats()
	from := stats.LastSeq + 1
	if stats.LastPos == 0 {
		from = max(head.firstSeq, 1)
	}
	if from > 1 && history.machine.Applied().Seq == 0 {
		var err error
		head, err = b.ledger.encoded(ctx, func(now ledgerHeadline, encoded io.Reader) error {
			return history.arch.Disk.PutSnapshot(now.position, now.seq, encoded)
		})
		if err != nil {
			return head, err
		}
		from = max(head.firstSeq, 1) // retention may have gone on
		if _, err := newestSnapshot(history.arch.Disk, history.machine, head.position); err != nil {
			return head, err
		}
	}
	folded := history.machine.Applied().Seq
	first := from
	err := b.ledger.batches(ctx, from, head.seq, func(batch ledgerBatch) error {
		b.tell.tellProgress("copying", batch.last-first+1, head.seq-first+1, "events")
		b.rep.NewEvents += batch.last - batch.first + 1
		if batch.last <= folded {
			return history.arch.Append(batch.position, batch.first, batch.last, batch.events)
		}
		return history.machine.Apply(batch.position, daemon.Batch(batch.events))
	})
	return head, err
}

// checkFold compares the copy's fold with the ledger's state.
func (b *backupRun) checkFold(history *backupHistory, head ledgerHeadline) error {
	cluster := history.machine.Applied()
	if err := cluster.Check(); err != nil {
		return fmt.Errorf("%w: event %d: %w", errBackupDiffers, cluster.Seq, err)
	}
	if cluster.Seq != head.seq {
		return fmt.Errorf(
			"%w: it ends at event %d, the ledger at %d",
			errBackupDiffers,
			cluster.Seq,
			head.seq,
		)
	}
	if head.version != state.SnapshotVersion {
		return fmt.Errorf(
			"the controller hashes its state by version %d, this program by version %d: run the musterd of the controller's release",
			head.version,
			state.SnapshotVersion,
		)
	}
	if got := cluster.Hash(); got != head.hash {
		return fmt.Errorf(
			"%w: at event %d it has the hash %x, the ledger %x; move %s away and begin another folder",
			errBackupDiffers,
			cluster.Seq,
			got,
			head.hash,
			b.folder.dir,
		)
	}
	return nil
}

// copyContents fetches the scripts and environments that jobs and the events from one
// on name.
func (b *backupRun) copyContents(ctx context.Context, history *backupHistory, from uint64) error {
	needed := map[spec.Hash]bool{}
	store.EachJobContent(history.machine.Applied(), func(hash spec.Hash) { needed[hash] = true })
	named := map[spec.Hash]bool{}
	if err := eachEvent(history.arch.Disk, b.codec, from, func(envelope *event.Envelope) {
		store.EachContent(envelope.Event, func(hash spec.Hash) { named[hash] = true })
	}); err != nil {
		return err
	}
	for hash := range needed {
		named[hash] = true
	}
	delete(named, spec.Hash{})
	done, lost := uint64(0), 0
	for hash := range named {
		done++
		if b.blobs.Has(hash) {
			continue
		}
		data, err := b.ledger.content(ctx, hash)
		switch {
		case errors.Is(err, errContentGone) && needed[hash]:
			lost++
			continue
		case errors.Is(err, errContentGone):
			continue // its job was forgotten long ago
		case err != nil:
			return err
		}
		if got, err := b.blobs.Put(data); err != nil || got != hash {
			return errors.Join(
				fmt.Errorf(
					"content %s: the ledger has the bytes of %s: musterd ledger verify names the file",
					hash,
					got,
				),
				err,
			)
		}
		b.rep.NewContents++
		b.tell.tellProgress("copying", done, uint64(len(named)), "scripts and environments")
	}
	if lost > 0 {
		b.warnUser(
			"%d scripts or environments that jobs name are not in the ledger's store of contents: musterd ledger verify, with the controller stopped, names the damage",
			lost,
		)
	}
	return nil
}

// eachEvent visits the archive's events from one on.
func eachEvent(
	a *archive.Archive,
	codec *event.Codec,
	from uint64,
	visit func(*event.Envelope),
) error {
	stats := a.Stats()
	if from > stats.LastSeq {
		return nil
	}
	iterator, err := a.Reader(max(from, stats.FirstSeq))
	if err != nil {
		return err
	}
	for {
		record, err := iterator.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		events, err := codec.Decode(record.Batch)
		if err != nil {
			return err
		}
		for i := range events {
			if events[i].Seq >= from {
				visit(&events[i])
			}
		}
	}
}

// settleOnDisk puts everything on the disk, with the state at the head, from which the next
// backup goes on.
func (b *backupRun) settleOnDisk(history *backupHistory, head ledgerHeadline) error {
	if _, err := history.arch.Sync(); err != nil {
		return err
	}
	if err := b.blobs.Sync(); err != nil {
		return err
	}
	snaps, err := history.arch.Disk.Snapshots()
	if err != nil {
		return err
	}
	if n := len(snaps); n == 0 || snaps[n-1].Pos < head.position {
		r, w := io.Pipe()
		go func() { w.CloseWithError(history.machine.Applied().Encode(w)) }()
		if err := errors.Join(history.arch.Disk.PutSnapshot(head.position, head.seq, r), r.Close()); err != nil {
			return err
		}
	}
	if _, err := history.arch.Disk.Chain(); err != nil {
		return err
	}
	// The oldest stays: it is the first of its month, and of a month for ever.
	if _, err := history.arch.Disk.Thin(archive.Keep{Hours: 2, Days: 2}); err != nil {
		return err
	}
	return durable.SyncDir(b.folder.dir)
}

// makeManifest copies the files beside the ledger and describes the backup.
func (b *backupRun) makeManifest(
	history *backupHistory,
	head ledgerHeadline,
	made time.Time,
) (*backupManifest, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	manifest := &backupManifest{
		Format:       backupFormat,
		Name:         backupName(made),
		Made:         made.UTC(),
		Release:      b.release,
		Host:         host,
		Cluster:      head.cluster,
		UUID:         uuid.UUID(head.uuid).String(),
		History:      history.name,
		Position:     head.position,
		Event:        head.seq,
		At:           instantTime(head.at),
		State:        hex.EncodeToString(head.hash[:]),
		StateVersion: head.version,
	}
	if info, err := os.Stat(b.cfg.StateDir); err == nil {
		manifest.StateOwner = ownerOf(info)
	}
	if err := b.copyFiles(manifest); err != nil {
		return nil, err
	}
	return manifest, nil
}

// maxBackupFile bounds a file of configuration or keys; none is anywhere near it.
const maxBackupFile = 16 << 20

// copyFiles copies configuration, keys and certificates.
func (b *backupRun) copyFiles(manifest *backupManifest) error {
	seen := map[string]bool{}
	add := func(kind fileKind, name, path string) error {
		if seen[path] {
			return nil
		}
		seen[path] = true
		return b.copyFile(manifest, backupFile{Kind: kind, Name: name, From: path})
	}
	config, err := filepath.Abs(b.config)
	if err != nil {
		return err
	}
	if err := add(kindConfig, "", config); err != nil {
		return err
	}
	if err := add(kindSlurm, "", b.cfg.SlurmConf); err != nil {
		return err
	}
	for _, path := range b.slurmFiles() {
		if err := add(kindSlurm, nameBelow(filepath.Dir(b.cfg.SlurmConf), path), path); err != nil {
			return err
		}
	}
	for _, dir := range []struct {
		kind fileKind
		path string
	}{{kindTLS, b.cfg.TLS.Dir}, {kindState, b.cfg.StateDir}} {
		names, err := plainFiles(dir.path)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := add(dir.kind, name, filepath.Join(dir.path, name)); err != nil {
				return err
			}
		}
	}
	b.cfg.EachPath(func(key, path string) {
		info, statErr := os.Stat(path)
		// A library of the engine is installed, not configured.
		if err == nil && statErr == nil && info.Mode().IsRegular() &&
			key != "clickhouse.embedded.library" {
			err = add(kindKey, key, path)
		}
	})
	return err
}

// slurmFiles are the files that are read with slurm.conf. One that cannot be used now
// is no reason to go without a backup.
func (b *backupRun) slurmFiles() []string {
	var out []string
	_, files, err := conffile.SlurmFiles(b.cfg.SlurmConf)
	for name := range files {
		out = append(out, "/"+name)
	}
	if err != nil {
		b.warnUser("%v; the files *.conf beside it were copied", err)
		out, _ = filepath.Glob(filepath.Join(filepath.Dir(b.cfg.SlurmConf), "*.conf"))
	}
	return out
}

// nameBelow is a path below a folder, or the whole path of one that is elsewhere.
func nameBelow(dir, path string) string {
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// plainFiles are the names of a folder's files.
func plainFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, entry := range entries {
		info, err := os.Stat(filepath.Join(dir, entry.Name()))
		if err == nil && info.Mode().IsRegular() && !strings.HasPrefix(entry.Name(), ".") {
			out = append(out, entry.Name())
		}
	}
	return out, nil
}

func (b *backupRun) copyFile(manifest *backupManifest, file backupFile) error {
	info, err := os.Stat(file.From)
	if err != nil {
		return err
	}
	if info.Size() > maxBackupFile {
		b.warnUser(
			"%s has %d bytes, more than the %d of a file of configuration, and was left out",
			file.From,
			info.Size(),
			maxBackupFile,
		)
		return nil
	}
	data, err := os.ReadFile(file.From)
	if err != nil {
		return fmt.Errorf("%w; run the backup as the user of the controller", err)
	}
	sum, fresh, err := b.folder.keepContent(data)
	if err != nil {
		return err
	}
	if fresh {
		b.rep.NewFiles++
	}
	file.SHA256 = sum
	file.Mode = info.Mode().Perm()
	file.Owner = ownerOf(info)
	manifest.Files = append(manifest.Files, file)
	return nil
}

// ownerOf names who owns a file.
func ownerOf(info fs.FileInfo) fileOwner {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileOwner{}
	}
	owner := fileOwner{
		User:  strconv.FormatUint(uint64(st.Uid), 10),
		Group: strconv.FormatUint(uint64(st.Gid), 10),
	}
	if u, err := user.LookupId(owner.User); err == nil {
		owner.User = u.Username
	}
	if g, err := user.LookupGroupId(owner.Group); err == nil {
		owner.Group = g.Name
	}
	return owner
}

// teller writes how far long work is, at most every two seconds.
type teller struct {
	out  io.Writer
	last time.Time
}

const tellEvery = 2 * time.Second

func (t *teller) tellProgress(doing string, done, of uint64, what string) {
	now := time.Now()
	if t.last.IsZero() {
		t.last = now
	}
	if now.Sub(t.last) < tellEvery {
		return
	}
	t.last = now
	fmt.Fprintf(t.out, "%s: %d of %d %s\n", doing, done, of, what)
}
