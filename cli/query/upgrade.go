package query

import (
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec/hostlist"
)

// maxUpgradeLag is how many batches of the ledger a controller may lack before another one is
// restarted.
const maxUpgradeLag = 256

// Upgrade is muster upgrade.
func Upgrade() *tool.Command {
	return &tool.Command{
		Name: "upgrade", Mixed: true,
		Summary: "show how to upgrade the cluster while it runs, or raise the ledger's version",
		Usage:   []string{"[--plan] [--to RELEASE] [--json|--yaml]", "--raise"},
		About: `Controllers of two neighbouring releases work in one group, and agents and commands may be one release older or newer
than the controllers. So a cluster is upgraded one program at a time, while jobs run and new ones are submitted. The plan says in which
order, what is done already, and what stands in the way. Events that only the newer release reads are not written until the
ledger's version is raised, which needs every controller of the group: until then each program can go back to the older release, and
afterwards no controller can. --raise raises it now; else the leader does, controller.raise_after of muster.yaml after the last
controller was upgraded.`,
		Options: []opt.Option{
			{Long: "plan", Help: "show the steps, which is the default", Always: "the steps are shown"},
			{Long: "to", Arg: "<release>", Help: "release to upgrade to; default: that of this command"},
			{Long: "raise", Help: "raise the ledger's version to the newest that all controllers know"},
			{Long: "json", Help: "print JSON"},
			{Long: "yaml", Help: "print YAML"},
		},
		Example: []tool.Example{
			{Line: "muster upgrade --plan", What: "shows what is to be upgraded to this command's release"},
			{Line: "muster upgrade --raise", What: "ends the upgrade: the older release cannot come back"},
		},
		Run: func(call *tool.Call) error {
			structured := call.Opts.On("json") || call.Opts.On("yaml")
			switch raise := call.Opts.On("raise"); {
			case len(call.Operands) > 0:
				return &opt.UsageError{
					Command: "muster upgrade",
					Text:    fmt.Sprintf("unexpected argument %q", call.Operands[0]),
				}
			case raise && (call.Opts.On("plan") || call.Opts.On("to") || structured):
				return &opt.UsageError{
					Command: "muster upgrade",
					Text:    "--raise goes without other options",
				}
			case raise:
				return raiseLedger(call)
			}
			return planUpgrade(call)
		},
	}
}

func raiseLedger(call *tool.Call) error {
	var reply apiv1.ChangeControllersReply
	request := &apiv1.ChangeControllersRequest{RaiseLedger: true}
	if err := call.RPC(tool.MethodChangeControllers, request, &reply); err != nil {
		return err
	}
	return call.WriteOut(
		fmt.Appendf(nil, "the ledger is at version %d\n", reply.GetLedgerVersion()),
	)
}

// upgradeStep is one program, or some of a kind, of the plan.
type upgradeStep struct {
	What    string // the name of a controller, a list of nodes, or ledger
	Kind    string // controller, witness, agent, ledger
	Release string // that runs now
	Do      string // what is to be done; empty = nothing, it is done
}

// upgradePlan is the order of an upgrade.
type upgradePlan struct {
	To    string
	Steps []upgradeStep
	InWay []string // what is to be put right before the next step
}

func planUpgrade(call *tool.Call) error {
	var controllers apiv1.ControllersReply
	if err := call.RPC(tool.MethodListControllers, &apiv1.ControllersRequest{}, &controllers); err != nil {
		return err
	}
	var nodes apiv1.ListNodesReply
	if err := call.RPC(tool.MethodListNodes, &apiv1.ListNodesRequest{}, &nodes); err != nil {
		return err
	}
	to := call.Opts.Text("to")
	if to == "" {
		to = call.Env.Version
	}
	when := ""
	if at := controllers.GetRaiseAt(); at > 0 {
		when = render.FormatTime(call, at)
	}
	plan := makeUpgradePlan(to, when, &controllers, nodes.GetNodes())
	if call.Opts.On("json") || call.Opts.On("yaml") {
		return render.Print(call, upgradeTree(plan, &controllers)...)
	}
	rows := [][]string{{"STEP", "WHAT", "KIND", "RELEASE", "DO"}}
	for i, step := range plan.Steps {
		do := step.Do
		if do == "" {
			do = "done"
		}
		rows = append(rows, []string{fmt.Sprint(i + 1), step.What, step.Kind, step.Release, do})
	}
	out := []byte(render.AlignedTexts(rows))
	if len(plan.InWay) > 0 {
		out = append(out, "in the way:\n"...)
		for _, text := range plan.InWay {
			out = fmt.Appendf(out, "  %s\n", text)
		}
	}
	return call.WriteOut(out)
}

// makeUpgradePlan orders an upgrade to a release: standbys, the witness, the leader, agents, and
// at last the ledger's version. raiseAt is when that is raised by itself; empty = not.
func makeUpgradePlan(
	to, raiseAt string,
	list *apiv1.ControllersReply,
	nodes []*apiv1.NodeInfo,
) upgradePlan {
	plan := upgradePlan{To: to}
	several := len(list.GetControllers()) > 1
	controllers := slices.Clone(list.GetControllers())
	slices.SortStableFunc(controllers, func(a, b *apiv1.ControllerInfo) int {
		return controllerTurn(a.GetRole()) - controllerTurn(b.GetRole())
	})
	for _, controller := range controllers {
		plan.Steps = append(plan.Steps, controllerStep(to, controller, several))
		plan.InWay = append(plan.InWay, controllerTrouble(controller)...)
	}
	if several && list.GetSurvives() == 0 {
		plan.InWay = append(plan.InWay,
			"the group survives the loss of 0: while a controller restarts, nothing is acknowledged (add a witness or a third controller)")
	}
	plan.Steps = append(plan.Steps, agentSteps(to, nodes)...)
	plan.Steps = append(plan.Steps, ledgerStep(raiseAt, list))
	if list.GetRaiseWaits() != "" {
		plan.InWay = append(plan.InWay, "the ledger's version: "+list.GetRaiseWaits())
	}
	return plan
}

// controllerTurn is the place of a role in the order: the leader comes last, so that the lead
// changes once.
func controllerTurn(role string) int {
	switch role {
	case "leader":
		return 2
	case "witness":
		return 1
	}
	return 0
}

func controllerStep(to string, controller *apiv1.ControllerInfo, several bool) upgradeStep {
	step := upgradeStep{
		What: controller.GetName(), Kind: "controller", Release: controller.GetVersion(),
	}
	switch {
	case controller.GetRole() == "witness":
		step.Kind = "witness"
		step.Do = "upgrade and restart musterd there"
	case !several:
		step.Do = "upgrade and restart musterd there; commands wait meanwhile, jobs go on"
	case controller.GetRole() == "leader":
		step.Do = "hand the lead over (muster controllers handover), then upgrade and restart musterd there"
	default:
		step.Do = "upgrade and restart musterd there, then wait until muster controllers shows LAG 0"
	}
	if controller.GetError() != "" {
		step.Release = "-"
	}
	if step.Release == to {
		step.Do = ""
	}
	return step
}

// controllerTrouble is why no other controller may be restarted now.
func controllerTrouble(controller *apiv1.ControllerInfo) []string {
	switch {
	case controller.GetError() != "":
		return []string{controller.GetName() + " does not answer: " + controller.GetError()}
	case controller.GetRole() == "joining", controller.GetRole() == "removed":
		return []string{controller.GetName() + " has no vote (" + controller.GetRole() + ")"}
	case controller.GetLag() > maxUpgradeLag:
		return []string{
			fmt.Sprintf(
				"%s lacks %d batches of the ledger: wait",
				controller.GetName(),
				controller.GetLag(),
			),
		}
	}
	return nil
}

// agentSteps are the nodes by the release of their agents, those that are done first.
func agentSteps(to string, nodes []*apiv1.NodeInfo) []upgradeStep {
	byRelease := map[string][]string{}
	for _, node := range nodes {
		if node.GetVersion() != "" { // a node that never registered runs nothing
			byRelease[node.GetVersion()] = append(byRelease[node.GetVersion()], node.GetName())
		}
	}
	var releases []string
	for release := range byRelease {
		releases = append(releases, release)
	}
	slices.SortFunc(releases, func(a, b string) int {
		if (a == to) != (b == to) {
			if a == to {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	var steps []upgradeStep
	for _, release := range releases {
		step := upgradeStep{What: hostlist.Fold(byRelease[release]), Kind: "agent", Release: release}
		if release != to {
			step.Do = "upgrade and restart muster-agent there, in any order; its jobs go on"
		}
		steps = append(steps, step)
	}
	return steps
}

func ledgerStep(raiseAt string, list *apiv1.ControllersReply) upgradeStep {
	step := upgradeStep{
		What:    "ledger",
		Kind:    "ledger",
		Release: fmt.Sprintf("version %d", list.GetLedgerVersion()),
	}
	if list.GetLedgerVersion() == 0 {
		step.Release = "version 1" // the leader's release does not say
	}
	switch {
	case list.GetLedgerNewest() > 0 && list.GetLedgerVersion() >= list.GetLedgerNewest():
	case raiseAt != "":
		step.Do = "muster upgrade --raise, after which no controller can go back; by itself at " + raiseAt
	default:
		step.Do = "muster upgrade --raise once all controllers are upgraded, after which none can go back"
	}
	return step
}

// upgradeTree is the plan as a document.
func upgradeTree(plan upgradePlan, list *apiv1.ControllersReply) tree.Object {
	steps := tree.List{}
	for _, step := range plan.Steps {
		steps = append(steps, tree.Object{
			{Key: "what", Value: step.What},
			{Key: "kind", Value: step.Kind},
			{Key: "release", Value: step.Release},
			{Key: "done", Value: step.Do == ""},
			{Key: "do", Value: step.Do},
		})
	}
	inWay := tree.List{}
	for _, text := range plan.InWay {
		inWay = append(inWay, text)
	}
	return tree.Object{
		{Key: "to", Value: plan.To},
		{Key: "ledger_version", Value: list.GetLedgerVersion()},
		{Key: "ledger_newest", Value: list.GetLedgerNewest()},
		{Key: "steps", Value: steps},
		{Key: "in_the_way", Value: inWay},
	}
}
