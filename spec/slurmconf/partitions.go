package slurmconf

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// buildPartitions resolves the nodes of each partition, NodeSets included.
func (b *builder) buildPartitions(at map[string]int) {
	sets := b.nodeSets(at)
	lines := make(map[string]Setting)
	var byDefault *partDraft
	for i := range b.parts {
		draft := &b.parts[i]
		if before, twice := lines[draft.Name]; twice {
			b.problems.addProblem(
				draft.at,
				Error,
				"%s is defined on %s already",
				draft.Name,
				namePlace(draft.at, before),
			)
			continue
		}
		lines[draft.Name] = draft.at
		if hostlist.CheckName(draft.Name) != nil {
			b.problems.addProblem(
				draft.at,
				Error,
				"%s is no name for a partition",
				quoteShort(draft.Name),
			)
		}
		b.completePartition(draft)
		if draft.Default {
			if byDefault != nil {
				b.problems.addProblem(
					draft.at,
					Error,
					"%s and %s (%s) are both Default=YES",
					draft.Name,
					byDefault.Name,
					namePlace(draft.at, byDefault.at),
				)
			}
			byDefault = draft
		}
		if draft.PartitionSpec.Topology != "" {
			b.file.topologies = append(b.file.topologies, draft.topologyAt)
		}
		places := b.resolveNodes(draft.nodesAt, draft.nodes, at, sets)
		draft.AllNodes, draft.NodeFeatures = b.laterNodes(draft.nodes)
		draft.NodeNames = make([]string, len(places))
		for k, p := range places {
			draft.NodeNames[k] = b.file.Config.Nodes[p].Name
		}
		draft.PartitionSpec.Nodes = hostlist.Fold(draft.NodeNames)
		b.file.Config.Partitions = append(b.file.Config.Partitions, draft.PartitionSpec)
	}
}

// laterNodes says which nodes that are added while the cluster runs are of a
// partition: all, or those with one of some features.
func (b *builder) laterNodes(nodes string) (all bool, features []string) {
	if b.file.Config.MaxNodes == 0 {
		return false, nil // none is added
	}
	if strings.EqualFold(nodes, "ALL") {
		return true, nil
	}
	list, err := hostlist.Parse(nodes)
	if err != nil {
		return false, nil
	}
	for _, draft := range b.sets {
		switch {
		case !list.Contains(draft.name):
		case strings.EqualFold(draft.nodes, "ALL"):
			all = true
		case draft.feature != "":
			features = append(features, draft.feature)
		}
	}
	return all, features
}

// completePartition fills defaults and checks what one record may not combine.
func (b *builder) completePartition(draft *partDraft) {
	s := func(key string) Setting { return Setting{Key: key, File: draft.at.File, Line: draft.at.Line} }
	if draft.State == 0 {
		draft.State = spec.PartitionUp
	}
	if draft.MaxTime == 0 {
		draft.MaxTime = spec.Infinite
	}
	if draft.PriorityTier == 0 && !draft.haveTier {
		draft.PriorityTier = 1
	}
	if draft.PriorityJobFactor == 0 && !draft.haveFactor {
		draft.PriorityJobFactor = 1
	}
	if draft.OverSubscribe == "" {
		draft.OverSubscribe = "NO"
	}
	draft.DisableRootJobs = draft.DisableRootJobs || b.file.disableRoot
	if draft.DefaultTime > draft.MaxTime {
		b.problems.addProblem(s("DefaultTime"), Error, "is longer than MaxTime")
	}
	if draft.MaxNodes > 0 && draft.MinNodes > draft.MaxNodes {
		b.problems.addProblem(
			s("MinNodes"),
			Error,
			"%d is above MaxNodes, %d",
			draft.MinNodes,
			draft.MaxNodes,
		)
	}
	if draft.DefMemPerCPU != 0 && draft.DefMemPerNode != 0 {
		b.problems.addProblem(s("DefMemPerNode"), Error, "cannot be combined with DefMemPerCPU")
	}
	if draft.MaxMemPerCPU != 0 && draft.MaxMemPerNode != 0 {
		b.problems.addProblem(s("MaxMemPerNode"), Error, "cannot be combined with MaxMemPerCPU")
	}
	if len(draft.AllowAccounts) > 0 && len(draft.DenyAccounts) > 0 {
		b.problems.addProblem(s("DenyAccounts"), Warning, "has no effect beside AllowAccounts")
	}
	if len(draft.AllowQOS) > 0 && len(draft.DenyQOS) > 0 {
		b.problems.addProblem(s("DenyQos"), Warning, "has no effect beside AllowQos")
	}
}

// nodeSets resolves the NodeSet records to places in Config.Nodes.
func (b *builder) nodeSets(at map[string]int) map[string][]int {
	sets := make(map[string][]int, len(b.sets))
	for _, draft := range b.sets {
		if _, twice := sets[draft.name]; twice {
			b.problems.addProblem(draft.at, Error, "%s is defined twice", draft.name)
			continue
		}
		if _, isNode := at[draft.name]; isNode || strings.EqualFold(draft.name, "ALL") ||
			hostlist.CheckName(draft.name) != nil {
			b.problems.addProblem(
				draft.at,
				Error,
				"%s is no name for a set: it is taken or not a plain name",
				quoteShort(draft.name),
			)
			continue
		}
		if draft.feature == "" && draft.nodes == "" {
			b.problems.addProblem(draft.at, Error, "needs Nodes or Feature")
			continue
		}
		var places []int
		if draft.nodes != "" {
			places = b.resolveNodes(draft.at, draft.nodes, at, nil)
		}
		if draft.feature != "" {
			found := len(places)
			for k := range b.file.Config.Nodes {
				if slices.Contains(b.file.Config.Nodes[k].Features, draft.feature) {
					places = append(places, k)
				}
			}
			if len(places) == found && b.file.Config.MaxNodes == 0 { // else one may be added
				b.problems.addProblem(
					draft.at,
					Warning,
					"no node has the feature %s",
					quoteShort(draft.feature),
				)
			}
		}
		slices.Sort(places)
		sets[draft.name] = slices.Compact(places)
	}
	return sets
}

// resolveNodes resolves Nodes= to places in Config.Nodes, in their order.
func (b *builder) resolveNodes(
	setting Setting,
	expr string,
	at map[string]int,
	sets map[string][]int,
) []int {
	var places []int
	if strings.EqualFold(expr, "ALL") {
		for k := range b.file.Config.Nodes {
			places = append(places, k)
		}
		return places
	}
	list, err := hostlist.Parse(expr)
	if err != nil {
		b.problems.addProblem(setting, Error, "%s", err)
		return nil
	}
	var unknown []string
	for name := range list.All() {
		if k, ok := at[name]; ok {
			places = append(places, k)
		} else if set, ok := sets[name]; ok {
			places = append(places, set...)
		} else {
			unknown = append(unknown, name)
		}
	}
	if !b.brokenNodes() {
		b.unknownNodes(setting, unknown)
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// brokenNodes tells that some NodeName could not be read: then missing nodes
// are a consequence and no news.
func (b *builder) brokenNodes() bool {
	return slices.ContainsFunc(
		*b.problems,
		func(p Problem) bool { return p.Key == "NodeName" && p.Severity == Error },
	)
}
