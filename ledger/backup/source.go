package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/program"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/ledger/care"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// ledgerHeadline names the state of a ledger at its newest batch.
type ledgerHeadline struct {
	cluster  string
	uuid     [16]byte
	position uint64 // of the batch
	seq      uint64 // of its last event
	at       spec.Instant
	hash     [32]byte
	version  uint32 // of the hash
	epochs   []state.Epoch
	firstSeq uint64 // from here on the archive has the events; 0 = it has none
}

// holdsPosition tells whether another position is part of the ledger's history.
func (h ledgerHeadline) holdsPosition(p event.Position) bool {
	cluster := &state.State{Seq: h.seq, Epochs: h.epochs}
	return cluster.HasSeen(p.Epoch, p.Seq)
}

// ledgerReader is a ledger that is backed up: of a controller that runs, or of a state
// folder that no controller uses.
type ledgerReader interface {
	headline(ctx context.Context) (ledgerHeadline, error)
	// encoded is headline with the state itself, for a history whose beginning was
	// dropped.
	encoded(
		ctx context.Context,
		take func(h ledgerHeadline, state io.Reader) error,
	) (ledgerHeadline, error)
	// batches hands on the archive from an event up to another.
	batches(ctx context.Context, from, upTo uint64, each func(b ledgerBatch) error) error
	// content gives a script or an environment; an error that wraps errContentGone says
	// that the ledger no longer has it.
	content(ctx context.Context, hash spec.Hash) ([]byte, error)
	close() error
}

// errContentGone tells a script or an environment that is not kept any more.
var errContentGone = errors.New("the script or environment is not there")

// ledgerBatch is one batch of the archive.
type ledgerBatch struct {
	position, first, last uint64
	events                []byte // until each returns
}

// openLedgerReader opens the ledger of a configuration: that of the controller which
// answers at the socket, or of the one that leads its group, else the state folder's.
func openLedgerReader(ctx context.Context, config *conffile.Config) (ledgerReader, error) {
	if !controllerRuns(ctx, config) {
		return openStoppedLedger(config)
	}
	conn, at, err := dialLedger(ctx, config)
	if err != nil {
		return nil, err
	}
	return &runningLedger{conn: conn, client: service.NewLedgerClient(conn), at: at}, nil
}

// dialLedger makes a client of the controller of this host, or of another one of the
// group that leads: the socket of a standby takes the calls of tools only.
func dialLedger(
	ctx context.Context,
	config *conffile.Config,
) (conn *grpc.ClientConn, at string, err error) {
	who, self, err := conffile.ReadControllers(config)
	if err != nil || self == nil {
		conn, err := grpcx.DialUnix(config.Socket)
		return conn, config.Socket, err
	}
	source, err := pki.LoadSource(pki.Dir(config.TLS.Dir))
	if err != nil {
		return nil, "", fmt.Errorf("this host's certificate in %s: %w", config.TLS.Dir, err)
	}
	conn, at, err = peers.NewAsker(*self, who, source).DialLeader(ctx)
	if conn == nil && err == nil {
		conn, err = grpcx.DialUnix(config.Socket)
		at = config.Socket + " (no other controller leads: muster controllers)"
	}
	return conn, at, err
}

// endPatience is how long a controller that was killed may take to be gone. A large
// one takes a second; one that hangs in the kernel still counts as running.
const endPatience = 10 * time.Second

// controllerRuns tells whether a controller listens at the socket. One that was killed
// listens until its memory is freed, and is waited for.
func controllerRuns(ctx context.Context, config *conffile.Config) bool {
	for began := time.Now(); ; {
		pid, err := findListener(config.Socket)
		if err != nil {
			return false
		}
		if !program.IsEnding(pid) || time.Since(began) > endPatience {
			return true
		}
		if !clock.PauseFor(ctx, 5*time.Millisecond) { // its end gives no event here
			return true
		}
	}
}

// findListener gives the process that listens at a local socket.
func findListener(path string) (pid int, err error) {
	conn, err := net.DialTimeout("unix", path, 5*time.Second)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	local, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("%s is not a local socket", path)
	}
	raw, err := local.SyscallConn()
	if err != nil {
		return 0, err
	}
	var asked error
	err = raw.Control(func(fd uintptr) {
		var who *syscall.Ucred
		who, asked = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		if asked == nil {
			pid = int(who.Pid)
		}
	})
	return pid, errors.Join(err, asked)
}

// runningLedger is the ledger of a controller that runs, and leads.
type runningLedger struct {
	conn   *grpc.ClientConn
	client service.LedgerClient
	at     string // socket or address
}

func (r *runningLedger) close() error { return r.conn.Close() }

// blameServer says whom an error is of.
func (r *runningLedger) blameServer(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the controller at %s: %w", r.at, err)
}

func (r *runningLedger) headline(ctx context.Context) (ledgerHeadline, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.client.State(ctx, &apiv1.LedgerStateRequest{})
	if err != nil {
		return ledgerHeadline{}, r.blameServer(err)
	}
	first, err := stream.Recv()
	if err != nil {
		return ledgerHeadline{}, r.blameServer(err)
	}
	return headlineOf(first)
}

func headlineOf(message *apiv1.LedgerStateReply) (ledgerHeadline, error) {
	headline := ledgerHeadline{
		cluster:  message.GetCluster(),
		position: message.GetPosition(),
		seq:      message.GetSeq(),
		at:       spec.Instant(message.GetAt()),
		version:  message.GetHashVersion(),
		firstSeq: message.GetFirstSeq(),
	}
	if len(message.GetClusterUuid()) != len(headline.uuid) ||
		len(message.GetHash()) != len(headline.hash) {
		return headline, errors.New(
			"the controller's answer does not name its state: run the same release of musterd",
		)
	}
	copy(headline.uuid[:], message.GetClusterUuid())
	copy(headline.hash[:], message.GetHash())
	for _, epoch := range message.GetEpochs() {
		headline.epochs = append(
			headline.epochs, state.Epoch{Value: epoch.GetValue(), Seq: epoch.GetSeq()},
		)
	}
	return headline, nil
}

func (r *runningLedger) encoded(
	ctx context.Context,
	take func(ledgerHeadline, io.Reader) error,
) (ledgerHeadline, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.client.State(ctx, &apiv1.LedgerStateRequest{Encoded: true})
	if err != nil {
		return ledgerHeadline{}, r.blameServer(err)
	}
	first, err := stream.Recv()
	if err != nil {
		return ledgerHeadline{}, r.blameServer(err)
	}
	headline, err := headlineOf(first)
	if err != nil {
		return headline, err
	}
	return headline, take(headline, &chunkReceiver{from: stream})
}

// chunkReceiver reads the pieces of an encoded state.
type chunkReceiver struct {
	from service.Ledger_StateClient
	rest []byte
}

func (c *chunkReceiver) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		message, err := c.from.Recv()
		if err != nil {
			return 0, err
		}
		c.rest = message.GetData()
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// archivePatience is how long the archive may take to get a batch that is applied.
const archivePatience = 10 * time.Second

func (r *runningLedger) batches(
	ctx context.Context,
	from, upTo uint64,
	each func(ledgerBatch) error,
) error {
	moved := time.Now()
	for from <= upTo {
		before := from
		if err := r.streamSome(ctx, &from, upTo, each); err != nil {
			return err
		}
		if from > before {
			moved = time.Now()
			continue
		}
		if time.Since(moved) > archivePatience {
			return fmt.Errorf(
				"the controller's archive ends at event %d, before %d: is its disk full? (df %s)",
				from-1,
				upTo,
				"the folder of ledger.archive_dir",
			)
		}
		if !clock.PauseFor(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// streamSome hands on what the archive has now.
func (r *runningLedger) streamSome(
	ctx context.Context,
	from *uint64,
	upTo uint64,
	each func(ledgerBatch) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.client.Subscribe(ctx, &apiv1.SubscribeRequest{FromSeq: *from})
	if err != nil {
		return r.blameServer(err)
	}
	for *from <= upTo {
		batch, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return r.blameServer(err)
		}
		if err := each(ledgerBatch{batch.GetPosition(), batch.GetFirstSeq(), batch.GetLastSeq(), batch.GetEvents()}); err != nil {
			return err
		}
		*from = batch.GetLastSeq() + 1
	}
	return nil
}

func (r *runningLedger) content(ctx context.Context, hash spec.Hash) ([]byte, error) {
	reply, err := r.client.Content(ctx, &apiv1.ContentRequest{Hash: hash[:]})
	if err == nil {
		return reply.GetData(), nil
	}
	if _, alive := r.headline(ctx); alive != nil {
		return nil, r.blameServer(err)
	}
	return nil, fmt.Errorf("%w: %w", errContentGone, err)
}

// stoppedLedger is the ledger in a state folder that no controller uses: the archive,
// and what the log has behind its end. Nothing in it is changed but what a start cuts
// off too, the remains of an interrupted write.
type stoppedLedger struct {
	lock    io.Closer
	arch    *store.Archive
	blobs   *store.Blobs
	tail    *care.Tail
	machine *daemon.Machine
}

func openStoppedLedger(config *conffile.Config) (_ ledgerReader, err error) {
	folder := &care.Care{State: config.StateDir, Archive: config.Ledger.ArchiveDir, Out: io.Discard}
	codec, err := event.NewCodec()
	if err != nil {
		return nil, err
	}
	stopped := &stoppedLedger{tail: &care.Tail{Codec: codec}}
	found, err := log.Read(folder.LogDir(), stopped.tail.AddBatch)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf(
			"%w: there is nothing to back up in %s, and no controller answers at %s",
			err,
			config.StateDir,
			config.Socket,
		)
	case errors.Is(err, log.ErrLocked):
		return nil, fmt.Errorf(
			"%w, and no controller answers at %s: wait until it has started, or until its end",
			err,
			config.Socket,
		)
	case err != nil:
		return nil, err
	case len(found.Damage) > 0:
		return nil, fmt.Errorf(
			"%w: musterd ledger verify names each place, musterd ledger rebuild mends it",
			errors.Join(found.Damage...),
		)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stopped.close())
		}
	}()
	stopped.lock, err = log.OS().Lock(filepath.Join(folder.LogDir(), "LOCK"))
	if err != nil {
		return nil, care.BlameUse(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	stopped.arch, err = store.OpenArchive(folder.Archive, quiet)
	if err != nil {
		return nil, fmt.Errorf("the archive in %s: %w", folder.Archive, err)
	}
	stopped.blobs, err = store.OpenBlobs(folder.ContentsDir(), quiet)
	if err != nil {
		return nil, fmt.Errorf("the contents in %s: %w", folder.ContentsDir(), err)
	}
	stopped.machine = daemon.NewMachine(codec, unarchived{}, stopped.blobs)
	if err := folder.FoldArchive(stopped.arch.Disk, codec, stopped.machine); err != nil {
		return nil, err
	}
	if err := stopped.tail.ReplayOnto(stopped.machine, folder.ArchiveEnd(stopped.arch.Disk)); err != nil {
		return nil, err
	}
	if stopped.machine.Applied().Seq == 0 {
		return nil, fmt.Errorf(
			"the ledger in %s is empty: there is nothing to back up",
			config.StateDir,
		)
	}
	return stopped, nil
}

// unarchived is the archive of a fold that only looks.
type unarchived struct{}

func (unarchived) Append(_, _, _ uint64, _ []byte) error { return nil }

func (s *stoppedLedger) close() error {
	var errs []error
	if s.arch != nil {
		errs = append(errs, s.arch.Close())
	}
	if s.blobs != nil {
		errs = append(errs, s.blobs.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

func (s *stoppedLedger) headline(context.Context) (ledgerHeadline, error) {
	cluster := s.machine.Applied()
	stats := s.arch.Disk.Stats()
	position := stats.LastPos
	for _, batch := range s.tail.Batches {
		if batch.First > stats.LastSeq && batch.Last <= cluster.Seq {
			position++
		}
	}
	return ledgerHeadline{
		cluster:  cluster.ClusterName,
		uuid:     cluster.UUID,
		position: position,
		seq:      cluster.Seq,
		at:       cluster.At,
		hash:     cluster.Hash(),
		version:  state.SnapshotVersion,
		epochs:   cluster.Epochs,
		firstSeq: stats.FirstSeq,
	}, nil
}

func (s *stoppedLedger) encoded(
	ctx context.Context,
	take func(ledgerHeadline, io.Reader) error,
) (ledgerHeadline, error) {
	headline, err := s.headline(ctx)
	if err != nil {
		return headline, err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(s.machine.Applied().Encode(w)) }()
	return headline, errors.Join(take(headline, r), r.Close())
}

func (s *stoppedLedger) batches(
	ctx context.Context,
	from, upTo uint64,
	each func(ledgerBatch) error,
) error {
	stats := s.arch.Disk.Stats()
	if from <= stats.LastSeq {
		iterator, err := s.arch.Disk.Reader(from)
		if err != nil {
			return err
		}
		for from <= min(upTo, stats.LastSeq) {
			record, err := iterator.Next()
			if err != nil {
				return err
			}
			if err := errors.Join(ctx.Err(), each(ledgerBatch{record.Pos, record.FirstSeq, record.LastSeq, record.Batch})); err != nil {
				return err
			}
			from = record.LastSeq + 1
		}
	}
	position := stats.LastPos
	for _, batch := range s.tail.Batches {
		if batch.First <= stats.LastSeq {
			continue
		}
		position++
		if batch.First != from || batch.First > upTo {
			continue
		}
		events, err := daemon.EventsOf(batch.Data)
		if err != nil {
			return err
		}
		if err := each(ledgerBatch{position, batch.First, batch.Last, events}); err != nil {
			return err
		}
		from = batch.Last + 1
	}
	if from <= upTo {
		return fmt.Errorf("the ledger ends at event %d, before %d", from-1, upTo)
	}
	return nil
}

func (s *stoppedLedger) content(_ context.Context, hash spec.Hash) ([]byte, error) {
	data, err := s.blobs.Get(hash)
	if err != nil {
		err = fmt.Errorf("%w: %w", errContentGone, err)
	}
	return data, err
}

// fileAbsent tells whether a path has no file or folder.
func fileAbsent(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
