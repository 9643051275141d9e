package declared_test

import (
	"errors"
	"testing"

	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/declared"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
)

// TestDeclaredDevicesHaveFilesAndNoFigures: a device that is there can be handed
// out, one whose file is gone is lost, and nothing is measured.
func TestDeclaredDevicesHaveFilesAndNoFigures(t *testing.T) {
	provider, err := declared.New([]device.Device{
		{UUID: "GPU-a", Type: "h100", MemoryMiB: 81559, Files: []string{"/dev/null"}},
		{UUID: "GPU-b", Index: 1, Files: []string{t.TempDir() + "/missing"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	devices, err := provider.Inventory(t.Context())
	if err != nil || len(devices) != 2 {
		t.Fatalf("%v %v", devices, err)
	}
	if devices[0].Lost || devices[0].Model != "Declared h100" || devices[0].MemoryMiB != 0 {
		t.Errorf("the device that is there: %+v", devices[0])
	}
	if !devices[1].Lost {
		t.Errorf("a device without its file is not lost: %+v", devices[1])
	}
	var sample device.Sample
	if err := provider.Sample(t.Context(), 7, &sample); err != nil {
		t.Fatal(err)
	}
	for _, reading := range sample.Readings {
		if len(reading.Values) > 0 {
			t.Errorf("%s has figures: %v", reading.UUID, reading.Values)
		}
	}
	if sample.Readings[0].Lost || !sample.Readings[1].Lost {
		t.Errorf("readings: %+v", sample.Readings)
	}
	if err := provider.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := provider.Inventory(t.Context()); !errors.Is(err, gpu.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := declared.New(nil); !errors.Is(err, gpu.ErrUnavailable) {
		t.Errorf("no device: %v", err)
	}
}
