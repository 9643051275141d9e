package fetch

import (
	"slices"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// Reservations asks for all reservations.
func Reservations(call *tool.Call) (*apiv1.ReservationsReply, error) {
	var rep apiv1.ReservationsReply
	if err := call.RPC(tool.MethodReservations, &apiv1.ReservationsRequest{}, &rep); err != nil {
		r := tool.ExplainError(err)
		return nil, tool.Fail(
			1,
			append(r.Preamble(call.Command.Name), "slurm_load_reservations error: "+
				r.Text)...)
	}
	return &rep, nil
}

// ShownPartitions leaves the partitions that -p, --hide and --all choose.
func ShownPartitions(call *tool.Call, all []*apiv1.PartitionInfo) []*apiv1.PartitionInfo {
	var out []*apiv1.PartitionInfo
	wanted := call.Opts.List("partition")
	hide, _ := call.Opts.Get("hide")
	show, ok := call.Opts.Get("all")
	hidden := ok && show.Order > hide.Order
	for _, partition := range all {
		switch {
		case len(wanted) > 0 && !slices.Contains(wanted, partition.GetName()):
		case len(wanted) == 0 && partition.GetHidden() && !hidden:
		default:
			out = append(out, partition)
		}
	}
	return out
}

// Jobs asks for jobs, however many they are.
func Jobs(call *tool.Call, req *apiv1.ListJobsRequest, rep *apiv1.ListJobsReply) error {
	return Stream(call, tool.MethodStreamJobs, req, func(part *apiv1.ListJobsReply) error {
		rep.Now, rep.Seq = part.GetNow(), part.GetSeq()
		rep.Jobs, rep.Unknown = append(
			rep.Jobs,
			part.GetJobs()...), append(
			rep.Unknown,
			part.GetUnknown()...)
		return nil
	})
}

// JobsError words an error as Slurm's library does; clients look for it.
func JobsError(err error) error {
	r := tool.ExplainError(err)
	return tool.Fail(1, append(r.Preamble("squeue"), "slurm_load_jobs error: "+r.Text)...)
}
