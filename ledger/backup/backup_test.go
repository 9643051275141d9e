package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/care"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/ledger/store/storetest"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// site is a controller's host: a state folder with a history, and configuration.
type site struct {
	*storetest.Folder
	config string
	to     string // folder of backups
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Folder: storetest.NewFolder(t), to: filepath.Join(t.TempDir(), "backups")}
	s.config = siteConfig(t, s.Dir)
	files := map[string]string{
		filepath.Join(filepath.Dir(s.config), "slurm.conf"): "ClusterName=peer\nNodeName=n[1-8] CPUs=8\nPartitionName=main Nodes=ALL\nInclude more.conf\n",
		filepath.Join(filepath.Dir(s.config), "more.conf"):  "MinJobAge=60\n",
		filepath.Join(s.Dir, "tls", "ca.key"):               "the authority's key",
		filepath.Join(s.Dir, "credential.keys"):             "keys",
		filepath.Join(s.Dir, "cluster"):                     "peer\n",
	}
	for path, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// siteConfig writes a muster.yaml for a state folder.
func siteConfig(t *testing.T, state string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "muster.yaml")
	text := fmt.Sprintf("state_dir: %s\nrun_dir: %s\nslurm_conf: slurm.conf\n", state, filepath.Join(dir, "run"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// grow writes batches, and scripts of the last jobs.
func (s *site) grow(batches int) {
	s.T.Helper()
	if err := s.Run(func(l *log.Durable, _ *daemon.Machine, _ *store.Archive) { s.Write(l, batches) }); err != nil {
		s.T.Fatal(err)
	}
}

func (s *site) backup() (backupReport, error) {
	var out bytes.Buffer
	err := makeBackup(s.T.Context(), &backupOptions{folder: s.to, config: s.config, json: true}, &out, io.Discard)
	var rep backupReport
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &rep)
	}
	return rep, err
}

// backedUp is a backup with the state that it must restore.
type backedUp struct {
	backupReport
	hash string
}

func (s *site) mustBackup() backedUp {
	s.T.Helper()
	rep, err := s.backup()
	if err != nil {
		s.T.Fatal(err)
	}
	time.Sleep(time.Millisecond) //muster:sleep the next one has another name
	return backedUp{rep, fmt.Sprintf("%x", s.History.State.Hash())}
}

// restore restores a backup to a host of its own and gives its state folder.
func (s *site) restore(at string) (dir string, rep restoreReport, err error) {
	dir = s.T.TempDir()
	rep, err = restoreTo(s.T.Context(), s.to, at, siteConfig(s.T, dir))
	return dir, rep, err
}

func restoreTo(ctx context.Context, from, at, config string) (rep restoreReport, err error) {
	var out bytes.Buffer
	err = restoreBackup(ctx, &backupOptions{folder: from, at: at, config: config, json: true}, &out, io.Discard)
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &rep)
	}
	return rep, err
}

// stateOf opens a state folder as a controller does and gives the hash of its state.
func stateOf(t *testing.T, dir string) (hash string) {
	t.Helper()
	f := storetest.NewFolder(t)
	f.Dir = dir
	if err := f.Run(func(_ *log.Durable, m *daemon.Machine, _ *store.Archive) {
		hash = fmt.Sprintf("%x", m.Applied().Hash())
	}); err != nil {
		t.Fatal(err)
	}
	return hash
}

// TestBackupsAreIncremental makes backups as a history grows. Each copies what is new,
// each can be restored to another host, and folds there to the state that it was made
// of; the ledger goes on from it.
func TestBackupsAreIncremental(t *testing.T) {
	s := newSite(t)
	var all []backedUp
	for round, batches := range []int{12, 1, 0, 30} {
		before := s.History.State.Seq
		if round == 0 {
			before = 0
		}
		s.grow(batches)
		b := s.mustBackup()
		if b.Event != s.History.State.Seq || b.NewEvents != s.History.State.Seq-before || b.State != b.hash {
			t.Errorf("backup %d: %+v, at event %d behind %d", round, b, s.History.State.Seq, before)
		}
		if want := map[bool]int{true: 6}[round == 0]; b.Files != 6 || b.NewFiles != want {
			t.Errorf("backup %d: %d of %d files are new", round, b.NewFiles, b.Files)
		}
		all = append(all, b)
	}
	for _, b := range all {
		dir, rep, err := s.restore(b.Backup)
		if err != nil {
			t.Fatal(err)
		}
		if got := stateOf(t, dir); got != b.hash || rep.State != b.hash || rep.Event != b.Event {
			t.Errorf("%s: restored %s as %+v, backed up %s", b.Backup, got, rep, b.hash)
		}
		// Its configuration: slurm.conf and more.conf came back, muster.yaml was there.
		if len(rep.Kept) != 1 || len(rep.Restored) != 5 {
			t.Errorf("%s: restored %v, kept %v", b.Backup, rep.Restored, rep.Kept)
		}
		if key, err := os.ReadFile(filepath.Join(dir, "tls", "ca.key")); err != nil || string(key) != "the authority's key" {
			t.Errorf("the authority's key: %q, %v", key, err)
		}
		care := &care.Care{State: dir, Archive: filepath.Join(dir, "archive"), Out: io.Discard}
		if err := care.VerifyLedger(); err != nil {
			t.Errorf("%s: %v", b.Backup, err)
		}
	}
}

// TestContentsAreBackedUp: scripts that jobs name come back, with their hashes.
func TestContentsAreBackedUp(t *testing.T) {
	s := newSite(t)
	blobs, err := store.OpenBlobs(filepath.Join(s.Dir, "content"), discard())
	if err != nil {
		t.Fatal(err)
	}
	script, err := blobs.Put([]byte("#!/bin/sh\nsleep 10\n"))
	if err := errors.Join(err, blobs.Close()); err != nil {
		t.Fatal(err)
	}
	s.History.Submit(tallytest.Ask{Name: "scripted", User: "alice", UID: 1001, Account: "ml", QOS: "normal", CPUs: 1, Mem: 10, Script: script})
	s.grow(2)
	// The scripts of the other jobs are nowhere, and that is said.
	if b := s.mustBackup(); b.NewContents != 1 || len(b.Warnings) != 1 || !strings.HasPrefix(b.Warnings[0], "1 scripts") {
		t.Errorf("%+v", b)
	}
	dir, rep, err := s.restore("")
	if err != nil || len(rep.Warnings) != 1 || !strings.HasPrefix(rep.Warnings[0], "1 scripts") {
		t.Fatal(err, rep.Warnings)
	}
	back, err := store.OpenBlobs(filepath.Join(dir, "content"), discard())
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	if data, err := back.Get(script); err != nil || string(data) != "#!/bin/sh\nsleep 10\n" {
		t.Errorf("%q, %v", data, err)
	}
}

// TestRestoreRefuses: a state folder with a ledger, a folder that others may read, one
// without backups, backups of another cluster, a second backup at the same time.
func TestRestoreRefuses(t *testing.T) {
	s := newSite(t)
	s.grow(5)
	b := s.mustBackup()
	if _, err := restoreTo(t.Context(), s.to, "", s.config); !errors.Is(err, errNotEmpty) || !strings.Contains(err.Error(), "mv "+s.Dir) {
		t.Errorf("over a ledger: %v", err)
	}
	if got := stateOf(t, s.Dir); got != b.hash {
		t.Error("the refused restore changed the ledger")
	}
	if _, _, err := s.restore("2020-01-01T00:00"); !errors.Is(err, errNoBackup) || !strings.Contains(err.Error(), b.Backup) {
		t.Errorf("a time before all backups: %v", err)
	}
	if _, _, err := s.restore("last week"); !errors.Is(err, errNoBackup) {
		t.Errorf("neither a name nor a time: %v", err)
	}
	if _, err := restoreTo(t.Context(), t.TempDir(), "", s.config); !errors.Is(err, errBackupOpen) && !errors.Is(err, errBackupFolder) {
		t.Errorf("a folder without backups: %v", err)
	}
	held, err := openBackups(s.to, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&backupRun{folder: held}).lastOf(ledgerHeadline{cluster: "other", uuid: [16]byte{9}}); !errors.Is(err, errBackupOther) {
		t.Errorf("of another cluster: %v", err)
	}
	if _, err := s.backup(); !errors.Is(err, log.ErrLocked) {
		t.Errorf("beside another backup: %v", err)
	}
	if err := held.close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(s.to, 0o750); err != nil {
		t.Fatal(err)
	}
	if _, err := s.backup(); !errors.Is(err, errBackupOpen) {
		t.Errorf("to a folder that others may read: %v", err)
	}
}

// TestARestoreEndsOrDoesNotBegin interrupts a restore behind each of its steps. Until it
// is run again no controller starts; then everything is there.
func TestARestoreEndsOrDoesNotBegin(t *testing.T) {
	s := newSite(t)
	s.grow(8)
	b := s.mustBackup()
	for k := 0; ; k++ {
		dir := t.TempDir()
		config := siteConfig(t, dir)
		folder, err := openBackups(s.to, false)
		if err != nil {
			t.Fatal(err)
		}
		m, err := folder.pickBackup("")
		if err != nil {
			t.Fatal(err)
		}
		r := &restoreRun{folder: folder, m: m, config: config, tell: &teller{out: io.Discard}, now: time.Now}
		if r.cfg, err = r.configPath(); err != nil {
			t.Fatal(err)
		}
		if r.codec, err = event.NewCodec(); err != nil {
			t.Fatal(err)
		}
		plan, err := r.prepareFolders(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		steps := plan.listSteps()
		for _, step := range steps[:k] {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		if err := folder.close(); err != nil {
			t.Fatal(err)
		}
		if k == len(steps) {
			if err := RefuseRestoring(dir); err != nil {
				t.Errorf("at the end: %v", err)
			}
			break
		}
		if err := RefuseRestoring(dir); !errors.Is(err, errRestoreUnended) {
			t.Errorf("a controller after %d of %d steps: %v", k, len(steps), err)
		}
		if _, err := restoreTo(t.Context(), s.to, "", config); err != nil {
			t.Fatalf("again after %d of %d steps: %v", k, len(steps), err)
		}
		if got := stateOf(t, dir); got != b.hash || RefuseRestoring(dir) != nil {
			t.Errorf("after %d of %d steps: %s, %v", k, len(steps), got, RefuseRestoring(dir))
		}
	}
	// Interrupted before anything was moved, it begins again.
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, restoringDir, "content"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := restoreTo(t.Context(), s.to, "", siteConfig(t, dir)); err != nil {
		t.Fatal(err)
	}
	if got := stateOf(t, dir); got != b.hash {
		t.Error("it restored something else")
	}
}

// TestAPartedHistoryBeginsAnew: after an older backup was restored and the ledger went on
// from there, the next backup keeps both histories, and each can be restored.
func TestAPartedHistoryBeginsAnew(t *testing.T) {
	s := newSite(t)
	s.epoch(1)
	s.grow(6)
	old := s.mustBackup()
	copied := s.History.Copy()
	sent := s.Sent
	s.grow(6)
	newer := s.mustBackup()

	dir, _, err := s.restore(old.Backup)
	if err != nil {
		t.Fatal(err)
	}
	s.Dir, s.config = dir, siteConfig(t, dir)
	if err := os.WriteFile(filepath.Join(filepath.Dir(s.config), "slurm.conf"), []byte("ClusterName=peer\nNodeName=n[1-8] CPUs=8\nPartitionName=main Nodes=ALL\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.History, s.Sent = copied, sent
	s.epoch(2)
	s.grow(9)
	parted := s.mustBackup()
	if parted.History == newer.History || !strings.Contains(parted.Warnings[0], "older copy") || parted.NewEvents != s.History.State.Seq {
		t.Errorf("%+v", parted)
	}
	s.grow(1)
	further := s.mustBackup()
	if further.History != parted.History || further.NewEvents == 0 || further.NewEvents > 5 {
		t.Errorf("%+v", further)
	}
	for _, b := range []backedUp{old, newer, parted, further} {
		dir, _, err := s.restore(b.Backup)
		if err != nil {
			t.Fatal(err)
		}
		if got := stateOf(t, dir); got != b.hash {
			t.Errorf("%s: %s instead of %s", b.Backup, got, b.hash)
		}
	}
}

// epoch begins an epoch, as a controller does when it begins to lead.
func (s *site) epoch(value uint64) { s.History.Put(&event.EpochBegan{Value: value}) }

// TestADroppedBeginning: a ledger whose archive lost its beginning to the retention is
// backed up from a snapshot on, and restored from there.
func TestADroppedBeginning(t *testing.T) {
	s := newSite(t)
	s.grow(20)
	dir := filepath.Join(s.Dir, "archive")
	a, err := archive.Open(dir, archive.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var last archive.Record
	var kept []archive.Record
	for it := a.ReadFrom(1); ; {
		r, err := it.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		r.Batch = slices.Clone(r.Batch)
		if r.Pos > 12 {
			kept = append(kept, r)
		}
		last = r
	}
	encode := func(w io.Writer) error { return s.History.State.Encode(w) }
	var state bytes.Buffer
	if err := errors.Join(encode(&state), a.Close(), os.RemoveAll(dir)); err != nil {
		t.Fatal(err)
	}
	if a, err = archive.Open(dir, archive.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range kept {
		if err := a.Append(r.Pos, r.FirstSeq, r.LastSeq, r.Batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(a.PutSnapshot(last.Pos, last.LastSeq, &state), a.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b := s.mustBackup()
		dir, _, err := s.restore("")
		if err != nil {
			t.Fatal(err)
		}
		if got := stateOf(t, dir); got != b.hash {
			t.Errorf("%s instead of %s", got, b.hash)
		}
		s.grow(2)
	}
}

// TestADamagedBackupIsNoticed flips bits anywhere in a folder of backups: a restore fails,
// or gives the state that was backed up; the check fails or is right too.
func TestADamagedBackupIsNoticed(t *testing.T) {
	s := newSite(t)
	s.grow(10)
	s.mustBackup()
	s.grow(10)
	b := s.mustBackup()
	var files []string
	err := filepath.Walk(s.to, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && info.Size() > 0 {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(3, 3))
	noticed := 0
	whole := s.to
	for _, path := range files {
		if filepath.Base(path) == "LOCK" {
			continue
		}
		rel, err := filepath.Rel(whole, path)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			s.to = filepath.Join(t.TempDir(), "copy")
			if err := errors.Join(os.CopyFS(s.to, os.DirFS(whole)), os.Chmod(s.to, 0o700)); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			at := rnd.Int64N(info.Size())
			storetest.FlipBit(t, filepath.Join(s.to, rel), at)
			checked := restoreBackup(t.Context(), &backupOptions{folder: s.to, check: true}, io.Discard, io.Discard)
			dir, _, err := s.restore("")
			if err != nil {
				noticed++
				if entries, _ := os.ReadDir(dir); len(entries) > 1 || fileAbsent(filepath.Join(dir, "archive")) && len(entries) > 0 {
					t.Errorf("byte %d of %s: the failed restore left %v", at, rel, entries)
				}
				continue
			}
			if got := stateOf(t, dir); got != b.hash {
				t.Errorf("byte %d of %s: restored %s instead of %s (the check said %v)", at, rel, got, b.hash, checked)
			}
		}
	}
	if noticed < len(files) {
		t.Errorf("only %d flips were noticed", noticed)
	}
}

// TestTheLogsTailIsBackedUp: what a stopped controller's log has behind the archive's end
// is in the backup.
func TestTheLogsTailIsBackedUp(t *testing.T) {
	s := newSite(t)
	saved := t.TempDir()
	err := s.Run(func(l *log.Durable, _ *daemon.Machine, a *store.Archive) {
		s.Write(l, 5)
		if _, err := a.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(saved, os.DirFS(filepath.Join(s.Dir, "archive"))); err != nil {
			t.Fatal(err)
		}
		s.Write(l, 4)
	})
	if err == nil {
		err = errors.Join(os.RemoveAll(filepath.Join(s.Dir, "archive")), os.CopyFS(filepath.Join(s.Dir, "archive"), os.DirFS(saved)))
	}
	if err != nil {
		t.Fatal(err)
	}
	b := s.mustBackup()
	if b.Event != s.History.State.Seq {
		t.Errorf("backed up to event %d of %d", b.Event, s.History.State.Seq)
	}
	s.grow(1)
	if again := s.mustBackup(); again.History != b.History || again.State != again.hash {
		t.Errorf("%+v", again)
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestAChangedBackupIsNoticed: batches that are not those of the backup's hash chain are
// neither restored nor called whole.
func TestAChangedBackupIsNoticed(t *testing.T) {
	s := newSite(t)
	s.grow(10)
	s.mustBackup()
	path := filepath.Join(s.to, "history-1", "chain", "head")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := append(text[:len(text)-65:len(text)-65], bytes.Repeat([]byte("0"), 64)...)
	if err := os.WriteFile(path, append(other, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.restore(""); !errors.Is(err, errBackupBroken) || !strings.Contains(err.Error(), "not those that were written") {
		t.Errorf("restore: %v", err)
	}
	err = restoreBackup(t.Context(), &backupOptions{folder: s.to, check: true}, io.Discard, io.Discard)
	if !errors.Is(err, errBackupBroken) {
		t.Errorf("check: %v", err)
	}
}
