package query

import (
	"fmt"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
)

// Controllers lists the controllers, and changes who belongs to them and who leads.
func Controllers() *tool.Command {
	return &tool.Command{
		Name: "controllers", Mixed: true,
		Summary: "list the controllers, add or remove one, or hand the lead over",
		Usage:   []string{"", "add NAME", "remove NAME", "handover [NAME]"},
		About: `Several controllers keep one ledger; one of them leads, the others stand by and pass commands on to it.
LAG is how many batches of the ledger a controller has not applied yet. slurm.conf names the controllers
(SlurmctldHost): one that it names and that has no ledger is taken in by itself, so add is needed only for one that
was removed. remove ends the part of a controller that is gone for good. Only administrators can change anything,
on the host of a controller.`,
		Example: []tool.Example{
			{Line: "muster controllers", What: "shows who leads, and how far the others are"},
			{
				Line: "muster controllers handover ctl2",
				What: "makes ctl2 the leader, before its predecessor's host is serviced",
			},
			{
				Line: "muster controllers remove ctl3",
				What: "counts no longer on a controller whose host burned",
			},
		},
		Run: func(call *tool.Call) error {
			verb, name := "", ""
			if len(call.Operands) > 0 {
				verb = call.Operands[0]
			}
			if len(call.Operands) > 1 {
				name = call.Operands[1]
			}
			switch {
			case len(call.Operands) > 2:
			case verb == "":
				return listControllers(call)
			case verb == "add" && name != "":
				return changeControllers(call, &apiv1.ChangeControllersRequest{Add: name})
			case verb == "remove" && name != "":
				return changeControllers(call, &apiv1.ChangeControllersRequest{Remove: name})
			case verb == "handover":
				return changeControllers(
					call,
					&apiv1.ChangeControllersRequest{HandOver: true, To: name},
				)
			}
			return &opt.UsageError{
				Command: "muster controllers",
				Text:    "expected nothing, or add, remove or handover and the name of a controller",
			}
		},
	}
}

func changeControllers(call *tool.Call, request *apiv1.ChangeControllersRequest) error {
	var reply apiv1.ChangeControllersReply
	if err := call.RPC(tool.MethodChangeControllers, request, &reply); err != nil {
		return err
	}
	if request.GetHandOver() {
		return call.WriteOut(fmt.Appendf(nil, "%s leads\n", reply.GetLeader()))
	}
	return listControllers(call)
}

func listControllers(call *tool.Call) error {
	var reply apiv1.ControllersReply
	if err := call.RPC(
		tool.MethodListControllers, &apiv1.ControllersRequest{}, &reply,
	); err != nil {
		return err
	}
	rows := [][]string{{"NAME", "ROLE", "TERM", "POSITION", "LAG", "CLOCK", "VERSION", "ADDRESS"}}
	var notes []byte
	for _, message := range reply.GetControllers() {
		if message.GetError() != "" {
			rows = append(
				rows,
				[]string{message.GetName(), "down", "-", "-", "-", "-", "-", message.GetAddress()},
			)
			notes = fmt.Appendf(notes, "%s: %s\n", message.GetName(), message.GetError())
			continue
		}
		address := message.GetAddress()
		if address == "" {
			address = "-"
		}
		rows = append(
			rows,
			[]string{
				message.GetName(),
				message.GetRole(),
				fmt.Sprint(message.GetTerm()),
				fmt.Sprint(message.GetPosition()),
				fmt.Sprint(message.GetLag()),
				fmt.Sprintf(
					"%+dms",
					time.Duration(message.GetClockAhead()).Milliseconds(),
				),
				message.GetVersion(),
				address,
			},
		)
	}
	out := append([]byte(render.AlignedTexts(rows)), notes...)
	if len(reply.GetControllers()) > 1 {
		out = fmt.Appendf(out, "survives the loss of %d\n", reply.GetSurvives())
	}
	return call.WriteOut(out)
}

// takeOver is scontrol takeover: the controller of an index of SlurmctldHost, or
// the one that has most of the ledger, takes the lead.
func takeOver(call *tool.Call, args []string) error {
	request := &apiv1.ChangeControllersRequest{HandOver: true}
	if len(args) > 1 {
		return tool.Fail(1, "too many arguments for keyword:takeover")
	}
	if len(args) == 1 {
		var list apiv1.ControllersReply
		if err := call.RPC(tool.MethodListControllers, &apiv1.ControllersRequest{}, &list); err != nil {
			return err
		}
		var at int
		if _, err := fmt.Sscanf(args[0], "%d", &at); err != nil || at < 0 ||
			at >= len(list.GetControllers()) {
			return tool.Fail(
				1,
				fmt.Sprintf(
					"invalid index %q: expected the place of a SlurmctldHost, 0 to %d",
					args[0],
					len(list.GetControllers())-1,
				),
			)
		}
		request.To = list.GetControllers()[at].GetName()
	}
	return changeControllers(call, request)
}
