package submit

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// inEarliest runs a submission in the cluster that -M names; of several, in the one that would
// start the job first. Of equal ones this cluster is taken, then the one that was named first.
func inEarliest(
	call *tool.Call,
	request *apiv1.SubmitRequest,
	submit func(call *tool.Call) error,
) error {
	list, err := call.Clusters()
	if err != nil {
		return err
	}
	chosen := list[0]
	if len(list) > 1 {
		chosen, err = earliestCluster(call, list, request)
	}
	if err == nil {
		err = submit(chosen)
	}
	for _, sub := range list {
		if sub != call {
			err = errors.Join(err, call.EndCluster(sub))
		}
	}
	return err
}

// earliestCluster asks each cluster when it would start the job. One that is away or refuses the
// job is left out, and why is printed.
func earliestCluster(
	call *tool.Call,
	list []*tool.Call,
	request *apiv1.SubmitRequest,
) (*tool.Call, error) {
	var chosen *tool.Call
	var start int64
	for _, sub := range list {
		test := proto.CloneOf(request)
		test.TestOnly = true
		var reply apiv1.SubmitReply
		if err := sub.RPC(tool.MethodSubmit, test, &reply); err != nil {
			call.ReportCluster(sub, err)
			fmt.Fprintf(call.Stderr, "%s: cluster %s is left out\n", call.Command.Name, sub.NamedCluster())
			continue
		}
		own := sub.Env == call.Env // another cluster has a world of its own
		at := reply.GetPlannedStart()
		if chosen == nil || at < start || (at == start && own) {
			chosen = sub
			start = at
		}
	}
	if chosen == nil {
		return nil, call.Errorf("none of the clusters takes the job")
	}
	return chosen, nil
}
