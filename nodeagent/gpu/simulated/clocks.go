package simulated

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
)

// Frequencies of simulated multiprocessors lie so many MHz apart, from the
// lowest up to the model's highest.
const (
	lowestMHz = 210
	stepMHz   = 15
)

// ListClocks implements gpu.Clocks: the memory runs at its frequency or at half
// of it, the multiprocessors at any step.
func (p *Provider) ListClocks(ctx context.Context, uuid string) ([]device.Clocks, error) {
	var clockses []device.Clocks
	err := p.withAnswering(ctx, uuid, func(m *model) error {
		clockses = m.fig.listClocks()
		return nil
	})
	return clockses, err
}

func (f *figures) listClocks() []device.Clocks {
	var clockses []device.Clocks
	for _, memory := range [2]int64{f.memMHz, f.memMHz / 2} {
		for mhz := f.smMHz; mhz >= lowestMHz; mhz -= stepMHz {
			clockses = append(
				clockses, device.Clocks{Memory: uint32(memory), Graphics: uint32(mhz)},
			)
		}
	}
	return clockses
}

// SetClocks implements gpu.Clocks.
func (p *Provider) SetClocks(
	ctx context.Context,
	uuid string,
	clocks device.Clocks,
) (before device.Clocks, err error) {
	err = p.withAnswering(ctx, uuid, func(m *model) error {
		if !slices.Contains(m.fig.listClocks(), clocks) {
			return fmt.Errorf(
				"a %s does not run at %d and %d MHz",
				m.fig.model,
				clocks.Memory,
				clocks.Graphics,
			)
		}
		before, m.clocks = m.clocks, clocks
		return nil
	})
	return before, err
}

// ResetClocks implements gpu.Clocks.
func (p *Provider) ResetClocks(ctx context.Context, uuid string, before device.Clocks) error {
	return p.withAnswering(ctx, uuid, func(m *model) error {
		m.clocks = before
		return nil
	})
}

// withAnswering runs f on the model of a device that answers.
func (p *Provider) withAnswering(ctx context.Context, uuid string, f func(*model) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var failed error
	err := p.withModel(uuid, func(m *model) {
		failed = errors.New("the device does not answer")
		if !m.lost {
			failed = f(m)
		}
	})
	return errors.Join(err, failed)
}
