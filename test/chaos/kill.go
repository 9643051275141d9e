package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// role is a kind of process that is killed.
type role string

const (
	controller role = "controller"
	engine     role = "engine" // the accounting service's child with the database in it
	agent      role = "agent"
	shepherd   role = "shepherd"
	roleNode   role = "node" // agent and shepherd of one node, with one signal each
	hang       role = "hang" // nothing dies: controller, agent or shepherd is stopped for some seconds
)

// parseVictims reads the roles of the command line.
func (o *options) parseVictims() ([]role, error) {
	var roles []role
	for _, name := range strings.Split(o.roles, ",") {
		switch r := role(strings.TrimSpace(name)); r {
		case controller, engine, agent, shepherd, roleNode, hang:
			roles = append(roles, r)
		default:
			return nil, fmt.Errorf(
				"-roles: unknown role %q: controller, engine, agent, shepherd, node and hang are there",
				r,
			)
		}
	}
	return roles, nil
}

// killer kills one process after the other.
type killer struct {
	o     *options
	load  *load
	out   io.Writer
	acked func() int
	roles []role
	rng   *rand.Rand
	done  map[role]int
}

// plan is the roles in the order they die: each as often as the others, in
// random order.
func plan(kills int, roles []role, random *rand.Rand) []role {
	out := make([]role, kills)
	for i := range out {
		out[i] = roles[i%len(roles)]
	}
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// death is a process that was killed and is not back yet.
type death struct {
	role      role
	node, pid string
}

// run kills, waits a little, and brings back what does not come by itself.
// One time in four the next process dies, too, before anything is brought
// back: a service manager is not always quicker than the next fault.
func (k *killer) run(ctx context.Context) error {
	k.done = map[role]int{}
	var gone []death
	for i, r := range plan(k.o.kills, k.roles, k.rng) {
		d := death{role: r, node: fmt.Sprintf("node%d", 1+k.rng.IntN(k.o.nodes))}
		wait := time.Duration(200+k.rng.IntN(800)) * time.Millisecond
		apart := time.Duration(k.rng.IntN(700)) * time.Millisecond
		together := k.rng.IntN(4) == 0 && i+1 < k.o.kills
		if len(gone) == 0 {
			if err := pauseFor(ctx, wait); err != nil {
				return k.tooLong(i, err)
			}
		}
		var err error
		if r == hang {
			if err := k.allBack(ctx, &gone); err != nil {
				return fmt.Errorf("before hang %d of %d: %w", i+1, k.o.kills, err)
			}
			if err := k.hang(ctx, d.node, i+1); err != nil {
				return fmt.Errorf("hang %d of %d: %w", i+1, k.o.kills, err)
			}
			k.done[r]++
			continue
		}
		d.pid, err = k.once(ctx, d)
		if err != nil {
			// It died with the one before it, so that comes back first.
			err = k.allBack(ctx, &gone)
			if err == nil {
				d.pid, err = k.kill(ctx, d)
			}
		}
		if err != nil {
			return fmt.Errorf("kill %d of %d: %w", i+1, k.o.kills, err)
		}
		gone = append(gone, d)
		k.done[r]++
		fmt.Fprintf(
			k.out,
			"kill %d of %d: %s (pid %s); %d submissions acknowledged\n",
			i+1,
			k.o.kills,
			where(r, d.node),
			d.pid,
			k.acked(),
		)
		if together {
			continue
		}
		if err := pauseFor(ctx, apart); err != nil {
			return k.tooLong(i, err)
		}
		if err := k.allBack(ctx, &gone); err != nil {
			return fmt.Errorf("after kill %d of %d: %w", i+1, k.o.kills, err)
		}
	}
	return nil
}

// hang stops a process that is chosen at random, and lets it go on after some
// seconds: less than the time after which a node is down, more than most deadlines.
func (k *killer) hang(ctx context.Context, node string, number int) error {
	d := death{role: []role{controller, agent, shepherd}[k.rng.IntN(3)], node: node}
	length := time.Duration(500+k.rng.IntN(6000)) * time.Millisecond
	resume, err := k.o.stop(ctx, d)
	if err != nil {
		return err
	}
	fmt.Fprintf(k.out, "kill %d of %d: %s is stopped for %s; %d submissions acknowledged\n",
		number, k.o.kills, where(d.role, d.node), length, k.acked())
	werr := pauseFor(ctx, length)
	return errors.Join(resume(), werr)
}

// stop stops processes, once they are there, and returns what lets them go on.
func (o *options) stop(ctx context.Context, victims ...death) (resume func() error, err error) {
	var pids []int
	resume = func() error {
		var all error
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil &&
				!errors.Is(err, syscall.ESRCH) {
				all = errors.Join(all, fmt.Errorf("process %d cannot go on: %w", pid, err))
			}
		}
		return all
	}
	for _, d := range victims {
		pid, err := o.find(ctx, d)
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGSTOP)
		}
		if err != nil {
			return nil, errors.Join(
				fmt.Errorf("stop the %s: %w", where(d.role, d.node), err),
				resume(),
			)
		}
		pids = append(pids, pid)
	}
	return resume, nil
}

// find waits until a process is there.
func (o *options) find(ctx context.Context, d death) (pid int, err error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		text, err := o.clusterOut(ctx, "pid", string(d.role), d.node)
		if err == nil {
			return strconv.Atoi(strings.TrimSpace(text))
		}
		if err := pauseFor(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("it is not there within %s", patience)
}

// once kills the process if it is there.
func (k *killer) once(ctx context.Context, d death) (pid string, err error) {
	out, err := k.o.clusterOut(ctx, "kill", string(d.role), d.node)
	return strings.TrimSpace(out), err
}

// allBack brings back everything that died: daemons first, for the others are
// started by them.
func (k *killer) allBack(ctx context.Context, gone *[]death) error {
	slices.SortStableFunc(*gone, func(a, b death) int { return b.role.daemon() - a.role.daemon() })
	for _, d := range *gone {
		if err := k.back(ctx, d.role, d.node, d.pid); err != nil {
			return err
		}
	}
	*gone = nil
	return nil
}

// daemon is 1 for what a service manager starts.
func (r role) daemon() int {
	if r == controller || r == agent || r == roleNode {
		return 1
	}
	return 0
}

func (k *killer) tooLong(i int, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("only %d of %d processes were killed within %s", i, k.o.kills, k.o.limit)
	}
	return err
}

func where(r role, node string) string {
	switch r {
	case agent, shepherd:
		return string(r) + " of " + node
	case roleNode:
		return "agent and shepherd of " + node
	}
	return string(r)
}

// patience is how long a process may take to be there (again).
const patience = 60 * time.Second

// kill waits until the process is there and kills it.
func (k *killer) kill(ctx context.Context, d death) (pid string, err error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		pid, err = k.once(ctx, d)
		if err == nil {
			return pid, nil
		}
		if perr := pauseFor(ctx, 50*time.Millisecond); perr != nil {
			return "", perr
		}
	}
	return "", fmt.Errorf("no %s to kill for %s: %w", where(d.role, d.node), patience, err)
}

// back starts controllers and agents again, as a service manager would. The
// engine comes back through its supervisor and shepherds through their agent.
func (k *killer) back(ctx context.Context, r role, node, old string) error {
	if r.daemon() == 1 {
		return k.o.runCluster(ctx, "up")
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if pid, err := k.o.clusterOut(ctx, "pid", string(r), node); err == nil &&
			strings.TrimSpace(pid) != old {
			return nil
		}
		if err := pauseFor(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf(
		"the %s was killed and does not come back within %s",
		where(r, node),
		patience,
	)
}

func (k *killer) summarise() string {
	var parts []string
	n := 0
	for _, r := range k.roles {
		parts = append(parts, fmt.Sprintf("%s %d", r, k.done[r]))
		n += k.done[r]
	}
	return fmt.Sprintf("%d processes killed (%s)", n, strings.Join(parts, ", "))
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// runCluster runs a step of cluster.sh.
func (o *options) runCluster(ctx context.Context, args ...string) error {
	_, err := o.clusterOut(ctx, args...)
	return err
}

func (o *options) clusterOut(ctx context.Context, args ...string) (string, error) {
	return o.exec(ctx, o.script, args...)
}

// command runs one of the tools.
func (o *options) command(ctx context.Context, name string, args ...string) (string, error) {
	return o.exec(ctx, filepath.Join(o.bin, name), args...)
}

func (o *options) exec(ctx context.Context, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = slices.Concat(
		os.Environ(),
		[]string{"CLUSTER_DIR=" + o.dir, fmt.Sprint("CLUSTER_NODES=", o.nodes)},
	)
	cmd.WaitDelay = time.Second
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf(
			"%s %s: %w: %s",
			filepath.Base(path),
			strings.Join(args, " "),
			err,
			bytes.TrimSpace(errOut.Bytes()),
		)
	}
	return out.String(), nil
}
