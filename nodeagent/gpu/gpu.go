// Package gpu gives a node agent its GPUs: one small interface, Provider, and
// the rule by which a node picks the provider it uses.
//
// The providers are packages of their own, so that a binary links only what it
// needs: dcgm (NVIDIA's manager), nvml (NVIDIA's driver library) and simulated
// (declared devices with a deterministic load). All of them pass the one suite
// in gputest. Package auto lists them in the order a node tries them.
package gpu

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec"
)

// ErrUnavailable is what opening a provider returns on a machine that lacks
// its library, its driver or any device. It is not a fault: the next provider
// is tried.
var ErrUnavailable = errors.New("not available on this node")

// ErrClosed is returned by every method of a closed provider.
var ErrClosed = errors.New("the GPU provider is closed")

// Provider reads the GPUs of one node. Methods may be called from several
// goroutines. None of them blocks for longer than the library underneath, and
// all of them give up before they begin when the context is done.
type Provider interface {
	// Name is "dcgm", "nvml" or "simulated".
	Name() string
	// Inventory lists the devices in order of Index. It asks the hardware, so
	// it belongs to registration and to slow checks, not to every collection.
	// A device that does not answer is listed as Lost while its UUID is known,
	// and left out when not even that can be read: the indices then have a gap.
	Inventory(ctx context.Context) ([]device.Device, error)
	// Sample overwrites dst with one reading per device, or per MIG instance
	// where MIG is on, as of now. A device that does not answer gives a
	// reading marked Lost, not an error; an error means that nothing was read.
	Sample(ctx context.Context, now spec.Instant, dst *device.Sample) error
	// Processes appends the processes that hold a device to dst.
	Processes(ctx context.Context, dst []device.Process) ([]device.Process, error)
	// Events appends what happened since the last call to dst, oldest first.
	// Each event is given once.
	Events(ctx context.Context, now spec.Instant, dst []device.Event) ([]device.Event, error)
	Clocks
	// Close lets go of the library. A second Close does nothing.
	Close() error
}

// Clocks sets the frequencies of devices; where a device, the driver or the
// rights of the agent do not permit it, the error says so. A MIG instance has
// none of its own.
type Clocks interface {
	// ListClocks gives the pairs of frequencies that a device can run at.
	ListClocks(ctx context.Context, uuid string) ([]device.Clocks, error)
	// SetClocks has a device run at one of the pairs, and gives what it was set
	// to before and how, for ResetClocks.
	SetClocks(ctx context.Context, uuid string, c device.Clocks) (before device.Clocks, err error)
	// ResetClocks undoes a SetClocks, also one of another process.
	ResetClocks(ctx context.Context, uuid string, before device.Clocks) error
}

// Candidate is one way to reach GPUs.
type Candidate struct {
	Name string
	// Open returns an error that wraps ErrUnavailable when this node cannot
	// have the provider, and another error when it should have but failed.
	Open func(ctx context.Context) (Provider, error)
}

// Choice is the outcome of Choose.
type Choice struct {
	Provider Provider // nil when the node has no GPU
	Reason   string   // one sentence for the log and for scontrol show node
	Failures []error  // candidates that should have worked and did not
}

// Choose opens the candidates in order and keeps the first that has at least
// one device. A candidate that fails for a reason other than ErrUnavailable is
// skipped too, and its error is in Failures and in the sentence: a broken
// library must not take the node's CPUs away, and must not be silent.
func Choose(ctx context.Context, candidates []Candidate) (Choice, error) {
	var choice Choice
	var skipped []string
	for _, candidate := range candidates {
		if err := ctx.Err(); err != nil {
			return Choice{}, err
		}
		provider, count, err := openCandidate(ctx, candidate)
		switch {
		case err == nil && count > 0:
			choice.Provider = provider
			choice.Reason = fmt.Sprintf(
				"GPUs come from %s (%d %s)",
				candidate.Name,
				count,
				plural(count, "device"),
			)
			if len(skipped) > 0 {
				choice.Reason += "; not used: " + strings.Join(skipped, "; ")
			}
			return choice, nil
		case err == nil:
			skipped = append(skipped, candidate.Name+": no device")
			if cerr := provider.Close(); cerr != nil {
				choice.Failures = append(
					choice.Failures,
					fmt.Errorf("%s: closing: %w", candidate.Name, cerr),
				)
			}
		case errors.Is(err, ErrUnavailable):
			skipped = append(skipped, candidate.Name+": "+
				strings.TrimSuffix(err.Error(), ": "+ErrUnavailable.Error()))
		default:
			skipped = append(skipped, candidate.Name+" failed: "+err.Error())
			choice.Failures = append(choice.Failures, fmt.Errorf("%s: %w", candidate.Name, err))
		}
	}
	choice.Reason = "this node has no GPU"
	if len(skipped) > 0 {
		choice.Reason += " (" + strings.Join(skipped, "; ") + ")"
	}
	return choice, nil
}

// openCandidate opens a candidate and counts its devices; a provider that opens but
// cannot list its devices is closed again.
func openCandidate(ctx context.Context, candidate Candidate) (Provider, int, error) {
	provider, err := candidate.Open(ctx)
	if err != nil {
		return nil, 0, err
	}
	devices, err := provider.Inventory(ctx)
	if err != nil {
		return nil, 0, errors.Join(err, provider.Close())
	}
	return provider, len(devices), nil
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
