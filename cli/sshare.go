package cli

import (
	"math"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tree"
)

//muster:table the options of sshare
func sshareCommand() *command {
	return &command{
		name: "sshare", slurm: true,
		summary: "show the shares of accounts and users, and what they have used of them",
		usage:   []string{"[OPTIONS]"},
		about: `Prints the tree of associations with their shares, their use (billing seconds, fading with PriorityDecayHalfLife) and the fair-share
factor of users, as of the last PriorityCalcPeriod and the jobs that ended since. Without -a or -u only your own users are shown.`,
		options: []opt.Option{
			{Long: "accounts", Short: "A", Arg: "<account>", Help: "only these accounts and their users"},
			{Long: "all", Short: "a", Help: "all users"},
			{Long: "clusters", Short: "M", Arg: "<string>", Env: "SLURM_CLUSTERS", Help: "this cluster only"},
			{Long: "format", Short: "o", Arg: "<output_format>", Help: "these columns: Account,User,RawShares and so on"},
			{Long: "json", Arg: "<data_parser>", Maybe: true, Env: "SLURM_JSON", Help: "print JSON"},
			{Long: "long", Short: "l", Help: "more columns"},
			{Long: "noheader", Short: "n", Help: "print no header"},
			{Long: "parsable", Short: "p", Help: "| behind every field"},
			{Long: "parsable2", Short: "P", Help: "| between fields"},
			{Long: "partition", Short: "m", Help: "also the partition of an association"},
			{Long: "users", Short: "u", Arg: "<user_list>", Help: "only these users"},
			{Long: "Users", Short: "U", Help: "users only, no accounts"},
			{Long: "yaml", Arg: "<data_parser>", Maybe: true, Env: "SLURM_YAML", Help: "print YAML"},
		},
		example: []example{{"sshare -a", "shows every user"}, {"sshare -l -A ml", "shows one account with more columns"}, {"sshare -n -P -o account,fairshare", "for scripts"}},
		run:     runSshare,
	}
}

// shareField is a column of sshare.
type shareField struct {
	name  string
	width int
	text  func(s *apiv1.Share) string
}

func six(f float64) string { return strconv.FormatFloat(f, 'f', 6, 64) }

//muster:table one row for each column
func shareFields(fairTree bool, cluster string) []shareField {
	top := func(s *apiv1.Share) bool { return s.GetParent() == 0 }
	return []shareField{
		{"Account", -20, func(s *apiv1.Share) string { return strings.Repeat(" ", int(s.GetDepth())) + s.GetAccount() }},
		{"User", 10, (*apiv1.Share).GetUser},
		{"RawShares", 10, func(s *apiv1.Share) string {
			switch {
			case top(s):
				return ""
			case s.GetSharesParent():
				return "parent"
			}
			return itoa(s.GetRawShares())
		}},
		{"NormShares", 11, func(s *apiv1.Share) string { return six(s.GetNormShares()) }},
		{"RawUsage", 11, func(s *apiv1.Share) string { return itoa(s.GetRawUsage()) }},
		{"NormUsage", 11, func(s *apiv1.Share) string {
			if top(s) {
				return ""
			}
			return six(s.GetNormUsage())
		}},
		{"EffectvUsage", 13, func(s *apiv1.Share) string { return six(s.GetEffectiveUsage()) }},
		{"FairShare", 10, func(s *apiv1.Share) string {
			if s.GetUser() == "" {
				return ""
			}
			return six(s.GetFactor())
		}},
		{"LevelFS", 10, func(s *apiv1.Share) string {
			switch {
			case top(s) || !fairTree:
				return ""
			case s.GetLevelInfinite():
				return "inf"
			}
			return six(s.GetLevelFs())
		}},
		{"GrpTRESMins", 30, func(s *apiv1.Share) string { return limitsText(s.GetGrpTresMins()) }},
		{"TRESRunMins", 30, func(s *apiv1.Share) string { return runMinutes(s.GetTresRunMins()) }},
		{"GrpTRESRaw", 30, func(s *apiv1.Share) string { return runMinutes(s.GetTresMins()) }},
		{"Partition", 12, (*apiv1.Share).GetPartition},
		{"Cluster", 10, func(*apiv1.Share) string { return cluster }},
	}
}

// runMinutes writes minutes of TRES with the built-in ones always there.
func runMinutes(list []*apiv1.NamedCount) string {
	of := map[string]int64{}
	names := []string{"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"}
	for _, c := range list {
		of[c.GetName()] = c.GetN()
		if !slices.Contains(names, c.GetName()) {
			names = append(names, c.GetName())
		}
	}
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = n + "=" + itoa(of[n])
	}
	return strings.Join(parts, ",")
}

func runSshare(c *call) error {
	if err := c.checkClusters(); err != nil {
		return err
	}
	var rep apiv1.SharesReply
	if err := c.ask(methodShares, &apiv1.SharesRequest{}, &rep); err != nil {
		return err
	}
	rows := c.shareRows(&rep)
	if c.wantsTree() {
		return c.sharesDocument(&rep, rows)
	}
	all := shareFields(rep.GetFairTree(), rep.GetCluster())
	names := "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare"
	if c.opts.On("long") {
		names = "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,GrpTRESMins,TRESRunMins"
	}
	if c.opts.On("partition") {
		names = strings.Replace(names, "User,", "User,Partition,", 1)
	}
	fields, err := c.chooseShareFields(all, or(c.opts.Text("format"), names))
	if err != nil {
		return err
	}
	heads, texts := make([]column.Field, len(fields)), make([]string, len(fields))
	for i, f := range fields {
		heads[i] = column.Field{Name: f.name, Width: f.width}
	}
	style := c.tableStyle()
	b := style.Header(nil, heads)
	for _, r := range rows {
		for i, f := range fields {
			texts[i] = f.text(r)
		}
		b = style.Row(b, heads, texts)
	}
	return c.write(b)
}

// chooseShareFields reads -o: name or name%width.
func (c *call) chooseShareFields(all []shareField, text string) ([]shareField, error) {
	var out []shareField
	for _, part := range splitList(text) {
		name, width, sized, err := column.Sized(strings.TrimSpace(part))
		if err != nil {
			return nil, c.errorf("%v", err)
		}
		i := slices.IndexFunc(all, func(f shareField) bool { return strings.EqualFold(f.name, name) })
		if i < 0 {
			i = slices.IndexFunc(all, func(f shareField) bool {
				return len(name) >= 3 && strings.HasPrefix(strings.ToLower(f.name), strings.ToLower(name))
			})
		}
		if i < 0 {
			return nil, fail(1, "sshare: error: Invalid field requested: \""+name+"\"")
		}
		f := all[i]
		if sized {
			f.width = width
		}
		out = append(out, f)
	}
	return out, nil
}

// shareRows chooses associations: accounts always, users as the options say.
func (c *call) shareRows(rep *apiv1.SharesReply) []*apiv1.Share {
	users, accounts := splitList(c.opts.Text("users")), splitList(c.opts.Text("accounts"))
	var out []*apiv1.Share
	for _, s := range rep.GetShares() {
		if len(accounts) > 0 && !slices.Contains(accounts, s.GetAccount()) {
			continue
		}
		switch {
		case s.GetUser() == "":
			if c.opts.On("Users") {
				continue
			}
		case len(users) > 0:
			if !slices.Contains(users, s.GetUser()) {
				continue
			}
		case !c.opts.On("all") && s.GetUser() != rep.GetUser():
			continue
		}
		out = append(out, s)
	}
	return out
}

// sharesDocument is sshare --json.
func (c *call) sharesDocument(rep *apiv1.SharesReply, rows []*apiv1.Share) error {
	list := tree.List{}
	minutes := func(m []*apiv1.NamedCount) tree.List {
		out := tree.List{}
		for _, n := range m {
			out = append(out, tree.Object{{Key: "name", Value: n.GetName()}, {Key: "value", Value: number(n.GetN(), true, false)}})
		}
		return out
	}
	float := func(f float64, infinite bool) tree.Object {
		if infinite {
			f = 0
		}
		return tree.Object{{Key: "set", Value: !infinite}, {Key: "infinite", Value: infinite}, {Key: "number", Value: math.Round(f*1e9) / 1e9}}
	}
	for _, s := range rows {
		kind := "ASSOCIATION"
		name := s.GetAccount()
		if s.GetUser() != "" {
			kind, name = "USER", s.GetUser()
		}
		list = append(list, tree.Object{{Key: "id", Value: s.GetAssoc()}, {Key: "cluster", Value: rep.GetCluster()}, {Key: "name", Value: name}, {Key: "parent", Value: s.GetAccount()},
			{Key: "partition", Value: s.GetPartition()}, {Key: "shares_normalized", Value: float(s.GetNormShares(), false)}, {Key: "shares", Value: number(s.GetRawShares(), !s.GetSharesParent(), false)},
			{Key: "tres", Value: tree.Object{{Key: "run_seconds", Value: minutes(s.GetTresRunMins())}, {Key: "group_minutes", Value: minutes(s.GetGrpTresMins())}, {Key: "usage", Value: minutes(s.GetTresMins())}}},
			{Key: "effective_usage", Value: float(s.GetEffectiveUsage(), false)}, {Key: "usage_normalized", Value: float(s.GetNormUsage(), false)}, {Key: "usage", Value: s.GetRawUsage()},
			{Key: "fairshare", Value: tree.Object{{Key: "factor", Value: float(s.GetFactor(), false)}, {Key: "level", Value: float(s.GetLevelFs(), s.GetLevelInfinite())}}},
			{Key: "type", Value: tree.List{kind}}})
	}
	return c.structured(c.opts.On("json"), c.document(tree.Member{Key: "shares", Value: tree.Object{{Key: "shares", Value: list}, {Key: "total_shares", Value: len(rep.GetShares())}}}))
}
