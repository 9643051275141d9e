// Package declared serves the devices that a site declares with File= in
// gres.conf and that no library reads: those of another vendor, or device files
// of a lab without a driver. It hands them out and lets them be fenced. It
// measures nothing: every figure is absent, none is made up.
package declared

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec"
)

// ErrNoClocks is what setting or listing clocks returns.
var ErrNoClocks = errors.New("declared GPUs have no clocks to set: no driver library reads them")

// Provider is a gpu.Provider over device files.
type Provider struct {
	mu      sync.Mutex
	devices []device.Device
	closed  bool
}

var _ gpu.Provider = (*Provider)(nil)

// New serves these devices, each of which has at least one file. A device whose
// first file is not a character device at that moment, or at a later look, is
// lost.
func New(devices []device.Device) (*Provider, error) {
	if len(devices) == 0 {
		return nil, fmt.Errorf("no device file is declared: %w", gpu.ErrUnavailable)
	}
	list := slices.Clone(devices)
	for i := range list {
		if len(list[i].Files) == 0 {
			return nil, fmt.Errorf("declared GPU %d has no device file", list[i].Index)
		}
		list[i].Model = "Declared GPU"
		if list[i].Type != "" {
			list[i].Model = "Declared " + list[i].Type
		}
		list[i].MemoryMiB = 0 // unknown
		list[i].Driver = ""
	}
	return &Provider{devices: list}, nil
}

// Exists reports whether a path is a character device.
func Exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Name is "declared".
func (p *Provider) Name() string { return "declared" }

// Note is what the node says of itself for as long as it has such devices.
func (p *Provider) Note() string {
	return "GPUs are the device files that gres.conf declares; no driver library reads them, so they have no figures"
}

// Inventory lists the devices.
func (p *Provider) Inventory(ctx context.Context) ([]device.Device, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkUsable(ctx); err != nil {
		return nil, err
	}
	devices := slices.Clone(p.devices)
	for i := range devices {
		devices[i].CPUs = slices.Clone(devices[i].CPUs)
		devices[i].Links = slices.Clone(devices[i].Links)
		devices[i].Files = slices.Clone(devices[i].Files)
		devices[i].Lost = !Exists(devices[i].Files[0])
	}
	return devices, nil
}

// Sample gives each device a reading without values.
func (p *Provider) Sample(ctx context.Context, now spec.Instant, dst *device.Sample) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkUsable(ctx); err != nil {
		return err
	}
	dst.At = now
	dst.Resize(len(p.devices))
	for i := range p.devices {
		reading := &dst.Readings[i]
		reading.UUID = p.devices[i].UUID
		reading.Lost = !Exists(p.devices[i].Files[0])
		reading.Values = reading.Values[:0]
	}
	return nil
}

// Processes appends nothing: which processes hold a device is not known.
func (p *Provider) Processes(ctx context.Context, dst []device.Process) ([]device.Process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return dst, p.checkUsable(ctx)
}

// Events appends nothing: there is no driver to report any.
func (p *Provider) Events(
	ctx context.Context,
	_ spec.Instant,
	dst []device.Event,
) ([]device.Event, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return dst, p.checkUsable(ctx)
}

// ListClocks fails with ErrNoClocks.
func (p *Provider) ListClocks(context.Context, string) ([]device.Clocks, error) {
	return nil, ErrNoClocks
}

// SetClocks fails with ErrNoClocks.
func (p *Provider) SetClocks(context.Context, string, device.Clocks) (device.Clocks, error) {
	return device.Clocks{}, ErrNoClocks
}

// ResetClocks fails with ErrNoClocks.
func (p *Provider) ResetClocks(context.Context, string, device.Clocks) error { return ErrNoClocks }

// Close ends the provider.
func (p *Provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

// checkUsable refuses a closed provider and a finished context. Callers hold mu.
func (p *Provider) checkUsable(ctx context.Context) error {
	if p.closed {
		return gpu.ErrClosed
	}
	return ctx.Err()
}
