package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/accounting/embedded"
)

// benchStore is a store in an engine of its own.
type benchStore struct {
	*clickhouse.Store
	dir    string
	engine *embedded.Supervisor
	keep   bool // the folder stays
}

// openBenchStore starts an engine in a folder, a temporary one if none is named.
func openBenchStore(ctx context.Context, dir string, keep bool) (_ *benchStore, err error) {
	if dir == "" {
		dir, err = os.MkdirTemp("", "mba")
	} else {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, err
	}
	store := &benchStore{dir: dir, keep: keep}
	defer func() {
		if err != nil {
			store.close()
		}
	}()
	store.engine, err = embedded.Start(
		ctx,
		embedded.Options{
			Data:   filepath.Join(dir, "d"),
			Socket: filepath.Join(dir, "e"),
			Log:    slog.New(slog.DiscardHandler),
		},
	)
	if err != nil {
		return nil, err
	}
	store.Store, err = clickhouse.Open(clickhouse.Options{Socket: store.engine.Socket()})
	if err != nil {
		return nil, err
	}
	return store, store.Migrate(ctx)
}

// close stops the engine, and drops its folder unless that stays.
func (s *benchStore) close() {
	var err error
	if s.Store != nil {
		err = s.Close()
	}
	if s.engine != nil {
		err = errors.Join(err, s.engine.Close())
	}
	if !s.keep {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the store of the benchmark is not tidied up:", err)
	}
}
