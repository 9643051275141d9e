package acct

import (
	"cmp"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
)

// showPolicy is sacctmgr show.
func showPolicy(call *tool.Call, args []string) error {
	what := ""
	if len(args) > 0 {
		what = findEntity(args[0])
	}
	if what == "" {
		return badListEntity()
	}
	words := readWords(what, args[1:], false)
	switch what {
	case "coordinator", "job":
		return badListEntity()
	case "configuration":
		if call.API == nil {
			return showConfiguration(call)
		}
		what = "everything" // the entities, as Slurm's API has it
	case "transaction":
		return showTransactions(call, words)
	case "event":
		return showEvents(call, words)
	case "runawayjobs":
		return showRunaway(call)
	case "stats":
		return showStatistics(call)
	case "reservation":
		return showAccountedReservations(call, words)
	}
	var policy apiv1.PolicyReply
	var ping apiv1.PingReply
	var config apiv1.GetConfigReply
	if err := call.RPCAll(tool.Request{Method: tool.MethodGetPolicy, Req: &apiv1.PolicyRequest{}, Resp: &policy}, tool.Request{Method: tool.MethodPing, Req: &apiv1.PingRequest{}, Resp: &ping},
		tool.Request{
			Method: tool.MethodGetConfig, Req: &apiv1.GetConfigRequest{}, Resp: &config,
		}); err != nil {
		return err
	}
	withAssoc := call.Opts.On("associations") || slices.Contains(words.Bare, "withassoc")
	view := render.PolicyView{
		Policy: &policy,
		Words:  words,
		Host:   ping.GetHost(),
		Port:   cmp.Or(render.ConfigValue(&config, "SlurmctldPort"), config.GetPort(), "6817"),
		Config: &config,
		Assocs: withAssoc,
		Tree: slices.Contains(
			words.Bare,
			"tree",
		),
		Coords: slices.Contains(words.Bare, "withcoordinator") ||
			slices.Contains(words.Bare, "withcoordinators") ||
			slices.Contains(words.Bare, "withcoord"),
	}
	if _, chosen := render.PolicyWord(words.Where, "format"); what == "cluster" && chosen {
		var list apiv1.ListNodesReply
		if err := call.RPC(tool.MethodListNodes, &apiv1.ListNodesRequest{}, &list); err != nil {
			return err
		}
		view.Nodes = list.GetNodes()
	}
	if render.WantsDocument(call) {
		return policyDocument(call, what, &view)
	}
	rows, fields, more := view.Rows(what)
	if rows == nil && fields == nil {
		return cannotShow(call, what)
	}
	shown, err := policyColumns(call, fields, more, words)
	if err != nil {
		return err
	}
	return call.WriteOut(view.Text(render.TableStyle(call), shown, rows))
}

func cannotShow(call *tool.Call, what string) error {
	return call.Errorf(
		"show %s is not supported in this release (account, association, cluster, configuration, event, federation, problem, qos, reservation, resource, runawayjobs, stats, transaction, tres, user and wckey are)",
		what,
	)
}

// policyColumns reads format=; name%width sets the width.
func policyColumns(
	call *tool.Call,
	fields, more []render.PolicyField,
	words render.PolicyWords,
) ([]render.PolicyField, error) {
	text, ok := render.PolicyWord(words.Where, "format")
	if !ok {
		return fields, nil
	}
	all := append(slices.Clone(fields), more...)
	var policyFields []render.PolicyField
	for _, part := range tool.SplitList(text) {
		name, width, sized, err := column.Sized(strings.TrimSpace(part))
		if err != nil {
			return nil, call.Errorf("%v", err)
		}
		i := render.FindPolicyField(all, name)
		if i < 0 {
			return nil, tool.Fail(1, " Unknown field '"+name+"'")
		}
		field := all[i]
		if sized {
			field.Width = width
		}
		policyFields = append(policyFields, field)
	}
	return policyFields, nil
}

// policyDocument is sacctmgr show --json.
func policyDocument(call *tool.Call, what string, view *render.PolicyView) error {
	if member, ok := view.SmallDocument(what); ok {
		return render.Print(call, member)
	}
	members, name := view.Documents(what)
	if name == "" {
		return cannotShow(call, what)
	}
	list, _ := members[0].Value.(tree.List)
	if call.API != nil && len(view.Words.Names) > 0 && len(list) == 0 {
		return tool.Unknown(spec.CodeNothingFound, what+" "+strings.Join(view.Words.Names, ",")+
			" does not exist")
	}
	return render.Answer(call, name, members...)
}
