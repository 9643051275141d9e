package simulated

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec"
)

// firstPID is above the largest pid Linux gives out, so that an invented
// process can never be mistaken for a real one.
const firstPID = 1 << 22

// Config declares the devices of a node.
type Config struct {
	Node  string // its name; the UUIDs derive from it
	Start spec.Instant
	Lines []Declared
}

// Assignment is one job on some devices or MIG instances.
type Assignment struct {
	Job     spec.JobUID
	Attempt uint32
	From    spec.Instant // start of the job on this node
	Load    Load
	UUIDs   []string
	PIDs    []int // its processes; nil invents one per device
	Share   int   // of each device in thousandths; 0 means all of it
}

// Provider is a gpu.Provider over declared devices.
type Provider struct {
	mu      sync.Mutex
	devices []device.Device
	models  []*model
	closed  bool
}

var _ gpu.Provider = (*Provider)(nil)

// New makes the declared devices, idle and cool, as of config.Start. Errors wrap
// ErrDeclaration and name the line; no line at all is gpu.ErrUnavailable.
func New(config Config) (*Provider, error) {
	if len(config.Lines) == 0 {
		return nil, fmt.Errorf("no GPU is declared for %s: %w", config.Node, gpu.ErrUnavailable)
	}
	devices, figs, err := declareDevices(config.Node, config.Lines)
	if err != nil {
		return nil, err
	}
	provider := &Provider{devices: devices}
	for i, d := range devices {
		m := &model{
			seed: mixBits(uint64(i)) ^ hashText(config.Node), fig: figs[i], at: config.Start,
			milliC: ambientMilliC + 50_000*figs[i].idleMW/figs[i].maxMW,
			cut: func(profiles []string) ([]device.MIG, error) {
				return cutInstances(config.Node, d, profiles)
			},
		}
		m.partitionDevice(d.UUID, d.MemoryMiB, d.MIG)
		provider.models = append(provider.models, m)
	}
	return provider, nil
}

// Name is "simulated".
func (p *Provider) Name() string { return "simulated" }

// Inventory lists the declared devices.
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
		devices[i].MIG = slices.Clone(p.models[i].instances)
		devices[i].Lost = p.models[i].lost
		devices[i].Files = slices.Clone(devices[i].Files)
	}
	return devices, nil
}

// SetJobs says which jobs hold the devices from now on, all of them; devices
// that no assignment names become idle. An assignment to an unknown UUID is an
// error and changes nothing.
func (p *Provider) SetJobs(now spec.Instant, jobs []Assignment) error {
	loads := map[string][]attached{}
	for _, assignment := range jobs {
		share := int64(assignment.Share) * 1000
		if assignment.Share <= 0 || assignment.Share > 1000 {
			share = device.Ratio
		}
		for _, u := range assignment.UUIDs {
			loads[u] = append(loads[u], attached{
				job: assignment.Job, attempt: assignment.Attempt, from: assignment.From,
				load: assignment.Load, pids: slices.Clone(assignment.PIDs), share: share,
			})
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return gpu.ErrClosed
	}
	known := 0
	for _, m := range p.models {
		for i := range m.units {
			if _, ok := loads[m.units[i].uuid]; ok {
				known++
			}
		}
		for _, uuid := range m.former { // a job may still hold what is gone
			if _, ok := loads[uuid]; ok {
				known++
			}
		}
	}
	if known != len(loads) {
		return fmt.Errorf(
			"%d of %d assigned GPUs are not on this node",
			len(loads)-known,
			len(loads),
		)
	}
	for _, m := range p.models {
		m.attachLoads(now, loads)
	}
	return nil
}

// Inject makes a fault happen on a device now; After is not used.
func (p *Provider) Inject(now spec.Instant, uuid string, fault Fault) error {
	return p.withModel(uuid, func(m *model) {
		m.advanceTo(now)
		m.injectFault(uuid, fault)
	})
}

// Heal brings a lost device back, as a reset would.
func (p *Provider) Heal(now spec.Instant, uuid string) error {
	return p.withModel(uuid, func(m *model) {
		m.advanceTo(now)
		if m.lost {
			m.lost, m.lastXID = false, 0
			m.noteEvent(
				device.Event{
					Kind: device.EventReturned,
					UUID: uuid,
					Text: "the device is back (simulated)",
				},
			)
		}
	})
}

// withModel runs f on the model of a device.
func (p *Provider) withModel(uuid string, f func(*model)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return gpu.ErrClosed
	}
	for i := range p.devices {
		if p.devices[i].UUID == uuid {
			f(p.models[i])
			return nil
		}
	}
	return fmt.Errorf("GPU %s is not on this node", uuid)
}

// Sample reads every device as of now.
func (p *Provider) Sample(ctx context.Context, now spec.Instant, dst *device.Sample) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkUsable(ctx); err != nil {
		return err
	}
	dst.At = now
	dst.Readings = dst.Readings[:0]
	for i, m := range p.models {
		m.advanceTo(now)
		dst.Readings = m.readModel(p.devices[i].UUID, dst.Readings)
	}
	return nil
}

// Processes lists the processes of the loads: the pids that came with the
// assignment, or one invented pid above the kernel's range for each load.
func (p *Provider) Processes(ctx context.Context, dst []device.Process) ([]device.Process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkUsable(ctx); err != nil {
		return dst, err
	}
	for n, m := range p.models {
		if m.lost {
			continue
		}
		for i := range m.units {
			u := &m.units[i]
			for j := range u.loads {
				a := &u.loads[j]
				if a.load.Shape == Absent {
					continue
				}
				memory := a.levelAt(m.at, u.memory, m.seed).memory
				if a.pids == nil {
					dst = append(
						dst,
						device.Process{
							PID:       firstPID + n*256 + i*16 + j,
							UUID:      u.uuid,
							MemoryMiB: memory,
						},
					)
				}
				for _, pid := range a.pids {
					dst = append(
						dst,
						device.Process{
							PID:       pid,
							UUID:      u.uuid,
							MemoryMiB: memory / int64(len(a.pids)),
						},
					)
				}
			}
		}
	}
	return dst, nil
}

// Events gives what happened up to now, oldest first.
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
	from := len(dst)
	for _, m := range p.models {
		m.advanceTo(now)
		dst = append(dst, m.events...)
		m.events = m.events[:0]
	}
	slices.SortStableFunc(dst[from:], func(a, b device.Event) int {
		switch {
		case a.At < b.At:
			return -1
		case a.At > b.At:
			return 1
		}
		return 0
	})
	return dst, nil
}

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

// hashText is a small string hash for seeds.
func hashText(text string) uint64 {
	h := uint64(len(text))
	for i := 0; i < len(text); i++ {
		h = mixBits(h ^ uint64(text[i]))
	}
	return h
}
