package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/image"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/readas"
)

// ImageCache is the node's images as the agent sees them.
type ImageCache struct {
	cache *image.Cache
	files *readas.Reader // of users
	site  string         // file with the logins of the site; may be empty
	log   *slog.Logger
}

// OpenImages opens the cache in a folder.
func OpenImages(dir string, config *conffile.Containers, logger *slog.Logger) (*ImageCache, error) {
	cache, err := image.New(dir, int64(config.CacheSize))
	if err != nil {
		return nil, err
	}
	return &ImageCache{
		cache: cache, files: readas.New(), site: config.RegistryAuth, log: logger,
	}, nil
}

// CheckLogins tells why the site's logins at registries cannot be used. It is said at once,
// and again by each fetch that would have needed them.
func (i *ImageCache) CheckLogins() error {
	_, err := i.siteLogins()
	return err
}

// Fetch implements daemon.Images.
func (i *ImageCache) Fetch(ctx context.Context, request daemon.ImageAsk) (*plan.Unpacked, error) {
	// A login that cannot be read must not keep a user from images that need none.
	own, problem := i.userLogins(ctx, &request)
	site, siteProblem := i.siteLogins()
	got, err := i.cache.Fetch(ctx, image.Request{
		Image:  request.Image,
		Digest: request.Digest,
		Holder: request.Holder,
		Logins: []*image.Logins{own, site},
	})
	if err != nil {
		if problem != nil {
			err = fmt.Errorf("%w; %w", err, problem)
		}
		if siteProblem != nil {
			i.log.Warn("the site's logins at registries are not used", "error", siteProblem)
		}
		return nil, err
	}
	return &plan.Unpacked{
		Root:    got.Root,
		Digest:  got.Meant,
		WorkDir: got.WorkDir,
		Env:     got.Env,
	}, nil
}

// ReadBundle implements daemon.Images. Bundles are often a site's, so that the file
// need not be the user's: he has to be able to read it.
func (i *ImageCache) ReadBundle(
	ctx context.Context,
	request daemon.ImageAsk,
) (*plan.Unpacked, error) {
	name := filepath.Join(request.Image, plan.BundleConfig)
	part, err := i.files.Read(ctx, readas.Ask{
		Path:   name,
		UID:    request.UID,
		GID:    request.GID,
		Groups: request.Groups,
		Shared: true,
	})
	if err == nil && part.Size > int64(len(part.Data)) {
		err = fmt.Errorf("it is larger than %d KiB", readas.MaxBytes>>10)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", plan.ErrBundle, name, err)
	}
	return plan.ReadBundle(part.Data, request.Image)
}

// userLogins reads the user's file, with the user's rights.
func (i *ImageCache) userLogins(
	ctx context.Context,
	request *daemon.ImageAsk,
) (*image.Logins, error) {
	if request.LoginFile == "" {
		return nil, nil
	}
	part, err := i.files.Read(ctx, readas.Ask{
		Path:   request.LoginFile,
		UID:    request.UID,
		GID:    request.GID,
		Groups: request.Groups,
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && part.Size > int64(len(part.Data)) {
		err = fmt.Errorf("it is larger than %d KiB", readas.MaxBytes>>10)
	}
	var logins *image.Logins
	if err == nil {
		logins, err = image.ParseLogins(part.Data)
	}
	if err != nil {
		return nil, fmt.Errorf("the logins of %s are not used: %w", request.LoginFile, err)
	}
	return logins, nil
}

// siteLogins reads the site's file, each time, so that a new key holds at once.
func (i *ImageCache) siteLogins() (*image.Logins, error) {
	if i.site == "" {
		return nil, nil
	}
	logins, err := readSiteLogins(i.site)
	if err != nil {
		return nil, fmt.Errorf("containers.registry_auth %s: %w", i.site, err)
	}
	return logins, nil
}

func readSiteLogins(path string) (*image.Logins, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular() || info.Size() > readas.MaxBytes:
		return nil, fmt.Errorf("it is not a file of at most %d KiB", readas.MaxBytes>>10)
	case ok && owner.Uid != uint32(os.Geteuid()):
		return nil, fmt.Errorf("it belongs to user %d: chown root it", owner.Uid)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("others can use it (mode %04o): chmod 600 it", info.Mode().Perm())
	}
	data := make([]byte, info.Size())
	n, err := file.ReadAt(data, 0)
	if n < len(data) {
		return nil, err
	}
	return image.ParseLogins(data)
}

// Holders implements daemon.Images.
func (i *ImageCache) Holders() ([]string, error) { return i.cache.Holders() }

// IsFull implements daemon.Images.
func (i *ImageCache) IsFull() bool { return i.cache.IsFull() }

// Trim implements daemon.Images.
func (i *ImageCache) Trim(over []string) (said []any, err error) {
	if err := i.cache.Forget(over); err != nil {
		return nil, err
	}
	done, err := i.cache.Trim()
	if len(done.Removed) > 0 {
		said = []any{
			"digests", done.Removed,
			"freed_mib", done.Freed >> 20,
			"left_mib", done.Size >> 20,
			"limit_mib", done.Limit >> 20,
		}
	}
	return said, err
}
