package jobcomp_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/jobcomp"
	"github.com/musterhpc/muster/ledger/store/storetest"
	"github.com/musterhpc/muster/spec"
)

// TestJobCompletionFile: each job that ended has one line, also those whose
// line a crash kept from being written, or from being noted.
func TestJobCompletionFile(t *testing.T) {
	w := storetest.NewWorld(t)
	dir := t.TempDir()
	path, mark := filepath.Join(dir, "comp"), filepath.Join(dir, "mark")
	lines := func() string {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(regexp.MustCompile(`JobId=\d+`).FindAllString(string(data), -1), " ")
	}
	life := func(ends ...spec.JobUID) {
		t.Helper()
		c := jobcomp.Open(path, mark, slog.New(slog.DiscardHandler))
		if err := c.CatchUp(w.Archive, w.Codec, w.History.State); err != nil {
			t.Fatal(err)
		}
		for _, uid := range ends {
			w.History.EndBy(uid, spec.Cancelled, spec.ExitStatus{}, 0)
			c.Committed(w.History.State, w.History.Log[len(w.History.Log)-1:])
			w.Archived()
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	one, two, three, four := w.Job("1"), w.Job("2"), w.Job("3"), w.Job("4")
	life(one)
	if got := lines(); got != "JobId=1" {
		t.Errorf("%q", got)
	}
	// A life that died before it wrote, and one that died before it noted what
	// it had written.
	w.History.EndBy(two, spec.Cancelled, spec.ExitStatus{}, 0)
	w.Archived()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("JobId=2 UserId=u(0) half a li"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	life(three)
	if got := lines(); got != "JobId=1 JobId=2 JobId=3" {
		t.Errorf("%q", got)
	}
	life()
	if got := lines(); got != "JobId=1 JobId=2 JobId=3" {
		t.Errorf("a life in which nothing ended: %q", got)
	}
	// The site has rotated the file away: the new one is not cut.
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("# by the site\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	life(four)
	if data, _ := os.ReadFile(path); lines() != "JobId=4" || !strings.HasPrefix(string(data), "# by the site\n") {
		t.Errorf("after the rotation: %q", data)
	}
}
