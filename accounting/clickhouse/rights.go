package clickhouse

import (
	"context"

	"github.com/musterhpc/muster/accounting/query"
)

// grant is what the login of the accounting must be allowed.
type grant struct {
	rights string // as GRANT and CHECK GRANT have them
	on     string
	needs  string // what does not work without it
}

// String is the statement without whom it is to.
func (g *grant) String() string { return "GRANT " + g.rights + " ON " + g.on }

// neededGrants are all that the accounting needs in a database: on nothing but this,
// the database that a backup is read back into, and what the server says of
// itself.
func neededGrants(db string, layout Layout) []grant {
	own, fresh := quoteName(db)+".*", quoteName(db+restoredSuffix)+".*"
	grants := []grant{
		{
			"SELECT, INSERT, ALTER TABLE, CREATE DATABASE, CREATE TABLE, DROP TABLE, TRUNCATE, OPTIMIZE, SHOW",
			own,
			"everything",
		},
		{"CREATE VIEW, DROP VIEW", own, "Grafana's boards"},
		{"SELECT", "system.one", "muster sql"},
		{"SELECT", "system.columns", "muster accounting doctor, archive"},
		{"SELECT", "system.tables", "muster accounting restore"},
		{"SELECT", "system.databases", "muster accounting restore"},
		{"SELECT", "system.numbers", "muster report"},
		{"SELECT", "system.parts", "muster accounting doctor, the metrics of the store's size"},
		{"SELECT", "system.detached_parts", "muster accounting doctor"},
		{"SELECT", "system.mutations", "muster accounting doctor"},
		{"SELECT", "system.disks", "muster accounting doctor"},
		{"BACKUP, DROP DATABASE", own, "muster accounting backup and restore"},
		{
			"SELECT, INSERT, ALTER TABLE, CREATE DATABASE, CREATE TABLE, DROP DATABASE, DROP TABLE, SHOW",
			fresh,
			"muster accounting restore",
		},
	}
	if layout.Cluster != "" {
		grants = append(grants, grant{"CLUSTER, REMOTE", "*.*", "tables on several machines"})
	}
	return grants
}

// restoredSuffix is behind the name of the database that a backup is read back
// into.
const restoredSuffix = "_restored"

// Grants are the statements that give a login what the accounting needs.
func Grants(db, login string, layout Layout) []string {
	var out []string
	for _, g := range neededGrants(db, layout) {
		out = append(out, g.String()+" TO "+quoteName(login))
	}
	return out
}

// missingGrants asks the server which of some grants the login does not have.
func (s *Store) missingGrants(ctx context.Context, list []grant) (grants []grant, err error) {
	for _, g := range list {
		var has uint8
		err := s.Query(
			ctx,
			query.Query{SQL: "CHECK " + g.String()},
			func(scan func(...any) error) error { return scan(&has) },
		)
		if err != nil {
			return nil, err
		}
		if has == 0 {
			grants = append(grants, g)
		}
	}
	return grants, nil
}

// examineRights looks at what the login may do. Servers before 24.10 do not
// know how to be asked.
func (s *Store) examineRights(ctx context.Context, add func(bool, string, string, ...any)) error {
	all := neededGrants(s.db, s.opts.Layout)
	missing, err := s.missingGrants(ctx, all)
	if failedWith(err, codeSyntax) {
		add(false, "rights", "this server is too old to be asked (CHECK GRANT)")
		return nil
	}
	if err != nil {
		return err
	}
	login := s.auth.Username
	if login == "" {
		login = "default"
	}
	for i := range missing {
		add(
			true,
			"rights",
			"%s TO %s is missing, for %s",
			missing[i].String(),
			quoteName(login),
			missing[i].needs,
		)
	}
	if len(missing) == 0 {
		add(false, "rights", "%s may do what is needed", login)
	}
	return nil
}
