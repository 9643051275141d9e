package backup

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/spec"
)

// A folder of backups holds
//
//	backups/NAME.json  one for each backup, written last: what belongs to it
//	history-N/         an archive: the batches of all backups of one history, each once
//	content/           scripts and environments, each once
//	files/SHA256       keys, certificates and configuration, each content once
//	LOCK
//
// so that a further backup adds what is new, and one that was interrupted is not there.
type backupFolder struct {
	dir  string
	lock io.Closer
}

// Errors that a test or a caller tells apart.
var (
	errBackupFolder = errors.New("not a folder of backups")
	errBackupOpen   = errors.New("others may read it")
	errBackupOther  = errors.New("the folder holds backups of another cluster")
	errBackupBroken = errors.New("the backup is damaged")
	errNoBackup     = errors.New("there is no backup")
)

const backupFormat = 1

// backupManifest is what belongs to one backup.
type backupManifest struct {
	Format   int       `json:"format"`
	Name     string    `json:"name"`
	Made     time.Time `json:"made"`
	Release  string    `json:"release"`
	Host     string    `json:"host"`
	Cluster  string    `json:"cluster"`
	UUID     string    `json:"cluster_uuid"`
	History  string    `json:"history"` // folder of its batches
	Position uint64    `json:"position"`
	Event    uint64    `json:"event"`
	At       time.Time `json:"event_at"`
	// State is the hash of the state at Event, as the controller said it.
	State        string       `json:"state_sha256"`
	StateVersion uint32       `json:"state_version"`
	StateOwner   fileOwner    `json:"state_owner"`
	Files        []backupFile `json:"files"`
	// Sum is the SHA-256 of this document with an empty Sum.
	Sum string `json:"sum"`
}

// backupFile is a file beside the ledger. Where it belongs is found from its kind and
// muster.yaml, so that a backup can be restored to other folders.
type backupFile struct {
	Kind   fileKind    `json:"kind"`
	Name   string      `json:"name,omitempty"` // below the folder of its kind; of kindKey, the key of muster.yaml
	From   string      `json:"from"`           // where it was
	SHA256 string      `json:"sha256"`
	Mode   fs.FileMode `json:"mode"`
	Owner  fileOwner   `json:"owner"`
}

// fileKind says what a file is for.
type fileKind string

// The kinds of files.
const (
	kindConfig fileKind = "muster.yaml"
	kindSlurm  fileKind = "slurm" // slurm.conf (no name) and what is read with it
	kindTLS    fileKind = "tls"
	kindState  fileKind = "state"
	kindKey    fileKind = "key" // a file that a key of muster.yaml names
)

// fileOwner is who owns a file, by name where there is one.
type fileOwner struct {
	User  string `json:"user"`
	Group string `json:"group"`
}

const backupSuffix = ".json"

func (b *backupFolder) manifestsDir() string           { return filepath.Join(b.dir, "backups") }
func (b *backupFolder) contentsDir() string            { return filepath.Join(b.dir, "content") }
func (b *backupFolder) historyPath(name string) string { return filepath.Join(b.dir, name) }
func (b *backupFolder) filePath(sum string) string     { return filepath.Join(b.dir, "files", sum) }

// openBackups opens a folder of backups; with make it may be empty or absent.
func openBackups(dir string, create bool) (*backupFolder, error) {
	backup := &backupFolder{dir: dir}
	if create {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf(
			"%s: %w (mode %04o), and it holds the cluster's keys: chmod 700 it",
			dir,
			errBackupOpen,
			mode,
		)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	_, err = os.Stat(backup.manifestsDir())
	known := err == nil
	if !known && (!create || len(names) > 0) {
		return nil, fmt.Errorf(
			"%s: %w, it has no folder backups (muster backup --to makes one in an empty or a new folder)",
			dir,
			errBackupFolder,
		)
	}
	backup.lock, err = log.OS().Lock(filepath.Join(dir, "LOCK"))
	if err != nil {
		if errors.Is(err, log.ErrLocked) {
			err = fmt.Errorf(
				"another backup or restore uses %s: wait until it has ended: %w",
				dir,
				err,
			)
		}
		return nil, err
	}
	for _, sub := range []string{backup.manifestsDir(), backup.contentsDir(), filepath.Join(dir, "files")} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return nil, errors.Join(err, backup.lock.Close())
		}
	}
	return backup, nil
}

func (b *backupFolder) close() error { return b.lock.Close() }

// listBackups gives all backups, oldest first.
func (b *backupFolder) listBackups() ([]*backupManifest, error) {
	entries, err := os.ReadDir(b.manifestsDir())
	if err != nil {
		return nil, err
	}
	var manifests []*backupManifest
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), backupSuffix)
		if !is || strings.HasPrefix(name, ".") {
			continue
		}
		manifest, err := b.readManifest(name)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, manifest)
	}
	slices.SortFunc(
		manifests,
		func(p, q *backupManifest) int { return cmp.Or(p.Made.Compare(q.Made), cmp.Compare(p.Name, q.Name)) },
	)
	return manifests, nil
}

// readManifest reads one backup's manifest.
func (b *backupFolder) readManifest(name string) (*backupManifest, error) {
	path := filepath.Join(b.manifestsDir(), name+backupSuffix)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	manifest := &backupManifest{}
	if err := json.Unmarshal(data, manifest); err != nil {
		return nil, fmt.Errorf(
			"%w: %s: %w; restore another one with --at, or move the file away",
			errBackupBroken,
			path,
			err,
		)
	}
	if manifest.Format > backupFormat {
		return nil, fmt.Errorf(
			"%s has format %d, this release reads up to %d: use the release that made it (%s)",
			path,
			manifest.Format,
			backupFormat,
			manifest.Release,
		)
	}
	if manifest.Sum != manifest.checksum() || manifest.Name != name {
		return nil, fmt.Errorf(
			"%w: %s does not match its checksum; restore another one with --at, or move the file away",
			errBackupBroken,
			path,
		)
	}
	return manifest, nil
}

// checksum is the checksum of a manifest.
func (m *backupManifest) checksum() string {
	plain := *m
	plain.Sum = ""
	data, err := json.Marshal(plain)
	if err != nil {
		return "" // times and strings always can be written
	}
	return sha256Hex(data)
}

// writeManifest puts a backup into the list: from here on it exists.
func (b *backupFolder) writeManifest(manifest *backupManifest) error {
	manifest.Sum = manifest.checksum()
	data, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(
		filepath.Join(b.manifestsDir(), manifest.Name+backupSuffix),
		append(data, '\n'),
		0o600,
	)
}

// pickBackup finds the backup to restore: the newest, or the one with a name or the newest
// that is not younger than a time.
func (b *backupFolder) pickBackup(at string) (*backupManifest, error) {
	all, err := b.listBackups()
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w in %s", errNoBackup, b.dir)
	}
	if at == "" {
		return all[len(all)-1], nil
	}
	for _, manifest := range all {
		if manifest.Name == at {
			return manifest, nil
		}
	}
	when, err := time.ParseInLocation("2006-01-02T15:04:05", at, time.Local)
	if err != nil {
		when, err = time.ParseInLocation("2006-01-02T15:04", at, time.Local)
		if err != nil {
			return nil, fmt.Errorf(
				"%w with the name %q in %s, and it is no time YYYY-MM-DDTHH:MM[:SS] (muster restore --from %s --list)",
				errNoBackup,
				at,
				b.dir,
				b.dir,
			)
		}
	}
	for _, manifest := range slices.Backward(all) {
		if !manifest.Made.After(when) {
			return manifest, nil
		}
	}
	return nil, fmt.Errorf(
		"%w of %s or earlier in %s: the oldest is %s",
		errNoBackup,
		at,
		b.dir,
		all[0].Name,
	)
}

// keepContent stores a file's content, if it is new, and returns its name.
func (b *backupFolder) keepContent(data []byte) (sum string, fresh bool, err error) {
	sum = sha256Hex(data)
	if have, err := os.ReadFile(b.filePath(sum)); err == nil && sha256Hex(have) == sum {
		return sum, false, nil
	}
	return sum, true, durable.WriteFile(b.filePath(sum), data, 0o600)
}

// readContent reads a file's content back.
func (b *backupFolder) readContent(file backupFile) ([]byte, error) {
	data, err := os.ReadFile(b.filePath(file.SHA256))
	if err == nil && sha256Hex(data) != file.SHA256 {
		err = errors.New("the content does not match its hash")
	}
	if err != nil {
		return nil, fmt.Errorf(
			"%w: %s (%s): %w",
			errBackupBroken,
			b.filePath(file.SHA256),
			file.From,
			err,
		)
	}
	return data, nil
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// backupName names a backup by when it was made.
func backupName(made time.Time) string { return made.UTC().Format("20060102T150405.000Z") }

// instantTime is an instant of the ledger as a time.
func instantTime(at spec.Instant) time.Time { return time.Unix(0, int64(at)).UTC() }
