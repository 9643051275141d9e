package framed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestWriterKeepsFramesWhole(t *testing.T) {
	for _, background := range []bool{false, true} {
		client, server := net.Pipe()
		w := NewWriter(client, Preface, 1000, time.Hour)
		w.Background = background
		const writers, each = 16, 200
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				for j := range each {
					f := Frame{Kind: Message, ID: uint64(i*each + j + 1), Payload: fmt.Appendf(nil, "%d", i*each+j+1)}
					if err := w.Write(t.Context(), &f); err != nil {
						t.Error(err)
					}
				}
			})
		}
		buf := bufio.NewReader(server)
		if _, err := buf.Discard(len(Preface)); err != nil {
			t.Fatal(err)
		}
		r := NewReader(server, buf)
		last := make([]uint64, writers)
		for range writers * each {
			var f Frame
			if _, err := r.Next(&f); err != nil {
				t.Fatal(err)
			}
			if string(f.Payload) != fmt.Sprint(f.ID) {
				t.Fatalf("frame %d holds %q", f.ID, f.Payload)
			}
			writer := (f.ID - 1) / each
			if f.ID <= last[writer] {
				t.Fatalf("writer %d: frame %d after %d", writer, f.ID, last[writer])
			}
			last[writer] = f.ID
		}
		wg.Wait()
		if err := w.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		w.Close(io.EOF)
		if err := w.Write(t.Context(), &Frame{Kind: Cancel}); !errors.Is(err, io.EOF) {
			t.Errorf("after Close: %v", err)
		}
		server.Close()
	}
}

func TestWriterGivesUpOnAPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe() // without a buffer: nobody reads, nothing goes
		defer server.Close()
		w := NewWriter(client, "", 1000, 30*time.Second)
		w.Background = true
		begin := time.Now()
		big := &Frame{Kind: Message, ID: 1, Payload: make([]byte, 2000)}
		for range 2 { // the first is being written, the second fills the room
			if err := w.Write(t.Context(), big); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Write(short, big); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("a writer's own time: %v after %v", err, time.Since(begin))
		}
		if err := w.Write(t.Context(), big); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != 30*time.Second {
			t.Errorf("the peer's time: %v after %v", err, time.Since(begin))
		}
		if _, err := server.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the connection is open: %v", err)
		}
		w.Close(io.EOF)
	})
}

func TestWriterTooLargeHarmsNothing(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	w := NewWriter(client, "", 1000, time.Hour)
	w.Background = true
	if err := w.Write(t.Context(), &Frame{Kind: Message, ID: 1, Payload: make([]byte, MaxFrame)}); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), &Frame{Kind: Message, ID: 2}); err != nil {
		t.Fatal(err)
	}
	var f Frame
	if _, err := NewReader(server, nil).Next(&f); err != nil || f.ID != 2 {
		t.Errorf("%+v, %v", f, err)
	}
	w.Close(io.EOF)
}
