package query

import (
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// showAgents is scontrol show slurmd [NODE]: the agents of this host, or that of a node, as they
// registered with the controller.
func showAgents(call *tool.Call, name string) error {
	nodes, err := loadNodes(call, name)
	if err != nil {
		return err
	}
	if name == "" {
		nodes = slices.DeleteFunc(nodes, func(node *apiv1.NodeInfo) bool {
			return node.GetName() != call.Host && node.GetHostname() != call.Host
		})
	}
	if len(nodes) == 0 {
		return tool.Fail(1, "This host ("+call.Host+") is not a node of the cluster: name a node")
	}
	clock := render.NewClock(call.Env)
	for i, node := range nodes {
		text, err := agentLines(call, clock, node)
		if err != nil {
			return err
		}
		if i > 0 {
			text = "\n" + text
		}
		if err := call.WriteOut([]byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// agentLines are the lines about an agent.
func agentLines(call *tool.Call, clock render.Clock, node *apiv1.NodeInfo) (string, error) {
	steps, err := stepsOn(call, node.GetName())
	if err != nil {
		return "", err
	}
	active := strings.Join(steps, ",")
	if active == "" {
		active = "NONE"
	}
	var text strings.Builder
	line := func(key, value string) { fmt.Fprintf(&text, "%-24s = %s\n", key, value) }
	line("NodeName", node.GetName())
	line("Active Steps", active)
	if found := node.GetFound(); found != nil {
		line("Actual CPUs", tool.Itoa(found.GetCpus()))
		line("Actual sockets", tool.Itoa(found.GetSockets()))
		line("Actual cores", tool.Itoa(found.GetSockets()*found.GetCoresPerSocket()))
		line("Actual threads per core", tool.Itoa(found.GetThreadsPerCore()))
		line("Actual real memory", tool.Itoa(found.GetMem())+" MB")
		line("Actual temp disk space", tool.Itoa(found.GetTmpDisk())+" MB")
		line("Address", found.GetAddr())
	}
	line("Boot time", clock.Time(node.GetBootTime()))
	line("Slurmd start time", clock.Time(node.GetAgentStart()))
	line("Hostname", node.GetHostname())
	line("Last slurmctld msg time", clock.Time(node.GetLastSeen()))
	line("Version", node.GetVersion())
	return text.String(), nil
}

// stepsOn are the steps that run on a node.
func stepsOn(call *tool.Call, node string) ([]string, error) {
	jobs, err := runningOn(call, node)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, job := range jobs {
		if !job.GetSpec().GetShell() && job.GetBatchHost() == node {
			out = append(out, fmt.Sprintf("%d.%s", job.GetJobId(), spec.StepBatch))
		}
		for _, step := range job.GetSteps() {
			if step.GetEnd() == 0 && slices.Contains(step.GetNodes(), node) {
				out = append(out, fmt.Sprintf("%d.%s", job.GetJobId(), spec.StepID(step.GetStepId())))
			}
		}
	}
	return out, nil
}
