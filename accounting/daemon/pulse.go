package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
)

// ErrSilent tells that a question was given up because the store did not answer a ping
// either.
var ErrSilent = errors.New("the accounting store shows no sign of life")

// A question may take minutes, so that it has no deadline of its own; a store that hangs never
// answers. While a question waits, the store is pinged, and the question ends when a ping is
// not answered. So whoever asks hears of it within five seconds, of which up to two are the
// wait for the newest events.
const (
	pulseFirst = 200 * time.Millisecond // most questions are over before
	pulseEvery = time.Second
	pulseWait  = 2500 * time.Millisecond // for the answer to a ping
)

// pulsedStore gives up questions that a store without a pulse will not answer.
type pulsedStore struct{ Store }

// watch is a context that ends when the store shows no sign of life. over ends the watch and
// returns the reason instead of what a question made of it.
func (p pulsedStore) watch(ctx context.Context) (watched context.Context, over func(error) error) {
	watched, cancel := context.WithCancelCause(ctx)
	go func() { // ends with the question, or with the first ping that fails
		for wait := pulseFirst; ; wait = pulseEvery {
			select {
			case <-watched.Done():
				return
			case <-time.After(wait):
			}
			if err := p.pingOnce(watched); err != nil {
				cancel(fmt.Errorf("%w: %w", ErrSilent, err))
				return
			}
		}
	}()
	return watched, func(err error) error {
		cause := context.Cause(watched)
		cancel(nil)
		if err != nil && errors.Is(cause, ErrSilent) {
			return cause
		}
		return err
	}
}

func (p pulsedStore) pingOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pulseWait)
	defer cancel()
	return p.Ping(ctx)
}

func (p pulsedStore) Query(
	ctx context.Context,
	q query.Query,
	each func(scan func(dest ...any) error) error,
) error {
	ctx, over := p.watch(ctx)
	return over(p.Store.Query(ctx, q, each))
}

func (p pulsedStore) Position(ctx context.Context, ledger [16]byte) (tally.Position, error) {
	ctx, over := p.watch(ctx)
	position, err := p.Store.Position(ctx, ledger)
	return position, over(err)
}

func (p pulsedStore) Raw(
	ctx context.Context,
	q query.Query,
	format string,
	lim query.Limits,
) (io.ReadCloser, error) {
	ctx, over := p.watch(ctx)
	body, err := p.Store.Raw(ctx, q, format, lim)
	if err != nil {
		return nil, over(err)
	}
	return &pulsedBody{body, over}, nil
}

// pulsedBody is an answer that is still being read.
type pulsedBody struct {
	io.ReadCloser
	over func(error) error
}

func (b *pulsedBody) Read(data []byte) (int, error) {
	n, err := b.ReadCloser.Read(data)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.over(err)
	}
	return n, err
}

func (b *pulsedBody) Close() error {
	err := b.ReadCloser.Close()
	_ = b.over(nil) // ends the watch
	return err
}
