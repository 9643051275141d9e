// Command grpc makes one gRPC call.
package main

import (
	"context"
	"os"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/musterhpc/muster/internal/transport/grpcx"
)

func main() {
	c, err := grpcx.DialUnix(os.Args[1])
	if err == nil {
		err = c.Invoke(context.Background(), os.Args[2], wrapperspb.String("x"), new(wrapperspb.StringValue))
	}
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
}
