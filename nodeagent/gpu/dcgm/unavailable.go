//go:build !linux || !cgo

package dcgm

import (
	"context"
	"fmt"

	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/nvml"
	"github.com/musterhpc/muster/spec"
)

// Config says how to reach the manager.
type Config struct {
	HostEngine string
	Period     spec.Span
	NVML       nvml.Config
}

// Open fails: this program was built without cgo, so it cannot load a library.
func Open(context.Context, Config) (gpu.Provider, error) {
	return nil, fmt.Errorf("this program was built without cgo: %w", gpu.ErrUnavailable)
}
