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
func showPolicy(c *tool.Call, args []string) error {
	what := ""
	if len(args) > 0 {
		what = findEntity(args[0])
	}
	if what == "" {
		return badListEntity()
	}
	w := readWords(what, args[1:], false)
	switch what {
	case "coordinator":
		return badListEntity()
	case "configuration":
		if c.API == nil {
			return showConfiguration(c)
		}
		what = "everything" // the entities, as Slurm's API has it
	case "transaction":
		return showTransactions(c, w)
	case "event":
		return showEvents(c, w)
	case "runawayjobs":
		return showRunaway(c)
	case "reservation":
		return showAccountedReservations(c, w)
	}
	var p apiv1.PolicyReply
	var ping apiv1.PingReply
	var cfg apiv1.GetConfigReply
	if err := c.RPCAll(tool.Request{Method: tool.MethodGetPolicy, Req: &apiv1.PolicyRequest{}, Resp: &p}, tool.Request{Method: tool.MethodPing, Req: &apiv1.PingRequest{}, Resp: &ping},
		tool.Request{Method: tool.MethodGetConfig, Req: &apiv1.GetConfigRequest{}, Resp: &cfg}); err != nil {
		return err
	}
	withAssoc := c.Opts.On("associations") || slices.Contains(w.Bare, "withassoc")
	s := render.PolicyView{Policy: &p, Words: w, Host: ping.GetHost(), Port: cmp.Or(render.ConfigValue(&cfg, "SlurmctldPort"), "6817"), Config: &cfg, Assocs: withAssoc,
		Tree: slices.Contains(w.Bare, "tree"), Coords: slices.Contains(w.Bare, "withcoordinator") || slices.Contains(w.Bare, "withcoordinators") || slices.Contains(w.Bare, "withcoord")}
	if _, chosen := render.PolicyWord(w.Where, "format"); what == "cluster" && chosen {
		var list apiv1.ListNodesReply
		if err := c.RPC(tool.MethodListNodes, &apiv1.ListNodesRequest{}, &list); err != nil {
			return err
		}
		s.Nodes = list.GetNodes()
	}
	if render.WantsDocument(c) {
		return policyDocument(c, what, &s)
	}
	rows, fields, more := s.Rows(what)
	if rows == nil && fields == nil {
		return c.Errorf("show %s is not supported in this release (account, association, cluster, configuration, event, federation, problem, qos, reservation, resource, runawayjobs, transaction, tres, user and wckey are)", what)
	}
	shown, err := policyColumns(c, fields, more, w)
	if err != nil {
		return err
	}
	return c.WriteOut(s.Text(render.TableStyle(c), shown, rows))
}

// policyColumns reads format=; name%width sets the width.
func policyColumns(c *tool.Call, fields, more []render.PolicyField, w render.PolicyWords) ([]render.PolicyField, error) {
	text, ok := render.PolicyWord(w.Where, "format")
	if !ok {
		return fields, nil
	}
	all := append(slices.Clone(fields), more...)
	var out []render.PolicyField
	for _, part := range tool.SplitList(text) {
		name, width, sized, err := column.Sized(strings.TrimSpace(part))
		if err != nil {
			return nil, c.Errorf("%v", err)
		}
		i := render.FindPolicyField(all, name)
		if i < 0 {
			return nil, tool.Fail(1, " Unknown field '"+name+"'")
		}
		f := all[i]
		if sized {
			f.Width = width
		}
		out = append(out, f)
	}
	return out, nil
}

// policyDocument is sacctmgr show --json.
func policyDocument(c *tool.Call, what string, s *render.PolicyView) error {
	members, name := s.Documents(what)
	if name == "" {
		return c.Errorf("show %s --json is not supported in this release", what)
	}
	list, _ := members[0].Value.(tree.List)
	if c.API != nil && len(s.Words.Names) > 0 && len(list) == 0 {
		return tool.Unknown(spec.CodeNothingFound, what+" "+strings.Join(s.Words.Names, ",")+" does not exist")
	}
	return render.Answer(c, name, members...)
}
