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
	for _, mount := range c.Mounts {
		out.Mounts = append(
			out.Mounts,
			&apiv1.ContainerMount{
				Source: mount.Source, Target: mount.Target, ReadOnly: mount.ReadOnly,
			},
		)
	}
	return out
}

// toContainer reads what container writes.
func toContainer(message *apiv1.Container) *spec.Container {
	if message == nil {
		return nil
	}
	container := &spec.Container{
		Image:    message.GetImage(),
		WorkDir:  message.GetWorkDir(),
		Home:     message.GetHome(),
		ReadOnly: message.GetReadOnly(),
		Keep:     message.GetKeep(),
		Bundle:   message.GetBundle(),
	}
	for _, mount := range message.GetMounts() {
		container.Mounts = append(
			container.Mounts,
			spec.ContainerMount{
				Source:   mount.GetSource(),
				Target:   mount.GetTarget(),
				ReadOnly: mount.GetReadOnly(),
			},
		)
	}
	return container
}

// pinnedImages writes what the names of a job's images mean.
func pinnedImages(list []spec.PinnedImage) []*apiv1.PinnedImage {
	var images []*apiv1.PinnedImage
	for i := range list {
		images = append(images, &apiv1.PinnedImage{Image: list[i].Image, Digest: list[i].Digest})
	}
	return images
}

// ToPinnedImages reads what the names of a job's images mean.
func ToPinnedImages(list []*apiv1.PinnedImage) []spec.PinnedImage {
	var images []spec.PinnedImage
	for _, image := range list {
		images = append(
			images, spec.PinnedImage{Image: image.GetImage(), Digest: image.GetDigest()},
		)
	}
	return images
}
