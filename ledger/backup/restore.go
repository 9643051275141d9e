package backup

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
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
	"time"

	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/blob"
	"github.com/musterhpc/muster/ledger/care"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// Errors of a restore that a test or a caller tells apart.
var (
	errNotEmpty         = errors.New("the state folder is not empty")
	errRestoreUnended   = errors.New("a restore of this state folder was interrupted")
	errControllerRuns   = errors.New("the controller is running")
	errGroupLives       = errors.New("another controller of the group has the ledger")
	errRestoreDiffers   = errors.New("the backup does not fold to the state that was backed up")
	errRestoreElsewhere = errors.New("the path is not below a folder of the cluster")
)

// restoringDir is the folder, in the state folder and in the archive's, in which a
// restore is prepared. While it is there no controller starts.
const restoringDir = "restoring"

// restoredMark is the file in the state folder of a ledger that was restored, until
// the controller knows which job numbers were given since the backup.
const restoredMark = "restored"

// ClearRestored gives what takes that mark away; nil = there is none.
func ClearRestored(stateDir string) func() error {
	path := filepath.Join(stateDir, restoredMark)
	if fileAbsent(path) {
		return nil
	}
	return func() error {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return durable.SyncDir(stateDir)
	}
}

// restoreRun restores one backup.
type restoreRun struct {
	folder *backupFolder
	m      *backupManifest
	config string // where muster.yaml is or goes
	tell   *teller
	now    func() time.Time

	cfg   *conffile.Config
	codec *event.Codec
	rep   restoreReport
}

// restoreReport is what a restore did.
type restoreReport struct {
	Backup   string    `json:"backup"`
	Folder   string    `json:"folder"`
	Cluster  string    `json:"cluster"`
	Event    uint64    `json:"event"`
	EventAt  time.Time `json:"event_at"`
	State    string    `json:"state_sha256"`
	StateDir string    `json:"state_dir,omitempty"`
	Restored []string  `json:"restored"` // files beside the ledger
	Kept     []string  `json:"kept"`     // files that were there and differ from the backup's
	Warnings []string  `json:"warnings"`
	Checked  bool      `json:"checked"` // the backup was only checked
	Seconds  float64   `json:"seconds"`
}

// restorePlan is what is left to do once everything is prepared and checked: moves and
// writes that can be repeated, so that an interrupted restore goes on. It is a file in
// restoringDir.
type restorePlan struct {
	Backup string        `json:"backup"`
	Config string        `json:"config"`
	Moves  []plannedMove `json:"moves"`
	Files  []plannedFile `json:"files"`
	Remove []string      `json:"remove"` // folders, at the end, the one with the plan last
}

type plannedMove struct{ From, To string }

type plannedFile struct {
	From string // prepared content
	To   string
	File backupFile
}

const planName = "plan.json"

func (r *restoreRun) stageFiles() string { return filepath.Join(r.cfg.StateDir, restoringDir) }
func (r *restoreRun) stageArchive() string {
	return filepath.Join(r.cfg.Ledger.ArchiveDir, restoringDir)
}

// RefuseRestoring keeps a controller from a state folder in which a restore has not
// ended.
func RefuseRestoring(stateDir string) error {
	if fileAbsent(filepath.Join(stateDir, restoringDir)) {
		return nil
	}
	return fmt.Errorf("%w: run muster restore again, which ends it", errRestoreUnended)
}

// run prepares everything beside its place, checks it, and only then moves it.
func (r *restoreRun) run(ctx context.Context) (_ restoreReport, err error) {
	began := r.now()
	r.codec, err = event.NewCodec()
	if err != nil {
		return r.rep, err
	}
	r.rep = r.newReport()
	r.cfg, err = r.configPath()
	if err != nil {
		return r.rep, err
	}
	r.rep.StateDir = r.cfg.StateDir
	if controllerRuns(ctx, r.cfg) {
		return r.rep, fmt.Errorf(
			"%w at %s: stop it first (systemctl stop musterd, or muster down)",
			errControllerRuns,
			r.cfg.Socket,
		)
	}
	plan, err := r.findInterrupted()
	if err != nil {
		return r.rep, err
	}
	if plan == nil {
		plan, err = r.prepareFolders(ctx)
		if err != nil {
			return r.rep, err
		}
	}
	if err := r.moveIntoPlace(plan); err != nil {
		return r.rep, fmt.Errorf(
			"%w (everything is prepared in %s: run the same command again, and it goes on)",
			err,
			r.stageFiles(),
		)
	}
	r.rep.Seconds = r.now().Sub(began).Seconds()
	return r.rep, nil
}

// configPath is the muster.yaml that is there, or else the backup's.
func (r *restoreRun) configPath() (*conffile.Config, error) {
	config, err := conffile.Load(r.config)
	if !errors.Is(err, fs.ErrNotExist) {
		return config, err
	}
	for _, file := range r.m.Files {
		if file.Kind != kindConfig {
			continue
		}
		data, err := r.folder.readContent(file)
		if err != nil {
			return nil, err
		}
		folder, err := filepath.Abs(filepath.Dir(r.config))
		if err != nil {
			return nil, err
		}
		return conffile.Parse(
			conffile.Source{Name: r.config, Folder: folder, Data: data, Mode: file.Mode},
		)
	}
	return nil, fmt.Errorf("%w: it has no muster.yaml", errBackupBroken)
}

// findInterrupted finds the plan of a restore that was interrupted while it moved things. One
// that was interrupted before begins again.
func (r *restoreRun) findInterrupted() (*restorePlan, error) {
	data, err := os.ReadFile(filepath.Join(r.stageFiles(), planName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	plan := &restorePlan{}
	if err := json.Unmarshal(data, plan); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(r.stageFiles(), planName), err)
	}
	if plan.Backup != r.m.Name || plan.Config != r.config {
		return nil, fmt.Errorf(
			"%w: it was of backup %s with %s: end it first (muster restore --from FOLDER --at %s --config %s)",
			errRestoreUnended,
			plan.Backup,
			plan.Config,
			plan.Backup,
			plan.Config,
		)
	}
	return plan, nil
}

// refuseUsed refuses a state folder that has a ledger or a part of one.
func (r *restoreRun) refuseUsed() error {
	var found []string
	for _, pattern := range []string{
		filepath.Join(r.cfg.StateDir, "ledger", "raft", "*.wal"), filepath.Join(r.cfg.StateDir, "ledger", "snapshots", "*"),
		filepath.Join(r.cfg.Ledger.ArchiveDir, "segments", "*"), filepath.Join(r.cfg.Ledger.ArchiveDir, "snapshots", "*"),
		filepath.Join(r.cfg.Ledger.ArchiveDir, "chain", "*"),
		filepath.Join(r.cfg.StateDir, "content", "*.blobs"),
	} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			found = append(found, names[0])
		}
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf(
		"%w, and nothing in it is overwritten: it has %s; if the ledger is only damaged, musterd ledger rebuild loses less; "+
			"else move it aside: mv %s %s.old",
		errNotEmpty,
		strings.Join(found, ", "),
		r.cfg.StateDir,
		r.cfg.StateDir,
	)
}

// prepareFolders makes everything in folders beside its place, checks it and writes the plan.
func (r *restoreRun) prepareFolders(ctx context.Context) (*restorePlan, error) {
	if err := r.refuseUsed(); err != nil {
		return nil, err
	}
	made, err := r.makeFolders()
	if err != nil {
		return nil, err
	}
	plan := &restorePlan{
		Backup: r.m.Name,
		Config: r.config,
		Remove: []string{r.stageArchive(), r.stageFiles()},
	}
	err = r.prepareFiles(plan)
	if err == nil {
		err = r.refuseLiving(ctx, plan)
	}
	if err == nil {
		err = r.prepareLedger(plan)
	}
	if err == nil {
		err = r.writePlan(plan, made)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(r.stageArchive()), os.RemoveAll(r.stageFiles()))
	}
	return plan, nil
}

// makeFolders makes the folders in which the restore is prepared, and tells which
// folders above them it made, which get the owner of the state folder.
func (r *restoreRun) makeFolders() (made []string, err error) {
	for _, dir := range []struct {
		path string
		mode fs.FileMode // of the folder above, if it is made
	}{{r.stageFiles(), 0o755}, {r.stageArchive(), 0o700}} {
		if err := os.RemoveAll(dir.path); err != nil {
			return nil, err
		}
		parent := filepath.Dir(dir.path)
		for at := parent; fileAbsent(at); at = filepath.Dir(at) {
			made = append(made, at)
		}
		if err := errors.Join(os.MkdirAll(parent, dir.mode), os.Mkdir(dir.path, 0o700)); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// verifyChain refuses a backup whose batches are not those that were backed up. Backups of
// releases without a chain have none; their fold is compared all the same.
func (r *restoreRun) verifyChain() error {
	var found []error
	dir := r.folder.historyPath(r.m.History)
	_, err := archive.VerifyChain(dir, nil, func(err error) { found = append(found, err) })
	if errors.Is(err, archive.ErrNoChain) {
		return nil
	}
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%w: %w", errBackupBroken, errors.Join(found...))
	}
	return err
}

// prepareLedger copies archive and contents, folds them, compares the state with the
// one that was backed up, and makes a log that begins with it.
func (r *restoreRun) prepareLedger(plan *restorePlan) error {
	if err := r.verifyChain(); err != nil {
		return err
	}
	machine, blobs, arch, err := r.copyLedger(
		r.stageArchive(),
		filepath.Join(r.stageFiles(), "content"),
	)
	if err != nil {
		return err
	}
	cluster := machine.Applied()
	_, err = arch.Sync()
	err = errors.Join(err, blobs.Sync())
	if err != nil {
		return errors.Join(err, arch.Close(), blobs.Close())
	}
	if n := countMissing(cluster, blobs); n > 0 {
		r.rep.Warnings = append(
			r.rep.Warnings,
			fmt.Sprintf(
				"%d scripts or environments of jobs that are not over are missing in the backup: these jobs cannot start again",
				n,
			),
		)
	}
	if err := errors.Join(arch.Close(), blobs.Close()); err != nil {
		return err
	}
	if err := care.WriteLog(filepath.Join(r.stageFiles(), "ledger"), machine, r.m.Position); err != nil {
		return err
	}
	// The ledger is last: a controller that finds archive or contents without it refuses.
	plan.Moves = []plannedMove{
		{
			filepath.Join(r.stageArchive(), "snapshots"),
			filepath.Join(r.cfg.Ledger.ArchiveDir, "snapshots"),
		},
		{
			filepath.Join(r.stageArchive(), "chain"),
			filepath.Join(r.cfg.Ledger.ArchiveDir, "chain"),
		},
		{
			filepath.Join(r.stageArchive(), "segments"),
			filepath.Join(r.cfg.Ledger.ArchiveDir, "segments"),
		},
		{filepath.Join(r.stageFiles(), "content"), filepath.Join(r.cfg.StateDir, "content")},
		{filepath.Join(r.stageFiles(), "ledger"), filepath.Join(r.cfg.StateDir, "ledger")},
	}
	return nil
}

// countMissing counts the contents that jobs need which are not over.
func countMissing(cluster *state.State, blobs *store.Blobs) int {
	missing := map[spec.Hash]bool{}
	cluster.Jobs.Range(func(_ uint64, job *state.Job) bool {
		for _, hash := range []spec.Hash{job.Spec.Script, job.Spec.Env} {
			if hash != (spec.Hash{}) && !job.State.Terminal() && !blobs.Has(hash) {
				missing[hash] = true
			}
		}
		return true
	})
	return len(missing)
}

// copyLedger copies contents, and the history up to the backup's end, and folds what was
// copied.
func (r *restoreRun) copyLedger(
	archiveDir, contentDir string,
) (_ *daemon.Machine, _ *store.Blobs, _ *store.Archive, err error) {
	if err := copyBlobs(r.folder.contentsDir(), contentDir, r.tell); err != nil {
		return nil, nil, nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	blobs, err := store.OpenBlobs(contentDir, quiet)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%w: %w", errBackupBroken, err)
	}
	to, err := store.OpenArchive(archiveDir, quiet)
	if err != nil {
		return nil, nil, nil, errors.Join(err, blobs.Close())
	}
	machine := daemon.NewMachine(r.codec, to, blobs)
	if err := r.foldHistory(to, to.Disk.PutSnapshot, machine); err != nil {
		return nil, nil, nil, errors.Join(err, to.Close(), blobs.Close())
	}
	return machine, blobs, to, nil
}

// foldHistory hands the backup's batches to an archive and folds them, from the first on
// or from the first snapshot where the beginning had been dropped, and compares the state
// with the one that was backed up.
func (r *restoreRun) foldHistory(
	to daemon.Archive,
	put func(position, seq uint64, state io.Reader) error,
	machine *daemon.Machine,
) (err error) {
	from, err := store.OpenArchive(r.folder.historyPath(r.m.History), slog.New(slog.DiscardHandler))
	if err != nil {
		return fmt.Errorf("%w: %w", errBackupBroken, err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	first, last := from.Disk.Bounds()
	if last < r.m.Position {
		return fmt.Errorf(
			"%w: %s ends at batch %d, before %d",
			errBackupBroken,
			r.folder.historyPath(r.m.History),
			last,
			r.m.Position,
		)
	}
	start, err := r.startOf(from.Disk, put, machine, first)
	if err != nil {
		return err
	}
	for iterator := from.Disk.ReadFrom(first); ; {
		record, err := iterator.Next()
		if errors.Is(err, io.EOF) || err == nil && record.Pos > r.m.Position {
			return r.checkFold(machine.Applied())
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errBackupBroken, err)
		}
		if record.Pos <= start {
			err = to.Append(record.Pos, record.FirstSeq, record.LastSeq, record.Batch)
		} else {
			err = machine.Apply(record.Pos, daemon.Batch(record.Batch))
		}
		if err != nil {
			return fmt.Errorf("batch %d: %w", record.Pos, err)
		}
		r.tell.tellProgress("folding", record.Pos-first+1, r.m.Position-first+1, "batches")
	}
}

// startOf restores the first snapshot of a history whose beginning had been dropped
// when it was first copied; its position is where folding starts.
func (r *restoreRun) startOf(
	from *archive.Archive,
	put func(position, seq uint64, state io.Reader) error,
	machine *daemon.Machine,
	first uint64,
) (uint64, error) {
	if first <= 1 {
		return 0, nil
	}
	all, err := from.Snapshots()
	if err != nil {
		return 0, err
	}
	if len(all) == 0 || all[0].Pos+1 < first || all[0].Pos > r.m.Position {
		return 0, fmt.Errorf(
			"%w: %s begins at batch %d and has no snapshot of it",
			errBackupBroken,
			r.folder.historyPath(r.m.History),
			first,
		)
	}
	s, err := from.OpenSnapshot(all[0])
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errBackupBroken, err)
	}
	data, err := io.ReadAll(s)
	err = errors.Join(err, s.Close())
	if err == nil {
		err = machine.Restore(bytes.NewReader(data))
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errBackupBroken, err)
	}
	return all[0].Pos, put(all[0].Pos, all[0].Seq, bytes.NewReader(data))
}

// checkFold compares the state with the one that was backed up.
func (r *restoreRun) checkFold(cluster *state.State) error {
	if err := cluster.Check(); err != nil {
		return fmt.Errorf("%w: event %d: %w", errRestoreDiffers, cluster.Seq, err)
	}
	if cluster.Seq != r.m.Event {
		return fmt.Errorf(
			"%w: it ends at event %d instead of %d",
			errRestoreDiffers,
			cluster.Seq,
			r.m.Event,
		)
	}
	if r.m.StateVersion != state.SnapshotVersion {
		r.rep.Warnings = append(
			r.rep.Warnings,
			fmt.Sprintf(
				"the backup was made by release %s, which hashed states in another way: the state was folded and checked, but not compared",
				r.m.Release,
			),
		)
		return nil
	}
	if got := fmt.Sprintf("%x", cluster.Hash()); got != r.m.State {
		return fmt.Errorf(
			"%w: event %d has the hash %s instead of %s: restore another backup with --at",
			errRestoreDiffers,
			cluster.Seq,
			got,
			r.m.State,
		)
	}
	return nil
}

// copyBlobs copies the files of a store of contents.
func copyBlobs(from, to string, tell *teller) error {
	if _, err := blob.Examine(from, func(error) {}); err != nil {
		return fmt.Errorf("%w: %w", errBackupBroken, err)
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	names, err := plainFiles(from)
	if err != nil {
		return err
	}
	for i, name := range names {
		if strings.HasSuffix(name, ".tmp") {
			continue
		}
		if err := copyDurably(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
		tell.tellProgress(
			"restoring",
			uint64(i+1),
			uint64(len(names)),
			"files of scripts and environments",
		)
	}
	return durable.SyncDir(to)
}

// copyDurably copies a file to the disk.
func copyDurably(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close(), in.Close())
}

// prepareFiles prepares the files beside the ledger. What is there stays: the folder of
// an administrator may be newer than the backup.
func (r *restoreRun) prepareFiles(plan *restorePlan) error {
	dir := filepath.Join(r.stageFiles(), "files")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	var config []plannedFile
	for i, file := range r.m.Files {
		to, err := r.placeOf(file)
		if err != nil {
			return err
		}
		data, err := r.folder.readContent(file)
		if err != nil {
			return err
		}
		have, err := os.ReadFile(to)
		switch {
		case err == nil && sha256Hex(have) == file.SHA256:
			continue
		case err == nil:
			r.rep.Kept = append(r.rep.Kept, to)
			continue
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		planned := plannedFile{From: filepath.Join(dir, strconv.Itoa(i)), To: to, File: file}
		if err := durable.WriteFile(planned.From, data, 0o600); err != nil {
			return err
		}
		r.rep.Restored = append(r.rep.Restored, to)
		if file.Kind == kindConfig {
			config = append(config, planned)
		} else {
			plan.Files = append(plan.Files, planned)
		}
	}
	mark := plannedFile{
		From: filepath.Join(dir, restoredMark),
		To:   filepath.Join(r.cfg.StateDir, restoredMark),
		File: backupFile{Mode: 0o600, Owner: r.m.StateOwner},
	}
	if err := durable.WriteFile(mark.From, []byte(r.m.Name+"\n"), 0o600); err != nil {
		return err
	}
	plan.Files = append(plan.Files, mark)
	plan.Files = append(plan.Files, config...) // nothing starts without it
	return nil
}

// placeOf is where a file belongs by the configuration in force.
func (r *restoreRun) placeOf(file backupFile) (string, error) {
	dir := ""
	switch file.Kind {
	case kindConfig:
		return filepath.Abs(r.config)
	case kindSlurm:
		if file.Name == "" {
			return r.cfg.SlurmConf, nil
		}
		if filepath.IsAbs(file.Name) {
			return file.Name, nil
		}
		dir = filepath.Dir(r.cfg.SlurmConf)
	case kindTLS:
		dir = r.cfg.TLS.Dir
	case kindState:
		dir = r.cfg.StateDir
	case kindKey:
		place := file.From // the key is not set here: keep the file where it was
		r.cfg.EachPath(func(key, path string) {
			if key == file.Name {
				place = path
			}
		})
		return place, nil
	default:
		return "", fmt.Errorf(
			"%w: %s is of the unknown kind %q: use the release that made it (%s)",
			errBackupBroken,
			file.From,
			file.Kind,
			r.m.Release,
		)
	}
	if !filepath.IsLocal(file.Name) {
		return "", fmt.Errorf("%w: %s", errRestoreElsewhere, file.Name)
	}
	return filepath.Join(dir, file.Name), nil
}

// refuseLiving refuses a restore where another controller of the group has the ledger:
// this one is taken in again with an empty state folder and gets everything from there.
func (r *restoreRun) refuseLiving(ctx context.Context, plan *restorePlan) error {
	config := *r.cfg
	if fileAbsent(config.SlurmConf) {
		var err error
		config.SlurmConf, err = r.prepareFolder(
			plan, kindSlurm, "conf", filepath.Base(config.SlurmConf),
		)
		if err != nil {
			return err
		}
	}
	who, self, err := conffile.ReadControllers(&config)
	if err != nil || self == nil {
		return err
	}
	tls := config.TLS.Dir
	if fileAbsent(filepath.Join(tls, "ca.crt")) {
		tls, err = r.prepareFolder(plan, kindTLS, "tls", "")
		if err != nil {
			return err
		}
	}
	source, err := pki.LoadSource(pki.Dir(tls))
	if err != nil {
		return fmt.Errorf(
			"this host's certificate in %s, with which the other controllers are asked: %w",
			tls,
			err,
		)
	}
	for _, answer := range peers.NewAsker(*self, who, source).AskOthers(ctx) {
		if answer.Err == nil && !answer.Standing.Waits {
			return fmt.Errorf(
				"%w: %s at %s; start this one with an empty state folder, and it gets everything from there; "+
					"to go back to the backup all the same, stop the others and move their state folders aside first",
				errGroupLives,
				answer.Of.Name,
				answer.Of.Address,
			)
		}
	}
	return nil
}

// prepareFolder makes a folder of the prepared files of a kind, which have no place yet, and
// names the file in it that has no name of its own.
func (r *restoreRun) prepareFolder(
	plan *restorePlan,
	kind fileKind,
	folder, nameless string,
) (string, error) {
	dir := filepath.Join(r.stageFiles(), folder)
	for _, file := range plan.Files {
		name := cmp.Or(file.File.Name, nameless)
		if file.File.Kind != kind || !filepath.IsLocal(name) {
			continue
		}
		to := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), copyDurably(file.From, to)); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, nameless), nil
}

// writePlan gives what was prepared its owner, puts everything on the disk, and writes
// the plan last.
func (r *restoreRun) writePlan(plan *restorePlan, made []string) error {
	for _, dir := range []string{r.stageFiles(), r.stageArchive()} {
		if err := r.ownTree(dir); err != nil {
			return err
		}
	}
	for _, dir := range made {
		if err := changeOwner(dir, r.m.StateOwner); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(plan, "", "  ")
	if err != nil {
		return err
	}
	for _, dir := range []string{r.stageArchive(), r.cfg.Ledger.ArchiveDir, r.cfg.StateDir} {
		if err := durable.SyncDir(dir); err != nil {
			return err
		}
	}
	return durable.WriteFile(filepath.Join(r.stageFiles(), planName), data, 0o600)
}

// ownTree gives a folder and what is in it to who owned the state folder.
func (r *restoreRun) ownTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, changeOwner(path, r.m.StateOwner))
	})
}

// changeOwner changes an owner, which only root may; anybody else restores for himself.
func changeOwner(path string, owner fileOwner) error {
	if os.Geteuid() != 0 || owner.User == "" {
		return nil
	}
	return os.Lchown(path, idOf(owner.User, lookupUser), idOf(owner.Group, lookupGroup))
}

// idOf finds a user's or a group's number here; -1, which changes nothing, where there
// is no such name.
func idOf(name string, lookup func(string) (string, error)) int {
	if found, err := lookup(name); err == nil {
		name = found
	}
	id, err := strconv.Atoi(name)
	if err != nil {
		return -1
	}
	return id
}

func lookupUser(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return u.Uid, nil
}

func lookupGroup(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", err
	}
	return g.Gid, nil
}

// moveIntoPlace moves what was prepared to its place. Each step can be repeated.
func (r *restoreRun) moveIntoPlace(plan *restorePlan) error {
	for _, step := range plan.listSteps() {
		if err := step(); err != nil {
			return err
		}
	}
	return errors.Join(durable.SyncDir(r.cfg.Ledger.ArchiveDir), durable.SyncDir(r.cfg.StateDir))
}

// listSteps are what is to be done, in order.
func (p *restorePlan) listSteps() []func() error {
	var out []func() error
	for _, move := range p.Moves {
		out = append(out, func() error { return moveFolder(move) })
	}
	for _, file := range p.Files {
		out = append(out, func() error { return placeFile(file) })
	}
	for _, dir := range p.Remove {
		out = append(out, func() error { return os.RemoveAll(dir) })
	}
	return out
}

// moveFolder renames a folder to where an empty one may be, left by a controller that
// did not start.
func moveFolder(move plannedMove) error {
	if fileAbsent(move.From) {
		return nil // moved already
	}
	if filepath.Base(move.To) == "ledger" {
		if err := removeEmptyLog(move.To); err != nil {
			return err
		}
	}
	// os.Rename takes no folder's place, not even an empty one's. Remove takes only that.
	if err := os.Remove(move.To); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errNotEmpty, err)
	}
	if err := os.Rename(move.From, move.To); err != nil {
		return err
	}
	return errors.Join(durable.SyncDir(filepath.Dir(move.To)), durable.SyncDir(filepath.Dir(move.From)))
}

// removeEmptyLog removes a log's folder that has no entries: a controller that waits to
// be taken into a group makes it.
func removeEmptyLog(dir string) error {
	if fileAbsent(dir) {
		return nil
	}
	fresh, err := log.Fresh(log.OS(), dir)
	if err != nil {
		return err
	}
	if !fresh {
		return fmt.Errorf("%w: a log was begun in %s meanwhile", errNotEmpty, dir)
	}
	return os.RemoveAll(dir)
}

// placeFile writes a file whole, with its permissions and its owner.
func placeFile(file plannedFile) error {
	if fileAbsent(file.From) || !fileAbsent(file.To) {
		return nil
	}
	data, err := os.ReadFile(file.From)
	if err != nil {
		return err
	}
	if err := makeFolderOf(file); err != nil {
		return err
	}
	if err := durable.WriteFile(file.To, data, file.File.Mode.Perm()); err != nil {
		return err
	}
	return changeOwner(file.To, file.File.Owner)
}

// makeFolderOf makes the folder of a file: one for keys is closed to others, and belongs
// to who owns the file.
func makeFolderOf(file plannedFile) error {
	dir := filepath.Dir(file.To)
	if !fileAbsent(dir) {
		return nil
	}
	mode := fs.FileMode(0o755)
	if file.File.Kind == kindTLS {
		mode = 0o700
	}
	return errors.Join(os.MkdirAll(dir, mode), changeOwner(dir, file.File.Owner))
}

// check folds a backup and reads everything that belongs to it, and restores nothing.
func (r *restoreRun) check() (_ restoreReport, err error) {
	began := r.now()
	r.codec, err = event.NewCodec()
	if err != nil {
		return r.rep, err
	}
	r.rep = r.newReport()
	r.rep.Checked = true
	for _, file := range r.m.Files {
		if _, err := r.folder.readContent(file); err != nil {
			return r.rep, err
		}
	}
	bad := 0
	damaged := func(damage error) {
		bad++
		r.rep.Warnings = append(r.rep.Warnings, damage.Error())
	}
	if _, err := blob.Examine(r.folder.contentsDir(), damaged); err != nil {
		return r.rep, err
	}
	blobs, err := store.OpenBlobs(r.folder.contentsDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		return r.rep, fmt.Errorf("%w: %w", errBackupBroken, err)
	}
	defer func() { err = errors.Join(err, blobs.Close()) }()
	if err := r.verifyChain(); err != nil {
		return r.rep, err
	}
	machine := daemon.NewMachine(r.codec, unarchived{}, blobs)
	nowhere := func(_, _ uint64, _ io.Reader) error { return nil }
	if err := r.foldHistory(unarchived{}, nowhere, machine); err != nil {
		return r.rep, err
	}
	if missing := countMissing(machine.Applied(), blobs); bad > 0 || missing > 0 {
		return r.rep, fmt.Errorf(
			"%w: %d damaged places in %s, %d scripts or environments of jobs that are not over are missing",
			errBackupBroken,
			bad,
			r.folder.contentsDir(),
			missing,
		)
	}
	r.rep.Seconds = r.now().Sub(began).Seconds()
	return r.rep, nil
}

func (r *restoreRun) newReport() restoreReport {
	return restoreReport{
		Backup:   r.m.Name,
		Folder:   r.folder.dir,
		Cluster:  r.m.Cluster,
		Event:    r.m.Event,
		EventAt:  r.m.At,
		State:    r.m.State,
		Restored: []string{},
		Kept:     []string{},
		Warnings: []string{},
	}
}
