package wire

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// writeContainer writes the file tree that a script or a step runs in.
func writeContainer(c *spec.Container) *apiv1.Container {
	if c == nil {
		return nil
	}
	out := &apiv1.Container{
		Image:    c.Image,
		WorkDir:  c.WorkDir,
		Home:     c.Home,
		ReadOnly: c.ReadOnly,
		Keep:     c.Keep,
		Bundle:   c.Bundle,
	}
	for _, m := range c.Mounts {
		out.Mounts = append(
			out.Mounts,
			&apiv1.ContainerMount{Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly},
		)
	}
	return out
}

// toContainer reads what container writes.
func toContainer(m *apiv1.Container) *spec.Container {
	if m == nil {
		return nil
	}
	out := &spec.Container{
		Image:    m.GetImage(),
		WorkDir:  m.GetWorkDir(),
		Home:     m.GetHome(),
		ReadOnly: m.GetReadOnly(),
		Keep:     m.GetKeep(),
		Bundle:   m.GetBundle(),
	}
	for _, one := range m.GetMounts() {
		out.Mounts = append(
			out.Mounts,
			spec.ContainerMount{
				Source:   one.GetSource(),
				Target:   one.GetTarget(),
				ReadOnly: one.GetReadOnly(),
			},
		)
	}
	return out
}

// pinnedImages writes what the names of a job's images mean.
func pinnedImages(list []spec.PinnedImage) []*apiv1.PinnedImage {
	var out []*apiv1.PinnedImage
	for i := range list {
		out = append(out, &apiv1.PinnedImage{Image: list[i].Image, Digest: list[i].Digest})
	}
	return out
}

// ToPinnedImages reads what the names of a job's images mean.
func ToPinnedImages(list []*apiv1.PinnedImage) []spec.PinnedImage {
	var out []spec.PinnedImage
	for _, one := range list {
		out = append(out, spec.PinnedImage{Image: one.GetImage(), Digest: one.GetDigest()})
	}
	return out
}
