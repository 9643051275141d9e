package serve_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/musterhpc/muster/internal/transport/echotest"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// TestSilentControllerIsLeft: a controller that is stopped and not dead keeps its connections. A call
// that may be repeated is answered by the next controller within the ten seconds after which its
// caller would give up, and one that may not is told what happened.
func TestSilentControllerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := grpcx.NewRegistry(nil, nil)
		registry.RegisterService(echotest.Desc(), &echotest.Service{})
		works, err := serve.New(serve.Config{Handler: registry.Handle})
		if err != nil {
			t.Fatal(err)
		}
		defer works.Close()
		stopped := true
		dial := func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			if stopped {
				go func() { _, _ = io.Copy(io.Discard, far) }()
			} else {
				go func() {
					preface := make([]byte, len(framed.Preface))
					_, _ = io.ReadFull(far, preface)
					_ = works.ServeConn(far, bufio.NewReader(far), identity.Nameless())
				}()
			}
			return near, nil
		}
		again := func(method string, payload []byte) ([]byte, bool) {
			return payload, method == echotest.WhoAmI
		}
		relay := serve.NewRelay(serve.RelayOptions{
			Dial: dial, Patience: time.Minute, Again: again, Silent: func() { stopped = false },
		})
		defer relay.Close()
		forward := func(method string) ([]byte, error) {
			payload, err := proto.Marshal(wrapperspb.String(""))
			if err != nil {
				t.Fatal(err)
			}
			var answer []byte
			request := serve.RelayCall{Method: method, Payload: payload, For: framed.Attest(1, 1)}
			err = relay.Forward(t.Context(), request, func(b []byte) error { answer = b; return nil })
			return answer, err
		}
		unsafe := make(chan error, 1)
		go func() {
			_, err := forward(echotest.Echo)
			unsafe <- err
		}()
		began := time.Now()
		if answer, err := forward(echotest.WhoAmI); err != nil || len(answer) == 0 {
			t.Errorf("answer %q, error %v", answer, err)
		}
		if took := time.Since(began); took > 10*time.Second+time.Second/2 {
			t.Errorf("the answer of the next controller came after %v", took)
		}
		if err := <-unsafe; !is(err, rpcstatus.Unavailable) {
			t.Errorf("a call that may not be repeated ends with %v", err)
		}
		// A call that waits by right is left alone by a controller that answers pings.
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		request := serve.RelayCall{Method: echotest.Block, For: framed.Attest(1, 1)}
		err = relay.Forward(ctx, request, func([]byte) error { return nil })
		if !is(err, rpcstatus.DeadlineExceeded) {
			t.Errorf("a call that waits for an hour ends with %v", err)
		}
	})
}
