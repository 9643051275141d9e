package clock

import (
	"context"
	"time"
)

// PauseFor waits, and tells that the context has not ended meanwhile.
func PauseFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
