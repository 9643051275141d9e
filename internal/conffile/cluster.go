package conffile

import (
	"errors"
	"fmt"

	"github.com/musterhpc/muster/spec"
)

// ReadCluster reads the slurm.conf that muster.yaml names, with the files beside
// it, and checks that both name the same cluster. Errors are returned
// all at once, warnings as lines.
func ReadCluster(cfg *Config) (*spec.Config, []string, error) {
	cluster, problems := ReadSlurm(cfg.SlurmConf)
	if err := problems.Err(); err != nil {
		return nil, nil, fmt.Errorf("the cluster's configuration cannot be used:\n%w", err)
	}
	var warnings []string
	for _, problem := range problems {
		warnings = append(warnings, problem.String())
	}
	out := cluster.Config
	if cfg.ClusterName != "" && cfg.ClusterName != out.ClusterName {
		return nil, nil, fmt.Errorf(
			"cluster_name %q of muster.yaml and ClusterName=%s of %s must agree",
			cfg.ClusterName,
			out.ClusterName,
			cfg.SlurmConf,
		)
	}
	if out.ClusterName == "" {
		return nil, nil, errors.New("ClusterName is missing in " + cfg.SlurmConf)
	}
	return &out, warnings, nil
}
