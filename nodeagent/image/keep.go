//go:build linux

package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// usesName is the folder of an image in which each holder has an empty file: a use
// outlives the agent, as the run does.
const usesName = "uses"

// kept is a whole image on disk.
type kept struct {
	dir  string
	used time.Time // when a run got it, or was over, for the last time
	size int64
	uses []string // its holders
}

// Trimmed is what a Trim did.
type Trimmed struct {
	Removed []string // digests, the one that was used least lately first
	Freed   int64    // bytes
	Size    int64    // of what is left
	Limit   int64
}

// hold gives the image in a folder to a holder. The error wraps fs.ErrNotExist
// where there is no whole image.
func (c *Cache) hold(dir, holder string) (*Image, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	image, err := read(dir)
	if err != nil {
		return nil, err
	}
	uses := filepath.Join(dir, usesName)
	if err := os.MkdirAll(uses, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(uses, holder), nil, 0o600); err != nil {
		return nil, err
	}
	return image, touchImage(dir)
}

// touchImage notes that an image is used now.
func touchImage(dir string) error {
	now := time.Now()
	return os.Chtimes(filepath.Join(dir, imageName), now, now)
}

// Holders lists who was given an image and was not forgotten.
func (c *Cache) Holders() ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	images, err := c.listKept()
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range images {
		out = append(out, images[i].uses...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Forget releases what holders keep whose runs have ended for good.
func (c *Cache) Forget(holders []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	images, err := c.listKept()
	if err != nil {
		return err
	}
	for i := range images {
		for _, use := range images[i].uses {
			if !slices.Contains(holders, use) {
				continue
			}
			if err := os.Remove(filepath.Join(images[i].dir, usesName, use)); err != nil {
				return err
			}
			if err := touchImage(images[i].dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// IsFull tells that the images take more than they may.
func (c *Cache) IsFull() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size > c.limit
}

// Trim removes images, those first that were used least lately, until the others
// take no more than they may. An image with a holder stays, whatever it takes.
func (c *Cache) Trim() (Trimmed, error) {
	removed, trimmed, err := c.retire()
	for _, dir := range removed {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return trimmed, err
}

// retire takes the images that are to go out of the cache, at once and as a whole:
// each gets the name of what is not whole. It gives their folders.
func (c *Cache) retire() (dirs []string, trimmed Trimmed, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	trimmed.Limit = c.limit
	defer func() { trimmed.Size = c.size }()
	images, err := c.listKept()
	if err != nil {
		return nil, trimmed, err
	}
	slices.SortFunc(images, func(a, b kept) int { return a.used.Compare(b.used) })
	for i := range images {
		if c.size <= c.limit {
			break
		}
		if len(images[i].uses) > 0 {
			continue
		}
		name := filepath.Base(images[i].dir)
		gone := filepath.Join(c.dir, partial+name)
		if err := os.Rename(images[i].dir, gone); err != nil {
			return dirs, trimmed, fmt.Errorf("remove an image: %w", err)
		}
		dirs = append(dirs, gone)
		c.size -= images[i].size
		trimmed.Freed += images[i].size
		trimmed.Removed = append(trimmed.Removed, strings.Replace(name, "-", ":", 1))
	}
	return dirs, trimmed, nil
}

// listKept reads what is in the folder.
func (c *Cache) listKept() ([]kept, error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, err
	}
	var kepts []kept
	for _, entry := range entries {
		dir := filepath.Join(c.dir, entry.Name())
		if !strings.HasPrefix(entry.Name(), whole) {
			continue
		}
		one, err := readKept(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		kepts = append(kepts, one)
	}
	return kepts, nil
}

func readKept(dir string) (kept, error) {
	image, err := read(dir)
	if err != nil {
		return kept{}, err
	}
	info, err := os.Stat(filepath.Join(dir, imageName))
	if err != nil {
		return kept{}, err
	}
	out := kept{dir: dir, used: info.ModTime(), size: image.Size}
	if out.size == 0 { // an older release did not note it
		out.size, err = sizeOf(image.Root)
		if err != nil {
			return kept{}, err
		}
	}
	uses, err := os.ReadDir(filepath.Join(dir, usesName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return kept{}, err
	}
	for _, use := range uses {
		out.uses = append(out.uses, use.Name())
	}
	return out, nil
}

// sizeOf adds up the regular files below a folder.
func sizeOf(root string) (int64, error) {
	var total int64
	err := filepath.WalkDir(root, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}

// halfOfFileSystem is half of the size of the file system that holds a folder.
func halfOfFileSystem(dir string) (int64, error) {
	var info syscall.Statfs_t
	if err := syscall.Statfs(dir, &info); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(info.Blocks) * info.Bsize / 2, nil //nolint:gosec // no file system has 2^63 blocks
}
