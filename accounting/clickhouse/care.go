package clickhouse

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/spec"
)

// Backup copies the store to a name in the engine's folder of backups. The
// position goes first: rows that come meanwhile are then beyond it, and
// Restore drops them, so that they are counted again from the ledger.
func (s *Store) Backup(ctx context.Context, name string) error {
	if !backupName(name) {
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf("%q is no name for a backup: letters, digits, points and lines", name),
		)
	}
	except := s.qualifyTable("ingest")
	for _, stored := range query.StoredViews() { // they hold nothing, and Restore makes them
		except += ", " + s.qualifyTable(stored.Name)
	}
	for _, sql := range []string{
		"BACKUP TABLE " + s.qualifyTable("ingest") + " TO File(" + quoteText(name+".position") +
			")",
		"BACKUP DATABASE " + quoteName(s.db) + " EXCEPT TABLES " + except + " TO File(" +
			quoteText(name) + ")",
	} {
		switch err := s.conn.Exec(ctx, sql); {
		case failedWith(err, codeBackupExists):
			return spec.Refuse(
				spec.CodeBadRequest,
				fmt.Sprintf("there is a backup %s already: choose another name", name),
			)
		case err != nil:
			return fmt.Errorf("back up the accounting store: %w", err)
		}
	}
	return nil
}

// Restore replaces the store by a backup. Nobody may write meanwhile.
func (s *Store) Restore(ctx context.Context, name string) error {
	if !backupName(name) {
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf("%q is no name for a backup: letters, digits, points and lines", name),
		)
	}
	// Into a database of its own first: a backup that cannot be read must not
	// cost what is there.
	fresh := s.db + restoredSuffix
	q, f := quoteName(s.db), quoteName(fresh)
	run := func(list ...string) error {
		for _, sql := range list {
			switch err := s.conn.Exec(ctx, sql); {
			case failedWith(err, codeNoBackup):
				return spec.Refuse(spec.CodeBadRequest, fmt.Sprintf("there is no backup %s", name))
			case err != nil:
				return fmt.Errorf("restore the accounting store: %w", err)
			}
		}
		return nil
	}
	err := run("DROP DATABASE IF EXISTS "+f+" SYNC",
		"RESTORE DATABASE "+q+" AS "+f+" FROM File("+quoteText(name)+")",
		"RESTORE TABLE "+q+".ingest AS "+f+".ingest FROM File("+quoteText(name+".position")+")")
	if err != nil {
		return err
	}
	beyond, err := s.beyondPosition(ctx, f)
	if err != nil {
		return err
	}
	for _, table := range schemaTables() {
		if table.name != "tally_snapshots" &&
			slices.ContainsFunc(table.columns, func(c columnDef) bool { return c.name == "seq" }) {
			if err := run("ALTER TABLE " + f + "." + table.name + " DELETE WHERE " + beyond +
				" SETTINGS mutations_sync = 1"); err != nil {
				return err
			}
		}
	}
	// An intent of the time of the backup is about rows that are gone.
	err = run("ALTER TABLE "+f+".ingest DELETE WHERE phase = 'intent' SETTINGS mutations_sync = 1",
		"DROP DATABASE IF EXISTS "+q+" SYNC", "RENAME DATABASE "+f+" TO "+q)
	if err != nil {
		return err
	}
	return s.makeViews(ctx)
}

// The engine's codes of what is known here.
const (
	codeSyntax       = 62
	codeBackupExists = 598
	codeNoBackup     = 599
)

// failedWith tells that a statement failed with a code of the engine's.
func failedWith(err error, code int32) bool {
	n, _ := engineSaid(err)
	return n == code
}

// beyondPosition is the condition on rows that came behind the position of their
// ledger.
func (s *Store) beyondPosition(ctx context.Context, db string) (string, error) {
	text := "false"
	positions := query.Query{SQL: "SELECT toString(ledger), argMax(last, n)" +
		" FROM " + db + ".ingest" +
		" WHERE phase = 'done'" +
		" GROUP BY ledger"}
	err := s.Query(ctx, positions, func(scan func(...any) error) error {
		var ledger string
		var last uint64
		if err := scan(&ledger, &last); err != nil {
			return err
		}
		text += fmt.Sprintf(" OR (ledger = toUUID(%s) AND seq > %d)", quoteText(ledger), last)
		return nil
	})
	return text, err
}

// backupLetters are what a name of a backup is made of.
const backupLetters = "abcdefghijklmnopqrstuvwxyz" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + "0123456789" + "-_."

// backupName tells whether a name is one for a backup.
func backupName(name string) bool {
	for _, c := range name {
		if !strings.ContainsRune(backupLetters, c) {
			return false
		}
	}
	return name != "" && len(name) <= 100 && !strings.HasPrefix(name, ".")
}

// clockOff is how far the server's clock may be from ours.
const clockOff = 5 * time.Second

// diskLeast is the free space below which a store is in danger.
const diskLeast = 1 << 30

// partsMost is how many parts of a table are still healthy.
const partsMost = 1000

// Examine looks for what is wrong with the store itself.
func (s *Store) Examine(ctx context.Context, ledger [16]byte) ([]query.Finding, error) {
	var findings []query.Finding
	add := func(bad bool, name, format string, args ...any) {
		findings = append(
			findings, query.Finding{Name: name, Detail: fmt.Sprintf(format, args...), Bad: bad},
		)
	}
	var version string
	var now time.Time
	if err := s.conn.QueryRow(ctx, "SELECT version(), now64(6)").Scan(&version, &now); err != nil {
		return nil, fmt.Errorf("ask the accounting store: %w", err)
	}
	add(false, "engine", "ClickHouse %s at %s", version, s.target)
	off := time.Since(now).Round(time.Millisecond)
	if bad := off > clockOff || off < -clockOff; bad {
		add(true, "clock", "the engine's differs by %s: "+
			"set the clocks of both hosts, runs are shown with the ledger's times", off)
	} else {
		add(false, "clock", "the engine's differs by %s", off)
	}
	var have uint32
	switch err := s.conn.QueryRow(ctx, "SELECT max(version) FROM "+
		s.qualifyTable("schema_versions")).Scan(&have); {
	case err != nil:
		add(true, "schema", "its version cannot be read: %v", s.Explain(err))
	case have > SchemaVersion:
		add(true, "schema", "version %d, this release knows %d: "+
			"run the release that migrated it, or restore a backup from before", have, SchemaVersion)
	case have < SchemaVersion:
		add(true, "schema", "version %d, this release knows %d: "+
			"the accounting brings it up to date when it starts; if it runs, its log says why it has not", have, SchemaVersion)
	default:
		add(false, "schema", "version %d, this release knows %d", have, SchemaVersion)
	}
	// What one look cannot be asked for must not hide what the others find.
	for _, look := range []struct {
		name string
		run  func(context.Context, func(bool, string, string, ...any)) error
	}{
		{"rights", s.examineRights},
		{"columns", s.examineTables},
		{"parts", s.examineParts},
		{"detached parts", s.examineDetached},
		{"mutations", s.examineMutations},
		{"runs twice", s.examineTwice},
		{"disk", s.examineDisks},
	} {
		if err := look.run(ctx, add); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			add(true, look.name, "cannot be looked at: %v", s.Explain(err))
		}
	}
	done, intent, err := s.readPhases(ctx, ledger)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		add(true, "position", "cannot be read: %v", s.Explain(err))
	case done == nil:
		add(true, "position", "this ledger was never stored here")
	case intent != nil && intent.last > done.last:
		add(
			false,
			"position",
			"event %d; events %d to %d are being written, or were when the writer died",
			done.last,
			intent.first,
			intent.last,
		)
	default:
		add(false, "position", "event %d", done.last)
	}
	return findings, nil
}

// examineTables compares the tables with the schema.
func (s *Store) examineTables(ctx context.Context, add func(bool, string, string, ...any)) error {
	rows, err := s.conn.Query(ctx, "SELECT table, name, type"+
		" FROM system.columns"+
		" WHERE database = {db:String}",
		ch.Named("db", s.db))
	if err != nil {
		return fmt.Errorf("read the columns of the accounting store: %w", err)
	}
	defer rows.Close()
	have := map[string]string{}
	tables := map[string]bool{}
	for rows.Next() {
		var table, name, typ string
		if err := rows.Scan(&table, &name, &typ); err != nil {
			return fmt.Errorf("read the columns of the accounting store: %w", err)
		}
		have[table+"."+name], tables[table] = typ, true
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read the columns of the accounting store: %w", err)
	}
	var wrong, gone []string
	for _, table := range schemaTables() {
		if !tables[table.name] {
			gone = append(gone, table.name)
			continue
		}
		for _, c := range table.columns {
			want := c.plainType()
			if got := have[table.name+"."+c.name]; got == "" {
				wrong = append(wrong, fmt.Sprintf("%s.%s is missing", table.name, c.name))
			} else if got != want {
				wrong = append(
					wrong, fmt.Sprintf("%s.%s is %s, not %s", table.name, c.name, got, want),
				)
			}
		}
	}
	if len(gone) > 0 {
		add(true, "missing tables", "%s: ATTACH TABLE brings back one that was detached; "+
			"else restore a backup (muster accounting restore NAME), "+
			"or DROP DATABASE %s and restart the accounting, "+
			"which counts anew what the ledger and its archive still have: "+
			"readings, imported clusters and what was purged are lost then",
			strings.Join(gone, ", "), quoteName(s.db))
	}
	if len(wrong) > 0 {
		add(true, "columns", "%d differ from the schema: %s: "+
			"somebody altered the tables; restore a backup (muster accounting restore NAME)",
			len(wrong), strings.Join(wrong[:min(3, len(wrong))], "; "))
	} else if len(gone) == 0 {
		add(false, "columns", "%d tables as this release makes them", len(schemaTables()))
	}
	return nil
}

// lookUp asks a question about the store and hands each row on.
func (s *Store) lookUp(
	ctx context.Context,
	sql string,
	each func(scan func(...any) error) error,
) error {
	return s.Query(
		ctx,
		query.Query{SQL: sql, Params: []query.Param{{Name: "db", Value: s.db}}},
		each,
	)
}

// examineParts looks at how large the tables are, and in how many pieces.
func (s *Store) examineParts(ctx context.Context, add func(bool, string, string, ...any)) error {
	const sizes = "SELECT table, count(), sum(rows), sum(bytes_on_disk)" +
		" FROM system.parts" +
		" WHERE database = {db:String} AND active" +
		" GROUP BY table" +
		" ORDER BY table"
	return s.lookUp(ctx, sizes, func(scan func(...any) error) error {
		var table string
		var parts, rows, bytes uint64
		if err := scan(&table, &parts, &rows, &bytes); err != nil {
			return err
		}
		more := ""
		if parts > partsMost {
			more = ": the engine does not merge as fast as it is written to; has it memory and disk enough?"
		}
		add(
			parts > partsMost,
			"table "+table,
			"%d rows, %.1f MiB, %d parts%s",
			rows,
			float64(bytes)/(1<<20),
			parts,
			more,
		)
		return nil
	})
}

// examineDetached looks for parts that the engine has put aside.
func (s *Store) examineDetached(ctx context.Context, add func(bool, string, string, ...any)) error {
	const detached = "SELECT count(), groupArray(3)(concat(table, ' ', name, if(reason = '', '', concat(' (', reason, ')'))))" +
		" FROM system.detached_parts" +
		" WHERE database = {db:String}"
	return s.lookUp(ctx, detached, func(scan func(...any) error) error {
		var n uint64
		var some []string
		if err := scan(&n, &some); err != nil {
			return err
		}
		if n == 0 {
			add(false, "detached parts", "0")
			return nil
		}
		add(true, "detached parts", "%d: %s: their rows are in no answer. "+
			"Where muster accounting verify finds rows missing, ALTER TABLE … ATTACH PART '…' brings them back; "+
			"else DROP DETACHED PART ends this",
			n, strings.Join(some, "; "))
		return nil
	})
}

// examineMutations looks for changes that the engine cannot end.
func (s *Store) examineMutations(
	ctx context.Context,
	add func(bool, string, string, ...any),
) error {
	const unfinished = "SELECT count(), countIf(latest_fail_reason != ''), anyIf(latest_fail_reason, latest_fail_reason != '')" +
		" FROM system.mutations" +
		" WHERE database = {db:String} AND NOT is_done"
	return s.lookUp(ctx, unfinished, func(scan func(...any) error) error {
		var open, failed uint64
		var reason string
		if err := scan(&open, &failed, &reason); err != nil {
			return err
		}
		detail := fmt.Sprintf("%d open, %d failing %s", open, failed, reason)
		add(failed > 0, "mutations", "%s", strings.TrimSpace(detail))
		return nil
	})
}

// examineTwice looks for runs that are there more than once.
func (s *Store) examineTwice(ctx context.Context, add func(bool, string, string, ...any)) error {
	repeated := "SELECT count() - uniqExact(ledger, uid, restarts) FROM " + s.qualifyTable("jobs")
	return s.lookUp(ctx, repeated, func(scan func(...any) error) error {
		var n int64
		if err := scan(&n); err != nil {
			return err
		}
		add(n != 0, "runs twice", "%d", n)
		return nil
	})
}

// examineDisks looks at how much room there is.
func (s *Store) examineDisks(ctx context.Context, add func(bool, string, string, ...any)) error {
	const disks = "SELECT name, free_space, total_space FROM system.disks"
	return s.lookUp(ctx, disks, func(scan func(...any) error) error {
		var name string
		var free, total uint64
		if err := scan(&name, &free, &total); err != nil {
			return err
		}
		more := ""
		if free < diskLeast {
			more = ": make room, or shorten what is kept (accounting.*_keep); the ledger keeps what does not fit until it does"
		}
		add(
			free < diskLeast,
			"disk "+name,
			"%.1f of %.1f GiB free%s",
			float64(free)/(1<<30),
			float64(total)/(1<<30),
			more,
		)
		return nil
	})
}

// Exec runs a statement of an administrator.
func (s *Store) Exec(ctx context.Context, sql string) error { return s.conn.Exec(ctx, sql) }
