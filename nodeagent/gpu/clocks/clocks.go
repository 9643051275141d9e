// Package clocks sets the frequencies of GPUs for jobs that ask for some, and
// sets them back when the jobs are over, whatever happened to the agent in
// between.
//
// What is set outlives the process that set it, so what a device was before is
// on disk before it is changed. Setting back follows from which jobs there
// still are, not from hearing of an end: Keep may be called at any time, and an
// agent that was killed does it when it is back.
package clocks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec"
)

// entry is one device whose clocks are set.
type entry struct {
	Owner  string        `json:"owner"`
	Before device.Clocks `json:"before"`
	Known  bool          `json:"known"` // Before has been read: without it, the device's own are restored
}

// Keeper sets clocks and knows which.
type Keeper struct {
	gpus gpu.Clocks
	file string

	mu  sync.Mutex
	set map[string]entry // by UUID
}

// Open reads what an earlier agent of this node had set.
func Open(file string, gpus gpu.Clocks) (*Keeper, error) {
	keeper := &Keeper{gpus: gpus, file: file, set: map[string]entry{}}
	data, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return keeper, nil
	case err != nil:
		return nil, err
	}
	if err := json.Unmarshal(data, &keeper.set); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return keeper, nil
}

// Tune sets the devices of an owner, and gives a line for each group of devices
// that was set to the same and one for each that was not.
func (k *Keeper) Tune(
	ctx context.Context,
	owner string,
	uuids []string,
	requested spec.GPUFreq,
) (done, failed []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, uuid := range uuids {
		clocks, err := k.tuneDevice(ctx, owner, uuid, requested)
		if err != nil {
			failed = append(failed, fmt.Sprintf("the clocks of %s stay as they are: %v", uuid, err))
			continue
		}
		if line := fmt.Sprintf("GpuFreq=memory_freq:%d,graphics_freq:%d", clocks.Memory, clocks.Graphics); !slices.Contains(
			done,
			line,
		) {
			done = append(done, line)
		}
	}
	return done, failed
}

func (k *Keeper) tuneDevice(
	ctx context.Context,
	owner, uuid string,
	requested spec.GPUFreq,
) (device.Clocks, error) {
	list, err := k.gpus.ListClocks(ctx, uuid)
	if err != nil {
		return device.Clocks{}, err
	}
	want, ok := pickPair(list, requested)
	if !ok {
		return want, errors.New("the device names no clocks that it can run at")
	}
	old, was := k.set[uuid]
	fresh := old // of a job whose clocks were not set back yet
	fresh.Owner = owner
	if !was {
		fresh.Before, fresh.Known = device.Clocks{}, false
	}
	k.set[uuid] = fresh
	if err := k.saveSettings(); err != nil {
		k.forgetDevice(uuid, old, was)
		return want, fmt.Errorf("they could not be set back, since that cannot be noted: %w", err)
	}
	before, err := k.gpus.SetClocks(ctx, uuid, want)
	if err != nil {
		k.forgetDevice(uuid, old, was)
		return want, errors.Join(err, k.saveSettings())
	}
	if !was {
		k.set[uuid] = entry{owner, before, true}
		return want, k.saveSettings()
	}
	return want, nil
}

func (k *Keeper) forgetDevice(uuid string, old entry, was bool) {
	delete(k.set, uuid)
	if was {
		k.set[uuid] = old
	}
}

// pickPair chooses the pair that is asked for. Without a word about one of the two
// it is the highest, as it is on a device that nobody set.
func pickPair(list []device.Clocks, requested spec.GPUFreq) (device.Clocks, bool) {
	for _, freqAsk := range [...]*spec.FreqAsk{&requested.GPU, &requested.Memory} {
		if freqAsk.Level == spec.FreqAny {
			freqAsk.Level = spec.FreqHigh
		}
	}
	var memory, graphics []uint32
	for _, clocks := range list {
		memory = append(memory, clocks.Memory)
	}
	m := requested.Memory.Pick(memory)
	for _, clocks := range list {
		if clocks.Memory == m {
			graphics = append(graphics, clocks.Graphics)
		}
	}
	return device.Clocks{Memory: m, Graphics: requested.GPU.Pick(graphics)}, len(graphics) > 0
}

// Keep sets back the devices of all owners but these. What fails is tried again
// at the next call; the error names each device.
func (k *Keeper) Keep(ctx context.Context, owners []string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var failed []error
	changed := false
	for _, uuid := range slices.Sorted(maps.Keys(k.set)) {
		e := k.set[uuid]
		if slices.Contains(owners, e.Owner) {
			continue
		}
		err := k.gpus.ResetClocks(ctx, uuid, e.Before)
		if err != nil && !e.Known {
			// It may have been locked or set; the one that it was not is refused.
			err = k.gpus.ResetClocks(ctx, uuid, device.Clocks{Locked: true})
		}
		if err != nil {
			failed = append(
				failed,
				fmt.Errorf(
					"the clocks of %s, set for %s, are not set back: %w",
					uuid,
					e.Owner,
					err,
				),
			)
			continue
		}
		delete(k.set, uuid)
		changed = true
	}
	if changed {
		failed = append(failed, k.saveSettings())
	}
	return errors.Join(failed...)
}

// saveSettings writes what is set. It is not synced: a machine that loses its power
// loses the settings too.
func (k *Keeper) saveSettings() error {
	if len(k.set) == 0 {
		if err := os.Remove(k.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	buffer, err := json.MarshalIndent(k.set, "", "\t")
	if err != nil {
		return err
	}
	fresh := k.file + ".new"
	if err := os.WriteFile(fresh, append(buffer, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, k.file)
}
