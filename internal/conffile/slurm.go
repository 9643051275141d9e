package conffile

import (
	"os"
	"strings"

	"github.com/musterhpc/muster/spec/slurmconf"
)

// ReadSlurm reads a slurm.conf, named by its whole path, with the files beside
// it. What it finds names files by their whole paths too.
func ReadSlurm(path string) (*slurmconf.Cluster, slurmconf.Problems) {
	c, problems := slurmconf.ReadCluster(os.DirFS("/"), strings.TrimPrefix(path, "/"))
	for i := range problems {
		if f := problems[i].File; f != "" {
			problems[i].File = "/" + f
		}
	}
	return c, problems
}
