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
func sinfoReservations(call *tool.Call) error {
	reply, err := fetch.Reservations(call)
	if err != nil {
		return err
	}
	if len(reply.GetReservations()) == 0 {
		return call.WriteOut([]byte("No reservations in the system\n"))
	}
	width := len("RESV_NAME")
	for _, reservation := range reply.GetReservations() {
		width = max(width, len(reservation.GetName()))
	}
	var text strings.Builder
	row := func(name, state, start, end, length, nodes string) {
		text.WriteString(padText(name, -width) + " " + padText(state, 9) + " " +
			padText(start, 20) +
			" " + padText(end, 20) + " " + padText(length, 12) + "  " + nodes + "\n")
	}
	if !call.Opts.On("noheader") {
		row("RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST")
	}
	clock := render.NewClock(call.Env)
	for _, reservation := range reply.GetReservations() {
		state := "INACTIVE"
		if reservation.GetActive() {
			state = "ACTIVE"
		}
		row(
			reservation.GetName(),
			state,
			clock.Time(reservation.GetStart()),
			clock.Time(reservation.GetEnd()),
			format.Duration((reservation.GetEnd()-reservation.GetStart())/tool.Second),
			hostlist.FoldSorted(reservation.GetNodes()),
		)
	}
	return call.WriteOut([]byte(text.String()))
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
			for _, field := range nodeFields() {
				names = append(names, field.name)
				if field.letter != "" {
					letters = append(letters, "%"+field.letter+" "+field.name)
				}
			}
			return "Letters of -o: " + strings.Join(letters, ", ") + ".\n\nNames of -O: " + strings.Join(names, ", ") + "."
		},
		Options: []opt.Option{
			{Long: "all", Short: "a", Env: "SINFO_ALL", Help: "include hidden partitions"},
			{Long: "clusters", Short: "M", Arg: "<string>", Env: "SLURM_CLUSTERS", Help: "clusters to show, one after the other, each below its name; all = every known one"},
			{Long: "dead", Short: "d", Help: "only nodes that do not respond"},
			{Long: "exact", Short: "e", Help: "group nodes on one line only if their amounts are equal"},
			{Long: "federation", Env: "SINFO_FEDERATION", Help: "include the other clusters of the federation", Always: tool.NoFederation},
			{Long: "future", Short: "F", Env: "SCONTROL_FUTURE", Help: "include nodes in state FUTURE"},
			{Long: "format", Short: "o", Arg: "<output_format>", Env: "SINFO_FORMAT", Help: "columns to show, by letter"},
			{Long: "Format", Short: "O", Arg: "<output_format>", Help: "columns to show, by name"},
			{Long: "helpformat", Help: "list the names of columns that -O accepts"},
			{Long: "helpstate", Help: "list the states of nodes that -t accepts"},
			{Long: "hide", Help: "do not show hidden partitions (default without --all)"},
			{Long: "iterate", Short: "i", Arg: "<seconds>", Help: "refresh interval in seconds"},
			{Long: "json", Arg: "<data_parser>", Maybe: true, Env: "SLURM_JSON", Help: "print JSON"},
			{Long: "list-reasons", Short: "R", Help: "show why nodes are unavailable, who set it and when"},
			{Long: "local", Env: "SINFO_LOCAL", Help: "show this cluster", Always: tool.NoFederation},
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

func runSinfo(call *tool.Call) error {
	if len(call.Operands) > 0 {
		return call.Errorf("Unrecognized option: %s", call.Operands[0])
	}
	switch {
	case call.Opts.On("helpformat"):
		return call.WriteOut(render.FieldHelp(nodeFields(), func(f nodeField) string { return f.name }))
	case call.Opts.On("helpstate"):
		return call.WriteOut([]byte(strings.Join(render.NodeStateWords(), "\n") + "\n"))
	}
	query, err := sinfoQuery(call)
	if err != nil {
		return err
	}
	return call.Repeat(func() error {
		return call.EachHeaded(render.WantsDocument(call) || call.Opts.On("noheader"), func(call *tool.Call) error {
			return sinfoOnce(call, query)
		})
	})
}

func sinfoQuery(call *tool.Call) (*nodeQuery, error) {
	values := call.Opts
	query := &nodeQuery{dated: values.On("long") || values.On("iterate")}
	names, plain := sinfoFormat, false
	switch long := values.On("long"); {
	case values.On("list-reasons") && long:
		names = sinfoReasonsLong
	case values.On("list-reasons"):
		names = sinfoReasons
	case values.On("Node") && long:
		names = sinfoNodesLong
	case values.On("Node"):
		names = sinfoNodes
	case values.On("summarize"):
		names = sinfoSummary
	case long:
		names = sinfoLong
	default:
		plain = true
	}
	short, hasShort := values.Get("format")
	wide, hasWide := values.Get("Format")
	query.fit = true
	typed := func(v opt.Value, has bool) bool { return has && v.From == opt.FromCommand }
	if values.On("long") && (typed(short, hasShort) || typed(wide, hasWide)) {
		return nil, call.Errorf("--long and --format, --Format exclude each other")
	}
	var err error
	switch {
	case typed(wide, hasWide) && (!typed(short, hasShort) || wide.Order > short.Order):
		names, query.fit = wide.Text, false
	case hasShort && (typed(short, hasShort) || plain):
		names, query.fit = "", false
		query.before, query.columns, err = column.Letters(short.Text)
	}
	if names != "" && err == nil && !strings.EqualFold(names, "all") {
		query.columns, err = column.Names(names)
	}
	if err != nil {
		return nil, call.Errorf("%v", err)
	}
	if err := query.resolveColumns(strings.EqualFold(names, "all")); err != nil {
		return nil, call.Errorf("%v", err)
	}
	text := values.Text("sort")
	switch {
	case text != "":
	case values.On("Node"):
		text = "N"
	case values.On("list-reasons"):
		text = "E,u,N"
	default:
		text = "#P,-t"
	}
	query.sort, err = nodeSortKeys(text)
	if err != nil {
		return nil, call.Errorf("%v", err)
	}
	return query, nil
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
	for _, token := range q.columns {
		i := slices.IndexFunc(fields, func(field nodeField) bool {
			return field.letter == token.Field ||
				(len(token.Field) > 1 && plain(field.name) == plain(token.Field))
		})
		if i < 0 {
			return errBadNodeField(token.Field)
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
	var keys []render.SortKey
	fields := nodeFields()
	for _, part := range tool.SplitList(text) {
		key := render.SortKey{}
		if part[0] == '-' || part[0] == '+' {
			key.Falling, part = part[0] == '-', part[1:]
		}
		if part == "#P" {
			key.Letter = '#'
		} else if part = strings.TrimPrefix(part, "#"); len(part) == 1 && slices.ContainsFunc(fields, func(f nodeField) bool { return f.letter == part }) {
			key.Letter = part[0]
		} else {
			return nil, errBadSort(text)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// errBadSort is Slurm's text for an order that cannot be read.
type errBadSort string

// Error implements error.
func (e errBadSort) Error() string { return "Invalid sort specification: " + string(e) }

func sinfoOnce(call *tool.Call, query *nodeQuery) error {
	if call.Opts.On("reservation") {
		return sinfoReservations(call)
	}
	var nodes apiv1.ListNodesReply
	var parts apiv1.ListPartitionsReply
	if err := call.RPCAll(tool.Request{Method: tool.MethodListPartitions, Req: &apiv1.ListPartitionsRequest{}, Resp: &parts}, tool.Request{Method: tool.MethodListNodes, Req: &apiv1.ListNodesRequest{Future: call.Opts.On("future")}, Resp: &nodes}); err != nil {
		refusal := tool.ExplainError(err)
		return tool.Fail(1, append(refusal.Preamble(call.Command.Name), "slurm_load_partitions: "+
			refusal.Text)...)
	}
	keep, err := nodeFilter(call)
	if err != nil {
		return err
	}
	shown := fetch.ShownPartitions(call, parts.GetPartitions())
	if render.WantsDocument(call) {
		everything := &nodeQuery{}
		if err := everything.resolveColumns(true); err != nil {
			return err
		}
		query = everything
	}
	groups := query.groupNodes(
		shown,
		nodes.GetNodes(),
		keep,
		groupBy{
			exact:  call.Opts.On("exact"),
			byNode: call.Opts.On("Node"),
			empty:  query.showsPartitions() && !call.Opts.On("Node"),
		},
	)
	view := &render.NodeView{
		Clock:   render.NewClock(call.Env),
		Cluster: call.NamedCluster(),
		UID:     tool.LookupUID,
	}
	view.Now = nodes.GetNow()
	if render.WantsDocument(call) {
		view.Cluster = call.Cluster()
		return render.Structured(call, call.Opts.On("json"), render.SinfoTree(call, groups, view))
	}
	query.sortLines(groups, shown, view)
	return call.WriteOut(query.text(groups, view, !call.Opts.On("noheader")))
}

// showsPartitions tells that a column names partitions. Then one without a node that is asked
// for has a line too.
func (q *nodeQuery) showsPartitions() bool {
	return slices.ContainsFunc(q.fields, func(field *nodeField) bool {
		return field.letter == "P" || field.letter == "R"
	})
}

// nodeFilter makes the filter of -n, -t, -d, -r and -R.
func nodeFilter(call *tool.Call) (func(n *apiv1.NodeInfo) bool, error) {
	values := call.Opts
	var names map[string]bool
	if values.On("nodes") {
		list, err := hostlist.Expand(values.Text("nodes"))
		if err != nil {
			return nil, call.Errorf("%v", err)
		}
		names = map[string]bool{}
		for _, n := range list {
			names[n] = true
		}
	}
	var states [][]string // any of these, each of whose words must hold
	for _, alt := range tool.SplitList(strings.ToLower(values.Text("states"))) {
		words := strings.Split(alt, "&")
		for _, w := range words {
			if !slices.Contains(render.NodeStateWords(), w) {
				return nil, tool.Fail(1, call.Command.Name+": error: Bad state string: \""+w+
					"\"", call.Command.Name+": error: Valid node states include: "+
					strings.Join(render.NodeStateWords(), ","))
			}
		}
		states = append(states, words)
	}
	return func(node *apiv1.NodeInfo) bool {
		state := render.StateOf(node)
		in := len(states) == 0
		for _, words := range states {
			in = in || !slices.ContainsFunc(words, func(w string) bool { return !state.Matches(w) })
		}
		silent := state.Has("NOT_RESPONDING")
		switch {
		case names != nil && !names[node.GetName()]:
			return false
		case values.On("dead") && !silent, values.On("responding") && silent:
			return false
		case values.On("list-reasons") && !hasReason(node):
			return false
		}
		return in
	}, nil
}

// hasReason tells whether sinfo -R lists a node: it is out of service, or it is in
// service with fewer GPUs than are configured.
func hasReason(node *apiv1.NodeInfo) bool {
	state := render.StateOf(node)
	return node.GetReason() != "" &&
		(state.Out() || state.Has("INVALID_REG") || node.GetShortfall() != "")
}

// groupBy says how nodes share lines.
type groupBy struct {
	exact  bool // --exact
	byNode bool // -N
	empty  bool // partitions without nodes have a line
}

// groupNodes puts the nodes of each partition into lines.
func (q *nodeQuery) groupNodes(
	parts []*apiv1.PartitionInfo,
	nodes []*apiv1.NodeInfo,
	keep func(*apiv1.NodeInfo) bool,
	by groupBy,
) []*render.NodeGroup {
	ofPart := map[string][]*apiv1.NodeInfo{}
	for _, node := range nodes {
		if keep(node) {
			for _, p := range node.GetPartitions() {
				ofPart[p] = append(ofPart[p], node)
			}
		}
	}
	var groups []*render.NodeGroup
	index := map[string]*render.NodeGroup{}
	in := map[*render.NodeGroup]map[string]bool{}
	for _, partition := range parts {
		if len(ofPart[partition.GetName()]) == 0 && by.empty {
			groups = append(groups, &render.NodeGroup{Part: partition})
		}
		for _, node := range ofPart[partition.GetName()] {
			key := q.lineKey(partition, node, by)
			group := index[key]
			if group == nil {
				group = &render.NodeGroup{Part: partition}
				index[key], in[group] = group, map[string]bool{}
				groups = append(groups, group)
			}
			if !in[group][node.GetName()] {
				in[group][node.GetName()] = true
				group.Nodes = append(group.Nodes, node)
			}
		}
	}
	return groups
}

// lineKey is what the nodes of a line have in common.
func (q *nodeQuery) lineKey(
	partition *apiv1.PartitionInfo,
	node *apiv1.NodeInfo,
	by groupBy,
) string {
	var text strings.Builder
	if by.byNode {
		text.WriteString(partition.GetName() + "\x00" + node.GetName())
	}
	for _, field := range q.fields {
		if field.key != nil && (!field.loose || by.exact) {
			text.WriteString("\x00" + field.key(partition, node))
		}
	}
	return text.String()
}

// sortLines sorts the lines.
func (q *nodeQuery) sortLines(
	groups []*render.NodeGroup,
	parts []*apiv1.PartitionInfo,
	view *render.NodeView,
) {
	fields := nodeFields()
	slices.SortStableFunc(groups, func(a, b *render.NodeGroup) int {
		for _, key := range q.sort {
			d := 0
			switch key.Letter {
			case '#':
				d = cmp.Compare(slices.Index(parts, a.Part), slices.Index(parts, b.Part))
			case 't', 'T':
				d = cmp.Compare(groupRank(a), groupRank(b))
			case 'N', 'n':
				d = compareHosts(a, b)
			case 'D':
				d = cmp.Compare(len(a.Nodes), len(b.Nodes))
			default:
				i := slices.IndexFunc(
					fields,
					func(f nodeField) bool { return f.letter == string(key.Letter) },
				)
				d = compareNatural(fields[i].text(view, a), fields[i].text(view, b))
			}
			if key.Falling {
				d = -d
			}
			if d != 0 {
				return d
			}
		}
		return 0
	})
}

func groupRank(group *render.NodeGroup) int {
	if node := group.First(); node != nil {
		return render.StateOf(node).Rank()
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
func (q *nodeQuery) text(groups []*render.NodeGroup, view *render.NodeView, header bool) []byte {
	var buffer []byte
	if q.fit {
		q.widenColumns(groups, view)
	}
	if q.dated && header {
		buffer = append(buffer, view.Date()+"\n"...)
	}
	if header {
		buffer = append(buffer, q.before...)
		for i, token := range q.columns {
			buffer = token.Append(buffer, q.fields[i].head)
		}
		buffer = append(buffer, '\n')
	}
	for _, group := range groups {
		buffer = append(buffer, q.before...)
		for i, token := range q.columns {
			buffer = token.Append(buffer, q.fields[i].text(view, group))
		}
		buffer = append(buffer, '\n')
	}
	return buffer
}

// widenColumns makes room for the longest names of partitions and nodes.
func (q *nodeQuery) widenColumns(groups []*render.NodeGroup, view *render.NodeView) {
	for i, field := range q.fields {
		if token := &q.columns[i]; token.Width > 0 &&
			(field.name == "Partition" || field.name == "NodeList") {
			for _, group := range groups {
				token.Width = max(token.Width, len(field.text(view, group)))
			}
		}
	}
}
