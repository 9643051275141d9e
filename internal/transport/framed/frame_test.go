package framed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

func anyFrame(t *rapid.T) *Frame {
	f := &Frame{ID: rapid.Uint64().Draw(t, "id"), Kind: Kind(rapid.IntRange(int(Request), int(Drain)).Draw(t, "kind"))}
	payload := rapid.SliceOfN(rapid.Byte(), 0, 300)
	switch f.Kind {
	case Request:
		f.Method = rapid.StringN(0, 40, MaxMethod).Draw(t, "method")
		f.Timeout = time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "timeout")) * time.Microsecond
		f.Window = rapid.Uint64Range(0, 1<<62).Draw(t, "window")
		for range rapid.IntRange(0, MaxHeaders).Draw(t, "headers") {
			f.Header = append(f.Header, Pair{rapid.String().Draw(t, "key"), rapid.String().Draw(t, "value")})
		}
		f.Payload = payload.Draw(t, "payload")
	case Message:
		f.Last = rapid.Bool().Draw(t, "last")
		f.Payload = payload.Draw(t, "payload")
	case End:
		if rapid.Bool().Draw(t, "error") {
			f.Err = &StatusError{Wire: rpcstatus.NotFound, Number: rapid.Int32().Draw(t, "number"), Message: "m"}
		}
	case Credit:
		f.Bytes = rapid.Uint64Range(0, 1<<62).Draw(t, "bytes")
	}
	return f
}

func TestFrameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyFrame(t)
		prefix := []byte("before")
		b, err := Append(prefix, want)
		if err != nil {
			t.Fatal(err)
		}
		body := b[len(prefix)+lengthSize:]
		if n := binary.BigEndian.Uint32(b[len(prefix):]); int(n) != len(body) {
			t.Fatalf("length %d for %d bytes", n, len(body))
		}
		var got Frame
		if err := Parse(body, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Payload) == 0 {
			got.Payload = want.Payload[:len(want.Payload):len(want.Payload)]
		}
		if !reflect.DeepEqual(&got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		for i := range body {
			var cut Frame
			if err := Parse(body[:i], &cut); err == nil && (want.Kind == Cancel || want.Kind == Credit || want.Kind == Drain) {
				t.Fatalf("frame of kind %d cut at %d of %d is accepted", want.Kind, i, len(body))
			}
		}
	})
}

func TestAppendRefuses(t *testing.T) {
	big := make([]byte, MaxFrame)
	for name, f := range map[string]*Frame{
		"payload":         {Kind: Request, Payload: append(big, 0)},
		"payload+header":  {Kind: Message, Payload: big},
		"method":          {Kind: Request, Method: strings.Repeat("m", MaxMethod+1)},
		"too many header": {Kind: Request, Header: make([]Pair, MaxHeaders+1)},
	} {
		b, err := Append([]byte("x"), f)
		if !errors.Is(err, ErrTooLarge) || string(b) != "x" {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	if b, err := Append([]byte("x"), &Frame{Kind: 99}); err == nil || string(b) != "x" {
		t.Errorf("kind 99: %v", err)
	}
	if b, err := Append(nil, &Frame{Kind: Message, Payload: big[:MaxFrame-3]}); err != nil || len(b) != lengthSize+MaxFrame {
		t.Errorf("the largest message: %d bytes, %v", len(b), err)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty": {}, "kind 0": {0, 1}, "kind 7": {7, 1}, "no id": {byte(Cancel)}, "long id": {byte(Cancel), 0x80, 0x00},
		"id overflow": append([]byte{byte(Cancel)}, bytes.Repeat([]byte{0xff}, 10)...), "trailing": {byte(Cancel), 1, 0},
		"no flags": {byte(Message), 1}, "flag 2": {byte(Message), 1, 2}, "bad status": {byte(End), 1, 0xff},
		"request cut": {byte(Request), 1, 0, 0, 5, 'a'}, "headers cut": {byte(Request), 1, 0, 0, 0, 1, 3}, "headers many": {byte(Request), 1, 0, 0, 0, 17},
		"method long": {byte(Request), 1, 0, 0, 0x81, 0x02}, "credit none": {byte(Credit), 1},
	} {
		var f Frame
		if err := Parse(b, &f); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
}

func TestPrefaceIsNotHTTP2(t *testing.T) {
	const http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	if strings.HasPrefix(http2, Preface[:1]) || len(Preface) > len(http2) {
		t.Error("one socket cannot tell them apart")
	}
}

func FuzzParse(f *testing.F) {
	for _, x := range []*Frame{{Kind: Request, ID: 1, Method: "/a/B", Timeout: time.Second, Window: 5, Header: []Pair{{"k", "v"}}, Payload: []byte("p")},
		{Kind: Cancel, ID: 2}, {Kind: Credit, ID: 3, Bytes: 300}, {Kind: Message, ID: 4, Last: true, Payload: []byte("q")},
		{Kind: End, ID: 5, Err: rpcstatus.New(rpcstatus.NotFound, "x")}, {Kind: Drain, ID: 1 << 60}} {
		b, err := Append(nil, x)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[lengthSize:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var x Frame
		if Parse(b, &x) != nil {
			return
		}
		again, err := Append(nil, &x)
		if err != nil {
			t.Fatalf("%+v cannot be sent: %v", x, err)
		}
		if x.Kind != End && !bytes.Equal(again[lengthSize:], b) { // an error may hold fields of a later release
			t.Fatalf("%x re-encodes to %x", b, again[lengthSize:])
		}
		var y Frame
		if err := Parse(again[lengthSize:], &y); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzReader feeds any bytes to a reader: no panic, no endless loop, and no more memory than was sent.
func FuzzReader(f *testing.F) {
	b, err := Append(nil, &Frame{Kind: Request, ID: 1, Method: "/a/B", Payload: []byte("p")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(b, b...))
	f.Add([]byte{0, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newBytesReader(b)
		total := 0
		for {
			var x Frame
			n, err := r.Next(&x)
			if err != nil {
				return
			}
			if total += n + lengthSize; total > len(b) {
				t.Fatalf("%d bytes of frames out of %d", total, len(b))
			}
		}
	})
}
