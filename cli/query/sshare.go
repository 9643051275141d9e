package query

import (
	"cmp"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
)

//muster:table the options of sshare
func Sshare() *tool.Command {
	return &tool.Command{
		Name: "sshare", Slurm: true,
		Summary: "show the shares and usage of accounts and users",
		Usage:   []string{"[OPTIONS]"},
		About: `Prints the tree of associations with their shares, usage (billing seconds, decaying with
PriorityDecayHalfLife) and the fair-share factor of users, as of the last PriorityCalcPeriod and the jobs
that ended since. Without -a or -u, only your own associations are shown.`,
		Options: []opt.Option{
			{Long: "accounts", Short: "A", Arg: "<account>", Help: "restrict to these accounts and their users"},
			{Long: "all", Short: "a", Help: "show all users"},
			{Long: "clusters", Short: "M", Arg: "<string>", Env: "SLURM_CLUSTERS", Help: "clusters to show, one after the other; all = every known one"},
			{Long: "format", Short: "o", Arg: "<output_format>", Help: "columns to show: Account,User,RawShares and so on"},
			{Long: "helpformat", Short: "e", Help: "list the names of columns that -o accepts"},
			{Long: "json", Arg: "<data_parser>", Maybe: true, Env: "SLURM_JSON", Help: "print JSON"},
			{Long: "long", Short: "l", Help: "show more columns"},
			{Long: "noheader", Short: "n", Help: "omit the header"},
			{Long: "parsable", Short: "p", Help: "end every field with |"},
			{Long: "parsable2", Short: "P", Help: "separate fields with |"},
			{Long: "partition", Short: "m", Help: "show the partition of each association"},
			{Long: "users", Short: "u", Arg: "<user_list>", Help: "only these users"},
			{Long: "Users", Short: "U", Help: "show users only"},
			{Long: "yaml", Arg: "<data_parser>", Maybe: true, Env: "SLURM_YAML", Help: "print YAML"},
		},
		Example: []tool.Example{{Line: "sshare -a", What: "shows every user"}, {Line: "sshare -l -A ml", What: "shows one account with more columns"}, {Line: "sshare -n -P -o account,fairshare", What: "for scripts"}},
		Fields:  sshareFields,
		Run:     runSshare,
	}
}

// shareField is a column of sshare.
type shareField struct {
	name  string
	width int
	text  func(s *apiv1.Share) string
}

//muster:table one row for each column
func shareFields(fairTree bool, cluster string) []shareField {
	top := func(s *apiv1.Share) bool { return s.GetParent() == 0 }
	return []shareField{
		{"Account", -20, func(s *apiv1.Share) string { return strings.Repeat(" ", int(s.GetDepth())) + s.GetAccount() }},
		{"User", 10, (*apiv1.Share).GetUser},
		{"RawShares", 10, func(share *apiv1.Share) string {
			switch {
			case top(share):
				return ""
			case share.GetSharesParent():
				return "parent"
			}
			return tool.Itoa(share.GetRawShares())
		}},
		{"NormShares", 11, func(s *apiv1.Share) string { return render.SixDigits(s.GetNormShares()) }},
		{"RawUsage", 11, func(s *apiv1.Share) string { return tool.Itoa(s.GetRawUsage()) }},
		{"NormUsage", 11, func(share *apiv1.Share) string {
			if top(share) {
				return ""
			}
			return render.SixDigits(share.GetNormUsage())
		}},
		{"EffectvUsage", 13, func(s *apiv1.Share) string { return render.SixDigits(s.GetEffectiveUsage()) }},
		{"FairShare", 10, func(share *apiv1.Share) string {
			if share.GetUser() == "" {
				return ""
			}
			return render.SixDigits(share.GetFactor())
		}},
		{"LevelFS", 10, func(share *apiv1.Share) string {
			switch {
			case top(share) || !fairTree:
				return ""
			case share.GetLevelInfinite():
				return "inf"
			}
			return render.SixDigits(share.GetLevelFs())
		}},
		{"GrpTRESMins", 30, func(s *apiv1.Share) string { return render.LimitsText(s.GetGrpTresMins()) }},
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
	for _, count := range list {
		of[count.GetName()] = count.GetN()
		if !slices.Contains(names, count.GetName()) {
			names = append(names, count.GetName())
		}
	}
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = n + "=" + tool.Itoa(of[n])
	}
	return strings.Join(parts, ",")
}

func runSshare(call *tool.Call) error {
	if call.Opts.On("helpformat") {
		name := func(name string) string { return name }
		return call.WriteOut(render.FieldHelp(sshareFields(), name))
	}
	return call.EachHeaded(render.WantsDocument(call), showShares)
}

func showShares(call *tool.Call) error {
	var reply apiv1.SharesReply
	if err := call.RPC(tool.MethodShares, &apiv1.SharesRequest{}, &reply); err != nil {
		return err
	}
	rows := shareRows(call, &reply)
	render.IndentFromTop(rows, func(row *apiv1.Share) *uint32 { return &row.Depth })
	if render.WantsDocument(call) {
		return sharesDocument(call, &reply, rows)
	}
	all := shareFields(reply.GetFairTree(), reply.GetCluster())
	names := "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare"
	if call.Opts.On("long") {
		names = "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,GrpTRESMins,TRESRunMins"
	}
	if call.Opts.On("partition") {
		names = strings.Replace(names, "User,", "User,Partition,", 1)
	}
	fields, err := chooseShareFields(call, all, cmp.Or(call.Opts.Text("format"), names))
	if err != nil {
		return err
	}
	heads, texts := make([]column.Field, len(fields)), make([]string, len(fields))
	for i, field := range fields {
		heads[i] = column.Field{Name: field.name, Width: field.width}
	}
	style := render.TableStyle(call)
	data := style.Header(nil, heads)
	for _, share := range rows {
		for i, field := range fields {
			texts[i] = field.text(share)
		}
		data = style.Row(data, heads, texts)
	}
	return call.WriteOut(data)
}

// chooseShareFields reads -o: name or name%width.
func chooseShareFields(call *tool.Call, all []shareField, text string) ([]shareField, error) {
	var fields []shareField
	for _, part := range tool.SplitList(text) {
		name, width, sized, err := column.Sized(strings.TrimSpace(part))
		if err != nil {
			return nil, call.Errorf("%v", err)
		}
		i := slices.IndexFunc(
			all,
			func(f shareField) bool { return strings.EqualFold(f.name, name) },
		)
		if i < 0 {
			i = slices.IndexFunc(all, func(f shareField) bool {
				return len(name) >= 3 &&
					strings.HasPrefix(strings.ToLower(f.name), strings.ToLower(name))
			})
		}
		if i < 0 {
			return nil, tool.Fail(1, "sshare: error: Invalid field requested: \""+name+"\"")
		}
		field := all[i]
		if sized {
			field.width = width
		}
		fields = append(fields, field)
	}
	return fields, nil
}

// shareRows chooses associations: accounts always, users as the options say.
func shareRows(call *tool.Call, reply *apiv1.SharesReply) []*apiv1.Share {
	users, accounts := tool.SplitList(
		call.Opts.Text("users"),
	), tool.SplitList(
		call.Opts.Text("accounts"),
	)
	var shares []*apiv1.Share
	for _, share := range reply.GetShares() {
		if len(accounts) > 0 && !slices.Contains(accounts, share.GetAccount()) {
			continue
		}
		switch {
		case share.GetUser() == "":
			if call.Opts.On("Users") {
				continue
			}
		case len(users) > 0:
			if !slices.Contains(users, share.GetUser()) {
				continue
			}
		case !call.Opts.On("all") && share.GetUser() != reply.GetUser():
			continue
		}
		shares = append(shares, share)
	}
	return shares
}

// sharesDocument is sshare --json.
func sharesDocument(call *tool.Call, reply *apiv1.SharesReply, rows []*apiv1.Share) error {
	list := tree.List{}
	minutes := func(m []*apiv1.NamedCount) tree.List {
		out := tree.List{}
		for _, n := range m {
			out = append(
				out,
				tree.Object{
					{Key: "name", Value: n.GetName()},
					{Key: "value", Value: render.Number(n.GetN(), true, false)},
				},
			)
		}
		return out
	}
	for _, share := range rows {
		kind := "ASSOCIATION"
		name := share.GetAccount()
		if share.GetUser() != "" {
			kind, name = "USER", share.GetUser()
		}
		list = append(
			list,
			tree.Object{
				{Key: "id", Value: share.GetAssoc()},
				{Key: "cluster", Value: reply.GetCluster()},
				{Key: "name", Value: name},
				{Key: "parent", Value: share.GetAccount()},
				{
					Key:   "partition",
					Value: share.GetPartition(),
				},
				{Key: "shares_normalized", Value: render.Fraction(share.GetNormShares(), false)},
				{
					Key:   "shares",
					Value: render.Number(share.GetRawShares(), !share.GetSharesParent(), false),
				},
				{
					Key: "tres",
					Value: tree.Object{
						{Key: "run_seconds", Value: minutes(share.GetTresRunMins())},
						{Key: "group_minutes", Value: minutes(share.GetGrpTresMins())},
						{Key: "usage", Value: minutes(share.GetTresMins())},
					},
				},
				{
					Key:   "effective_usage",
					Value: render.Fraction(share.GetEffectiveUsage(), false),
				},
				{Key: "usage_normalized", Value: render.Fraction(share.GetNormUsage(), false)},
				{Key: "usage", Value: share.GetRawUsage()},
				{
					Key: "fairshare",
					Value: tree.Object{
						{Key: "factor", Value: render.Fraction(share.GetFactor(), false)},
						{
							Key:   "level",
							Value: render.Fraction(share.GetLevelFs(), share.GetLevelInfinite()),
						},
					},
				},
				{Key: "type", Value: tree.List{kind}},
			},
		)
	}
	return render.Answer(
		call,
		"openapi_shares_resp",
		tree.Member{
			Key: "shares",
			Value: tree.Object{
				{Key: "shares", Value: list},
				{Key: "total_shares", Value: len(reply.GetShares())},
			},
		},
	)
}
