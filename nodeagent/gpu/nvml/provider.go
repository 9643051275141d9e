//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/gpu/sysfs"
	"github.com/musterhpc/muster/spec"
)

// Config says where the library is; empty means where the system finds it.
type Config struct {
	Library string
	Sys     fs.FS // /sys; nil means the machine's
}

// part is a device or a MIG instance that gives a reading.
type part struct {
	uuid   string
	handle nvml.Device
	mig    bool
	device bool // a whole device that is cut into instances gives no memory or use of its own
	lost   bool
}

// Provider is a gpu.Provider over NVML.
type Provider struct {
	sys     fs.FS
	library string // as configured

	mu      sync.Mutex
	lib     nvml.Interface
	readers []reader
	parts   []part
	lastXID map[string]int64
	set     nvml.EventSet
	watch   bool // set is live
	events  []device.Event
	closed  bool
}

var _ gpu.Provider = (*Provider)(nil)

// Open loads the library and lists the devices.
func Open(ctx context.Context, config Config) (gpu.Provider, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if config.Sys == nil {
		config.Sys = os.DirFS("/sys")
	}
	var opts []nvml.LibraryOption
	if config.Library != "" {
		opts = append(opts, nvml.WithLibraryPath(config.Library))
	}
	lib := nvml.New(opts...)
	switch ret := lib.Init(); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		if _, err := os.Stat(config.Library); err == nil {
			return nil, fmt.Errorf(
				"%s cannot be loaded: it is no library for this machine, or this user may not read it",
				config.Library,
			)
		}
		return nil, fmt.Errorf("libnvidia-ml.so.1 is not installed: %w", gpu.ErrUnavailable)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return nil, fmt.Errorf("the NVIDIA driver is not loaded: %w", gpu.ErrUnavailable)
	default:
		return nil, fmt.Errorf("starting NVML: %w", because(ret))
	}
	provider := &Provider{
		sys: config.Sys, library: config.Library, lib: lib, lastXID: map[string]int64{},
	}
	provider.readers = slices.DeleteFunc(readers(), func(r reader) bool {
		return !hasSymbol(lib, r.symbol)
	})
	if _, err := provider.listDevices(); err != nil {
		return nil, errors.Join(err, provider.Close())
	}
	provider.listenForErrors()
	return provider, nil
}

// because is an answer of the driver as an error, with the cure where somebody
// on this machine has it.
func because(ret nvml.Return) error {
	switch ret {
	case nvml.ERROR_NO_PERMISSION:
		return fmt.Errorf(
			"this user may not use the devices: run the agent as root, or let its group read and write /dev/nvidia*: %w",
			ret,
		)
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return fmt.Errorf(
			"the driver's library was updated and the driver that is loaded was not: load the new one, or restart the machine: %w",
			ret,
		)
	}
	return ret
}

// hasSymbol tells whether the loaded library knows a function.
func hasSymbol(lib nvml.Interface, symbol string) bool {
	return lib.Extensions().LookupSymbol(symbol) == nil
}

// Name is "nvml".
func (p *Provider) Name() string { return "nvml" }

// Inventory asks the driver for its devices anew.
func (p *Provider) Inventory(ctx context.Context) ([]device.Device, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkUsable(ctx); err != nil {
		return nil, err
	}
	return p.listDevices()
}

// Sample reads every device and instance.
func (p *Provider) Sample(ctx context.Context, now spec.Instant, dst *device.Sample) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkUsable(ctx); err != nil {
		return err
	}
	p.drainEvents(now)
	dst.At = now
	dst.Resize(len(p.parts))
	for i := range p.parts {
		reading := &dst.Readings[i]
		reading.UUID, reading.Values = p.parts[i].uuid, reading.Values[:0]
		p.readPart(&p.parts[i], now, reading)
	}
	return nil
}

// readPart fills one reading. A device that is gone is marked and noted once.
func (p *Provider) readPart(x *part, now spec.Instant, reading *device.Reading) {
	was := x.lost
	x.lost = false
	for i := range p.readers {
		q := &p.readers[i]
		if (x.mig && !q.mig) || (x.device && q.mig) {
			continue
		}
		if ret := q.read(x.handle, reading); gone(ret) {
			x.lost = true
			break
		}
	}
	reading.Lost = x.lost
	if x.lost {
		reading.Values = reading.Values[:0]
		if !was {
			p.noteEvent(
				device.Event{
					At:   now,
					Kind: device.EventLost,
					UUID: x.uuid,
					Text: "the device does not answer",
				},
			)
		}
		return
	}
	if was {
		p.noteEvent(
			device.Event{
				At:   now,
				Kind: device.EventReturned,
				UUID: x.uuid,
				Text: "the device answers again",
			},
		)
	}
	if !x.mig {
		reading.Values = append(
			reading.Values, device.Value{Field: device.XIDErrors, N: p.lastXID[x.uuid]},
		)
	}
	slices.SortFunc(reading.Values, func(a, b device.Value) int {
		return int(a.Field) - int(b.Field)
	})
}

// gone tells that a device has left.
func gone(ret nvml.Return) bool {
	return ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_RESET_REQUIRED ||
		ret == nvml.ERROR_GPU_NOT_FOUND
}

// Processes lists compute, MPS and graphics clients.
func (p *Provider) Processes(ctx context.Context, dst []device.Process) ([]device.Process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkUsable(ctx); err != nil {
		return dst, err
	}
	mps := hasSymbol(p.lib, "nvmlDeviceGetMPSComputeRunningProcesses_v3") ||
		hasSymbol(p.lib, "nvmlDeviceGetMPSComputeRunningProcesses")
	for i := range p.parts {
		x := &p.parts[i]
		if x.device || x.lost {
			continue
		}
		from := len(dst)
		for _, request := range []func() ([]nvml.ProcessInfo, nvml.Return){
			x.handle.GetComputeRunningProcesses, x.handle.GetGraphicsRunningProcesses, x.handle.GetMPSComputeRunningProcesses,
		}[:2+boolNumber(mps)] {
			list, ret := request()
			if ret != nvml.SUCCESS {
				continue // not supported here, or gone: Sample tells
			}
			for _, q := range list {
				known := slices.ContainsFunc(
					dst[from:],
					func(d device.Process) bool { return d.PID == int(q.Pid) },
				)
				if known || q.Pid == 0 {
					continue
				}
				dst = append(
					dst,
					device.Process{
						PID:       int(q.Pid),
						UUID:      x.uuid,
						MemoryMiB: mebibytes(q.UsedGpuMemory),
					},
				)
			}
		}
	}
	return dst, nil
}

// mebibytes turns bytes into MiB; the driver's "not available" is all ones.
func mebibytes(n uint64) int64 {
	if n == ^uint64(0) {
		return device.Unknown
	}
	return int64(n >> 20)
}

func boolNumber(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Events gives what the driver reported and what Sample noticed.
func (p *Provider) Events(
	ctx context.Context,
	now spec.Instant,
	dst []device.Event,
) ([]device.Event, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkUsable(ctx); err != nil {
		return dst, err
	}
	p.drainEvents(now)
	dst = append(dst, p.events...)
	p.events = p.events[:0]
	return dst, nil
}

// listenForErrors asks for error events. A driver that refuses leaves the provider
// without them; everything else works.
func (p *Provider) listenForErrors() {
	set, ret := p.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return
	}
	p.set = set
	for i := range p.parts {
		if !p.parts[i].mig &&
			p.parts[i].handle.RegisterEvents(nvml.EventTypeXidCriticalError, set) == nvml.SUCCESS {
			p.watch = true
		}
	}
	if !p.watch {
		set.Free()
	}
}

// drainEvents takes the waiting error events without waiting for more. The library
// gives no time with them, so they happened now.
func (p *Provider) drainEvents(now spec.Instant) {
	for n := 0; p.watch && n < maxEvents; n++ {
		e, ret := p.set.Wait(0)
		if ret != nvml.SUCCESS {
			return
		}
		uuid, ret := e.Device.GetUUID()
		if ret != nvml.SUCCESS || e.EventType != nvml.EventTypeXidCriticalError {
			continue
		}
		xid := int(e.EventData)
		p.lastXID[uuid] = int64(xid)
		p.noteEvent(
			device.Event{
				At:   now,
				Kind: device.EventXID,
				UUID: uuid,
				XID:  xid,
				Text: device.ClassifyXID(xid).String() +
					" error",
			},
		)
	}
}

// maxEvents bounds what is kept while nobody asks: a device that fails may report errors without
// end, and the newest ones say what it does now.
const maxEvents = 256

// noteEvent keeps an event until it is asked for; the oldest go first when nobody asks.
func (p *Provider) noteEvent(event device.Event) {
	if len(p.events) == maxEvents {
		p.events = slices.Delete(p.events, 0, 1)
	}
	p.events = append(p.events, event)
}

// Close unloads the library.
func (p *Provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	if p.watch {
		p.set.Free()
	}
	if ret := p.lib.Shutdown(); ret != nvml.SUCCESS {
		return fmt.Errorf("stopping NVML: %w", ret)
	}
	return nil
}

// checkUsable refuses a closed provider and a finished context. Callers hold mu.
func (p *Provider) checkUsable(ctx context.Context) error {
	if p.closed {
		return gpu.ErrClosed
	}
	return ctx.Err()
}

// listDevices enumerates devices and instances and replaces p.parts. Callers hold mu.
func (p *Provider) listDevices() ([]device.Device, error) {
	count, ret := p.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("counting GPUs: %w", ret)
	}
	driver, ret := p.lib.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		driver = ""
	}
	var failed error
	var parts []part
	handles := make([]nvml.Device, 0, count)
	devices := make([]device.Device, 0, count)
	for i := 0; i < count; i++ {
		handle, ret := p.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			failed = errors.Join(failed, fmt.Errorf("GPU %d of %d: %w", i, count, because(ret)))
			continue
		}
		uuid, ret := handle.GetUUID()
		if ret != nvml.SUCCESS {
			failed = errors.Join(
				failed,
				fmt.Errorf("GPU %d of %d: reading its UUID: %w", i, count, ret),
			)
			continue
		}
		d := describe(handle, uuid, i)
		d.Driver = driver
		sysfs.Place(p.sys, &d)
		instances := migParts(p.lib, handle, &d)
		parts = append(
			parts,
			part{uuid: d.UUID, handle: handle, device: len(instances) > 0, lost: p.wasLost(d.UUID)},
		)
		parts = append(parts, instances...)
		handles = append(handles, handle)
		devices = append(devices, d)
	}
	if len(devices) == 0 && failed != nil {
		return nil, failed
	}
	links(p.lib, handles, devices)
	p.parts = parts
	return devices, nil
}

func (p *Provider) wasLost(uuid string) bool {
	return slices.ContainsFunc(p.parts, func(x part) bool { return x.uuid == uuid && x.lost })
}
