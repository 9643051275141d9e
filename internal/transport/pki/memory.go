package pki

import (
	"context"
	"fmt"
	"sync"
)

// MemoryTokens is a TokenStore that forgets everything when the process ends: for tests and the
// simulator, and the model of what a durable store must answer.
type MemoryTokens struct {
	mu     sync.Mutex
	tokens map[Hash]Token
}

// Add remembers a new token.
func (m *MemoryTokens) Add(token Token) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tokens == nil {
		m.tokens = make(map[Hash]Token)
	}
	m.tokens[token.Hash] = token
}

// Token implements TokenStore.
func (m *MemoryTokens) Token(_ context.Context, secret Hash) (Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	token, ok := m.tokens[secret]
	if !ok {
		return Token{}, fmt.Errorf(
			"%w: it may have been withdrawn, or be of another cluster",
			ErrTokenUnknown,
		)
	}
	return token, nil
}

// Spend implements TokenStore.
func (m *MemoryTokens) Spend(_ context.Context, secret, publicKey Hash) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	token, ok := m.tokens[secret]
	switch {
	case !ok:
		return ErrTokenUnknown
	case token.Spent() && token.UsedBy != publicKey:
		return ErrTokenUsed
	}
	token.UsedBy = publicKey
	m.tokens[secret] = token
	return nil
}
