package main

import (
	"errors"
	"fmt"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/spec"
)

// readCluster reads slurm.conf with the files beside it. Errors are returned
// all at once, warnings as lines.
func readCluster(cfg *conffile.Config) (*spec.Config, []string, error) {
	c, problems := conffile.ReadSlurm(cfg.SlurmConf)
	if err := problems.Err(); err != nil {
		return nil, nil, fmt.Errorf("the cluster's configuration cannot be used:\n%w", err)
	}
	var warnings []string
	for _, p := range problems {
		warnings = append(warnings, p.String())
	}
	out := c.Config
	if cfg.ClusterName != "" && cfg.ClusterName != out.ClusterName {
		return nil, nil, fmt.Errorf("cluster_name %q of muster.yaml and ClusterName=%s of %s must agree", cfg.ClusterName, out.ClusterName, cfg.SlurmConf)
	}
	if out.ClusterName == "" {
		return nil, nil, errors.New("ClusterName is missing in " + cfg.SlurmConf)
	}
	return &out, warnings, nil
}
