package host

import (
	"maps"
	"slices"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/spec"
)

// ConfigFiles reads the configuration for a node that has none of its own: slurm.conf at a path and
// the files beside it. Names are paths without the first slash; name is that of slurm.conf.
func ConfigFiles(slurmConf string) func() (name string, files []*apiv1.ConfFile, err error) {
	return func() (string, []*apiv1.ConfFile, error) {
		name, found, err := conffile.SlurmFiles(slurmConf)
		var files []*apiv1.ConfFile
		for _, n := range slices.Sorted(maps.Keys(found)) {
			mode := uint32(found[n].Mode.Perm())
			files = append(files, &apiv1.ConfFile{Name: n, Data: found[n].Data, Mode: mode})
		}
		return name, files, err
	}
}

// OffsetEast is how far this host's clocks are ahead of UTC at an instant.
func OffsetEast(at spec.Instant) spec.Span {
	_, secs := time.Unix(at.Unix(), 0).Zone()
	return spec.Span(secs) * spec.Second
}
