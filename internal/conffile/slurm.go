package conffile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/musterhpc/muster/spec/slurmconf"
)

// ReadSlurm reads a slurm.conf, named by its whole path, with the files beside
// it. What it finds names files by their whole paths too.
func ReadSlurm(path string) (*slurmconf.Cluster, slurmconf.Problems) {
	return ReadSlurmBelow("/", strings.TrimPrefix(path, "/"))
}

// ReadSlurmBelow is ReadSlurm for files that lie below a folder as they would
// below /; name has no leading slash.
func ReadSlurmBelow(root, name string) (*slurmconf.Cluster, slurmconf.Problems) {
	cluster, problems := slurmconf.ReadCluster(os.DirFS(root), name)
	for i := range problems {
		if f := problems[i].File; f != "" {
			problems[i].File = strings.TrimSuffix(root, "/") + "/" + f
		}
	}
	return cluster, problems
}

// maxSlurmFiles bounds what SlurmFiles gathers, in bytes.
const maxSlurmFiles = 8 << 20

// SlurmFile is a file of a configuration with its permissions.
type SlurmFile struct {
	Data []byte
	Mode fs.FileMode
}

// SlurmFiles are a slurm.conf, named by its whole path, and all files that are
// read with it, by their names below /.
func SlurmFiles(path string) (name string, files map[string]SlurmFile, err error) {
	name = strings.TrimPrefix(path, "/")
	seen := &recorder{FS: os.DirFS("/"), files: map[string]SlurmFile{}}
	_, problems := slurmconf.ReadCluster(seen, name)
	if err := problems.Err(); err != nil {
		return "", nil, fmt.Errorf("the configuration in %s cannot be used now:\n%w", path, err)
	}
	size := 0
	for _, file := range seen.files {
		size += len(file.Data)
	}
	if size > maxSlurmFiles {
		return "", nil, fmt.Errorf(
			"%s and its files have %d bytes, more than the %d that are sent to nodes: give the nodes files of their own",
			path,
			size,
			maxSlurmFiles,
		)
	}
	return name, seen.files, nil
}

// recorder keeps what is read of a file system.
type recorder struct {
	fs.FS
	files map[string]SlurmFile
}

// Stat implements fs.StatFS.
func (r *recorder) Stat(name string) (fs.FileInfo, error) { return fs.Stat(r.FS, name) }

// ReadFile implements fs.ReadFileFS.
func (r *recorder) ReadFile(name string) ([]byte, error) {
	data, err := fs.ReadFile(r.FS, name)
	if err != nil {
		return nil, err
	}
	info, err := fs.Stat(r.FS, name)
	if err != nil {
		return nil, err
	}
	r.files[name] = SlurmFile{data, info.Mode()}
	return data, nil
}

// SentMode is the mode of a file that was sent with some permissions: those, but
// only its owner may ever write it. 0, of a sender that says nothing, lets all
// read it.
func SentMode(perm uint32) fs.FileMode {
	if perm == 0 {
		return 0o644
	}
	return fs.FileMode(perm)&0o755 | 0o600
}

// ErrFileName tells a file that would lie outside the folder that it is for.
var ErrFileName = errors.New("not the name of a file below a folder")

// CheckFileName refuses a name with which a file would lie elsewhere.
func CheckFileName(name string) error {
	if !fs.ValidPath(name) || name == "." {
		return fmt.Errorf("%q: %w", name, ErrFileName)
	}
	return nil
}
