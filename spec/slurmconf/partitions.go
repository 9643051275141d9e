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
		d := &b.parts[i]
		if before, twice := lines[d.Name]; twice {
			b.problems.addProblem(d.at, Error, "%s is defined on %s already", d.Name, namePlace(d.at, before))
			continue
		}
		lines[d.Name] = d.at
		if hostlist.CheckName(d.Name) != nil {
			b.problems.addProblem(d.at, Error, "%s is no name for a partition", quoteShort(d.Name))
		}
		b.completePartition(d)
		if d.Default {
			if byDefault != nil {
				b.problems.addProblem(d.at, Error, "%s and %s (%s) are both Default=YES", d.Name, byDefault.Name, namePlace(d.at, byDefault.at))
			}
			byDefault = d
		}
		if d.PartitionSpec.Topology != "" {
			b.file.topologies = append(b.file.topologies, d.topologyAt)
		}
		places := b.resolveNodes(d.nodesAt, d.nodes, at, sets)
		d.AllNodes, d.NodeFeatures = b.laterNodes(d.nodes)
		d.NodeNames = make([]string, len(places))
		for k, p := range places {
			d.NodeNames[k] = b.file.Config.Nodes[p].Name
		}
		d.PartitionSpec.Nodes = hostlist.Fold(d.NodeNames)
		b.file.Config.Partitions = append(b.file.Config.Partitions, d.PartitionSpec)
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
	for _, d := range b.sets {
		switch {
		case !list.Contains(d.name):
		case strings.EqualFold(d.nodes, "ALL"):
			all = true
		case d.feature != "":
			features = append(features, d.feature)
		}
	}
	return all, features
}

// completePartition fills defaults and checks what one record may not combine.
func (b *builder) completePartition(d *partDraft) {
	s := func(key string) Setting { return Setting{Key: key, File: d.at.File, Line: d.at.Line} }
	if d.State == 0 {
		d.State = spec.PartitionUp
	}
	if d.MaxTime == 0 {
		d.MaxTime = spec.Infinite
	}
	if d.PriorityTier == 0 && !d.haveTier {
		d.PriorityTier = 1
	}
	if d.PriorityJobFactor == 0 && !d.haveFactor {
		d.PriorityJobFactor = 1
	}
	if d.OverSubscribe == "" {
		d.OverSubscribe = "NO"
	}
	d.DisableRootJobs = d.DisableRootJobs || b.file.disableRoot
	if d.DefaultTime > d.MaxTime {
		b.problems.addProblem(s("DefaultTime"), Error, "is longer than MaxTime")
	}
	if d.MaxNodes > 0 && d.MinNodes > d.MaxNodes {
		b.problems.addProblem(s("MinNodes"), Error, "%d is above MaxNodes, %d", d.MinNodes, d.MaxNodes)
	}
	if d.DefMemPerCPU != 0 && d.DefMemPerNode != 0 {
		b.problems.addProblem(s("DefMemPerNode"), Error, "cannot be combined with DefMemPerCPU")
	}
	if d.MaxMemPerCPU != 0 && d.MaxMemPerNode != 0 {
		b.problems.addProblem(s("MaxMemPerNode"), Error, "cannot be combined with MaxMemPerCPU")
	}
	if len(d.AllowAccounts) > 0 && len(d.DenyAccounts) > 0 {
		b.problems.addProblem(s("DenyAccounts"), Warning, "has no effect beside AllowAccounts")
	}
	if len(d.AllowQOS) > 0 && len(d.DenyQOS) > 0 {
		b.problems.addProblem(s("DenyQos"), Warning, "has no effect beside AllowQos")
	}
}

// nodeSets resolves the NodeSet records to places in Config.Nodes.
func (b *builder) nodeSets(at map[string]int) map[string][]int {
	sets := make(map[string][]int, len(b.sets))
	for _, d := range b.sets {
		if _, twice := sets[d.name]; twice {
			b.problems.addProblem(d.at, Error, "%s is defined twice", d.name)
			continue
		}
		if _, isNode := at[d.name]; isNode || strings.EqualFold(d.name, "ALL") || hostlist.CheckName(d.name) != nil {
			b.problems.addProblem(d.at, Error, "%s is no name for a set: it is taken or not a plain name", quoteShort(d.name))
			continue
		}
		if d.feature == "" && d.nodes == "" {
			b.problems.addProblem(d.at, Error, "needs Nodes or Feature")
			continue
		}
		var places []int
		if d.nodes != "" {
			places = b.resolveNodes(d.at, d.nodes, at, nil)
		}
		if d.feature != "" {
			found := len(places)
			for k := range b.file.Config.Nodes {
				if slices.Contains(b.file.Config.Nodes[k].Features, d.feature) {
					places = append(places, k)
				}
			}
			if len(places) == found && b.file.Config.MaxNodes == 0 { // else one may be added
				b.problems.addProblem(d.at, Warning, "no node has the feature %s", quoteShort(d.feature))
			}
		}
		slices.Sort(places)
		sets[d.name] = slices.Compact(places)
	}
	return sets
}

// resolveNodes resolves Nodes= to places in Config.Nodes, in their order.
func (b *builder) resolveNodes(s Setting, expr string, at map[string]int, sets map[string][]int) []int {
	var places []int
	if strings.EqualFold(expr, "ALL") {
		for k := range b.file.Config.Nodes {
			places = append(places, k)
		}
		return places
	}
	list, err := hostlist.Parse(expr)
	if err != nil {
		b.problems.addProblem(s, Error, "%s", err)
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
		b.unknownNodes(s, unknown)
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// brokenNodes tells that some NodeName could not be read: then missing nodes
// are a consequence and no news.
func (b *builder) brokenNodes() bool {
	return slices.ContainsFunc(*b.problems, func(p Problem) bool { return p.Key == "NodeName" && p.Severity == Error })
}
