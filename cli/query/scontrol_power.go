package query

import (
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec/hostlist"
)

// powerNodes is scontrol power up|down [asap|force] NODES.
func powerNodes(call *tool.Call, args []string) error {
	state, words := "", []string(nil)
	for _, a := range args {
		words = append(words, strings.ToLower(a))
	}
	switch {
	case len(args) == 2 && words[0] == "up":
		state = "power_up"
	case len(args) == 2 && words[0] == "down":
		state = "power_down"
	case len(args) == 3 && words[0] == "down" && slices.Contains([]string{"asap", "force"}, words[1]):
		state = "power_down_" + words[1]
	default:
		return call.Errorf(
			"expected: scontrol power up NODES, or scontrol power down [asap|force] NODES",
		)
	}
	nodes, err := someNodes(call, args[len(args)-1])
	if err != nil {
		return err
	}
	return sendNodes(call, &apiv1.UpdateNodeRequest{Nodes: nodes, State: state})
}

// rebootNodes is scontrol reboot [ASAP] [nextstate=…] [reason=…] NODES.
func rebootNodes(call *tool.Call, args []string) error {
	request := &apiv1.UpdateNodeRequest{State: "reboot"}
	for _, a := range args {
		key, value, pair := strings.Cut(a, "=")
		switch key = strings.ToLower(key); {
		case !pair && key == "asap":
			request.State = "reboot_asap"
		case pair && key == "nextstate":
			request.NextState = strings.ToLower(value)
			if request.NextState != "resume" && request.NextState != "down" {
				return call.Errorf("Invalid NextState %s: RESUME and DOWN are known", value)
			}
		case pair && key == "reason":
			request.Reason = strings.Trim(value, "\"")
		case pair:
			return call.Errorf("%s= is unknown: nextstate= and reason= are", key)
		case request.Nodes != "":
			return call.Errorf(
				"nodes are one argument, as a host list: %s or %s?", request.Nodes, a,
			)
		default:
			var err error
			request.Nodes, err = someNodes(call, a)
			if err != nil {
				return err
			}
		}
	}
	if request.Nodes == "" {
		return call.Errorf("which nodes are to be rebooted? Name them, or ALL")
	}
	return sendNodes(call, request)
}

// cancelReboot is scontrol cancel_reboot NODES.
func cancelReboot(call *tool.Call, args []string) error {
	if len(args) != 1 {
		return call.Errorf("expected: scontrol cancel_reboot NODES")
	}
	nodes, err := someNodes(call, args[0])
	if err != nil {
		return err
	}
	return sendNodes(call, &apiv1.UpdateNodeRequest{Nodes: nodes, State: "cancel_reboot"})
}

// someNodes checks a host list; ALL are all nodes.
func someNodes(call *tool.Call, expr string) (string, error) {
	if !strings.EqualFold(expr, "ALL") {
		if _, err := hostlist.Count(expr); err != nil {
			return "", call.Errorf("%v", err)
		}
		return expr, nil
	}
	var reply apiv1.ListNodesReply
	if err := call.RPC(tool.MethodListNodes, &apiv1.ListNodesRequest{}, &reply); err != nil {
		return "", err
	}
	var names []string
	for _, node := range reply.GetNodes() {
		names = append(names, node.GetName())
	}
	return hostlist.Fold(names), nil
}
