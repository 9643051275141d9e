package machine

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// nodeSettings are those of a node n1 with a state folder of its own.
func nodeSettings(t *testing.T) *settings.Settings {
	t.Helper()
	s := &settings.Settings{
		Config: conffile.Defaults(),
		Cluster: &slurmconf.Cluster{
			File:   &slurmconf.File{Config: spec.Config{}},
			Cgroup: &slurmconf.Cgroup{},
			Gather: &slurmconf.GatherFile{},
		},
		Node: &spec.NodeSpec{Name: "n1"},
	}
	s.StateDir = t.TempDir()
	return s
}

// TestLockDir: a state folder is of one agent, until that one lets go of it.
func TestLockDir(t *testing.T) {
	dir := t.TempDir()
	unlock, err := LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockDir(dir); err == nil || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("a second agent: %v", err)
	}
	unlock()
	unlock, err = LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

// TestCheckShepherd: a shepherd that is not there, and a folder whose socket no kernel takes.
func TestCheckShepherd(t *testing.T) {
	s := nodeSettings(t)
	s.StateDir = "/s"
	s.Shepherd = filepath.Join(t.TempDir(), "missing")
	if err := CheckShepherd(s, "1"); err == nil || !strings.Contains(err.Error(), "--shepherd") {
		t.Errorf("a missing shepherd: %v", err)
	}
	s.StateDir = "/" + strings.Repeat("long/", 30)
	if err := CheckShepherd(s, "1"); err == nil || !strings.Contains(err.Error(), "shorter --state-dir") {
		t.Errorf("a long folder: %v", err)
	}
}

// TestShepherdConfig: CgroupPlugin of cgroup.conf chooses the mode, and a version becomes a file
// name.
func TestShepherdConfig(t *testing.T) {
	for plugin, want := range map[string][]string{
		"autodetect": nil,
		"cgroup/v1":  {"--cgroup-mode", "v1"},
		"cgroup/v2":  {"--cgroup-mode", "v2"},
		"disabled":   {"--cgroup-mode", "none"},
	} {
		s := nodeSettings(t)
		s.Cluster.Cgroup.Plugin = plugin
		cfg := ShepherdConfig(s, "v1/dirty")
		if !slices.Equal(cfg.Args, want) || cfg.Release != "v1-dirty" || cfg.Node != "n1" {
			t.Errorf("CgroupPlugin=%s: %+v", plugin, cfg)
		}
	}
}

// TestWeaknesses: what is noted is what the node says of itself, in order.
func TestWeaknesses(t *testing.T) {
	w := NewWeaknesses(slog.New(slog.DiscardHandler))
	if w.String() != "" {
		t.Errorf("nothing is weak, and it says %q", w)
	}
	w.Note(errors.New("no clocks"))
	w.Add("no root")
	if got := w.String(); got != "no clocks; no root" {
		t.Errorf("it says %q", got)
	}
}

// TestOpening: an adapter that cannot be opened is a weakness and stops nothing.
func TestOpening(t *testing.T) {
	s := nodeSettings(t)
	s.Config.Energy.Source = "redfish" // without an address
	weak := NewWeaknesses(slog.New(slog.DiscardHandler))
	o := Opening{Settings: s, Weaknesses: weak, Log: slog.New(slog.DiscardHandler)}
	var cfg daemon.Config
	if meter := o.Meter(&cfg, 0); meter != nil || weak.String() == "" || cfg.EnergySource != "" {
		t.Errorf("meter %v, weaknesses %q, source %q", meter, weak, cfg.EnergySource)
	}
	if clocks := o.Clocks(nil); clocks != nil {
		t.Errorf("clocks without GPUs: %v", clocks)
	}
	s.Config.Health.Interval = spec.Infinite
	if rules, err := o.HealthRules(nil, nil); rules != nil || err != nil {
		t.Errorf("rules that nobody asks for: %v, %v", rules, err)
	}
	var deps daemon.Deps
	s.Cluster.Gather.OFEDPort = 2
	s.Cluster.File.Agent.Gather.FilesystemEvery = spec.Infinite
	o.SetCounters(&cfg, &deps)
	counters, ok := deps.Counters.(*Counters)
	if !ok || counters.Options.Port != 2 || !counters.Options.NoFilesystems || counters.Options.NoFabric {
		t.Errorf("counters %+v", deps.Counters)
	}
}
