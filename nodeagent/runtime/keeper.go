//go:build linux

package runtime

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/proc"
)

// ErrDown means that no shepherd of this release answers at the moment; the
// Keeper is bringing one up.
var ErrDown = errors.New("the shepherd is down; it is being restarted")

// Keeper keeps a shepherd running and stays connected to it and to those of
// older releases that still have runs.
type Keeper struct {
	cfg    Config
	log    *slog.Logger
	events func([]plan.Event)

	// deliver lets one batch of news through at a time, whoever it is from.
	deliver sync.Mutex

	mu      sync.Mutex
	clients map[string]*Client     // by release
	owner   map[plan.RunKey]string // release that has a run; only for others than our own
	wg      sync.WaitGroup
}

// Keep starts or finds the shepherd and begins the news. It fails if the first
// start fails; later it retries for ever. Everything ends with the context,
// but for the shepherd itself.
func Keep(
	ctx context.Context,
	config Config,
	logger *slog.Logger,
	events func([]plan.Event),
) (*Keeper, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	keeper := &Keeper{
		cfg:     config,
		log:     logger,
		events:  events,
		clients: map[string]*Client{},
		owner:   map[plan.RunKey]string{},
	}
	// Older shepherds first: ours drains them as soon as it starts, and an
	// empty one is gone then.
	keeper.findOthers(ctx)
	client, err := Start(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := keeper.attachConn(ctx, config.Release, client); err != nil {
		return nil, err
	}
	keeper.wg.Go(func() { keeper.keepConnected(ctx, client) })
	return keeper, nil
}

// Wait returns when the context has ended and all connections are closed.
func (k *Keeper) Wait() { k.wg.Wait() }

// keepConnected replaces the connection whenever it ends.
func (k *Keeper) keepConnected(ctx context.Context, client *Client) {
	const first, longest = 50 * time.Millisecond, 5 * time.Second
	wait := first
	for {
		select {
		case <-ctx.Done():
			client.Close()
			return
		case <-client.Done():
		}
		k.detachConn(k.cfg.Release, client)
		k.log.Warn("the shepherd is gone; starting it again")
		for {
			next, err := Start(ctx, k.cfg)
			if err == nil {
				err = k.attachConn(ctx, k.cfg.Release, next)
				if err == nil {
					client, wait = next, first
					break
				}
			}
			if ctx.Err() != nil {
				return
			}
			k.log.Error("shepherd", "err", err, "retry_in", wait)
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			wait = min(2*wait, longest)
		}
		k.findOthers(ctx)
	}
}

// attachConn makes a connection known and begins its news.
func (k *Keeper) attachConn(ctx context.Context, release string, client *Client) error {
	k.mu.Lock()
	k.clients[release] = client
	k.mu.Unlock()
	err := client.Subscribe(ctx, func(batch []plan.Event) {
		k.deliver.Lock()
		defer k.deliver.Unlock()
		k.rememberOwner(release, batch)
		k.events(batch)
	})
	if err != nil {
		k.detachConn(release, client)
		client.Close()
	}
	return err
}

func (k *Keeper) detachConn(release string, client *Client) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.clients[release] == client {
		delete(k.clients, release)
	}
	for key, r := range k.owner {
		if r == release {
			delete(k.owner, key)
		}
	}
}

// rememberOwner remembers which older shepherd a run belongs to.
func (k *Keeper) rememberOwner(release string, batch []plan.Event) {
	if release == k.cfg.Release {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, event := range batch {
		if event.Exited != nil {
			k.owner[event.Exited.Key] = release
		} else if event.Started != nil {
			k.owner[event.Started.Key] = release
		}
	}
}

// findOthers connects to the shepherds of other releases that answer. When
// such a connection ends, our own shepherd has inherited what was left.
func (k *Keeper) findOthers(ctx context.Context) {
	entries, err := os.ReadDir(k.cfg.Dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		release := e.Name()
		k.mu.Lock()
		known := k.clients[release] != nil
		k.mu.Unlock()
		if _, err := os.Stat(filepath.Join(k.cfg.Dir, release, "sock")); err != nil || known ||
			release == k.cfg.Release {
			continue
		}
		client, err := dialWithin(ctx, Socket(k.cfg.Dir, release), k.cfg.callTimeout())
		if err != nil {
			continue // dead: our shepherd takes its runs over
		}
		if err := k.attachConn(ctx, release, client); err != nil {
			k.log.Warn("older shepherd", "release", release, "err", err)
			continue
		}
		k.log.Info("listening to an older shepherd", "release", release)
		k.wg.Go(func() {
			select {
			case <-ctx.Done():
			case <-client.Done():
			}
			k.detachConn(release, client)
			client.Close()
		})
	}
}

// Client gives the connection to our own release's shepherd.
func (k *Keeper) Client() (*Client, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if client := k.clients[k.cfg.Release]; client != nil {
		return client, nil
	}
	return nil, ErrDown
}

// allConns gives every connection, ours first, then by release.
func (k *Keeper) allConns() ([]*Client, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	own := k.clients[k.cfg.Release]
	if own == nil {
		return nil, ErrDown
	}
	clients := []*Client{own}
	var names []string
	for r := range k.clients {
		if r != k.cfg.Release {
			names = append(names, r)
		}
	}
	slices.Sort(names)
	for _, r := range names {
		clients = append(clients, k.clients[r])
	}
	return clients, nil
}

// Hello asks our shepherd what it says of itself now.
func (k *Keeper) Hello(ctx context.Context) (plan.Hello, error) {
	client, err := k.Client()
	if err != nil {
		return plan.Hello{}, err
	}
	return client.Greet(ctx)
}

// Launch asks our shepherd for runs.
func (k *Keeper) Launch(ctx context.Context, runs []plan.RunSpec) ([]plan.LaunchResult, error) {
	client, err := k.Client()
	if err != nil {
		return nil, err
	}
	return client.Launch(ctx, runs)
}

// List gives the runs of all shepherds, in the order of keys.
func (k *Keeper) List(ctx context.Context) ([]plan.Observed, error) {
	clients, err := k.allConns()
	if err != nil {
		return nil, err
	}
	var out []plan.Observed
	for i, client := range clients {
		runs, err := client.List(ctx)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			k.mu.Lock()
			for _, observed := range runs {
				k.owner[observed.Key] = client.Hello().Release
			}
			k.mu.Unlock()
		}
		out = append(out, runs...)
	}
	slices.SortFunc(out, func(a, b plan.Observed) int { return a.Key.Compare(b.Key) })
	return out, nil
}

// askEach asks the shepherds in turn until one knows the run.
func (k *Keeper) askEach(fn func(*Client) error) error {
	clients, err := k.allConns()
	if err != nil {
		return err
	}
	for _, client := range clients {
		err = fn(client)
		if !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return err
}

// Tell writes a line into the error output of a run, as its user.
func (k *Keeper) Tell(ctx context.Context, key plan.RunKey, line string) error {
	return k.askEach(func(c *Client) error { return c.Tell(ctx, key, line) })
}

// Signal sends one signal to the processes that the scope names.
func (k *Keeper) Signal(ctx context.Context, key plan.RunKey, sig int32, scope plan.Scope) error {
	return k.askEach(func(c *Client) error { return c.Signal(ctx, key, sig, scope) })
}

// Adopt makes a process, with what it starts from then on, one of a run that lives.
func (k *Keeper) Adopt(ctx context.Context, key plan.RunKey, pid int) error {
	return k.askEach(func(c *Client) error { return c.Adopt(ctx, key, pid) })
}

// Terminate sends SIGCONT and SIGTERM now and SIGKILL after the grace.
func (k *Keeper) Terminate(ctx context.Context, terminate plan.Terminate) error {
	return k.askEach(func(c *Client) error { return c.Terminate(ctx, terminate) })
}

// Usage gives the use so far of the named runs; without keys, of all.
func (k *Keeper) Usage(ctx context.Context, keys ...plan.RunKey) ([]plan.Usage, error) {
	clients, err := k.allConns()
	if err != nil {
		return nil, err
	}
	var usages []plan.Usage
	for _, client := range clients {
		u, err := client.Usage(ctx, keys...)
		if err != nil {
			return nil, err
		}
		usages = append(usages, u...)
	}
	return usages, nil
}

// Grant tells all shepherds that the controller has answered a heartbeat.
func (k *Keeper) Grant(ctx context.Context, grant plan.Grant) error {
	clients, err := k.allConns()
	if err != nil {
		return err
	}
	var errs []error
	for _, client := range clients {
		errs = append(errs, client.Grant(ctx, grant))
	}
	return errors.Join(errs...)
}

// Spaces gives the attempts that have private folders: those of all releases are
// in one place.
func (k *Keeper) Spaces(ctx context.Context, base string) ([]plan.RunKey, error) {
	client, err := k.Client()
	if err != nil {
		return nil, err
	}
	return client.Spaces(ctx, base)
}

// Vacate removes the private folders of an attempt that is over.
func (k *Keeper) Vacate(ctx context.Context, key plan.RunKey) error {
	client, err := k.Client()
	if err != nil {
		return err
	}
	return client.Vacate(ctx, key)
}

// BootClock is the machine's boot clock in nanoseconds, in which leases are counted.
func BootClock() int64 { return proc.BootClock() }

// Ack tells the shepherds to forget runs whose exits are recorded elsewhere.
func (k *Keeper) Ack(ctx context.Context, keys []plan.RunKey) error {
	by := map[string][]plan.RunKey{}
	k.mu.Lock()
	for _, key := range keys {
		r, other := k.owner[key]
		if !other {
			r = k.cfg.Release
		}
		by[r] = append(by[r], key)
		delete(k.owner, key)
	}
	clients := map[string]*Client{}
	for r := range by {
		clients[r] = k.clients[r]
	}
	k.mu.Unlock()
	var errs []error
	for r, list := range by {
		if clients[r] == nil {
			errs = append(errs, ErrDown)
			continue
		}
		errs = append(errs, clients[r].Ack(ctx, list))
	}
	return errors.Join(errs...)
}
