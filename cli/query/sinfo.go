package query

import (
	"cmp"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// sinfoReservations is sinfo -T.
func sinfoReservations(c *tool.Call) error {
	rep, err := fetch.Reservations(c)
	if err != nil {
		return err
	}
	if len(rep.GetReservations()) == 0 {
		return c.WriteOut([]byte("No reservations in the system\n"))
	}
	width := len("RESV_NAME")
	for _, r := range rep.GetReservations() {
		width = max(width, len(r.GetName()))
	}
	var b strings.Builder
	row := func(name, state, start, end, length, nodes string) {
		b.WriteString(padText(name, -width) + " " + padText(state, 9) + " " + padText(start, 20) + " " + padText(end, 20) + " " + padText(length, 12) + "  " + nodes + "\n")
	}
	if !c.Opts.On("noheader") {
		row("RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST")
	}
	k := render.NewClock(c.Env)
	for _, r := range rep.GetReservations() {
		state := "INACTIVE"
		if r.GetActive() {
			state = "ACTIVE"
		}
		row(r.GetName(), state, k.Time(r.GetStart()), k.Time(r.GetEnd()), format.Duration((r.GetEnd()-r.GetStart())/tool.Second), hostlist.FoldSorted(r.GetNodes()))
	}
	return c.WriteOut([]byte(b.String()))
}

// Formats of sinfo's listings, as -O takes them.
const (
	sinfoFormat      = "partition:9 ,available:.5 ,time:.10 ,nodes:.6 ,statecompact:.6 ,nodelist:0"
	sinfoLong        = "partition:9 ,available:.5 ,time:.10 ,size:.10 ,root:.4 ,oversubscribe:.8 ,groups:.10 ,nodes:.6 ,statelong:.11 ,nodelist:0"
	sinfoSummary     = "partition:9 ,available:.5 ,time:.10 ,nodeaiot:.16 ,nodelist:0"
	sinfoNodes       = "nodelist:9 ,nodes:.6 ,partition:.9 ,statecompact:6"
	sinfoNodesLong   = "nodelist:9 ,nodes:.6 ,partition:.9 ,statelong:.11 ,cpus:4 ,socketcorethread:.8 ,memory:.6 ,disk:.8 ,weight:.6 ,features:.8 ,reason:20"
	sinfoReasons     = "reason:20 ,user:9 ,timestamp:19 ,nodelist:0"
	sinfoReasonsLong = "reason:20 ,userlong:12 ,timestamp:19 ,statecompact:6 ,nodelist:0"
)

//muster:table the options of sinfo
func Sinfo() *tool.Command {
	const noFederation = "Muster has no federation"
	return &tool.Command{
		Name: "sinfo", Slurm: true, Mixed: true,
		Summary: "show the partitions and nodes",
		Usage:   []string{"[OPTIONS]"},
		About: `Nodes of a partition with equal values in all shown columns share a line. -o takes
%[.][width]letter, -O takes name[:[.][width][suffix]]; "." pads on the left.

Suffixes of a state: * not responding, - planned for a job, $ maintenance, @ reboot asked for, ^ rebooting, ! to be powered down, % being
powered down, ~ powered down, # being powered up.`,
		More: func() string {
			var letters, names []string
			for _, f := range nodeFields() {
				names = append(names, f.name)
				if f.letter != "" {
					letters = append(letters, "%"+f.letter+" "+f.name)
				}
			}
			return "Letters of -o: " + strings.Join(letters, ", ") + ".\n\nNames of -O: " + strings.Join(names, ", ") + "."
		},
		Options: []opt.Option{
			{Long: "all", Short: "a", Env: "SINFO_ALL", Help: "include hidden partitions"},
			{Long: "clusters", Short: "M", Arg: "<string>", Env: "SLURM_CLUSTERS", Help: "fail unless this is the cluster's name, and print it first"},
			{Long: "dead", Short: "d", Help: "only nodes that do not respond"},
			{Long: "exact", Short: "e", Help: "group nodes on one line only if their amounts are equal"},
			{Long: "federation", Env: "SINFO_FEDERATION", Help: "include the other clusters of the federation", Always: noFederation},
			{Long: "future", Short: "F", Env: "SCONTROL_FUTURE", Help: "include nodes in state FUTURE"},
			{Long: "format", Short: "o", Arg: "<output_format>", Env: "SINFO_FORMAT", Help: "columns to show, by letter"},
			{Long: "Format", Short: "O", Arg: "<output_format>", Help: "columns to show, by name"},
			{Long: "hide", Help: "do not show hidden partitions (default without --all)"},
			{Long: "iterate", Short: "i", Arg: "<seconds>", Help: "refresh interval in seconds"},
			{Long: "json", Arg: "<data_parser>", Maybe: true, Env: "SLURM_JSON", Help: "print JSON"},
			{Long: "list-reasons", Short: "R", Help: "show why nodes are unavailable, who set it and when"},
			{Long: "local", Env: "SINFO_LOCAL", Help: "show this cluster", Always: noFederation},
			{Long: "long", Short: "l", Help: "show more columns"},
			{Long: "noconvert", Help: "print amounts in the unit in which they are stored", Always: "sinfo prints MiB"},
			{Long: "Node", Short: "N", Help: "show one line per node and partition"},
			{Long: "nodes", Short: "n", Arg: "<nodes>", Help: "only these nodes"},
			{Long: "noheader", Short: "h", Help: "omit the header"},
			{Long: "partition", Short: "p", Arg: "<partition>", Env: "SINFO_PARTITION", Help: "only these partitions"},
			{Long: "reservation", Short: "T", Help: "reservations"},
			{Long: "responding", Short: "r", Help: "only nodes that respond"},
			{Long: "sort", Short: "S", Arg: "<sort_list>", Env: "SINFO_SORT", Help: "sort by these letters of -o; - before a letter reverses its order; #P is the order of the configuration"},
			{Long: "states", Short: "t", Arg: "<states>", Help: "only nodes in these states: idle,drain&down"},
			{Long: "summarize", Short: "s", Help: "show one line per partition"},
			{Long: "yaml", Arg: "<data_parser>", Maybe: true, Env: "SLURM_YAML", Help: "print YAML"},
		},
		Env: []tool.Variable{{Name: "SLURM_TIME_FORMAT", Help: "format of timestamps: standard, relative or a strftime format"}},
		Example: []tool.Example{
			{Line: "sinfo", What: "shows the partitions with the states of their nodes"},
			{Line: "sinfo -R", What: "shows why nodes are unavailable"},
			{Line: "sinfo -N -O NodeList,Gres,GresUsed,CPUsState,StateLong", What: "shows each node's GPUs and CPUs"},
		},
		Fields: sinfoFields,
		Run:    runSinfo,
	}
}

// nodeQuery is how sinfo prints.
type nodeQuery struct {
	before  string
	columns []column.Token
	fields  []*nodeField
	sort    []render.SortKey
	dated   bool
	fit     bool // a listing of our own: names of partitions and nodes are never cut
}

func runSinfo(c *tool.Call) error {
	if len(c.Operands) > 0 {
		return c.Errorf("Unrecognized option: %s", c.Operands[0])
	}
	q, err := sinfoQuery(c)
	if err != nil {
		return err
	}
	if err := c.CheckClusters(); err != nil {
		return err
	}
	if c.Opts.On("clusters") && !render.WantsDocument(c) {
		if err := c.WriteOut([]byte("CLUSTER: " + c.Opts.List("clusters")[0] + "\n")); err != nil {
			return err
		}
	}
	return c.Repeat(func() error { return sinfoOnce(c, q) })
}

func sinfoQuery(c *tool.Call) (*nodeQuery, error) {
	o := c.Opts
	q := &nodeQuery{dated: o.On("long") || o.On("iterate")}
	names, plain := sinfoFormat, false
	switch long := o.On("long"); {
	case o.On("list-reasons") && long:
		names = sinfoReasonsLong
	case o.On("list-reasons"):
		names = sinfoReasons
	case o.On("Node") && long:
		names = sinfoNodesLong
	case o.On("Node"):
		names = sinfoNodes
	case o.On("summarize"):
		names = sinfoSummary
	case long:
		names = sinfoLong
	default:
		plain = true
	}
	short, hasShort := o.Get("format")
	wide, hasWide := o.Get("Format")
	q.fit = true
	typed := func(v opt.Value, has bool) bool { return has && v.From == opt.FromCommand }
	if o.On("long") && (typed(short, hasShort) || typed(wide, hasWide)) {
		return nil, c.Errorf("--long and --format, --Format exclude each other")
	}
	var err error
	switch {
	case typed(wide, hasWide) && (!typed(short, hasShort) || wide.Order > short.Order):
		names, q.fit = wide.Text, false
	case hasShort && (typed(short, hasShort) || plain):
		names, q.fit = "", false
		q.before, q.columns, err = column.Letters(short.Text)
	}
	if names != "" && err == nil && !strings.EqualFold(names, "all") {
		q.columns, err = column.Names(names)
	}
	if err != nil {
		return nil, c.Errorf("%v", err)
	}
	if err := q.resolveColumns(strings.EqualFold(names, "all")); err != nil {
		return nil, c.Errorf("%v", err)
	}
	text := o.Text("sort")
	switch {
	case text != "":
	case o.On("Node"):
		text = "N"
	case o.On("list-reasons"):
		text = "E,u,N"
	default:
		text = "#P,-t"
	}
	q.sort, err = nodeSortKeys(text)
	if err != nil {
		return nil, c.Errorf("%v", err)
	}
	return q, nil
}

// resolveColumns finds the columns of the format; %all and ALL are every one.
func (q *nodeQuery) resolveColumns(all bool) error {
	fields := nodeFields()
	if len(q.columns) > 0 && strings.EqualFold(q.columns[0].Field, "all") {
		all = true
	}
	if all {
		q.columns = nil
		for i := range fields {
			q.columns = append(q.columns, column.Token{Field: fields[i].name, Suffix: "|"})
			q.fields = append(q.fields, &fields[i])
		}
		q.columns[len(q.columns)-1].Suffix = ""
		return nil
	}
	plain := func(s string) string { return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s)) }
	for _, t := range q.columns {
		i := slices.IndexFunc(fields, func(f nodeField) bool {
			return f.letter == t.Field || (len(t.Field) > 1 && plain(f.name) == plain(t.Field))
		})
		if i < 0 {
			return errBadNodeField(t.Field)
		}
		q.fields = append(q.fields, &fields[i])
	}
	return nil
}

// errBadNodeField is Slurm's text for a column that does not exist.
type errBadNodeField string

// Error implements error.
func (e errBadNodeField) Error() string { return "Invalid node format specification: " + string(e) }

func nodeSortKeys(text string) ([]render.SortKey, error) {
	var out []render.SortKey
	fields := nodeFields()
	for _, part := range tool.SplitList(text) {
		k := render.SortKey{}
		if part[0] == '-' || part[0] == '+' {
			k.Falling, part = part[0] == '-', part[1:]
		}
		if part == "#P" {
			k.Letter = '#'
		} else if part = strings.TrimPrefix(part, "#"); len(part) == 1 && slices.ContainsFunc(fields, func(f nodeField) bool { return f.letter == part }) {
			k.Letter = part[0]
		} else {
			return nil, errBadSort(text)
		}
		out = append(out, k)
	}
	return out, nil
}

// errBadSort is Slurm's text for an order that cannot be read.
type errBadSort string

// Error implements error.
func (e errBadSort) Error() string { return "Invalid sort specification: " + string(e) }

func sinfoOnce(c *tool.Call, q *nodeQuery) error {
	if c.Opts.On("reservation") {
		return sinfoReservations(c)
	}
	var nodes apiv1.ListNodesReply
	var parts apiv1.ListPartitionsReply
	if err := c.RPCAll(tool.Request{Method: tool.MethodListPartitions, Req: &apiv1.ListPartitionsRequest{}, Resp: &parts}, tool.Request{Method: tool.MethodListNodes, Req: &apiv1.ListNodesRequest{Future: c.Opts.On("future")}, Resp: &nodes}); err != nil {
		r := tool.ExplainError(err)
		return tool.Fail(1, append(r.Preamble(c.Command.Name), "slurm_load_partitions: "+r.Text)...)
	}
	keep, err := nodeFilter(c)
	if err != nil {
		return err
	}
	shown := fetch.ShownPartitions(c, parts.GetPartitions())
	if render.WantsDocument(c) {
		everything := &nodeQuery{}
		if err := everything.resolveColumns(true); err != nil {
			return err
		}
		q = everything
	}
	groups := q.groupNodes(shown, nodes.GetNodes(), keep, groupBy{exact: c.Opts.On("exact"), byNode: c.Opts.On("Node"), empty: !filtersNodes(c)})
	view := &render.NodeView{Clock: render.NewClock(c.Env), Cluster: c.Opts.Text("clusters"), UID: tool.LookupUID}
	view.Now = nodes.GetNow()
	if render.WantsDocument(c) {
		return render.Structured(c, c.Opts.On("json"), render.SinfoTree(c, groups, view))
	}
	q.sortLines(groups, shown, view)
	return c.WriteOut(q.text(groups, view, !c.Opts.On("noheader")))
}

// filtersNodes tells that only some nodes are asked for, so that partitions without
// any are left out.
func filtersNodes(c *tool.Call) bool {
	for _, o := range [...]string{"nodes", "states", "dead", "responding", "list-reasons", "Node"} {
		if c.Opts.On(o) {
			return true
		}
	}
	return false
}

// nodeFilter makes the filter of -n, -t, -d, -r and -R.
func nodeFilter(c *tool.Call) (func(n *apiv1.NodeInfo) bool, error) {
	o := c.Opts
	var names map[string]bool
	if o.On("nodes") {
		list, err := hostlist.Expand(o.Text("nodes"))
		if err != nil {
			return nil, c.Errorf("%v", err)
		}
		names = map[string]bool{}
		for _, n := range list {
			names[n] = true
		}
	}
	var states [][]string // any of these, each of whose words must hold
	for _, alt := range tool.SplitList(strings.ToLower(o.Text("states"))) {
		words := strings.Split(alt, "&")
		for _, w := range words {
			if !slices.Contains(render.NodeStateWords(), w) {
				return nil, tool.Fail(1, c.Command.Name+": error: Bad state string: \""+w+"\"", c.Command.Name+": error: Valid node states include: "+strings.Join(render.NodeStateWords(), ","))
			}
		}
		states = append(states, words)
	}
	return func(n *apiv1.NodeInfo) bool {
		s := render.StateOf(n)
		in := len(states) == 0
		for _, words := range states {
			in = in || !slices.ContainsFunc(words, func(w string) bool { return !s.Matches(w) })
		}
		return in && (names == nil || names[n.GetName()]) &&
			(!o.On("dead") || s.Has("NOT_RESPONDING")) && (!o.On("responding") || !s.Has("NOT_RESPONDING")) &&
			(!o.On("list-reasons") || (n.GetReason() != "" && (s.Out() || s.Has("INVALID_REG"))))
	}, nil
}

// groupBy says how nodes share lines.
type groupBy struct {
	exact  bool // --exact
	byNode bool // -N
	empty  bool // partitions without nodes have a line
}

// groupNodes puts the nodes of each partition into lines.
func (q *nodeQuery) groupNodes(parts []*apiv1.PartitionInfo, nodes []*apiv1.NodeInfo, keep func(*apiv1.NodeInfo) bool, by groupBy) []*render.NodeGroup {
	ofPart := map[string][]*apiv1.NodeInfo{}
	for _, n := range nodes {
		if keep(n) {
			for _, p := range n.GetPartitions() {
				ofPart[p] = append(ofPart[p], n)
			}
		}
	}
	var groups []*render.NodeGroup
	index := map[string]*render.NodeGroup{}
	in := map[*render.NodeGroup]map[string]bool{}
	for _, p := range parts {
		if len(ofPart[p.GetName()]) == 0 && by.empty {
			groups = append(groups, &render.NodeGroup{Part: p})
		}
		for _, n := range ofPart[p.GetName()] {
			key := q.lineKey(p, n, by)
			g := index[key]
			if g == nil {
				g = &render.NodeGroup{Part: p}
				index[key], in[g] = g, map[string]bool{}
				groups = append(groups, g)
			}
			if !in[g][n.GetName()] {
				in[g][n.GetName()] = true
				g.Nodes = append(g.Nodes, n)
			}
		}
	}
	return groups
}

// lineKey is what the nodes of a line have in common.
func (q *nodeQuery) lineKey(p *apiv1.PartitionInfo, n *apiv1.NodeInfo, by groupBy) string {
	var b strings.Builder
	if by.byNode {
		b.WriteString(p.GetName() + "\x00" + n.GetName())
	}
	for _, f := range q.fields {
		if f.key != nil && (!f.loose || by.exact) {
			b.WriteString("\x00" + f.key(p, n))
		}
	}
	return b.String()
}

// sortLines sorts the lines.
func (q *nodeQuery) sortLines(groups []*render.NodeGroup, parts []*apiv1.PartitionInfo, v *render.NodeView) {
	fields := nodeFields()
	slices.SortStableFunc(groups, func(a, b *render.NodeGroup) int {
		for _, k := range q.sort {
			d := 0
			switch k.Letter {
			case '#':
				d = cmp.Compare(slices.Index(parts, a.Part), slices.Index(parts, b.Part))
			case 't', 'T':
				d = cmp.Compare(groupRank(a), groupRank(b))
			case 'N', 'n':
				d = compareHosts(a, b)
			case 'D':
				d = cmp.Compare(len(a.Nodes), len(b.Nodes))
			default:
				i := slices.IndexFunc(fields, func(f nodeField) bool { return f.letter == string(k.Letter) })
				d = compareNatural(fields[i].text(v, a), fields[i].text(v, b))
			}
			if k.Falling {
				d = -d
			}
			if d != 0 {
				return d
			}
		}
		return 0
	})
}

func groupRank(g *render.NodeGroup) int {
	if n := g.First(); n != nil {
		return render.StateOf(n).Rank()
	}
	return -1
}

// compareHosts orders lines by their first node, numbers in names as numbers.
func compareHosts(a, b *render.NodeGroup) int {
	if a.First() == nil || b.First() == nil {
		return cmp.Compare(len(a.Nodes), len(b.Nodes))
	}
	return compareNatural(a.First().GetName(), b.First().GetName())
}

// compareNatural compares texts, with the numbers in them as numbers.
func compareNatural(a, b string) int {
	for a != "" && b != "" {
		na, nb := tool.LeadingDigits(a), tool.LeadingDigits(b)
		if na > 0 && nb > 0 {
			x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
			if d := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); d != 0 {
				return d
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

// text lays the lines out.
func (q *nodeQuery) text(groups []*render.NodeGroup, v *render.NodeView, header bool) []byte {
	var b []byte
	if q.fit {
		q.widenColumns(groups, v)
	}
	if q.dated && header {
		b = append(b, v.Date()+"\n"...)
	}
	if header {
		b = append(b, q.before...)
		for i, t := range q.columns {
			b = t.Append(b, q.fields[i].head)
		}
		b = append(b, '\n')
	}
	for _, g := range groups {
		b = append(b, q.before...)
		for i, t := range q.columns {
			b = t.Append(b, q.fields[i].text(v, g))
		}
		b = append(b, '\n')
	}
	return b
}

// widenColumns makes room for the longest names of partitions and nodes.
func (q *nodeQuery) widenColumns(groups []*render.NodeGroup, v *render.NodeView) {
	for i, f := range q.fields {
		if t := &q.columns[i]; t.Width > 0 && (f.name == "Partition" || f.name == "NodeList") {
			for _, g := range groups {
				t.Width = max(t.Width, len(f.text(v, g)))
			}
		}
	}
}
