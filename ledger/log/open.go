package log

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

var _ Log = (*Durable)(nil)

// Open opens or creates the log in a folder. In a cluster of one it returns when the whole log
// has been replayed into the machine and Append works; in a larger one it returns when the
// local part is verified, and the leader's writer calls Resume.
//
// It fails with ErrLocked, ErrCorrupt, ErrNewerVersion, ErrDiskFull, or what the machine
// answered to a batch.
func Open(ctx context.Context, opts Options) (*Durable, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	durable := &Durable{
		opts: opts, alone: opts.Transport == nil,
		closing: make(chan struct{}), done: make(chan struct{}), finished: make(chan struct{}),
		wake: make(
			chan struct{},
			1,
		), snapDue: make(chan struct{}, 1), snapReq: make(chan chan error),
		notify: make(chan bool), changed: make(chan struct{}),
		nextSeq: 1, runs: map[uint64]bool{}, stopped: &NotLeaderError{},
		heard: newHeard(),
	}
	if err := durable.openFiles(); err != nil {
		return nil, err
	}
	if err := durable.startRaft(); err != nil {
		return nil, errors.Join(err, durable.store.close(false), durable.lock.Close())
	}
	if p, ok := opts.Transport.(Prober); ok && !opts.Witness {
		durable.wg.Add(1)
		go durable.watchLeaderProcess(p)
	}
	durable.wg.Add(3)
	go durable.dispatchFrames()
	go durable.watchLeadership()
	go durable.takeSnapshots()
	if !durable.alone {
		return durable, nil
	}
	err = durable.Resume(ctx)
	if err == nil && durable.LastPosition() < opts.AtLeast {
		err = corruptError(
			opts.Dir,
			0,
			cureSegment,
			"the log ends at batch %d, but batch %d was acknowledged",
			durable.LastPosition(),
			opts.AtLeast,
		)
	}
	if err != nil {
		// What stopped the log says more than that it has stopped.
		if dead := durable.Err(); dead != nil {
			err = dead
		}
		return nil, errors.Join(err, durable.Close(ctx))
	}
	return durable, nil
}

// openFiles locks the folder and verifies what is in it.
func (d *Durable) openFiles() error {
	fs, dir := d.opts.FS, d.opts.Dir
	walDir, snapDir := filepath.Join(dir, "raft"), filepath.Join(dir, "snapshots")
	for _, p := range []string{dir, walDir, snapDir} {
		if err := fs.MkdirAll(p); err != nil {
			return fmt.Errorf("create the ledger's folder: %w", err)
		}
	}
	lock, err := fs.Lock(filepath.Join(dir, "LOCK"))
	if err != nil {
		return err
	}
	d.lock = lock
	if err := d.openStores(walDir, snapDir); err != nil {
		if isFull(err) {
			err = diskFull(err)
		}
		return errors.Join(err, lock.Close())
	}
	return nil
}

func (d *Durable) openStores(walDir, snapDir string) error {
	fs, logger := d.opts.FS, d.opts.Logger
	snaps, err := openSnapStore(fs, snapDir, logger)
	if err != nil {
		return err
	}
	indexes, err := snaps.listIndexes()
	if err != nil {
		return err
	}
	names, err := fs.ReadDir(walDir)
	if err != nil {
		return err
	}
	fresh := len(indexes) == 0
	for _, n := range names {
		fresh = fresh && !strings.HasSuffix(n, ".wal")
	}
	var salt [4]byte
	if _, err := crand.Read(salt[:]); err != nil {
		return err
	}
	meta, err := openMeta(fs, walDir, fresh, binary.LittleEndian.Uint32(salt[:]), logger)
	if err != nil {
		return err
	}
	if d.opts.StartAt > 0 && !fresh {
		return errors.Join(
			fmt.Errorf(
				"open the ledger's log: %s is not new, so it cannot begin at batch %d",
				d.opts.Dir,
				d.opts.StartAt,
			),
			meta.closeFiles(),
		)
	}
	next, err := openSpare(fs, walDir, int64(d.opts.SegmentBytes), d.opts.ReserveBytes, d.closing)
	if err != nil {
		return errors.Join(err, meta.closeFiles())
	}
	d.snaps = snaps
	d.store = &logStore{
		fs:       fs,
		dir:      walDir,
		meta:     meta,
		spare:    next,
		segBytes: d.opts.SegmentBytes,
		salt:     meta.state.Salt,
		log:      logger,
		closing:  d.closing,
		hooks: storeHooks{
			stored:  d.onStored,
			failed:  d.onStoreFailed,
			fatal:   d.stopForGood,
			refuse:  d.refuseFailed,
			compact: d.mayCompact,
			clear:   d.mayClear,
			running: d.running.Load,
		},
	}
	meta.onFail = d.store.metaFailed
	if len(indexes) > 0 {
		d.store.skip = indexes[0]
	}
	snaps.stateless = d.opts.Witness
	d.fsm = &fsm{
		machine:   d.opts.Machine,
		stateless: d.opts.Witness,
		every:     d.opts.SnapshotEvery,
		bytes:     d.opts.SnapshotBytes,
		complete:  d.completeFrames,
		due:       d.snapshotDue,
		fatal:     d.stopForGood,
		closing:   d.closing,
	}
	d.fsm.pos.Store(uint64(d.opts.StartAt))
	d.store.op.Lock()
	defer d.store.op.Unlock()
	if err := d.store.openVerified(keepAll); err != nil {
		return errors.Join(err, meta.closeFiles())
	}
	if err := d.checkContinuous(indexes); err != nil {
		return errors.Join(err, d.store.wal.Close(), meta.closeFiles())
	}
	return meta.setWatermark(d.store.last)
}

// checkContinuous checks that nothing is missing between the newest snapshot and the log.
func (d *Durable) checkContinuous(indexes []uint64) error {
	first, err := d.store.FirstIndex()
	if err != nil {
		return err
	}
	var snap uint64
	if len(indexes) > 0 {
		snap = indexes[0]
	}
	if first > snap+1 {
		return corruptError(
			d.opts.Dir,
			0,
			"put the newest snapshot back, or run `musterd ledger rebuild`",
			"the newest snapshot ends at entry %d and the log begins at %d",
			snap,
			first,
		)
	}
	return nil
}

func (d *Durable) startRaft() (err error) {
	trans := d.opts.Transport
	if d.alone {
		_, trans = raft.NewInmemTransport(raft.ServerAddress(d.opts.NodeID))
	}
	d.heard.silent = d.hung.Load
	trans = d.heard.hear(trans)
	d.trans = trans
	// A timeout that is then shortened makes raft hold its first election at once.
	first := d.opts.Timeout
	if d.alone {
		first *= 2
	}
	conf := d.opts.raftConfig(d.notify, first)
	if err := d.writeFirstConfiguration(trans); err != nil {
		return err
	}
	defer func() {
		// raft panics when it cannot save its term or read an entry while starting.
		if r := recover(); r != nil {
			err = fmt.Errorf("start raft: %v", r)
			if dead := d.Err(); dead != nil {
				err = dead
			}
		}
	}()
	d.raft, err = raft.NewRaft(conf, d.fsm, d.store, d.store, d.snaps, trans)
	if err != nil {
		// raft reduces the cause to a text.
		for _, cause := range []error{d.snaps.currentError(), d.fsm.restoreErr} {
			if cause != nil {
				return cause
			}
		}
		return fmt.Errorf("start raft: %w", err)
	}
	d.running.Store(true)
	if !d.isMember() {
		return errors.Join(
			fmt.Errorf(
				"%s belongs to another member of the ledger: %s is not among %v; set the node's id back",
				d.opts.Dir,
				d.opts.NodeID,
				d.listMembers(),
			),
			d.raft.Shutdown().Error(),
		)
	}
	if d.alone {
		rc := d.raft.ReloadableConfig()
		rc.HeartbeatTimeout, rc.ElectionTimeout = d.opts.Timeout, d.opts.Timeout
		return d.raft.ReloadConfig(rc)
	}
	return nil
}

// writeFirstConfiguration writes the first configuration into a new log.
func (d *Durable) writeFirstConfiguration(trans raft.Transport) error {
	members := d.opts.Members
	if d.alone {
		members = []Member{{ID: d.opts.NodeID, Address: string(trans.LocalAddr())}}
	}
	last, err := d.store.LastIndex()
	if err != nil {
		return err
	}
	snaps, err := d.snaps.listIndexes()
	if err != nil {
		return err
	}
	fresh := last == 0 && len(snaps) == 0
	if d.alone {
		err = d.refuseGroup()
	} else {
		err = d.claimFolder(fresh, trans)
	}
	if err != nil {
		return err
	}
	if !fresh || len(members) == 0 {
		return nil
	}
	// Not raft's own BootstrapCluster: when it is interrupted between the two writes, it leaves
	// a member that waits for a leader for ever.
	if err := d.store.bootTerm(); err != nil {
		return err
	}
	return d.store.StoreLog(
		&raft.Log{
			Index: 1,
			Term:  1,
			Type:  raft.LogConfiguration,
			Data:  raft.EncodeConfiguration(raftConfiguration(members)),
		},
	)
}

func raftConfiguration(members []Member) raft.Configuration {
	var c raft.Configuration
	for _, member := range members {
		c.Servers = append(
			c.Servers,
			raft.Server{
				Suffrage: raft.Voter,
				ID:       raft.ServerID(member.ID),
				Address:  raft.ServerAddress(member.Address),
			},
		)
	}
	return c
}

func (d *Durable) listMembers() []string {
	var ids []string
	for _, s := range d.raft.GetConfiguration().Configuration().Servers {
		ids = append(ids, string(s.ID))
	}
	return ids
}

// isMember reports whether this node may take part. Of a group's folder claimFolder knows whose it is:
// one that joins later has no configuration yet, and one that was removed has one without itself, until
// it is added again.
func (d *Durable) isMember() bool {
	return !d.alone || slices.Contains(d.listMembers(), d.opts.NodeID)
}

// watchLeadership follows leadership.
func (d *Durable) watchLeadership() {
	defer d.wg.Done()
	seen := make(chan raft.Observation, 16)
	obs := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	d.raft.RegisterObserver(obs)
	defer d.raft.DeregisterObserver(obs)
	watch := time.NewTicker(d.opts.hangAfter() / diskChecks)
	defer watch.Stop()
	looked := time.Now()
	for {
		select {
		case <-watch.C:
			d.checkDisk(looked)
			looked = time.Now()
		case leading := <-d.notify:
			d.takeLead(leading)
		case <-seen:
			d.wakeWaiters()
		case <-d.closing:
			return
		}
	}
}

func (d *Durable) takeLead(leading bool) {
	d.mu.Lock()
	d.leading = leading
	if d.over != nil {
		close(d.over)
		d.over = nil
	}
	if leading {
		d.over = make(chan struct{})
	}
	d.mu.Unlock()
	if !leading {
		// In a cluster of one what is stored will be applied by the next term; elsewhere nobody
		// knows.
		d.failBatches(&NotLeaderError{Unknown: !d.alone}, !d.alone)
	}
	d.wakeWaiters()
}

func (d *Durable) wakeWaiters() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.changed)
	d.changed = make(chan struct{})
}

// snapshotDue asks for a snapshot without waiting.
func (d *Durable) snapshotDue() {
	select {
	case d.snapDue <- struct{}{}:
	default:
	}
}

// takeSnapshots takes one at a time, when due or when asked.
func (d *Durable) takeSnapshots() {
	defer d.wg.Done()
	for {
		var reply chan error
		select {
		case <-d.snapDue:
		case reply = <-d.snapReq:
		case <-d.closing:
			return
		}
		err := d.takeSnapshot()
		if reply != nil {
			reply <- err
		} else if err != nil && !errors.Is(err, ErrClosed) {
			d.opts.Logger.Warn("a snapshot of the ledger failed; the log grows until one succeeds", "error", err)
		}
	}
}

func (d *Durable) takeSnapshot() error {
	indexes, err := d.snaps.listIndexes()
	if err == nil && len(indexes) > 0 && indexes[0] >= d.fsm.index.Load() {
		return nil // nothing new
	}
	d.snaps.rememberError(nil)
	err = d.raft.Snapshot().Error()
	if cause := d.snaps.currentError(); err != nil && cause != nil {
		err = fmt.Errorf("%w (%w)", err, cause) // raft keeps only the text of the cause
	}
	switch {
	case errors.Is(err, raft.ErrNothingNewToSnapshot):
		return nil
	case errors.Is(err, raft.ErrRaftShutdown):
		err = ErrClosed
	case err != nil && isFull(err):
		err = diskFull(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.snapErr = err
	if err == nil {
		d.snapsNum++
	}
	return err
}

// Snapshot takes one now.
func (d *Durable) Snapshot(ctx context.Context) error {
	reply := make(chan error, 1)
	select {
	case d.snapReq <- reply:
	case <-d.done:
		return d.stoppedErr()
	case <-d.closing:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-reply:
		return err
	case <-d.done:
		return d.stoppedErr()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *Durable) stoppedErr() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closedErr()
}

// Close stops the log.
func (d *Durable) Close(ctx context.Context) error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		<-d.finished
		return nil
	}
	d.closed = true
	var drained chan struct{}
	if len(d.waiting) > 0 {
		drained = make(chan struct{})
		d.drained = drained
	}
	d.mu.Unlock()
	if drained != nil {
		select {
		case <-drained:
		case <-d.done:
		case <-ctx.Done():
		}
	}
	close(d.closing)
	err := d.raft.Shutdown().Error()
	d.wg.Wait()
	clean := d.Err() == nil
	d.mu.Lock()
	if d.dead == nil {
		d.dead = ErrClosed
		close(d.done)
	}
	d.failLocked(ErrClosed, true)
	d.mu.Unlock()
	err = errors.Join(err, d.store.close(clean), d.lock.Close())
	close(d.finished)
	return err
}
