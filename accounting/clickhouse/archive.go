package clickhouse

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/internal/durable"
)

// ErrNoArchive tells that a month is not archived as it is.
var ErrNoArchive = errors.New("the month is not archived as it is now")

// manifest says what an archive of a month holds. It is written last. A table
// has several pieces where rows came after an earlier one was written: those
// may be in the archive alone, so that a piece is never given up for another.
type manifest struct {
	Ledger, Cluster, Month string
	Schema                 int
	Tables                 []piece
}

// piece are the rows of a table that came with some events.
type piece struct {
	Name       string
	After, Seq uint64   // behind the one event, up to the other
	Sums       []uint64 // those of query.SumTables, the rows first
	Files      []archivedFile
}

// piecesOf are the pieces of a table, in the order of their events.
func (m *manifest) piecesOf(table string) (pieces []piece) {
	for _, p := range m.Tables {
		if p.Name == table {
			pieces = append(pieces, p)
		}
	}
	return pieces
}

// storedRows are a piece's rows in the store.
func (p *piece) storedRows(aged query.Aged, scope query.Scope) (query.Aged, query.Scope) {
	aged.After, scope.Seq = p.After, p.Seq
	return aged, scope
}

// isWhole tells whether the files are those that were written.
func (p *piece) isWhole(dir string) error {
	for _, f := range p.Files {
		file, err := os.Open(filepath.Join(dir, filepath.Base(f.Name)))
		if err != nil {
			return fmt.Errorf("the archive has lost a file: %w", err)
		}
		sum := sha256.New()
		_, err = io.Copy(sum, file)
		err = errors.Join(err, file.Close())
		if err != nil {
			return err
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != f.SHA256 {
			return fmt.Errorf(
				"%s has changed since it was archived: its SHA-256 is %s, not %s",
				file.Name(),
				got,
				f.SHA256,
			)
		}
	}
	return nil
}

type archivedFile struct{ Name, SHA256 string }

// archiveLimits bound the reading of one day of one table.
func archiveLimits() query.Limits {
	return query.Limits{Seconds: 3600, Memory: 2 << 30, Threads: 2}
}

func manifestPath(dir string) string { return filepath.Join(dir, "manifest.json") }

// archiveDir is where the archive of a month lies.
func archiveDir(root string, scope query.Scope, month query.Month) string {
	return filepath.Join(root, uuid.UUID(scope.Ledger).String(), month.String())
}

// Archive writes the rows of a month to Parquet files below root, one for each
// table and day, with a manifest that has their sums and the files' SHA-256. Of
// a month that is archived, the rows that came since are added.
func (s *Store) Archive(
	ctx context.Context,
	scope query.Scope,
	month query.Month,
	root string,
) ([]query.Finding, error) {
	dir := archiveDir(root, scope, month)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the archive: %w", err)
	}
	older, err := oldManifest(dir)
	if err != nil {
		return nil, err
	}
	out := manifest{
		Ledger:  uuid.UUID(scope.Ledger).String(),
		Cluster: scope.Cluster,
		Month:   month.String(),
		Schema:  SchemaVersion,
	}
	var found []query.Finding
	for _, aged := range query.AgedTables() {
		list, err := s.archiveTable(ctx, scope, aged, month, dir, older.piecesOf(aged.Name))
		if err != nil {
			return nil, fmt.Errorf("archive %s: %w", aged.Name, err)
		}
		rows, files := uint64(0), 0
		for _, p := range list {
			rows, files = rows+p.Sums[0], files+len(p.Files)
		}
		out.Tables = append(out.Tables, list...)
		found = append(found, query.Finding{
			Name:   aged.Name,
			Detail: fmt.Sprintf("%d rows in %d files", rows, files),
		})
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return nil, err
	}
	// What the manifest names is on the disk before it, and so is the way there.
	for _, folder := range []string{dir, filepath.Dir(dir), root} {
		if err := durable.SyncDir(folder); err != nil {
			return nil, err
		}
	}
	if err := writeWhole(manifestPath(dir), bytes.NewReader(text), nil); err != nil {
		return nil, fmt.Errorf("write the manifest of the archive: %w", err)
	}
	return append(
			found,
			query.Finding{Name: "archive", Detail: dir + " is complete"},
		), durable.SyncDir(
			dir,
		)
}

// archiveTable gives the pieces of a table after it has written what no piece
// has, and again what a lost or changed file had, as long as the store has it.
func (s *Store) archiveTable(
	ctx context.Context,
	scope query.Scope,
	aged query.Aged,
	month query.Month,
	dir string,
	pieces []piece,
) ([]piece, error) {
	last := uint64(0)
	for i, p := range pieces {
		last = p.Seq
		broken := p.isWhole(dir)
		if broken == nil {
			continue
		}
		again, err := s.archivePiece(
			ctx,
			scope,
			aged,
			month,
			dir,
			piece{Name: aged.Name, After: p.After, Seq: p.Seq},
		)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(again.Sums, p.Sums) {
			return nil, fmt.Errorf(
				"%w; the store has %v of its rows, they were %v",
				broken,
				again.Sums,
				p.Sums,
			)
		}
		pieces[i] = again
	}
	if last > scope.Seq {
		return nil, fmt.Errorf(
			"the archive goes up to event %d, the store only to %d: it is older than the archive",
			last,
			scope.Seq,
		)
	}
	p, err := s.archivePiece(
		ctx,
		scope,
		aged,
		month,
		dir,
		piece{Name: aged.Name, After: last, Seq: scope.Seq},
	)
	if err == nil && (p.Sums[0] > 0 || len(pieces) == 0) {
		pieces = append(pieces, p)
	}
	return pieces, err
}

// archivePiece writes the rows of a piece.
func (s *Store) archivePiece(
	ctx context.Context,
	scope query.Scope,
	aged query.Aged,
	month query.Month,
	dir string,
	p piece,
) (piece, error) {
	var err error
	aged, scope = p.storedRows(aged, scope)
	p.Sums, err = s.readSums(ctx, aged.Sums(scope, month))
	if err != nil {
		return p, err
	}
	for from := month.From; from < month.Until && p.Sums[0] > 0; from += dayMicros {
		name := aged.Name + "-" + time.UnixMicro(from).UTC().Format(time.DateOnly)
		if p.After > 0 {
			name += fmt.Sprintf("-after-%d", p.After)
		}
		file, err := s.archiveDay(ctx, scope, aged, from, dir, name+".parquet")
		if err != nil {
			return p, err
		}
		if file.Name != "" {
			p.Files = append(p.Files, file)
		}
	}
	return p, nil
}

// oldManifest reads what an older archive of a month has.
func oldManifest(dir string) (m manifest, err error) {
	text, err := os.ReadFile(manifestPath(dir))
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return m, fmt.Errorf("read the archive that is there: %w", err)
	}
	return m, nil
}

// readSums reads the figures of a table.
func (s *Store) readSums(ctx context.Context, q query.Query) (out []uint64, err error) {
	err = s.Query(ctx, q, func(scan func(...any) error) error { return scan(&out) })
	return out, err
}

// storedNames are the columns of a table that are stored.
func storedNames(table string) string {
	var out []string
	for _, t := range schemaTables() {
		if t.name != table {
			continue
		}
		for _, c := range t.columns {
			if !c.isDerived() {
				out = append(out, quoteName(c.name))
			}
		}
	}
	return strings.Join(out, ", ")
}

// archiveDay writes one day of a table; no name where it has no rows.
func (s *Store) archiveDay(
	ctx context.Context,
	scope query.Scope,
	aged query.Aged,
	from int64,
	dir, name string,
) (file archivedFile, err error) {
	where := s.qualifyTable(aged.Name) + " WHERE " + aged.Rows(scope, from, from+dayMicros)
	var rows uint64
	if err := s.conn.QueryRow(ctx, "SELECT count() FROM "+where).Scan(&rows); err != nil ||
		rows == 0 {
		return file, err
	}
	answer, err := s.Raw(ctx, query.Query{SQL: "SELECT " + storedNames(aged.Name) + " FROM " +
		where}, "Parquet", archiveLimits())
	if err != nil {
		return file, err
	}
	defer answer.Close()
	file.Name = name
	sum := sha256.New()
	tail := &tailWriter{}
	if err := writeWhole(filepath.Join(dir, file.Name), answer, io.MultiWriter(sum, tail)); err != nil {
		return file, err
	}
	if string(tail.last) != "PAR1" { // an engine that fails in the middle says so in the answer
		return file, fmt.Errorf("%s was not written to its end", file.Name)
	}
	file.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return file, nil
}

// tailWriter keeps the last four bytes.
type tailWriter struct{ last []byte }

func (w *tailWriter) Write(data []byte) (int, error) {
	w.last = append(w.last, data[max(0, len(data)-4):]...)
	w.last = slices.Clone(w.last[max(0, len(w.last)-4):])
	return len(data), nil
}

// writeWhole writes a file that is there whole and on the disk, or not at all.
func writeWhole(path string, from io.Reader, also io.Writer) error {
	return durable.Replace(path, 0o600, func(w io.Writer) error {
		if also != nil {
			w = io.MultiWriter(w, also)
		}
		_, err := io.Copy(w, from)
		return err
	})
}

// readManifest reads what an archive says of itself, and compares its files.
func readManifest(dir string) (m manifest, err error) {
	text, err := os.ReadFile(manifestPath(dir))
	if err != nil {
		return m, fmt.Errorf("there is no whole archive in %s: %w", dir, err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("the manifest of %s cannot be read: %w", dir, err)
	}
	for _, p := range m.Tables {
		if err := p.isWhole(dir); err != nil {
			return m, err
		}
	}
	return m, nil
}

// Purge deletes the rows of a month from some tables, all if none are named. The
// record of what goes, with its sums, is written first. With an archive folder,
// only what is archived as it is goes.
func (s *Store) Purge(
	ctx context.Context,
	scope query.Scope,
	month query.Month,
	root string,
	tables ...string,
) ([]query.Finding, error) {
	if scope.Rolled.Until < month.Until {
		return nil, fmt.Errorf(
			"the days of %s are not added up yet, and reports would lose them",
			month,
		)
	}
	// What came later is not in the rollups, and stays.
	scope.Seq = min(scope.Seq, scope.Rolled.Seq)
	var have manifest
	if root != "" {
		var err error
		have, err = readManifest(archiveDir(root, scope, month))
		if err != nil {
			return nil, err
		}
	}
	if err := s.EndPurges(ctx, scope); err != nil {
		return nil, err
	}
	var found []query.Finding
	for _, aged := range query.AgedTables() {
		if len(tables) > 0 && !slices.Contains(tables, aged.Name) {
			continue
		}
		sums, err := s.readSums(ctx, aged.Sums(scope, month))
		if err != nil {
			return found, err
		}
		if sums[0] == 0 {
			continue
		}
		if root != "" {
			if err := s.isArchived(ctx, scope, aged, month, have.piecesOf(aged.Name)); err != nil {
				return found, fmt.Errorf("%s: %w", aged.Name, err)
			}
		}
		if err := s.purgeTable(ctx, scope, aged, month, sums); err != nil {
			return found, err
		}
		found = append(
			found,
			query.Finding{Name: aged.Name, Detail: fmt.Sprintf("%d rows are purged", sums[0])},
		)
	}
	return found, nil
}

// isArchived tells whether an archive has the rows that would go up to the scope's
// event: each piece is in the store as a whole, or is gone from it.
func (s *Store) isArchived(
	ctx context.Context,
	scope query.Scope,
	aged query.Aged,
	month query.Month,
	pieces []piece,
) error {
	last := uint64(0)
	for _, p := range pieces {
		last = p.Seq
		of, upto := p.storedRows(aged, scope)
		sums, err := s.readSums(ctx, of.Sums(upto, month))
		if err != nil {
			return err
		}
		if sums[0] == 0 {
			continue
		}
		if !slices.Equal(sums, p.Sums) {
			return fmt.Errorf(
				"of rows up to event %d the store has %v, the archive %v (if an unarchive was broken off, end it first): %w",
				p.Seq,
				sums,
				p.Sums,
				ErrNoArchive,
			)
		}
		of.After = max(p.After, scope.Seq)
		if of.After >= p.Seq {
			continue
		}
		sums, err = s.readSums(ctx, of.Sums(upto, month))
		if err != nil {
			return err
		}
		if sums[0] > 0 {
			return fmt.Errorf("%d rows behind event %d are not added up yet", sums[0], scope.Seq)
		}
	}
	aged.After = last
	sums, err := s.readSums(ctx, aged.Sums(scope, month))
	if err == nil && sums[0] > 0 {
		err = fmt.Errorf(
			"%d rows came behind event %d, where the archive ends: %w",
			sums[0],
			last,
			ErrNoArchive,
		)
	}
	return err
}

// purgeTable deletes one table's rows of a month.
func (s *Store) purgeTable(
	ctx context.Context,
	scope query.Scope,
	aged query.Aged,
	month query.Month,
	sums []uint64,
) error {
	rolled := []string{}
	if aged.Name == "jobs" {
		err := s.Query(
			ctx,
			query.RolledSums(scope, month),
			func(scan func(...any) error) error { return scan(&rolled) },
		)
		if err != nil {
			return err
		}
	}
	record := purgeRecord{
		id:     uuid.NewString(),
		table:  aged.Name,
		month:  month,
		upto:   scope.Seq,
		sums:   sums,
		rolled: rolled,
	}
	if err := s.notePurge(ctx, scope, record, "begun"); err != nil {
		return err
	}
	return s.endPurge(ctx, scope, record)
}

// purgeRecord is what is known of a purge.
type purgeRecord struct {
	id, table string
	month     query.Month
	upto      uint64 // the last event whose rows go
	sums      []uint64
	rolled    []string
}

// endPurge deletes the rows of a purge that is on record.
func (s *Store) endPurge(ctx context.Context, scope query.Scope, record purgeRecord) error {
	scope.Seq = record.upto
	for _, aged := range query.AgedTables() {
		if aged.Name != record.table {
			continue
		}
		if err := s.deleteRows(ctx, aged, aged.Rows(scope, record.month.From, record.month.Until)); err != nil {
			return err
		}
	}
	return s.notePurge(ctx, scope, record, "done")
}

// notePurge writes a row of the record.
func (s *Store) notePurge(
	ctx context.Context,
	scope query.Scope,
	record purgeRecord,
	phase string,
) error {
	err := s.conn.Exec(
		ctx,
		"INSERT INTO "+s.qualifyTable("purges")+
			" (ledger, cluster, id, phase, month, `table`, upto, sums, rolled)"+
			" SELECT {ledger:UUID}, {cluster:String}, {id:UUID}, {phase:String}, {month:String}, {name:String}, "+
			"{upto:UInt64}, {sums:Array(UInt64)}, {rolled:Array(String)}",
		ch.Named("ledger", uuid.UUID(scope.Ledger).String()),
		ch.Named("cluster", scope.Cluster),
		ch.Named("id", record.id),
		ch.Named("phase", phase),
		ch.Named("month", record.month.String()),
		ch.Named("name", record.table),
		ch.Named("upto", record.upto),
		ch.Named("sums", record.sums),
		ch.Named("rolled", record.rolled),
	)
	if err != nil {
		return fmt.Errorf("write the record of the purge: %w", err)
	}
	return nil
}

// deleteRows deletes rows of a table and waits until they are gone.
func (s *Store) deleteRows(ctx context.Context, aged query.Aged, where string) error {
	local, on := aged.Name, ""
	if c := s.opts.Layout.Cluster; c != "" {
		local, on = aged.Name+localSuffix, " ON CLUSTER "+quoteName(c)
	}
	wait := ch.Context(ctx, ch.WithSettings(ch.Settings{"mutations_sync": 2}))
	if err := s.conn.Exec(wait, "ALTER TABLE "+s.qualifyTable(local)+on+" DELETE WHERE "+where); err != nil {
		return fmt.Errorf("delete rows of %s: %w", aged.Name, err)
	}
	return nil
}

// EndPurges ends purges that were broken off behind their record.
func (s *Store) EndPurges(ctx context.Context, scope query.Scope) error {
	rows, err := s.conn.Query(
		ctx,
		"SELECT toString(id), any(month), any(`table`), any(upto), any(sums), any(rolled)"+
			" FROM "+s.qualifyTable("purges")+
			" WHERE ledger = {ledger:UUID}"+
			" GROUP BY id"+
			" HAVING countIf(phase != 'begun') = 0",
		ch.Named("ledger", uuid.UUID(scope.Ledger).String()),
	)
	if err != nil {
		return fmt.Errorf("look for interrupted purges: %w", err)
	}
	var list []purgeRecord
	for rows.Next() {
		var record purgeRecord
		var month string
		err = rows.Scan(
			&record.id,
			&month,
			&record.table,
			&record.upto,
			&record.sums,
			&record.rolled,
		)
		if err != nil {
			break
		}
		record.month, err = query.ParseMonth(month)
		if err != nil {
			break
		}
		list = append(list, record)
	}
	err = errors.Join(err, rows.Err(), rows.Close())
	if err != nil {
		return fmt.Errorf("look for interrupted purges: %w", err)
	}
	for _, record := range list {
		if err := s.endPurge(ctx, scope, record); err != nil {
			return err
		}
	}
	return nil
}

// Unarchive brings the rows of an archived month back, whether they were purged
// or not.
func (s *Store) Unarchive(
	ctx context.Context,
	scope query.Scope,
	month query.Month,
	root string,
) ([]query.Finding, error) {
	dir := archiveDir(root, scope, month)
	have, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	if err := s.EndPurges(ctx, scope); err != nil {
		return nil, err
	}
	for _, p := range have.Tables {
		if !slices.ContainsFunc(
			query.AgedTables(),
			func(a query.Aged) bool { return a.Name == p.Name },
		) {
			return nil, fmt.Errorf(
				"the archive has a table %q, which this release does not know",
				p.Name,
			)
		}
	}
	var found []query.Finding
	for _, aged := range query.AgedTables() {
		pieces := have.piecesOf(aged.Name)
		if len(pieces) == 0 {
			continue
		}
		scope.Seq = pieces[len(pieces)-1].Seq
		// What a broken attempt brought goes first.
		if err := s.deleteRows(ctx, aged, aged.Rows(scope, month.From, month.Until)); err != nil {
			return found, err
		}
		rows := uint64(0)
		for _, p := range pieces {
			for _, file := range p.Files {
				if err := s.insertFile(
					ctx, aged.Name, filepath.Join(dir, filepath.Base(file.Name)),
				); err != nil {
					return found, fmt.Errorf("read %s: %w", file.Name, err)
				}
			}
			of, upto := p.storedRows(aged, scope)
			sums, err := s.readSums(ctx, of.Sums(upto, month))
			if err != nil {
				return found, err
			}
			if !slices.Equal(sums, p.Sums) {
				return found, fmt.Errorf(
					"%s has %v after it was read back, the archive says %v",
					aged.Name,
					sums,
					p.Sums,
				)
			}
			rows += sums[0]
		}
		err = s.conn.Exec(
			ctx,
			"INSERT INTO "+s.qualifyTable("purges")+" (ledger, cluster, id, phase, month, `table`)"+
				" SELECT DISTINCT ledger, cluster, id, 'restored', month, `table`"+
				" FROM "+s.qualifyTable("purges")+
				" WHERE ledger = {ledger:UUID} AND month = {month:String} AND `table` = {name:String}",
			ch.Named("ledger", uuid.UUID(scope.Ledger).String()),
			ch.Named("month", month.String()),
			ch.Named("name", aged.Name),
		)
		if err != nil {
			return found, fmt.Errorf("write the record of what was read back: %w", err)
		}
		found = append(
			found,
			query.Finding{Name: aged.Name, Detail: fmt.Sprintf("%d rows are back", rows)},
		)
	}
	return found, nil
}

// insertFile inserts the rows of a Parquet file.
func (s *Store) insertFile(ctx context.Context, table, path string) error {
	client, base, err := s.rawClient()
	if err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	values := url.Values{"query": {"INSERT INTO " + s.qualifyTable(table) + " (" +
		storedNames(table) +
		") FORMAT Parquet"},
		// The table would know the same rows from the time before they were purged.
		"insert_deduplicate": {"1"}, "insert_deduplication_token": {uuid.NewString()}}
	if s.opts.Layout.Cluster != "" {
		values.Set("distributed_foreground_insert", "1")
	}
	request, err := http.NewRequestWithContext(
		ctx, http.MethodPost, base+"/?"+values.Encode(), file,
	)
	if err != nil {
		return err
	}
	if s.auth.Username != "" {
		request.Header.Set("X-ClickHouse-User", s.auth.Username)
		request.Header.Set("X-ClickHouse-Key", s.auth.Password)
	}
	resp, err := client.Do(request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	if said := strings.TrimSpace(string(text)); said != "" || resp.StatusCode != http.StatusOK {
		return &EngineError{Text: said}
	}
	return nil
}
