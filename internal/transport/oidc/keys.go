package oidc

import (
	"context"
	"crypto"
	"fmt"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/transport/usertoken"
)

// keySet is the provider's public keys, as it sent them last.
type keySet struct {
	// asking is held while the provider is asked; readers of known keys do not wait for it.
	asking sync.Mutex

	mu    sync.RWMutex
	keys  map[string]crypto.PublicKey
	at    time.Time // when keys came
	asked time.Time // when the provider was asked last, whatever came of it
	err   error     // of that question
}

var _ usertoken.KeySource = (*Provider)(nil)

// Key implements usertoken.KeySource: the key that signed a token, by its kid. A kid that is not
// known has the provider asked again, so that it may rotate its keys as it likes; tokens with
// invented kids have it asked no more often than every minInterval.
func (p *Provider) Key(kid string) (crypto.PublicKey, error) {
	key, age := p.known(kid)
	switch {
	case key != nil && age < maxAge:
		return key, nil
	case key != nil:
		// It is accepted until the provider has answered: a provider that is away ends
		// nobody's work.
		if err := p.refresh(); err != nil {
			return key, nil
		}
	default:
		if err := p.refresh(); err != nil {
			return nil, err
		}
	}
	key, _ = p.known(kid)
	if key == nil {
		return nil, fmt.Errorf("its key %q is not among those of %s", kid, p.cfg.Issuer)
	}
	return key, nil
}

// known is a key as the provider sent it last, and how long ago that was.
func (p *Provider) known(kid string) (crypto.PublicKey, time.Duration) {
	p.keys.mu.RLock()
	defer p.keys.mu.RUnlock()
	return p.keys.keys[kid], p.cfg.Now().Sub(p.keys.at)
}

// refresh asks the provider for its keys, unless it was asked a moment ago: then what came of
// that holds.
func (p *Provider) refresh() error {
	before := p.cfg.Now()
	p.keys.asking.Lock()
	defer p.keys.asking.Unlock()
	p.keys.mu.RLock()
	asked := p.keys.asked
	err := p.keys.err
	p.keys.mu.RUnlock()
	if !asked.IsZero() && (asked.After(before) || p.cfg.Now().Sub(asked) < minInterval) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*p.cfg.Patience)
	defer cancel()
	keys, err := p.fetchKeys(ctx)
	p.keys.mu.Lock()
	defer p.keys.mu.Unlock()
	p.keys.asked = p.cfg.Now()
	p.keys.err = err
	if err == nil {
		p.keys.keys = keys
		p.keys.at = p.keys.asked
	}
	return err
}

func (p *Provider) fetchKeys(ctx context.Context) (map[string]crypto.PublicKey, error) {
	found, err := p.discoverEndpoints(ctx)
	if err != nil {
		return nil, err
	}
	data, err := p.getDocument(ctx, found.Keys, "")
	if err != nil {
		return nil, err
	}
	keys, err := usertoken.ParseKeys(data)
	if err != nil {
		return nil, fmt.Errorf("%w: its keys at %s: %w", ErrProvider, found.Keys, err)
	}
	return keys, nil
}
