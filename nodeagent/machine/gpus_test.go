package machine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/nodeagent/settings"
)

// TestChooseGPUs: declared GPUs are simulated where there are no real ones, without files that
// do not exist, and telemetry.provider decides.
func TestChooseGPUs(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"slurm.conf": "ClusterName=c\nSlurmctldHost=ctl1\nGresTypes=gpu\n" +
			"NodeName=n1 CPUs=8 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 Gres=gpu:h100:2,gpu:a100:1\n" +
			"PartitionName=p Nodes=ALL\n",
		"gres.conf": "AutoDetect=off\nNodeName=n1 Name=gpu Type=h100 File=/dev/nvidia[0-1] Cores=0-1\n" +
			"NodeName=n1 Name=gpu Type=a100 Count=1\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := settings.Read(settings.Options{
		ConfigFile: filepath.Join(dir, "muster.yaml"),
		Conf:       filepath.Join(dir, "slurm.conf"),
		Node:       "n1",
	})
	if err != nil {
		t.Fatal(err)
	}
	choice, err := ChooseGPUs(t.Context(), s, clock.NewSystem())
	if err != nil || choice.Provider == nil || choice.Provider.Name() != "simulated" {
		t.Fatalf("%+v %v", choice, err)
	}
	devices, err := SimulatedGPUs{choice.Provider.(*simulated.Provider)}.Inventory(t.Context())
	if err != nil || len(devices) != 3 {
		t.Fatalf("%+v %v", devices, err)
	}
	for _, d := range devices {
		for _, f := range d.Files {
			if _, err := os.Stat(f); err != nil {
				t.Errorf("a job would be given %s, which does not exist", f)
			}
		}
	}
	s.Config.Telemetry.Provider = "dcgm"
	if choice, err := ChooseGPUs(t.Context(), s, clock.NewSystem()); err != nil || choice.Provider != nil && choice.Provider.Name() != "dcgm" {
		t.Errorf("telemetry.provider is ignored: %+v %v", choice, err)
	}
}
