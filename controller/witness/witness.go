// Package witness is the third vote of two controllers. It keeps the ledger's log and no state,
// decides nothing, and serves nobody.
package witness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/musterhpc/muster/collector/web"
	"github.com/musterhpc/muster/controller/doors"
	"github.com/musterhpc/muster/controller/exporting"
	"github.com/musterhpc/muster/controller/keys"
	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/ledger/log"
)

// What a witness keeps.
const (
	// maxLog is how much of the log it keeps for a controller that is away, beyond what any member
	// keeps.
	maxLog = 2 << 30
	// snapshotBytes is after how much of the log it marks how far it has come.
	snapshotBytes = 16 << 20
	trailing      = 1024
)

// Options are what a witness has to know.
type Options struct {
	Config  *conffile.Config
	Cluster string
	Version string
	Readers web.Options // what is asked of those who read the metrics
	Log     *slog.Logger
}

// witness is one of a group that controllers have taken in.
type witness struct {
	of      Options
	peers   *peers.Peers
	durable *log.Durable

	mu   sync.Mutex
	said []peers.Answer // what the controllers said last
}

// Run is the whole life of a witness. It ends with the context, or when its log fails.
func Run(parent context.Context, of Options) (err error) {
	p, err := peers.Open(parent, peers.Options{
		Config:  of.Config,
		Cluster: of.Cluster,
		Version: of.Version,
		Witness: true,
		Log:     of.Log,
	})
	if err != nil {
		return err
	}
	group := parts.New(parent)
	defer group.Stop()
	group.Spawn("port of the controllers", func(context.Context) error { return p.Door.Serve() })
	group.Spawn("keep the certificate", func(ctx context.Context) error {
		return keys.KeepCertificate(ctx, p.Source, pki.Dir(of.Config.TLS.Dir), of.Log)
	})
	group.Spawn("close the door", func(ctx context.Context) error {
		<-ctx.Done()
		return p.Door.Close()
	})
	w := &witness{of: of, peers: p}
	if err := w.openLog(group.Context()); err != nil {
		if parent.Err() != nil {
			return nil
		}
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, w.durable.Close(ctx))
	}()
	group.Spawn("ask the controllers", w.followControllers)
	group.Spawn("hand the lead over", func(ctx context.Context) error {
		w.durable.PassLead(ctx, w.newReporter())
		return nil
	})
	// Its figures are those of its log alone.
	metrics := doors.Metrics{
		Address: doors.Address{Key: "listen.metrics", At: of.Config.Listen.Metrics},
		Pages:   exporting.Standby{Cluster: of.Cluster, Version: of.Version, Durable: w.durable}.Pages(),
		Readers: of.Readers,
		Log:     of.Log,
	}
	if err := metrics.Serve(group); err != nil {
		return err
	}
	of.Log.Info("the witness is ready", "cluster", of.Cluster, "name", p.Self.Name)
	select {
	case err := <-group.Failed():
		return err
	case <-w.durable.Done():
		return w.durable.Err()
	case <-parent.Done():
		return nil
	}
}

// openLog opens the log when the controllers have taken this witness in.
func (w *witness) openLog(ctx context.Context) error {
	config := w.of.Config
	p := w.peers
	dir := filepath.Join(config.StateDir, "ledger")
	fresh, err := log.Fresh(log.OS(), dir)
	if err != nil {
		return err
	}
	if fresh {
		p.SetWaits()
		if _, err := p.AwaitPermission(ctx); err != nil {
			return err
		}
	}
	options := log.Options{
		NodeID:        p.Self.Name,
		Timeout:       time.Duration(config.Controller.ElectionTimeout),
		Witness:       true,
		Dir:           dir,
		Logger:        w.of.Log,
		BeforeCompact: w.mayForget,
		SnapshotBytes: snapshotBytes,
		Trailing:      trailing,
		ReserveBytes:  uint64(config.Ledger.ReserveBytes),
	}
	options.Found = func() error {
		return fmt.Errorf(
			"%s holds the ledger of a controller, and this is a witness: give it an empty state_dir",
			dir,
		)
	}
	options.Transport = log.NewTransport(
		p.Door.Layer(p.Self.Address),
		max(10*options.Timeout, 2*time.Second),
		w.of.Log,
	)
	w.durable, err = log.Open(ctx, options)
	if err != nil {
		return fmt.Errorf("the log in %s: %w", config.StateDir, err)
	}
	p.SetDurable(w.durable)
	return nil
}

// followControllers asks the controllers how far they are.
func (w *witness) followControllers(ctx context.Context) error {
	for {
		said := w.peers.AskOthers(ctx)
		w.mu.Lock()
		w.said = said
		w.mu.Unlock()
		if !clock.PauseFor(ctx, peers.AskPatience) {
			return nil
		}
	}
}

// mayForget lets the log forget what all controllers have: until then this member
// may be the only one that can bring a controller up after the loss of the other. A
// controller that is away for long does not fill this disk.
func (w *witness) mayForget(position log.Position) error {
	w.mu.Lock()
	lacking := peers.Lackers(w.said, uint64(position))
	w.mu.Unlock()
	if lacking == "" {
		return nil
	}
	size, err := sizeOf(filepath.Join(w.of.Config.StateDir, "ledger", "raft"))
	if err != nil {
		return err
	}
	room, err := w.durable.Headroom()
	if err != nil {
		return err
	}
	if size > maxLog || room.Low() {
		w.of.Log.Warn(
			"the witness's log forgets what a controller lacks: that one can lead again only after another controller has brought it up",
			"controllers",
			lacking,
			"batch",
			uint64(position),
			"bytes",
			size,
		)
		return nil
	}
	return fmt.Errorf("%s lacks them", lacking)
}

// sizeOf is what the files of a folder take.
func sizeOf(dir string) (int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	total := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // it was dropped meanwhile
		}
		if err != nil {
			return 0, err
		}
		total += info.Size()
	}
	return total, nil
}

// newReporter reports what came of the leads that the witness got, each text once in a row.
func (w *witness) newReporter() func(error) {
	last := ""
	return func(err error) {
		text := "handed over"
		if err != nil {
			text = err.Error()
		}
		if text != last || err == nil {
			w.of.Log.Info("the witness was elected, and a controller shall lead", "outcome", text)
		}
		last = text
	}
}
