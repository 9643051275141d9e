package otlp

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// TestReceiverThatWasAwayIsFoundSoon: however long a receiver was away, a connection is attempted
// again within seconds, so that a collector that is back gets what waits for it.
func TestReceiverThatWasAwayIsFoundSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts []time.Time
		dial := func(context.Context, string) (net.Conn, error) {
			attempts = append(attempts, time.Now())
			return nil, errors.New("connection refused")
		}
		options := append(dialOptions(insecure.NewCredentials()), grpc.WithContextDialer(dial))
		conn, err := grpc.NewClient("passthrough:///collector", options...)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.Connect()
		time.Sleep(time.Hour) //muster:sleep of the bubble's own clock
		synctest.Wait()
		var longest time.Duration
		for i := 1; i < len(attempts); i++ {
			longest = max(longest, attempts[i].Sub(attempts[i-1]))
		}
		const jitter = 1.2
		if len(attempts) < 2 || float64(longest) > jitter*float64(maxReconnectPause) {
			t.Errorf("%d attempts in an hour, up to %s apart", len(attempts), longest)
		}
	})
}
