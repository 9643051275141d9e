package query

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// triggerOption is a type of trigger as an option: kind is the controller's name of it.
type triggerOption struct {
	opt.Option
	kind spec.TriggerKind
}

// triggerOptions are the types.
//
//muster:table one row for each type
func triggerOptions() []triggerOption {
	const leads = "only the controller that leads can say so; the alerts watch the others: muster alerts"
	const books = "the alerts on accounting watch it: muster alerts"
	return []triggerOption{
		{opt.Option{Long: "primary_slurmctld_failure", Short: "a", Help: "another controller leads than the first one"}, spec.TriggerControllerFailed},
		{opt.Option{Long: "primary_slurmctld_resumed_operation", Short: "A", Help: "the first controller leads again"}, spec.TriggerControllerResumed},
		{opt.Option{Long: "primary_slurmctld_resumed_control", Short: "b", Help: "the first controller leads again after another one"}, spec.TriggerControllerRegained},
		{opt.Option{Long: "backup_slurmctld_failure", Short: "B", Refused: leads}, 0},
		{opt.Option{Long: "backup_slurmctld_resumed_operation", Short: "c", Refused: leads}, 0},
		{opt.Option{Long: "backup_slurmctld_assumed_control", Short: "C", Help: "another controller has taken over from the first one"}, spec.TriggerBackupLeads},
		{opt.Option{Long: "down", Short: "d", Help: "a node goes down"}, spec.TriggerNodeDown},
		{opt.Option{Long: "drained", Short: "D", Help: "a node is drained and has no job any more"}, spec.TriggerNodeDrained},
		{opt.Option{Long: "draining", Help: "a node with jobs is drained"}, spec.TriggerNodeDraining},
		{opt.Option{Long: "primary_slurmctld_acct_buffer_full", Short: "e", Refused: "the ledger is the buffer, and grows as the disk allows"}, 0},
		{opt.Option{Long: "fail", Short: "F", Help: "a node is set to FAIL"}, spec.TriggerNodeFail},
		{opt.Option{Long: "fini", Short: "f", Help: "the job of --jobid has ended"}, spec.TriggerJobFini},
		{opt.Option{Long: "primary_slurmdbd_failure", Short: "g", Refused: books}, 0},
		{opt.Option{Long: "primary_slurmdbd_resumed_operation", Short: "G", Refused: books}, 0},
		{opt.Option{Long: "primary_database_failure", Short: "h", Refused: books}, 0},
		{opt.Option{Long: "primary_database_resumed_operation", Short: "H", Refused: books}, 0},
		{opt.Option{Long: "idle", Short: "I", Help: "a node has been idle for --offset"}, spec.TriggerNodeIdle},
		{opt.Option{Long: "reconfig", Short: "r", Help: "the configuration has changed"}, spec.TriggerReconfig},
		{opt.Option{Long: "resume", Short: "R", Help: "a node is set to RESUME"}, spec.TriggerNodeResume},
		{opt.Option{Long: "time", Short: "t", Help: "the time limit of the job of --jobid is reached, or is --offset away"}, spec.TriggerJobTime},
		{opt.Option{Long: "up", Short: "u", Help: "a node that was down is up again"}, spec.TriggerNodeUp},
		{opt.Option{Long: "burst_buffer", Refused: "Muster has no burst buffers"}, 0},
	}
}

//muster:table the options of strigger
func Strigger() *tool.Command {
	command := &tool.Command{
		Name: "strigger", Slurm: true, OwnVerbose: true, Mixed: true,
		Summary: "run a program when something happens",
		Usage: []string{
			"--set TYPE... --program=PATH [OPTIONS]",
			"--get [OPTIONS]",
			"--clear [OPTIONS]",
		},
		About: `A trigger runs its program on the host of the controller, as the user who set it, with the name of
the node or the number of the job behind its own arguments. It runs once and is gone then, unless --flags=PERM is given.
Triggers are in the ledger: a controller that starts runs what is due. A program that a controller was killed under runs
again.

Administrators set triggers; all users do with SlurmctldParameters=allow_user_triggers.`,
		Options: []opt.Option{
			{Long: "set", Help: "set triggers of the types that are given"},
			{Long: "get", Help: "list triggers"},
			{Long: "clear", Help: "remove the triggers that the other options name"},
			{Long: "id", Short: "i", Arg: "<trigger_id>", Help: "the trigger of this number"},
			{Long: "jobid", Short: "j", Arg: "<job_id>", Help: "about this job, or about the nodes that it has"},
			{Long: "node", Short: "n", Arg: "<host>", Maybe: true, Help: "about these nodes; without a value about all"},
			{Long: "offset", Short: "o", Arg: "<seconds>", Help: "run the program so long after what happens, or before it if negative"},
			{Long: "program", Short: "p", Arg: "<path>", Help: "program with its arguments, by its absolute path"},
			{Long: "user", Arg: "<user_name>", Help: "triggers of this user, for --get and --clear"},
			{Long: "flags", Arg: "<type>", Help: "PERM keeps the trigger after it has run"},
			{Long: "clusters", Short: "M", Arg: "<string>", Env: "SLURM_CLUSTERS", Help: "cluster to ask"},
			{Long: "noheader", Short: "N", Help: "print no header"},
			{Long: "quiet", Short: "Q", Help: "print no errors"},
			{Long: "verbose", Short: "v", Help: "print the numbers of triggers that are set or cleared"},
		},
		Example: []tool.Example{
			{
				Line: "strigger --set --down --flags=PERM --program=/usr/local/sbin/node_down",
				What: "runs a program for each node that goes down",
			},
			{
				Line: "strigger --set --jobid=1234 --time --offset=-600 --program=/home/ann/save",
				What: "runs a program ten minutes before the job's time limit",
			},
			{Line: "strigger --get", What: "lists your triggers"},
		},
		Run: runStrigger,
	}
	for _, option := range triggerOptions() {
		command.Options = append(command.Options, option.Option)
	}
	return command
}

func runStrigger(call *tool.Call) error {
	err := doTriggers(call)
	if err != nil && call.Opts.On("quiet") {
		return tool.ExitCode(1)
	}
	return err
}

func doTriggers(call *tool.Call) error {
	if len(call.Operands) == 1 && call.Opts.On("node") && call.Opts.Text("node") == "" {
		call.Opts.Put("node", call.Operands[0], true, opt.FromCommand) // -n NODE, in two words
		call.Operands = nil
	}
	if len(call.Operands) > 0 {
		return call.Errorf("unexpected argument %q", call.Operands[0])
	}
	return call.OneCluster(changeTriggers)
}

func changeTriggers(call *tool.Call) error {
	var verbs []string
	for _, name := range [...]string{"set", "get", "clear"} {
		if call.Opts.On(name) {
			verbs = append(verbs, name)
		}
	}
	if len(verbs) != 1 {
		return call.Errorf("expected one of --set, --get and --clear")
	}
	if verbs[0] == "set" {
		return setTriggers(call)
	}
	var all apiv1.ListTriggersReply
	if err := call.RPC(tool.MethodListTriggers, &apiv1.ListTriggersRequest{}, &all); err != nil {
		return err
	}
	chosen, err := chooseTriggers(call, all.GetTriggers())
	if err != nil {
		return err
	}
	if verbs[0] == "get" {
		printTriggers(call, chosen)
		return nil
	}
	return clearTriggers(call, chosen)
}

// kindsGiven are the types that the options name.
func kindsGiven(call *tool.Call) []spec.TriggerKind {
	var kinds []spec.TriggerKind
	for _, option := range triggerOptions() {
		if call.Opts.On(option.Long) {
			kinds = append(kinds, option.kind)
		}
	}
	return kinds
}

func setTriggers(call *tool.Call) error {
	kinds := kindsGiven(call)
	var problems []string
	say := func(format string, args ...any) {
		problems = append(problems, "strigger: error: "+fmt.Sprintf(format, args...))
	}
	if len(kinds) == 0 {
		say("--set needs a type, for example --down or --fini")
	}
	program := call.Opts.Text("program")
	if !strings.HasPrefix(program, "/") {
		say("--program %q is not an absolute path", program)
	}
	offset, err := strconv.ParseInt(cmp.Or(call.Opts.Text("offset"), "0"), 10, 32)
	if err != nil {
		say("--offset %q is not a number of seconds", call.Opts.Text("offset"))
	}
	permanent := false
	if flags := call.Opts.Text("flags"); strings.EqualFold(flags, "PERM") {
		permanent = true
	} else if call.Opts.On("flags") {
		say("--flags %q: expected PERM", flags)
	}
	nodes := []string{""}
	if call.Opts.Text("node") != "" {
		if nodes, err = hostlist.Expand(call.Opts.Text("node")); err != nil {
			say("--node: %v", err)
		}
	}
	for _, name := range [...]string{"id", "user"} {
		if call.Opts.On(name) {
			say("--%s is for --get and --clear", name)
		}
	}
	for _, kind := range kinds {
		switch {
		case kind.AboutJobs() && !call.Opts.On("jobid"):
			say("--%s needs --jobid", kind)
		case !kind.AboutNodes() && call.Opts.On("node"):
			say("--%s is not about nodes", kind)
		case !kind.AboutNodes() && !kind.AboutJobs() && call.Opts.On("jobid"):
			say("--%s is not about jobs", kind)
		case offset < 0 && kind != spec.TriggerJobTime:
			say("--offset %d: only the time limit of a job is known before (--time)", offset)
		}
	}
	if len(problems) > 0 {
		return tool.Fail(1, problems...)
	}
	request := &apiv1.SetTriggersRequest{}
	for _, kind := range kinds {
		for _, node := range nodes {
			request.Triggers = append(request.Triggers, &apiv1.TriggerInfo{
				Kind:      kind.String(),
				Node:      node,
				Job:       call.Opts.Text("jobid"),
				Offset:    offset * tool.Second,
				Program:   program,
				Permanent: permanent,
			})
		}
	}
	var reply apiv1.SetTriggersReply
	if err := call.RPC(tool.MethodSetTriggers, request, &reply); err != nil {
		return err
	}
	if call.Opts.On("verbose") {
		for _, id := range reply.GetIds() {
			fmt.Fprintf(call.Stderr, "strigger: trigger %d is set\n", id)
		}
	}
	return nil
}

// chooseTriggers takes those that the options name.
func chooseTriggers(
	call *tool.Call,
	all []*apiv1.TriggerInfo,
) (triggers []*apiv1.TriggerInfo, err error) {
	nodes, err := hostlist.Expand(call.Opts.Text("node"))
	if err != nil {
		return nil, call.Errorf("--node: %v", err)
	}
	kinds := kindsGiven(call)
	for _, trigger := range all {
		isKind := slices.Contains(kinds, spec.ParseTriggerKind(trigger.GetKind()))
		switch {
		case call.Opts.On("id") && call.Opts.Text("id") != tool.Itoa(trigger.GetId()),
			call.Opts.On("jobid") && call.Opts.Text("jobid") != trigger.GetJob(),
			call.Opts.On("user") && call.Opts.Text("user") != trigger.GetUser(),
			call.Opts.Text("node") != "" && !slices.Contains(nodes, trigger.GetNode()),
			call.Opts.On("program") && call.Opts.Text("program") != trigger.GetProgram(),
			len(kinds) > 0 && !isKind:
		default:
			triggers = append(triggers, trigger)
		}
	}
	return triggers, nil
}

// printTriggers prints one line for each.
func printTriggers(call *tool.Call, list []*apiv1.TriggerInfo) {
	line := func(id, resource, what, kind, offset, user, flags, program string) {
		fmt.Fprintf(call.Out, "%7s %-9s %7s %-35s %6s %-8s %-5s %s\n",
			id, resource, what, kind, offset, user, flags, render.Cell(program))
	}
	if !call.Opts.On("noheader") {
		line("TRIG_ID", "RES_TYPE", "RES_ID", "TYPE", "OFFSET", "USER", "FLAGS", "PROGRAM")
	}
	for _, trigger := range list {
		resource := "slurmctld"
		what := "*"
		switch kind := spec.ParseTriggerKind(trigger.GetKind()); {
		case trigger.GetJob() != "":
			resource = "job"
			what = trigger.GetJob()
		case kind.AboutNodes():
			resource = "node"
			what = cmp.Or(trigger.GetNode(), "*")
		}
		flags := ""
		if trigger.GetPermanent() {
			flags = "PERM"
		}
		line(tool.Itoa(trigger.GetId()), resource, what, trigger.GetKind(),
			tool.Itoa(trigger.GetOffset()/tool.Second), trigger.GetUser(), flags,
			trigger.GetProgram())
	}
}

func clearTriggers(call *tool.Call, list []*apiv1.TriggerInfo) error {
	named := false
	for _, name := range [...]string{"id", "jobid", "user"} {
		named = named || call.Opts.On(name)
	}
	if !named {
		return call.Errorf("--clear needs --id, --jobid or --user")
	}
	if len(list) == 0 {
		return call.Errorf("there is no such trigger")
	}
	request := &apiv1.ClearTriggersRequest{}
	for _, trigger := range list {
		request.Ids = append(request.Ids, trigger.GetId())
	}
	if err := call.RPC(tool.MethodClearTriggers, request, &apiv1.ClearTriggersReply{}); err != nil {
		return err
	}
	if call.Opts.On("verbose") {
		for _, id := range request.GetIds() {
			fmt.Fprintf(call.Stderr, "strigger: trigger %d is cleared\n", id)
		}
	}
	return nil
}
