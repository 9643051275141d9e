package clickhouse

import (
	"fmt"
	"strings"
)

// Since version 4 a row does not say twice what it says once. Words that go
// together (who a user is, in which account and association; which device, on
// which node) are one word of a dictionary, and what follows from other columns
// of the row is not kept, or is kept as its distance from them, which is
// nearly always the same. Every column that there was before is still there to
// be asked for: those that are put together are ALIAS columns.

// Codecs since version 4. Rows of one job that lie together repeat each other:
// those of a job's devices are compressed as they are, others as what differs.
const (
	codecCount  = "DoubleDelta, ZSTD(1)"               // rises evenly, or stays
	codecSeq    = "Delta, T64, ZSTD(1)"                // rises
	codecRepeat = "Delta, ZSTD(1)"                     // rises, and is the same in rows that follow each other
	codecSpan   = "GCD, T64('bit'), ZSTD(1)"           // any length, evenly spread
	codecAt     = "GCD, Delta(8), T64, ZSTD(1)"        // instants in their order
	codecNear   = "GCD, Delta(8), T64('bit'), ZSTD(1)" // instants nearly in their order
	codecAgain  = "GCD, T64, ZSTD(3)"                  // numbers that are the same in rows that follow each other
	codecWord   = "ZSTD(3)"                            // numbers of a dictionary

	tLines    = "Array(LowCardinality(String))"
	tSpanNull = "Nullable(Int64)"
	unit      = "\x1f" // between words that are put together
	stdMinmax = " TYPE minmax GRANULARITY 1"
	stdBloom  = " TYPE bloom_filter(0.01) GRANULARITY 1"
)

// widePart is the size from which a part has a file for each column: only
// those compress well, and small ones are written quicker as one file.
const widePart = 32 << 20

// packed joins words to one. A word cannot have the character between them.
func packed(words ...string) string {
	for i, w := range words {
		if strings.Contains(w, unit) {
			words[i] = strings.ReplaceAll(w, unit, "?")
		}
	}
	return strings.Join(words, unit)
}

// unpacked is the SQL of one of the words, from 1.
func unpacked(column string, nth int) string {
	first := fmt.Sprintf(`substringIndex(%s, '\x1f', %d)`, column, nth)
	if nth == 1 {
		return first
	}
	return fmt.Sprintf(`substringIndex(%s, '\x1f', -1)`, first)
}

// packing is the SQL that joins columns of the version before.
func packing(columns ...string) string {
	for i, c := range columns {
		columns[i] = `replaceAll(toString(` + quoteName(c) + `), '\x1f', '?')`
	}
	return "concat(" + strings.Join(columns, `, '\x1f', `) + ")"
}

// change is how version 4 stores a column of version 2.
type change struct {
	alias string      // it follows from others
	codec string      // it is stored in another way
	typ   string      // and perhaps as another type
	drop  bool        // only what replaces it is left
	with  []columnDef // what is stored instead, in its place
}

// recast is what version 4 makes of a table, and how: fill gives, for each
// new column, the SQL over those of the versions before.
type recast struct {
	changes map[string]change
	fill    map[string]string
	order   string
	indexes []string
}

func aliases(from string, names ...string) map[string]change {
	out := map[string]change{}
	for i, n := range names {
		out[n] = change{alias: unpacked(from, i+1)}
	}
	return out
}

// micro is an instant column as microseconds.
func micro(column string) string { return "toUnixTimestamp64Micro(" + quoteName(column) + ")" }

// behind is an instant that lies some microseconds behind another.
func behind(column, gap string) string {
	return "fromUnixTimestamp64Micro(" + micro(column) + " + " + gap + ", 'UTC')"
}

// recasts are the tables that version 4 stores in another way.
//
//muster:table one entry for each table
func recasts() map[string]recast {
	jobs := recast{
		changes: aliases("owner", "user", "group", "account", "user_id", "group_id", "assoc"),
		fill: map[string]string{"owner": packing("user", "group", "account", "user_id", "group_id", "assoc"),
			"eligible_gap_us": micro("eligible") + " - " + micro("submit"), "start_gap_us": micro("start") + " - " + micro("submit")},
		indexes: []string{"ix_end end" + stdMinmax, "ix_submit submit" + stdMinmax, "ix_new (end, seq)" + stdMinmax,
			"ix_near (job_id, if(array_job_id = 0, job_id, array_job_id))" + stdMinmax, "ix_ids [job_id, array_job_id]" + stdBloom},
	}
	for _, n := range [...]string{"user_id", "group_id", "assoc"} {
		c := jobs.changes[n]
		c.alias = "toUInt32OrZero(" + c.alias + ")"
		jobs.changes[n] = c
	}
	c := jobs.changes["user"]
	c.with = []columnDef{{"owner", tWord, codecWord}}
	jobs.changes["user"] = c
	jobs.changes["submit"] = change{codec: codecAt}
	jobs.changes["eligible"] = change{alias: behind("submit", "eligible_gap_us"), with: []columnDef{{"eligible_gap_us", tSpanNull, codecSpan}}}
	jobs.changes["start"] = change{alias: behind("submit", "start_gap_us"), with: []columnDef{{"start_gap_us", tSpanNull, codecSpan}}}
	jobs.changes["elapsed_us"] = change{alias: "ifNull(" + micro("end") + " - " + micro("submit") + " - start_gap_us - suspended_us, 0)"}
	jobs.changes["submit_line"] = change{typ: tWord, codec: codecWord}
	jobs.changes["gpu_uuids"] = change{typ: tLines, codec: codecWord}

	steps := recast{changes: aliases("who", "user", "account"), fill: map[string]string{"who": packing("user", "account")},
		indexes: []string{"ix_end end" + stdMinmax}}
	nodes := recast{changes: aliases("who", "user", "account", "partition", "qos"), fill: map[string]string{"who": packing("user", "account", "partition", "qos"),
		"end_gap_us": micro("end") + " - " + micro("to")},
		indexes: []string{"ix_to to" + stdMinmax, "ix_from from" + stdMinmax}}
	nodes.changes["end"] = change{alias: behind("to", "end_gap_us"), with: []columnDef{{"end_gap_us", "Int64", codecSpan}}}

	gpus := recast{changes: aliases("who", "user", "account", "partition", "qos"), order: "(ledger, uid, restarts, device)",
		fill: map[string]string{"who": packing("user", "account", "partition", "qos"), "end_gap_us": micro("end") + " - " + micro("to"),
			"device":  packing("gpu_uuid", "node", "gpu_index", "gpu_type"),
			"rest_us": "if(measured, " + micro("to") + " - " + micro("from") + ", 0) - no_process_us - idle_us - busy_us"},
		indexes: nodes.indexes}
	gpus.changes["end"] = nodes.changes["end"]
	for n, c := range aliases("device", "gpu_uuid", "node", "gpu_index", "gpu_type") {
		gpus.changes[n] = c
	}
	gpus.changes["gpu_index"] = change{alias: "toUInt32OrZero(" + gpus.changes["gpu_index"].alias + ")"}
	gpus.changes["node"] = change{alias: gpus.changes["node"].alias, with: []columnDef{{"device", tWord, codecWord}}}
	gpus.changes["busy_us"] = change{alias: "if(measured, " + micro("to") + " - " + micro("from") + ", 0) - no_process_us - idle_us - rest_us",
		with: []columnDef{{"rest_us", "Int64", codecSpan}}}
	for _, r := range [...]recast{steps, nodes, gpus} {
		c := r.changes["user"]
		c.with = []columnDef{{"who", tWord, codecWord}}
		r.changes["user"] = c
	}
	return map[string]recast{"jobs": jobs, "steps": steps, "job_nodes": nodes, "job_gpus": gpus}
}

// schemaFour lists every table as version 4 makes it.
func schemaFour() []tableDef {
	out := append(schemaTwo(), samplesDef())
	all := recasts()
	for i := range out {
		t := &out[i]
		r, ok := all[t.name]
		if !ok {
			continue
		}
		t.indexes, t.wide = r.indexes, widePart
		if r.order != "" {
			t.order = r.order
		}
		var columns, later []columnDef
		for _, c := range t.columns {
			ch := r.changes[c.name]
			columns = append(columns, ch.with...)
			switch {
			case ch.alias != "":
				// Behind all that is stored, so that each is there before it is named.
				later = append(later, columnDef{c.name, c.typ + aliasMark + ch.alias, ""})
				continue
			case ch.typ != "":
				c.typ = ch.typ
			}
			if c.codec = recodedFour(t.name, c); ch.codec != "" {
				c.codec = ch.codec
			}
			columns = append(columns, c)
		}
		t.columns = append(columns, later...)
	}
	return out
}

// aliasMark stands in a column's type before the SQL from which it follows.
const aliasMark = " ALIAS "

// follows tells whether a column is not stored but follows from others.
func (c columnDef) follows() bool { return strings.Contains(c.typ, aliasMark) }

// plain is the type of a column alone.
func (c columnDef) plain() string {
	typ, _, _ := strings.Cut(c.typ, " DEFAULT ")
	typ, _, _ = strings.Cut(typ, aliasMark)
	return typ
}

// recodedFour is the codec of a column since version 4.
func recodedFour(table string, c columnDef) string {
	repeats := table == "job_gpus"
	instant := strings.HasPrefix(c.typ, "DateTime64")
	switch {
	case repeats && (c.name == "uid" || c.name == "seq"):
		return codecRepeat
	case c.name == "uid" || c.name == "job_id":
		return codecCount
	case c.name == "seq":
		return codecSeq
	case repeats && (instant || strings.HasSuffix(c.name, "_us")):
		return codecAgain
	case instant:
		return codecNear
	case c.name == "node_list" || c.name == "name":
		return codecWord
	case strings.HasSuffix(c.name, "_us"):
		return codecSpan
	case c.typ == tWord:
		return codecWord
	}
	return c.codec
}

// recastTable renders the statements that bring a table from version 2 to 4.
func recastTable(t *tableDef, db string, l Layout) []string {
	r := recasts()[t.name]
	var names, values []string
	for _, c := range t.columns {
		if c.follows() {
			continue
		}
		names = append(names, quoteName(c.name))
		value := quoteName(c.name)
		if sql := r.fill[c.name]; sql != "" {
			value = sql
		}
		values = append(values, value)
	}
	return t.rebuilt(db, l, strings.Join(names, ", "), strings.Join(values, ", "))
}

// isRecast tells whether version 4 stores a table in another way.
func isRecast(name string) bool {
	_, ok := recasts()[name]
	return ok
}
