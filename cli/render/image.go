package render

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// ImageName is the image in which a job's script runs, with the digest that its name
// meant where that is known; empty where it has the node's files.
func ImageName(job *apiv1.JobInfo) string {
	container := spec.Container{Image: job.GetSpec().GetContainer().GetImage()}
	var pinned []spec.PinnedImage
	for _, image := range job.GetImages() {
		pinned = append(
			pinned, spec.PinnedImage{Image: image.GetImage(), Digest: image.GetDigest()},
		)
	}
	return container.NameWith(pinned)
}
