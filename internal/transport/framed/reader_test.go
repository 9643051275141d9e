package framed

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// newBytesReader reads from memory and admits only what is there, so that an announced length cannot make it allocate.
func newBytesReader(b []byte) *Reader {
	r := NewReader(nil, bufio.NewReader(bytes.NewReader(b)))
	r.Admit = func(n int) bool { return n <= len(b) }
	return r
}

func TestReaderRefusesButStaysUsable(t *testing.T) {
	var b []byte
	var err error
	for id, size := range []int{10, 5000, 20} {
		if b, err = Append(b, &Frame{Kind: Request, ID: uint64(id + 1), Method: "/m", Payload: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	r := NewReader(nil, bufio.NewReader(bytes.NewReader(b)))
	r.Admit = func(n int) bool { return n < 1000 }
	var f Frame
	if _, err := r.Next(&f); err != nil || f.ID != 1 || len(f.Payload) != 10 {
		t.Fatalf("%+v, %v", f, err)
	}
	var refused *Refused
	if _, err := r.Next(&f); !errors.As(err, &refused) || refused.ID != 2 || refused.Kind != Request || refused.Size < 5000 {
		t.Fatalf("%v", err)
	}
	if _, err := r.Next(&f); err != nil || f.ID != 3 {
		t.Fatalf("%+v, %v", f, err)
	}
	if _, err := r.Next(&f); err != io.EOF {
		t.Fatalf("%v", err)
	}
}

func TestReaderBadLengths(t *testing.T) {
	for _, b := range [][]byte{{0, 0, 0, 0}, {1, 0, 0, 1}, {0xff, 0xff, 0xff, 0xff}} {
		var f Frame
		if _, err := newBytesReader(b).Next(&f); !errors.Is(err, ErrProtocol) {
			t.Errorf("%x: %v", b, err)
		}
	}
	for _, b := range [][]byte{{0}, {0, 0, 0, 3}, {0, 0, 0, 3, byte(Cancel), 1}} {
		r := NewReader(nil, bufio.NewReader(bytes.NewReader(b)))
		var f Frame
		if _, err := r.Next(&f); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%x: %v", b, err)
		}
	}
}

func TestReaderTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		busy := 3
		r := NewReader(server, nil)
		r.Idle, r.Frame = time.Minute, 10*time.Second
		r.StayIdle = func() bool { busy--; return busy > 0 }
		var f Frame
		begin := time.Now()
		if _, err := r.Next(&f); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		if waited := time.Since(begin); waited != 3*time.Minute {
			t.Errorf("idle for %v: twice prolonged, it should be 3 minutes", waited)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		r := NewReader(server, nil)
		r.Idle, r.Frame = time.Minute, 10*time.Second
		go func() {
			client.Write([]byte{0, 0, 0, 9, byte(Request)}) // and nothing more
		}()
		var f Frame
		begin := time.Now()
		if _, err := r.Next(&f); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		if waited := time.Since(begin); waited != 10*time.Second {
			t.Errorf("a dribbling sender had %v", waited)
		}
	})
}
