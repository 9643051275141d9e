package daemon

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhpc/muster/accounting/query"
)

// hangingStore answers nothing before its context ends, and pings as long as it lives.
type hangingStore struct {
	Store
	dies  time.Time // from when on pings are not answered either
	takes time.Duration
	pings int
}

func (s *hangingStore) Ping(ctx context.Context) error {
	s.pings++
	if time.Now().Before(s.dies) {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *hangingStore) Query(ctx context.Context, _ query.Query, _ func(func(...any) error) error) error {
	select {
	case <-time.After(s.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *hangingStore) Raw(ctx context.Context, _ query.Query, _ string, _ query.Limits) (io.ReadCloser, error) {
	return &hangingBody{ctx}, nil
}

type hangingBody struct{ ctx context.Context }

func (b *hangingBody) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, b.ctx.Err() }
func (b *hangingBody) Close() error             { return nil }

// TestPulse: a question may take as long as the store shows that it lives, and ends within
// five seconds from when it does not.
func TestPulse(t *testing.T) {
	for _, tc := range []struct {
		name         string
		lives, takes time.Duration
		silent       bool
	}{
		{"quick", 0, 100 * time.Millisecond, false},
		{"slow and alive", time.Hour, 10 * time.Minute, false},
		{"dead from the start", 0, time.Hour, true},
		{"dies in between", 100 * time.Second, time.Hour, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				store := &hangingStore{dies: began.Add(tc.lives), takes: tc.takes}
				err := pulsedStore{store}.Query(t.Context(), query.Query{}, nil)
				took := time.Since(began)
				if errors.Is(err, ErrSilent) != tc.silent || (err != nil) != tc.silent {
					t.Fatalf("ends with %v", err)
				}
				if tc.silent && (took < tc.lives || took > tc.lives+5*time.Second) {
					t.Errorf("given up after %v, silent since %v", took, tc.lives)
				}
				if !tc.silent && took != tc.takes {
					t.Errorf("took %v instead of %v", took, tc.takes)
				}
				if tc.name == "quick" && store.pings > 0 {
					t.Errorf("%d pings", store.pings)
				}
			})
		})
	}
}

// TestPulseOfRaw: an answer that stops in its middle is given up too, and one that is closed
// leaves nothing behind.
func TestPulseOfRaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hangingStore{dies: time.Now().Add(time.Minute)}
		body, err := pulsedStore{store}.Raw(t.Context(), query.Query{}, "CSV", query.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := body.Read(nil); !errors.Is(err, ErrSilent) {
			t.Errorf("ends with %v", err)
		}
		body, err = pulsedStore{store}.Raw(t.Context(), query.Query{}, "CSV", query.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if err := body.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestPulseOfTheCaller: who goes away is not told that the store is silent.
func TestPulseOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := pulsedStore{&hangingStore{takes: time.Hour}}.Query(ctx, query.Query{}, nil)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrSilent) {
			t.Errorf("ends with %v", err)
		}
	})
}
