package dashboards_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/accounting/embedded/enginetest"
	"github.com/musterhpc/muster/dashboards"
)

// TestMain lets the test binary be the engine process.
func TestMain(m *testing.M) { os.Exit(enginetest.Main(m.Run)) }

// engine starts the real ClickHouse engine with the schema and gives a way to
// ask it.
func engine(t *testing.T) func(sql string) (string, error) {
	t.Helper()
	s := enginetest.Start(t)
	store, err := clickhouse.Open(clickhouse.Options{Socket: s.Socket(), Database: "muster"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if err := store.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.Socket())
	}}}
	t.Cleanup(c.CloseIdleConnections)
	return func(sql string) (string, error) {
		resp, err := c.Post("http://engine/?database=muster", "text/plain", strings.NewReader(sql+" FORMAT JSONCompact"))
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", resp.Status, body)
		}
		return string(body), err
	}
}

// TestPanelsSeeRunsThatGoOn: no panel takes runs from the tables of those that are
// over, but the advice, which is about one that is: the stored views have both.
func TestPanelsSeeRunsThatGoOn(t *testing.T) {
	over := regexp.MustCompile(`\b(FROM|JOIN) (jobs|job_nodes|job_gpus|steps)\b`)
	queries(t, func(t *testing.T, _ dashboards.Board, p dashboards.Panel, q dashboards.Query) {
		if m := over.FindString(q.Expr); q.Lang == dashboards.SQL && m != "" && p.Title != "Advice" {
			t.Errorf("%s leaves out the runs that go on: %s", m, q.Expr)
		}
	})
}

// TestSQLRuns runs every SQL on the real engine over the real schema.
func TestSQLRuns(t *testing.T) {
	ask := engine(t)
	n := 0
	queries(t, func(t *testing.T, _ dashboards.Board, p dashboards.Panel, q dashboards.Query) {
		if q.Lang != dashboards.SQL {
			return
		}
		n++
		for _, s := range []dashboards.Scope{scope, {From: scope.From, To: scope.To}} {
			sql, err := s.Expand(q)
			if err != nil {
				t.Fatal(err)
			}
			out, err := ask(sql)
			if err != nil {
				t.Fatalf("%v\n%s", err, sql)
			}
			for column := range p.Units {
				if !strings.Contains(out, `"name": "`+column+`"`) {
					t.Errorf("no column %s: %.300s", column, out)
				}
			}
			for _, l := range p.Links {
				if l.Label != "" && !strings.Contains(out, `"name": "`+l.Label+`"`) {
					t.Errorf("a link reads the column %s: %.300s", l.Label, out)
				}
			}
		}
	})
	if n < 20 {
		t.Errorf("only %d SQL queries ran", n)
	}
}
