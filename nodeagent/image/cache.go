//go:build linux

package image

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Image is one on this node.
type Image struct {
	Root    string   `json:"-"`      // its files
	Digest  string   `json:"digest"` // of its manifest for this machine
	Meant   string   `json:"-"`      // digest that the name meant: of an index, where there is one for each kind of machine
	Size    int64    `json:"size"`   // of its files, in bytes
	Env     []string `json:"env,omitempty"`
	WorkDir string   `json:"work_dir,omitempty"`
}

// ErrTooLarge: an image alone is larger than all images may be.
var ErrTooLarge = errors.New(
	"the image is larger than the node's images may be (containers.cache_size in muster.yaml)",
)

// Request names an image and who needs it.
type Request struct {
	Image string // docker://NAME
	// Digest is what the name meant for the job before, which is fetched whatever
	// it means now. Empty: the registry says what it means.
	Digest string
	// Holder is the name of the run that the files are for. They are kept until
	// Forget is called with it.
	Holder string
	// Logins are tried for the registry in this order; the first that has one counts.
	Logins []*Logins
}

// Cache keeps the images of a node. Its methods may be called from any goroutine.
type Cache struct {
	dir   string
	limit int64 // bytes that the images may take

	mu   sync.Mutex
	busy map[string]chan struct{} // digests that are being unpacked; closed at the end
	size int64                    // of all images here
}

const (
	scheme    = "docker://"
	partial   = "partial-" // begins the names of folders that are not whole
	whole     = "sha256-"  // begins the names of those that are
	rootName  = "rootfs"
	imageName = "image.json"
)

// New finds the images below a folder, and removes those that are not whole. One
// cache at a time may have the folder. A limit of 0 is half of its file system.
func New(dir string, limit int64) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	if limit <= 0 {
		half, err := halfOfFileSystem(dir)
		if err != nil {
			return nil, fmt.Errorf("images: %w", err)
		}
		limit = half
	}
	cache := &Cache{dir: dir, limit: limit, busy: map[string]chan struct{}{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), partial) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return nil, fmt.Errorf("images: %w", err)
			}
		}
	}
	kept, err := cache.listKept()
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	for i := range kept {
		cache.size += kept[i].size
	}
	return cache, nil
}

// Fetch gives an image by its name. The registry is asked each time, so that
// whoever may not have the image does not get it from the cache; the files are
// fetched if they are not here.
func (c *Cache) Fetch(ctx context.Context, request Request) (*Image, error) {
	image := request.Image
	ref, err := reference(image, request.Digest)
	if err != nil {
		return nil, fmt.Errorf("container image %s: %w", image, err)
	}
	login := choose(request.Logins, ref.Context().RegistryStr())
	platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	named, err := remote.Get(
		ref,
		remote.WithContext(ctx),
		remote.WithPlatform(platform),
		remote.WithAuth(login),
	)
	if err != nil {
		return nil, fmt.Errorf("container image %s: %w", image, explain(err, login))
	}
	found, err := named.Image()
	if err != nil {
		return nil, fmt.Errorf("container image %s: %w", image, err)
	}
	digest, err := found.Digest()
	if err != nil {
		return nil, fmt.Errorf("container image %s: %w", image, err)
	}
	dir := filepath.Join(c.dir, strings.ReplaceAll(digest.String(), ":", "-"))
	for {
		have, err := c.hold(dir, request.Holder)
		if err == nil {
			have.Meant = named.Digest.String()
			return have, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("container image %s: %w", image, err)
		}
		wait, mine := c.begin(digest.String())
		if !mine {
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		err = c.add(found, dir, digest.String())
		c.end(digest.String())
		if err != nil {
			return nil, fmt.Errorf("container image %s: %w", image, err)
		}
	}
}

// reference is the name of an image, or that name as it was pinned before.
func reference(image, digest string) (name.Reference, error) {
	ref, err := name.ParseReference(strings.TrimPrefix(image, scheme))
	if err != nil || digest == "" {
		return ref, err
	}
	return name.NewDigest(ref.Context().Name() + "@" + digest)
}

// begin makes the caller the one who unpacks a digest, unless somebody is.
func (c *Cache) begin(digest string) (wait chan struct{}, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wait := c.busy[digest]; wait != nil {
		return wait, false
	}
	c.busy[digest] = make(chan struct{})
	return nil, true
}

func (c *Cache) end(digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.busy[digest])
	delete(c.busy, digest)
}

// read gives the image in a folder.
func read(dir string) (*Image, error) {
	data, err := os.ReadFile(filepath.Join(dir, imageName))
	if err != nil {
		return nil, err
	}
	image := &Image{Root: filepath.Join(dir, rootName)}
	return image, json.Unmarshal(data, image)
}

// add unpacks an image.
func (c *Cache) add(image v1.Image, dir, digest string) (err error) {
	temporary, err := os.MkdirTemp(c.dir, partial)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temporary))
		}
	}()
	conf, err := image.ConfigFile()
	if err != nil {
		return err
	}
	root := filepath.Join(temporary, rootName)
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	size, err := unpack(mutate.Extract(image), root, c.limit)
	if err != nil {
		return err
	}
	data, err := json.Marshal(&Image{
		Digest:  digest,
		Size:    size,
		Env:     conf.Config.Env,
		WorkDir: conf.Config.WorkingDir,
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(temporary, imageName), data, 0o600); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := os.Rename(temporary, dir); err != nil {
		return err
	}
	c.size += size
	return nil
}

// unpack writes the files of an image below a folder, and gives their size. An
// image that is larger than the whole cache may be is refused.
func unpack(from io.ReadCloser, folder string, limit int64) (size int64, err error) {
	defer func() { err = errors.Join(err, from.Close()) }()
	root, err := os.OpenRoot(folder)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	type finished struct {
		name string
		head *tar.Header
	}
	var folders []finished // their modes and times last: a mode may forbid to write into them
	var links []finished   // last too: the upper layers come first, and what they link may be of a lower one
	for reader := tar.NewReader(from); ; {
		head, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("unpack: %w", err)
		}
		at := strings.TrimPrefix(path.Clean("/"+head.Name), "/")
		if at == "" {
			continue
		}
		if head.Typeflag == tar.TypeLink {
			links = append(links, finished{at, head})
			continue
		}
		size += head.Size
		if size > limit {
			return 0, fmt.Errorf("unpack: %w of %d MiB", ErrTooLarge, limit>>20)
		}
		if err := writeEntry(root, at, head, reader); err != nil {
			return 0, fmt.Errorf("unpack %s: %w", head.Name, err)
		}
		if head.Typeflag == tar.TypeDir {
			folders = append(folders, finished{at, head})
		}
	}
	for _, l := range links {
		if err := makeParents(root, l.name); err != nil {
			return 0, fmt.Errorf("unpack %s: %w", l.name, err)
		}
		// The owner is that of the file.
		if err := root.Link(strings.TrimPrefix(path.Clean("/"+l.head.Linkname), "/"), l.name); err != nil &&
			!errors.Is(err, fs.ErrExist) {
			return 0, fmt.Errorf("unpack %s: %w", l.name, err)
		}
	}
	for i := len(folders) - 1; i >= 0; i-- {
		f := &folders[i]
		if st, err := root.Lstat(f.name); err != nil || !st.IsDir() {
			continue // something else has come in its place
		}
		if err := root.Chmod(f.name, mode(f.head)); err != nil {
			return 0, err
		}
		_ = root.Chtimes(
			f.name,
			f.head.ModTime,
			f.head.ModTime,
		) // a time that the file system does not take
	}
	return size, nil
}

// mode is an entry's without set-user-ID and set-group-ID.
func mode(head *tar.Header) fs.FileMode {
	m := fs.FileMode(head.Mode & 0o777)
	if head.Mode&0o1000 != 0 {
		m |= fs.ModeSticky
	}
	return m
}

func makeParents(root *os.Root, at string) error {
	if dir := path.Dir(at); dir != "." {
		return root.MkdirAll(dir, 0o755)
	}
	return nil
}

// writeEntry writes one file, folder or link; others mean nothing in a container.
func writeEntry(root *os.Root, at string, head *tar.Header, from io.Reader) error {
	if err := makeParents(root, at); err != nil {
		return err
	}
	if st, err := root.Lstat(at); err == nil && (!st.IsDir() || head.Typeflag != tar.TypeDir) {
		return nil // of an upper layer, which counts
	}
	switch head.Typeflag {
	case tar.TypeDir:
		if err := root.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	case tar.TypeReg:
		if err := writeFile(root, at, head, from); err != nil {
			return err
		}
	case tar.TypeSymlink:
		if err := root.Symlink(head.Linkname, at); err != nil {
			return err
		}
	default:
		return nil
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return root.Lchown(at, head.Uid, head.Gid)
}

func writeFile(root *os.Root, at string, head *tar.Header, from io.Reader) error {
	file, err := root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, from); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := file.Chmod(mode(head)); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := file.Close(); err != nil {
		return err
	}
	if head.ModTime.After(time.Unix(0, 0)) {
		return root.Chtimes(at, head.ModTime, head.ModTime)
	}
	return nil
}
