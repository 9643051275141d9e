package clickhouse

import (
	"fmt"
	"slices"
	"strings"
)

// Codecs since version 2. Times and amounts often have a common divisor, whole
// seconds, and few of their bits are in use: half of what general compression
// of neighbours' differences takes.
const (
	codecNumber = "GCD, T64, ZSTD(1)"
	codecTime   = "GCD, T64, ZSTD(1)"
)

// schemaTwo lists every table as version 2 makes it. What grows with the number of jobs is
// sorted by job since version 2, not by end: what belongs to a job lies
// together, numbers rise evenly, and the rows of a job's steps, nodes and
// devices repeat each other. Jobs are numbered as they are submitted, so that
// the least and largest times of each thousand rows still tell most of them
// apart.
func schemaTwo() []tableDef {
	const bloom = " TYPE bloom_filter(0.01) GRANULARITY 1"
	const minmax = " TYPE minmax GRANULARITY 1"
	order := map[string]string{"jobs": "(ledger, uid, restarts)", "steps": "(ledger, uid, restarts, step)",
		"job_nodes": "(ledger, uid, restarts, node)", "job_gpus": "(ledger, uid, restarts, gpu_uuid)"}
	indexes := map[string][]string{"jobs": {"ix_end end" + minmax, "ix_submit submit" + minmax, "ix_ids [job_id, array_job_id]" + bloom},
		"steps": {"ix_end end" + minmax}, "job_nodes": {"ix_to to" + minmax, "ix_from from" + minmax}, "job_gpus": {"ix_to to" + minmax, "ix_from from" + minmax}}
	out := schemaOne()
	for i := range out {
		t := &out[i]
		if order[t.name] == "" {
			continue
		}
		t.order, t.indexes, t.resorted = order[t.name], indexes[t.name], true
		t.columns = slices.Clone(t.columns)
		for k := range t.columns {
			t.columns[k].codec = recoded(t.columns[k])
		}
	}
	return out
}

// recoded is the codec of a column since version 2.
func recoded(c columnDef) string {
	typ := strings.TrimSuffix(strings.TrimPrefix(c.typ, "Nullable("), ")")
	switch {
	case c.codec == cSeq:
		return c.codec
	case strings.HasPrefix(typ, "DateTime64"):
		return codecTime
	case c.codec == cText && (strings.HasPrefix(typ, "Int") || strings.HasPrefix(typ, "UInt")):
		return codecNumber
	}
	return c.codec
}

// rebuiltSuffix marks a table that is being filled anew.
const rebuiltSuffix = "_anew"

// rebuild renders the statements that put a table's rows into one of its
// present form. They may run again from the beginning: whatever a broken
// attempt left under the other name is a copy, or the old table.
func (t *tableDef) rebuild(db string, l Layout) []string { return t.rebuilt(db, l, "", "*") }

// rebuilt is rebuild with the columns that are written, and what is selected
// for them.
func (t *tableDef) rebuilt(db string, l Layout, columns, values string) []string {
	if columns != "" {
		columns = " (" + columns + ")"
	}
	on, local := "", ""
	if l.Cluster != "" {
		on, local = " ON CLUSTER "+quoteName(l.Cluster), localSuffix
	}
	anew := *t
	anew.name += rebuiltSuffix
	name := func(n string) string { return quoteName(db) + "." + n }
	drop := []string{"DROP TABLE IF EXISTS " + name(anew.name+local) + on + " SYNC"}
	if l.Cluster != "" {
		drop = append(drop, "DROP TABLE IF EXISTS "+name(anew.name)+on+" SYNC")
	}
	foreground := ""
	if l.Cluster != "" {
		foreground = ", distributed_foreground_insert = 1"
	}
	out := slices.Concat(drop, anew.create(db, l), []string{
		fmt.Sprintf("INSERT INTO %s%s SELECT %s FROM %s SETTINGS insert_deduplicate = 0, max_partitions_per_insert_block = 0%s", name(anew.name), columns, values, name(t.name), foreground),
		"EXCHANGE TABLES " + name(anew.name+local) + " AND " + name(t.name+local) + on})
	return append(out, drop...)
}
