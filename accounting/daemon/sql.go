package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/spec"
)

// sqlLimits bound every question of muster sql.
func sqlLimits() query.Limits {
	return query.Limits{Seconds: 30, Memory: 1 << 30, Rows: 1_000_000, Threads: 2}
}

// sqlFormats are the engine's names of the formats.
func sqlFormats() map[string]string {
	return map[string]string{
		"":        "TabSeparatedWithNames",
		"table":   "TabSeparatedWithNames",
		"csv":     "CSVWithNames",
		"json":    "JSONEachRow",
		"parquet": "Parquet",
	}
}

// sqlLength bounds the text of a question.
const sqlLength = 64 << 10

// Sql answers a question in SQL over the views, with the rows that the caller
// may see.
func (s Service) Sql(q *apiv1.SqlQuery, stream service.Accounting_SqlServer) error {
	ctx := stream.Context()
	scope, behind, err := s.D.openScope(ctx, q.GetMinSeq())
	if err != nil {
		return s.D.storeAway(err)
	}
	if q.GetExplain() != "" {
		text, err := s.explainCommand(ctx, q.GetExplain(), scope)
		if err != nil {
			return err
		}
		return stream.Send(&apiv1.SqlReply{Data: []byte(text), Behind: behind})
	}
	if q.GetViews() {
		return stream.Send(&apiv1.SqlReply{Data: []byte(viewsText()), Behind: behind})
	}
	format, ok := sqlFormats()[q.GetFormat()]
	if !ok {
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"there is no format %q: it is one of table, csv, json, parquet",
				q.GetFormat(),
			),
		)
	}
	if len(q.GetSql()) > sqlLength {
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf("the question is longer than %d bytes", sqlLength),
		)
	}
	viewer, err := s.D.viewerOf(ctx, scope)
	if err != nil {
		return s.D.storeAway(err)
	}
	ask, err := query.SQL(scope, viewer, q.GetSql())
	if err != nil {
		return spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	if err := s.D.treeOf(ctx, q.GetSql(), scope, viewer); err != nil {
		return err
	}
	body, err := s.D.cfg.Store.Raw(ctx, ask, format, sqlLimits())
	if err != nil {
		return s.D.sqlError(err)
	}
	defer body.Close()
	return s.D.passInPieces(body, behind, stream.Send)
}

// treeOf has the engine's own reading of a question checked.
func (d *Daemon) treeOf(
	ctx context.Context,
	sql string,
	scope query.Scope,
	viewer query.Viewer,
) error {
	names, err := d.queryLines(ctx, query.Names(scope))
	if err != nil {
		return d.storeAway(err)
	}
	tree, err := d.queryLines(ctx, query.Tree(sql))
	if err != nil {
		return d.sqlError(err)
	}
	if err := query.CheckTree(tree, viewer, names); err != nil {
		return spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	return nil
}

// queryLines gives an answer of one column of text.
func (d *Daemon) queryLines(ctx context.Context, request query.Query) (out []string, err error) {
	err = d.cfg.Store.Query(ctx, request, func(scan func(...any) error) error {
		var line string
		err := scan(&line)
		out = append(out, strings.Split(line, "\n")...)
		return err
	})
	return out, err
}

// viewsText lists the views with their columns.
func viewsText() string {
	var text strings.Builder
	for _, view := range query.Views() {
		fmt.Fprintf(&text, "%s: %s\n", view.Name, view.About)
		for _, column := range view.Columns {
			fmt.Fprintf(&text, "    %-18s %s\n", column.Name, column.About)
		}
	}
	return text.String()
}

// sqlPiece is how much of an answer goes into one message.
const sqlPiece = 256 << 10

// brokenAnswer is how the engine marks an error behind the first rows.
const brokenAnswer = "__exception__"

// passInPieces hands an answer on in pieces, at least one.
func (d *Daemon) passInPieces(
	body io.Reader,
	behind uint64,
	send func(*apiv1.SqlReply) error,
) error {
	buf := make([]byte, sqlPiece)
	for first := true; ; first = false {
		n, err := io.ReadFull(body, buf)
		if n > 0 || first {
			if at := strings.Index(string(buf[:n]), brokenAnswer); at >= 0 && err != nil {
				return spec.Refuse(spec.CodeBadRequest, "the answer was broken off: "+
					sqlText(string(buf[at+len(brokenAnswer):n])))
			}
			if err := send(&apiv1.SqlReply{Data: slices.Clone(buf[:n]), Behind: behind}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return spec.Refuse(spec.CodeBadRequest, "the answer was broken off: "+err.Error())
		}
	}
}

// viewerOf is what the caller may see: an administrator or operator everything,
// a coordinator his accounts and those below them.
func (d *Daemon) viewerOf(ctx context.Context, scope query.Scope) (query.Viewer, error) {
	who := d.callerOf(ctx)
	viewer := query.Viewer{User: who.User, Admin: who.Admin}
	if viewer.Admin {
		return viewer, nil
	}
	if d.cfg.Private != nil {
		viewer.Private = d.cfg.Private(ctx)
	}
	if viewer.User == "" {
		return viewer, spec.Refuse(spec.CodeAccessDenied, "only users may ask")
	}
	if who.Limited {
		return viewer, nil
	}
	level, accounts := query.Standing(scope, viewer.User)
	var err error
	viewer.Admin, err = d.isOperator(ctx, level)
	if err != nil || viewer.Admin {
		return viewer, err
	}
	parents, heads := map[string]string{}, map[string]bool{}
	err = d.cfg.Store.Query(ctx, accounts, func(scan func(...any) error) error {
		var name, kind, parent string
		var coordinators []string
		if err := scan(&name, &kind, &parent, &coordinators); err != nil {
			return err
		}
		if kind == "AccountPut" {
			parents[name], heads[name] = parent, slices.Contains(coordinators, viewer.User)
		}
		return nil
	})
	for name := range parents {
		for at, depth := name, 0; at != "" && depth < maxDepth; at, depth = parents[at], depth+1 {
			if heads[at] {
				viewer.Accounts = append(viewer.Accounts, name)
				break
			}
		}
	}
	slices.Sort(viewer.Accounts)
	return viewer, err
}

// isOperator tells whether a user is an administrator or an operator; level asks
// for what the newest event says of him.
func (d *Daemon) isOperator(ctx context.Context, level query.Query) (yes bool, err error) {
	err = d.cfg.Store.Query(ctx, level, func(scan func(...any) error) error {
		var kind, level string
		if err := scan(&kind, &level); err != nil {
			return err
		}
		yes = kind == "UserPut" && (level == "Administrator" || level == "Operator")
		return nil
	})
	return yes, err
}

// sqlError words what the engine has against a question.
func (d *Daemon) sqlError(err error) error {
	var engine interface{ EngineText() string }
	if errors.As(err, &engine) {
		return spec.Refuse(spec.CodeBadRequest, sqlText(engine.EngineText()))
	}
	return d.storeAway(err)
}

// sqlTextLength is how much of the engine's words a user sees.
const sqlTextLength = 500

// sqlText takes out of the engine's words what is about our side of the
// question.
func sqlText(text string) string {
	if _, rest, ok := strings.Cut(text, "DB::Exception: "); ok {
		text = rest
	}
	for _, end := range [...]string{" (version ", ": In scope", ". In scope", " In scope", ": while executing", ": While executing", ": while processing", "\n"} {
		text, _, _ = strings.Cut(text, end)
	}
	if len(text) > sqlTextLength {
		text = strings.ToValidUTF8(text[:sqlTextLength], "") + "…"
	}
	return strings.TrimSpace(text)
}

// explainCommand gives the SQL behind a command, as it would be run now, over the
// last day where nothing else is said.
func (s Service) explainCommand(
	ctx context.Context,
	name string,
	scope query.Scope,
) (string, error) {
	name = strings.ToLower(name)
	switch name {
	case "sacct":
		request := &query.Acct{}
		request.Window(scope.Now, midnightBefore(scope.Now, time.UTC, 0))
		over, live := request.Runs(scope, wantedParts(nil), false)
		steps := request.Steps(
			scope,
			[]query.RunKey{{UID: 1}},
			query.StepParts{Amounts: true, Usage: true, Nodes: true, Tasks: true, Container: true},
		)
		return "-- the runs since midnight that are over\n" + over.Text() +
			";\n\n-- those that are not\n" + live.Text() +
			";\n\n-- the steps of some of them\n" + steps.Text() + ";\n", nil
	case "kpi":
		reply, err := s.Report(ctx, &apiv1.ReportQuery{Report: name})
		if err != nil {
			return "", err
		}
		return reply.GetSql() + ";\n", nil
	}
	var known []string
	for _, r := range Reports() {
		flat := "sreport-" + strings.ReplaceAll(strings.ToLower(r), " ", "-")
		if !strings.Contains(r, " ") {
			continue
		}
		known = append(known, flat)
		if flat == name || flat == name+"usage" {
			reply, err := s.Report(ctx, &apiv1.ReportQuery{Report: r})
			if err != nil {
				return "", err
			}
			return reply.GetSql() + ";\n", nil
		}
	}
	return "", spec.Refuse(
		spec.CodeBadRequest,
		fmt.Sprintf(
			"there is no command %q: it is one of sacct, kpi, %s",
			name,
			strings.Join(known, ", "),
		),
	)
}
