//go:build linux

package space

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// Show is a path of the node that every container has at its own name.
type Show struct {
	Path     string
	ReadOnly bool
	Optional bool // left out where the node does not have it
}

// always are the paths that every container has. Devices are fenced by the run's
// control group, inside as outside.
func always() []Show {
	return []Show{{Path: "/proc"}, {Path: "/sys"}, {Path: "/dev"}, {Path: "/tmp"},
		{
			Path:     "/etc/resolv.conf",
			ReadOnly: true,
			Optional: true,
		}, {Path: "/etc/hosts", ReadOnly: true, Optional: true}}
}

// EnterContainer brings the calling thread into a new container: a mount namespace
// whose root is the image, laid over with memory for what is written there. The
// namespace goes with its last process, and nothing of it is on a disk.
//
// The image and what is mounted were chosen by the user. Their paths are opened
// by asUser, with the user's rights, and everything is mounted nosuid: in a file
// tree of one's own making, a set-user-ID program would trust what it finds in
// /etc and /lib.
//
// The thread leaves by the function that is returned, also after an error if it
// is not nil.
func (s *Spaces) EnterContainer(
	container *plan.Container,
	more []Show,
	asUser func(func() error) error,
) (leave func() error, err error) {
	mask := unix.Umask(0o022)
	defer unix.Umask(mask)
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return nil, fmt.Errorf("container: make a mount namespace: %w", err)
	}
	leave = func() error {
		if err := unix.Setns(s.host, unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("%w: %w", ErrThread, err)
		}
		return nil
	}
	if err := s.contain(container, more, asUser); err != nil {
		return leave, fmt.Errorf("container: %w", err)
	}
	return leave, nil
}

func (s *Spaces) contain(
	container *plan.Container,
	more []Show,
	asUser func(func() error) error,
) error {
	if err := mountAt("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return err
	}
	var trees []tree
	defer func() {
		for i := range trees {
			_ = unix.Close(trees[i].fd)
		}
	}()
	for _, show := range append(always(), more...) {
		t, err := take(
			spec.ContainerMount{Source: show.Path, Target: show.Path, ReadOnly: show.ReadOnly},
			asRoot,
		)
		if errors.Is(err, unix.ENOENT) && show.Optional {
			continue
		}
		if err != nil {
			return err
		}
		trees = append(trees, t)
	}
	for _, mount := range container.Mounts {
		t, err := take(mount, asUser)
		if err != nil {
			return err
		}
		trees = append(trees, t)
	}
	open := asRoot
	if container.Own {
		open = asUser
	}
	lower, _, err := openPath(container.Root, open)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(lower) }()
	if err := s.overlay(lower); err != nil {
		return err
	}
	for i := range trees {
		if err := trees[i].attach(); err != nil {
			return err
		}
	}
	for file, line := range map[string]string{"/etc/passwd": container.Passwd, "/etc/group": container.Group} {
		if err := know(file, line); err != nil {
			return err
		}
	}
	if container.ReadOnly {
		attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, attr); err != nil {
			return fmt.Errorf("make the image read-only: %w", err)
		}
	}
	return nil
}

func asRoot(fn func() error) error { return fn() }

// openPath opens a path for reference, with somebody's rights to get there.
func openPath(path string, as func(func() error) error) (fd int, dir bool, err error) {
	fd = -1
	err = as(func() (err error) {
		fd, err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, false, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var status unix.Stat_t
	if err := unix.Fstat(fd, &status); err != nil {
		_ = unix.Close(fd)
		return -1, false, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return fd, status.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// tree is a copy of mounts that is not attached yet.
type tree struct {
	fd     int
	dir    bool
	target string
}

// take copies the mounts at a path, and takes set-user-ID from them.
func take(mount spec.ContainerMount, as func(func() error) error) (tree, error) {
	at, dir, err := openPath(mount.Source, as)
	if err != nil {
		return tree{}, err
	}
	defer func() { _ = unix.Close(at) }()
	fd, err := unix.OpenTree(
		at,
		"",
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE,
	)
	if err != nil {
		return tree{}, fmt.Errorf("copy the mounts at %s: %w", mount.Source, err)
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID}
	if mount.ReadOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
		_ = unix.Close(fd)
		return tree{}, fmt.Errorf(
			"take set-user-ID from %s (needs Linux 5.12): %w", mount.Source, err,
		)
	}
	return tree{fd: fd, dir: dir, target: mount.Target}, nil
}

// attach shows a tree in the container, in which the thread is.
func (t *tree) attach() error {
	if t.dir {
		if err := os.MkdirAll(t.target, 0o755); err != nil {
			return err
		}
	} else if err := touch(t.target); err != nil {
		return err
	}
	at, err := unix.Open(t.target, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: t.target, Err: err}
	}
	defer func() { _ = unix.Close(at) }()
	if err := unix.MoveMount(t.fd, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount at %s: %w", t.target, err)
	}
	return nil
}

// touch makes a file to mount on. A link that leads nowhere in the image, as that
// of resolv.conf often does, is replaced.
func touch(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// overlay makes the image the root of the thread.
func (s *Spaces) overlay(lower int) error {
	stage := filepath.Join(s.links, "stage") // an empty folder that only root can enter
	if err := os.Mkdir(stage, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := mountAt("tmpfs", stage, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=700"); err != nil {
		return err
	}
	upper := filepath.Join(stage, "upper")
	work := filepath.Join(stage, "work")
	root := filepath.Join(stage, "root")
	for _, d := range []string{upper, work, root} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	var status unix.Stat_t
	if err := unix.Fstat(lower, &status); err != nil {
		return &os.PathError{Op: "stat", Path: "the image's root", Err: err}
	}
	if err := errors.Join(
		os.Chown(upper, int(status.Uid), int(status.Gid)), unix.Chmod(upper, status.Mode&0o1777),
	); err != nil {
		return err
	}
	layers := fmt.Sprintf("lowerdir=/proc/self/fd/%d,upperdir=%s,workdir=%s", lower, upper, work)
	if err := mountAt("overlay", root, "overlay", unix.MS_NOSUID|unix.MS_NODEV, layers); err != nil {
		return err
	}
	if err := unix.Chdir(root); err != nil {
		return &os.PathError{Op: "chdir", Path: root, Err: err}
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("enter the image: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the node's files: %w", err)
	}
	return unix.Chdir("/")
}

// know adds the user's line to a file of the image that does not have the number.
func know(file, line string) error {
	field := strings.Split(line, ":")
	if len(field) < 3 {
		return nil
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return fmt.Errorf("%s of the image is not a file", file)
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if have := strings.Split(lines.Text(), ":"); len(have) > 2 && have[2] == field[2] {
			return nil
		}
	}
	if _, err := strconv.ParseUint(field[2], 10, 32); err != nil ||
		strings.ContainsAny(line, "\n\x00") {
		return fmt.Errorf("%q is not a line of %s", line, file)
	}
	_, err = f.WriteString(line + "\n")
	return err
}
