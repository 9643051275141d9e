package clocks_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/gpu/clocks"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/spec"
)

// rig is a node with two simulated devices, which keep their clocks when the
// keeper goes, as real ones do.
type rig struct {
	t     *testing.T
	gpus  *simulated.Provider
	uuids []string
	file  string
}

func newRig(t *testing.T) *rig {
	p, err := simulated.New(simulated.Config{Node: "n1", Start: spec.AtUnix(1_800_000_000), Lines: []simulated.Declared{{Type: "h100", Count: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, gpus: p, file: filepath.Join(t.TempDir(), "clocks.json")}
	devices, err := p.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		r.uuids = append(r.uuids, d.UUID)
	}
	return r
}

func (r *rig) open() *clocks.Keeper {
	r.t.Helper()
	k, err := clocks.Open(r.file, r.gpus)
	if err != nil {
		r.t.Fatal(err)
	}
	return k
}

// memory is the memory clock of a device now.
func (r *rig) memory(i int) int64 {
	r.t.Helper()
	var s device.Sample
	if err := r.gpus.Sample(r.t.Context(), spec.AtUnix(1_800_000_001), &s); err != nil {
		r.t.Fatal(err)
	}
	n, _ := s.Find(r.uuids[i]).Get(device.MemClock)
	return n
}

func ask(t *testing.T, text string) spec.GPUFreq {
	t.Helper()
	f, err := spec.ParseGPUFreq(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTuneAndKeep(t *testing.T) {
	r := newRig(t)
	k := r.open()
	high := r.memory(0)
	done, failed := k.Tune(t.Context(), "1.1", r.uuids, ask(t, "medium,memory=low"))
	if len(done) != 1 || !strings.HasPrefix(done[0], "GpuFreq=memory_freq:") || len(failed) > 0 {
		t.Errorf("%q %q", done, failed)
	}
	if r.memory(0) != high/2 || r.memory(1) != high/2 {
		t.Errorf("memory runs at %d and %d", r.memory(0), r.memory(1))
	}
	if err := k.Keep(t.Context(), []string{"1.1"}); err != nil || r.memory(0) != high/2 {
		t.Errorf("%d %v", r.memory(0), err)
	}
	// The next job has the first device before the end of the last is noticed:
	// only the other is set back, and in the end both.
	if _, failed := k.Tune(t.Context(), "2.1", r.uuids[:1], ask(t, "memory=low")); len(failed) > 0 {
		t.Error(failed)
	}
	if err := k.Keep(t.Context(), []string{"2.1"}); err != nil || r.memory(0) != high/2 || r.memory(1) != high {
		t.Errorf("%d %d %v", r.memory(0), r.memory(1), err)
	}
	if err := k.Keep(t.Context(), nil); err != nil || r.memory(0) != high {
		t.Errorf("%d %v", r.memory(0), err)
	}
	if _, err := os.Stat(r.file); err == nil {
		t.Error("nothing is set, and the file says otherwise")
	}
}

// TestKilled: an agent that is killed at any moment leaves nothing behind that
// the next one does not set back.
func TestKilled(t *testing.T) {
	r := newRig(t)
	high := r.memory(0)
	if _, failed := r.open().Tune(t.Context(), "1.1", r.uuids, ask(t, "low,memory=low")); len(failed) > 0 {
		t.Fatal(failed)
	}
	k := r.open() // another process
	if err := k.Keep(t.Context(), []string{"1.1"}); err != nil || r.memory(0) != high/2 {
		t.Errorf("the job still runs, its memory at %d: %v", r.memory(0), err)
	}
	if err := k.Keep(t.Context(), nil); err != nil || r.memory(0) != high || r.memory(1) != high {
		t.Errorf("%d %d %v", r.memory(0), r.memory(1), err)
	}
	// Between the note and the setting, and between the setting and the note of
	// what was before.
	for _, set := range []bool{false, true} {
		g := &dying{Provider: r.gpus, set: set}
		k, err := clocks.Open(r.file, g)
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { _ = recover() }()
			k.Tune(t.Context(), "3.1", r.uuids[:1], ask(t, "memory=low"))
			t.Error("it lives")
		}()
		if err := r.open().Keep(t.Context(), nil); err != nil || r.memory(0) != high {
			t.Errorf("%d %v", r.memory(0), err)
		}
	}
}

// dying is a device whose agent dies in the middle of setting it.
type dying struct {
	*simulated.Provider
	set bool
}

func (d *dying) SetClocks(ctx context.Context, uuid string, c device.Clocks) (device.Clocks, error) {
	if d.set {
		_, _ = d.Provider.SetClocks(ctx, uuid, c)
	}
	panic("killed")
}

// refusing is a driver that permits nothing.
type refusing struct{ *simulated.Provider }

func (refusing) SetClocks(context.Context, string, device.Clocks) (device.Clocks, error) {
	return device.Clocks{}, errors.New("the driver does not permit it")
}

func TestRefusals(t *testing.T) {
	r := newRig(t)
	k, err := clocks.Open(r.file, refusing{r.gpus})
	if err != nil {
		t.Fatal(err)
	}
	done, failed := k.Tune(t.Context(), "1.1", r.uuids[:1], ask(t, "low"))
	if len(done) > 0 || len(failed) != 1 || failed[0] != "the clocks of "+r.uuids[0]+" stay as they are: the driver does not permit it" {
		t.Errorf("%q %q", done, failed)
	}
	if _, err := os.Stat(r.file); err == nil {
		t.Error("what was refused is to be set back")
	}
	// What cannot be noted is not done, since it could not be undone.
	bad, err := clocks.Open(filepath.Join(r.file, "below", "a", "file"), r.gpus)
	if err != nil {
		t.Fatal(err)
	}
	if _, failed := bad.Tune(t.Context(), "1.1", r.uuids[:1], ask(t, "memory=low")); len(failed) != 1 || !strings.Contains(failed[0], "cannot be noted") {
		t.Errorf("%q", failed)
	}
	high := r.memory(1)
	if r.memory(0) != high {
		t.Errorf("it was set to %d nevertheless", r.memory(0))
	}
	// A device that is lost is tried again.
	good := r.open()
	if _, failed := good.Tune(t.Context(), "2.1", r.uuids, ask(t, "memory=low")); len(failed) > 0 {
		t.Fatal(failed)
	}
	at := spec.AtUnix(1_800_000_002)
	if err := r.gpus.Inject(at, r.uuids[0], simulated.Fault{Kind: simulated.FaultLost}); err != nil {
		t.Fatal(err)
	}
	if err := good.Keep(t.Context(), nil); err == nil || !strings.Contains(err.Error(), r.uuids[0]) || strings.Contains(err.Error(), r.uuids[1]) {
		t.Errorf("%v", err)
	}
	if err := r.gpus.Heal(at, r.uuids[0]); err != nil {
		t.Fatal(err)
	}
	if err := good.Keep(t.Context(), nil); err != nil || r.memory(0) != high {
		t.Errorf("%d %v", r.memory(0), err)
	}
	if err := os.WriteFile(r.file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := clocks.Open(r.file, r.gpus); err == nil || !strings.Contains(err.Error(), r.file) {
		t.Errorf("%v", err)
	}
}
