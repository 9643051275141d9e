package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// BundleConfig is the file of an OCI bundle that describes the container.
const BundleConfig = "config.json"

// ErrBundle is a bundle that cannot be run as it is.
var ErrBundle = errors.New("the OCI bundle cannot be run")

// bundle is what counts of a bundle's config.json. Its command is replaced by that
// of the job, as Slurm does; identity, limits, devices and namespaces are those of
// the job.
type bundle struct {
	Version string `json:"ociVersion"`
	Root    *struct {
		Path     string `json:"path"`
		ReadOnly bool   `json:"readonly"`
	} `json:"root"`
	Process struct {
		Dir string   `json:"cwd"`
		Env []string `json:"env"`
	} `json:"process"`
	Mounts []struct {
		Target  string   `json:"destination"`
		Type    string   `json:"type"`
		Source  string   `json:"source"`
		Options []string `json:"options"`
	} `json:"mounts"`
	Hooks map[string][]json.RawMessage `json:"hooks"`
}

// nodesOwn are the paths that a container has of the node, whatever a bundle says.
var nodesOwn = []string{"/proc", "/sys", "/dev", "/tmp"}

// ReadBundle reads the config.json of a bundle in a folder.
func ReadBundle(data []byte, folder string) (*Unpacked, error) {
	var b bundle
	if err := json.Unmarshal(data, &b); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBundle, path.Join(folder, BundleConfig), err)
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrBundle, path.Join(folder, BundleConfig), fmt.Sprintf(format, args...))
	}
	switch {
	case !strings.HasPrefix(b.Version, "1."):
		return nil, wrong("ociVersion %q is not 1.x", b.Version)
	case b.Root == nil || b.Root.Path == "":
		return nil, wrong("root.path is missing")
	}
	for _, name := range slices.Sorted(maps.Keys(b.Hooks)) {
		if len(b.Hooks[name]) > 0 {
			return nil, wrong("hooks.%s: hooks are not run; take them out, and use TaskProlog or the job's script", name)
		}
	}
	unpacked := &Unpacked{
		Root: within(folder, b.Root.Path), ReadOnly: b.Root.ReadOnly, WorkDir: b.Process.Dir,
	}
	if unpacked.WorkDir != "" && !path.IsAbs(unpacked.WorkDir) {
		return nil, wrong("process.cwd %q is not absolute", unpacked.WorkDir)
	}
	for _, e := range b.Process.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" || strings.IndexByte(e, 0) >= 0 {
			return nil, wrong("process.env: %q is no NAME=value", e)
		}
		// A terminal is the caller's.
		if !strings.HasPrefix(e, "TERM=") {
			unpacked.Env = append(unpacked.Env, e)
		}
	}
	for _, m := range b.Mounts {
		target := path.Clean("/" + m.Target)
		if slices.ContainsFunc(nodesOwn, func(own string) bool {
			return target == own || strings.HasPrefix(target, own+"/")
		}) && !isBind(m.Type, m.Options) {
			continue
		}
		switch {
		case !isBind(m.Type, m.Options):
			return nil, wrong("mounts: %s at %s is not supported; only files and folders of the node are mounted", m.Type, target)
		case m.Source == "" || target == "/" || slices.Contains(nodesOwn[:3], target):
			return nil, wrong("mounts: %s cannot be mounted at %s", m.Source, target)
		}
		unpacked.Mounts = append(unpacked.Mounts, spec.ContainerMount{
			Source:   within(folder, m.Source),
			Target:   target,
			ReadOnly: slices.Contains(m.Options, "ro"),
		})
	}
	return unpacked, nil
}

func isBind(kind string, options []string) bool {
	return kind == "bind" || slices.Contains(options, "bind") || slices.Contains(options, "rbind")
}

// within is a path that is relative to a bundle.
func within(folder, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(folder, name)
}
