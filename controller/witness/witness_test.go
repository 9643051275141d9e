package witness

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/ledger/store/storetest"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// TestRefusesAnotherRole: a host that is no witness by its configuration does not run as one.
func TestRefusesAnotherRole(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "slurm.conf")
	text := "ClusterName=peer\nSlurmctldHost=ctl1\nNodeName=n1 CPUs=1\nPartitionName=main Nodes=ALL\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Run(t.Context(), Options{
		Config:  &conffile.Config{SlurmConf: conf, StateDir: dir},
		Cluster: "peer",
		Log:     slog.New(slog.DiscardHandler),
	})
	if err == nil || !strings.Contains(err.Error(), "witness") {
		t.Errorf("it runs: %v", err)
	}
}

// TestMayForget: the log forgets what every controller has, and keeps what one lacks or did not
// say.
func TestMayForget(t *testing.T) {
	at := func(name string, position uint64) peers.Answer {
		a := peers.Answer{Of: conffile.Controller{Name: name}}
		a.Standing.Position = position
		return a
	}
	away := peers.Answer{Of: conffile.Controller{Name: "ctl2"}, Err: errors.New("no route")}
	folder := storetest.NewFolder(t)
	if err := os.MkdirAll(filepath.Join(folder.Dir, "ledger", "raft"), 0o700); err != nil {
		t.Fatal(err)
	}
	err := folder.Run(func(l *log.Durable, _ *daemon.Machine, _ *store.Archive) {
		w := &witness{
			of: Options{
				Config: &conffile.Config{StateDir: folder.Dir},
				Log:    slog.New(slog.DiscardHandler),
			},
			durable: l,
		}
		for _, c := range []struct {
			said []peers.Answer
			want string // part of the refusal; "" = it may
		}{
			{nil, "every controller"},
			{[]peers.Answer{at("ctl1", 10), at("ctl2", 12)}, ""},
			{[]peers.Answer{at("ctl1", 10), at("ctl2", 9)}, "ctl2 lacks"},
			{[]peers.Answer{at("ctl1", 10), away}, "ctl2 lacks"},
		} {
			w.said = c.said
			err := w.mayForget(10)
			if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%+v: %v, want %q", c.said, err, c.want)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReporter: a failure that repeats is reported once, and every success is reported.
func TestReporter(t *testing.T) {
	var lines []string
	w := &witness{of: Options{Log: slog.New(slog.NewTextHandler(lineWriter{&lines}, nil))}}
	report := w.newReporter()
	for _, err := range []error{errors.New("a"), errors.New("a"), nil, nil, errors.New("a")} {
		report(err)
	}
	var got []string
	for _, line := range lines {
		_, outcome, _ := strings.Cut(strings.TrimSpace(line), "outcome=")
		got = append(got, outcome)
	}
	want := []string{"a", `"handed over"`, `"handed over"`, "a"}
	if !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}

// lineWriter collects lines.
type lineWriter struct{ lines *[]string }

func (w lineWriter) Write(line []byte) (int, error) {
	*w.lines = append(*w.lines, string(line))
	return len(line), nil
}
