package assembly

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/nodeagent/machine"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// newParts are the parts of an agent of a node that is not opened.
func newParts(t *testing.T) *assembled {
	t.Helper()
	cluster := &slurmconf.Cluster{File: &slurmconf.File{Config: spec.Config{ClusterName: "lab"}}}
	return &assembled{
		s: &settings.Settings{
			Config:  conffile.Defaults(),
			Cluster: cluster,
			Node:    &spec.NodeSpec{Name: "n1"},
		},
		version: "1.2",
		log:     slog.New(slog.DiscardHandler),
		weak:    machine.NewWeaknesses(slog.New(slog.DiscardHandler)),
	}
}

// TestExporterWithoutItsFields: a file of GPU fields that cannot be read leaves the exporter with
// its default fields, and the node with a weakness that names the file.
func TestExporterWithoutItsFields(t *testing.T) {
	a := newParts(t)
	a.s.Config.Telemetry.CountersFile = filepath.Join(t.TempDir(), "fields.csv")
	options, err := a.exporterOptions()
	if err != nil {
		t.Fatal(err)
	}
	if options.Counters != nil || options.Cluster != "lab" || options.Node != "n1" ||
		options.Version != "1.2" {
		t.Errorf("options %+v", options)
	}
	if text := a.weak.String(); !strings.Contains(text, "fields.csv") {
		t.Errorf("weaknesses: %q", text)
	}
}

// TestExporterHidesJobs: where slurm.conf hides jobs and the page asks nobody for a password, the
// metrics name no job.
func TestExporterHidesJobs(t *testing.T) {
	a := newParts(t)
	a.s.Cluster.Config.Private = []string{"jobs"}
	options, err := a.exporterOptions()
	if err != nil || !options.Private {
		t.Errorf("private %t, %v", options.Private, err)
	}
	a.s.Config.Telemetry.JobLabels = "some"
	if _, err := a.exporterOptions(); err == nil {
		t.Error("job_labels: some was taken")
	}
}

// TestDeclaredGPUsAreMissed: a node that declares GPUs and finds none says why; one that declares
// none says nothing.
func TestDeclaredGPUsAreMissed(t *testing.T) {
	a := newParts(t)
	a.noteGPUs("no library of NVIDIA")
	if text := a.weak.String(); text != "" {
		t.Errorf("weaknesses of a node without GPUs: %q", text)
	}
	a.s.Node.GRES = []spec.GRESSpec{{Name: "gpu", N: 4}}
	a.noteGPUs("no library of NVIDIA")
	if text := a.weak.String(); text != "no library of NVIDIA" {
		t.Errorf("weaknesses: %q", text)
	}
}
