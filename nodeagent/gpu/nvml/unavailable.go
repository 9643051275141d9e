//go:build !linux || !cgo

package nvml

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/musterhpc/muster/nodeagent/gpu"
)

// Config says where the library is; empty means where the system finds it.
type Config struct {
	Library string
	Sys     fs.FS // /sys
}

// Open fails: this program was built without cgo, so it cannot load a library.
func Open(context.Context, Config) (gpu.Provider, error) {
	return nil, fmt.Errorf("this program was built without cgo: %w", gpu.ErrUnavailable)
}
