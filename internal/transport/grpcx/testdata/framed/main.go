// Command framed makes one framed call with protobuf messages.
package main

import (
	"context"
	"os"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/musterhpc/muster/internal/transport/framed/client"
)

func main() {
	ctx := context.Background()
	c, err := client.Dial(ctx, client.Unix(os.Args[1]))
	if err == nil {
		err = c.Call(ctx, os.Args[2], wrapperspb.String("x"), new(wrapperspb.StringValue))
	}
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
}
