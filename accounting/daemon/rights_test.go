package daemon_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/accounting/embedded"
	"github.com/musterhpc/muster/accounting/embedded/enginetest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// restricted starts an engine whose only login may do what some grants say, and
// nothing else.
func restricted(t *testing.T, grants []string) string {
	t.Helper()
	enginetest.Need(t)
	dir, err := os.MkdirTemp("", "accr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var list strings.Builder
	for _, g := range grants {
		g, _, _ = strings.Cut(g, " TO ")
		fmt.Fprintf(&list, "<query>%s</query>", g)
	}
	users := filepath.Join(dir, "users.xml")
	for path, text := range map[string]string{
		filepath.Join(dir, "c.xml"): "<clickhouse><users_config>" + users + "</users_config><user_directories><users_xml><path>" + users + "</path></users_xml></user_directories></clickhouse>",
		users: "<clickhouse><profiles><default/></profiles><quotas><default/></quotas><users><default><password></password><networks><ip>::/0</ip></networks>" +
			"<profile>default</profile><quota>default</quota><grants>" + list.String() + "</grants></default></users></clickhouse>",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := embedded.Start(context.Background(), embedded.Options{Data: filepath.Join(dir, "d"), Config: filepath.Join(dir, "c.xml"), Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatalf("start the engine: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s.Socket()
}

// A login that has the grants of the page, and no others, does all that the
// accounting does; of one that lacks some, the doctor says which.
func TestGrants(t *testing.T) {
	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	log := spanning(t, spec.Instant(april.AddDate(0, 0, -1).UnixNano()), 2*spec.Day)
	ledger := newLedger(t)
	ledger.add(t, log, 25)
	grants := clickhouse.Grants("muster", "muster", clickhouse.Layout{})
	r := newRig(t, restricted(t, grants), ledger)
	r.cfg.Archive = t.TempDir()
	r.clock.set(spec.Instant(april.AddDate(0, 0, 5).UnixNano()))
	r.start()
	r.stored(log[len(log)-1].Seq)
	if got, w := r.rows(), want(t, log); got != w {
		t.Errorf("with the grants:\n%s\nwant\n%s", got, w)
	}
	for _, verb := range []string{"doctor", "verify"} {
		if bad := r.care(verb, ""); bad != nil {
			t.Errorf("%s: %v", verb, bad)
		}
	}
	for _, verb := range []string{"archive", "purge", "unarchive"} {
		if bad := r.care(verb, "2026-03"); bad != nil {
			t.Errorf("%s: %v", verb, bad)
		}
	}
	r.care("backup", "b")
	r.care("restore", "b")
	if rows := r.acct(&apiv1.AcctQuery{AllUsers: true, Start: 1}); len(rows) == 0 {
		t.Error("sacct shows nothing")
	}
	if bad := r.care("verify", ""); bad != nil {
		t.Errorf("after a backup was restored: %v", bad)
	}
}

// TestGrantsMissing (everybody may read system.* of this engine): without the rights that only care needs, what is not care
// works, and the doctor prints the statements that are missing, and no others.
func TestGrantsMissing(t *testing.T) {
	log := busy(t, 30)
	ledger := newLedger(t)
	ledger.add(t, log, 10)
	var have, lack []string
	for _, g := range clickhouse.Grants("muster", "default", clickhouse.Layout{}) {
		if strings.Contains(g, "BACKUP") || strings.Contains(g, "_restored") {
			lack = append(lack, g)
		} else {
			have = append(have, g)
		}
	}
	r := newRig(t, restricted(t, have), ledger)
	r.start()
	r.stored(uint64(len(log)))
	if got, w := r.rows(), want(t, log); got != w {
		t.Errorf("with some grants:\n%s\nwant\n%s", got, w)
	}
	said := strings.Join(r.care("doctor", ""), "\n")
	for _, g := range lack {
		if !strings.Contains(said, g) {
			t.Errorf("the doctor does not say %s:\n%s", g, said)
		}
	}
	for _, g := range have {
		if strings.Contains(said, g) {
			t.Errorf("the doctor misses %s, which is there:\n%s", g, said)
		}
	}
	s := &careStream{ctx: t.Context()}
	if err := r.Service().Maintain(&apiv1.MaintainRequest{Verb: "backup", Name: "b"}, s); err == nil || !strings.Contains(err.Error(), "BACKUP") {
		t.Errorf("a backup without the right to one: %v", err)
	}
}
