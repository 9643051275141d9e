package slurmconf

import (
	"errors"
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// changeable are the keys of a PartitionName record that ChangePartition takes.
func changeable() []string {
	return []string{"State", "MaxTime", "DefaultTime", "MaxNodes", "MinNodes", "AllowGroups", "AllowAccounts", "DenyAccounts",
		"AllowQos", "DenyQos", "PriorityTier", "PriorityJobFactor", "Hidden", "Default", "QOS", "OverSubscribe", "PreemptMode", "GraceTime",
		"OverTimeLimit", "DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU", "DefCpuPerGPU", "JobDefaults", "MaxMemPerCPU", "MaxMemPerNode",
		"MaxCPUsPerNode", "DisableRootJobs", "RootOnly", "ReqResv", "LLN", "ExclusiveUser", "ExclusiveTopo", "TRESBillingWeights",
		"SuspendTime", "SuspendTimeout", "ResumeTimeout", "PowerDownOnIdle"}
}

// NewPartition reads a partition that is added while the cluster of a configuration
// runs. NodeSets of the file are not known: nodes are named, or ALL.
func NewPartition(name string, set []spec.KeyValue, c *spec.Config) (spec.PartitionSpec, []string, error) {
	rec := Record{{Key: "PartitionName", Value: name, Line: 1}}
	for i, kv := range set {
		if slices.ContainsFunc(set[:i], func(before spec.KeyValue) bool { return strings.EqualFold(before.Key, kv.Key) }) {
			return spec.PartitionSpec{}, nil, errors.New(kv.Key + " is given twice")
		}
		rec = append(rec, Setting{Key: kv.Key, Value: kv.Value, Line: 1})
	}
	var ps Problems
	f := &File{Config: spec.Config{Nodes: c.Nodes, MaxNodes: c.MaxNodes}}
	b := builder{file: f, problems: &ps}
	var d partDraft
	applyAll(&d, newTable("a PartitionName record", partKeys()), rec, &ps)
	b.parts = []partDraft{d}
	at := make(map[string]int, len(c.Nodes))
	for i := range c.Nodes {
		at[c.Nodes[i].Name] = i
	}
	b.buildPartitions(at)
	said, err := told(&ps)
	if err != nil {
		return spec.PartitionSpec{}, nil, err
	}
	p := f.Config.Partitions[0]
	p.Dynamic = true
	return p, said, nil
}

// told is what is to be said of a record that somebody typed, and what is wrong
// with it.
func told(ps *Problems) (said []string, err error) {
	if bad := ps.AtLeast(Error); len(bad) > 0 {
		return nil, errors.New(bad[0].Key + ": " + bad[0].Text)
	}
	for _, w := range ps.AtLeast(Warning) {
		said = append(said, w.Key+": "+w.Text)
	}
	return said, nil
}

// ChangePartition is a partition with some keys of its record set anew while
// the cluster runs, and what is to be said about them. The nodes of a partition
// do not change so, nor what only a file can say.
func ChangePartition(p spec.PartitionSpec, set []spec.KeyValue) (spec.PartitionSpec, []string, error) {
	rec, can := make(Record, len(set)), changeable()
	for i, kv := range set {
		if !slices.ContainsFunc(can, func(k string) bool { return strings.EqualFold(k, kv.Key) }) {
			return p, nil, errors.New(short(kv.Key) + " of a partition cannot be updated: change the configuration and reconfigure")
		}
		if slices.ContainsFunc(set[:i], func(before spec.KeyValue) bool { return strings.EqualFold(before.Key, kv.Key) }) {
			return p, nil, errors.New(kv.Key + " is given twice")
		}
		rec[i] = Setting{Key: kv.Key, Value: kv.Value, Line: 1}
	}
	var ps Problems
	d := partDraft{PartitionSpec: p, haveTier: true, haveFactor: true}
	applyAll(&d, newTable("a PartitionName record", partKeys()), rec, &ps)
	b := builder{file: &File{}, problems: &ps}
	b.complete(&d)
	said, err := told(&ps)
	if err != nil {
		return p, nil, err
	}
	return d.PartitionSpec, said, nil
}
