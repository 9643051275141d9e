package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

//muster:table the options and verbs of scontrol
func scontrolCommand() *command {
	const noFederation = "there is one cluster and no federation"
	return &command{
		name: "scontrol", slurm: true, mixed: true,
		summary: "show details, and change jobs and nodes",
		usage:   []string{"[OPTIONS] COMMAND [ARGUMENTS]"},
		about: `Commands and what they act on may be shortened: scontrol sho part.

Keys of update are written with any capitals: jobid=12 timelimit=2:00:00, nodename=n[1-3] state=drain reason="fan". States of nodes:
drain, down, fail, resume, power_up, power_down, power_down_asap, power_down_force, cancel_reboot. States of partitions: up, down (jobs
are accepted and wait), drain (those that wait start, none is accepted), inactive (neither); jobs that run go on. Of a partition also
Nodes (a list, ALL, or those that come and go: +n3,-n[1-2]), MaxTime, DefaultTime, MaxNodes, MinNodes, AllowGroups, AllowAccounts, DenyAccounts, AllowQos, DenyQos, PriorityTier, PriorityJobFactor
and Hidden can be changed (operators). A restart keeps such a change, unless the record of that partition in slurm.conf has changed too;
scontrol reconfigure makes every partition what slurm.conf says, and names those that it changes back.`,
		verbs: []verb{
			{"show", "job [ID]", "jobs, with -d also what they hold on each node"},
			{"show", "node [NAMES]", "nodes"},
			{"show", "partition [NAME]", "partitions"},
			{"show", "config", "every key of the configuration in force"},
			{"show", "step [JOB[.STEP]]", "job steps"},
			{"show", "licenses", "licences"},
			{"show", "reservation", "reservations"},
			{"show", "topology [NAME]", "switches and blocks: all, those of a topology, or one, or a node's"},
			{"show", "assoc_mgr [users=LIST] [accounts=LIST] [qos=LIST] [flags=users,assoc,qos]", "the limits of associations and QOS as limit(used), N without a limit: what running and waiting jobs hold now, and in GrpWall and GrpTRESMins what has been used"},
			{"show", "hostnames [LIST]", "the names of a host list, one to a line; without one those of $SLURM_JOB_NODELIST"},
			{"show", "hostlist NAMES", "names folded in their order; - reads them from the standard input"},
			{"show", "hostlistsorted NAMES", "names folded in order"},
			{"hold", "JOB...", "keep jobs from starting; an operator's hold only an operator releases"},
			{"uhold", "JOB...", "the same, so that the owner can release them"},
			{"release", "JOB...", "undo a hold"},
			{"requeue", "JOB...", "put jobs back into the queue"},
			{"suspend", "JOB...", "stop the processes of running jobs (operators); their CPUs are free to others, memory and devices stay theirs"},
			{"resume", "JOB...", "let suspended jobs go on: at once, or when nobody else has their CPUs"},
			{"requeuehold", "JOB...", "the same, held"},
			{"update", "KEY=VALUE...", "change a job (jobid=), nodes (nodename=), a partition (partitionname=) or a reservation (reservationname=)"},
			{"power", "up|down [asap|force] NODES", "power nodes up or down: down when no job is on them, asap also starts none there, force ends them"},
			{"reboot", "[ASAP] [nextstate=RESUME|DOWN] [reason=TEXT] NODES|ALL", "reboot nodes when no job is on them; ASAP starts none there before"},
			{"cancel_reboot", "NODES", "call reboots off that have not begun"},
			{"wait_job", "JOB", "wait until a job runs; exit code 1 if it ends before"},
			{"create", "reservation|nodename=NODES|partitionname=NAME KEY=VALUE...", "reserve nodes: users= or accounts=, nodes= or nodecnt=, starttime=, duration=, flags=; or add nodes while the cluster runs, with the keys of a NodeName record (needs MaxNodeCount); or a partition, with the keys of a PartitionName record"},
			{"delete", "reservation=NAME|nodename=NODES", "end a reservation; or take nodes away that were created so and on which no job is"},
			{"ping", "", "say whether the controller is there"},
			{"reconfigure", "", "read the configuration files again"},
			{"shutdown", "", "stop the controller; jobs keep running"},
			{"token", "[lifespan=SECONDS] [username=NAME]", "a token with which a program acts as you over REST, half an hour without a lifespan"},
			{"errnumstr", "NUMBER", "the text of an error number"},
			{"version", "", "print the version"},
			{"help", "", "print this text"},
		},
		options: []opt.Option{
			{Long: "all", Short: "a", Env: "SCONTROL_ALL", Help: "show hidden partitions too"},
			{Long: "clusters", Short: "M", Arg: "<string>", Env: "SLURM_CLUSTERS", Help: "check that this is the cluster's name"},
			{Long: "details", Short: "d", Help: "show more"},
			{Long: "federation", Env: "SCONTROL_FEDERATION", Refused: noFederation},
			{Long: "future", Short: "F", Env: "SCONTROL_FUTURE", Help: "show nodes in State=FUTURE too"},
			{Long: "hide", Help: "do not show hidden partitions, which holds without --all"},
			{Long: "json", Arg: "<data_parser>", Maybe: true, Env: "SLURM_JSON", Help: "print JSON (show job, node, partition, licenses, assoc_mgr; ping)"},
			{Long: "local", Env: "SCONTROL_LOCAL", Help: "ask this cluster", Always: noFederation},
			{Long: "oneliner", Short: "o", Help: "print one line for each record"},
			{Long: "quiet", Short: "Q", Help: "print no warnings"},
			{Long: "sibling", Env: "SCONTROL_SIBLING", Refused: noFederation},
			{Long: "uid", Short: "u", Arg: "<uid>", Refused: "who asks is known from the connection"},
			{Long: "yaml", Arg: "<data_parser>", Maybe: true, Env: "SLURM_YAML", Help: "print YAML where JSON can be printed"},
		},
		env: []variable{
			{"SLURM_TIME_FORMAT", "how points in time are written: standard, relative or a strftime format"},
			{"SLURM_JOB_NODELIST", "the list of show hostnames when none is given"},
		},
		example: []example{
			{"scontrol show job -d 12", "shows a job with its CPUs and GPUs on each node"},
			{"scontrol update nodename=n7 state=drain reason='fan 2'", "lets the jobs on n7 end and starts no more"},
			{"scontrol update jobid=12 timelimit=+1:00:00", "gives a job another hour (operators, once it runs)"},
		},
		run: runScontrol,
	}
}

// laterVerbs are Slurm's verbs that this release refuses by name.
func laterVerbs() map[string]string {
	return map[string]string{
		"abort": "stop the controller with shutdown", "completing": "use squeue -t CG", "fsdampeningfactor": "fair share is still to come", "getaddrs": "use show node",
		"listjobs": "use squeue -w NODE", "listpids": "use sstat -i", "liststeps": "use show step", "notify": "there is no way to a user's terminal", "pidinfo": "use sstat -i",
		"schedloglevel": "the daemons' log is set in muster.yaml",
		"setdebug":      "the daemons' log is set in muster.yaml", "setdebugflags": "the daemons' log is set in muster.yaml", "takeover": "controllers elect their leader themselves",
		"top": "use update priority=", "write": "the controller does not give scripts back yet",
	}
}

func runScontrol(c *call) error {
	if len(c.args) == 0 {
		return &opt.UsageError{Command: "scontrol", Text: "a command is missing (there is no interactive mode)"}
	}
	name := c.cmd.firstVerb(c.args[0], 3)
	if name == "" {
		if why, ok := laterVerbs()[strings.ToLower(c.args[0])]; ok {
			return c.errorf("%s is not supported in this release: %s", strings.ToLower(c.args[0]), why)
		}
		return fail(1, "invalid keyword: "+c.args[0])
	}
	if name != "show" {
		if err := c.checkClusters(); err != nil {
			return err
		}
	}
	return c.verb(name, c.args[1:])
}

//muster:table one case for each verb
func (c *call) verb(name string, args []string) error {
	switch name {
	case "show":
		return c.show(args)
	case "suspend":
		return c.control(apiv1.ControlJobsRequest_SUSPEND, args, true)
	case "resume":
		return c.control(apiv1.ControlJobsRequest_RESUME, args, true)
	case "create":
		return c.createReservation(args)
	case "delete":
		return c.deleteReservation(args)
	case "hold":
		return c.control(apiv1.ControlJobsRequest_HOLD, args, true)
	case "uhold":
		return c.control(apiv1.ControlJobsRequest_USER_HOLD, args, true)
	case "release":
		return c.control(apiv1.ControlJobsRequest_RELEASE, args, true)
	case "requeue":
		return c.control(apiv1.ControlJobsRequest_REQUEUE, args, false)
	case "requeuehold":
		return c.control(apiv1.ControlJobsRequest_REQUEUE_HOLD, args, false)
	case "update":
		return c.update(args)
	case "power":
		return c.power(args)
	case "reboot":
		return c.reboot(args)
	case "cancel_reboot":
		return c.cancelReboot(args)
	case "wait_job":
		return c.waitStart(args)
	case "token":
		return c.userToken(args)
	case "ping":
		return c.ping()
	case "reconfigure":
		return c.reconfigure()
	case "shutdown":
		return c.ask(methodShutdown, &apiv1.ShutdownRequest{}, &apiv1.ShutdownReply{})
	case "errnumstr":
		return c.errorText(args)
	case "version":
		return printVersion(c)
	}
	return c.write([]byte(helpText(c.cmd)))
}

// show prints one kind of thing.
//
//muster:table one case for each kind
func (c *call) show(args []string) error {
	if len(args) == 0 {
		return fail(1, "too few arguments for keyword:show")
	}
	entity, name, _ := strings.Cut(args[0], "=")
	if name == "" && len(args) > 1 {
		_, name, _ = strings.Cut(args[1], "=")
		if name == "" {
			name = args[1]
		}
	}
	kinds := []string{"jobs", "jobid", "nodes", "partitions", "config", "configuration", "steps", "licenses", "reservations", "hostnames", "hostlistsorted", "hostlist", "topology", "assoc_mgr"}
	switch word := pick(kinds, strings.ToLower(entity)); word {
	case "hostnames", "hostlist", "hostlistsorted":
		return c.showHosts(word, name)
	case "jobs", "jobid":
		return c.withCluster(func() error { return c.showJobs(name) })
	case "nodes":
		return c.withCluster(func() error { return c.showNodes(name) })
	case "partitions":
		return c.withCluster(func() error { return c.showPartitions(name) })
	case "config", "configuration":
		return c.withCluster(c.showConfig)
	case "steps":
		return c.withCluster(func() error { return c.showSteps(name) })
	case "licenses":
		return c.withCluster(func() error { return c.showLicenses(name) })
	case "reservations":
		return c.withCluster(func() error { return c.showReservations(name) })
	case "assoc_mgr":
		return c.withCluster(func() error { return c.showAssocMgr(args[1:]) })
	case "topology":
		return c.withCluster(func() error { return c.showTopology(name) })
	}
	return fail(1, "invalid entity:"+entity+" for keyword:show")
}

// withCluster checks -M before a question.
func (c *call) withCluster(f func() error) error {
	if err := c.checkClusters(); err != nil {
		return err
	}
	return f()
}

// pick finds the word that begins with what was typed, at least three letters
// of it; the first in the list wins.
func pick(words []string, typed string) string {
	for _, w := range words {
		if w == typed || w == typed+"s" {
			return w
		}
	}
	for _, w := range words {
		if len(typed) >= 3 && strings.HasPrefix(w, typed) {
			return w
		}
	}
	return ""
}

// showHosts works without a controller.
func (c *call) showHosts(what, list string) error {
	switch {
	case list == "-":
		data, err := readAll(c.Stdin, 1<<24)
		if err != nil {
			return c.errorf("reading the standard input: %v", err)
		}
		list = strings.Join(strings.Fields(string(data)), ",")
	case list == "" && what == "hostnames":
		if list = c.Getenv("SLURM_JOB_NODELIST"); list == "" {
			list = c.Getenv("SLURM_NODELIST")
		}
	case strings.HasPrefix(list, "/") && what != "hostnames":
		data, err := readFile(list, 1<<24)
		if err != nil {
			return c.errorf("%v", err)
		}
		list = strings.Join(strings.Fields(string(data)), ",")
	}
	if list == "" {
		return fail(1, "invalid host list: (null)")
	}
	hosts, err := hostlist.Parse(list)
	if err != nil {
		return fail(1, "Invalid hostlist: "+list, c.cmd.name+": error: "+err.Error())
	}
	switch what {
	case "hostlist":
		return c.write([]byte(hosts.String() + "\n"))
	case "hostlistsorted":
		return c.write([]byte(hosts.Sorted().String() + "\n"))
	}
	for name := range hosts.All() {
		if _, err := c.out.WriteString(name + "\n"); err != nil {
			return err
		}
	}
	return nil
}

func (c *call) ping() error {
	var rep apiv1.PingReply
	err := c.ask(methodPing, &apiv1.PingRequest{}, &rep)
	up := err == nil
	state, role, host := "UP", "primary", rep.GetHost()
	if !up {
		state, host = "DOWN", c.Host
	}
	if up && rep.GetRole() != "" && rep.GetRole() != "leader" {
		role = "backup1"
	}
	if c.wantsTree() {
		doc := c.document(tree.Member{Key: "pings", Value: tree.List{tree.Object{{Key: "hostname", Value: host}, {Key: "pinged", Value: state},
			{Key: "responding", Value: up}, {Key: "latency", Value: 0}, {Key: "mode", Value: role}, {Key: "primary", Value: role == "primary"}}}})
		if werr := c.structured(c.opts.On("json"), doc); werr != nil {
			return werr
		}
	} else if werr := c.write([]byte(fmt.Sprintf("Slurmctld(%s) at %s is %s\n", role, host, state))); werr != nil {
		return werr
	}
	if !up {
		return fail(1, c.cmd.name+": error: "+explainError(err).text)
	}
	return nil
}

func (c *call) reconfigure() error {
	var rep apiv1.ReconfigureReply
	if err := c.ask(methodReconfigure, &apiv1.ReconfigureRequest{}, &rep); err != nil {
		r := explainError(err)
		return fail(1, append(r.before("scontrol"), "slurm_reconfigure error: "+r.text)...)
	}
	c.warn(rep.GetWarnings())
	return nil
}

// warn writes what is to be said about a change that was made.
func (c *call) warn(list []string) {
	if c.opts.On("quiet") {
		return
	}
	for _, w := range list {
		fmt.Fprintf(c.Stderr, "%s: warning: %s\n", c.cmd.name, w)
	}
}

func (c *call) errorText(args []string) error {
	if len(args) != 1 {
		return fail(1, "one error number is expected")
	}
	n, ok := positive(args[0])
	if !ok {
		return fail(1, "invalid error number: "+args[0])
	}
	return c.write([]byte(spec.Code(n).String() + "\n"))
}

// waitStart waits until a job runs.
func (c *call) waitStart(args []string) error {
	if len(args) != 1 || !validJob(args[0]) {
		return fail(1, "wait_job takes one job id")
	}
	var last spec.JobState
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		var rep apiv1.ListJobsReply
		if err := c.ask(methodListJobs, &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Jobs: args, AllStates: true}}, &rep); err != nil {
			return loadJobsError(err)
		}
		if len(rep.GetJobs()) == 0 {
			return fail(1, "slurm_load_jobs error: "+spec.CodeInvalidJobID.String())
		}
		last = spec.JobState(rep.GetJobs()[0].GetState())
		if last != spec.Pending || c.ctx.Err() != nil {
			break
		}
		c.Pause(c.ctx, wait)
	}
	if last != spec.Running {
		return fail(1, fmt.Sprintf("job %s is %s", args[0], last))
	}
	return nil
}

// showLicenses counts what running jobs hold of each licence.
func (c *call) showLicenses(name string) error {
	var cfg apiv1.GetConfigReply
	var jobs apiv1.ListJobsReply
	var resv apiv1.ReservationsReply
	if err := c.askAll(question{methodGetConfig, &apiv1.GetConfigRequest{}, &cfg}, question{methodReservations, &apiv1.ReservationsRequest{}, &resv},
		question{methodListJobs, &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{States: []uint32{uint32(spec.Running), uint32(spec.Suspended)}}}, &jobs}); err != nil {
		return err
	}
	total, ok := parseGRES(configValue(&cfg, "Licenses"), "")
	if configValue(&cfg, "Licenses") == "" || !ok {
		return c.write([]byte("No licenses configured in Slurm.\n"))
	}
	var b []byte
	list := tree.List{}
	for _, l := range total {
		if name != "" && l.GetName() != name {
			continue
		}
		used := int64(0)
		for _, j := range jobs.GetJobs() {
			for _, held := range j.GetAllocTres().GetOther() {
				if held.GetName() == "license/"+l.GetName() {
					used += held.GetN()
				}
			}
		}
		reserved := reservedOf(resv.GetReservations(), l.GetName())
		b = append(b, fmt.Sprintf("LicenseName=%s\n    Total=%d Used=%d Free=%d Reserved=%d Remote=no\n", l.GetName(), l.GetN(), used, l.GetN()-used, reserved)...)
		list = append(list, tree.Object{{Key: "LicenseName", Value: l.GetName()}, {Key: "Total", Value: l.GetN()}, {Key: "Used", Value: used}, {Key: "Free", Value: l.GetN() - used},
			{Key: "Remote", Value: false}, {Key: "Reserved", Value: reserved}})
	}
	if c.wantsTree() {
		return c.structured(c.opts.On("json"), c.document(tree.Member{Key: "licenses", Value: list}))
	}
	if len(list) == 0 {
		return fail(1, "License "+name+" not found")
	}
	return c.write(b)
}

// reservedOf is how many of a licence active reservations keep, with those that
// their jobs hold.
func reservedOf(list []*apiv1.ReservationInfo, licence string) int64 {
	var n int64
	for _, r := range list {
		for _, l := range r.GetLicenses() {
			if r.GetActive() && l.GetName() == licence {
				n += l.GetN()
			}
		}
	}
	return n
}

func configValue(cfg *apiv1.GetConfigReply, key string) string {
	for _, e := range slices.Backward(cfg.GetEntries()) {
		if strings.EqualFold(e.GetKey(), key) {
			return e.GetValue()
		}
	}
	return ""
}
