package slurmconf

import (
	"errors"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// ReadNode reads one NodeName record for nodes that are added while the cluster
// of a configuration runs: what scontrol create is given, or an agent that
// describes its own node.
func ReadNode(line string, config *spec.Config) ([]spec.NodeSpec, error) {
	if key, _, ok := strings.Cut(line, "="); !ok ||
		!strings.EqualFold(strings.TrimSpace(key), "NodeName") {
		return nil, errors.New("a description of nodes begins with NodeName=")
	}
	var problems Problems
	l := lexer{problems: &problems}
	l.splitLine("", &logical{text: line, first: 1, starts: []int{0}})
	file := &File{Config: spec.Config{GresTypes: config.GresTypes, Sched: config.Sched}}
	b := builder{
		file:     file,
		problems: &problems,
		top:      newTable("the main part of the file", topKeys()),
		node:     newTable("a NodeName record", nodeKeys()),
		part: newTable(
			"a PartitionName record",
			partKeys(),
		),
		set: newTable("a NodeSet record", setKeys()),
	}
	for _, record := range l.records {
		b.addRecord(record)
	}
	b.buildNodes()
	if len(file.Config.Nodes) == 0 && problems.Err() == nil {
		return nil, errors.New("NodeName=DEFAULT names no node")
	}
	for i := range file.Config.Nodes {
		file.Config.Nodes[i].Dynamic = true
	}
	if bad := problems.AtLeast(Error); len(bad) > 0 {
		return nil, errors.New(strings.TrimPrefix(bad[0].Key+": "+bad[0].Text, ": "))
	}
	return file.Config.Nodes, nil
}
