package query

import (
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
)

// setDebug is scontrol setdebug: how much the controller writes to its log.
func setDebug(call *tool.Call, args []string) error {
	switch {
	case len(args) == 0:
		return tool.Fail(1, "too few arguments for keyword:setdebug")
	case len(args) > 1 || strings.Contains(args[0], "="):
		return call.Errorf(
			"setdebug takes one level, for the controller: the level of a node's agent is log.level in its muster.yaml",
		)
	}
	return setLog(call, &apiv1.SetLogRequest{Level: args[0]})
}

// setDebugFlags is scontrol setdebugflags +FLAG -FLAG ...: groups of records.
func setDebugFlags(call *tool.Call, args []string) error {
	var flags []string
	for _, arg := range args {
		if strings.Contains(arg, "=") {
			return call.Errorf("nodes have no debug flags: setdebugflags sets those of the controller")
		}
		flags = append(flags, tool.SplitList(arg)...)
	}
	if len(flags) == 0 {
		return tool.Fail(1, "too few arguments for keyword:setdebugflags")
	}
	return setLog(call, &apiv1.SetLogRequest{Flags: flags})
}

// setSchedulerLog is scontrol schedloglevel: whether passes and what they start are records.
func setSchedulerLog(call *tool.Call, args []string) error {
	if len(args) != 1 {
		return tool.Fail(1, "schedloglevel takes 0, 1, disable or enable")
	}
	on := false
	switch strings.ToLower(args[0]) {
	case "1", "enable":
		on = true
	case "0", "disable":
	default:
		return tool.Fail(1, "invalid schedlog level: "+args[0]+": expected 0, 1, disable or enable")
	}
	return setLog(call, &apiv1.SetLogRequest{Scheduling: &on})
}

func setLog(call *tool.Call, request *apiv1.SetLogRequest) error {
	return call.RPC(tool.MethodSetLog, request, &apiv1.SetLogReply{})
}

// logValues are what show config says of the controller's log.
func logValues(log *apiv1.LogInfo) map[string]string {
	if log == nil {
		return nil
	}
	flags := strings.Join(log.GetFlags(), ",")
	if flags == "" {
		flags = render.Null
	}
	return map[string]string{
		"SlurmctldDebug":     log.GetLevel(),
		"DebugFlags":         flags,
		"SlurmSchedLogLevel": render.ZeroOne(log.GetScheduling()),
	}
}
