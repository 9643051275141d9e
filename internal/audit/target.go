package audit

import (
	"context"
	"time"

	"github.com/musterhpc/muster/internal/audit/ecs"
)

// The records of the trail.
type (
	Record  = ecs.Record
	Origin  = ecs.Origin
	Refusal = ecs.Refusal
	Which   = ecs.Which
)

// What the trail consists of.
const (
	Changes = ecs.Changes
	All     = ecs.All
)

// Target takes lines. It is used by one goroutine at a time.
type Target interface {
	// Write hands lines over, in order. After an error some of them may have
	// arrived; the next call begins anew.
	Write(ctx context.Context, lines []string) error
	// Settles is how long after Write a target can still lose lines when it goes
	// away, because nothing tells that it has read them.
	Settles() time.Duration
	Close() error
}
