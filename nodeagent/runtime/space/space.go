//go:build linux

package space

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/musterhpc/muster/nodeagent/plan"
	"golang.org/x/sys/unix"
)

// nsName is the name of the kept namespace in the folder of a space.
const nsName = "ns"

// Errors of spaces.
var (
	// ErrBase: the folder in which spaces are made cannot be used.
	ErrBase = errors.New("private folders")
	// ErrThread: the calling thread is left in a job's namespace.
	ErrThread = errors.New("a thread could not leave a job's mount namespace")
)

// Spaces are those of a node. Its methods may be called from any goroutine.
type Spaces struct {
	links string // folder of the links, shared by the shepherds of all releases
	id    string // of the state folder: several nodes can share a BasePath
	host  int    // the node's own mount namespace
	// run runs a program to its end.
	run func(path string, env []string) error

	mu   sync.Mutex
	busy map[plan.RunKey]*sync.Mutex // an attempt's space is made and removed by one at a time
}

// New finds the spaces of a state folder. run runs InitScript to its end.
func New(state, id string, run func(path string, env []string) error) (*Spaces, error) {
	links := filepath.Join(state, "spaces")
	if err := os.MkdirAll(links, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of spaces: %w", err)
	}
	host, err := unix.Open("/proc/self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/proc/self/ns/mnt", Err: err}
	}
	return &Spaces{
		links: links,
		id:    id,
		host:  host,
		run:   run,
		busy:  map[plan.RunKey]*sync.Mutex{},
	}, nil
}

// Possible tells whether this process can make mount namespaces; the error says
// why not.
func Possible() error {
	return inThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("make a mount namespace: %w", err)
		}
		return nil
	})
}

// inThread runs a function on a thread of its own that ends with it, so that
// what it does to the thread stays without effect.
func inThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- fn()
	}()
	return <-done
}

// Attempt is the key by which the space of a run is known: that of its attempt.
func Attempt(key plan.RunKey) plan.RunKey { return key.StepOf(plan.StepBatch) }

// lock waits until nobody else makes or removes the space.
func (s *Spaces) lock(key plan.RunKey) (unlock func()) {
	s.mu.Lock()
	m := s.busy[key]
	if m == nil {
		m = &sync.Mutex{}
		s.busy[key] = m
	}
	s.mu.Unlock()
	m.Lock()
	return m.Unlock
}

func (s *Spaces) link(key plan.RunKey) string { return filepath.Join(s.links, key.String()) }

// prefix begins the names of this node's spaces below a BasePath.
func (s *Spaces) prefix() string { return "muster-" + s.id + "-" }

// Make makes the space of a run's attempt unless it is there.
func (s *Spaces) Make(run plan.RunKey, space *plan.Space) error {
	key := Attempt(run)
	defer s.lock(key)()
	if dir, err := os.Readlink(s.link(key)); err == nil {
		if isNamespace(filepath.Join(dir, nsName)) {
			return nil
		}
		if err := s.remove(key); err != nil { // of a making that was cut off, or of the time before a restart of the node
			return err
		}
	}
	if err := checkBase(space); err != nil {
		return err
	}
	dir := filepath.Join(space.Base, s.prefix()+key.String())
	if err := os.Symlink(dir, s.link(key)); err != nil {
		return err
	}
	if err := s.make(dir, space); err != nil {
		return errors.Join(err, s.remove(key))
	}
	return nil
}

// checkBase makes the folder of all spaces where that is wanted, and refuses one
// in which others could put something in the place of a space.
func checkBase(space *plan.Space) error {
	if space.Auto {
		if err := os.MkdirAll(space.Base, 0o755); err != nil {
			return fmt.Errorf("%w: AutoBasePath: %w", ErrBase, err)
		}
	}
	return CheckBase(space.Base)
}

// CheckBase tells why a folder cannot be a BasePath. Nobody but root may put
// something else in its place, nor in that of a folder above it.
func CheckBase(base string) error {
	for dir := base; ; dir = filepath.Dir(dir) {
		var status unix.Stat_t
		err := unix.Lstat(dir, &status)
		sticky := dir != base &&
			status.Mode&unix.S_ISVTX != 0 // as /var/tmp: its entries are their owners'
		switch {
		case err != nil:
			return fmt.Errorf(
				"%w: BasePath %s: %w (create it, or set AutoBasePath=true)",
				ErrBase,
				dir,
				err,
			)
		case status.Mode&unix.S_IFMT != unix.S_IFDIR:
			return fmt.Errorf("%w: BasePath %s: %s is not a folder", ErrBase, base, dir)
		case status.Uid != 0 || status.Mode&0o022 != 0 && !sticky:
			return fmt.Errorf(
				"%w: BasePath %s: %s can be written by others than root: chown root and chmod go-w it",
				ErrBase,
				base,
				dir,
			)
		}
		if dir == "/" {
			return nil
		}
	}
}

// make makes a space that is not there at all.
func (s *Spaces) make(dir string, space *plan.Space) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if space.Init != "" {
		if err := s.run(
			space.Init, append(slices.Clip(space.InitEnv), "SLURM_JOB_MOUNT_SRC="+dir),
		); err != nil {
			return fmt.Errorf("InitScript %s: %w", space.Init, err)
		}
	}
	for i, d := range space.Dirs {
		if d == shm {
			continue
		}
		own := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(own, 0o700); err != nil {
			return err
		}
		if err := unix.Chmod(own, 0o1777); err != nil { // whatever the umask
			return &os.PathError{Op: "chmod", Path: own, Err: err}
		}
	}
	if err := mountAt(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := mountAt("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	ns, err := namespace(dir, space)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(ns) }()
	kept := filepath.Join(dir, nsName)
	if err := os.WriteFile(kept, nil, 0o400); err != nil {
		return err
	}
	return mountAt("/proc/self/fd/"+strconv.Itoa(ns), kept, "", unix.MS_BIND, "")
}

// shm is the folder of shared memory, which is memory in a space too.
const shm = "/dev/shm"

// namespace makes the mount namespace and gives a descriptor of it.
func namespace(dir string, space *plan.Space) (int, error) {
	fd := -1
	err := inThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("make a mount namespace: %w", err)
		}
		// Nothing that is mounted here may reach the node; what the node mounts
		// later reaches the job where the site wants that.
		spread := uintptr(unix.MS_PRIVATE)
		if space.Shared {
			spread = unix.MS_SLAVE
		}
		if err := mountAt("", "/", "", spread|unix.MS_REC, ""); err != nil {
			return err
		}
		through, err := hold(space)
		defer release(through)
		if err != nil {
			return err
		}
		for i, d := range space.Dirs {
			if d == shm {
				err = mountAt("tmpfs", d, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
			} else {
				err = mountAt(filepath.Join(dir, strconv.Itoa(i)), d, "", unix.MS_BIND, "")
			}
			if err != nil {
				return err
			}
		}
		for _, h := range through {
			if err := h.mount(); err != nil {
				return err
			}
		}
		fd, err = unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

// held is a path of the node that a job sees in a private folder.
type held struct {
	path string
	fd   int
	dir  bool
}

// hold opens what is to be seen in private folders, before they cover it. What it
// gives is to be released, also with an error.
func hold(space *plan.Space) ([]held, error) {
	var helds []held
	for _, path := range space.Through {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return helds, &os.PathError{Op: "open", Path: path, Err: err}
		}
		var status unix.Stat_t
		if err := unix.Fstat(fd, &status); err != nil {
			_ = unix.Close(fd)
			return helds, &os.PathError{Op: "stat", Path: path, Err: err}
		}
		helds = append(
			helds, held{path: path, fd: fd, dir: status.Mode&unix.S_IFMT == unix.S_IFDIR},
		)
	}
	return helds, nil
}

func release(list []held) {
	for i := range list {
		_ = unix.Close(list[i].fd)
	}
}

// mount shows a held path at its name in the private folder.
func (h *held) mount() error {
	if err := os.MkdirAll(filepath.Dir(h.path), 0o755); err != nil {
		return err
	}
	var err error
	if h.dir {
		err = os.Mkdir(h.path, 0o755)
	} else {
		err = os.WriteFile(h.path, nil, 0o644)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return mountAt("/proc/self/fd/"+strconv.Itoa(h.fd), h.path, "", unix.MS_BIND|unix.MS_REC, "")
}

// mountAt is mount(2) with an error that says what was tried.
func mountAt(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s at %s: %w", source, target, err)
	}
	return nil
}

// nsfs is the kind of file system that namespaces' files are on.
const nsfs = 0x6e736673

// isNamespace tells that a namespace is kept at the path.
func isNamespace(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == nsfs
}

// Enter brings the calling thread into the space of a run's attempt, with the
// root as its work directory; leave brings it back. The thread must have a work
// directory of its own (spawn.Thread has), and must end if leave fails.
func (s *Spaces) Enter(run plan.RunKey) (leave func() error, err error) {
	dir, err := os.Readlink(s.link(Attempt(run)))
	if err != nil {
		return nil, fmt.Errorf("enter the job's private folders: %w", err)
	}
	fd, err := unix.Open(filepath.Join(dir, nsName), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("enter the job's private folders: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Setns(fd, unix.CLONE_NEWNS); err != nil {
		return nil, fmt.Errorf("enter the job's private folders: %w", err)
	}
	return func() error {
		if err := unix.Setns(s.host, unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("%w: %w", ErrThread, err)
		}
		return nil
	}, nil
}

// Namespace is the file by which the mount namespace of a run's attempt is kept; empty
// where it has none.
func (s *Spaces) Namespace(run plan.RunKey) string {
	dir, err := os.Readlink(s.link(Attempt(run)))
	if err != nil {
		return ""
	}
	return filepath.Join(dir, nsName)
}

// List gives the attempts that have a space, or what is left of one.
func (s *Spaces) List() ([]plan.RunKey, error) {
	entries, err := os.ReadDir(s.links)
	if err != nil {
		return nil, err
	}
	var keys []plan.RunKey
	for _, e := range entries {
		if key, err := plan.ParseRunKey(e.Name()); err == nil {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, plan.RunKey.Compare)
	return keys, nil
}

// Adopt links what lies below a BasePath without a link: the link of a space was
// not on the disk yet when the node lost its power.
func (s *Spaces) Adopt(base string) error {
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name, ours := strings.CutPrefix(entry.Name(), s.prefix())
		key, err := plan.ParseRunKey(name)
		if !ours || err != nil {
			continue
		}
		if err := os.Symlink(filepath.Join(base, entry.Name()), s.link(key)); err != nil &&
			!errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// Remove removes the space of an attempt with all that is in it. One that is not
// there is no error.
func (s *Spaces) Remove(key plan.RunKey) error {
	defer s.lock(key)()
	if err := s.remove(key); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.busy, key) // an attempt never comes back
	s.mu.Unlock()
	return nil
}

func (s *Spaces) remove(key plan.RunKey) error {
	link := s.link(key)
	dir, err := os.Readlink(link)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// The namespace goes with its last process, and its mounts with it.
	for _, at := range []string{filepath.Join(dir, nsName), dir} {
		if err := unmount(at); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Remove(link)
}

// unmount takes away whatever is mounted at a path.
func unmount(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil:
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // nothing (more) is
			return nil
		default:
			return &os.PathError{Op: "unmount", Path: path, Err: err}
		}
	}
}
