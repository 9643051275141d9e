package render

import (
	"math"

	"github.com/musterhpc/muster/cli/schema"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec/format"
)

// Number is an integer that may be unset or without limit.
func Number(n int64, set, infinite bool) tree.Number {
	if infinite || !set {
		n = 0
	}
	return tree.Number{N: n, Set: set && !infinite, Infinite: infinite}
}

// Some is a number that is unset when it is zero.
func Some[T ~int32 | ~int64 | ~uint32](n T) tree.Number { return Number(int64(n), n != 0, false) }

// Instant is a point in time in seconds; nanoseconds are given.
func Instant(ns int64) tree.Number { return Number(ns/tool.Second, true, false) }

// Minutes is a span in minutes; -1 ns is no limit.
func Minutes(ns int64) tree.Number { return Number(ns/(60*tool.Second), ns != 0, ns < 0) }

// Fraction is a decimal that may be without limit.
func Fraction(f float64, infinite bool) tree.Object {
	if infinite {
		f = 0
	}
	return tree.Object{
		{Key: "set", Value: !infinite},
		{Key: "infinite", Value: infinite},
		{Key: "number", Value: math.Round(f*1e9) / 1e9},
	}
}

// documentForm is json or yaml, whichever was asked for last: the command line
// wins over a variable.
func documentForm(call *tool.Call) string {
	asJSON, wantsJSON := call.Opts.Get("json")
	asYAML, wantsYAML := call.Opts.Get("yaml")
	if wantsYAML && (!wantsJSON || asYAML.Order > asJSON.Order) {
		return "yaml"
	}
	return "json"
}

// dataParser is the version of Slurm's documents that --json or --yaml names.
func dataParser(call *tool.Call) (schema.Version, error) {
	name := documentForm(call)
	version, err := schema.ParseVersion(call.Opts.Text(name))
	if err != nil {
		return 0, call.Errorf("--%s: %v", name, err)
	}
	return version, nil
}

// makeMeta says who answers, as every document of Slurm does.
func makeMeta(call *tool.Call, version schema.Version, cluster string) tree.Object {
	user := call.UserName(call.UID)
	plugin := tree.Object{{Key: "data_parser", Value: "data_parser/" + version.String()}}
	if call.API != nil {
		user = call.API.User
		plugin = tree.Object{
			{Key: "type", Value: "openapi/" + call.API.Plugin},
			{Key: "name", Value: "Muster " +
				call.API.Plugin},
			{Key: "data_parser", Value: "data_parser/" + version.String()},
			{Key: "accounting_storage", Value: "accounting_storage/muster"},
		}
	}
	return tree.Object{
		{Key: "plugin", Value: plugin},
		{
			Key: "client",
			Value: tree.Object{
				{Key: "source", Value: call.Host},
				{Key: "user", Value: user},
				{Key: "group", Value: ""},
			},
		},
		{Key: "command", Value: tree.Strings(call.Args)},
		{Key: "slurm", Value: tree.Object{
			{
				Key: "version",
				Value: tree.Object{
					{Key: "major", Value: "25"},
					{Key: "micro", Value: "0"},
					{Key: "minor", Value: "11"},
				},
			},
			{Key: "release", Value: tool.SlurmVersion}, {Key: "cluster", Value: cluster}}},
	}
}

// Document wraps an answer that Slurm has no schema of with meta, errors and
// warnings.
func Document(call *tool.Call, members ...tree.Member) tree.Object {
	return makeDocument(call, schema.Default, call.Cluster(), members)
}

func makeDocument(
	call *tool.Call,
	version schema.Version,
	cluster string,
	members []tree.Member,
) tree.Object {
	return append(
		tree.Object(members),
		tree.Member{Key: "meta", Value: makeMeta(call, version, cluster)},
		tree.Member{
			Key:   "errors",
			Value: tree.List{},
		},
		tree.Member{Key: "warnings", Value: listWarnings(call)},
	)
}

// listWarnings are what the command has said on standard error by the time they are
// written, which is last.
func listWarnings(call *tool.Call) any {
	if call.API == nil {
		return tree.List{}
	}
	return tree.Seq(func(yield func(any) bool) {
		for _, text := range call.API.Warnings() {
			if !yield(
				tree.Object{
					{Key: "description", Value: text},
					{Key: "source", Value: call.API.Path},
				},
			) {
				return
			}
		}
	})
}

// Answer prints a document in the shape that Slurm's API gives it. name is the
// schema of the answer; the version is the one that --json or --yaml names.
func Answer(call *tool.Call, name string, members ...tree.Member) error {
	version, err := dataParser(call)
	if err != nil {
		return err
	}
	shape := schema.Of(version).Type(name)
	if shape == nil {
		return call.Errorf(
			"data parser %s has no document for this: use %s",
			version,
			schema.Versions()[len(schema.Versions())-1],
		)
	}
	return Structured(
		call,
		documentForm(call) == "json",
		shape.Conform(makeDocument(call, version, call.Cluster(), members)),
	)
}

// Print prints a document that Slurm has no schema of, in the form that was asked for last. A
// version that --json or --yaml names must exist all the same, so that a slip is noticed.
func Print(call *tool.Call, members ...tree.Member) error {
	version, err := dataParser(call)
	if err != nil {
		return err
	}
	doc := makeDocument(call, version, call.Cluster(), members)
	return Structured(call, documentForm(call) == "json", doc)
}

// PrintOffline prints a document of a command that asks no cluster.
func PrintOffline(call *tool.Call, doc tree.Object) error {
	doc = makeDocument(call, schema.Default, "", doc)
	return Structured(call, documentForm(call) == "json", doc)
}

// Steps is the list of steps of a document of [Print], each in the shape that steps have in
// documents of accounting.
func Steps(call *tool.Call, steps tree.List) (tree.Member, error) {
	version, err := dataParser(call)
	if err != nil {
		return tree.Member{}, err
	}
	shape := schema.Of(version).Type("step_list")
	return tree.Member{Key: "steps", Value: shape.Conform(steps)}, nil
}

// Structured prints a document as JSON or YAML.
func Structured(call *tool.Call, json bool, doc any) error {
	if err := call.Exact(); err != nil {
		return err
	}
	if json {
		return tree.WriteJSON(call.Out, doc, call.API != nil)
	}
	return tree.WriteYAML(call.Out, doc)
}

func ExitTree(code, signal int32) tree.Object {
	status := "SUCCESS"
	if signal != 0 {
		status = "SIGNALED"
	} else if code != 0 {
		status = "ERROR"
	}
	name := ""
	if signal != 0 {
		name = format.Signal(int(signal))
	}
	return tree.Object{
		{
			Key:   "status",
			Value: tree.List{status},
		}, {Key: "return_code", Value: Number(int64(code), signal == 0, false)},
		{
			Key:   "signal",
			Value: tree.Object{{Key: "id", Value: Some(signal)}, {Key: "name", Value: name}},
		},
	}
}

// WantsDocument tells that JSON or YAML is asked for.
func WantsDocument(call *tool.Call) bool { return call.Opts.On("json") || call.Opts.On("yaml") }
