package spec

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Container is the file tree of an image in which a batch script or the tasks of
// a step run, in the place of the node's.
type Container struct {
	Image    string           `cbor:"1,keyasint"` // as ParseImage gives it
	Mounts   []ContainerMount `cbor:"2,keyasint,omitempty"`
	WorkDir  string           `cbor:"3,keyasint,omitempty"` // empty: the image's
	Home     bool             `cbor:"4,keyasint,omitempty"` // the user's home is seen in it
	ReadOnly bool             `cbor:"5,keyasint,omitempty"`
	// Keep are variables of the job's environment that the image's do not replace.
	Keep []string `cbor:"6,keyasint,omitempty"`
	// Bundle tells that Image is the folder of an OCI bundle, whose config.json says
	// where the files are.
	Bundle bool `cbor:"7,keyasint,omitempty" since:"2"`
}

// ContainerMount is a path of the node that is seen in a container.
type ContainerMount struct {
	Source   string `cbor:"1,keyasint"`
	Target   string `cbor:"2,keyasint"`
	ReadOnly bool   `cbor:"3,keyasint,omitempty"`
}

// RegistryScheme begins the name of an image of a registry, as enroot has it.
const RegistryScheme = "docker://"

// Name is the image of a container that may be nil.
func (c *Container) Name() string {
	if c == nil {
		return ""
	}
	return c.Image
}

// PinnedImage is what the name of an image meant for a job.
type PinnedImage struct {
	Image  string `cbor:"1,keyasint"` // as Container has it
	Digest string `cbor:"2,keyasint"` // sha256:...
}

// FindDigest gives what a name meant; empty where it is not known.
func FindDigest(pinned []PinnedImage, image string) string {
	for i := range pinned {
		if pinned[i].Image == image {
			return pinned[i].Digest
		}
	}
	return ""
}

// NameWith is the image of a container that may be nil, with the digest that the
// job has for it. A name that has a digest of its own is not given another.
func (c *Container) NameWith(pinned []PinnedImage) string {
	name := c.Name()
	digest := FindDigest(pinned, name)
	if digest == "" || strings.Contains(name, "@") {
		return name
	}
	return name + "@" + digest
}

// Folder gives the folder of an image that is one.
func (c *Container) Folder() (string, bool) { return c.Image, strings.HasPrefix(c.Image, "/") }

// ParseImage reads the name of an image: [docker://][REGISTRY#]NAME[:TAG|@DIGEST] of
// a registry, or the absolute path of a folder with a file tree. Of a registry's
// it gives docker:// and the name with slashes alone.
func ParseImage(text string) (string, error) {
	name, scheme := strings.CutPrefix(text, RegistryScheme)
	switch {
	case name == "" || strings.ContainsAny(name, " \t\n\x00"):
		return "", fmt.Errorf(
			"invalid image %q: expected [REGISTRY#]NAME[:TAG] or the path of a folder",
			text,
		)
	case strings.HasSuffix(name, ".sqsh") || strings.HasSuffix(name, ".squashfs"):
		return "", fmt.Errorf(
			"invalid image %q: squashfs files are not supported; unpack it (unsquashfs) and name the folder, or name the image of a registry",
			text,
		)
	case !scheme && strings.Contains(name, "://") || namesOtherStore(name):
		return "", fmt.Errorf("invalid image %q: only docker:// is supported, and folders", text)
	case !scheme && strings.HasPrefix(name, "/"):
		return path.Clean(name), nil
	case !scheme && isRelativePath(name):
		return "", fmt.Errorf("invalid image %q: the path of a folder must be absolute", text)
	case strings.Contains(strings.SplitN(name, "/", 2)[0], "@"):
		return "", fmt.Errorf(
			"invalid image %q: registries that ask for a user are not supported",
			text,
		)
	case strings.Count(name, "#") > 1:
		return "", fmt.Errorf("invalid image %q: one # at most, behind the registry", text)
	}
	return RegistryScheme + strings.Replace(name, "#", "/", 1), nil
}

// mountFlags are those of --container-mounts; what says nothing here is refused.
var mountFlags = []string{"ro", "rw", "bind", "rbind"}

// ParseMounts reads --container-mounts: SOURCE:TARGET[:FLAG[+FLAG…]] with commas
// between them. One path alone is both.
func ParseMounts(text string) ([]ContainerMount, error) {
	var mounts []ContainerMount
	for _, one := range strings.Split(text, ",") {
		part := strings.Split(one, ":")
		mount := ContainerMount{Source: part[0], Target: part[0]}
		if len(part) > 1 {
			mount.Target = part[1]
		}
		if len(part) > 3 || !path.IsAbs(mount.Source) || !path.IsAbs(mount.Target) {
			return nil, fmt.Errorf(
				"invalid mount %q: expected SOURCE:TARGET[:ro], both absolute paths",
				one,
			)
		}
		if len(part) == 3 {
			for _, flag := range strings.Split(part[2], "+") {
				if !slices.Contains(mountFlags, flag) {
					return nil, fmt.Errorf(
						"invalid mount %q: flag %q is not supported; there is %s",
						one,
						flag,
						strings.Join(mountFlags, ", "),
					)
				}
				mount.ReadOnly = mount.ReadOnly || flag == "ro"
			}
		}
		mount.Source, mount.Target = path.Clean(mount.Source), path.Clean(mount.Target)
		if mount.Target == "/" || slices.Contains([]string{"/proc", "/sys", "/dev"}, mount.Target) {
			return nil, fmt.Errorf(
				"invalid mount %q: %s of a container cannot be replaced",
				one,
				mount.Target,
			)
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}

// namesOtherStore tells whether a name is of a store of images that enroot and podman know, and no
// registry.
func namesOtherStore(name string) bool {
	for _, prefix := range [...]string{"oci:", "dockerd:", "podman:"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func isRelativePath(name string) bool {
	return name == "." || strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../")
}
