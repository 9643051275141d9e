package slurmconf

import (
	"errors"
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// changeableKeys are the keys of a PartitionName record that ChangePartition takes.
func changeableKeys() []string {
	return []string{
		"Nodes",
		"State",
		"MaxTime",
		"DefaultTime",
		"MaxNodes",
		"MinNodes",
		"AllowGroups",
		"AllowAccounts",
		"DenyAccounts",
		"AllowQos",
		"DenyQos",
		"PriorityTier",
		"PriorityJobFactor",
		"Hidden",
		"Default",
		"QOS",
		"OverSubscribe",
		"PreemptMode",
		"GraceTime",
		"OverTimeLimit",
		"DefMemPerCPU",
		"DefMemPerNode",
		"DefMemPerGPU",
		"DefCpuPerGPU",
		"JobDefaults",
		"MaxMemPerCPU",
		"MaxMemPerNode",
		"MaxCPUsPerNode",
		"DisableRootJobs",
		"RootOnly",
		"ReqResv",
		"LLN",
		"ExclusiveUser",
		"ExclusiveTopo",
		"TRESBillingWeights",
		"SuspendTime",
		"SuspendTimeout",
		"ResumeTimeout",
		"PowerDownOnIdle",
	}
}

// NewPartition reads a partition that is added while the cluster of a configuration
// runs. NodeSets of the file are not known: nodes are named, or ALL.
func NewPartition(
	name string,
	set []spec.KeyValue,
	config *spec.Config,
) (spec.PartitionSpec, []string, error) {
	record := Record{{Key: "PartitionName", Value: name, Line: 1}}
	typed, err := typedRecord(set)
	if err != nil {
		return spec.PartitionSpec{}, nil, err
	}
	record = append(record, typed...)
	var problems Problems
	b, at := runningBuilder(config, &problems)
	var draft partDraft
	applyAll(&draft, newTable("a PartitionName record", partKeys()), record, &problems)
	b.parts = []partDraft{draft}
	b.buildPartitions(at)
	if t := draft.PartitionSpec.Topology; t != "" && !config.HasTopology(t) {
		problems.addProblem(
			draft.topologyAt,
			Error,
			"there is no topology %s: topology.yaml beside slurm.conf names them",
			quoteShort(t),
		)
	}
	said, err := describeTyped(&problems)
	if err != nil {
		return spec.PartitionSpec{}, nil, err
	}
	partition := b.file.Config.Partitions[0]
	partition.Dynamic = true
	return partition, said, nil
}

// runningBuilder is a builder for records that are typed while the cluster of a
// configuration runs, and where its nodes are in that.
func runningBuilder(config *spec.Config, problems *Problems) (b *builder, at map[string]int) {
	at = make(map[string]int, len(config.Nodes))
	for i := range config.Nodes {
		at[config.Nodes[i].Name] = i
	}
	return &builder{
		file:     &File{Config: spec.Config{Nodes: config.Nodes, MaxNodes: config.MaxNodes}},
		problems: problems,
	}, at
}

// ChangesNodes tells whether the nodes of a partition are among what is set.
func ChangesNodes(set []spec.KeyValue) bool {
	record, err := typedRecord(set)
	return err == nil && changesNodes(record)
}

func changesNodes(record Record) bool {
	return slices.ContainsFunc(record, func(s Setting) bool { return s.Key == "Nodes" })
}

// typedRecord is what somebody typed about a partition, with each key as slurm.conf
// spells it. A key can be abbreviated to three letters and more that no other key of a
// partition begins with.
func typedRecord(set []spec.KeyValue) (Record, error) {
	names := newTable("a PartitionName record", partKeys()).keyNames()
	record := make(Record, 0, len(set))
	for _, kv := range set {
		key, err := typedKey(kv.Key, names)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(record, func(s Setting) bool { return s.Key == key }) {
			return nil, errors.New(key + " is given twice")
		}
		record = append(record, Setting{Key: key, Value: kv.Value, Line: 1})
	}
	return record, nil
}

// typedKey finds a key by its name in any case or by its beginning.
func typedKey(typed string, names []string) (string, error) {
	var begins []string
	for _, name := range names {
		if strings.EqualFold(name, typed) {
			return name, nil
		}
		if len(typed) >= 3 && len(typed) < len(name) && strings.EqualFold(name[:len(typed)], typed) {
			begins = append(begins, name)
		}
	}
	switch len(begins) {
	case 1:
		return begins[0], nil
	case 0:
		text := quoteShort(typed) + " is not a key of a partition"
		if near := spec.Nearest(typed, names); near != "" {
			text += "; did you mean " + near + "?"
		}
		return "", errors.New(text)
	}
	return "", errors.New(quoteShort(typed) + " is ambiguous: " + strings.Join(begins, ", "))
}

// changeNodes sets the nodes of a partition: a list, ALL, none, or, with + and -
// before each item, those that come and go.
func (b *builder) changeNodes(draft *partDraft, at map[string]int, was *spec.PartitionSpec) {
	expr, setting := draft.nodes, draft.nodesAt
	if strings.HasPrefix(expr, "+") || strings.HasPrefix(expr, "-") {
		expr = b.signedNodes(setting, expr, at, was.NodeNames)
	}
	var names []string
	for _, k := range b.resolveNodes(setting, expr, at, nil) {
		names = append(names, b.file.Config.Nodes[k].Name)
	}
	draft.AllNodes, draft.NodeFeatures = b.laterNodes(expr)
	draft.NodeNames, draft.PartitionSpec.Nodes = names, hostlist.Fold(names)
}

// signedNodes is a list of nodes after what +n1,-n[2-3] says.
func (b *builder) signedNodes(
	setting Setting,
	expr string,
	at map[string]int,
	have []string,
) string {
	names := slices.Clone(have)
	items := []string(nil)
	depth := 0
	from := 0
	for i, c := range expr + "," {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth == 0:
			items, from = append(items, expr[from:i]), i+1
		}
	}
	for _, item := range items {
		if item == "" || (item[0] != '+' && item[0] != '-') {
			b.problems.addProblem(
				setting,
				Error,
				"%s has neither + nor - before it: all items have one, or none",
				quoteShort(item),
			)
			return ""
		}
		for _, k := range b.resolveNodes(setting, item[1:], at, nil) {
			name := b.file.Config.Nodes[k].Name
			switch i := slices.Index(names, name); {
			case item[0] == '+' && i < 0:
				names = append(names, name)
			case item[0] == '-' && i >= 0:
				names = slices.Delete(names, i, i+1)
			case item[0] == '-':
				b.problems.addProblem(
					setting,
					Error,
					"node %s is not of the partition",
					quoteShort(name),
				)
			}
		}
	}
	return hostlist.Fold(names)
}

// describeTyped is what is to be said of a record that somebody typed, and what is wrong
// with it.
func describeTyped(problems *Problems) (said []string, err error) {
	if bad := problems.AtLeast(Error); len(bad) > 0 {
		return nil, errors.New(bad[0].Key + ": " + bad[0].Text)
	}
	for _, problem := range problems.AtLeast(Warning) {
		said = append(said, problem.Key+": "+problem.Text)
	}
	return said, nil
}

// ChangePartition is a partition with some keys of its record set anew while
// the cluster of a configuration runs, and what is to be said about them. What only
// a file can say does not change so.
func ChangePartition(
	partition spec.PartitionSpec,
	set []spec.KeyValue,
	config *spec.Config,
) (spec.PartitionSpec, []string, error) {
	record, err := typedRecord(set)
	if err != nil {
		return partition, nil, err
	}
	for _, setting := range record {
		if !slices.Contains(changeableKeys(), setting.Key) {
			return partition, nil, errors.New(setting.Key +
				" of a partition cannot be updated: change the configuration and reconfigure")
		}
	}
	var problems Problems
	draft := partDraft{PartitionSpec: partition, haveTier: true, haveFactor: true}
	applyAll(&draft, newTable("a PartitionName record", partKeys()), record, &problems)
	b, at := runningBuilder(config, &problems)
	b.completePartition(&draft)
	if changesNodes(record) {
		b.changeNodes(&draft, at, &partition)
	}
	said, err := describeTyped(&problems)
	if err != nil {
		return partition, nil, err
	}
	return draft.PartitionSpec, said, nil
}
