package submit

import (
	"errors"
	"fmt"
	"path"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/spec"
)

// containerTo applies an option to the container of the script or the step.
func containerTo(set func(x *apiv1.Container, text string) error) applier {
	return func(request *jobRequest, value opt.Value) error {
		if request.spec.Container == nil {
			request.spec.Container = &apiv1.Container{}
		}
		return set(request.spec.Container, value.Text)
	}
}

func applyImage(container *apiv1.Container, text string) error {
	image, err := spec.ParseImage(text)
	if err != nil {
		return fmt.Errorf("--container-image: %w", err)
	}
	if container.Bundle {
		return errors.New("--container and --container-image exclude each other")
	}
	container.Image = image
	return nil
}

// applyBundle takes the folder of an OCI bundle.
func applyBundle(request *jobRequest, value opt.Value) error {
	return containerTo(func(container *apiv1.Container, text string) error {
		if container.Image != "" && !container.Bundle {
			return errors.New("--container and --container-image exclude each other")
		}
		folder := request.absolutePath(text)
		if strings.ContainsAny(folder, "\n\x00") {
			return fmt.Errorf("--container: invalid path %q", text)
		}
		container.Image, container.Bundle = path.Clean(folder), true
		return nil
	})(request, value)
}

func applyMounts(container *apiv1.Container, text string) error {
	list, err := spec.ParseMounts(text)
	if err != nil {
		return fmt.Errorf("--container-mounts: %w", err)
	}
	container.Mounts = nil
	for _, mount := range list {
		container.Mounts = append(
			container.Mounts,
			&apiv1.ContainerMount{
				Source: mount.Source, Target: mount.Target, ReadOnly: mount.ReadOnly,
			},
		)
	}
	return nil
}

func applyContainerDir(container *apiv1.Container, text string) error {
	if !path.IsAbs(text) {
		return fmt.Errorf("--container-workdir: %q is not an absolute path", text)
	}
	container.WorkDir = path.Clean(text)
	return nil
}

// errNoImage: what a container is like is said, and not which.
var errNoImage = errors.New("options of a container need --container-image or --container")

// checkContainer refuses a container without an image.
func (r *jobRequest) checkContainer() error {
	if x := r.spec.Container; x != nil && x.Image == "" {
		return errNoImage
	}
	return nil
}

// ofSteps refuses for salloc the options that are srun's: its own command runs
// on this host.
func ofSteps() []opt.Option {
	var options []opt.Option
	for _, option := range []opt.Option{{Long: "container-image", Arg: "<image>"},
		{Long: "container-mounts", Arg: "<mounts>"},
		{Long: "container-workdir", Arg: "<directory>"},
		{Long: "container-env", Arg: "<names>"}, {Long: "container-mount-home"}, {Long: "container-readonly"}} {
		option.Refused = "give it to the srun commands in the allocation"
		options = append(options, option)
	}
	return options
}
