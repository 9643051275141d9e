package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/auto"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/spec"
)

// ChooseGPUs opens the way to the GPUs that muster.yaml and gres.conf allow.
func ChooseGPUs(ctx context.Context, s *settings.Settings, sys clock.Clock) (gpu.Choice, error) {
	declared, err := settings.DeclaredGPUs(s.Node)
	if err != nil {
		return gpu.Choice{}, fmt.Errorf("the GPUs of node %s: %w", s.Node.Name, err)
	}
	candidates, err := auto.Candidates(
		auto.Config{
			Node:       s.Node.Name,
			Start:      sys.Now(),
			AutoDetect: s.Cluster.Gres.Detect(s.Node.Name),
			Declared:   declared,
			Period:     s.Config.Telemetry.Interval,
			Simulate:   s.Config.Telemetry.Provider == "simulated",
		},
	)
	if err != nil {
		return gpu.Choice{}, err
	}
	if want := s.Config.Telemetry.Provider; want != "auto" && want != "" {
		candidates = slices.DeleteFunc(
			candidates,
			func(c gpu.Candidate) bool { return c.Name != want },
		)
	}
	return gpu.Choose(ctx, candidates)
}

// SimulatedGPUs are declared devices as the agent sees them.
type SimulatedGPUs struct{ *simulated.Provider }

// Inventory lists the devices; of their files only those that exist, since a
// job cannot be given others.
func (p SimulatedGPUs) Inventory(ctx context.Context) ([]device.Device, error) {
	list, err := p.Provider.Inventory(ctx)
	for i := range list {
		var there []string
		for _, f := range list[i].Files {
			if _, err := os.Stat(f); err == nil {
				there = append(there, f)
			}
		}
		list[i].Files = there
	}
	return list, err
}

// Assign implements daemon.Simulator.
func (p SimulatedGPUs) Assign(now spec.Instant, jobs []daemon.Assignment) error {
	var errs []error
	list := make([]simulated.Assignment, len(jobs))
	for i, assignment := range jobs {
		load, err := simulated.ParseLoad(assignment.Load, simulated.LoadOf(assignment.Job))
		if err != nil {
			errs = append(errs, fmt.Errorf("job %d: %w", assignment.Job, err))
			load = simulated.LoadOf(assignment.Job)
		}
		list[i] = simulated.Assignment{
			Job:     assignment.Job,
			Attempt: assignment.Attempt,
			From:    assignment.From,
			Load:    load,
			UUIDs:   assignment.UUIDs,
			Share:   assignment.Share,
		}
	}
	return errors.Join(append(errs, p.SetJobs(now, list))...)
}
