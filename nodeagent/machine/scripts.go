package machine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/program"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// nodeScripts runs the site's prolog and epilog as the agent's own user, which
// is root where jobs run as their users.
type nodeScripts struct {
	conf   *slurmconf.Agent
	node   string     // its name, for programs that several nodes of a machine share
	serial sync.Mutex // with PrologFlags=Serial
}

// NewNodeScripts makes the scripts that slurm.conf names, for a node.
func NewNodeScripts(conf *slurmconf.Agent, node string) *nodeScripts {
	return &nodeScripts{conf: conf, node: node}
}

// Prolog implements daemon.Scripts.
func (n *nodeScripts) Prolog(ctx context.Context, env []string) error {
	if err := n.run(ctx, n.conf.Prolog, n.conf.PrologTimeout, env); err != nil {
		return fmt.Errorf("Prolog error: %w", err) //nolint:staticcheck // as administrators know it
	}
	return nil
}

// Epilog implements daemon.Scripts. Behind it the node's health is looked at,
// before others get what the job had.
func (n *nodeScripts) Epilog(ctx context.Context, env []string) error {
	if err := n.run(ctx, n.conf.Epilog, n.conf.EpilogTimeout, env); err != nil {
		return fmt.Errorf("Epilog error: %w", err) //nolint:staticcheck // as administrators know it
	}
	if n.conf.ChecksAfterJobs() {
		if err := n.Check(ctx); err != nil {
			return fmt.Errorf("Health check: %w", err) //nolint:staticcheck // likewise
		}
	}
	return nil
}

// checkTimeout is how long the HealthCheckProgram may take, as in Slurm.
const checkTimeout = 60 * spec.Second

// Check implements daemon.Checker.
func (n *nodeScripts) Check(ctx context.Context) error {
	env := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SLURMD_NODENAME=" + n.node}
	return n.run(ctx, []string{n.conf.Check.Program}, checkTimeout, env)
}

// run runs the programs of some patterns one after the other, those of one
// pattern in Slurm's order, from z to a, until one fails.
func (n *nodeScripts) run(
	ctx context.Context,
	patterns []string,
	timeout spec.Span,
	env []string,
) error {
	if n.conf.Serial {
		n.serial.Lock()
		defer n.serial.Unlock()
	}
	if timeout > 0 && timeout != spec.Infinite {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(timeout), errTooLong)
		defer cancel()
	}
	for _, p := range patterns {
		files, err := filepath.Glob(p)
		if err != nil || len(files) == 0 {
			return fmt.Errorf("%s does not exist", p)
		}
		slices.Sort(files)
		for _, file := range slices.Backward(files) {
			if err := program.Run(ctx, file, env, nil); err != nil {
				if errors.Is(context.Cause(ctx), errTooLong) {
					err = fmt.Errorf("it was ended after %v", time.Duration(timeout))
				}
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return nil
}

var errTooLong = errors.New("too long")
