package query

import (
	"maps"
	"slices"
)

// The columns of the commands as their tables have them, for the page of
// compatibility: letters as %i, then names.

func squeueFields() []string {
	out := []string{"Nodes"} // another name of NumNodes
	for _, field := range jobFields() {
		if field.letter != "" {
			out = append(out, "%"+field.letter)
		}
		out = append(out, field.name)
	}
	for _, field := range rangeFields() {
		out = append(out, field.name)
	}
	for _, field := range stepFields() {
		out = append(out, "%"+field.letter, field.name)
	}
	return out
}

func sinfoFields() []string {
	out := []string{"All"}
	for _, field := range nodeFields() {
		if field.letter != "" {
			out = append(out, "%"+field.letter)
		}
		out = append(out, field.name)
	}
	return out
}

func sprioFields() []string {
	var out []string
	for _, letter := range slices.Sorted(maps.Keys(prioFields(""))) {
		out = append(out, "%"+letter)
	}
	return out
}

func sshareFields() []string {
	var out []string
	for _, field := range shareFields(true, "") {
		out = append(out, field.name)
	}
	return out
}

// scontrolEntities are the names of show, and the keys of a node that update sets.
func scontrolEntities() []string {
	out := []string{"update state"}
	for _, e := range shownEntities() {
		out = append(out, e.names...)
	}
	for _, key := range nodeSettings() {
		out = append(out, "update "+key)
	}
	return out
}
