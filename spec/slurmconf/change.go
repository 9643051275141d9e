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
		"AllowQos", "DenyQos", "PriorityTier", "PriorityJobFactor", "Hidden"}
}

// ChangePartition is a partition with some keys of its record set anew while
// the cluster runs, and what is to be said about them. The nodes of a partition
// do not change so, nor what only a file can say.
func ChangePartition(p spec.PartitionSpec, set []spec.KeyValue) (spec.PartitionSpec, []string, error) {
	rec, can := make(Record, len(set)), changeable()
	for i, kv := range set {
		if !slices.ContainsFunc(can, func(k string) bool { return strings.EqualFold(k, kv.Key) }) {
			return p, nil, errors.New(short(kv.Key) + " of a partition cannot be updated in this release (" + strings.Join(can, ", ") +
				" can): change the configuration and reconfigure")
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
	if bad := ps.AtLeast(Error); len(bad) > 0 {
		return p, nil, errors.New(bad[0].Key + ": " + bad[0].Text)
	}
	var said []string
	for _, w := range ps.AtLeast(Warning) {
		said = append(said, w.Key+": "+w.Text)
	}
	return d.PartitionSpec, said, nil
}
