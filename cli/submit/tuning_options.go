package submit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// ignoreTuning is an option that only tunes how fast a job runs: the job is accepted, and
// the option's warning says what becomes of it.
func ignoreTuning(*jobRequest, opt.Value) error { return nil }

// applyGRESFlags checks the words of --gres-flags. Those that only tune are accepted
// with the option's warning; one-task-per-sharing holds here in any case.
func applyGRESFlags(request *jobRequest, value opt.Value) error {
	known := []string{
		"enforce-binding",
		"disable-binding",
		"allow-task-sharing",
		"multiple-tasks-per-sharing",
		"one-task-per-sharing",
	}
	for word := range strings.SplitSeq(strings.ToLower(value.Text), ",") {
		if !slices.Contains(known, word) {
			return request.badOption("gres-flags")
		}
	}
	return nil
}

// applyTRESBind reads --tres-bind: of gres/gpu it means what --gpu-bind means.
func applyTRESBind(request *jobRequest, value opt.Value) error {
	for item := range strings.SplitSeq(value.Text, "+") {
		name, kind, ok := strings.Cut(item, ":")
		if !ok {
			return request.badOption("tres-bind")
		}
		if name != "gres/gpu" {
			return tool.Fail(
				1,
				fmt.Sprintf(
					"%s: error: --tres-bind=%s: tasks are bound to GPUs only (gres/gpu:%s)",
					request.name,
					value.Text,
					kind,
				),
			)
		}
		if err := applyGPUBind(request, opt.Value{Text: kind, Has: true, From: value.From}); err != nil {
			return err
		}
	}
	return nil
}

// applyUser accepts --uid of the submitting user, by number or name, which changes
// nothing. For another user sbatch must run as that user.
func applyUser(request *jobRequest, value opt.Value) error {
	own := strconv.FormatUint(uint64(request.env.UID), 10)
	if value.Text == own || tool.LookupUID(value.Text) == own {
		return nil
	}
	return tool.Fail(
		1,
		fmt.Sprintf(
			"%s: error: --uid=%s: jobs belong to the user who submits them; as root, use runuser -u %s -- %s ...",
			request.name,
			value.Text,
			value.Text,
			request.name,
		),
	)
}

// applyDistribution reads -m of a job: its steps distribute their tasks so.
func applyDistribution(request *jobRequest, value opt.Value) error {
	text, err := parseDistribution(value.Text, request.env.Getenv("SLURM_DIST_PLANESIZE"))
	if err != nil {
		return tool.Fail(255, request.name+": error: "+err.Error())
	}
	request.spec.Distribution = text
	return nil
}

// parseDistribution reads --distribution and returns it as steps store it: the way
// over nodes, and behind colons the ways over sockets and cores, which the node does
// not follow. Pack and NoPack only tune how few nodes are used.
func parseDistribution(text, planeSize string) (string, error) {
	levels, _, _ := strings.Cut(strings.ToLower(text), ",")
	list := strings.Split(levels, ":")
	if list[0] == "pack" || list[0] == "nopack" {
		return "", nil
	}
	if len(list) > 3 {
		return "", fmt.Errorf("Invalid --distribution specification: %s", text)
	}
	for _, level := range list[1:] {
		if !slices.Contains([]string{"*", "block", "cyclic", "fcyclic"}, level) {
			return "", fmt.Errorf("Invalid --distribution specification: %s", text)
		}
	}
	switch nodes := list[0]; {
	case nodes == "*" || nodes == "unknown":
		if len(list) == 1 {
			return "", nil
		}
		list[0] = "block"
	case nodes == "block" || nodes == "cyclic":
	case nodes == "plane":
		return readPlane("plane="+planeSize, text)
	case strings.HasPrefix(nodes, "plane="):
		return readPlane(nodes, text)
	case nodes == "arbitrary":
		return "", fmt.Errorf(
			"--distribution=arbitrary is not supported in this release: name the nodes with -w",
		)
	default:
		return "", fmt.Errorf("Invalid --distribution specification: %s", text)
	}
	return strings.Join(list, ":"), nil
}

func readPlane(plane, text string) (string, error) {
	if (&spec.StepSpec{Distribution: plane}).Plane() == 0 {
		return "", fmt.Errorf("Invalid --distribution specification: %s", text)
	}
	return plane, nil
}

// readDistribution reads -m of a step.
func readDistribution(call *tool.Call, s *apiv1.StepSpec, text string) error {
	distribution, err := parseDistribution(text, call.Getenv("SLURM_DIST_PLANESIZE"))
	if err != nil {
		return call.Errorf("%v", err)
	}
	s.Distribution = distribution
	return nil
}
