package machine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhpc/muster/internal/program"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// NodeScripts runs the site's prolog and epilog as the agent's own user, which
// is root where jobs run as their users.
type NodeScripts struct {
	now    atomic.Pointer[slurmconf.Agent] // replaced when the configuration is read again
	node   string                          // its name, for programs that several nodes of a machine share
	serial sync.Mutex                      // with PrologFlags=Serial
}

// NewNodeScripts makes the scripts that slurm.conf names, for a node.
func NewNodeScripts(conf *slurmconf.Agent, node string) *NodeScripts {
	scripts := &NodeScripts{node: node}
	scripts.Use(conf)
	return scripts
}

// Use has what starts from now on run by another configuration.
func (n *NodeScripts) Use(conf *slurmconf.Agent) { n.now.Store(conf) }

// Prolog implements daemon.Scripts.
func (n *NodeScripts) Prolog(
	ctx context.Context,
	env []string,
	place func(pid int) error,
) error {
	conf := n.now.Load()
	if err := n.run(ctx, conf.Prolog, conf.PrologTimeout, env, place); err != nil {
		return fmt.Errorf("Prolog error: %w", err) //nolint:staticcheck // as administrators know it
	}
	return nil
}

// Epilog implements daemon.Scripts. Behind it the node's health is looked at,
// before others get what the job had.
func (n *NodeScripts) Epilog(ctx context.Context, env []string) error {
	conf := n.now.Load()
	if err := n.run(ctx, conf.Epilog, conf.EpilogTimeout, env, nil); err != nil {
		return fmt.Errorf("Epilog error: %w", err) //nolint:staticcheck // as administrators know it
	}
	if conf.ChecksAfterJobs() {
		if err := n.Check(ctx); err != nil {
			return fmt.Errorf("Health check: %w", err) //nolint:staticcheck // likewise
		}
	}
	return nil
}

// checkTimeout is how long the HealthCheckProgram may take, as in Slurm.
const checkTimeout = 60 * spec.Second

// Check implements daemon.Checker.
func (n *NodeScripts) Check(ctx context.Context) error {
	env := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SLURMD_NODENAME=" + n.node}
	return n.run(ctx, []string{n.now.Load().Check.Program}, checkTimeout, env, nil)
}

// run runs the programs of some patterns one after the other, those of one
// pattern in Slurm's order, from z to a, until one fails.
func (n *NodeScripts) run(
	ctx context.Context,
	patterns []string,
	timeout spec.Span,
	env []string,
	place func(pid int) error,
) error {
	if n.now.Load().Serial {
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
			if err := program.RunPlaced(ctx, file, env, place); err != nil {
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
