package controllers

import (
	"strings"
	"testing"
)

// TestControllersTakeTurns: each attempt asks every controller, since only the one
// that leads takes agents, and the error names them all.
func TestControllersTakeTurns(t *testing.T) {
	c := NewControllers([]string{"/nowhere/a", "/nowhere/b"}, nil)
	for range 2 {
		s, err := c.Connect(t.Context())
		if err == nil {
			_, err = s.Recv()
		}
		if err == nil {
			t.Fatal("connected to nobody")
		}
		for _, a := range c.addresses {
			if !strings.Contains(err.Error(), a) {
				t.Errorf("%s was not tried: %v", a, err)
			}
		}
	}
	// gRPC dials for a client that has failed for as long as it exists, and the next attempt
	// makes a new one.
	for address := range c.conns {
		t.Errorf("%s is still dialled", address)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
