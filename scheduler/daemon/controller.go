// Package daemon is the controller: the single writer of the ledger, the
// passes of the scheduler, the streams of the agents and the services that
// users call. Everything that decides is in the pure packages; here is only
// when, and with whom.
//
// Who owns what: the writer's goroutine owns the head state; the settling
// goroutine publishes views; the pass goroutine owns the plan; the hub owns
// the agents' connections. Everyone else reads the published view.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/policy"
	"github.com/musterhpc/muster/spec"
)

// Controller is one controller of a cluster.
type Controller struct {
	deps    Deps
	machine *Machine
	writer  *writer
	hub     *hub
	started spec.Instant
	figures figures
	recent  *recent // contents that came lately
	senders senders // who sent which of them
	ctl     *ctlScripts
	present *presence
	orphans *orphans
	steps   *stepLines
	readers *eventReaders
	// listeners hear what scontrol notify says of a job.
	listeners listeners
	moments   *moments

	mu      sync.Mutex // guards changed and the order of published views
	changed chan struct{}
	view    atomic.Pointer[view.View]

	stopping chan struct{} // closed when the shutdown begins: nothing new is taken
	stopped  chan struct{} // closed when the writer has answered all that it took
	kick     chan struct{} // a pass is wanted at once
	arrived  chan struct{} // there are new jobs
	// supposing is the turn of who asks what changes would do: one at a time.
	supposing chan struct{}

	numbered      chan struct{} // closed when job numbers may be given
	accounted     chan struct{} // closed when accounting has compared its history
	accountedOnce sync.Once
	raiseAt       atomic.Int64 // when the ledger's version is raised by itself; 0 = it is not
	// counted are the figures at the time of sdiag --reset, which later ones count from; nil =
	// nobody has asked for that.
	counted atomic.Pointer[apiv1.DiagReply]
}

// figures are counters that are not in the ledger.
type figures struct {
	commands, batches, events, refused, stale atomic.Uint64
	invariantFailures                         atomic.Uint64
	appendLast, appendMax                     atomic.Int64
}

// New makes a controller over a machine whose log has been replayed.
func New(deps Deps, machine *Machine) *Controller {
	controller := &Controller{
		deps:    deps,
		machine: machine,
		recent:  newRecent(),
		started: deps.Clock.Now(),
		changed: make(chan struct{}),
		stopping: make(
			chan struct{},
		),
		stopped: make(chan struct{}),
		kick:    make(chan struct{}, 1),
		arrived: make(chan struct{}, 1),

		supposing: make(chan struct{}, 1),

		accounted: make(chan struct{}),
		numbered:  make(chan struct{}),
	}
	if deps.Restored == nil {
		close(controller.numbered)
	}
	controller.orphans = newOrphans()
	controller.readers = newEventReaders()
	controller.moments = newMoments(controller)
	controller.hub = newHub(controller)
	controller.ctl = newCtlScripts(controller)
	controller.present = newPresence(controller)
	controller.steps = newStepLines(controller)
	controller.writer = newWriter(controller)
	controller.publishView(func(v *view.View) { v.State = machine.Applied() })
	return controller
}

// Run serves until the context ends or something breaks for good. A cluster
// that is new is created with config; a changed configuration is adopted.
func (c *Controller) Run(ctx context.Context, create Create, ready chan<- struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, 8)
	var wg sync.WaitGroup
	start := func(name string, f func(context.Context) error) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := f(ctx); err != nil {
				errs <- fmt.Errorf("%s: %w", name, err)
				cancel()
			}
		}()
	}
	start("writer", c.writer.run)
	start("settle", c.writer.settleBatches)
	err := c.foundCluster(ctx, create)
	if err == nil {
		start("job numbers", c.settleNumbers)
		start("passes", c.runPasses)
		start("ticks", c.runTicks)
		start("programs of jobs", c.ctl.run)
		start("programs of triggers", newTriggerRuns(c).run)
		start("watch nodes", c.hub.watchSilence)
		start("watch clients", c.present.run)
		start("raise the ledger's version", c.raiseInTime)
		close(ready)
		<-ctx.Done()
	}
	cancel()
	close(c.stopping)
	c.hub.closeAll("the controller is shutting down")
	wg.Wait()
	close(c.stopped)
	return errors.Join(err, firstOf(errs))
}

func firstOf(errs chan error) error {
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// Create is what a new cluster starts with, and the configuration to adopt.
type Create struct {
	Config *spec.Config
	UUID   [16]byte // for a new cluster
	Admin  string   // user name of the administrator
}

// foundCluster creates a new cluster or adopts a changed configuration.
func (c *Controller) foundCluster(ctx context.Context, create Create) error {
	cluster := c.View().State
	system := event.Actor{Kind: event.ActorSystem}
	if cluster.Seq == 0 {
		evs := append(
			[]event.Event{
				&event.ClusterCreated{
					UUID:    create.UUID,
					Name:    create.Config.ClusterName,
					Version: event.Version,
				},
			},
			policy.Founding(create.Config.Enforce.Associations)...)
		if rep := c.writer.commitCommand(ctx, &request{cmd: scheduler.Policy{Events: evs}, actor: system}); rep.err != nil {
			return fmt.Errorf("create the cluster: %w", rep.err)
		}
		cluster = c.View().State
	}
	if cluster.ClusterName != create.Config.ClusterName {
		return fmt.Errorf(
			"the ledger belongs to cluster %q, the configuration says ClusterName=%s: use the right state folder or name",
			cluster.ClusterName,
			create.Config.ClusterName,
		)
	}
	rep := c.writer.commitCommand(
		ctx,
		&request{
			cmd: scheduler.BeginEpoch{
				Value:   newEpoch(),
				Host:    c.deps.Settings.Host,
				Version: c.deps.Settings.Version,
			},
			actor: system,
		},
	)
	if rep.err != nil {
		return fmt.Errorf("begin to lead: %w", rep.err)
	}
	cluster = c.View().State
	config, err := c.writableConfig(create.Config.KeepChanged(cluster.Config))
	if err != nil {
		return err
	}
	if sameConfig(cluster.Config, config.KeepDynamic(cluster.Config)) {
		return nil
	}
	rep = c.writer.commitCommand(
		ctx,
		&request{cmd: scheduler.Configure{Config: config}, actor: system},
	)
	return rep.err
}

// newEpoch is a random number other than 0, which means no epoch.
func newEpoch() uint64 { return max(rand.Uint64(), 1) }

// View is the newest published snapshot.
func (c *Controller) View() *view.View { return c.view.Load() }

// Changed returns a channel that closes when a newer view than the one
// returned with it is published.
func (c *Controller) Changed() (*view.View, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view.Load(), c.changed
}

// publishView makes a new view out of the last one.
func (c *Controller) publishView(f func(v *view.View)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := view.View{}
	if old := c.view.Load(); old != nil {
		next = *old
	}
	f(&next)
	next.Published = c.deps.Clock.Now()
	c.view.Store(&next)
	close(c.changed)
	c.changed = make(chan struct{})
}

// publishCommitted publishes a durable batch and carries its effects out.
func (c *Controller) publishCommitted(batch *flight) {
	took := max(c.deps.Clock.Now().Sub(batch.appended), 0) // the clock may have been set back
	c.figures.batches.Add(1)
	c.figures.events.Add(uint64(len(batch.events)))
	c.figures.appendLast.Store(int64(took))
	if int64(took) > c.figures.appendMax.Load() {
		c.figures.appendMax.Store(int64(took))
	}
	c.publishView(func(snapshot *view.View) {
		snapshot.State, snapshot.Durable = batch.state, batch.state.Seq
		snapshot.Writer = view.WriterStats{
			Commands:          c.figures.commands.Load(),
			Batches:           c.figures.batches.Load(),
			Events:            c.figures.events.Load(),
			Refused:           c.figures.refused.Load(),
			StaleReports:      c.figures.stale.Load(),
			QueueLen:          int64(len(c.writer.cmds)),
			LogPosition:       c.deps.Log.LastPosition(),
			AppendLast:        took,
			AppendMax:         spec.Span(c.figures.appendMax.Load()),
			InvariantFailures: c.figures.invariantFailures.Load(),
		}
	})
	c.hub.sendEffects(batch)
	if c.deps.Committed != nil {
		c.deps.Committed(batch.state, batch.events)
	}
	c.deps.Verbosity.noteEvents(batch.state, batch.events)
	c.wantPass(batch.events)
}

// SetAccounted notes how far accounting has confirmed the ledger.
func (c *Controller) SetAccounted(seq uint64) {
	c.accountedOnce.Do(func() { close(c.accounted) })
	c.publishView(func(v *view.View) { v.AccountedSeq, v.AccountedAt = seq, c.deps.Clock.Now() })
}

// sleepFor waits, or tells that the context ended first.
func (c *Controller) sleepFor(ctx context.Context, d spec.Span) bool {
	fires, stop := c.deps.Clock.After(d)
	defer stop()
	select {
	case <-fires:
		return true
	case <-ctx.Done():
		return false
	}
}

// HeadSeq is the last event of the published state.
func (c *Controller) HeadSeq() uint64 { return c.View().State.Seq }

// Epochs are those of the ledger, with its newest durable event.
func (c *Controller) Epochs() (epochs []state.Epoch, head uint64) {
	cluster := c.View().State
	return cluster.Epochs, cluster.Seq
}

// Stopping is closed when the shutdown begins.
func (c *Controller) Stopping() <-chan struct{} { return c.stopping }

func (c *Controller) isStopping() bool {
	select {
	case <-c.stopping:
		return true
	default:
		return false
	}
}

// Agents is the number of nodes with a stream to this controller.
func (c *Controller) Agents() int { return c.hub.countConnected() }

// ConnectedNodes are the nodes whose agents have a stream to this controller.
func (c *Controller) ConnectedNodes() map[string]bool { return c.hub.connectedNodes() }

// Live is what the agents' heartbeats said last, by node.
func (c *Controller) Live() map[string]wire.NodeLive { return c.hub.copySaid() }
