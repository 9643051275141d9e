package cli

import (
	"cmp"
	"os/user"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/spec/hostlist"
)

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
func sinfoCommand() *command {
	const noFederation = "there is one cluster and no federation"
	return &command{
		name: "sinfo", slurm: true, mixed: true,
		summary: "show the partitions and nodes",
		usage:   []string{"[OPTIONS]"},
		about: `Nodes of a partition that look the same in the columns that are shown share a line. Behind -o stand
%[.][width]letter, behind -O name[:[.][width][suffix]]; "." pads on the left.

Marks behind a state: * not responding, - planned for a job, $ maintenance, @ reboot asked for, ^ rebooting, ! to be powered down, % being
powered down, ~ powered down, # being powered up.`,
		more: func() string {
			var letters, names []string
			for _, f := range nodeFields() {
				if names = append(names, f.name); f.letter != "" {
					letters = append(letters, "%"+f.letter+" "+f.name)
				}
			}
			return "Letters of -o: " + strings.Join(letters, ", ") + ".\n\nNames of -O: " + strings.Join(names, ", ") + "."
		},
		options: []opt.Option{
			{Long: "all", Short: "a", Env: "SINFO_ALL", Help: "show hidden partitions too"},
			{Long: "clusters", Short: "M", Arg: "<string>", Env: "SLURM_CLUSTERS", Help: "check that this is the cluster's name, and print it first"},
			{Long: "dead", Short: "d", Help: "only nodes that do not respond"},
			{Long: "exact", Short: "e", Help: "put nodes on one line only if their amounts are equal"},
			{Long: "federation", Env: "SINFO_FEDERATION", Refused: noFederation},
			{Long: "future", Short: "F", Env: "SCONTROL_FUTURE", Help: "show nodes in State=FUTURE too"},
			{Long: "format", Short: "o", Arg: "<output_format>", Env: "SINFO_FORMAT", Help: "columns by letter"},
			{Long: "Format", Short: "O", Arg: "<output_format>", Help: "columns by name"},
			{Long: "hide", Help: "do not show hidden partitions, which holds without --all"},
			{Long: "iterate", Short: "i", Arg: "<seconds>", Help: "repeat every so many seconds"},
			{Long: "json", Arg: "<data_parser>", Maybe: true, Env: "SLURM_JSON", Help: "print JSON"},
			{Long: "list-reasons", Short: "R", Help: "show why nodes are out, who said so and when"},
			{Long: "local", Env: "SINFO_LOCAL", Help: "show this cluster", Always: noFederation},
			{Long: "long", Short: "l", Help: "more columns"},
			{Long: "noconvert", Help: "leave amounts in the unit they are kept in", Always: "sinfo prints MiB"},
			{Long: "Node", Short: "N", Help: "one line for each node and partition"},
			{Long: "nodes", Short: "n", Arg: "<nodes>", Help: "only these nodes"},
			{Long: "noheader", Short: "h", Help: "print no header"},
			{Long: "partition", Short: "p", Arg: "<partition>", Env: "SINFO_PARTITION", Help: "only these partitions"},
			{Long: "reservation", Short: "T", Help: "reservations"},
			{Long: "responding", Short: "r", Help: "only nodes that respond"},
			{Long: "sort", Short: "S", Arg: "<sort_list>", Env: "SINFO_SORT", Help: "order by these letters of -o, each with - for falling; #P is the order of the configuration"},
			{Long: "states", Short: "t", Arg: "<states>", Help: "only nodes in these states: idle,drain&down"},
			{Long: "summarize", Short: "s", Help: "one line for each partition"},
			{Long: "yaml", Arg: "<data_parser>", Maybe: true, Env: "SLURM_YAML", Help: "print YAML"},
		},
		env: []variable{{"SLURM_TIME_FORMAT", "how points in time are written: standard, relative or a strftime format"}},
		example: []example{
			{"sinfo", "shows the partitions with the states of their nodes"},
			{"sinfo -R", "says why nodes are out"},
			{"sinfo -N -O NodeList,Gres,GresUsed,CPUsState,StateLong", "shows each node's GPUs and CPUs"},
		},
		run: runSinfo,
	}
}

// nodeQuery is how sinfo prints.
type nodeQuery struct {
	before  string
	columns []column.Token
	fields  []*nodeField
	sort    []sortKey
	dated   bool
	fit     bool // a listing of our own: names of partitions and nodes are never cut
}

func runSinfo(c *call) error {
	if len(c.args) > 0 {
		return c.errorf("Unrecognized option: %s", c.args[0])
	}
	q, err := c.sinfoQuery()
	if err != nil {
		return err
	}
	if err := c.checkClusters(); err != nil {
		return err
	}
	if c.opts.On("clusters") && !c.wantsTree() {
		if err := c.write([]byte("CLUSTER: " + c.opts.List("clusters")[0] + "\n")); err != nil {
			return err
		}
	}
	return c.repeat(func() error { return c.sinfoOnce(q) })
}

// wantsTree tells that JSON or YAML is asked for.
func (c *call) wantsTree() bool { return c.opts.On("json") || c.opts.On("yaml") }

func (c *call) sinfoQuery() (*nodeQuery, error) {
	o := c.opts
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
		return nil, c.errorf("--long and --format, --Format exclude each other")
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
		return nil, c.errorf("%v", err)
	}
	if err := q.resolve(strings.EqualFold(names, "all")); err != nil {
		return nil, c.errorf("%v", err)
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
		return nil, c.errorf("%v", err)
	}
	return q, nil
}

// resolve finds the columns of the format; %all and ALL are every one.
func (q *nodeQuery) resolve(all bool) error {
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

func nodeSortKeys(text string) ([]sortKey, error) {
	var out []sortKey
	fields := nodeFields()
	for _, part := range splitList(text) {
		k := sortKey{}
		if part[0] == '-' || part[0] == '+' {
			k.falling, part = part[0] == '-', part[1:]
		}
		if part == "#P" {
			k.letter = '#'
		} else if part = strings.TrimPrefix(part, "#"); len(part) == 1 && slices.ContainsFunc(fields, func(f nodeField) bool { return f.letter == part }) {
			k.letter = part[0]
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

func (c *call) sinfoOnce(q *nodeQuery) error {
	if c.opts.On("reservation") {
		return c.sinfoReservations()
	}
	var nodes apiv1.ListNodesReply
	var parts apiv1.ListPartitionsReply
	if err := c.askAll(question{methodListPartitions, &apiv1.ListPartitionsRequest{}, &parts}, question{methodListNodes, &apiv1.ListNodesRequest{Future: c.opts.On("future")}, &nodes}); err != nil {
		r := explainError(err)
		return fail(1, append(r.before(c.cmd.name), "slurm_load_partitions: "+r.text)...)
	}
	keep, err := c.nodeFilter()
	if err != nil {
		return err
	}
	shown := c.shownPartitions(parts.GetPartitions())
	if c.wantsTree() {
		everything := &nodeQuery{}
		if err := everything.resolve(true); err != nil {
			return err
		}
		q = everything
	}
	groups := q.group(shown, nodes.GetNodes(), keep, groupBy{exact: c.opts.On("exact"), byNode: c.opts.On("Node"), empty: !c.filters()})
	view := &nodeView{clock: c.clock(), cluster: c.opts.Text("clusters"), uid: lookupUID}
	view.now = nodes.GetNow()
	if c.wantsTree() {
		return c.structured(c.opts.On("json"), sinfoTree(c, groups, view))
	}
	q.order(groups, shown, view)
	return c.write(q.text(groups, view, !c.opts.On("noheader")))
}

// lookupUID finds the number of a user of this host.
func lookupUID(name string) string {
	if name == "root" {
		return "0"
	}
	u, err := user.Lookup(name)
	if err != nil {
		return ""
	}
	return u.Uid
}

// filters tells that only some nodes are asked for, so that partitions without
// any are left out.
func (c *call) filters() bool {
	for _, o := range [...]string{"nodes", "states", "dead", "responding", "list-reasons", "Node"} {
		if c.opts.On(o) {
			return true
		}
	}
	return false
}

func (c *call) shownPartitions(all []*apiv1.PartitionInfo) []*apiv1.PartitionInfo {
	var out []*apiv1.PartitionInfo
	wanted := c.opts.List("partition")
	hide, _ := c.opts.Get("hide")
	show, ok := c.opts.Get("all")
	hidden := ok && show.Order > hide.Order
	for _, p := range all {
		switch {
		case len(wanted) > 0 && !slices.Contains(wanted, p.GetName()):
		case len(wanted) == 0 && p.GetHidden() && !hidden:
		default:
			out = append(out, p)
		}
	}
	return out
}

// nodeFilter makes the filter of -n, -t, -d, -r and -R.
func (c *call) nodeFilter() (func(n *apiv1.NodeInfo) bool, error) {
	o := c.opts
	var names map[string]bool
	if o.On("nodes") {
		list, err := hostlist.Expand(o.Text("nodes"))
		if err != nil {
			return nil, c.errorf("%v", err)
		}
		names = map[string]bool{}
		for _, n := range list {
			names[n] = true
		}
	}
	var states [][]string // any of these, each of whose words must hold
	for _, alt := range splitList(strings.ToLower(o.Text("states"))) {
		words := strings.Split(alt, "&")
		for _, w := range words {
			if !slices.Contains(nodeStateWords(), w) {
				return nil, fail(1, c.cmd.name+": error: Bad state string: \""+w+"\"", c.cmd.name+": error: Valid node states include: "+strings.Join(nodeStateWords(), ","))
			}
		}
		states = append(states, words)
	}
	return func(n *apiv1.NodeInfo) bool {
		s := stateOf(n)
		in := len(states) == 0
		for _, words := range states {
			in = in || !slices.ContainsFunc(words, func(w string) bool { return !s.matches(w) })
		}
		return in && (names == nil || names[n.GetName()]) &&
			(!o.On("dead") || s.has("NOT_RESPONDING")) && (!o.On("responding") || !s.has("NOT_RESPONDING")) &&
			(!o.On("list-reasons") || (n.GetReason() != "" && (s.out() || s.has("INVALID_REG"))))
	}, nil
}

// groupBy says how nodes share lines.
type groupBy struct {
	exact  bool // --exact
	byNode bool // -N
	empty  bool // partitions without nodes have a line
}

// group puts the nodes of each partition into lines.
func (q *nodeQuery) group(parts []*apiv1.PartitionInfo, nodes []*apiv1.NodeInfo, keep func(*apiv1.NodeInfo) bool, by groupBy) []*nodeGroup {
	ofPart := map[string][]*apiv1.NodeInfo{}
	for _, n := range nodes {
		if keep(n) {
			for _, p := range n.GetPartitions() {
				ofPart[p] = append(ofPart[p], n)
			}
		}
	}
	var groups []*nodeGroup
	index := map[string]*nodeGroup{}
	in := map[*nodeGroup]map[string]bool{}
	for _, p := range parts {
		if len(ofPart[p.GetName()]) == 0 && by.empty {
			groups = append(groups, &nodeGroup{part: p})
		}
		for _, n := range ofPart[p.GetName()] {
			key := q.key(p, n, by)
			g := index[key]
			if g == nil {
				g = &nodeGroup{part: p}
				index[key], in[g] = g, map[string]bool{}
				groups = append(groups, g)
			}
			if !in[g][n.GetName()] {
				in[g][n.GetName()] = true
				g.nodes = append(g.nodes, n)
			}
		}
	}
	return groups
}

// key is what the nodes of a line have in common.
func (q *nodeQuery) key(p *apiv1.PartitionInfo, n *apiv1.NodeInfo, by groupBy) string {
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

// order sorts the lines.
func (q *nodeQuery) order(groups []*nodeGroup, parts []*apiv1.PartitionInfo, v *nodeView) {
	fields := nodeFields()
	slices.SortStableFunc(groups, func(a, b *nodeGroup) int {
		for _, k := range q.sort {
			d := 0
			switch k.letter {
			case '#':
				d = cmp.Compare(slices.Index(parts, a.part), slices.Index(parts, b.part))
			case 't', 'T':
				d = cmp.Compare(groupRank(a), groupRank(b))
			case 'N', 'n':
				d = compareHosts(a, b)
			case 'D':
				d = cmp.Compare(len(a.nodes), len(b.nodes))
			default:
				i := slices.IndexFunc(fields, func(f nodeField) bool { return f.letter == string(k.letter) })
				d = compareNatural(fields[i].text(v, a), fields[i].text(v, b))
			}
			if k.falling {
				d = -d
			}
			if d != 0 {
				return d
			}
		}
		return 0
	})
}

func groupRank(g *nodeGroup) int {
	if n := g.first(); n != nil {
		return stateOf(n).rank()
	}
	return -1
}

// compareHosts orders lines by their first node, numbers in names as numbers.
func compareHosts(a, b *nodeGroup) int {
	if a.first() == nil || b.first() == nil {
		return cmp.Compare(len(a.nodes), len(b.nodes))
	}
	return compareNatural(a.first().GetName(), b.first().GetName())
}

// compareNatural compares texts, with the numbers in them as numbers.
func compareNatural(a, b string) int {
	for a != "" && b != "" {
		na, nb := digitsOf(a), digitsOf(b)
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

func digitsOf(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// text lays the lines out.
func (q *nodeQuery) text(groups []*nodeGroup, v *nodeView, header bool) []byte {
	var b []byte
	if q.fit {
		q.widen(groups, v)
	}
	if q.dated && header {
		b = append(b, v.date()+"\n"...)
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

// widen makes room for the longest names of partitions and nodes.
func (q *nodeQuery) widen(groups []*nodeGroup, v *nodeView) {
	for i, f := range q.fields {
		if t := &q.columns[i]; t.Width > 0 && (f.name == "Partition" || f.name == "NodeList") {
			for _, g := range groups {
				t.Width = max(t.Width, len(f.text(v, g)))
			}
		}
	}
}
