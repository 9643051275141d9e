package clickhouse

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

const samplesTable = "gpu_samples"

// samplesOrder sorts readings by quarter of an hour, then by device and time: what is asked
// about a few minutes of the whole fleet, as the last ones or those around the edge of a
// window, lies together, and within a quarter neighbours are readings of one device ten
// seconds apart, whose differences are small.
const samplesOrder = "(ledger, toStartOfFifteenMinutes(at), node, gpu_uuid, at)"

// samplesDef is the table of GPU readings, with their sums by quarter of an hour. A day is a
// partition, so that what is too old goes as whole parts. A reading that was
// sent twice is one row after the next merge.
func samplesDef() tableDef {
	table := samplesDef1()
	table.order = samplesOrder
	table.projections = []string{"quarters (" + query.SampleQuarters() + ")"}
	table.settings += "deduplicate_merge_projection_mode = 'rebuild', "
	return table
}

// samplesDef1 is the same in version 1 of the schema, sorted by device and time.
func samplesDef1() tableDef {
	table := tableDef{
		name:     samplesTable,
		comment:  "readings of GPUs, with the job that held the device alone",
		engine:   replacing,
		settings: "ttl_only_drop_parts = 1, ",
		columns: joinColumns(
			[]columnDef{{"ledger", "UUID", codecText}, {"cluster", tWord, ""}},
			wordColumns("node", "gpu_uuid"),
			[]columnDef{
				{"at", "DateTime('UTC')", "DoubleDelta, ZSTD(1)"},
				{"gpu_index", "UInt32", codecText},
			},
			wordColumns("profile"),
			[]columnDef{
				{"uid", "UInt64", codecText},
				{"attempt", "UInt32", codecText},
				{"job_id", "UInt32", codecText},
			},
			wordColumns("user", "account", "partition"),
			[]columnDef{{"seconds", "UInt16", codecText}},
		),
		order:     "(ledger, node, gpu_uuid, at)",
		partition: "toYYYYMMDD(at)",
		shard:     "cityHash64(node)",
		indexes:   []string{"ix_uid uid" + bloomIndex},
	}
	for _, field := range tally.SampleColumns() {
		table.columns = append(table.columns, columnDef{
			field.Name,
			fmt.Sprintf("Nullable(UInt%d)", field.Bits),
			sampleCodec(field),
		})
	}
	return table
}

// sampleCodec is how a field is stored. A gauge wanders within a few bits;
// the one counter grows by almost the same each time.
func sampleCodec(field tally.SampleField) string {
	if field.Bits == 64 {
		return "DoubleDelta, ZSTD(1)"
	}
	return "Delta, ZSTD(1)"
}

// PutSamples stores readings of a cluster's GPUs. It returns when they are on
// the disk.
func (s *Store) PutSamples(
	ctx context.Context,
	ledger [16]byte,
	cluster string,
	rows []tally.GPUSample,
) error {
	type row = tally.GPUSample
	id := uuid.UUID(ledger)
	cols := []column[row]{
		defineColumn("ledger", func(*row) uuid.UUID { return id }),
		defineColumn("cluster", func(*row) string { return cluster }),
		defineColumn("node", func(r *row) string { return r.Node }),
		defineColumn("gpu_uuid", func(r *row) string { return r.UUID }),
		defineColumn("at", func(r *row) time.Time { return time.Unix(r.At, 0) }),
		defineColumn("gpu_index", func(r *row) uint32 { return r.Index }),
		defineColumn("profile", func(r *row) string { return r.Profile }),
		defineColumn("uid", func(r *row) uint64 { return r.UID }),
		defineColumn("attempt", func(r *row) uint32 { return r.Attempt }),
		defineColumn("job_id", func(r *row) uint32 { return r.JobID }),
		defineColumn("user", func(r *row) string { return r.User }),
		defineColumn("account", func(r *row) string { return r.Account }),
		defineColumn("partition", func(r *row) string { return r.Partition }),
		defineColumn(
			"seconds",
			func(r *row) uint16 { return uint16(min(r.Seconds, math.MaxUint16)) },
		),
	}
	for i, field := range tally.SampleColumns() {
		cols = append(cols, sampleColumn(i, field))
	}
	return sendDays(ctx, newInsert(s, samplesTable), cols, rows, func(r *row) int64 { return r.At })
}

// daysAtOnce is how many days' readings go into one insert: a day is a
// partition, and the engine refuses an insert into more than a hundred.
const daysAtOnce = 90

// sendDays inserts readings, those of many days one stretch of days after the
// other.
func sendDays[R any](
	ctx context.Context,
	ins insert,
	cols []column[R],
	rows []R,
	at func(*R) int64,
) error {
	day := func(r *R) int64 { return at(r) / (24 * 60 * 60) }
	if len(rows) > 0 {
		first, last := day(&rows[0]), day(&rows[0])
		for i := range rows {
			first, last = min(first, day(&rows[i])), max(last, day(&rows[i]))
		}
		if last-first < daysAtOnce {
			return sendRows(ctx, ins, "", cols, rows)
		}
	}
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b R) int { return cmp.Compare(at(&a), at(&b)) })
	for len(rows) > 0 {
		end := day(&rows[0]) + daysAtOnce
		n := sort.Search(len(rows), func(i int) bool { return day(&rows[i]) >= end })
		if err := sendRows(ctx, ins, "", cols, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func sampleColumn(i int, field tally.SampleField) column[tally.GPUSample] {
	switch field.Bits {
	case 8:
		return measuredColumn[uint8](i, field.Name, math.MaxUint8)
	case 16:
		return measuredColumn[uint16](i, field.Name, math.MaxUint16)
	case 32:
		return measuredColumn[uint32](i, field.Name, math.MaxUint32)
	}
	return measuredColumn[uint64](i, field.Name, math.MaxInt64)
}

// measuredColumn is a field's column: NULL where nothing was read, and the largest
// number where it does not fit.
func measuredColumn[V uint8 | uint16 | uint32 | uint64](
	i int,
	name string,
	most int64,
) column[tally.GPUSample] {
	return column[tally.GPUSample]{name: name, values: func(rows []tally.GPUSample) any {
		all, out := make([]V, len(rows)), make([]*V, len(rows))
		for k := range rows {
			if v := rows[k].Values[i]; v >= 0 {
				all[k] = V(min(v, most))
				out[k] = &all[k]
			}
		}
		return out
	}}
}

// PutUsage stores readings of what runs use. It returns when they are on the
// disk.
func (s *Store) PutUsage(
	ctx context.Context,
	ledger [16]byte,
	cluster string,
	rows []tally.UsageSample,
) error {
	type row = tally.UsageSample
	id := uuid.UUID(ledger)
	cols := []column[row]{
		defineColumn("ledger", func(*row) uuid.UUID { return id }),
		defineColumn("cluster", func(*row) string { return cluster }),
		defineColumn("uid", func(r *row) uint64 { return r.UID }),
		defineColumn("attempt", func(r *row) uint32 { return r.Attempt }),
		defineColumn("node", func(r *row) string { return r.Node }),
		defineColumn("step", func(r *row) int32 { return r.Step }),
		defineColumn("at", func(r *row) time.Time { return time.Unix(r.At, 0) }),
		defineColumn("job_id", func(r *row) uint32 { return r.JobID }),
		defineColumn("user", func(r *row) string { return r.User }),
		defineColumn("account", func(r *row) string { return r.Account }),
		defineColumn("partition", func(r *row) string { return r.Partition }),
		defineColumn(
			"seconds",
			func(r *row) uint16 { return uint16(min(r.Seconds, math.MaxUint16)) },
		),
		defineColumn("cpu", func(sample *row) *uint32 {
			if sample.CPU < 0 {
				return nil
			}
			n := uint32(min(sample.CPU, math.MaxUint32))
			return &n
		}),
		defineColumn("rss_kib", func(r *row) uint64 { return uint64(max(r.RSS, 0)) }),
	}
	return sendDays(ctx, newInsert(s, usageTable), cols, rows, func(r *row) int64 { return r.At })
}

// KeepSamples says how long readings of GPUs and runs are kept; Infinite keeps
// them for ever. What is older goes when the engine next merges, at the latest
// after some hours, a day at a time.
func (s *Store) KeepSamples(ctx context.Context, span spec.Span) error {
	for _, table := range []string{samplesTable, usageTable} {
		if err := s.keepTable(ctx, table, span); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) keepTable(ctx context.Context, table string, span spec.Span) error {
	name, on := s.qualifyTable(table), ""
	if s.opts.Layout.Cluster != "" {
		name, on = s.qualifyTable(table+localSuffix), " ON CLUSTER "+
			quoteName(s.opts.Layout.Cluster)
	}
	local := strings.TrimPrefix(name, quoteName(s.db)+".")
	var have string
	if err := s.conn.QueryRow(ctx, "SELECT any(create_table_query) FROM system.tables WHERE database = "+
		quoteText(s.db)+" AND name = "+quoteText(local)).Scan(&have); err != nil {
		return fmt.Errorf("read how long %s are kept: %w", table, err)
	}
	seconds := int64(span / spec.Second)
	want := fmt.Sprintf("TTL at + toIntervalSecond(%d)", seconds)
	sql := "ALTER TABLE " + name + on + " MODIFY " + want
	switch {
	case span == spec.Infinite && !strings.Contains(have, " TTL "), strings.Contains(have, want+
		" "):
		return nil
	case span == spec.Infinite:
		sql = "ALTER TABLE " + name + on + " REMOVE TTL"
	}
	if err := s.conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("set how long %s are kept: %w", table, err)
	}
	return nil
}
