package grpcx_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/musterhpc/muster/internal/transport/echotest"
	"github.com/musterhpc/muster/internal/transport/framed/client"
	"github.com/musterhpc/muster/internal/transport/grpcx"
)

// BenchmarkUnary compares one call with one answer over the local socket, by protocol, number of clients (each with its own
// connection and one call at a time) and size of the request. A submission is about 12 KiB.
func BenchmarkUnary(b *testing.B) {
	for _, size := range []int{16, 12 << 10} {
		in := wrapperspb.String(strings.Repeat("x", size))
		for _, clients := range []int{1, 64} {
			b.Run(fmt.Sprintf("framed/bytes=%d/clients=%d", size, clients), func(b *testing.B) {
				w := newWorld(b, &echotest.Service{}, true)
				load(b, in, clients, func() caller { return w.framedTo(client.Unix(w.unix)) })
			})
			b.Run(fmt.Sprintf("grpc/bytes=%d/clients=%d", size, clients), func(b *testing.B) {
				w := newWorld(b, &echotest.Service{}, true)
				load(b, in, clients, func() caller { return w.grpcUnix() })
			})
		}
	}
}

func load(b *testing.B, in proto.Message, clients int, dial func() caller) {
	calls := make([]caller, clients)
	for i := range calls {
		calls[i] = dial()
		if err := calls[i](b.Context(), echotest.Echo, in, new(wrapperspb.StringValue)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, call := range calls {
		n := b.N / clients
		if i < b.N%clients {
			n++
		}
		wg.Go(func() {
			out := new(wrapperspb.StringValue)
			for range n {
				if err := call(b.Context(), echotest.Echo, in, out); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// BenchmarkPipelined is one framed connection with many calls on their way, as a bulk submission makes them.
func BenchmarkPipelined(b *testing.B) {
	w := newWorld(b, &echotest.Service{}, true)
	c, err := client.Dial(b.Context(), client.Unix(w.unix))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	in := wrapperspb.String(strings.Repeat("x", 12<<10))
	b.ReportAllocs()
	calls := make(chan *client.Pending, 256)
	go func() {
		defer close(calls)
		for range b.N {
			p, err := c.Start(context.Background(), echotest.Echo, in)
			if err != nil {
				b.Error(err)
				return
			}
			calls <- p
		}
	}()
	out := new(wrapperspb.StringValue)
	for p := range calls {
		if err := p.Wait(out); err != nil {
			b.Error(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// BenchmarkConnect is what a tool pays that connects, makes one call and goes.
func BenchmarkConnect(b *testing.B) {
	w := newWorld(b, &echotest.Service{}, true)
	in, out := wrapperspb.String("x"), new(wrapperspb.StringValue)
	b.Run("framed", func(b *testing.B) {
		for b.Loop() {
			c, err := client.Dial(b.Context(), client.Unix(w.unix))
			if err == nil {
				err = c.Call(b.Context(), echotest.Echo, in, out)
			}
			if err != nil {
				b.Fatal(err)
			}
			c.Close()
		}
	})
	b.Run("grpc", func(b *testing.B) {
		for b.Loop() {
			c, err := grpcx.DialUnix(w.unix)
			if err == nil {
				err = c.Invoke(b.Context(), echotest.Echo, in, out, grpc.WaitForReady(true))
			}
			if err != nil {
				b.Fatal(err)
			}
			c.Close()
		}
	})
}
