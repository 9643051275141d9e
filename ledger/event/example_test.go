package event_test

import (
	"fmt"

	"github.com/musterhpc/muster/ledger/event"
)

func ExampleCodec() {
	codec, err := event.NewCodec()
	if err != nil {
		fmt.Println(err)
		return
	}
	encoded, err := codec.Encode([]event.Envelope{{
		Seq:   7,
		At:    1_800_000_000_000_000_000,
		Actor: event.Actor{Kind: event.ActorUser, UID: 1000, Name: "alice"},
		Event: &event.JobReleased{UID: 42},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	batch, err := codec.Decode(encoded)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, envelope := range batch {
		fmt.Println(envelope.Seq, envelope.Actor.Name, envelope.Event.Kind())
	}
	// A reader of an older release stops where a newer one wrote.
	_, err = codec.Decode([]byte{0x82, 0x18, 99, 0x80})
	fmt.Println(err)
	// Output:
	// 7 alice JobReleased
	// batch of vocabulary version 99, this release knows 2: written by a newer release of muster: upgrade this controller before it reads the ledger
}
