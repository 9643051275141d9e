package query

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/tool"
)

// shown is an entity of scontrol show.
type shown struct {
	// Names are what is typed, in full or its beginning: at least three letters, and of
	// several entities that begin so the first of the table.
	names []string
	// Local entities are answered without a controller.
	local bool
	run   func(c *tool.Call, name string, args []string) error
}

// shownEntities are the entities of scontrol show.
//
//muster:table one row for each entity
func shownEntities() []shown {
	named := func(f func(*tool.Call, string) error) func(*tool.Call, string, []string) error {
		return func(c *tool.Call, name string, _ []string) error { return f(c, name) }
	}
	hosts := func(what string) func(*tool.Call, string, []string) error {
		return func(c *tool.Call, name string, _ []string) error { return showHosts(c, what, name) }
	}
	// As Slurm prints of what it has none: nothing, so that a script sees no line that is no record.
	absent := func(*tool.Call, string, []string) error { return nil }
	return []shown{
		{[]string{"jobs", "jobid"}, false, named(showJobs)},
		{[]string{"nodes", "nodename"}, false, named(showNodes)},
		{[]string{"partitions", "partitionname"}, false, named(showPartitions)},
		{[]string{"config", "configuration"}, false, func(c *tool.Call, _ string, _ []string) error { return showConfig(c) }},
		{[]string{"steps", "stepid"}, false, named(showSteps)},
		{[]string{"licenses", "licensename"}, false, named(showLicenses)},
		{[]string{"reservations", "reservationname"}, false, named(showReservations)},
		{[]string{"hostnames"}, true, hosts("hostnames")},
		{[]string{"hostlistsorted"}, true, hosts("hostlistsorted")},
		{[]string{"hostlist"}, true, hosts("hostlist")},
		{[]string{"topology"}, false, named(showTopology)},
		{[]string{"assoc_mgr"}, false, func(c *tool.Call, _ string, args []string) error { return showAssocMgr(c, args) }},
		{[]string{"daemons"}, true, func(c *tool.Call, _ string, _ []string) error { return showDaemons(c) }},
		{[]string{"aliases"}, false, named(showAliases)},
		{[]string{"slurmd"}, false, named(showAgents)},
		{[]string{"topoconf"}, false, func(c *tool.Call, _ string, _ []string) error { return showTopoConf(c) }},
		{[]string{"burstbuffer"}, true, absent},
		{[]string{"bbstat"}, true, absent},
		{[]string{"dwstat"}, true, absent},
		{[]string{"federation"}, true, absent},
	}
}

// findShown finds an entity by a name or the beginning of one.
func findShown(typed string) *shown {
	table := shownEntities()
	var begins *shown
	for i := range table {
		for _, name := range table[i].names {
			switch {
			case name == typed || name == typed+"s":
				return &table[i]
			case begins == nil && len(typed) >= 3 && strings.HasPrefix(name, typed):
				begins = &table[i]
			}
		}
	}
	return begins
}

// showEntity prints one kind of thing: show job 12, show job=12, show JobId=12.
func showEntity(call *tool.Call, args []string) error {
	if len(args) == 0 {
		return tool.Fail(1, "too few arguments for keyword:show")
	}
	entity, name, _ := strings.Cut(args[0], "=")
	if name == "" && len(args) > 1 {
		_, name, _ = strings.Cut(args[1], "=")
		if name == "" {
			name = args[1]
		}
	}
	found := findShown(strings.ToLower(entity))
	switch {
	case found == nil:
		return tool.Fail(1, "invalid entity:"+entity+" for keyword:show")
	case found.local:
		return found.run(call, name, args[1:])
	}
	return call.OneCluster(func(call *tool.Call) error {
		return found.run(call, name, args[1:])
	})
}

// showDaemons prints Slurm's names of the daemons that this host should run: the
// controller's and the agent's sockets are in fixed places.
func showDaemons(call *tool.Call) error {
	controller, _, err := call.Sockets()
	if err != nil {
		return err
	}
	folder := controller[:strings.LastIndexByte(controller, '/')+1]
	var names []string
	for _, daemon := range []struct{ name, socket string }{{"slurmctld", controller}, {"slurmd", folder +
		"steps.sock"}} {
		if _, err := os.Stat(daemon.socket); err == nil {
			names = append(names, daemon.name)
		}
	}
	return call.WriteOut([]byte(strings.Join(names, " ") + "\n"))
}

// loadNodes asks for some nodes, or all.
func loadNodes(call *tool.Call, names string) ([]*apiv1.NodeInfo, error) {
	request := &apiv1.ListNodesRequest{}
	if names != "" && !strings.EqualFold(names, "all") {
		request.Nodes = []string{names}
	}
	var reply apiv1.ListNodesReply
	if err := call.RPC(tool.MethodListNodes, request, &reply); err != nil {
		refusal := tool.ExplainError(err)
		return nil, tool.Fail(
			1,
			append(refusal.Preamble("scontrol"), "slurm_load_node error: "+refusal.Text)...)
	}
	if len(reply.GetUnknown()) > 0 {
		return nil, tool.Fail(1, "Node "+strings.Join(reply.GetUnknown(), ",")+" not found")
	}
	return reply.GetNodes(), nil
}

// showAliases prints the nodes of a host name, or of all.
func showAliases(call *tool.Call, host string) error {
	nodes, err := loadNodes(call, "")
	if err != nil {
		return err
	}
	var names []string
	for _, node := range nodes {
		if host == "" || node.GetHostname() == host || node.GetName() == host {
			names = append(names, node.GetName())
		}
	}
	if len(names) == 0 {
		return tool.Fail(1, "No node has the host name "+host)
	}
	return call.WriteOut([]byte(strings.Join(names, " ") + "\n"))
}

// agentPort is where the agent of a node listens that slurm.conf gives no Port.
const agentPort = 6818

// nodeAddresses is scontrol getaddrs: name, address and port of each node.
func nodeAddresses(call *tool.Call, args []string) error {
	if len(args) != 1 {
		return tool.Fail(1, "getaddrs takes one list of nodes")
	}
	nodes, err := loadNodes(call, args[0])
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, node := range nodes {
		address := node.GetAddr()
		if address == "" {
			address = node.GetName()
		}
		fmt.Fprintf(
			&text, "%s: %s:%d\n", node.GetName(), address, cmp.Or(node.GetPort(), agentPort),
		)
	}
	return call.WriteOut([]byte(text.String()))
}

// showCompleting is scontrol completing: jobs whose nodes are still being cleaned up.
func showCompleting(call *tool.Call) error {
	var reply apiv1.ListJobsReply
	if err := fetch.Jobs(
		call,
		&apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Completing: true, AllStates: true}},
		&reply,
	); err != nil {
		return fetch.JobsError(err)
	}
	var text strings.Builder
	for _, job := range reply.GetJobs() {
		if job.GetCompleting() {
			fmt.Fprintf(&text, "JobId=%d Nodes(COMPLETING)=%s\n", job.GetJobId(), job.GetNodes())
		}
	}
	return call.WriteOut([]byte(text.String()))
}

// listJobs is scontrol listjobs: the jobs that run on a node, by default on this one.
func listJobs(call *tool.Call, args []string) error {
	jobs, _, err := jobsAt(call, firstOf(args))
	if err != nil {
		return err
	}
	var text strings.Builder
	text.WriteString("JOBID\n")
	for _, job := range jobs {
		fmt.Fprintf(&text, "%d\n", job.GetJobId())
	}
	return call.WriteOut([]byte(text.String()))
}
