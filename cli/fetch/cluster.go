package fetch

import (
	"slices"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// Reservations asks for all reservations.
func Reservations(call *tool.Call) (*apiv1.ReservationsReply, error) {
	var reply apiv1.ReservationsReply
	if err := call.RPC(tool.MethodReservations, &apiv1.ReservationsRequest{}, &reply); err != nil {
		refusal := tool.ExplainError(err)
		return nil, tool.Fail(
			1,
			append(refusal.Preamble(call.Command.Name), "slurm_load_reservations error: "+
				refusal.Text)...)
	}
	return &reply, nil
}

// ShownPartitions leaves the partitions that -p, --hide and --all choose.
func ShownPartitions(call *tool.Call, all []*apiv1.PartitionInfo) []*apiv1.PartitionInfo {
	var partitions []*apiv1.PartitionInfo
	wanted := call.Opts.List("partition")
	hide, _ := call.Opts.Get("hide")
	show, ok := call.Opts.Get("all")
	hidden := ok && show.Order > hide.Order
	for _, partition := range all {
		switch {
		case len(wanted) > 0 && !slices.Contains(wanted, partition.GetName()):
		case len(wanted) == 0 && partition.GetHidden() && !hidden:
		default:
			partitions = append(partitions, partition)
		}
	}
	return partitions
}

// Jobs asks for jobs, however many they are.
func Jobs(call *tool.Call, request *apiv1.ListJobsRequest, reply *apiv1.ListJobsReply) error {
	return Stream(call, tool.MethodStreamJobs, request, func(part *apiv1.ListJobsReply) error {
		reply.Now, reply.Seq = part.GetNow(), part.GetSeq()
		reply.Jobs, reply.Unknown = append(
			reply.Jobs,
			part.GetJobs()...), append(
			reply.Unknown,
			part.GetUnknown()...)
		return nil
	})
}

// JobsError words an error as Slurm's library does; clients look for it.
func JobsError(err error) error {
	refusal := tool.ExplainError(err)
	return tool.Fail(
		1, append(refusal.Preamble("squeue"), "slurm_load_jobs error: "+refusal.Text)...,
	)
}
