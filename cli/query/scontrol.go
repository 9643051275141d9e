package query

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

//muster:table the options and verbs of scontrol
func Scontrol() *tool.Command {
	return &tool.Command{
		Name: "scontrol", Slurm: true, Mixed: true, PlainAfter: []string{"setdebugflags"},
		Summary: "show details of the cluster and change jobs, nodes and partitions",
		Usage:   []string{"[OPTIONS] COMMAND [ARGUMENTS]", "[OPTIONS]"},
		About: `Commands and entities can be abbreviated: scontrol sho part. Without a command, scontrol reads commands
from its standard input, one a line, until quit or the end; !! repeats the last one.

Keys of update are case-insensitive: jobid=12 timelimit=2:00:00, nodename=n[1-3] state=drain reason="fan". States of nodes:
drain, down, fail, resume, fenced (asserts that no abandoned run is left there), power_up, power_down, power_down_asap, power_down_force, cancel_reboot. States of partitions: up, down (jobs
are accepted and wait), drain (those that wait start, none is accepted), inactive (neither); jobs that run go on. Of a partition also
Nodes (a list, ALL, or those that come and go: +n3,-n[1-2]), MaxTime, DefaultTime, MaxNodes, MinNodes, AllowGroups, AllowAccounts, DenyAccounts, AllowQos, DenyQos, PriorityTier, PriorityJobFactor
and Hidden can be changed (administrators). A restart keeps such a change, unless the record of that partition in slurm.conf has changed too;
scontrol reconfigure makes every partition what slurm.conf says, and names those that it changes back.`,
		Verbs: []tool.Verb{
			{Name: "show", Args: "job [ID]", Help: "jobs, with -d also what they hold on each node"},
			{Name: "show", Args: "node [NAMES]", Help: "nodes"},
			{Name: "show", Args: "partition [NAME]", Help: "partitions"},
			{Name: "show", Args: "config", Help: "every key of the configuration in force"},
			{Name: "show", Args: "step [JOB[.STEP]]", Help: "job steps"},
			{Name: "show", Args: "licenses", Help: "licences"},
			{Name: "show", Args: "reservation", Help: "reservations"},
			{Name: "show", Args: "topology [NAME]", Help: "switches and blocks: all, those of a topology, or one, or a node's"},
			{Name: "show", Args: "assoc_mgr [users=LIST] [accounts=LIST] [qos=LIST] [flags=users,assoc,qos]", Help: "the limits of associations and QOS as limit(used), N without a limit: what running and waiting jobs hold now, and in GrpWall and GrpTRESMins what has been used"},
			{Name: "show", Args: "topoconf", Help: "the topologies in force, as a topology.yaml"},
			{Name: "show", Args: "slurmd [NODE]", Help: "the agent of this host or of a node: the hardware it found, the steps it runs, and when the controller last heard from it"},
			{Name: "show", Args: "daemons", Help: "the daemons that have a socket on this host, by Slurm's names"},
			{Name: "show", Args: "aliases [HOST]", Help: "the nodes of a host name"},
			{Name: "show", Args: "hostnames [LIST]", Help: "the names of a host list, one to a line; without one those of $SLURM_JOB_NODELIST"},
			{Name: "show", Args: "hostlist NAMES", Help: "names folded in their order; - reads them from the standard input"},
			{Name: "show", Args: "hostlistsorted NAMES", Help: "names folded in order"},
			{Name: "hold", Args: "JOB...", Help: "hold jobs; only an operator can release an operator's hold"},
			{Name: "uhold", Args: "JOB...", Help: "the same, so that the owner can release them"},
			{Name: "release", Args: "JOB...", Help: "release held jobs"},
			{Name: "requeue", Args: "[incomplete] JOB...", Help: "requeue running or ended jobs; with incomplete, not those that ended well"},
			{Name: "suspend", Args: "JOB...", Help: "suspend the processes of running jobs (operators); their CPUs are released, memory and devices stay allocated"},
			{Name: "resume", Args: "JOB...", Help: "resume suspended jobs, as soon as their CPUs are free"},
			{Name: "requeuehold", Args: "[incomplete] [State=SpecialExit] JOB...", Help: "requeue jobs and hold them, with State=SpecialExit in that state"},
			{Name: "top", Args: "JOB...", Help: "move pending jobs before the others of the same user, partition, account and QOS (operators; users with SchedulerParameters=enable_user_top)"},
			{Name: "notify", Args: "JOB MESSAGE", Help: "write a line to the error output of a job's script, or to the srun or salloc that made the job"},
			{Name: "update", Args: "KEY=VALUE...", Help: "change a job (jobid=), the time limit of a step (stepid=), nodes (nodename=), a partition (partitionname=) or a reservation (reservationname=)"},
			{Name: "power", Args: "up|down [asap|force] NODES", Help: "power nodes up or down: down when no job is on them, asap also starts none there, force ends them"},
			{Name: "reboot", Args: "[ASAP] [nextstate=RESUME|DOWN] [reason=TEXT] NODES|ALL", Help: "reboot nodes when they are idle; with ASAP, start no new jobs there before"},
			{Name: "cancel_reboot", Args: "NODES", Help: "cancel reboots that have not started"},
			{Name: "wait_job", Args: "JOB", Help: "wait until a job runs; exit code 1 if it ends before"},
			{Name: "create", Args: "reservation|nodename=NODES|partitionname=NAME KEY=VALUE...", Help: "reserve nodes: users= or accounts=, nodes= or nodecnt=, starttime=, duration=, flags=; or add nodes while the cluster runs, with the keys of a NodeName record (needs MaxNodeCount); or a partition, with the keys of a PartitionName record"},
			{Name: "delete", Args: "reservation=NAME|nodename=NODES", Help: "end a reservation; or take nodes away that were created so and on which no job is"},
			{Name: "ping", Args: "", Help: "check whether the controllers respond"},
			{Name: "takeover", Args: "[INDEX]", Help: "have another controller lead: the one at a place of SlurmctldHost (from 0), else the one that has most of the ledger"},
			{Name: "reconfigure", Args: "", Help: "read the configuration files again, also on the nodes"},
			{Name: "shutdown", Args: "[slurmctld]", Help: "stop the controller; jobs keep running"},
			{Name: "setdebug", Args: "LEVEL", Help: "set the log level of the leading controller until it restarts: quiet, error, info or debug, or a number (another level of Slurm sets the next one of these)"},
			{Name: "setdebugflags", Args: "[+|-]FLAG...", Help: "switch groups of records in the controller's log on or off: Accrue, Agent, AuditRPCs, Backfill, Gres, Power, Reservation, Steps, TraceJobs; without signs the flags replace those that are on"},
			{Name: "schedloglevel", Args: "0|1", Help: "log each scheduling pass and each start of a job (1), or not (0)"},
			{Name: "token", Args: "[lifespan=SECONDS] [username=NAME] [scope=pods]", Help: "create a token for REST clients that act as you (default lifespan: 30 minutes); with scope=pods it serves muster-kube and nothing else"},
			{Name: "errnumstr", Args: "NUMBER", Help: "the text of an error number"},
			{Name: "completing", Args: "", Help: "jobs whose nodes are still being cleaned up"},
			{Name: "getaddrs", Args: "NODES", Help: "name, address and port of nodes"},
			{Name: "listjobs", Args: "[NODE]", Help: "the jobs that run on a node (default: this host)"},
			{Name: "liststeps", Args: "[NODE]", Help: "the steps that run on a node (default: this host)"},
			{Name: "listpids", Args: "[JOB[.STEP]] [NODE]", Help: "the processes of jobs on a node (default: all of one's jobs on this host)"},
			{Name: "pidinfo", Args: "PID", Help: "the job of a process on this host, and when its time limit ends"},
			{Name: "write", Args: "batch_script JOB [FILE|-]", Help: "write a job's script into a file (default: slurm-JOB.sh) or, with -, to the standard output"},
			{Name: "write", Args: "config [FILE|-]", Help: "write the configuration in force into FILE.DATE (default: slurm.conf.DATE) or, with -, to the standard output"},
			{Name: "version", Args: "", Help: "print the version"},
			{Name: "help", Args: "", Help: "print this help"},
		},
		Options: []opt.Option{
			{Long: "all", Short: "a", Env: "SCONTROL_ALL", Help: "include hidden partitions"},
			{Long: "clusters", Short: "M", Arg: "<string>", Env: "SLURM_CLUSTERS", Help: "cluster to ask or to change; one at a time"},
			{Long: "details", Short: "d", Help: "show more details"},
			{Long: "federation", Env: "SCONTROL_FEDERATION", Help: "include the other clusters of the federation", Always: tool.NoFederation},
			{Long: "future", Short: "F", Env: "SCONTROL_FUTURE", Help: "include nodes in state FUTURE"},
			{Long: "hide", Help: "do not show hidden partitions (default without --all)"},
			{Long: "json", Arg: "<data_parser>", Maybe: true, Env: "SLURM_JSON", Help: "print JSON (show job, step, node, partition, reservation, licenses, config, assoc_mgr; ping)"},
			{Long: "local", Env: "SCONTROL_LOCAL", Help: "query this cluster", Always: tool.NoFederation},
			{Long: "oneliner", Short: "o", Help: "print each record on one line"},
			{Long: "quiet", Short: "Q", Help: "suppress warnings"},
			{Long: "sibling", Env: "SCONTROL_SIBLING", Help: "include the copies of jobs on other clusters", Always: tool.NoFederation},
			{Long: "uid", Short: "u", Arg: "<uid>", Refused: "the requesting user is known from the connection"},
			{Long: "yaml", Arg: "<data_parser>", Maybe: true, Env: "SLURM_YAML", Help: "print YAML (wherever --json is supported)"},
		},
		Env: []tool.Variable{
			{Name: "SLURM_TIME_FORMAT", Help: "format of timestamps: standard, relative or a strftime format"},
			{Name: "SLURM_JOB_NODELIST", Help: "the list of show hostnames when none is given"},
		},
		Example: []tool.Example{
			{Line: "scontrol show job -d 12", What: "shows a job with its CPUs and GPUs on each node"},
			{Line: "scontrol update nodename=n7 state=drain reason='fan 2'", What: "lets the jobs on n7 end and starts no new ones there"},
			{Line: "scontrol update jobid=12 timelimit=+1:00:00", What: "gives a job another hour (operators, once it runs)"},
		},
		Entities: scontrolEntities,
		Run:      runScontrol,
	}
}

// laterVerbs are Slurm's verbs that this release refuses by name.
func laterVerbs() map[string]string {
	return map[string]string{
		"abort": "stop the controller with shutdown", "fsdampeningfactor": "use fair-share settings in slurm.conf",
	}
}

func runScontrol(call *tool.Call) error {
	if len(call.Operands) == 0 {
		return readCommands(call)
	}
	return scontrolCommand(call)
}

// scontrolCommand runs the command that the operands of a call are.
func scontrolCommand(call *tool.Call) error {
	name := call.Command.FirstVerb(call.Operands[0], 3)
	if name == "" {
		if reason, ok := laterVerbs()[strings.ToLower(call.Operands[0])]; ok {
			return call.Errorf(
				"%s is not supported in this release: %s",
				strings.ToLower(call.Operands[0]),
				reason,
			)
		}
		return tool.Fail(1, "invalid keyword: "+call.Operands[0])
	}
	if name == "show" {
		return runVerb(call, name, call.Operands[1:])
	}
	return call.OneCluster(func(call *tool.Call) error {
		return runVerb(call, name, call.Operands[1:])
	})
}

//muster:table one case for each verb
func runVerb(call *tool.Call, name string, args []string) error {
	switch name {
	case "show":
		return showEntity(call, args)
	case "suspend":
		return changeJobs(call, apiv1.ControlJobsRequest_SUSPEND, args)
	case "resume":
		return changeJobs(call, apiv1.ControlJobsRequest_RESUME, args)
	case "create":
		return createEntity(call, args)
	case "delete":
		return deleteEntity(call, args)
	case "hold":
		return changeJobs(call, apiv1.ControlJobsRequest_HOLD, args)
	case "uhold":
		return changeJobs(call, apiv1.ControlJobsRequest_USER_HOLD, args)
	case "release":
		return changeJobs(call, apiv1.ControlJobsRequest_RELEASE, args)
	case "requeue":
		return requeueJobs(call, apiv1.ControlJobsRequest_REQUEUE, args)
	case "requeuehold":
		return requeueJobs(call, apiv1.ControlJobsRequest_REQUEUE_HOLD, args)
	case "top":
		return changeJobs(call, apiv1.ControlJobsRequest_TOP, args)
	case "update":
		return updateEntity(call, args)
	case "power":
		return powerNodes(call, args)
	case "reboot":
		return rebootNodes(call, args)
	case "cancel_reboot":
		return cancelReboot(call, args)
	case "wait_job":
		return waitStart(call, args)
	case "token":
		return userToken(call, args)
	case "ping":
		return pingLeader(call)
	case "takeover":
		return takeOver(call, args)
	case "reconfigure":
		return runReconfigure(call)
	case "shutdown":
		return stopController(call, args)
	case "setdebug":
		return setDebug(call, args)
	case "setdebugflags":
		return setDebugFlags(call, args)
	case "schedloglevel":
		return setSchedulerLog(call, args)
	case "completing":
		return showCompleting(call)
	case "getaddrs":
		return nodeAddresses(call, args)
	case "notify":
		return notifyJob(call, args)
	case "listjobs":
		return listJobs(call, args)
	case "liststeps":
		return listSteps(call, args)
	case "listpids":
		return listPIDs(call, args)
	case "pidinfo":
		return pidInfo(call, args)
	case "write":
		return writeFile(call, args)
	case "errnumstr":
		return errorText(call, args)
	case "version":
		return tool.PrintVersion(call)
	}
	return call.WriteOut([]byte(tool.HelpText(call.Command)))
}

// pickWord finds the word that begins with what was typed, at least three letters
// of it; the first in the list wins.
func pickWord(words []string, typed string) string {
	for _, word := range words {
		if word == typed || word == typed+"s" {
			return word
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
func showHosts(call *tool.Call, what, list string) error {
	switch {
	case list == "-":
		data, err := tool.ReadAll(call.Stdin, 1<<24)
		if err != nil {
			return call.Errorf("reading the standard input: %v", err)
		}
		list = strings.Join(strings.Fields(string(data)), ",")
	case list == "" && what == "hostnames":
		list = call.Getenv("SLURM_JOB_NODELIST")
		if list == "" {
			list = call.Getenv("SLURM_NODELIST")
		}
	case strings.HasPrefix(list, "/") && what != "hostnames":
		data, err := tool.ReadFile(list, 1<<24)
		if err != nil {
			return call.Errorf("%v", err)
		}
		list = strings.Join(strings.Fields(string(data)), ",")
	}
	if list == "" {
		return tool.Fail(1, "invalid host list: (null)")
	}
	hosts, err := hostlist.Parse(list)
	if err != nil {
		return tool.Fail(1, "Invalid hostlist: "+list, call.Command.Name+": error: "+err.Error())
	}
	switch what {
	case "hostlist":
		return call.WriteOut([]byte(hosts.String() + "\n"))
	case "hostlistsorted":
		return call.WriteOut([]byte(hosts.Sorted().String() + "\n"))
	}
	for name := range hosts.All() {
		if _, err := call.Out.WriteString(name + "\n"); err != nil {
			return err
		}
	}
	return nil
}

// pinged is what became of asking one controller.
type pinged struct {
	role, host string
	up         bool
}

// pingLeader asks the controller that leads, which knows how the others are.
func pingLeader(call *tool.Call) error {
	var reply apiv1.ControllersReply
	began := call.Now()
	err := call.RPC(tool.MethodListControllers, &apiv1.ControllersRequest{}, &reply)
	took := call.Now().Sub(began)
	var list []pinged
	for _, message := range reply.GetControllers() {
		one := pinged{host: message.GetName(), up: message.GetError() == ""}
		if message.GetRole() == "leader" {
			one.role = "primary"
			list = append([]pinged{one}, list...)
		} else {
			list = append(list, one)
		}
	}
	if err != nil {
		list = []pinged{{role: "primary", host: call.Host}}
	}
	var pings tree.List
	var text []byte
	for i, one := range list {
		state := "DOWN"
		if one.up {
			state = "UP"
		}
		if one.role == "" {
			one.role = fmt.Sprintf("backup%d", i)
		}
		pings = append(
			pings,
			tree.Object{
				{Key: "hostname", Value: one.host},
				{Key: "pinged", Value: state},
				{Key: "responding", Value: one.up},
				{
					Key:   "latency",
					Value: took.Microseconds(),
				},
				{Key: "mode", Value: one.role},
				{Key: "primary", Value: one.role == "primary"},
				{Key: "status", Value: state},
			},
		)
		text = fmt.Appendf(text, "Slurmctld(%s) at %s is %s\n", one.role, one.host, state)
	}
	if render.WantsDocument(call) {
		if werr := render.Answer(call, "openapi_ping_array_resp", tree.Member{Key: "pings", Value: pings}); werr != nil {
			return werr
		}
	} else if werr := call.WriteOut(text); werr != nil {
		return werr
	}
	if err != nil {
		return tool.Fail(1, call.Command.Name+": error: "+tool.ExplainError(err).Text)
	}
	return nil
}

func runReconfigure(call *tool.Call) error {
	var reply apiv1.ReconfigureReply
	if err := call.RPC(tool.MethodReconfigure, &apiv1.ReconfigureRequest{}, &reply); err != nil {
		refusal, lines := operatorRefusal(err)
		return tool.Fail(1, append(lines, "slurm_reconfigure error: "+refusal.Text)...)
	}
	warnOfChange(call, reply.GetWarnings())
	return nil
}

// warnOfChange writes what is to be said about a change that was made.
func warnOfChange(call *tool.Call, list []string) {
	if call.Opts.On("quiet") {
		return
	}
	for _, w := range list {
		fmt.Fprintf(call.Stderr, "%s: warning: %s\n", call.Command.Name, w)
	}
}

func errorText(call *tool.Call, args []string) error {
	if len(args) != 1 {
		return tool.Fail(1, "one error number is expected")
	}
	n, ok := tool.PositiveNumber(args[0])
	if !ok {
		return tool.Fail(1, "invalid error number: "+args[0])
	}
	return call.WriteOut([]byte(errorNumberText(n) + "\n"))
}

// maxErrno is above the numbers of the errors of the operating system.
const maxErrno = 1000

// errorNumberText is the text of an error of Slurm, or of the operating system.
func errorNumberText(n int64) string {
	switch {
	case spec.Code(n).Known():
		return spec.Code(n).String()
	case n < maxErrno:
		text := syscall.Errno(n).Error()
		if !strings.HasPrefix(text, "errno ") {
			return strings.ToUpper(text[:1]) + text[1:]
		}
	}
	return "Unknown error " + tool.Itoa(n)
}

// waitStart waits until a job runs.
func waitStart(call *tool.Call, args []string) error {
	if len(args) == 0 {
		return tool.Fail(1, "too few arguments for keyword:"+call.Operands[0])
	}
	if len(args) != 1 || !tool.ValidJob(args[0]) {
		return tool.Fail(1, "wait_job takes one job id")
	}
	var last spec.JobState
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		var reply apiv1.ListJobsReply
		if err := call.RPC(
			tool.MethodListJobs,
			&apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Jobs: args, AllStates: true}},
			&reply,
		); err != nil {
			return fetch.JobsError(err)
		}
		if len(reply.GetJobs()) == 0 {
			return tool.Fail(1, "slurm_load_jobs error: "+spec.CodeInvalidJobID.String())
		}
		last = spec.JobState(reply.GetJobs()[0].GetState())
		if last != spec.Pending || call.Ctx.Err() != nil {
			break
		}
		call.Pause(call.Ctx, wait)
	}
	if last != spec.Running {
		return tool.Fail(1, fmt.Sprintf("job %s is %s", args[0], last))
	}
	return nil
}

// showLicenses counts what running jobs hold of each licence.
func showLicenses(call *tool.Call, name string) error {
	var config apiv1.GetConfigReply
	var jobs apiv1.ListJobsReply
	var resv apiv1.ReservationsReply
	if err := call.RPCAll(tool.Request{
		Method: tool.MethodGetConfig, Req: &apiv1.GetConfigRequest{}, Resp: &config,
	}, tool.Request{
		Method: tool.MethodReservations, Req: &apiv1.ReservationsRequest{}, Resp: &resv,
	},
		tool.Request{Method: tool.MethodListJobs, Req: &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{States: []uint32{uint32(spec.Running), uint32(spec.Suspended)}}}, Resp: &jobs}); err != nil {
		return err
	}
	total, ok := render.ParseGRES(render.ConfigValue(&config, "Licenses"), "")
	if (render.ConfigValue(&config, "Licenses") == "" || !ok) && !render.WantsDocument(call) {
		return call.WriteOut([]byte("No licenses configured in Slurm.\n"))
	}
	var buffer []byte
	list := tree.List{}
	slices.SortFunc(total, func(a, b *apiv1.Count) int {
		return strings.Compare(a.GetName(), b.GetName())
	})
	for _, l := range total {
		if name != "" && l.GetName() != name {
			continue
		}
		used := int64(0)
		for _, job := range jobs.GetJobs() {
			for _, held := range job.GetAllocTres().GetOther() {
				if held.GetName() == "license/"+l.GetName() {
					used += held.GetN()
				}
			}
		}
		reserved := reservedOf(resv.GetReservations(), l.GetName())
		record := &render.Record{}
		record.Line("LicenseName=" + l.GetName())
		record.Line(fmt.Sprintf(" Total=%d Used=%d Free=%d Reserved=%d Remote=no",
			l.GetN(), used, l.GetN()-used, reserved))
		buffer = append(buffer, record.Text(call.Opts.On("oneliner"), "")...)
		list = append(
			list,
			tree.Object{
				{Key: "LicenseName", Value: l.GetName()},
				{Key: "Total", Value: l.GetN()},
				{Key: "Used", Value: used},
				{Key: "Free", Value: l.GetN() - used},
				{Key: "Remote", Value: false},
				{Key: "Reserved", Value: reserved},
			},
		)
	}
	if render.WantsDocument(call) {
		return render.Answer(
			call,
			"openapi_licenses_resp",
			tree.Member{Key: "licenses", Value: list},
			tree.Member{
				Key: "last_update", Value: render.Instant(call.LastUpdate(config.GetNow())),
			},
		)
	}
	if len(list) == 0 {
		return tool.Fail(1, "License "+name+" not found")
	}
	return call.WriteOut(buffer)
}

// reservedOf is how many of a licence active reservations keep, with those that
// their jobs hold.
func reservedOf(list []*apiv1.ReservationInfo, licence string) int64 {
	var n int64
	for _, reservation := range list {
		for _, l := range reservation.GetLicenses() {
			if reservation.GetActive() && l.GetName() == licence {
				n += l.GetN()
			}
		}
	}
	return n
}

// stopController stops the controller. Slurm's words for "the controller alone" are
// accepted and change nothing: agents are not stopped in any case. Anything else
// is refused, so that a slip does not stop a cluster.
func stopController(call *tool.Call, args []string) error {
	if len(args) > 1 {
		return call.Errorf("too many arguments for keyword:shutdown")
	}
	if len(args) == 1 {
		switch strings.ToLower(args[0]) {
		case "slurmctld", "controller":
		default:
			return call.Errorf(
				"invalid shutdown argument: %q: expected slurmctld, controller or nothing",
				args[0],
			)
		}
	}
	err := call.RPC(tool.MethodShutdown, &apiv1.ShutdownRequest{}, &apiv1.ShutdownReply{})
	if err == nil {
		return nil
	}
	refusal, lines := operatorRefusal(err)
	return tool.Fail(1, append(lines, "slurm_shutdown error: "+refusal.Text)...)
}
