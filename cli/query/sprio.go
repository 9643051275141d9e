package query

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
)

// The formats of sprio. A letter in capitals is weighted, a small one is not.
const (
	sprioLong = "%.15i %9r %.8u %.10Y %.10S %.10A %.10B %.10F %.10J %.10P %.10Q %.11N %.20T"
)

//muster:table the options of sprio
func Sprio() *tool.Command {
	return &tool.Command{
		Name: "sprio", Slurm: true,
		Summary: "show the components of the priority of pending jobs",
		Usage:   []string{"[OPTIONS]"},
		About: `Lists each eligible pending job (not held, begin time reached, dependencies satisfied) in each of
its partitions, with the weighted components of its priority; components with weight 0 are omitted. The sum
is truncated to a whole number, the components are rounded.`,
		Options: []opt.Option{
			{Long: "clusters", Short: "M", Arg: "<string>", Env: "SLURM_CLUSTERS", Help: "clusters to show, one after the other, each below its name; all = every known one"},
			{Long: "federation", Env: "SPRIO_FEDERATION", Help: "include the other clusters of the federation", Always: tool.NoFederation},
			{Long: "format", Short: "o", Arg: "<output_format>", Env: "SPRIO_FORMAT", Help: "columns to show, as %[.][width]letter"},
			{Long: "helpformat", Help: "list the letters of columns that -o accepts"},
			{Long: "jobs", Short: "j", Arg: "<job_id_list>", Help: "only these jobs"},
			{Long: "json", Arg: "<data_parser>", Maybe: true, Env: "SLURM_JSON", Help: "print JSON: all components and weights, whatever -o says"},
			{Long: "local", Env: "SPRIO_LOCAL", Help: "show this cluster only", Always: tool.NoFederation},
			{Long: "long", Short: "l", Help: "show all columns"},
			{Long: "noheader", Short: "h", Help: "omit the header"},
			{Long: "norm", Short: "n", Help: "show normalized factors without weights"},
			{Long: "partition", Short: "p", Arg: "<partition_list>", Help: "only these partitions"},
			{Long: "sibling", Env: "SPRIO_SIBLING", Help: "include the copies of jobs on other clusters", Always: tool.NoFederation},
			{Long: "sort", Short: "S", Arg: "<sort_list>", Help: "sort by these letters of -o; - before a letter reverses its order"},
			{Long: "user", Also: "users", Short: "u", Arg: "<user_list>", Help: "only jobs of these users"},
			{Long: "weights", Short: "w", Help: "show the priority weights"},
			{Long: "yaml", Arg: "<data_parser>", Maybe: true, Env: "SLURM_YAML", Help: "print YAML"},
		},
		Example: []tool.Example{{Line: "sprio -l", What: "shows all parts"}, {Line: "sprio -w", What: "shows the weights"}, {Line: "sprio -S -y -o '%i %u %Y'", What: "highest first"}},
		Fields:  sprioFields,
		Run:     runSprio,
	}
}

// prioField is a letter of -o: its header, its text, what its text is in the
// line of weights, and what to sort by.
type prioField struct {
	head   string
	text   func(j *apiv1.JobPriority) string
	weight func(w *apiv1.PriorityWeights) string
	key    func(j *apiv1.JobPriority) float64
}

// formatRounded prints a part as printf does: the nearest, and of two the even one.
func formatRounded(f float64) string { return strconv.FormatFloat(math.RoundToEven(f), 'f', 0, 64) }

func sevenDigits(f float64) string { return strconv.FormatFloat(f, 'f', 7, 64) }

// prioFields are the letters.
//
//muster:table one row for each letter
func prioFields(cluster string) map[string]prioField {
	type J = apiv1.JobPriority
	type W = apiv1.PriorityWeights
	out := map[string]prioField{}
	both := func(letter, head string, weighted, norm func(*J) float64, weight func(*W) uint32) {
		w := func(p *W) string { return tool.Itoa(weight(p)) }
		out[strings.ToUpper(letter)] = prioField{head, func(j *J) string { return formatRounded(weighted(j)) }, w, weighted}
		out[letter] = prioField{head, func(j *J) string { return sevenDigits(norm(j)) }, w, norm}
	}
	both("a", "AGE", (*J).GetAge, (*J).GetAgeNorm, (*W).GetAge)
	both("b", "ASSOC", (*J).GetAssoc, (*J).GetAssocNorm, (*W).GetAssoc)
	both("f", "FAIRSHARE", (*J).GetFairShare, (*J).GetFairShareNorm, (*W).GetFairShare)
	both("j", "JOBSIZE", (*J).GetJobSize, (*J).GetJobSizeNorm, (*W).GetJobSize)
	both("p", "PARTITION", (*J).GetPartitionPart, (*J).GetPartitionNorm, (*W).GetPartition)
	both("q", "QOS", (*J).GetQosPart, (*J).GetQosNorm, (*W).GetQos)
	text := func(letter, head string, get func(*J) string) {
		out[letter] = prioField{head, get, func(*W) string { return "" }, nil}
	}
	text("c", "CLUSTER", func(*J) string { return cluster })
	text("n", "QOSNAME", (*J).GetQos)
	text("o", "ACCOUNT", (*J).GetAccount)
	text("r", "PARTITION", (*J).GetPartition)
	text("u", "USER", (*J).GetUser)
	out["i"] = prioField{"JOBID", func(j *J) string { return tool.Itoa(j.GetJobId()) }, func(*W) string { return "Weights" }, func(j *J) float64 { return float64(j.GetJobId()) }}
	out["N"] = prioField{"NICE", func(j *J) string { return tool.Itoa(j.GetNice()) }, func(*W) string { return "" }, func(j *J) float64 { return float64(j.GetNice()) }}
	out["S"] = prioField{"SITE", func(j *J) string { return tool.Itoa(j.GetSite()) }, func(*W) string { return "1" }, func(j *J) float64 { return float64(j.GetSite()) }}
	priority := func(j *J) float64 { return float64(j.GetPriority()) }
	out["Y"] = prioField{"PRIORITY", func(j *J) string { return tool.Itoa(j.GetPriority()) }, func(*W) string { return "" }, priority}
	out["y"] = prioField{"PRIORITY", func(j *J) string { return strconv.FormatFloat(priority(j)/math.MaxUint32, 'f', 8, 64) }, func(*W) string { return "" }, priority}
	weights := func(w *W) string {
		return joinFactors(w.GetTres(), func(f *apiv1.NamedFactor) string { return formatRounded(f.GetWeighted()) }, true)
	}
	sum := func(jobPriority *J) float64 {
		var n float64
		for _, factor := range jobPriority.GetTres() {
			n += factor.GetWeighted()
		}
		return n
	}
	out["T"] = prioField{"TRES", func(jobPriority *J) string {
		return joinFactors(jobPriority.GetTres(), func(f *apiv1.NamedFactor) string {
			return formatRounded(f.GetWeighted())
		}, false)
	}, weights, sum}
	out["t"] = prioField{"TRES", func(jobPriority *J) string {
		return joinFactors(jobPriority.GetTres(), func(f *apiv1.NamedFactor) string {
			return strconv.FormatFloat(f.GetNorm(), 'f', 2, 64)
		}, false)
	}, weights, sum}
	return out
}

// joinFactors writes name=text. The names of weights are as slurm.conf has
// them: CPU=1000,Mem=1000,GRES/gpu=...
func joinFactors(
	list []*apiv1.NamedFactor,
	text func(*apiv1.NamedFactor) string,
	configured bool,
) string {
	parts := make([]string, 0, len(list))
	for _, factor := range list {
		name := factor.GetName()
		if configured {
			kind, rest, typed := strings.Cut(name, "/")
			switch kind {
			case "cpu", "gres":
				kind = strings.ToUpper(kind)
			default:
				kind = strings.ToUpper(kind[:1]) + kind[1:]
			}
			name = kind
			if typed {
				name += "/" + rest
			}
		}
		parts = append(parts, name+"="+text(factor))
	}
	return strings.Join(parts, ",")
}

func runSprio(call *tool.Call) error {
	if call.Opts.On("helpformat") {
		fields := prioFields("")
		column := func(letter string) string {
			return letter + " " + fields[strings.TrimPrefix(letter, "%")].head
		}
		return call.WriteOut(render.FieldHelp(sprioFields(), column))
	}
	return call.EachCluster(showPriorities)
}

func showPriorities(call *tool.Call) error {
	var reply apiv1.PrioritiesReply
	if err := call.RPC(tool.MethodPriorities, &apiv1.PrioritiesRequest{}, &reply); err != nil {
		return err
	}
	weights := reply.GetWeights()
	if weights.GetBasic() {
		return tool.Fail(
			1,
			"You are not running a supported priority plugin",
			"(priority/basic).",
			"Only 'priority/multifactor' is supported.",
		)
	}
	before, tokens, err := column.Letters(sprioFormat(call, weights))
	if err != nil {
		return call.Errorf("%v", err)
	}
	fields := prioFields(reply.GetCluster())
	for _, token := range tokens {
		if _, ok := fields[token.Field]; !ok {
			return tool.Fail(1, "sprio: error: Invalid job format specification: "+token.Field)
		}
	}
	jobs, err := sprioJobs(call, &reply, fields)
	if err != nil {
		return err
	}
	if render.WantsDocument(call) {
		return prioritiesDocument(call, jobs, weights)
	}
	var buffer []byte
	line := func(text func(f prioField) string) {
		buffer = append(buffer, before...)
		for _, token := range tokens {
			buffer = token.Append(buffer, text(fields[token.Field]))
		}
		buffer = append(buffer, '\n')
	}
	if !call.Opts.On("noheader") {
		line(func(f prioField) string { return f.head })
	}
	if call.Opts.On("weights") {
		line(func(f prioField) string { return f.weight(weights) })
		return call.WriteOut(buffer)
	}
	for _, priority := range jobs {
		line(func(f prioField) string { return f.text(priority) })
	}
	return call.WriteOut(buffer)
}

// prioritiesDocument is sprio --json: each component with its weight and without.
func prioritiesDocument(call *tool.Call, jobs []*apiv1.JobPriority, weights *apiv1.PriorityWeights) error {
	list := make(tree.List, len(jobs))
	for i, job := range jobs {
		list[i] = priorityTree(job)
	}
	return render.Print(
		call,
		tree.Member{Key: "jobs", Value: list},
		tree.Member{Key: "weights", Value: weightTree(weights)},
	)
}

//muster:table one entry for each key
func priorityTree(job *apiv1.JobPriority) tree.Object {
	part := func(weighted, norm float64) tree.Object {
		return tree.Object{{Key: "weighted", Value: weighted}, {Key: "normalized", Value: norm}}
	}
	tres := make(tree.List, len(job.GetTres()))
	for i, factor := range job.GetTres() {
		tres[i] = append(
			tree.Object{{Key: "name", Value: factor.GetName()}},
			part(factor.GetWeighted(), factor.GetNorm())...)
	}
	return tree.Object{
		{Key: "job_id", Value: job.GetJobId()},
		{Key: "partition", Value: job.GetPartition()},
		{Key: "user", Value: job.GetUser()},
		{Key: "account", Value: job.GetAccount()},
		{Key: "qos", Value: job.GetQos()},
		{Key: "priority", Value: job.GetPriority()},
		{Key: "set_by_administrator", Value: job.GetDirect()},
		{Key: "site", Value: job.GetSite()},
		{Key: "nice", Value: job.GetNice()},
		{
			Key: "factors",
			Value: tree.Object{
				{Key: "age", Value: part(job.GetAge(), job.GetAgeNorm())},
				{Key: "association", Value: part(job.GetAssoc(), job.GetAssocNorm())},
				{Key: "fair_share", Value: part(job.GetFairShare(), job.GetFairShareNorm())},
				{Key: "job_size", Value: part(job.GetJobSize(), job.GetJobSizeNorm())},
				{Key: "partition", Value: part(job.GetPartitionPart(), job.GetPartitionNorm())},
				{Key: "qos", Value: part(job.GetQosPart(), job.GetQosNorm())},
				{Key: "tres", Value: tres},
			},
		},
	}
}

func weightTree(weights *apiv1.PriorityWeights) tree.Object {
	tres := make(tree.List, len(weights.GetTres()))
	for i, factor := range weights.GetTres() {
		tres[i] = tree.Object{
			{Key: "name", Value: factor.GetName()},
			{Key: "weight", Value: factor.GetWeighted()},
		}
	}
	return tree.Object{
		{Key: "age", Value: weights.GetAge()},
		{Key: "association", Value: weights.GetAssoc()},
		{Key: "fair_share", Value: weights.GetFairShare()},
		{Key: "job_size", Value: weights.GetJobSize()},
		{Key: "partition", Value: weights.GetPartition()},
		{Key: "qos", Value: weights.GetQos()},
		{Key: "tres", Value: tres},
	}
}

// sprioFormat is what -o says, or the columns whose weights are not 0.
func sprioFormat(call *tool.Call, weights *apiv1.PriorityWeights) string {
	if f := call.Opts.Text("format"); f != "" {
		return f
	}
	if call.Opts.On("long") {
		return sprioLong
	}
	parts := [...]struct {
		letter string
		weight uint32
	}{{"a", weights.GetAge()}, {"b", weights.GetAssoc()}, {"f", weights.GetFairShare()}, {"j", weights.GetJobSize()}, {"p", weights.GetPartition()}, {"q", weights.GetQos()}}
	var out string
	if call.Opts.On("norm") {
		out = "%.15i %9r "
		if call.Opts.On("user") {
			out += "%.8u "
		}
		out += "%10y"
		for _, p := range parts {
			if p.weight != 0 {
				out += " %10" + p.letter
			}
		}
		if len(weights.GetTres()) > 0 {
			out += " %20t"
		}
		return out
	}
	out = "%.15i %9r "
	if call.Opts.On("user") {
		out += "%.8u "
	}
	out += "%.10Y %.10S"
	for _, p := range parts {
		if p.weight != 0 {
			out += " %.10" + strings.ToUpper(p.letter)
		}
	}
	if len(weights.GetTres()) > 0 {
		out += " %.20T"
	}
	return out
}

// sprioJobs chooses and sorts.
func sprioJobs(
	call *tool.Call,
	reply *apiv1.PrioritiesReply,
	fields map[string]prioField,
) ([]*apiv1.JobPriority, error) {
	users, parts := tool.SplitList(
		call.Opts.Text("user"),
	), tool.SplitList(
		call.Opts.Text("partition"),
	)
	var ids []string
	if text := call.Opts.Text("jobs"); text != "" {
		for _, id := range tool.SplitList(text) {
			if _, err := strconv.ParseUint(id, 10, 32); err != nil {
				return nil, tool.Fail(1, "sprio: error: Invalid job id: "+id)
			}
			ids = append(ids, id)
		}
	}
	// An option that is not given selects every job.
	selects := func(list []string, value string) bool {
		return len(list) == 0 || slices.Contains(list, value)
	}
	var priorities []*apiv1.JobPriority
	for _, job := range reply.GetJobs() {
		if selects(users, job.GetUser()) &&
			selects(parts, job.GetPartition()) &&
			selects(ids, tool.Itoa(job.GetJobId())) {
			priorities = append(priorities, job)
		}
	}
	if len(ids) > 0 && len(priorities) == 0 {
		return nil, tool.Fail(0, "Unable to find jobs matching user/id(s) specified")
	}
	keys := tool.SplitList(cmp.Or(call.Opts.Text("sort"), "i"))
	for _, key := range slices.Backward(keys) {
		down := strings.HasPrefix(key, "-")
		key = strings.TrimLeft(key, "+-")
		field, ok := fields[key]
		if !ok {
			return nil, tool.Fail(1, "sprio: error: Invalid sort specification: "+key)
		}
		sort.SliceStable(priorities, func(a, b int) bool {
			if down {
				a, b = b, a
			}
			if field.key != nil {
				return field.key(priorities[a]) < field.key(priorities[b])
			}
			return field.text(priorities[a]) < field.text(priorities[b])
		})
	}
	return priorities, nil
}
