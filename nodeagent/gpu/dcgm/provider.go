//go:build linux && cgo

package dcgm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
	"github.com/NVIDIA/go-nvml/pkg/dl"

	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/gpu/nvml"
	"github.com/musterhpc/muster/spec"
)

// library is the one go-dcgm loads.
const library = "libdcgm.so.4"

// redial is the time between attempts to reach a manager that went away.
const redial = 5 * spec.Second

// Config says how to reach the manager.
type Config struct {
	// HostEngine is the address of an nv-hostengine that already runs
	// ("localhost:5555") or the path of its socket; empty embeds the manager.
	HostEngine string
	// Period is how often the manager reads the fields; 0 means one second.
	Period spec.Span
	NVML   nvml.Config
}

// Provider is a gpu.Provider over DCGM.
type Provider struct {
	cfg Config
	nv  gpu.Provider // inventory, processes, events, clocks

	mu       sync.Mutex
	closed   bool
	up       bool // connected and watching
	retry    spec.Instant
	entities []dcgm.GroupEntityPair // what is read
	uuids    []string               // of each entity
	fields   []dcgm.Short
	info     map[dcgm.Short]device.Info
	group    dcgm.GroupHandle
	groups   []dcgm.FieldHandle
	note     string
	answered map[string]bool // devices and instances that did since they are watched
	lost     map[string]bool // those that answered, and did not the last time
	events   []device.Event  // that Sample noticed
}

var _ gpu.Provider = (*Provider)(nil)

// Open loads the library, starts or dials the manager and begins to watch.
func Open(ctx context.Context, config Config) (gpu.Provider, error) {
	if config.Period <= 0 {
		config.Period = spec.Second
	}
	// go-dcgm has no typed error for a missing library, so look first.
	probe := dl.New(library, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if probe.Open() != nil {
		return nil, fmt.Errorf("%s is not installed: %w", library, gpu.ErrUnavailable)
	}
	if err := probe.Close(); err != nil {
		return nil, fmt.Errorf("closing %s: %w", library, err)
	}
	nv, err := nvml.Open(ctx, config.NVML)
	if err != nil {
		return nil, err
	}
	provider := &Provider{cfg: config, nv: nv}
	devices, err := nv.Inventory(ctx)
	if err == nil && len(devices) > 0 {
		err = provider.connectManager(devices)
	}
	if err != nil {
		return nil, errors.Join(err, provider.Close())
	}
	return provider, nil
}

// Name is "dcgm".
func (p *Provider) Name() string { return "dcgm" }

// Note says in one sentence what the provider has to do without; empty when
// nothing.
func (p *Provider) Note() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.note
}

// connectManager starts or dials the manager and watches the devices. Callers hold mu
// or own p.
func (p *Provider) connectManager(devices []device.Device) error {
	mode, args := dcgm.Embedded, []string(nil)
	if h := p.cfg.HostEngine; h != "" {
		socket := "0"
		if strings.HasPrefix(h, "/") {
			socket = "1"
		}
		mode, args = dcgm.Standalone, []string{h, socket}
	}
	if _, err := dcgm.Init(mode, args...); err != nil {
		return fmt.Errorf("reaching DCGM: %w", err)
	}
	p.up = true
	if err := p.watchFields(devices); err != nil {
		p.disconnectManager()
		return err
	}
	return nil
}

// disconnectManager lets go of the manager. What it still watches for us ends with
// the connection, so errors change nothing.
func (p *Provider) disconnectManager() {
	if p.up {
		p.unwatchFields()
		_ = dcgm.Shutdown() // the manager may be gone; the next connect tells
	}
	p.up = false
}

// watchFields maps devices to the manager's entities and has their fields read.
func (p *Provider) watchFields(devices []device.Device) error {
	if err := p.findEntities(devices); err != nil {
		return err
	}
	var err error
	p.group, err = dcgm.CreateGroup("muster")
	if err != nil {
		return fmt.Errorf("DCGM: %w", err)
	}
	for _, e := range p.entities {
		if err := dcgm.AddEntityToGroup(p.group, e.EntityGroupId, e.EntityId); err != nil {
			return fmt.Errorf("DCGM: %w", err)
		}
	}
	var base, profiling []dcgm.Short
	p.info = map[dcgm.Short]device.Info{}
	for _, info := range device.Fields() {
		p.info[dcgm.Short(info.Field)] = info
		if info.Field >= device.GraphicsActive {
			profiling = append(profiling, dcgm.Short(info.Field))
		} else {
			base = append(base, dcgm.Short(info.Field))
		}
	}
	p.fields = nil
	p.groups = nil
	p.note = ""
	p.answered = map[string]bool{}
	if p.lost == nil {
		p.lost = map[string]bool{}
	}
	if err := p.addFields("muster-base", base); err != nil {
		return err
	}
	if err := p.addFields("muster-profiling", profiling); err != nil {
		p.note = "profiling fields are missing: " + err.Error()
	}
	return nil
}

// addFields has one set of fields read.
func (p *Provider) addFields(name string, fields []dcgm.Short) error {
	g, err := dcgm.FieldGroupCreate(name, fields)
	if err != nil {
		return fmt.Errorf("DCGM: %w", err)
	}
	const keepSeconds, keepSamples = 60, 2
	if err := dcgm.WatchFieldsWithGroupEx(g, p.group, int64(p.cfg.Period/spec.Microsecond), keepSeconds, keepSamples); err != nil {
		return errors.Join(fmt.Errorf("DCGM: %w", err), dcgm.FieldGroupDestroy(g))
	}
	p.groups = append(p.groups, g)
	p.fields = append(p.fields, fields...)
	return nil
}

// unwatchFields ends what watch began.
func (p *Provider) unwatchFields() {
	for _, g := range p.groups {
		_ = dcgm.UnwatchFields(g, p.group) // see disconnect
		_ = dcgm.FieldGroupDestroy(g)
	}
	_ = dcgm.DestroyGroup(p.group)
	p.groups, p.fields = nil, nil
}

// findEntities maps every device and MIG instance to the manager's entity.
func (p *Provider) findEntities(devices []device.Device) error {
	p.entities, p.uuids = nil, nil
	ids, err := dcgm.GetEntityGroupEntities(dcgm.FE_GPU)
	if err != nil {
		return fmt.Errorf("DCGM: %w", err)
	}
	byUUID := map[string]uint{}
	for _, id := range ids {
		e := []dcgm.GroupEntityPair{{EntityGroupId: dcgm.FE_GPU, EntityId: id}}
		values, err := dcgm.EntitiesGetLatestValues(
			e,
			[]dcgm.Short{dcgm.DCGM_FI_DEV_GPU_UUID},
			dcgm.DCGM_FV_FLAG_LIVE_DATA,
		)
		if err != nil {
			return fmt.Errorf("DCGM: the UUID of GPU %d: %w", id, err)
		}
		if len(values) == 1 && values[0].Status == 0 && values[0].StringValue != nil {
			byUUID[*values[0].StringValue] = id
		}
	}
	for _, d := range devices {
		id, ok := byUUID[d.UUID]
		if !ok {
			return fmt.Errorf("DCGM does not know %s, which the driver has", d.UUID)
		}
		p.entities = append(
			p.entities,
			dcgm.GroupEntityPair{EntityGroupId: dcgm.FE_GPU, EntityId: id},
		)
		p.uuids = append(p.uuids, d.UUID)
		if len(d.MIG) == 0 {
			continue
		}
		if err := p.findInstances(id, d); err != nil {
			return err
		}
	}
	return nil
}

// findInstances maps the instances of one device.
func (p *Provider) findInstances(gpuID uint, d device.Device) error {
	h, err := dcgm.GetGPUInstanceHierarchy()
	if err != nil {
		return fmt.Errorf("DCGM: %w", err)
	}
	for _, mig := range d.MIG {
		i := slices.IndexFunc(h.EntityList[:h.Count], func(e dcgm.MigHierarchyInfo_v2) bool {
			return e.Entity.EntityGroupId == dcgm.FE_GPU_I && e.Parent.EntityId == gpuID &&
				int(e.Info.NvmlInstanceId) == mig.GPUInstance
		})
		if i < 0 {
			return fmt.Errorf(
				"DCGM does not know instance %d of %s, which the driver has",
				mig.GPUInstance,
				d.UUID,
			)
		}
		p.entities = append(p.entities, h.EntityList[i].Entity)
		p.uuids = append(p.uuids, mig.UUID)
	}
	return nil
}

// Inventory asks the driver; when the devices or instances are others than
// those watched, the watch is made anew.
func (p *Provider) Inventory(ctx context.Context) ([]device.Device, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, gpu.ErrClosed
	}
	devices, err := p.nv.Inventory(ctx)
	if err != nil {
		return nil, err
	}
	var now []string
	for _, d := range devices {
		now = append(now, d.UUID)
		for _, mig := range d.MIG {
			now = append(now, mig.UUID)
		}
	}
	if p.up && !slices.Equal(now, p.uuids) {
		p.unwatchFields()
		if err := p.watchFields(devices); err != nil {
			p.disconnectManager()
			return nil, err
		}
	}
	return devices, nil
}

// Sample takes the latest values the manager has.
func (p *Provider) Sample(ctx context.Context, now spec.Instant, dst *device.Sample) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.reconnectIfDue(ctx, now); err != nil {
		return err
	}
	values, err := dcgm.EntitiesGetLatestValues(p.entities, p.fields, 0)
	if err != nil {
		p.disconnectManager()
		p.retry = now.Add(redial)
		return fmt.Errorf(
			"reading from DCGM, which is dialled again in %d s: %w",
			redial.Seconds(),
			err,
		)
	}
	dst.At = now
	dst.Resize(len(p.entities))
	for i := range p.entities {
		reading := &dst.Readings[i]
		reading.UUID = p.uuids[i]
		reading.Lost = false
		reading.Values = reading.Values[:0]
	}
	for i := range values {
		v := &values[i] // 4 KiB each: not copied
		at := slices.Index(
			p.entities,
			dcgm.GroupEntityPair{EntityGroupId: v.EntityGroupId, EntityId: v.EntityID},
		)
		info, known := p.info[v.FieldID]
		if at < 0 || !known {
			continue
		}
		if n, ok := toFixedPoint(v, info); ok {
			dst.Readings[at].Values = append(
				dst.Readings[at].Values,
				device.Value{Field: info.Field, N: n},
			)
		}
	}
	for i := range dst.Readings {
		reading := &dst.Readings[i]
		// A device that is there says at least its clocks.
		reading.Lost = len(reading.Values) == 0
		p.noteDeviceChange(reading, now)
		slices.SortFunc(
			reading.Values,
			func(a, b device.Value) int { return int(a.Field) - int(b.Field) },
		)
	}
	return nil
}

// noteDeviceChange makes an event of a device that is gone, or is back. One that never
// answered is not gone: the manager has nothing of it before its first reading.
// Callers hold mu.
func (p *Provider) noteDeviceChange(reading *device.Reading, now spec.Instant) {
	if !reading.Lost {
		p.answered[reading.UUID] = true
	}
	if reading.Lost == p.lost[reading.UUID] || !p.answered[reading.UUID] {
		return
	}
	event := device.Event{
		At:   now,
		Kind: device.EventReturned,
		UUID: reading.UUID,
		Text: "the device answers again",
	}
	p.lost[reading.UUID] = reading.Lost
	if reading.Lost {
		event.Kind, event.Text = device.EventLost, "the device does not answer"
	}
	const most = 256
	if len(p.events) == most {
		p.events = slices.Delete(p.events, 0, 1)
	}
	p.events = append(p.events, event)
}

// reconnectIfDue connects again where that is due. Callers hold mu.
func (p *Provider) reconnectIfDue(ctx context.Context, now spec.Instant) error {
	if p.closed {
		return gpu.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.up {
		return nil
	}
	if now < p.retry {
		return errors.New("DCGM is away and is dialled again shortly")
	}
	p.retry = now.Add(redial)
	devices, err := p.nv.Inventory(ctx)
	if err != nil {
		return err
	}
	return p.connectManager(devices)
}

// toFixedPoint turns a value into the field's fixed point; ok is false for the
// manager's blanks and errors.
func toFixedPoint(v *dcgm.FieldValue_v2, info device.Info) (n int64, ok bool) {
	if v.Status != 0 {
		return 0, false
	}
	scale := int64(1)
	for range info.Decimals {
		scale *= 10
	}
	switch v.FieldType {
	case dcgm.DCGM_FT_INT64:
		n = v.Int64()
		if n < 0 || n >= dcgm.DCGM_FT_INT64_BLANK || n == dcgm.DCGM_FT_INT32_BLANK {
			return 0, false
		}
		n *= scale
	case dcgm.DCGM_FT_DOUBLE:
		x := v.Float64()
		if !(x >= 0 && x < dcgm.DCGM_FT_FP64_BLANK) {
			return 0, false
		}
		n = int64(x*float64(scale) + 0.5)
	default:
		return 0, false
	}
	switch info.Unit { // the manager's averages may pass the whole by a hair
	case "ratio":
		n = min(n, device.Ratio)
	case "%":
		n = min(n, 100)
	}
	return n, true
}

// Processes lists the processes, from the driver.
func (p *Provider) Processes(ctx context.Context, dst []device.Process) ([]device.Process, error) {
	return p.nv.Processes(ctx, dst)
}

// Events gives the driver's error events, and what Sample noticed.
func (p *Provider) Events(
	ctx context.Context,
	now spec.Instant,
	dst []device.Event,
) ([]device.Event, error) {
	dst, err := p.nv.Events(ctx, now, dst)
	if err != nil {
		return dst, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	dst = append(dst, p.events...)
	p.events = p.events[:0]
	return dst, nil
}

// ListClocks implements gpu.Clocks, as the two below by the driver's library:
// the manager's own way asks for the same rights, and forgets when it ends.
func (p *Provider) ListClocks(ctx context.Context, uuid string) ([]device.Clocks, error) {
	return p.nv.ListClocks(ctx, uuid)
}

// SetClocks implements gpu.Clocks.
func (p *Provider) SetClocks(
	ctx context.Context,
	uuid string,
	clocks device.Clocks,
) (before device.Clocks, err error) {
	return p.nv.SetClocks(ctx, uuid, clocks)
}

// ResetClocks implements gpu.Clocks.
func (p *Provider) ResetClocks(ctx context.Context, uuid string, before device.Clocks) error {
	return p.nv.ResetClocks(ctx, uuid, before)
}

// Close ends the watch, the connection and the driver library.
func (p *Provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	p.disconnectManager()
	return p.nv.Close()
}
