package ports

import (
	"fmt"
	"net"
	"testing"
)

func TestFreeFindsWhatNothingListensOn(t *testing.T) {
	var finder Finder
	start, err := finder.Free(Lab)
	if err != nil {
		t.Fatal(err)
	}
	again, err := finder.Free(Lab)
	if err != nil {
		t.Fatal(err)
	}
	if again < start+Lab {
		t.Errorf("found %d, and then %d, of which some are the same", start, again)
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", start+Lab-1))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if areFree(start, Lab) {
		t.Errorf("%d ports from %d are said to be free, and the last one is taken", Lab, start)
	}
}
