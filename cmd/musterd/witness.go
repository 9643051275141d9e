package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/ledger/log"
)

// witnessRole is musterd's role as the third vote of two controllers.
const witnessRole = "witness"

// What a witness keeps.
const (
	// maxWitnessLog is how much of the log it keeps for a controller that is away,
	// beyond what any member keeps.
	maxWitnessLog = 2 << 30
	// witnessSnapshotBytes is after how much of the log it marks how far it has come.
	witnessSnapshotBytes = 16 << 20
	witnessTrailing      = 1024
)

// witness votes among controllers and keeps their log. It has no state, decides
// nothing and serves nobody.
type witness struct {
	s *server
	p *peers.Peers

	mu   sync.Mutex
	said []peers.Answer // what the controllers said last
}

// runWitness is the whole life of a witness.
func (s *server) runWitness(parent context.Context) (err error) {
	p, err := peers.Open(parent, s.peersOptions())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(parent)
	g := &group{ctx: ctx, errs: make(chan error, 16)}
	defer g.wg.Wait()
	defer cancel()
	s.peers = p
	g.spawnPart("port of the controllers", func(context.Context) error { return p.Door.Serve() })
	s.keepCertificate(g, p.Source)
	g.spawnPart("close the door", func(ctx context.Context) error {
		<-ctx.Done()
		return p.Door.Close()
	})
	w := &witness{s: s, p: p}
	if err := w.open(ctx); err != nil {
		return ignoreEnd(parent, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, s.durable.Close(ctx))
	}()
	g.spawnPart("ask the controllers", w.follow)
	g.spawnPart("hand the lead over", func(ctx context.Context) error {
		s.durable.PassLead(ctx, w.told())
		return nil
	})
	if err := w.serve(g); err != nil {
		return err
	}
	s.log.Info("the witness is ready", "cluster", s.cluster.ClusterName, "name", p.Self.Name)
	select {
	case err := <-g.errs:
		return err
	case <-s.durable.Done():
		return s.durable.Err()
	case <-parent.Done():
		return nil
	}
}

// open opens the log when the controllers have taken this witness in.
func (w *witness) open(ctx context.Context) error {
	s, p := w.s, w.p
	dir := filepath.Join(s.cfg.StateDir, "ledger")
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
		Timeout:       time.Duration(s.cfg.Controller.ElectionTimeout),
		Witness:       true,
		Dir:           dir,
		Logger:        s.log,
		BeforeCompact: w.mayForget,
		SnapshotBytes: witnessSnapshotBytes,
		Trailing:      witnessTrailing,
		ReserveBytes:  uint64(s.cfg.Ledger.ReserveBytes),
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
		s.log,
	)
	s.durable, err = log.Open(ctx, options)
	if err != nil {
		return fmt.Errorf("the log in %s: %w", s.cfg.StateDir, err)
	}
	p.SetDurable(s.durable)
	return nil
}

// serve opens /metrics and the health of a witness: figures of its log alone.
func (w *witness) serve(g *group) error {
	addr := w.s.cfg.Listen.Metrics
	if addr.Off() {
		return nil
	}
	if err := w.s.webOptions().Check(); err != nil {
		return err
	}
	l, err := listen.TCP(g.ctx, string(addr))
	if err != nil {
		return fmt.Errorf("listen.metrics: %w (choose another in muster.yaml)", err)
	}
	serveHTTP(g, l, w.s.standbyPages(), w.s.webOptions(), w.s.log)
	return nil
}

// follow asks the controllers how far they are.
func (w *witness) follow(ctx context.Context) error {
	for {
		said := w.p.AskOthers(ctx)
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
func (w *witness) mayForget(pos log.Position) error {
	w.mu.Lock()
	lacking := peers.Lackers(w.said, uint64(pos))
	w.mu.Unlock()
	if lacking == "" {
		return nil
	}
	size, err := sizeOf(filepath.Join(w.s.cfg.StateDir, "ledger", "raft"))
	if err != nil {
		return err
	}
	room, err := w.s.durable.Headroom()
	if err != nil {
		return err
	}
	if size > maxWitnessLog || room.Low() {
		w.s.log.Warn(
			"the witness's log forgets what a controller lacks: that one can lead again only after another controller has brought it up",
			"controllers",
			lacking,
			"batch",
			uint64(pos),
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

// told reports what came of the leads that the witness got, each text once in a row.
func (w *witness) told() func(error) {
	last := ""
	return func(err error) {
		text := "handed over"
		if err != nil {
			text = err.Error()
		}
		if text != last || err == nil {
			w.s.log.Info("the witness was elected, and a controller shall lead", "outcome", text)
		}
		last = text
	}
}
