package keys

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/transport/credential"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// The times of a change of the key that signs credentials. tls.rotate_keys says how
// often; it is longer than both together, so that two keys at most are live.
const (
	// keyLead is how long agents and the other controllers know a key before it signs.
	keyLead = spec.Hour
	// keyOverlap is how long the old key verifies behind that.
	keyOverlap = daemon.CredentialLife + spec.Hour
	// keyLook is how often the leader looks whether a change is due, and a standby
	// whether the leader has made one. It is far below keyLead.
	keyLook = 5 * time.Minute
)

// useRing replaces the ring.
func (a *Access) useRing(ring credential.Ring) {
	var keys [][]byte
	for _, key := range ring.Public() {
		keys = append(keys, encodeKey(key))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ring = ring
	a.keys = keys
}

// rotateKey makes a new key where the newest has signed for as long as it may, and forgets
// the key that verifies no more. What it changed is in the file before it is used.
func (a *Access) rotateKey(now spec.Instant, every spec.Span) (changed bool, err error) {
	a.mu.RLock()
	held := a.ring
	a.mu.RUnlock()
	ring := held.Prune(now)
	public := ring.Public()
	if len(public) == 1 && every != spec.Infinite && now >= public[0].From.Add(every) {
		ring, err = ring.Rotate(now, keyLead, keyOverlap)
		if err != nil {
			return false, err
		}
	} else if len(public) == len(held.Public()) {
		return false, nil
	}
	if err := ring.Save(a.ringFile); err != nil {
		return false, fmt.Errorf("save the credential keys: %w", err)
	}
	a.useRing(ring)
	return true, nil
}

// reloadKeys reads the keys again, which another controller has made.
func (a *Access) reloadKeys() error {
	ring, err := credential.LoadRing(a.ringFile)
	if err != nil {
		return fmt.Errorf("credential keys: %w", err)
	}
	a.useRing(ring)
	return nil
}

// RotateKeys changes the key that signs credentials while this controller leads, and
// tells the agents. A change that fails is tried again: the old key still signs.
func (a *Access) RotateKeys(
	ctx context.Context,
	every spec.Span,
	tell func(),
	logger *slog.Logger,
) error {
	for {
		changed, err := a.rotateKey(clock.NewSystem().Now(), every)
		switch {
		case err != nil:
			logger.Error("the key that signs credentials was not changed", "error", err)
		case changed:
			logger.Info(
				"the keys of credentials have changed",
				"file",
				filepath.Base(a.ringFile),
				"keys",
				len(a.Keys()),
			)
			tell()
		}
		if !clock.PauseFor(ctx, keyLook) {
			return nil
		}
	}
}

// FollowKeys takes the keys over that the leader has made, while this controller stands
// by: what an earlier leader has signed must hold when this one leads.
func (a *Access) FollowKeys(ctx context.Context, others *peers.Peers, logger *slog.Logger) error {
	for {
		if lead := peers.FindLeader(others.AskOthers(ctx)); lead != nil {
			err := others.FetchKeys(ctx, lead.Of)
			if err == nil {
				err = a.reloadKeys()
			}
			if err != nil && ctx.Err() == nil {
				logger.Warn("the leader's keys were not taken over", "error", err)
			}
		}
		if !clock.PauseFor(ctx, keyLook) {
			return nil
		}
	}
}
