package decide

import (
	"fmt"

	"github.com/musterhpc/muster/spec"
)

// checkSegment refuses segments into which the job's nodes cannot be cut.
func (d submission) checkSegment(jobSpec *spec.JobSpec) error {
	segment, largest := jobSpec.Place.Segment, uint32(0)
	for _, name := range jobSpec.Partitions {
		if partition := d.t.Parts.Find(name); partition != nil {
			if top := d.t.Config.TopologyOf(partition.Spec); len(top.Blocks) > 0 {
				largest = max(largest, top.Sizes[0])
			}
		}
	}
	switch {
	case segment == 0 && jobSpec.Place.ApartSegments:
		return spec.Refuse(spec.CodeNodeCountInvalid, "--spread-segments needs --segment")
	case segment == 0:
		return nil
	case largest == 0:
		return spec.Refuse(
			spec.CodeDisabled,
			"--segment needs to know the blocks: TopologyPlugin=topology/block and topology.conf",
		)
	case jobSpec.Size.MinNodes == 0 || jobSpec.Size.MinNodes%segment != 0 ||
		(jobSpec.Size.MaxNodes != 0 && jobSpec.Size.MaxNodes != jobSpec.Size.MinNodes):
		return spec.Refuse(
			spec.CodeNodeCountInvalid,
			fmt.Sprintf("--segment=%d needs a number of nodes (-N) that it divides", segment),
		)
	case segment > largest:
		return spec.Refuse(
			spec.CodeNodeConfigUnavailable,
			fmt.Sprintf("a segment of %d nodes is larger than a block of %d", segment, largest),
		)
	case len(jobSpec.Size.PerJob) > 0:
		return spec.Refuse(
			spec.CodeInvalidGRES,
			"--segment gives every node the same: ask with --gpus-per-node instead of --gpus",
		)
	case jobSpec.Place.Contiguous || jobSpec.Place.Switches > 0:
		return spec.Refuse(
			spec.CodeBadRequest,
			"--segment goes with neither --contiguous nor --switches",
		)
	}
	return nil
}

// checkSharing refuses what cannot be kept apart here, and labels the job.
func (d submission) checkSharing(jobSpec *spec.JobSpec) error {
	mcs := d.t.Config.Labels()
	jobSpec.MCSLabel = ""
	if mcs.Enforced || jobSpec.Place.Sharing == spec.ExclusiveMCS {
		switch mcs.By {
		case "user":
			jobSpec.MCSLabel = jobSpec.User
		case "account":
			jobSpec.MCSLabel = jobSpec.Account
		}
	}
	switch {
	case jobSpec.Place.Sharing == spec.ExclusiveMCS && mcs.By == "":
		return spec.Refuse(
			spec.CodeDisabled,
			"--exclusive=mcs needs labels: MCSPlugin=mcs/user or mcs/account",
		)
	case jobSpec.Place.Sharing == spec.ExclusiveMCS && mcs.Never:
		return spec.Refuse(spec.CodeDisabled, "--exclusive=mcs: MCSParameters=noselect")
	case jobSpec.Place.Sharing == spec.ExclusiveTopo && !d.t.Config.HasBlocks():
		return spec.Refuse(
			spec.CodeDisabled,
			"--exclusive=topo needs to know the blocks: TopologyPlugin=topology/block and topology.conf",
		)
	}
	return nil
}
